"""R6, Debate-as-Reward: 1 where every judge of a panel says yes to the team's work, else 0.

    r = 1 if all judges accept, else 0        (`panel="majority"`: more than half of them)

Always true: one row of unit team, 0 or 1; none where no judge has an answer. `judges` are callables (trace -> yes, no or
None), or names of checks that need no model:

    outcome    the team's reward is above `above`          protocol   no tool call failed, nobody did what is forbidden
    finished   everybody who was spawned returned something

`error` is the chance that a judge says the opposite of what it found: a draw from the trace's id and the judge's name, so that
the same trace is always judged alike. With it a check stands in for a fallible model.

Source: Debate-as-Reward arXiv 2604.16723 (abstract: a strict binary reward of several judges). The checks are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b

from counterpoint.errors import InputError, did_you_mean
from counterpoint.options import Channel
from counterpoint.rewards.reward import Reward, combined, tool_success_shares
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal

TraceJudge = Callable[[Trace], bool | float | None]


def _protocol(trace: Trace) -> bool:
    broken = any(e.type == "safety_event" and e.ok is not True for e in trace.events)
    return not broken and all(share == 1.0 for share in tool_success_shares(trace).values())


def _finished(trace: Trace) -> bool | None:
    spawned = {e.to for e in trace.events if e.type == "spawn" and e.to}
    return spawned <= {e.agent for e in trace.events if e.type in ("return", "message")} if spawned else None


_CHECKS: dict[str, TraceJudge] = {"protocol": _protocol, "finished": _finished}
CHECKS = ("outcome", *_CHECKS)


def _flipped(trace: Trace, name: str, error: float) -> bool:
    """Whether this judge is wrong about this trace."""
    word = blake2b(f"{trace.trace_id}|{name}".encode(), digest_size=8).digest()
    return int.from_bytes(word, "big") / 2**64 < error


def _judge_panel_signals(
    trace: Trace,
    *,
    judges: Sequence[str | TraceJudge] = ("outcome", "protocol"),
    panel: str = "all",
    channel: Channel = "team",
    above: float = 0.5,
    error: float = 0.0,
) -> Iterator[Signal]:
    if not judges:
        raise InputError("the panel has no judge", fix=f"callables, or some of {', '.join(CHECKS)}")
    if not 0 <= error <= 1:
        raise InputError(f"error is {error}", fix="a chance in 0..1")
    combined(panel, [0.0])
    verdicts: list[float] = []
    verdict: bool | float | None
    for k, judge in enumerate(judges):
        name = judge if isinstance(judge, str) else f"judge {k}"
        if isinstance(judge, str) and judge not in CHECKS:
            raise InputError(f"no judge {judge!r}", fix=did_you_mean(judge, CHECKS))
        if judge == "outcome":
            verdict = None if channel not in trace.rewards else trace.rewards[channel] > above
        else:
            verdict = (_CHECKS[judge] if isinstance(judge, str) else judge)(trace)
        if verdict is not None:
            verdicts.append(float(bool(verdict) != _flipped(trace, name, error)))
    if verdicts:
        yield Signal("team", "", "R6", combined(panel, verdicts))


judge_panel = Reward(
    family="R6",
    unit="team",
    source="Debate-as-Reward, arXiv 2604.16723 (from the abstract)",
    score=_judge_panel_signals,
    example=lambda: Example(rollouts()),
)
