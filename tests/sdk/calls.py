"""What the scripts share: whom to call, how to compare, and what the test is told of each call through the gateway."""

import base64
import json
import os
import struct
import zlib

MODEL = os.environ["MODEL"]
ANTHROPIC_MODEL = os.environ["ANTHROPIC_MODEL"]

# What the ledger must say, call by call.
calls = []


def gateway_and_provider(kind, **options):
    """The same client twice. `kind` finds the gateway in its own environment variables, as anybody's program does."""
    base_url = os.environ["SIMULATOR_BASE_URL"]
    if kind.__name__ == "Anthropic":
        base_url = base_url.removesuffix("/v1")
    gateway = kind(max_retries=0, **options)
    provider = kind(base_url=base_url, api_key=os.environ["SIMULATOR_API_KEY"], max_retries=0, **options)
    return gateway, provider


def same(ours, theirs):
    """The gateway's answer, which must be the provider's."""
    ours_shown, theirs_shown = (answer.model_dump(warnings=False) for answer in (ours, theirs))
    assert ours_shown == theirs_shown, f"{ours_shown}\n{theirs_shown}"
    return ours


def note(endpoint, usage, is_streamed=False):
    """Takes note of a call through the gateway and of the usage that it reported; `None` where nothing is used."""
    figures = {} if usage is None else usage.model_dump()

    def figure(*names):
        return next((figures[name] for name in names if figures.get(name) is not None), 0)

    def detail(*path):
        found = next((figures[name] for name in path[:-1] if figures.get(name)), {})
        return found.get(path[-1]) or 0

    counted = figure("input_tokens", "prompt_tokens")
    if endpoint.startswith("messages"):
        read = figure("cache_read_input_tokens")
        written_5m = detail("cache_creation", "ephemeral_5m_input_tokens")
        written_1h = detail("cache_creation", "ephemeral_1h_input_tokens")
        fresh, reasoning = counted, detail("output_tokens_details", "thinking_tokens")
    else:
        read = detail("input_tokens_details", "prompt_tokens_details", "cached_tokens")
        written_5m, written_1h = detail("input_tokens_details", "prompt_tokens_details", "cache_write_tokens"), 0
        fresh = counted - read - written_5m
        reasoning = detail("output_tokens_details", "completion_tokens_details", "reasoning_tokens")
    calls.append(
        {
            "endpoint": endpoint,
            "is_streamed": is_streamed,
            "input_fresh": fresh,
            "cache_read": read,
            "cache_write_5m": written_5m,
            "cache_write_1h": written_1h,
            "output": figure("output_tokens", "completion_tokens"),
            "reasoning": reasoning,
        }
    )


def tell():
    """Tells the test, with the last line."""
    print(json.dumps(calls))


def refused(kind, code, call):
    """The exception that the call must raise, of this very class and with this code in its body."""
    try:
        call()
    except kind as error:
        assert type(error) is kind, type(error)
        body = error.body if isinstance(error.body, dict) else {}
        told = body.get("error", body).get("code")
        assert told == code, (told, error.body)
        return error
    raise AssertionError(f"{code}: no refusal")


def png():
    """A picture of one red pixel, in base64."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0\xff\0\0")), (b"IEND", b"")]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)).decode()
