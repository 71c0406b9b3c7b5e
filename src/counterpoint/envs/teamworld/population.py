"""Who is there (O1): agents come and go, in the order in which they were asked for.

Always true: an agent's slot and its key (the hash of its spawn path) are given when it is asked for, and never to anybody else; a
spawn that a fork deletes keeps its slot and never lives, so that nobody else's key moves.
"""

from __future__ import annotations

import numpy as np

from counterpoint.envs.keyed import mixed
from counterpoint.envs.teamworld import attacks
from counterpoint.envs.teamworld.action import Action, Spawns
from counterpoint.envs.teamworld.edits import Edit, find
from counterpoint.envs.teamworld.running import Running, ranks
from counterpoint.envs.teamworld.state import COSTS
from counterpoint.trace.replay import Delete, Substitute

_SPAWN = COSTS.index("spawn")


def spawn(
    batch: Running, spawns: Spawns, edits: list[Edit], *, injected: bool = False, because: np.ndarray | None = None
) -> None:
    """New agents, in the order of the orders; injected ones because of the log's rows given."""
    s = batch.state
    if not len(spawns):
        return
    order = np.argsort(spawns.ep, kind="stable")
    each = np.repeat(order, spawns.number[order])
    ep, parent = spawns.ep[each], spawns.parent[each]
    if not len(ep):
        return
    rank = ranks(ep)
    slot = 1 + s.spawned[ep] + rank
    same = ep * s.alive.shape[1] + parent
    by_parent = np.argsort(same, kind="stable")
    among = np.empty(len(ep), np.int64)
    among[by_parent] = ranks(same[by_parent])
    s.ordinal[ep, slot] = s.children[ep, parent] + among
    s.alive[ep, slot], s.family[ep, slot], s.type[ep, slot] = True, spawns.family[each], spawns.type[each]
    s.parent[ep, slot], s.depth[ep, slot] = parent, s.depth[ep, parent] + 1
    s.key[ep, slot] = mixed(s.key[ep, parent], s.ordinal[ep, slot].astype(np.int64))
    np.add.at(s.children, (ep, parent), 1)
    # an injected agent runs somebody else's errand: it is paid for and never free
    s.busy[ep, slot] = np.iinfo(np.int64).max if injected else s.round[ep] + 1
    s.compromised[ep, slot] = attacks.compromised(batch.config, batch.seeds(ep, 1), s.key[ep, slot])
    s.spawned += np.bincount(ep, minlength=s.episodes)
    alive = _edited_spawns(batch, ep, slot, edits)
    s.costs[:, _SPAWN] += batch.config.spawn_price * np.bincount(ep[alive], minlength=s.episodes)
    s.counts[:, 2] += np.bincount(ep[alive], minlength=s.episodes)
    if batch.writer:
        marked = attacks.marked_spawns(batch.config, s.seed[ep], s.key[ep, slot])
        batch.writer.spawned(ep[alive], slot[alive], marked[alive], because if because is None else because[alive])


def _edited_spawns(batch: Running, ep: np.ndarray, slot: np.ndarray, edits: list[Edit]) -> np.ndarray:
    """Which of these spawns happen, some with another family or type."""
    alive = np.ones(len(ep), np.bool_)
    for edit in find(edits, "spawned"):
        mine = (ep == edit.ep) & (slot == edit.slot)
        if isinstance(edit.do, Delete):
            alive &= ~mine
        elif isinstance(edit.do, Substitute) and mine.any():
            family, kind = edit.do.value
            batch.state.family[edit.ep, edit.slot], batch.state.type[edit.ep, edit.slot] = family, kind
    batch.state.alive[ep[~alive], slot[~alive]] = False
    return alive


def despawn(batch: Running, action: Action, edits: list[Edit]) -> None:
    """Agents that go; what they have out still comes back."""
    if action.despawns is None or not len(action.despawns[0]):
        return
    ep, slot = action.despawns
    for edit in find(edits, "despawned"):
        stays = (ep == edit.ep) & (slot == edit.slot)
        ep, slot = ep[~stays], slot[~stays]
    batch.state.alive[ep, slot] = False
    batch.state.counts[:, 2] += np.bincount(ep, minlength=batch.state.episodes)
    if batch.writer:
        batch.writer.despawned(ep, slot)
