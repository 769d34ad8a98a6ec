"""Chat with the official package, each call compared with the same call made straight to the provider."""

from openai import OpenAI

from calls import MODEL, gateway_and_provider, note, png, same, tell

gateway, provider = gateway_and_provider(OpenAI)


def messages(text):
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def both(**asked):
    ours = same(*(client.chat.completions.create(model=MODEL, **asked) for client in (gateway, provider)))
    note("chat/completions", ours.usage)
    return ours


def streamed(client, **options):
    chunks = client.chat.completions.create(
        model=MODEL, messages=messages("Two, 你好 🌍. [[sim: tokens=40]]"), stream=True, **options
    )
    text, usage = "", None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
    return text, usage


# Whole, and several answers at once.
both(messages=messages("One. [[sim: tokens=30]]"))
assert len(both(messages=messages("One of two. [[sim: tokens=30]]"), n=2).choices) == 2

# Streamed: usage comes where it was asked for, and nowhere else.
asked = {"stream_options": {"include_usage": True}}
(expected, expected_usage) = streamed(provider, **asked)
text, usage = streamed(gateway)
assert text == expected and len(text) > 40, text
assert usage is None, f"usage was not asked for: {usage}"
note("chat/completions", expected_usage, is_streamed=True)

text, usage = streamed(gateway, **asked)
assert text == expected
assert usage == expected_usage and usage.completion_tokens == 40, usage
note("chat/completions", usage, is_streamed=True)

# A tool is called, and its result sent back.
tool = {
    "type": "function",
    "function": {"name": "speak", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}},
}
question = messages("Three. [[sim: tool-call]]")
message = both(messages=question, tools=[tool]).choices[0].message
call = message.tool_calls[0]
assert call.function.name == "speak" and call.function.arguments, call
result = {"role": "tool", "tool_call_id": call.id, "content": "Said. [[sim: tokens=12]]"}
# The order to call the tool stands in the question, which is sent again.
answered = both(messages=[*messages("Three."), message.model_dump(exclude_none=True), result], tools=[tool])
assert answered.choices[0].finish_reason == "stop" and answered.usage.completion_tokens == 12

# The same in pieces, which the package's own helper puts together.
for client in (gateway, provider):
    with client.chat.completions.stream(model=MODEL, messages=question, tools=[tool], **asked) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.arguments == call.function.arguments
note("chat/completions", final.usage, is_streamed=True)

# A picture as a data URL.
picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png()}"}}
described = both(messages=[{"role": "user", "content": [{"type": "text", "text": "Four."}, picture]}])
assert described.usage.prompt_tokens > 85, "a picture has its tokens"

# Tokens that a cache answered, and those that were not shown.
cached = both(messages=messages("Five. [[sim: tokens=20 reasoning=8 cached=6]]"))
assert cached.usage.prompt_tokens_details.cached_tokens == 6
assert cached.usage.completion_tokens_details.reasoning_tokens == 8

assert [model.id for model in gateway.models.list()] == [MODEL]
assert gateway.models.retrieve(MODEL).id == MODEL
tell()
