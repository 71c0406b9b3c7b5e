"""`About`: everything about a trace but its events.

Always true: agents stand by their number in `Team`, so that an agent's number is its place in the list; totals are own figures
plus those of all that was spawned below; money and busy time that no event carries are null, not 0.
"""

from __future__ import annotations

import numpy as np

from counterpoint.app.viewer.highlights import alerts, facts, is_masked, notes
from counterpoint.app.viewer.prepared import Prepared, finite, prepared
from counterpoint.app.viewer.replay import can_fork, parent_of
from counterpoint.app.viewer.shapes import VERSION, About, Agent
from counterpoint.trace import Trace
from counterpoint.trace.steered import is_steered
from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES


def overview(trace: Trace) -> About:
    """The card, the agents, the answer strip and the notes of a trace."""
    look = prepared(trace)
    if "about" not in look.kept:
        look.kept["about"] = _about(look)
    kept: About = look.kept["about"]
    return kept


def _about(look: Prepared) -> About:
    trace, (start, end) = look.trace, look.span
    rows = agents(look)
    found = alerts(look)
    return About(
        version=VERSION,
        id=trace.trace_id,
        task_id=trace.task_id,
        system=trace.system,
        topology=trace.topology,
        rewards=finite(trace.rewards),
        costs=finite(trace.known_costs),
        metrics=finite(trace.metrics),
        events=look.n,
        edges=look.facts.graph.m,
        start=start,
        end=end,
        agents=rows,
        tools=look.tools[0],
        models=[model for model in dict.fromkeys([e.model for e in trace.events]) if model is not None],
        types=list(EVENT_TYPES),
        edge_types=list(EDGE_TYPES),
        facts=facts(look, rows, found),
        alerts=found,
        notes=notes(look),
        can_fork=can_fork(trace),
        has_reward="team" in trace.rewards,
        has_logp=any(e.logp is not None for e in trace.events),
        is_masked=is_masked(trace),
        is_large=look.is_large,
        parent=parent_of(trace),
        is_steered=is_steered(trace),
    )


def agents(look: Prepared) -> list[Agent]:
    """Every agent, by number."""
    team, seen_ = look.team, look.facts
    count = np.bincount(team.agent_E, minlength=len(team)).tolist()
    tokens = team.per_agent(seen_.tokens_E)
    cost, has_cost = team.per_agent(seen_.cost_E), team.per_agent(seen_.has_cost_E)
    busy, has_dur = team.per_agent(seen_.pieces.length_E), team.per_agent(seen_.has_dur_E & seen_.work_E)
    first, last = np.full(len(team), np.inf), np.full(len(team), -np.inf)
    np.minimum.at(first, team.agent_E, seen_.t_E)
    np.maximum.at(last, team.agent_E, look.end_E)
    # one that was spawned and never acts begins and ends with its spawn
    silent = ~np.isfinite(first)
    first[silent] = last[silent] = np.where(team.spawn_A >= 0, seen_.t_E[team.spawn_A], 0.0)[silent] if look.n else 0.0
    spawn = np.where(team.spawn_A >= 0, team.place_E[team.spawn_A], -1) if look.n else team.spawn_A
    columns = zip(
        team.names, seen_.role_A, team.parent_A.tolist(), team.depth_A.tolist(), spawn.tolist(), count,
        tokens.tolist(), team.with_children(tokens).tolist(),
        cost.tolist(), team.with_children(cost).tolist(), has_cost.tolist(), team.with_children(has_cost).tolist(),
        busy.tolist(), has_dur.tolist(), first.tolist(), last.tolist(), _shares(look), (~team.is_member_A).tolist(),
        strict=True,
    )  # fmt: skip
    return [
        Agent(
            name=name, role=role, parent=up, depth=depth, spawn=made, events=events, tokens_own=own, tokens_total=total,
            cost_own=paid if has_paid else None, cost_total=paid_below if has_below else None,
            busy_s=worked if is_timed else None, start=begin, end=until, path_share=share, is_outside=outside,
        )
        for (name, role, up, depth, made, events, own, total, paid, paid_below, has_paid, has_below, worked, is_timed, begin,
             until, share, outside) in columns
    ]  # fmt: skip


def _shares(look: Prepared) -> list[float]:
    """Each agent's share of the critical path."""
    on_path, path = np.zeros(look.n), look.facts.path
    if path is not None:
        on_path[path.events] = np.array(path.adds) / path.length
    shares: list[float] = look.team.per_agent(on_path).tolist()
    return shares


def depth_first(look: Prepared, top: int) -> list[int]:
    """An agent and all below it."""
    out = [top]
    for a in out:
        out.extend(look.team.children[a])
    return out
