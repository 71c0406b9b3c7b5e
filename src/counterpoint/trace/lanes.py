"""Lanes: a team over time as rows of cells, for every picture that is not the page's (terminal, notebook).

Always true: the tree is the spawn tree, children in the order of their spawns; siblings that differ only in their number are one
lane (`reader x6`), and so are their children; no agent is in two lanes. A cell says one thing: the mark that lies in it (a
failure, a stop, a join, a return, a spawn, a delegation) unless it is one of a crowd, else what took most of its time. Time
runs left to right, but a gap in which no agent works takes little room, whatever it lasted.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.trace.quantities import is_failed, is_thinking
from counterpoint.trace.records import Event
from counterpoint.trace.team import Floats, TraceTeam


class Family(NamedTuple):
    """A family of kinds: one hue each, told apart by every kind of sight, and its contrast is enough on white and on black."""

    name: str
    light: str
    dark: str


class Kind(NamedTuple):
    """What an event does, and the sign for it."""

    name: str
    family: int
    glyph: str
    ascii: str


FAMILIES = (
    Family("think", "#0B5FA5", "#88CCEE"),
    Family("act", "#D55E00", "#E69F00"),
    Family("coordinate", "#AA3377", "#CC79A7"),
    Family("merge", "#2E8B57", "#2FB67C"),
    Family("stop, error", "#3D3D3D", "#D9D9D9"),
)
KINDS = (
    Kind("think", 0, "█", "#"),
    Kind("tool", 1, "⚙", "*"),
    Kind("message", 2, "✉", "@"),
    Kind("delegate", 2, "◇", "o"),
    Kind("spawn", 2, "▷", ">"),
    Kind("return", 3, "◁", "<"),
    Kind("aggregate", 3, "◆", "+"),
    Kind("stop", 4, "■", "="),
    Kind("error", 4, "✕", "x"),
)
EMPTY, WAIT = -2, -1
"""Cells without a kind: before an agent's first and after its last event, and between them."""

_NUMBER = {kind.name: k for k, kind in enumerate(KINDS)}
_MARKS = _NUMBER["delegate"]  # from here on a kind is a mark: it shows however short it is, the later over the earlier
_OF_TYPE = {
    "orchestrator_decision": "think", "spawn": "spawn", "despawn": "stop", "message": "message", "tool_call": "tool",
    "tool_result": "tool", "return": "return", "aggregate": "aggregate", "human_intervention": "message", "safety_event": "stop",
}  # fmt: skip
# A spawn's duration is often its sub-agent's whole life, and people and monitors are not the team: none of these is work.
_NO_WORK = frozenset({"spawn", "despawn", "human_intervention", "safety_event"})
_CROWD = 8  # of so many events that begin in a cell, one mark is enough to show
_TAIL = re.compile(r"[-_#.: ]*\d+$")


def stem(name: str) -> str:
    """A name without its number."""
    return _TAIL.sub("", name) or name


def kind_of(event: Event) -> int:
    """The place of an event's kind in `KINDS`. A message that a model said to nobody is thinking."""
    if is_failed(event):
        return _NUMBER["error"]
    if event.decision in ("delegate", "stop"):
        return _NUMBER[event.decision]
    if is_thinking(event):
        return _NUMBER["think"]
    return _NUMBER[_OF_TYPE[event.type]]


class Lane(NamedTuple):
    """One row: an agent, or several alike."""

    name: str
    """The agent's name; for several what their names have in common."""
    agents: tuple[int, ...]
    parent: int
    """The lane of those who spawned it, -1 for none."""
    depth: int
    role: str | None

    def label(self, times: str = "×") -> str:
        """`reader`, or `reader ×6`."""
        return self.name if len(self.agents) == 1 else f"{self.name} {times}{len(self.agents)}"


def folded(team: TraceTeam, *, is_whole: bool = False, with_ids: bool = False) -> list[Lane]:
    """The spawn tree as lanes, depth first; `is_whole`: a lane for every agent; `with_ids`: under their ids, not their names."""
    names = team.names if with_ids else team.label_A
    out: list[Lane] = []
    acts = np.bincount(team.agent_E, minlength=len(team)) > 0
    tops = [a for a, parent in enumerate(team.parent_A.tolist()) if parent < 0 and (acts[a] or team.children[a])]
    stack = [(agents, -1) for agents in reversed(_alike(team, names, tops, is_whole=is_whole))]
    while stack:
        agents, parent = stack.pop()
        first = names[agents[0]]
        name, role = first if len(agents) == 1 else stem(first), team.role_A[agents[0]]
        if len(agents) > 1 and role and parent >= 0 and name == out[parent].name:
            name = role  # lead.1 and lead.2, below lead
        out.append(Lane(name, tuple(agents), parent, 0 if parent < 0 else out[parent].depth + 1, role))
        below = [child for a in agents for child in team.children[a]]
        stack += [(group, len(out) - 1) for group in reversed(_alike(team, names, below, is_whole=is_whole))]
    return out


def _alike(team: TraceTeam, names: list[str], agents: list[int], *, is_whole: bool) -> list[list[int]]:
    groups: dict[object, list[int]] = {}
    for a in agents:
        key = a if is_whole or not team.is_member_A[a] else (stem(names[a]), team.role_A[a])
        groups.setdefault(key, []).append(a)
    return list(groups.values())


class Clock:
    """Time to place: 0 at the first event, 1 at the last end, long silences folded."""

    def __init__(self, start_E: Floats, end_E: Floats, *, longest: float = 300.0) -> None:
        self.start, self.end = (float(start_E.min()), float(end_E.max())) if len(start_E) else (0.0, 0.0)
        order = np.argsort(start_E, kind="stable")
        latest = np.maximum.accumulate(end_E[order]) if len(order) else end_E
        following = start_E[order][1:]
        at = np.flatnonzero(following - latest[:-1] > longest)
        self.gaps: list[tuple[float, float]] = list(zip(latest[at].tolist(), following[at].tolist(), strict=True))
        """The silences that are folded: from, to."""
        awake = (self.end - self.start) - sum(b - a for a, b in self.gaps)
        width = max(awake * 0.02, 1e-9)
        knots, places, here = [self.start], [0.0], 0.0
        for a, b in self.gaps:
            here += a - knots[-1]
            knots += [a, b]
            places += [here, here + width]
            here += width
        here += self.end - knots[-1]
        self._knots, self._places, self._total = [*knots, self.end], [*places, here], here or 1.0

    def place(self, t: Floats) -> Floats:
        """Where times lie between 0 and 1."""
        placed: Floats = np.interp(t, self._knots, self._places) / self._total
        return placed


class Cells(NamedTuple):
    """What to draw: a row for each lane."""

    kind: NDArray[np.int8]
    """(lanes, width) a place in `KINDS`, `WAIT` or `EMPTY`."""
    most: NDArray[np.int8]
    """(lanes, width) the same without marks: what took most of the time."""
    on_path: NDArray[np.bool_]
    """(lanes, width) where the critical path goes."""
    busy: Floats
    """(width,) how many agents work at once, on average."""
    clock: Clock


def cells(team: TraceTeam, lanes: list[Lane], width: int, path: list[int]) -> Cells:
    """Lanes cut into `width` cells; `path` are the events of the critical path."""
    events = team.trace.events
    t_E = np.array([e.t for e in events], np.float64)
    dur_E = np.array([0.0 if e.type in _NO_WORK else e.dur or 0.0 for e in events], np.float64)
    clock = Clock(t_E, t_E + dur_E)
    lane_A = np.full(len(team), -1, np.int64)
    for k, lane in enumerate(lanes):
        lane_A[list(lane.agents)] = k
    row_E = lane_A[team.agent_E]
    shown = np.flatnonzero(row_E >= 0)
    row, shape = row_E[shown], (len(lanes), width)
    start = clock.place(t_E)[shown] * width
    end = np.maximum(clock.place(t_E + dur_E)[shown] * width, start)
    kind = np.fromiter((kind_of(events[i]) for i in shown.tolist()), np.int64, len(shown))
    time = _spread(kind * len(lanes) + row, start, end, (len(KINDS) * len(lanes), width)).reshape(len(KINDS), *shape)
    most = np.where(time.max(axis=0) > 0, time.argmax(axis=0), _alive(row, start, end, shape)).astype(np.int8)
    out = most.copy()
    # A despawn is bookkeeping of whoever ends an agent: it shows where nothing else is, not over what is.
    is_told = np.fromiter((events[i].type != "despawn" for i in shown.tolist()), np.bool_, len(shown))
    _put_marks(out, kind[is_told], row[is_told], _columns(start, end, width)[0][is_told])
    on_E = np.zeros(len(events), np.bool_)
    on_E[path] = True
    on, works = on_E[shown], end > start
    on_path = _spread(row[on], start[on], end[on], shape) > 0
    size = np.array([[len(lane.agents)] for lane in lanes], np.float64).reshape(len(lanes), 1)
    busy = np.minimum(_spread(row[works], start[works], end[works], shape), size).sum(axis=0)
    return Cells(out, most, on_path, busy, clock)


def _put_marks(out: NDArray[np.int8], kind: NDArray[np.int64], row: NDArray[np.int64], column: NDArray[np.int64]) -> None:
    """Marks over what took time, the later kind over the earlier. In a crowd one mark says nothing about the cell, but a stop."""
    began = np.zeros(out.shape, np.int64)
    np.add.at(began, (row, column), 1)
    for k in range(_MARKS, len(KINDS)):
        count = np.zeros(out.shape, np.int64)
        np.add.at(count, (row[kind == k], column[kind == k]), 1)
        out[(count > 0) & ((count * _CROWD >= began) | (k == _NUMBER["stop"]))] = k


def _alive(row: NDArray[np.int64], start: Floats, end: Floats, shape: tuple[int, int]) -> NDArray[np.int8]:
    """`WAIT` from each lane's first cell to its last, `EMPTY` outside."""
    first, last = _columns(start, end, shape[1])
    begins, ends = np.full(shape[0], shape[1]), np.full(shape[0], -1)
    np.minimum.at(begins, row, first)
    np.maximum.at(ends, row, last)
    column = np.arange(shape[1])
    return np.where((column >= begins[:, None]) & (column <= ends[:, None]), WAIT, EMPTY).astype(np.int8)


def _columns(start: Floats, end: Floats, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    first = np.clip(np.floor(start), 0, max(width - 1, 0)).astype(np.int64)
    last = np.clip(np.ceil(end) - 1, first, max(width - 1, 0)).astype(np.int64)
    return first, last


def _spread(row: NDArray[np.int64], start: Floats, end: Floats, shape: tuple[int, int]) -> Floats:
    """How much of each cell is covered, summed; what has no length counts a little, so that it shows in an empty cell."""
    first, last = _columns(start, end, shape[1])
    change = np.zeros((shape[0], shape[1] + 1))
    cover = np.zeros(shape)
    np.add.at(change, (row, first), 1.0)
    np.add.at(change, (row, last + 1), -1.0)
    np.subtract.at(cover, (row, first), np.clip(start - first, 0, 1))
    np.subtract.at(cover, (row, last), np.clip(last + 1 - end, 0, 1))
    covered: Floats = np.maximum(cover + change.cumsum(axis=1)[:, :-1], 0)
    np.add.at(covered, (row, first), 1e-6)
    return covered
