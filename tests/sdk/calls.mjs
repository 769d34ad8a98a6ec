// What the scripts share: whom to call, how to compare, and what the test is told of each call through the gateway.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

// Packages are installed outside the clone, where NODE_PATH says; an `import` would not look there.
export const OpenAI = createRequire(import.meta.url)("openai");

export const model = process.env.MODEL;

// Finds the gateway in its own environment variables, as anybody's program does.
export const gateway = new OpenAI({ maxRetries: 0 });
export const provider = new OpenAI({
  baseURL: process.env.SIMULATOR_BASE_URL,
  apiKey: process.env.SIMULATOR_API_KEY,
  maxRetries: 0,
});

// What the ledger must say, call by call.
const calls = [];

// Makes a call of both; the answers must be the same.
export async function both(call) {
  const [ours, theirs] = [await call(gateway), await call(provider)];
  assert.deepEqual(shown(ours), shown(theirs));
  return ours;
}

// Without what the package adds to answers about how they came.
function shown(answer) {
  return JSON.parse(JSON.stringify(answer));
}

// Everything that a stream brings.
export async function all(stream) {
  const events = [];
  for await (const event of await stream) events.push(event);
  return events;
}

// Takes note of a call through the gateway and of the usage that it reported.
export function note(endpoint, usage, isStreamed = false) {
  const input = usage.input_tokens_details ?? usage.prompt_tokens_details ?? {};
  const output = usage.output_tokens_details ?? usage.completion_tokens_details ?? {};
  const read = input.cached_tokens ?? 0;
  const written = input.cache_write_tokens ?? 0;
  calls.push({
    endpoint,
    is_streamed: isStreamed,
    input_fresh: (usage.input_tokens ?? usage.prompt_tokens) - read - written,
    cache_read: read,
    cache_write_5m: written,
    cache_write_1h: 0,
    output: usage.output_tokens ?? usage.completion_tokens ?? 0,
    reasoning: output.reasoning_tokens ?? 0,
  });
}

// Tells the test, with the last line.
export function tell() {
  console.log(JSON.stringify(calls));
}

// The exception that the call must raise, of this very class and with this code.
export async function refused(kind, code, call) {
  try {
    await call();
  } catch (error) {
    assert.equal(error.constructor, kind, error);
    assert.equal(error.code, code);
    return error;
  }
  assert.fail(`${code}: no refusal`);
}
