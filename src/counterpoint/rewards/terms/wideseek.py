"""R8, WideSeek-R1: the outcome, a bonus for a valid answer and an opened page, a price for one long turn.

    r = R + 0.1 + 0.05 [a page was opened] - 0.1 clip((L - 3000) / 2000, 0, 1)       L: tokens written in the longest turn

Always true: one row of unit team; 0 where `valid` says that the answer cannot be parsed or a limit was hit; no row where the
trace has no such reward. A page is opened by a call of one of `tools` (any tool where none is named) that did not fail.

Source: WideSeek-R1 arXiv 2602.04634, where R is the F1 of the items found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from counterpoint.options import Channel
from counterpoint.rewards.reward import Reward, results_of
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal


def mixed(
    outcome: float, *, is_opened: bool, longest: float, w_format: float = 0.1, w_access: float = 0.05, w_length: float = 0.1
) -> float:
    """The formula, for a valid answer."""
    over = min(max((longest - 3000.0) / 2000.0, 0.0), 1.0)
    return outcome + w_format + w_access * is_opened - w_length * over


def longest_turn(trace: Trace) -> int:
    """Tokens written in the longest turn of an agent; events without a turn number count one by one."""
    written: Counter[object] = Counter()
    for event in trace.events:
        written[event.id if event.turn is None else (event.agent, event.turn)] += event.tokens_out or 0
    return max(written.values(), default=0)


def _is_opened(trace: Trace, tools: Collection[str] | None) -> bool:
    answers = results_of(trace) if trace.events else {}
    calls = [e for e in trace.events if e.type == "tool_call" and (tools is None or e.tool in tools)]
    return any(call.ok is not False and all(r.ok is not False for r in answers[call.id]) for call in calls)


def _wideseek_signals(
    trace: Trace,
    *,
    channel: Channel = "team",
    valid: Callable[[Trace], bool] | None = None,
    tools: Collection[str] | None = None,
    w_format: float = 0.1,
    w_access: float = 0.05,
    w_length: float = 0.1,
) -> Iterator[Signal]:
    outcome = trace.rewards.get(channel)
    if outcome is None:
        return
    weights = {"w_format": w_format, "w_access": w_access, "w_length": w_length}
    is_valid = valid is None or valid(trace)
    value = mixed(float(outcome), is_opened=_is_opened(trace, tools), longest=longest_turn(trace), **weights) if is_valid else 0.0
    yield Signal("team", "", "R8", value)


wideseek = Reward(
    family="R8",
    unit="team",
    source="WideSeek-R1, arXiv 2602.04634",
    score=_wideseek_signals,
    example=lambda: Example(rollouts()),
)
