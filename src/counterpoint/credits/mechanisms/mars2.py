"""MARTI-MARS2: every node of a search tree against all nodes of the tree, with optional shaping.

    A = (r - mean) / (std + 1e-9) over the tree;   shaped: r + g (r - b), b = mix of parent (shaped) and sibling mean

Always true: a node counts once, however many traces pass through it. A node whose event carries no reward has no row.

`by="turn"` takes all that the team did in a turn as one node.

Source: MARTI-MARS2 arXiv 2602.07848; MARTI code (ddof 1; shaping as written there, where it never runs because parents are
not stored; here it does). Departure: nodes are found by content, as in `c3`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from counterpoint.credits.groups import Floats, convention_of, group_codes, leave_one_out
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import ALONE, ALONE_FIX, credit_of, grouped_credit, keys_of, step_units, tree_of
from counterpoint.credits.shared_options import GroupConvention, GroupKey, SampleOf, Singleton, StepBy
from counterpoint.errors import InputError, NotIdentified
from counterpoint.options import Channel, Share
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "(r of the node - mean of the tree) / std of the tree"


def shaped_rewards(rewards: ArrayLike, parents: Sequence[int], *, gain: float = 0.5, mix: float = 0.5) -> Floats:
    """r + gain (r - b); b = mix x parent's shaped reward + (1 - mix) x mean of the siblings' rewards, or whichever there is.

    Parents stand before their children; -1 is no parent, and such nodes are each other's siblings.
    """
    r = np.asarray(rewards, np.float64)
    others = leave_one_out(r, group_codes(parents)[0])
    out = r.copy()
    for i, parent in enumerate(parents):
        if parent >= i:
            raise InputError(f"node {i} stands before its parent {parent}")
        has_siblings = np.isfinite(others[i])
        if parent >= 0:
            b = mix * out[parent] + (1 - mix) * others[i] if has_siblings else out[parent]
        else:
            b = others[i] if has_siblings else r[i]
        out[i] = r[i] + gain * (r[i] - b)
    return out


def _node_reward(trace: Trace, place: int, channel: str, by: str) -> float | None:
    """What an action carries in the channel; of a turn, the mean of what its events carry."""
    if by == "action":
        return (trace.events[place].reward or {}).get(channel)
    same = [e.reward or {} for e in trace.events if e.turn == trace.events[place].turn]
    own = [paid[channel] for paid in same if channel in paid]
    return sum(own) / len(own) if own else None


def _mars2_credit(
    traces: Sequence[Trace],
    *,
    shape: bool = False,
    gain: float = 0.5,
    mix: Share = 0.5,
    convention: GroupConvention = "marti",
    key: GroupKey = "task_id",
    channel: Channel = "team",
    singleton: Singleton = None,
    sample: SampleOf = None,
    by: StepBy = "action",
) -> Credit:
    keys = keys_of(traces, key)
    tree = tree_of(traces, keys, [0.0] * len(traces), sample, by)
    once = [tree.steps[i] for i in tree.first_steps()]
    paid = {s.node: _node_reward(traces[s.trace], s.place, channel, by) for s in once}
    scored = [s for s in once if paid[s.node] is not None]
    if not scored:
        raise NotIdentified(f"no event carries a reward {channel!r}", "score the nodes: reward={'team': ...} on events")
    place = {s.node: i for i, s in enumerate(scored)}
    values = np.array([paid[s.node] for s in scored], np.float64)
    if shape:
        values = shaped_rewards(values, [place.get(s.parent, -1) for s in scored], gain=gain, mix=mix)
    rows = [step_units(traces, s, by)[0] for s in scored]
    how = convention_of(convention, singleton=singleton)
    credit = grouped_credit("mars2", _ESTIMAND, traces, rows, values.tolist(), [keys[s.trace] for s in scored], how)
    amount = {(r.trace, r.unit_id): r.value for r in credit.rows}
    of_node = {s.node: amount.get((r.trace, r.unit_id), np.nan) for s, r in zip(scored, rows, strict=True)}
    out = [(unit, of_node[s.node]) for s in tree.steps if s.node in of_node for unit in step_units(traces, s, by)]
    return credit_of("mars2", _ESTIMAND, traces, out, why_not=ALONE, fix=ALONE_FIX, notes={**credit.notes, "shaped": shape})


mars2 = Mechanism(
    sees="item",
    unit="message",
    estimand=_ESTIMAND,
    assumptions="rewards of all nodes and agents of a tree are on one scale",
    cost="a reward per node",
    additive=False,
    source="MARTI-MARS2, arXiv 2602.07848; MARTI code",
    run=_mars2_credit,
    needs=("contents", "event rewards"),
    example=lambda: Example(rollouts(), {"channel": "R2"}),
)
