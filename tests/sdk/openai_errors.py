"""Every refusal arrives as the exception that the official package has for it, with the gateway's code."""

import os

import openai
from openai import OpenAI

model = os.environ["MODEL"]
client = OpenAI(max_retries=0)


def ask(client, model=model):
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hello."}])


def refused(kind, code, call):
    try:
        call()
    except kind as error:
        assert error.code == code, (error.code, error.body)
        return error
    raise AssertionError(f"{code}: no refusal")


refused(openai.AuthenticationError, "invalid_key", lambda: ask(OpenAI(api_key="sk-wrong", max_retries=0)))
refused(openai.NotFoundError, "model_not_found", lambda: ask(client, "nothing"))
refused(openai.NotFoundError, "route_not_found", lambda: client.embeddings.create(model=model, input="x"))
ask(client)
limited = refused(openai.RateLimitError, "rate_limit_exceeded", lambda: ask(client))
assert int(limited.response.headers["retry-after"]) >= 1
print("ok")
