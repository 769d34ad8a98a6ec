"""Every refusal arrives as the exception that the official package has for it, with the gateway's code; the provider's own
errors arrive as they do from the provider."""

import openai
from openai import OpenAI

from calls import MODEL, gateway_and_provider, refused

gateway, provider = gateway_and_provider(OpenAI)


def ask(client, model=MODEL, text="Hello.", **options):
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **options)


wrong = OpenAI(api_key="sk-wrong", max_retries=0)
refused(openai.AuthenticationError, "invalid_key", lambda: ask(wrong))
refused(openai.AuthenticationError, "invalid_key", lambda: wrong.models.list())
refused(openai.NotFoundError, "model_not_found", lambda: ask(gateway, "nothing"))
refused(openai.NotFoundError, "model_not_found", lambda: gateway.models.retrieve("nothing"))
refused(openai.NotFoundError, "unmetered_route", lambda: gateway.images.generate(model=MODEL, prompt="x"))
refused(openai.BadRequestError, "invalid_request", lambda: ask(gateway, service_tier="flex"))
refused(openai.BadRequestError, "invalid_request", lambda: gateway.responses.create(model=MODEL))
large = refused(openai.APIStatusError, "request_too_large", lambda: ask(gateway, text="word " * 5_000))
assert large.status_code == 413

failing = {"text": "[[sim: status=400]]"}
theirs = refused(openai.BadRequestError, "ordered_failure", lambda: ask(provider, **failing))
ours = refused(openai.BadRequestError, "ordered_failure", lambda: ask(gateway, **failing))
assert ours.body == theirs.body, (ours.body, theirs.body)

limited = refused(openai.RateLimitError, "rate_limit_exceeded", lambda: ask(gateway))
assert int(limited.response.headers["retry-after"]) >= 1
print("ok")
