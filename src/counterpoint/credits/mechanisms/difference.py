"""Difference rewards: the team's reward minus what it would have been without the unit.

    D_u = G(z) - G(z without u)

Always true: a unit that nobody reads and nothing depends on gets 0 under a coupled replay. The rows do not sum to the reward,
and need not. Without a replay or a function that answers "what if", nothing is answered. G(z) beside forks is the run's own
score, as the forks' is, whatever a person said of the run (`credit.own_scores`); beside a function it is the trace's reward.

Source: Wolpert and Tumer, difference rewards (textbook); SHARP's mask is this with a placeholder. The default action c_u is
absence: a message or tool call is deleted, an agent is never spawned, a decision becomes a noop. Agents that nobody spawned
are refused. `also` names decisions of the orchestrator (spawn, stop) that get theirs too: the decision becomes a noop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from counterpoint.credits.default import Default, no_replay
from counterpoint.credits.example import Recount
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.own_scores import beside_forks, unused
from counterpoint.credits.rows import TraceUnit, credit_of, unit_events
from counterpoint.credits.shared_options import REPLAY, Unit
from counterpoint.errors import InputError, NotIdentified
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.replay import Delete, Fork, ManyReplay, Replay
from counterpoint.trace.rows import Cost, Credit

_ESTIMAND = "G(z) - G(z without the unit), all noise shared"


def _places(trace: Trace, unit: str) -> dict[str, str | None]:
    """Unit id to the event whose deletion removes the unit; None where there is none."""
    if unit == "agent":
        born = {e.to: e.id for e in reversed(trace.events) if e.type == "spawn"}
        return {name: born.get(name) for name in unit_events(trace, "agent")}
    if unit in ("message", "tool"):
        return {name: name for name in unit_events(trace, unit)}
    if unit == "orchestrator":
        return {e.id: e.id for e in trace.events if e.type == "orchestrator_decision"}
    raise InputError(f"no difference rewards for unit {unit!r}", fix="agent, message, tool or orchestrator")


def _without(replay: Replay, trace: Trace, ids: Sequence[str], channel: str) -> list[float]:
    if not ids:
        return []
    if channel == "team" and isinstance(replay, ManyReplay):
        return [float(g) for g in replay.returns(trace, [Fork(at, Delete()) for at in ids])]
    return [team_reward(replay.fork(trace, at, Delete()), channel) for at in ids]


def _able(replay: Any) -> Replay:
    if not isinstance(replay, Replay):
        raise InputError(f"{type(replay).__name__} cannot replay", fix="an object with fork(trace, at, do, seed)")
    return replay


def _difference_credit(
    traces: Sequence[Trace],
    *,
    replay: Annotated[Any, REPLAY] = None,
    counterfactual: Callable[[Trace, str], float] | None = None,
    unit: Unit = "agent",
    also: Sequence[str] = (),
    channel: Channel = "team",
) -> Credit:
    if replay is None and counterfactual is None:
        raise NotIdentified(
            "a trace alone does not say what would have been", "give replay= or counterfactual=(trace, id) -> reward"
        )
    rows: list[tuple[TraceUnit, float]] = []
    refused: dict[tuple[int, str], str] = {}
    forks = 0
    for i, trace in enumerate(traces):
        places = _places(trace, unit)
        more = {e.id: e.id for e in trace.events if e.type == "orchestrator_decision" and e.decision in also}
        if counterfactual is not None:
            real = team_reward(trace, channel)
            rows += [(TraceUnit(i, unit, name), real - float(counterfactual(trace, name))) for name in places]
            rows += [(TraceUnit(i, "orchestrator", name), real - float(counterfactual(trace, name))) for name in more]
            continue
        asked = {name: at for name, at in places.items() if at is not None}
        refused |= {(i, name): "nobody spawned it: its absence has no event" for name in places if name not in asked}
        forks += len(asked) + len(more)
        at = [*asked.values(), *more]
        own = beside_forks(trace, _able(replay), at[0] if at else None, channel)
        real, without = team_reward(own, channel) if at else 0.0, _without(replay, own, at, channel)
        for name, other in zip([*asked, *more], without, strict=True):
            rows.append((TraceUnit(i, "orchestrator" if name in more else unit, name), real - other))
    return credit_of(
        "difference",
        _ESTIMAND,
        traces,
        rows,
        notes={} if counterfactual is not None else unused(traces, channel),
        cost=Cost(forks=forks),
        unidentified=refused,
        why_not="the team's reward without it is NaN",
        fix="ask for spawned agents, or messages" if counterfactual is None else "a counterfactual= that answers with numbers",
    )


difference = Mechanism(
    unit="agent",
    estimand=_ESTIMAND,
    assumptions="the replay is faithful; absence is a fair default",
    cost="one fork per unit",
    additive=False,
    source="Wolpert and Tumer (2002), textbook form",
    run=_difference_credit,
    needs=("replay",),
    example=lambda: Example(rollouts(), {"replay": Recount()}),
    live={"counterfactual": "task:without_returns"},
    default=Default("the run can be replayed without each agent, which shows what each caused", no_replay, takes=("replay",)),
)
