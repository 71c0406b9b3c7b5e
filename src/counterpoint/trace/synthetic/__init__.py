"""Invented runs of every shape and size, for tests, benchmarks and the demo.

Always true: the same arguments give the same bytes, in any process on any machine; `counterpoint.problems` finds nothing
in what is made here; every text is invented. The shapes are the survey's six; sizes go from three sub-agents to a million
events, with waves of parallel sub-agents, heavy-tailed work, failures, messages that nobody read, and an injected instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace import Trace, summed_costs
from counterpoint.trace.synthetic.script import Script
from counterpoint.trace.synthetic.shapes import critics_of, debate, harness, lookups, review, star, swarm, tree

_Writer = Callable[[Script, int, int, list[range]], None]
_WRITERS: dict[str, _Writer] = {
    "centralized": star,
    "planner_executor_critic": review,
    "debate": debate,
    "swarm": swarm,
    "hierarchical": tree,
    "harness": harness,
}
SHAPES: tuple[str, ...] = tuple(_WRITERS)
"""The topologies that can be made."""
SIZES: dict[str, tuple[int, int]] = {
    "small": (3, 19),
    "k25": (100, 1_500),
    "k26": (300, 4_000),
    "x10": (1_000, 20_000),
    "m1": (22_550, 454_000),
}
"""Sub-agents and steps of named sizes: published systems (K2.5, K2.6), ten times that, and a million events."""
_FEWEST = {"harness": 0, "debate": 2, "planner_executor_critic": 2}
_MOST_AGENTS, _MOST_STEPS = 1_000_000, 10_000_000


def synthetic_trace(
    agents: int,
    steps: int,
    topology: str = "centralized",
    seed: int = 0,
    *,
    contents: bool = False,
    trace_id: str | None = None,
    task_id: str | None = None,
) -> Trace:
    """One invented run: `agents` sub-agents that take `steps` steps between them.

    A step is a tool call and its result, or an argument in a debate. Events number about two per step and three per agent.
    `contents` puts short texts behind the references; the run's shape and numbers are the same without.
    """
    _refuse_nonsense(agents, steps, topology, seed)
    tool_steps = lookups(steps) if topology == "debate" else steps
    script = Script(seed, tool_steps, contents=contents)
    workers = agents - critics_of(agents) if topology == "planner_executor_critic" else agents
    _WRITERS[topology](script, agents, steps, _waves(workers))
    return _trace(
        script,
        agents,
        tool_steps,
        trace_id=trace_id or f"synthetic-{topology}-{agents}x{steps}-{seed}",
        task_id=task_id or f"synthetic-{topology}",
        topology=topology,
    )


def _waves(agents: int) -> list[range]:
    """The agents in even waves: one for a handful, five for a hundred, two hundred for twenty thousand."""
    count = max(1, isqrt(agents) // 2, agents // 113)
    return [range(agents * k // count, agents * (k + 1) // count) for k in range(count)]


def _trace(script: Script, agents: int, tool_steps: int, *, trace_id: str, task_id: str, topology: str) -> Trace:
    success = script.dice.below(4) > 0
    team = 1.0 if success else script.dice.below(6) / 10
    last = script.events[-1]
    assert last.reward is not None
    last.reward["team"] = team
    costs = dict(summed_costs(script.events, script.end / 1000))
    costs["cost_usd"] = script.micro_usd / 1_000_000
    rewards: dict[str, int | float] = {
        "team": team,
        "tool": round(1 - script.failed_calls / tool_steps, 4),
        "orchestration": round(min(1.0, script.busy / (script.end * max(agents, 1))), 4),
    }
    return Trace(
        trace_id=trace_id,
        task_id=task_id,
        system="counterpoint-synthetic",
        topology=topology,  # type: ignore[arg-type]  # checked against SHAPES
        events=script.events,
        edges=script.edges,
        rewards=rewards,
        costs=costs,
        metrics={"task_success": int(success)},
        contents=script.texts.contents,
    )


def _refuse_nonsense(agents: int, steps: int, topology: str, seed: int) -> None:
    for name, value in (("agents", agents), ("steps", steps), ("seed", seed)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InputError(f"{name} is a whole number from 0 on, not {value!r}")
    if topology not in _WRITERS:
        why = "it is a label for runs that were recorded" if topology in ("mixed", "unknown") else None
        raise InputError(f"no run of topology {topology!r} can be made", why=why, fix=did_you_mean(topology, SHAPES))
    fewest = _FEWEST.get(topology, 1)
    if not fewest <= agents <= _MOST_AGENTS:
        raise InputError(f"{topology} takes {fewest} to {_MOST_AGENTS:,} agents, not {agents:,}")
    if not max(agents, 1) <= steps <= _MOST_STEPS:
        raise InputError(
            f"{agents:,} agents take {max(agents, 1):,} to {_MOST_STEPS:,} steps, not {steps:,}",
            why="each agent takes at least one step",
        )
