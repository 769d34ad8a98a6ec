"""Responses of the official package, whole, streamed and with tools, compared with the provider's."""

from openai import OpenAI

from calls import MODEL, gateway_and_provider, note, png, same, tell

gateway, provider = gateway_and_provider(OpenAI)


def both(**asked):
    ours = same(*(client.responses.create(model=MODEL, **asked) for client in (gateway, provider)))
    note("responses", ours.usage)
    return ours


def streamed(client, **asked):
    with client.responses.stream(model=MODEL, **asked) as stream:
        events = list(stream)
        return events, stream.get_final_response()


# Whole, with instructions; cut off at its cap; with a picture.
whole = both(instructions="Be brief.", input="One. [[sim: tokens=30 reasoning=5 cached=4]]")
assert whole.status == "completed" and whole.output_text
assert whole.usage.input_tokens_details.cached_tokens == 4
assert both(input="Cut off. [[sim: tokens=30]]", max_output_tokens=16).incomplete_details.reason == "max_output_tokens"
picture = {"type": "input_image", "image_url": f"data:image/png;base64,{png()}"}
both(input=[{"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, picture]}])

# Streamed.
asked = {"input": "Two, 你好 🌍. [[sim: tokens=40]]"}
(ours, final), (theirs, expected) = streamed(gateway, **asked), streamed(provider, **asked)
assert [event.model_dump(warnings=False) for event in ours] == [event.model_dump(warnings=False) for event in theirs]
assert final.output_text == expected.output_text and final.usage.output_tokens == 40
note("responses", final.usage, is_streamed=True)

# A tool is called, whole and streamed, and its result sent back.
tool = {
    "type": "function",
    "name": "speak",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    "strict": False,
}
question = {"role": "user", "content": "Three. [[sim: tool-call]]"}
call = both(input=[question], tools=[tool]).output[0]
assert call.type == "function_call" and call.name == "speak"
_, final = streamed(gateway, input=[question], tools=[tool])
assert final.output[0].arguments == call.arguments
note("responses", final.usage, is_streamed=True)
result = {"type": "function_call_output", "call_id": call.call_id, "output": "Said. [[sim: tokens=12]]"}
sent_back = [{"role": "user", "content": "Three."}, call.model_dump(exclude_none=True), result]
assert both(input=sent_back, tools=[tool]).usage.output_tokens == 12
tell()
