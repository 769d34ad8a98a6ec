"""Messages of the official package, each call compared with the same call made straight to the provider."""

from anthropic import Anthropic

from calls import ANTHROPIC_MODEL, gateway_and_provider, note, png, same, tell

gateway, provider = gateway_and_provider(Anthropic)


def asked(text, **options):
    content = {"role": "user", "content": text}
    return {"model": ANTHROPIC_MODEL, "max_tokens": 100, "messages": [content], **options}


def both(*question, **options):
    ours = same(*(client.messages.create(**asked(*question, **options)) for client in (gateway, provider)))
    note("messages", ours.usage)
    return ours


def streamed(client, *question, **options):
    with client.messages.stream(**asked(*question, **options)) as stream:
        events = list(stream)
        return events, stream.get_final_message()


def both_streamed(*question, **options):
    (ours, final), (theirs, expected) = (
        streamed(client, *question, **options) for client in (gateway, provider)
    )
    assert [event.model_dump(warnings=False) for event in ours] == [event.model_dump(warnings=False) for event in theirs]
    same(final, expected)
    note("messages", final.usage, is_streamed=True)
    return final


# Whole, with a system prompt; cut off at its cap.
assert both("One. [[sim: tokens=30]]", system="Be brief.").usage.output_tokens == 30
assert both("Cut off. [[sim: tokens=30]]", max_tokens=10).stop_reason == "max_tokens"

# Streamed: the usage of the final message is that of its last event.
final = both_streamed("Two, 你好 🌍. [[sim: tokens=40]]", system=[{"type": "text", "text": "Be brief."}])
assert final.usage.output_tokens == 40 and len(final.content[0].text) > 40, final

# A tool is used, whole and streamed, and its result sent back.
tool = {"name": "speak", "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}}}
message = both("Three. [[sim: tool-call]]", tools=[tool])
use = message.content[0]
assert message.stop_reason == "tool_use" and use.name == "speak" and use.input["text"], message
assert both_streamed("Three. [[sim: tool-call]]", tools=[tool]).content[0].input == use.input
result = {"type": "tool_result", "tool_use_id": use.id, "content": "Said. [[sim: tokens=12]]"}
sent_back = [
    {"role": "user", "content": "Three."},
    {"role": "assistant", "content": [use.model_dump(exclude_none=True)]},
    {"role": "user", "content": [result]},
]
answered = both("", messages=sent_back, tools=[tool])
assert answered.stop_reason == "end_turn" and answered.usage.output_tokens == 12

# A picture.
picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png()}}
described = both([{"type": "text", "text": "Four."}, picture])
assert described.usage.input_tokens > 85, "a picture has its tokens"

# Thinking, whole and streamed, and sent back.
thinking = {"thinking": {"type": "enabled", "budget_tokens": 1_024}, "max_tokens": 2_000}
thought = both("Five. [[sim: tokens=20 reasoning=8]]", **thinking)
assert [block.type for block in thought.content] == ["thinking", "text"]
assert thought.usage.output_tokens_details.thinking_tokens == 8
both_streamed("Five. [[sim: tokens=20 reasoning=8]]", **thinking)
sent_back = [
    {"role": "user", "content": "Five."},
    {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in thought.content]},
    {"role": "user", "content": "And then?"},
]
both("", messages=sent_back, **thinking)

# What is written to the provider's cache is read from it later. Gateway and provider have one cache, so each asks its own.
def cached(client, text, **lifetime):
    mark = {"type": "ephemeral", **lifetime}
    system = [{"type": "text", "text": f"A long introduction: {text}. " * 20, "cache_control": mark}]
    return client.messages.create(**asked("Six. [[sim: caches-prompts tokens=10]]", system=system)).usage


for lifetime in ({}, {"ttl": "1h"}):
    name = f"a{lifetime.get('ttl', '5m')}"
    written = [cached(client, f"{of} {name}", **lifetime) for client, of in ((gateway, "ours"), (provider, "them"))]
    read = [cached(client, f"{of} {name}", **lifetime) for client, of in ((gateway, "ours"), (provider, "them"))]
    assert written[0] == written[1] and read[0] == read[1]
    assert written[0].cache_creation_input_tokens == read[0].cache_read_input_tokens > 0, (written, read)
    note("messages", written[0])
    note("messages", read[0])

# What a message would be, for nothing.
counting = {"model": ANTHROPIC_MODEL, "messages": [{"role": "user", "content": "Seven."}], "system": "Be brief."}
counted = same(*(client.messages.count_tokens(**counting) for client in (gateway, provider)))
assert counted.input_tokens > 0
note("messages/count_tokens", None)

assert ANTHROPIC_MODEL in [model.id for model in gateway.models.list()]
model = gateway.models.retrieve(ANTHROPIC_MODEL)
assert (model.id, model.type, model.lifecycle) == (ANTHROPIC_MODEL, "model", "active"), model
tell()
