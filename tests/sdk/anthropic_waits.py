"""With the README's settings, a refusal that time heals is waited out and a spent budget is not."""

import os
import time

import anthropic
from anthropic import Anthropic

from calls import ANTHROPIC_MODEL

client = Anthropic(max_retries=5, timeout=660)


def ask(client):
    return client.messages.with_raw_response.create(
        model=ANTHROPIC_MODEL, max_tokens=100, messages=[{"role": "user", "content": "Hello."}]
    )


# The window is of one second: of a few calls in a row, one comes too early.
for _ in range(20):
    began = time.monotonic()
    answer = ask(client)
    assert answer.parse().content[0].text
    if answer.retries_taken:
        break
else:
    raise AssertionError("no call was refused")
assert answer.retries_taken <= 2, answer.retries_taken
assert time.monotonic() - began >= 1, "Retry-After is at least a second"

try:
    ask(client.with_options(api_key=os.environ["SPENT_API_KEY"]))
except anthropic.RateLimitError as error:
    assert error.body["error"]["code"] == "budget_exhausted", error.body
    assert error.response.headers["x-should-retry"] == "false"
    assert error.response.request.headers["x-stainless-retry-count"] == "0"
else:
    raise AssertionError("no refusal")
print("ok")
