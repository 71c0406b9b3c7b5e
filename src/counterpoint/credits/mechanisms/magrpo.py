"""MAGRPO: joint actions against each other, per agent and turn; aligned, cross or along a tree of turns.

    aligned: A_g = R_g - mean(R), the same for every agent of rollout g
    cross:   agent k's completion is scored by the SUM of the returns of all joint actions it appears in
    tree:    R = r + gamma mean(returns of the child node), centred among the joint actions of one node

Always true: A sums to 0 over the completions that are compared. In `cross` the scale grows with the number of joint actions,
as in the released code. In `tree` a node is the transcript before a turn, and the joint action is all that was said in the
turn.

Source: MAGRPO arXiv 2508.04652; official CoMLRL code (mean only). `convention="m_grpo"` adds the population std that
secondary sources quote for the paper. Departure: completions are recognised by their contents.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.credits.groups import Convention, convention_of
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.rows import (
    ALONE,
    ALONE_FIX,
    TraceUnit,
    credit_of,
    grouped_credit,
    keys_of,
    paid_steps,
    unit_events,
)
from counterpoint.credits.shared_options import Discount, GroupConvention, GroupKey, Singleton
from counterpoint.errors import InputError, NotIdentified
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

Floats = NDArray[np.float64]
_ESTIMAND = "R - mean over the completions of the same node and agent"


def tree_returns(rewards: ArrayLike, parents: Sequence[int], *, gamma: float = 0.9) -> Floats:
    """R = r + gamma mean(R of the children), children after their parents in the list; -1 is no parent."""
    out = np.array(rewards, np.float64)
    below, count = np.zeros(len(out)), np.zeros(len(out))
    for i in range(len(out) - 1, -1, -1):
        if count[i]:
            out[i] += gamma * below[i] / count[i]
        if parents[i] >= 0:
            if parents[i] >= i:
                raise InputError(f"node {i} stands before its parent {parents[i]}")
            below[parents[i]] += out[i]
            count[parents[i]] += 1
    return out


def _contents(trace: Trace, places: Sequence[int]) -> tuple[Hashable, ...]:
    refs = tuple((trace.events[i].agent, trace.events[i].content_ref) for i in places)
    if any(ref is None for _, ref in refs):
        raise NotIdentified("an action has no content: completions cannot be told apart", "record contents", where=trace.trace_id)
    return refs


def _cross(traces: Sequence[Trace], keys: Sequence[Hashable], channel: str, how: Convention) -> Credit:
    sums: dict[tuple[Hashable, str, Hashable], float] = {}
    holders: dict[tuple[Hashable, str, Hashable], list[int]] = {}
    for i, trace in enumerate(traces):
        for agent, places in unit_events(trace, "agent").items():
            name = (keys[i], agent, _contents(trace, places))
            sums[name] = sums.get(name, 0.0) + team_reward(trace, channel)
            holders.setdefault(name, []).append(i)
    names = list(sums)
    rows = [TraceUnit(holders[n][0], "agent", n[1]) for n in names]
    credit = grouped_credit("magrpo", _ESTIMAND, traces, rows, list(sums.values()), [n[:2] for n in names], how)
    first = {(r.trace, r.unit_id): r.value for r in credit.rows}
    wide = [(TraceUnit(i, "agent", n[1]), first.get((holders[n][0], n[1]), np.nan)) for n in names for i in holders[n]]
    return credit_of("magrpo", _ESTIMAND, traces, wide, why_not=ALONE, fix=ALONE_FIX, notes={**credit.notes, "mode": "cross"})


def _tree(traces: Sequence[Trace], keys: Sequence[Hashable], channel: str, gamma: float, how: Convention) -> Credit:
    number: dict[tuple[Hashable, ...], int] = {}
    parents: list[int] = []
    rewards: list[float] = []
    rows: list[tuple[int, TraceUnit]] = []
    groups: list[Hashable] = []
    for i, trace in enumerate(traces):
        by_turn: dict[int, list[int]] = {}
        for name, places in unit_events(trace, "turn").items():
            by_turn.setdefault(int(name.rsplit("#", 1)[1]), []).extend(places)
        turns = sorted(by_turn)
        before: tuple[int, Hashable] = (-1, keys[i])  # a node, or the task itself
        for turn, reward in zip(turns, paid_steps(trace, [by_turn[t] for t in turns], channel), strict=True):
            here = (*before, tuple(sorted(_contents(trace, by_turn[turn]), key=str)), i if turn == turns[-1] else -1)
            if here not in number:
                number[here] = len(number)
                parents.append(before[0])
                groups.append(before)
                rewards.append(reward)
            before = (number[here], None)
            speakers = dict.fromkeys(trace.events[k].agent for k in by_turn[turn])
            rows += [(before[0], TraceUnit(i, "turn", f"{agent}#{turn}")) for agent in speakers]
    returns = tree_returns(rewards, parents, gamma=gamma)
    nodes = [TraceUnit(n, "team", "") for n in range(len(parents))]
    names = [Trace(trace_id=f"node {n}", task_id="", events=[]) for n in range(len(parents))]
    credit = grouped_credit("magrpo", _ESTIMAND, names, nodes, returns.tolist(), groups, how)
    amount = {r.trace: r.value for r in credit.rows}
    out = [(row, amount.get(node, np.nan)) for node, row in rows]
    notes = {**credit.notes, "mode": "tree", "gamma": gamma}
    return credit_of("magrpo", _ESTIMAND, traces, out, why_not=ALONE, fix=ALONE_FIX, notes=notes)


def _magrpo_credit(
    traces: Sequence[Trace],
    *,
    mode: str = "aligned",
    convention: GroupConvention = "comlrl",
    gamma: Discount = 0.9,
    key: GroupKey = "task_id",
    channel: Channel = "team",
    singleton: Singleton = None,
) -> Credit:
    how, keys = convention_of(convention, singleton=singleton), keys_of(traces, key)
    if mode == "cross":
        return _cross(traces, keys, channel, how)
    if mode == "tree":
        return _tree(traces, keys, channel, gamma, how)
    if mode != "aligned":
        raise InputError(f"no mode {mode!r}", fix="aligned, cross or tree")
    rows = [TraceUnit(i, "agent", name) for i, t in enumerate(traces) for name in unit_events(t, "agent")]
    values = [team_reward(traces[r.trace], channel) for r in rows]
    groups = [(keys[r.trace], r.unit_id) for r in rows]
    return grouped_credit("magrpo", _ESTIMAND, traces, rows, values, groups, how, notes={"mode": "aligned"})


magrpo = Mechanism(
    unit="turn",
    estimand=_ESTIMAND,
    assumptions="a fixed set of agents that move together, one shared reward",
    cost="nothing beyond several traces per task; a tree costs G^turns rollouts",
    additive=False,
    source="MAGRPO, arXiv 2508.04652; CoMLRL's code",
    run=_magrpo_credit,
    needs=("group",),
    example=lambda: Example(rollouts(), {"mode": "tree"}),
)
