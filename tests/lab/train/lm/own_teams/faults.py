"""Teams that go wrong."""

import os
import time

from openai import OpenAI

client = OpenAI()


def say(text: str) -> str:
    got = client.chat.completions.create(model="m", max_tokens=4, messages=[{"role": "user", "content": text}])
    return got.choices[0].message.content or ""


def team(question: str) -> str:
    answer = say(question)
    if "raise" in question:
        raise ValueError("this answer does not suit")
    if "die" in question:
        os._exit(3)
    if "hang" in question:
        time.sleep(3600)
    return answer


def silent(question: str) -> str:
    return "nothing"


def broken(question: str) -> str:
    raise KeyError("no such thing")


def score(answer: str, case: dict) -> float:
    return float("nan") if "nan" in case["question"] else 1.0


NOT_A_FUNCTION = 3
