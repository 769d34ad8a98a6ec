"""Ordinary calls of the official package, each compared with the same call made straight to the provider."""

import os

from openai import OpenAI

model = os.environ["MODEL"]
gateway = OpenAI(max_retries=0)
provider = OpenAI(
    base_url=os.environ["SIMULATOR_BASE_URL"], api_key=os.environ["SIMULATOR_API_KEY"], max_retries=0
)


def messages(text):
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def whole(client):
    return client.chat.completions.create(model=model, messages=messages("One. [[sim: tokens=30]]"))


def streamed(client, **options):
    chunks = client.chat.completions.create(
        model=model, messages=messages("Two, 你好 🌍. [[sim: tokens=40]]"), stream=True, **options
    )
    text, usage = "", None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
    return text, usage


ours, theirs = whole(gateway), whole(provider)
assert ours.choices[0].message.content == theirs.choices[0].message.content
assert ours.usage == theirs.usage, (ours.usage, theirs.usage)

(text, usage), (expected, _) = streamed(gateway), streamed(provider)
assert text == expected and len(text) > 40, text
assert usage is None, f"usage was not asked for: {usage}"

asked = {"stream_options": {"include_usage": True}}
(text, usage), (expected, expected_usage) = streamed(gateway, **asked), streamed(provider, **asked)
assert text == expected
assert usage == expected_usage and usage.completion_tokens == 40, usage

tool = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
call = gateway.chat.completions.create(
    model=model, messages=messages("Three. [[sim: tool-call]]"), tools=[tool]
).choices[0].message.tool_calls[0]
assert call.function.arguments, call

assert [m.id for m in gateway.models.list()] == [model]
print("ok")
