// With the README's settings, a refusal that time heals is waited out and a spent budget is not.

import assert from "node:assert/strict";

import { OpenAI, model, refused } from "./calls.mjs";

let tries = 0;
const fetchCounted = (...request) => {
  tries += 1;
  return fetch(...request);
};
const settings = { maxRetries: 5, timeout: 660_000, fetch: fetchCounted };
const client = new OpenAI(settings);
const ask = (client) => {
  tries = 0;
  return client.chat.completions.create({ model, messages: [{ role: "user", content: "Hello." }] });
};

// The window is of one second: of a few calls in a row, one comes too early.
let waited = 0;
for (let call = 0; call < 20 && tries < 2; call += 1) {
  const began = performance.now();
  assert((await ask(client)).choices[0].message.content);
  waited = performance.now() - began;
}
assert(tries >= 2, "no call was refused");
assert(tries <= 3, `${tries} tries`);
assert(waited >= 1_000, "Retry-After is at least a second");

const spent = new OpenAI({ ...settings, apiKey: process.env.SPENT_API_KEY });
const error = await refused(OpenAI.RateLimitError, "budget_exhausted", () => ask(spent));
assert.equal(error.headers.get("x-should-retry"), "false");
assert.equal(tries, 1);
console.log("ok");
