"""A mistake that was planted in a run on purpose: what, where, by whom, and how the run ends with and without it.

Always true: it lies in `meta` alone, under one name, and whoever judges runs (`audit.blame`) reads neither `meta` nor `extra`.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from counterpoint.errors import InputError
from counterpoint.trace.trace import Trace

MistakeKind = Literal[
    "wrong_fact", "dropped_message", "wrong_argument", "bad_plan", "early_stop", "late_stop", "lost_constraint", "misread_result",
    "wrong_delegation",
]  # fmt: skip
MISTAKES: tuple[str, ...] = get_args(MistakeKind)
PLANTED = "planted_mistake"
"""The name in `meta`."""


class Mistake(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The truth about one planted mistake."""

    kind: MistakeKind
    event: str
    """The event in which it was made; of a message that never came, the sender's last event before it."""
    step: int
    """The event's step, as `blame` counts."""
    agent: str
    subtlety: float
    """From 0 (anybody sees it) to 1 (nobody does)."""
    was: str | None = None
    became: str | None = None
    reward: float
    """The team's reward with it."""
    reward_without: float
    """The team's reward in the run, or the fork, that differs in this mistake alone."""
    is_decisive: bool
    """Whether the run fails with it and succeeds without it."""
    parent: str | None = None
    """The run without it."""


def with_mistake(trace: Trace, mistake: Mistake) -> Trace:
    """The trace with the truth about its mistake."""
    return replace(trace, meta=trace.meta | {PLANTED: msgspec.to_builtins(mistake)})


def mistake_of(trace: Trace) -> Mistake | None:
    """The mistake that was planted in this trace; None where none was."""
    record = trace.meta.get(PLANTED)
    if record is None:
        return None
    try:
        return msgspec.convert(record, Mistake)
    except msgspec.ValidationError as error:
        raise InputError(f"the planted mistake cannot be read: {error}", where=trace.trace_id, fix="inject it again") from None
