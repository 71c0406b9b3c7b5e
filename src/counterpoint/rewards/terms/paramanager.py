"""R8, ParaManager: success, protocol kept, diversity of whom was asked, and tokens saved.

    r = R + w_protocol p + w_diversity d + w_efficiency e
    p: share of tool calls and returns that did not fail     d: 1 - sum over k of (share of delegations that went to k)^2
    e: 1 - min(tokens / most, 1)

Always true: one row of unit team; none where the trace has no such reward. p, d and e lie in 0..1; without a call or return p
is 1, without a delegation d is 0. Agents and tools are one set of actions: a delegation is a brief to an agent, or a tool call
of the lead itself.

Source: ParaManager arXiv 2604.17009, whose abstract names the four terms and gives neither formula nor weight: both are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.rewards.reward import Reward, results_of, succeeded
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal
from counterpoint.trace.team import team_of


def mixed(
    success: float,
    protocol: float,
    diversity: float,
    efficiency: float,
    *,
    w_protocol: float = 0.2,
    w_diversity: float = 0.1,
    w_efficiency: float = 0.1,
) -> float:
    """The formula."""
    return success + w_protocol * protocol + w_diversity * diversity + w_efficiency * efficiency


def protocol_of(trace: Trace) -> float:
    """The share of tool calls and returns that did not fail; 1 where there is none."""
    answers = results_of(trace) if trace.events else {}
    flags = [succeeded(e, answers[e.id]) is not False for e in trace.events if e.type == "tool_call"]
    flags += [e.ok is not False and e.error is None for e in trace.events if e.type == "return"]
    return sum(flags) / len(flags) if flags else 1.0


def diversity_of(trace: Trace) -> float:
    """How mixed those are who were asked: the chance that two delegations, drawn with return, went to different ones."""
    team = team_of(trace) if trace.events else None
    lead = team.names[team.main] if team is not None and team.main is not None else None
    asked = Counter(e.to for e in trace.events if e.type == "message" and e.agent == lead and e.to not in (None, lead))
    asked += Counter(f"tool {e.tool}" for e in trace.events if e.type == "tool_call" and e.agent == lead)
    if not asked:  # a team whose briefs are not logged: whoever returned something was asked for it
        asked = Counter(e.agent for e in trace.events if e.type == "return" and e.agent != lead)
    n = asked.total()
    return 1.0 - sum((k / n) ** 2 for k in asked.values()) if n else 0.0


def _paramanager_signals(
    trace: Trace,
    *,
    channel: Channel = "team",
    most: float = 100_000,
    w_protocol: float = 0.2,
    w_diversity: float = 0.1,
    w_efficiency: float = 0.1,
) -> Iterator[Signal]:
    if not most > 0:
        raise InputError(f"most is {most}", fix="above 0 tokens")
    outcome = trace.rewards.get(channel)
    if outcome is None:
        return
    tokens = sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in trace.events)
    weights = {"w_protocol": w_protocol, "w_diversity": w_diversity, "w_efficiency": w_efficiency}
    terms = (float(outcome), protocol_of(trace), diversity_of(trace), 1.0 - min(tokens / most, 1.0))
    yield Signal("team", "", "R8", mixed(*terms, **weights))


paramanager = Reward(
    family="R8",
    unit="team",
    source="ParaManager, arXiv 2604.17009 (terms from the abstract, weights ours)",
    score=_paramanager_signals,
    example=lambda: Example(rollouts(), {"most": 500}),
)
