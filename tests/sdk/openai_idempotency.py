"""A call that is sent twice under one idempotency key runs once, and is answered alike."""

import openai
from openai import OpenAI

from calls import MODEL, note, refused, tell

client = OpenAI(max_retries=0)


def ask(text, key, **options):
    return client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=[{"role": "user", "content": text}],
        extra_headers={"Idempotency-Key": key},
        **options,
    )


first, again = ask("Hello.", "one"), ask("Hello.", "one")
assert "idempotency-replayed" not in first.headers
assert again.headers["idempotency-replayed"] == "true"
assert again.http_response.content == first.http_response.content
note("chat/completions", first.parse().usage)

refused(openai.UnprocessableEntityError, "idempotency_key_reused", lambda: ask("Something else.", "one"))

streamed = {"stream": True, "stream_options": {"include_usage": True}}
first, again = (list(ask("Hello.", "two", **streamed).parse()) for _ in range(2))
assert [chunk.model_dump() for chunk in first] == [chunk.model_dump() for chunk in again]
note("chat/completions", first[-1].usage, is_streamed=True)
tell()
