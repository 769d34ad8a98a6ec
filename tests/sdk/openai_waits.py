"""With the README's settings, a refusal that time heals is waited out and a spent budget is not."""

import os
import time

import openai
from openai import OpenAI

model = os.environ["MODEL"]
client = OpenAI(max_retries=5, timeout=660)


def ask(client):
    return client.chat.completions.with_raw_response.create(
        model=model, messages=[{"role": "user", "content": "Hello."}]
    )


# The window is of one second: of a few calls in a row, one comes too early.
for _ in range(20):
    began = time.monotonic()
    answer = ask(client)
    assert answer.parse().choices[0].message.content
    if answer.retries_taken:
        break
else:
    raise AssertionError("no call was refused")
assert answer.retries_taken <= 2, answer.retries_taken
assert time.monotonic() - began >= 1, "Retry-After is at least a second"

try:
    ask(client.with_options(api_key=os.environ["SPENT_API_KEY"]))
except openai.RateLimitError as error:
    assert error.code == "budget_exhausted", error.body
    assert error.response.headers["x-should-retry"] == "false"
    assert error.response.request.headers["x-stainless-retry-count"] == "0"
else:
    raise AssertionError("no refusal")
print("ok")
