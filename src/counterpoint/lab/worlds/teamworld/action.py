"""What the orchestrators of a batch decide in one round: five parts, flat arrays over episodes.

Always true: an action only says; whether it is legal is checked against the state before anything changes (`observation.py`). A
part left out is a noop. `ep` is the episode's place in the batch, `agent` and `parent` are slots (0 is the orchestrator), `item`
counts through all kinds of items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.worlds.teamworld.config import ATTACKS, FAMILIES, RULES, Config

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
    act: np.ndarray | None = None
    """What the worker does with a question, a place in `config.ACTS`; None: the first everywhere."""

    def __len__(self) -> int:
        return len(self.ep)

    @property
    def acts(self) -> np.ndarray:
        """`act`, also where nothing was chosen."""
        return np.zeros(len(self), np.int64) if self.act is None else self.act

    def where(self, keep: np.ndarray | slice) -> Calls:
        """The calls that a mask, an index array or a slice selects."""
        act = None if self.act is None else self.act[keep]
        return Calls(self.ep[keep], self.item[keep], self.agent[keep], self.brief[keep], self.purpose[keep], act)

    @staticmethod
    def of(ep: Any, item: Any, agent: Any, brief: Any = 2, purpose: Any = ANSWER, act: Any = None) -> Calls:
        """Calls from arrays or numbers that broadcast."""
        columns = (ep, item, agent, brief, purpose, *(() if act is None else (act,)))
        parts = np.broadcast_arrays(*(np.asarray(p, np.int64) for p in columns))
        return Calls(*(p.reshape(-1).copy() for p in parts))

    @staticmethod
    def joined(parts: list[Calls]) -> Calls:
        """Several lists of calls as one, in their order."""
        names = ("ep", "item", "agent", "brief", "purpose", *(("acts",) if any(p.act is not None for p in parts) else ()))
        return Calls(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))


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
    attack: np.ndarray | None = None
    """(E,) of the second side, where there is one (`opponent_rounds`): 0 for none, 1 to 8 for AV1 to AV8."""
    proposal: np.ndarray | None = None
    """(E, 2) of the proposer, in the first round: how hard (0, 1, 2) and how many of the questions (0, 1, 2: a third, two thirds,
    all); None: as the world draws them."""
    logp: np.ndarray | None = None
    """(E, 5) log-probability of each part as `DECISIONS`, under the policy that chose it; None means certain (0)."""


# -- actions of one episode as plain data ------------------------------------------------------------------------------


_NAMES = ("stop", "close", "spawn", "despawn", "calls", "full_return", "broadcast", "rule", "attack", "proposal")
_SPAWN = ("number", "family", "type", "parent")


def _known(table: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for name in table:
        if name not in known:
            raise InputError(f"{what} has no {name!r}", fix=did_you_mean(str(name), known))


def _whole(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{what} is {value!r}", fix="a whole number")
    return int(value)


def _flag(data: Mapping[str, Any], name: str) -> np.ndarray:
    value = data.get(name, False)
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} is {value!r}", fix="true or false")
    return np.array([bool(value)])


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    value = data.get(name, [])
    if not isinstance(value, list | tuple):
        raise InputError(f"{name} is {value!r}", fix="a list")
    return list(value)


def _call(row: Any) -> list[int]:
    if not isinstance(row, list | tuple) or not 2 <= len(row) <= 5:
        raise InputError(f"a call is {row!r}, not [item, agent, brief, purpose, act]", fix="2 to 5 whole numbers")
    return [_whole(part, "part of a call") for part in (*row, *(2, ANSWER, 0)[len(row) - 2 :])]


def _attack(data: Mapping[str, Any]) -> np.ndarray | None:
    name = data.get("attack")
    if name is None:
        return None
    known = ("none", *ATTACKS)
    if name not in known:
        raise InputError(f"no attack {name!r}", fix=did_you_mean(str(name), known))
    return np.array([known.index(name)])


def _proposal(data: Mapping[str, Any]) -> np.ndarray | None:
    pair = data.get("proposal")
    if pair is None:
        return None
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise InputError(f"a proposal is {pair!r}", fix="[how hard, how many], each 0, 1 or 2")
    return np.array([[_whole(part, "part of a proposal") for part in pair]])


def _spawn(order: Any) -> tuple[int, int, int, int]:
    if not isinstance(order, Mapping):
        raise InputError(f"a spawn order is {order!r}", fix='a mapping such as {"number": 1, "family": "B"}')
    _known(order, _SPAWN, "a spawn order")
    family = order.get("family", "B")
    if family not in FAMILIES:
        raise InputError(f"no family {family!r}", fix="A or B")
    number, kind, parent = (_whole(order.get(n, v), n) for n, v in (("number", 1), ("type", 0), ("parent", 0)))
    return number, FAMILIES.index(family), kind, parent


def _slots(config: Config, items: Any) -> np.ndarray:
    mask = np.zeros((1, config.items), np.bool_)
    for item in items:
        if not 0 <= _whole(item, "item") < config.items:
            raise InputError(f"no item {item}", fix=f"0 to {config.items - 1}")
        mask[0, int(item)] = True
    return mask


def as_action(config: Config, data: Action | Mapping[str, Any]) -> Action:
    """An action of one episode, from plain data or as it is; unknown names are one clear error.

    {"stop": false, "close": [3], "spawn": [{"number": 2, "family": "B", "type": 0, "parent": 0}], "despawn": [4],
     "calls": [[item, agent, brief, purpose, act], ...], "full_return": false, "broadcast": false, "rule": "bayes",
     "attack": "AV2", "proposal": [1, 2]}
    """
    if isinstance(data, Action):
        return data
    if not isinstance(data, Mapping):
        raise InputError(f"{data!r} is not an action", fix='a mapping such as {"stop": true}, or an Action')
    _known(data, _NAMES, "an action")
    rule = data.get("rule", RULES[BAYES])
    if rule not in RULES:
        raise InputError(f"no rule {rule!r}", fix=did_you_mean(str(rule), RULES))
    spawns = np.array([_spawn(order) for order in _list(data, "spawn")], np.int64).reshape(-1, 4).T
    calls = np.array([_call(row) for row in _list(data, "calls")], np.int64).reshape(-1, 5).T
    gone = np.array([_whole(slot, "agent") for slot in _list(data, "despawn")], np.int64)
    return Action(
        stop=_flag(data, "stop"),
        close=_slots(config, _list(data, "close")) if data.get("close") else None,
        spawns=Spawns(np.zeros(spawns.shape[1], np.int64), *spawns),
        despawns=(np.zeros(len(gone), np.int64), gone) if len(gone) else None,
        calls=Calls(np.zeros(calls.shape[1], np.int64), *(calls if calls[4].any() else calls[:4])),
        full_return=_flag(data, "full_return"),
        broadcast=_flag(data, "broadcast"),
        rule=np.array([RULES.index(rule)]),
        attack=_attack(data),
        proposal=_proposal(data),
    )


def as_data(action: Action) -> dict[str, Any]:
    """The action of one episode as plain data; what is default is left out. `as_action` gives it back, but for its
    log-probabilities."""
    out: dict[str, Any] = {"stop": True} if action.stop[0] else {}
    if action.close is not None and action.close.any():
        out["close"] = np.flatnonzero(action.close[0]).tolist()
    if len(action.spawns):
        s = action.spawns
        rows = zip(s.number.tolist(), s.family.tolist(), s.type.tolist(), s.parent.tolist(), strict=True)
        out["spawn"] = [{"number": n, "family": FAMILIES[f], "type": t, "parent": p} for n, f, t, p in rows]
    if action.despawns is not None and len(action.despawns[1]):
        out["despawn"] = action.despawns[1].tolist()
    if len(action.calls):
        c = action.calls
        parts = [c.item, c.agent, c.brief, c.purpose, *(() if c.act is None else (c.act,))]
        out["calls"] = np.stack(parts, axis=1).tolist()
    for name in ("full_return", "broadcast"):
        flag = getattr(action, name)
        if flag is not None and flag[0]:
            out[name] = True
    if action.rule is not None and action.rule[0] != BAYES:
        out["rule"] = RULES[int(action.rule[0])]
    if action.attack is not None and action.attack[0]:
        out["attack"] = ATTACKS[int(action.attack[0]) - 1]
    if action.proposal is not None:
        out["proposal"] = action.proposal[0].tolist()
    return out
