"""Inspect's numbers and words as ours: tokens by either convention, scores as numbers, the prompt in a call's arguments.

Always true: a score that is no number is None here and stays in `meta`.
"""

from __future__ import annotations

from typing import Any

from counterpoint.formats.importing.chat import arguments_text
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, count, number

_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def usage_of(usage: Any) -> tuple[Usage | None, float | None]:
    """Tokens and cost of one call. Whether `input_tokens` holds the cached ones differs by provider; `total_tokens` tells."""
    got = as_dict(usage)
    given, out = count(got.get("input_tokens")), count(got.get("output_tokens"))
    if given is None and out is None:
        return None, None
    read, wrote = count(got.get("input_tokens_cache_read")) or 0, count(got.get("input_tokens_cache_write")) or 0
    reasoning, total = count(got.get("reasoning_tokens")) or 0, count(got.get("total_tokens"))
    cost = number(got.get("total_cost"))
    if (read or wrote) and total == (given or 0) + (out or 0):
        return Usage.whole(given, out, cached=read, written=wrote, reasoning=reasoning), cost
    return Usage(given or 0, read, wrote, out or 0, reasoning), cost


def score_number(value: Any) -> float | None:
    """A score's value as a number: Inspect's own grades, numbers, truth values."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    if isinstance(value, str) and value.lower() in _GRADES:
        return _GRADES[value.lower()]
    return number(value)


def scores_of(scores: Any) -> dict[str, float]:
    """Every number among a sample's scores: `scorer`, or `scorer/key` where its value has parts."""
    out: dict[str, float] = {}
    for name, score in as_dict(scores).items():
        value = score.get("value") if isinstance(score, dict) else score
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
        named = {name: value} if parts is None else {f"{name}/{key}": part for key, part in parts}
        out.update({key: found for key, part in named.items() if (found := score_number(part)) is not None})
    return out


def prompt_of(arguments: Any) -> str:
    """What an agent is asked by a call: its one text argument, else all of them."""
    texts = [value for value in as_dict(arguments).values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 and len(as_dict(arguments)) == 1 else arguments_text(arguments)
