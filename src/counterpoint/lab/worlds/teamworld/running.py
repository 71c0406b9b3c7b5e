"""A batch as its parts see it: configuration, state, log, and the noise in force.

Always true: which seed a draw uses depends on its place in the round, so that a fresh fork keeps all noise up to its event and
none after it. Flat tables hold one row per call, sorted by episode.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from counterpoint.lab.worlds.teamworld import attacks
from counterpoint.lab.worlds.teamworld.action import Action, Spawns
from counterpoint.lab.worlds.teamworld.config import KINDS, Config
from counterpoint.lab.worlds.teamworld.edits import Edit, find
from counterpoint.lab.worlds.teamworld.events import Writer
from counterpoint.lab.worlds.teamworld.state import COSTS, NEVER, BatchState
from counterpoint.trace.keyed import mixed, uniform
from counterpoint.trace.replay import Delete, Substitute

Table = dict[str, np.ndarray]
"""Calls of one kind as columns: ep, item (within the kind), agent, family, brief, purpose, attempt, claim, right, ...;
`tool` is what the tool said, `claim` what the worker says, `said` what it said where the centre misread it."""

# Places in a round, for the noise of fresh forks: the decisions 0-3, results, returns by kind, the draft.
RESULT, RETURN, KIND_SPAN, AGGREGATE = 10, 10_000_000, 10_000_000, 100_000_000


def ranks(ep: np.ndarray) -> np.ndarray:
    """The place of each row among the rows of its episode; rows are sorted by episode."""
    if not len(ep):
        return np.zeros(0, np.int64)
    begins = np.ones(len(ep), np.bool_)
    np.not_equal(ep[1:], ep[:-1], out=begins[1:])
    return np.arange(len(ep)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]


class Running:
    """Episodes under way."""

    def __init__(self, config: Config, state: BatchState, writer: Writer | None) -> None:
        self.config, self.state, self.writer = config, state, writer

    def quality(self) -> np.ndarray:
        """(E,) points for the drafts as they are, before costs."""
        return np.asarray(sum(kind.worth(self.config).sum(axis=1) for _, kind in self.state.kinds.present()), np.float64)

    def worth(self) -> np.ndarray:
        """(E, N) the same, item by item: what a verifier of single answers would say. Nobody in the team is shown it."""
        return np.concatenate([np.asarray(k.worth(self.config), np.float64) for _, k in self.state.kinds.present()], axis=1)

    def value(self) -> np.ndarray:
        """(E,) the return if the team stopped now."""
        return self.quality() - self.state.costs.sum(axis=1)

    def values(self) -> tuple[np.ndarray, np.ndarray]:
        """`value` and `worth`, from one look at the drafts."""
        parts = [kind.worth(self.config) for _, kind in self.state.kinds.present()]
        quality = np.asarray(sum(part.sum(axis=1) for part in parts), np.float64)
        worth = np.asarray(parts[0], np.float64) if len(parts) == 1 else np.concatenate(parts, axis=1, dtype=np.float64)
        return quality - self.state.costs.sum(axis=1), worth

    @property
    def round(self) -> int:
        """The round of the episodes that still run."""
        running = self.state.round[~self.state.done]
        return int(running[0]) if len(running) else int(self.state.round.max(initial=0))

    # -- noise

    def fresh_from(self, rounds: np.ndarray, cuts: np.ndarray, seeds: np.ndarray) -> None:
        """Draw with other seeds after a place in a round, episode by episode; a negative seed keeps the noise as it is."""
        s, seeds = self.state, np.asarray(seeds, np.int64)
        start = np.where(seeds < 0, NEVER, rounds)
        s.fresh_seed = np.column_stack([s.fresh_seed, np.maximum(seeds, 0).astype(np.uint64)])
        s.fresh_round = np.column_stack([s.fresh_round, start])
        s.fresh_cut = np.column_stack([s.fresh_cut, cuts])

    def seeds(self, ep: np.ndarray, place: np.ndarray | int) -> np.ndarray:
        """The seed in force for draws of these episodes at a place of the present round."""
        s = self.state
        out, now = s.seed[ep], s.round[ep]
        for i in range(s.fresh_seed.shape[1]):
            start = s.fresh_round[ep, i]
            out = np.where((now > start) | ((now == start) & (place > s.fresh_cut[ep, i])), s.fresh_seed[ep, i], out)
        return out

    def way_back(self, name: str, table: Table) -> Callable[[int], np.ndarray]:
        """Draws for returns on their way: keyed like the call, but at the time of the return."""
        first = getattr(self.state.kinds, name).first_item
        helpers = np.cumsum(table["agent"] != 0)
        starts = np.searchsorted(table["ep"], table["ep"])
        before = np.where(starts > 0, helpers[np.maximum(starts - 1, 0)], 0) if len(helpers) else helpers
        place = RETURN + KIND_SPAN * KINDS.index(name) + helpers - before - 1

        def draw(what: int) -> np.ndarray:
            seeds = self.seeds(table["ep"], place)
            key = self.state.key[table["ep"], table["agent"]]
            return uniform(seeds, what, key, table["item"] + first, table["attempt"])

        return draw


# -- Who is there (O1): agents come and go, in the order in which they were asked for ---------------------------------
# Always true: an agent's slot and its key (the hash of its spawn path) are given when it is asked for, and never to anybody
# else; a spawn that a fork deletes keeps its slot and never lives, so that nobody else's key moves.

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
