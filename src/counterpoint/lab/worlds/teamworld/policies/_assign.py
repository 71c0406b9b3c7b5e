"""Who takes what: the most wanted items to free agents, each item to the same agent as before where it can.

Always true: no agent and no item is given twice; an item goes to a specialist of its type when the team has one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoint.lab.worlds.teamworld.observation import Observation
from counterpoint.lab.worlds.teamworld.running import ranks

Triple = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(ep, item, agent)"""


def _top(priority: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(ep, item): in each episode the `count` items of highest priority above −inf, best first."""
    most = int(min(count.max(initial=0), priority.shape[1]))
    if most == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # ties go to the lower number, whatever else is in the batch
    cost = 1e-9 * np.arange(priority.shape[1]) - priority
    if most < priority.shape[1]:
        items = np.argpartition(cost, most - 1, axis=1)[:, :most]
        items = np.sort(items, axis=1)
    else:
        items = np.broadcast_to(np.arange(priority.shape[1]), priority.shape)
    cost = np.take_along_axis(cost, items, axis=1)
    order = np.argsort(cost, axis=1, kind="stable")
    items, cost = np.take_along_axis(items, order, axis=1), np.take_along_axis(cost, order, axis=1)
    ep, rank = np.nonzero((cost < np.inf) & (np.arange(most) < count[:, None]))
    return ep, items[ep, rank]


def assigned(
    priority: np.ndarray, free: np.ndarray, members: np.ndarray, prefers: np.ndarray | None = None, *, strict: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ep, item, agent): the most wanted items (E, N) to free members (E, K) of a group.

    Item j prefers member j mod size, or the slot in `prefers` (E, N); `strict` items wait for the one they prefer.
    """
    free = free & members
    count = free.sum(axis=1) * (priority.shape[1] if strict else 1)
    ep, item = _top(priority, count)
    if not len(ep):
        return ep, item, ep
    k = free.shape[1]
    if prefers is None:
        order = np.argsort(~members, axis=1, kind="stable")
        choice = order[ep, item % members.sum(axis=1)[ep]]
    else:
        choice = prefers[ep, item]
    first = np.zeros(len(ep), np.bool_)
    first[np.unique(ep * k + choice, return_index=True)[1]] = True
    first &= free[ep, choice]
    if strict:
        return ep[first], item[first], choice[first]
    agent = np.where(first, choice, -1)
    spare_agents = free.copy()
    spare_agents[ep[first], choice[first]] = False
    other = np.flatnonzero(~first)
    if len(other):
        spare_ep, spare = np.nonzero(spare_agents)
        slot_of = np.full((free.shape[0], k), -1)
        slot_of[spare_ep, ranks(spare_ep)] = spare
        agent[other] = slot_of[ep[other], ranks(ep[other])]
    return ep, item, agent


def matched(
    obs: Observation, priority: np.ndarray, family: np.ndarray, free: np.ndarray, *, by_type: bool = True, by_family: bool = True
) -> list[Triple]:
    """Wanted items by type and family where the team has such specialists, else by whoever is free; either may be ignored.

    Takes the agents it uses out of `free` and the items out of `priority`.
    """
    workers = obs.alive.copy()
    workers[:, 0] &= obs.config.orchestrator_works
    parts = []
    types, families = (range(obs.config.types) if by_type else (-1,)), ((0, 1) if by_family else (-1,))  # -1: any
    for kind, f in [(t, f) for t in types for f in families] if by_type or by_family else []:
        members = workers & ((kind < 0) | (obs.type == kind)) & ((f < 0) | (obs.family == f))
        if members.any():
            fits = ((kind < 0) | (obs.item_type == kind)) & ((f < 0) | (family == f) | (family < 0))
            parts.append(assigned(np.where(fits, priority, -np.inf), free, members))
            _take(parts[-1], free, priority)
    lonely = _orphans(obs, workers) if by_type else np.full(priority.shape, not by_family)
    if lonely.any():
        parts.append(assigned(np.where(lonely, priority, -np.inf), free, workers))
        _take(parts[-1], free, priority)
    return parts


def panel(obs: Observation, priority: np.ndarray, family: np.ndarray, free: np.ndarray) -> list[Triple]:
    """Wanted questions to panelists who have not voted on them: the next of the family, turned by the item's number."""
    view, parts = obs.of("vote"), []
    asked_of = obs.family[np.arange(obs.episodes)[:, None, None], np.maximum(view.callers, 0)]
    cast = np.stack([((view.callers >= 0) & (asked_of == f)).sum(axis=2) for f in (0, 1)], axis=2)
    for f in (0, 1):
        members = obs.alive & (obs.family == f)
        members[:, 0] = False
        size = members.sum(axis=1)[:, None]
        order = np.argsort(~members, axis=1, kind="stable")
        turn = (np.arange(priority.shape[1])[None] + cast[:, :, f]) % np.maximum(1, size)
        asked = (family == f) & (cast[:, :, f] < size * obs.config.votes_per_agent)
        parts.append(
            assigned(np.where(asked, priority, -np.inf), free, members, np.take_along_axis(order, turn, axis=1), strict=True)
        )
        _take(parts[-1], free, priority)
    return parts


def builders(obs: Observation, priority: np.ndarray, free: np.ndarray, *, blind: bool) -> list[Triple]:
    """Ready nodes to whoever did what they are closest to, the closest pair first; nodes that need nothing in turn.

    Two nodes are the closer, the more neighbours they share: that tells the path of a module from an edge between modules. A
    node whose builders are all taken waits.
    """
    view = obs.of("node")
    at = slice(view.first_item, view.first_item + view.done.shape[1])
    members = obs.alive.copy()
    members[:, 0] = False
    if blind:
        some = np.full(priority.shape, -np.inf)
        some[:, at] = priority[:, at]
        part = assigned(some, free, members)
    else:
        plans = [
            _built(view, e, priority[e, at] > -np.inf, free[e] & members[e], members[e]) for e in np.flatnonzero(obs.running)
        ]
        rows = [(e, node, agent) for e, pairs in zip(np.flatnonzero(obs.running), plans, strict=True) for node, agent in pairs]
        ep, node, agent = np.array(rows, np.int64).reshape(-1, 3).T
        part = (ep, node + view.first_item, agent)
    _take(part, free, priority)
    return [part]


def _built(view: Any, e: Any, ready: np.ndarray, free: np.ndarray, members: np.ndarray) -> list[tuple[int, int]]:
    """(node, agent) pairs of one episode."""
    if not (ready.any() and free.any()):
        return []
    nodes, needs = np.flatnonzero(ready), view.needs[e]
    roots = np.flatnonzero(~needs.any(axis=1))
    strength = np.zeros((len(nodes), len(free)), np.float32)
    slots = np.flatnonzero(members)
    if len(slots):
        turn = np.searchsorted(roots, nodes)
        is_root = np.isin(nodes, roots)
        strength[is_root, slots[turn[is_root] % len(slots)]] = 1
    joined = (needs | needs.T).astype(np.float32)
    close = np.where(needs[nodes], 1 + joined[nodes] @ joined, 0)
    row, need = np.nonzero(close)
    np.add.at(strength, (row, view.by[e, need]), close[row, need])
    strength[:, ~free] = 0
    pairs, used = [], set()
    flat = np.flatnonzero(strength)
    for place in flat[np.argsort(-strength.reshape(-1)[flat], kind="stable")].tolist():
        i, agent = divmod(place, len(free))
        if ("node", i) not in used and ("agent", agent) not in used:
            used |= {("node", i), ("agent", agent)}
            pairs.append((int(nodes[i]), agent))
    return pairs


def searchers(
    obs: Observation, priority: np.ndarray, family: np.ndarray, free: np.ndarray, *, by_type: bool = True, by_family: bool = True
) -> list[Triple]:
    """Everybody who is free and fits searches a wanted pool; several pools share them in turn."""
    view, parts = obs.of("pool"), []
    pools = np.arange(view.first_item, view.first_item + obs.config.pool_items)
    room = obs.config.pool_calls - obs.calls[:, pools]
    for j, item in enumerate(pools):
        fits = free & (priority[:, item] > -np.inf)[:, None]
        if by_type:
            fits &= obs.type == obs.item_type[:, [item]]
        if by_family:
            fits &= obs.family == family[:, [item]]
        place = np.cumsum(fits, axis=1)
        share = fits.sum(axis=1) if by_type and obs.config.types > 1 else -(-fits.sum(axis=1) // (len(pools) - j))
        ep, agent = np.nonzero(fits & (place <= np.minimum(share, room[:, j])[:, None]))
        parts.append((ep, np.full(len(ep), item), agent))
        free[ep, agent] = False
    return parts


def _take(part: Triple, free: np.ndarray, priority: np.ndarray) -> None:
    ep, item, agent = part
    free[ep, agent], priority[ep, item] = False, -np.inf


def _orphans(obs: Observation, workers: np.ndarray) -> np.ndarray:
    """(E, N) items of a type that nobody in the team is a specialist of."""
    has = np.stack([(workers & (obs.type == t)).any(axis=1) for t in range(obs.config.types)], axis=1)
    if has.all():
        return np.zeros(obs.item_type.shape, np.bool_)
    return ~np.take_along_axis(has, obs.item_type.astype(np.int64), axis=1)
