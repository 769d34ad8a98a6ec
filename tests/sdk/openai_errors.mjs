// Every refusal arrives as the exception that the official package has for it, with the gateway's code; the provider's own
// errors arrive as they do from the provider.

import assert from "node:assert/strict";

import { OpenAI, all, gateway, model, provider, refused } from "./calls.mjs";

const ask = (client, text = "Hello.", options = {}) =>
  client.chat.completions.create({ model, messages: [{ role: "user", content: text }], ...options });

const wrong = new OpenAI({ apiKey: "sk-wrong", maxRetries: 0 });
await refused(OpenAI.AuthenticationError, "invalid_key", () => ask(wrong));
await refused(OpenAI.AuthenticationError, "invalid_key", () => all(wrong.models.list()));
await refused(OpenAI.NotFoundError, "model_not_found", () => ask(gateway, "Hello.", { model: "nothing" }));
await refused(OpenAI.NotFoundError, "unmetered_route", () => gateway.images.generate({ model, prompt: "x" }));
await refused(OpenAI.BadRequestError, "invalid_request", () => ask(gateway, "Hello.", { service_tier: "flex" }));
const large = await refused(OpenAI.APIError, "request_too_large", () => ask(gateway, "word ".repeat(5_000)));
assert.equal(large.status, 413);

const failing = "[[sim: status=400]]";
const theirs = await refused(OpenAI.BadRequestError, "ordered_failure", () => ask(provider, failing));
const ours = await refused(OpenAI.BadRequestError, "ordered_failure", () => ask(gateway, failing));
assert.deepEqual(ours.error, theirs.error);

const limited = await refused(OpenAI.RateLimitError, "rate_limit_exceeded", () => ask(gateway));
assert(Number(limited.headers.get("retry-after")) >= 1);
console.log("ok");
