"""Embeddings and the older completions of the official package, compared with the provider's."""

from openai import OpenAI

from calls import MODEL, gateway_and_provider, note, same, tell

gateway, provider = gateway_and_provider(OpenAI)


def embedded(**asked):
    ours = same(*(client.embeddings.create(model=MODEL, **asked) for client in (gateway, provider)))
    note("embeddings", ours.usage)
    return [entry.embedding for entry in ours.data]


def completed(**asked):
    ours = same(*(client.completions.create(model=MODEL, **asked) for client in (gateway, provider)))
    note("completions", ours.usage)
    return ours


# The package asks for base64 unless it is told otherwise, and turns it into numbers itself.
texts = ["One text.", "二つ目"]
numbers = embedded(input=texts)
assert len(numbers) == 2 and all(isinstance(number, float) for number in numbers[0])
assert numbers == embedded(input=texts, encoding_format="float")
assert isinstance(embedded(input=texts[0], encoding_format="base64", dimensions=8)[0], str)
embedded(input=[[1, 2, 3], [4, 5]])

completed(prompt="One. [[sim: tokens=30]]", max_tokens=50)
assert len(completed(prompt=["Two.", "Three."], n=2, max_tokens=10).choices) == 4
asked = {"model": MODEL, "prompt": "Four, 你好 🌍. [[sim: tokens=40]]", "stream": True, "max_tokens": 60}
usage = {"stream_options": {"include_usage": True}}
ours, theirs = (list(client.completions.create(**asked, **usage)) for client in (gateway, provider))
assert [chunk.model_dump() for chunk in ours] == [chunk.model_dump() for chunk in theirs]
assert ours[-1].usage.completion_tokens == 40
note("completions", ours[-1].usage, is_streamed=True)
tell()
