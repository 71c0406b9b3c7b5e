"""A team that records itself with counterpoint: two agents, and a model that is asked again where its first answer does not suit."""

import os

from openai import OpenAI

import counterpoint

client = OpenAI()
rec = counterpoint.record(os.environ.get("OWN_STORE", "nowhere"), task="mine", agent="lead")


def say(text: str) -> str:
    got = client.chat.completions.create(model="m", max_tokens=4, messages=[{"role": "user", "content": text}])
    return got.choices[0].message.content or ""


@rec.model(name="m")
def ask(text: str) -> str:
    say(f"{text} once")
    return say(f"{text} twice")


@rec.agent(role="reader")
def reader(text: str) -> str:
    return ask(text)


@rec.agent
def lead(text: str) -> str:
    reader(text)
    return say(text)


def team(job) -> str:
    with rec:
        return lead(job.question)
