// Ordinary calls of the official package for Node.js, each compared with the same call made straight to the provider.

import assert from "node:assert/strict";

import { all, both, gateway, model, note, tell } from "./calls.mjs";

const messages = (text) => [
  { role: "system", content: "Be brief." },
  { role: "user", content: text },
];
const includesUsage = { stream: true, stream_options: { include_usage: true } };

// Chat, whole and streamed.
const whole = await both((client) =>
  client.chat.completions.create({ model, messages: messages("One. [[sim: tokens=30 reasoning=8 cached=6]]") }),
);
assert.equal(whole.usage.completion_tokens, 30);
note("chat/completions", whole.usage);

const chat = { model, messages: messages("Two, 你好 🌍. [[sim: tokens=40]]") };
const chunks = await both((client) => all(client.chat.completions.create({ ...chat, ...includesUsage })));
assert.equal(chunks.at(-1).usage.completion_tokens, 40);
note("chat/completions", chunks.at(-1).usage, true);
const unasked = await all(gateway.chat.completions.create({ ...chat, stream: true }));
assert(unasked.every((chunk) => !chunk.usage), "usage was not asked for");
note("chat/completions", chunks.at(-1).usage, true);

// A tool is called, whole and streamed, and its result sent back.
const parameters = { type: "object", properties: { text: { type: "string" } } };
const tools = [{ type: "function", function: { name: "speak", parameters } }];
const question = { model, tools, messages: messages("Three. [[sim: tool-call]]") };
const called = await both((client) => client.chat.completions.create(question));
const call = called.choices[0].message.tool_calls[0];
assert.equal(call.function.name, "speak");
note("chat/completions", called.usage);
const stream = gateway.chat.completions.stream({ ...question, stream_options: { include_usage: true } });
const streamedCall = (await stream.finalChatCompletion()).choices[0].message.tool_calls[0];
assert.equal(streamedCall.function.arguments, call.function.arguments);
note("chat/completions", await stream.totalUsage(), true);
const result = { role: "tool", tool_call_id: call.id, content: "Said. [[sim: tokens=12]]" };
const answered = await both((client) =>
  client.chat.completions.create({
    model,
    tools,
    messages: [...messages("Three."), called.choices[0].message, result],
  }),
);
assert.equal(answered.usage.completion_tokens, 12);
note("chat/completions", answered.usage);

// Responses, whole and streamed.
const response = await both((client) =>
  client.responses.create({ model, instructions: "Be brief.", input: "Four. [[sim: tokens=30 cached=4]]" }),
);
assert(response.output_text);
note("responses", response.usage);
const events = await both((client) =>
  all(client.responses.create({ model, input: "Five. [[sim: tokens=40 reasoning=5]]", stream: true })),
);
assert.equal(events.at(-1).type, "response.completed");
note("responses", events.at(-1).response.usage, true);
const final = await gateway.responses.stream({ model, input: "Six. [[sim: tokens=25]]" }).finalResponse();
assert.equal(final.usage.output_tokens, 25);
note("responses", final.usage, true);

// The package asks for base64 unless it is told otherwise, and turns it into numbers itself.
const input = ["One text.", "二つ目"];
const vectors = await both((client) => client.embeddings.create({ model, input }));
assert.equal(typeof vectors.data[0].embedding[0], "number");
note("embeddings", vectors.usage);
const floats = await both((client) => client.embeddings.create({ model, input, encoding_format: "float" }));
assert.deepEqual(
  vectors.data.map((entry) => entry.embedding),
  floats.data.map((entry) => entry.embedding),
);
note("embeddings", floats.usage);

assert.deepEqual((await all(gateway.models.list())).map((listed) => listed.id), [model]);
assert.equal((await gateway.models.retrieve(model)).id, model);
tell();
