"""Model calls as texts, for those who learn from pairs or examples: what was asked, what was answered, what it earned.

Always true: calls are compared only where they answer the very same messages in the same task, for the same policy; the same
answer given several times counts once, with the mean of what it earned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from counterpoint.credits.call_rows import CallRows
from counterpoint.lab.trainers.row import policy_of
from counterpoint.trace import Trace
from counterpoint.trace.model_calls import chat_of, messages_of


@dataclass(frozen=True)
class TextCall:
    """One model call in words."""

    trace_id: str
    event_id: str
    agent: str
    role: str | None
    policy: str
    group: str
    messages: tuple[tuple[str, str], ...]
    """Role (system, user, assistant) and text."""
    answer: str
    advantage: float

    def prompt(self) -> list[dict[str, str]]:
        """The messages as chat templates take them."""
        return [{"role": role, "content": text} for role, text in self.messages]

    def completion(self) -> list[dict[str, str]]:
        """The answer as a message."""
        return [{"role": "assistant", "content": self.answer}]

    def about(self) -> dict[str, Any]:
        """Where it comes from."""
        return {name: getattr(self, name) for name in ("policy", "group", "trace_id", "event_id", "agent", "role")}


class LearnableCalls(NamedTuple):
    """The calls that have texts and an advantage, and how many calls are left out for which reason."""

    calls: list[TextCall]
    left_out: Counter[str]


def text_calls(traces: Sequence[Trace], call_rows: CallRows) -> LearnableCalls:
    """The calls of these traces, with texts as the traces have them and advantages as the rows do."""
    calls: list[TextCall] = []
    left_out: Counter[str] = Counter()
    for row in call_rows.rows:
        trace = traces[row.trace]
        chat = chat_of(trace, trace.events[trace.index[row.event]])
        if any("tool_calls" in message for message in messages_of(trace, trace.events[trace.index[row.event]])):
            left_out["whose messages call tools"] += 1
        elif chat is None or any(not text for _, text in chat.prompt):
            left_out["without texts"] += 1
        elif not row.sampled:
            left_out["whose answer was put there"] += 1
        elif row.advantage is None:
            left_out["without an advantage"] += 1
        elif not chat.answer:
            left_out["that wrote nothing"] += 1
        else:
            calls.append(
                TextCall(
                    trace.trace_id, row.event, row.agent, row.role, policy_of(row), row.group, tuple(chat.prompt), chat.answer,
                    row.advantage,
                )
            )  # fmt: skip
    return LearnableCalls(calls, left_out)


class Answers(NamedTuple):
    """Different answers to the same messages: the first call that gave each, and the mean of what it earned, best first."""

    calls: list[TextCall]
    earned: list[float]
    given: list[int]
    """How often each was given."""


def same_question(calls: Iterable[TextCall]) -> list[Answers]:
    """The calls by what they were asked, in the order in which the questions first came."""
    asked: dict[tuple[Any, ...], dict[str, list[TextCall]]] = {}
    for call in calls:
        asked.setdefault((call.policy, call.group, call.messages), {}).setdefault(call.answer, []).append(call)
    out = []
    for answers in asked.values():
        rated = [(float(np.mean([c.advantage for c in some])), some) for some in answers.values()]
        rated.sort(key=lambda pair: -pair[0])
        out.append(Answers([some[0] for _, some in rated], [value for value, _ in rated], [len(some) for _, some in rated]))
    return out
