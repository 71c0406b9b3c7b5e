"""Tokens that a source states for a run alone, by model: they go to the run's last step with that model.

Always true: what steps state themselves is taken out first, and nothing is less than none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from counterpoint.formats.importing.dialogue import Entry
from counterpoint.formats.importing.model_names import canonical_name, undated
from counterpoint.formats.importing.usage import Usage

RUN = {"tokens_of": "the run"}


def without(total: Usage, stated: Iterable[Usage]) -> Usage:
    """What is left of a total when what steps state is taken out."""
    for usage in stated:
        total = Usage(*(max(a - b, 0) for a, b in zip(total, usage, strict=True)))
    return total


def spread(entries: list[Entry], totals: Mapping[str, Usage]) -> None:
    """Put what is left of each model's total on its last step; a model without a step gets one of its own."""
    steps = [entry for entry in entries if entry.role == "assistant"]
    for model, total in totals.items():
        mine = [step for step in steps if step.model is not None and _name(step.model) == _name(model)]
        rest = without(total, (step.usage for step in mine if step.usage))
        if not rest:
            continue
        if not mine:
            mine = [Entry("assistant", "", f"tokens:{model}", model=model)]
            entries += mine
        last = mine[-1]
        last.usage = last.usage.plus(rest) if last.usage else rest
        last.extra = {**last.extra, **RUN}


def _name(model: str) -> str:
    return undated(canonical_name(model))
