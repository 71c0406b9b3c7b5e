"""What an audit says: `Measure`, `Summary` and `Finding`.

Always true: missing is not zero. A measure without a value says why; one with a value says whether it was measured or
estimated, on what it rests, whether it is a bound, and which events are behind it (the first `EVENT_LIMIT` ids; `event_count`
counts all). Definitions stand in one place, `DEFINITIONS` for measures and `HACKS` for hacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from msgspec import Struct

from counterpoint.trace import Trace

EVENT_LIMIT = 50
"""How many event ids a measure or finding carries; the rest are counted."""

Status = Literal["measured", "estimated", "missing"]
Bound = Literal["exact", "at least", "at most"]


class Definition(NamedTuple):
    """What a measure is: its family in the survey (E1-E4, or scale, or cost), its unit and its formula in words."""

    family: str
    unit: str
    text: str


DEFINITIONS: dict[str, Definition] = {
    "task_success": Definition("E1", "", "metrics.task_success, else rewards.team, as the source states it"),
    "parallelism_efficiency": Definition("E2", "x", "serial / parallel time: sum of agents' busy time / span of the events"),
    "parallelism_efficiency_steps": Definition("E2", "x", "all steps / critical steps"),
    "critical_steps": Definition("E2", "steps", "PARL: sum over stages of main's steps + the slowest sub-agent's"),
    "critical_path_s": Definition("E2", "s", "the chain of dependent events that took longest, each moment counted once"),
    "critical_path_tokens": Definition("E2", "tokens", "the chain of dependent events with the most tokens"),
    "critical_path_steps": Definition("E2", "steps", "the chain of dependent events with the most steps"),
    "mean_parallelism": Definition("E2", "agents", "agents running at once, on average while any runs"),
    "max_parallelism": Definition("E2", "agents", "agents running at once, at most"),
    "useful_agent_utilisation": Definition("E2", "share", "sub-agent actions that the result depends on / all sub-agent actions"),
    "message_redundancy": Definition("E3", "share", "messages that repeat an earlier one / all inter-agent messages"),
    "message_redundancy_receiver": Definition("E3", "share", "messages that repeat what their receiver already had / all"),
    "messages_read": Definition("E3", "share", "messages that another agent's event read / all inter-agent messages"),
    "protocol_overhead": Definition("E4", "share", "tokens for coordination: orchestration, messages, tool management / all"),
    "error_amplification": Definition("E4", "x", "downstream corrupted events / initially corrupted events"),
    "untrusted_reach": Definition("E4", "share", "events that untrusted content may have reached / all events"),
    "rollout_cost": Definition("cost", "USD", "C_rollout(G) = sum_i (L_i c_tok + T_i c_tool) + C_orch(K, |G|)"),
    "recorded_cost": Definition("cost", "USD", "cost_usd of all events, or costs.cost_usd where the source states more"),
    "events": Definition("scale", "events", "events in the trace"),
    "messages": Definition("scale", "events", "messages with a receiver"),
    "tool_calls": Definition("scale", "events", "tool_call events"),
    "sub_agents": Definition("scale", "agents", "agents that were spawned"),
    "depth": Definition("scale", "levels", "spawns between the root and the deepest agent"),
    "wall_clock": Definition("scale", "s", "span of the events, or costs.wall_clock_s where the source states more"),
    "tokens": Definition("scale", "tokens", "tokens of all events, or costs.tokens where the source states more"),
}


class Measure(Struct, frozen=True, kw_only=True):
    """One number about one trace, with its standing and its events."""

    name: str
    family: str
    value: float | int | None
    unit: str
    status: Status
    rests_on: str
    """What the value rests on, or why there is none."""
    bound: Bound = "exact"
    """Whether the true value may be larger ("at least") or smaller ("at most")."""
    events: list[str] = []
    event_count: int = 0

    @classmethod
    def of(
        cls,
        name: str,
        value: float | int | None,
        rests_on: str,
        *,
        status: Status = "measured",
        bound: Bound = "exact",
        events: tuple[list[str], int] = ([], 0),
    ) -> Measure:
        """A measure by its definition; `missing(...)` for one without a value."""
        family, unit, _ = DEFINITIONS[name]
        return cls(
            name=name, family=family, value=value, unit=unit, status=status, rests_on=rests_on, bound=bound,
            events=events[0], event_count=events[1],
        )  # fmt: skip

    @classmethod
    def missing(cls, name: str, why: str) -> Measure:
        """No value, and why."""
        return cls.of(name, None, why, status="missing")


class Summary(Struct, frozen=True, kw_only=True):
    """One measure over a batch of traces: its mean and an interval for it, over the traces that have a value."""

    name: str
    family: str
    unit: str
    n: int
    missing: int
    estimated: int
    mean: float | None
    low: float | None
    high: float | None


class Hack(NamedTuple):
    """A reward hack: the family that it games, its definition, and what would mend it."""

    family: str
    text: str
    fix: str


HACKS: dict[str, Hack] = {
    "pseudo_parallelism": Hack(
        "R7",
        "sub-agents spawned side by side that run one after another, are never read, or do the same task with the same result",
        "pay for critical steps saved or finished and used sub-tasks, not for spawns; anneal R7 to zero",
    ),
    "free_riding": Hack(
        "R1",
        "an agent that shares the team's reward though the result depends on nothing it did, or it only copies others",
        "give agents their own credit (leave-one-out, Shapley) instead of an even share",
    ),
    "communication_padding": Hack(
        "R6",
        "messages that tell their receiver what it had, or that nobody reads",
        "pay a message for what changes after it; charge tokens",
    ),
    "tool_spam": Hack(
        "R5",
        "tool calls that repeat an earlier one to no effect, fail again, or whose results nobody reads",
        "price tool calls by outcome; pay a repeated call nothing",
    ),
    "verifier_collusion": Hack(
        "R6",
        "a verifier that approves without evidence of its own what turns out wrong, in return for approval, or with copied words",
        "ground the verifier in tools or held-out checks; score it on outcomes, not on agreement",
    ),
}


class Finding(Struct, frozen=True, kw_only=True):
    """What one detector says about a trace: found, clear, or that it cannot judge."""

    hack: str
    family: str
    status: Literal["found", "clear", "missing"]
    why: str
    """In words: what was seen, or why it cannot be judged."""
    score: float | None = None
    threshold: float
    severity: Literal["low", "medium", "high"] | None = None
    agents: list[str] = []
    events: list[str] = []
    event_count: int = 0
    definition: str = ""
    fix: str = ""

    @classmethod
    def of(
        cls,
        hack: str,
        why: str,
        score: float | None,
        threshold: float,
        *,
        is_found: bool = False,
        agents: Iterable[str] = (),
        events: tuple[list[str], int] = ([], 0),
    ) -> Finding:
        """A finding by its hack's definition; without a score it is missing. Severity is how far the score is past the bar."""
        family, definition, fix = HACKS[hack]
        past = 0.0 if score is None or threshold >= 1 else (score - threshold) / (1 - threshold)
        return cls(
            hack=hack,
            family=family,
            status="missing" if score is None else "found" if is_found else "clear",
            why=why,
            score=score,
            threshold=threshold,
            severity=None if not is_found else "low" if past < 1 / 3 else "medium" if past < 2 / 3 else "high",
            agents=list(agents),
            events=events[0],
            event_count=events[1],
            definition=definition,
            fix=fix,
        )


def standing(whole: bool) -> tuple[Status, Bound]:
    """What a sum is whose parts are all recorded, or only some of them."""
    return ("measured", "exact") if whole else ("estimated", "at least")


def ids(trace: Trace, numbers: Iterable[int]) -> tuple[list[str], int]:
    """The ids of events, the first few, and how many there are."""
    listed = list(numbers)
    return [trace.events[i].id for i in listed[:EVENT_LIMIT]], len(listed)
