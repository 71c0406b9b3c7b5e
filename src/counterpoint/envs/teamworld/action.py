"""What the orchestrators of a batch decide in one round: five parts, flat arrays over episodes.

Always true: an action only says; whether it is legal is checked against the state before anything changes (`legal.py`). A part
left out is a noop. `ep` is the episode's place in the batch, `agent` and `parent` are slots (0 is the orchestrator), `item`
counts through all kinds of items.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoint.envs.teamworld.config import RULES

# Purposes of a call.
ANSWER, VERIFY, NEXT = 0, 1, 2
# The sub-decisions in the order in which a round makes them; the calls come between communicate and aggregate.
DECISIONS = ("stop", "spawn", "delegate", "communicate", "aggregate")
BAYES = RULES.index("bayes")


def rule(name: str) -> int:
    """The number of an aggregation rule."""
    return RULES.index(name)


def ints(values: Any = ()) -> np.ndarray:
    """A flat array of 64-bit integers."""
    return np.asarray(values, np.int64).reshape(-1)


@dataclass
class Calls:
    """Who works on what (O2) and how much is said to them (O3)."""

    ep: np.ndarray = field(default_factory=ints)
    item: np.ndarray = field(default_factory=ints)
    agent: np.ndarray = field(default_factory=ints)
    brief: np.ndarray = field(default_factory=ints)
    purpose: np.ndarray = field(default_factory=ints)

    def __len__(self) -> int:
        return len(self.ep)

    def where(self, keep: np.ndarray) -> Calls:
        """The calls that a mask or an index array selects."""
        return Calls(self.ep[keep], self.item[keep], self.agent[keep], self.brief[keep], self.purpose[keep])

    @staticmethod
    def of(ep: Any, item: Any, agent: Any, brief: Any = 2, purpose: Any = ANSWER) -> Calls:
        """Calls from arrays or numbers that broadcast."""
        parts = np.broadcast_arrays(*(np.asarray(p, np.int64) for p in (ep, item, agent, brief, purpose)))
        return Calls(*(p.reshape(-1).copy() for p in parts))

    @staticmethod
    def joined(parts: list[Calls]) -> Calls:
        """Several lists of calls as one, in their order."""
        return Calls(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("ep", "item", "agent", "brief", "purpose")))


@dataclass
class Spawns:
    """Orders to spawn (O1): `number` agents of a family and a type, below a parent."""

    ep: np.ndarray = field(default_factory=ints)
    number: np.ndarray = field(default_factory=ints)
    family: np.ndarray = field(default_factory=ints)
    type: np.ndarray = field(default_factory=ints)
    parent: np.ndarray = field(default_factory=ints)

    def __len__(self) -> int:
        return len(self.ep)

    @staticmethod
    def of(ep: Any, number: Any, family: Any = 1, type: Any = 0, parent: Any = 0) -> Spawns:
        """Orders from arrays or numbers that broadcast; orders for nobody are left out."""
        parts = [
            p.reshape(-1) for p in np.broadcast_arrays(*(np.asarray(p, np.int64) for p in (ep, number, family, type, parent)))
        ]
        keep = parts[1] != 0
        return Spawns(*(p[keep] for p in parts))


@dataclass
class Action:
    """One round's decisions of every episode in a batch; parts left None are noops."""

    stop: np.ndarray
    """(E,) O5: stop the team."""
    close: np.ndarray | None = None
    """(E, N) O5: make no more calls on these items."""
    spawns: Spawns = field(default_factory=Spawns)
    """O1: who comes."""
    despawns: tuple[np.ndarray, np.ndarray] | None = None
    """O1: who goes, as (ep, agent)."""
    calls: Calls = field(default_factory=Calls)
    """O2: who works on what, with which brief (O3)."""
    full_return: np.ndarray | None = None
    """(E,) O3: workers report their confidence too."""
    broadcast: np.ndarray | None = None
    """(E,) O3: the round's returns are read to everybody."""
    rule: np.ndarray | None = None
    """(E,) O4: how the returns enter the draft, an index into `RULES`; None is bayes."""
    logp: np.ndarray | None = None
    """(E, 5) log-probability of each part as `DECISIONS`, under the policy that chose it; None means certain (0)."""
