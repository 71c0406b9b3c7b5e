"""R6, debate and verification: each message is paid by one judge or a panel, or by the verdicts logged on it.

Always true: one row of unit message per message or return that somebody scored. A panel's verdicts are made one by `panel`:
mean, all (a strict gate, Debate-as-Reward, arXiv 2604.16723), majority, min, max, ...; judges that give None abstain. A judge
must not be the author: the verdict of a judge that names itself (attribute `agent`) on its own message is dropped. CoMAS
(2510.08529) has a judge that scores pairs of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.rewards.reward import Judge, Reward, amounts, combined, events_of_types
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal

_TALK = ("message", "return")


def _debate_signals(
    trace: Trace,
    *,
    judge: Judge | Sequence[Judge] | None = None,
    panel: str = "mean",
    channel: Channel = "R6",
) -> Iterator[Signal]:
    combined(panel, [0.0])
    if judge is None:
        for event, value in amounts(trace, [channel], _TALK):
            yield Signal("message", event.id, "R6", value)
        return
    judges: list[Callable[..., float | bool | None]] = [judge] if callable(judge) else list(judge)
    if not judges:
        raise InputError("the panel has no judge", fix="give at least one callable")
    for event in events_of_types(trace, _TALK):
        heard = [j for j in judges if getattr(j, "agent", None) != event.agent]
        verdicts = [float(v) for j in heard if (v := j(trace, event)) is not None]
        if verdicts:
            yield Signal("message", event.id, "R6", combined(panel, verdicts))


debate = Reward(
    family="R6",
    unit="message",
    source="survey 2605.02801, section 3; Debate-as-Reward 2604.16723",
    score=_debate_signals,
    example=lambda: Example(rollouts()),
)
