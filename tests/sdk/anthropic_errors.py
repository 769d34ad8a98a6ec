"""Every refusal arrives as the exception that the official package has for it, with the gateway's code; the provider's own
errors arrive as they do from the provider."""

import anthropic
from anthropic import Anthropic

from calls import ANTHROPIC_MODEL, MODEL, gateway_and_provider, refused

gateway, provider = gateway_and_provider(Anthropic)


def ask(client, model=ANTHROPIC_MODEL, text="Hello.", **options):
    return client.messages.create(
        model=model, max_tokens=100, messages=[{"role": "user", "content": text}], **options
    )


wrong = Anthropic(api_key="sk-wrong", max_retries=0)
for call in (lambda: ask(wrong), lambda: wrong.models.list()):
    error = refused(anthropic.AuthenticationError, "invalid_key", call)
    assert error.type == "authentication_error", error.body
missing = refused(anthropic.NotFoundError, "model_not_found", lambda: ask(gateway, "nothing"))
assert missing.type == "not_found_error" and missing.request_id, "the gateway's id is found where the provider's would be"
refused(anthropic.NotFoundError, "model_not_found", lambda: gateway.models.retrieve("nothing"))
refused(anthropic.NotFoundError, "route_not_found", lambda: gateway.messages.batches.list())
refused(anthropic.BadRequestError, "invalid_request", lambda: ask(gateway, MODEL))
refused(anthropic.BadRequestError, "invalid_request", lambda: ask(gateway, extra_body={"speed": "fast"}))
large = refused(anthropic.ContentTooLargeError, "request_too_large", lambda: ask(gateway, text="word " * 5_000))
assert large.type == "request_too_large"

failing = {"text": "[[sim: status=400]]"}
theirs = refused(anthropic.BadRequestError, None, lambda: ask(provider, **failing))
ours = refused(anthropic.BadRequestError, "upstream_error", lambda: ask(gateway, **failing))
assert (ours.type, ours.api_message) == (theirs.type, theirs.api_message), (ours.body, theirs.body)

limited = refused(anthropic.RateLimitError, "rate_limit_exceeded", lambda: ask(gateway))
assert limited.type == "rate_limit_error" and int(limited.response.headers["retry-after"]) >= 1
print("ok")
