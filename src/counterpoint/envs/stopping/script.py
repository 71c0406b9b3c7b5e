"""One episode with everything that was done to it: which noise each round and decision uses, and what was delivered.

Always true: edits are plain data and are applied in order, so (world, policy, seed, edits) gives the whole episode, and a fork is
one more edit. An edit at an event touches nothing that comes before it.

| at | what can be done |
|---|---|
| d3, a decision | `Force({"stop": ...})`; `Delete` (it goes on); `Substitute(draw=n)` (its coin is tossed again) |
| r3, a tool result | `Substitute(value)`; `Substitute(draw=n)` (the worker's round is drawn anew, hidden part and all) |
| m3, a message | `Delete`, `Substitute(value)`, `Insert(value)`: what is not delivered is in no draft and no feature |
| any event | nothing, and a seed: draws after it are fresh; what was fixed at the start (items, reliability) stays |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from counterpoint.envs.keyed import child_seed, purpose
from counterpoint.envs.stopping.config import Config
from counterpoint.envs.stopping.sample import Paths, Segments, increments, paths_of
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace.replay import Delete, Do, Force, Insert, Substitute

_REDRAW = purpose("stopping redraw")
_KINDS = "scrmade"  # the order of events within a round: spawn, call, result, message, aggregate, decision, end
_WHAT = "a message (m1, m2, ...), a tool result (r1, ...) or a decision (d0, d1, ...)"

Edit = Mapping[str, Any]


def edit_of(config: Config, at: str, do: Do | None, seed: int | None) -> dict[str, Any]:
    """One fork as plain data, after checking that this world can answer it."""
    kind, number, _ = _parts(at)
    base = {"at": at, "do": None} if seed is None else {"at": at, "do": None, "seed": seed}
    match do, kind:
        case None, _:
            return base
        case Force(action), "d":
            if set(action) != {"stop"} or not isinstance(action["stop"], bool | np.bool_):
                raise InputError(f"no action {dict(action)!r}", where=at, fix='{"stop": True} or {"stop": False}')
            return base | {"do": "force", "stop": _may(config, number, bool(action["stop"]))}
        case Delete(), "d":
            return base | {"do": "force", "stop": _may(config, number, False)}
        case Delete(), "m":
            return base | {"do": "delete"}
        case Substitute(None, draw), "r" | "d":
            if draw < 1:
                raise InputError(f"no draw {draw}", where=at, fix="fresh draws are counted from 1")
            return base | {"do": "redraw", "draw": draw}
        case Substitute(None), "m":
            raise NotIdentified("a report only repeats its tool result", f"redraw the result r{number}", where=at)
        case (Substitute(value), "m" | "r") | (Insert(value), "m"):
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or not config.accepts(int(value)):
                raise InputError(f"no round brings {value!r}", where=at, fix="what one round could bring, as a whole number")
            return base | {"do": "insert" if isinstance(do, Insert) else "substitute", "value": int(value)}
    raise NotIdentified(f"{type(do).__name__} means nothing at {at}", f"fork at {_WHAT}", where=at)


def _may(config: Config, t: int, stop: bool) -> bool:
    if t == config.horizon and not stop:
        raise InputError("the horizon ends the episode: it cannot go on", fix="replace(horizon=...) makes a longer world")
    return stop


def _parts(at: str) -> tuple[str, int, int]:
    """Kind, round and place of an event id such as m3 or m3.1 (an inserted message)."""
    number, _, place = at[1:].partition(".")
    return at[0], int(number), int(place or 0)


class Script:
    """The noise and the deliveries of one episode."""

    def __init__(self, config: Config, seed: int, edits: list[Edit]) -> None:
        self.config, self.seed = config, seed
        self.round_seeds = np.full(config.horizon + 1, seed, np.int64)
        """The seed that round r draws with, at place r; place 0 holds what was fixed at the start."""
        self.coin_seeds = np.full(config.horizon + 1, seed, np.int64)
        """The seed of the coin of decision t."""
        self.forced: dict[int, bool] = {}
        self._results: dict[int, int] = {}
        self._messages: dict[int, dict[int, int | None]] = {}
        for edit in edits:
            self._apply(edit)
        found = increments(config, self._segments())[0].tolist()
        self.results: list[int] = [self._results.get(r + 1, brought) for r, brought in enumerate(found)]
        """What each round brought the worker."""
        self.messages: list[dict[int, int]] = [self._delivered(r + 1, brought) for r, brought in enumerate(self.results)]
        """What was reported after each round, by place: 0 is the worker's own report, others were inserted."""

    def paths(self) -> Paths:
        """Payoffs and features of what was delivered."""
        steps = np.array([[sum(m.values()) for m in self.messages]], np.int64)
        return paths_of(self.config, np.array([self.seed]), steps)

    def _delivered(self, number: int, brought: int) -> dict[int, int]:
        changed: dict[int, int | None] = {0: brought, **self._messages.get(number, {})}
        return {place: value for place, value in changed.items() if value is not None}

    def _segments(self) -> Segments:
        """Runs of rounds with one seed."""
        out = [(0, self.round_seeds[:1])]
        for r in range(1, len(self.round_seeds)):
            if self.round_seeds[r] != out[-1][1][0]:
                out.append((r - 1, self.round_seeds[r : r + 1]))
        return out

    def _apply(self, edit: Edit) -> None:
        kind, number, place = _parts(edit["at"])
        told = self._messages.setdefault(number, {})
        match edit["do"], kind:
            case "force", _:
                self.forced[number] = edit["stop"]
            case "delete", _:
                told[place] = None
            case "insert", _:
                told[max([0, *told]) + 1] = edit["value"]
            case "substitute", "m":
                told[place] = edit["value"]
            case "substitute", _:
                self._results[number] = edit["value"]
            case "redraw", "r":
                self.round_seeds[number] = child_seed(int(self.round_seeds[number]), _REDRAW, number, edit["draw"])
            case "redraw", _:
                self.coin_seeds[number] = child_seed(int(self.coin_seeds[number]), _REDRAW, number, edit["draw"])
        if "seed" in edit:
            is_drawn = _KINDS.index(kind) >= _KINDS.index("r")  # has this round's draw been made by then?
            self.round_seeds[number + is_drawn if number else 1 :] = edit["seed"]
            self.coin_seeds[number + (kind in "de") :] = edit["seed"]
