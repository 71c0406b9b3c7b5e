"""The events of a trace as arrays in bytes, whole or a window of it.

Always true: the bytes are 4 bytes of length (little-endian), that much JSON (`ColumnsHead`), padding to 8, then the arrays,
each beginning at a multiple of 8; offsets count from the end of that padding. Arrays stand in the story's order. In a window
`numbers` gives the number of each event, `src` and `dst` are places in the window, and only edges with both ends in it are
there.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from counterpoint.app.viewer.shapes import COLUMNS, FAMILIES, TYPES, BinsHead, BinsLevel, ColumnHead, ColumnsHead
from counterpoint.app.viewer.trace_view import TraceView, view_of
from counterpoint.trace import Trace

Arrays = dict[str, NDArray[np.generic]]
_EDGE_COLUMNS = ("src", "dst", "edge")
_INT32 = (1 << 31) - 1


def columns(trace: Trace) -> bytes:
    """Every event and edge."""
    view = view_of(trace)
    arrays = arrays_of(view)
    order = view.team.order_E.tolist()
    return _written(arrays, [trace.events[i].id for i in order], [])


def window(trace: Trace, start: float, end: float, limit: int = 12_000) -> bytes:
    """The events that touch [start, end] seconds; of more than `limit` the longest, which are those one would see."""
    view = view_of(trace)
    arrays = arrays_of(view)
    t, over = view.facts.t_E[view.team.order_E], view.end_E[view.team.order_E]
    chosen = np.flatnonzero((t <= end) & (over >= start))
    if len(chosen) > limit:
        shown = np.minimum(over[chosen], end) - np.maximum(t[chosen], start)
        chosen = np.sort(chosen[np.argsort(-shown, kind="stable")[: max(limit, 0)]])
    place = np.full(view.n, -1, np.int64)
    place[chosen] = np.arange(len(chosen))
    src, dst = place[arrays["src"].astype(np.int64)], place[arrays["dst"].astype(np.int64)]
    inside = (src >= 0) & (dst >= 0)
    part = {name: array[chosen] for name, array in arrays.items() if name not in _EDGE_COLUMNS}
    part |= {"src": src[inside].astype(np.uint32), "dst": dst[inside].astype(np.uint32), "edge": arrays["edge"][inside]}
    numbers = chosen.tolist()
    ids = [trace.events[i].id for i in view.team.order_E[chosen].tolist()]
    return _written(part, ids, numbers)


def arrays_of(view: TraceView) -> Arrays:
    """The columns of `shapes.COLUMNS`, in the story's order."""
    if "columns" not in view.kept:
        facts, team, order = view.facts, view.team, view.team.order_E
        turns = [-1 if e.turn is None else min(e.turn, _INT32) for e in view.trace.events]
        values_E: Arrays = {
            "t": facts.t_E,
            "dur": np.where(facts.has_dur_E, facts.dur_E, np.nan),
            "agent": team.agent_E,
            "type": view.kind_E,
            "flags": view.flags_E,
            "tokens": np.clip(facts.tokens_E, 0, (1 << 32) - 1),
            "cost": facts.cost_E,
            "tool": view.tools[1],
            "turn": np.array(turns, np.int32),
        }
        arrays: Arrays = {name: value[order].astype(COLUMNS[name]) for name, value in values_E.items()}
        graph, place = facts.graph, team.place_E
        arrays |= {"src": place[graph.src].astype(np.uint32), "dst": place[graph.dst].astype(np.uint32)}
        arrays["edge"] = graph.edge_type.astype(np.uint8)
        view.kept["columns"] = arrays
    kept: Arrays = view.kept["columns"]
    return kept


def _written(arrays: Arrays, ids: list[str], numbers: list[int]) -> bytes:
    heads, blocks, at = [], [], 0
    for name, dtype in COLUMNS.items():
        block = np.ascontiguousarray(arrays[name]).astype(np.dtype(dtype).newbyteorder("<"), copy=False).tobytes()
        heads.append(ColumnHead(name=name, dtype=dtype, offset=at, length=len(arrays[name])))
        blocks.append(block + bytes(-len(block) % 8))
        at += len(blocks[-1])
    head = ColumnsHead(events=len(ids), edges=len(arrays["src"]), columns=heads, ids=ids, numbers=numbers)
    return packed(head, blocks)


def packed(head: Struct, blocks: list[bytes]) -> bytes:
    """A head and what follows it: length, JSON, padding to 8, the blocks."""
    text = msgspec.json.encode(head)
    return b"".join([len(text).to_bytes(4, "little"), text, bytes(-(4 + len(text)) % 8), *blocks])


# -- The picture of a large trace ----------------------------------------------------------------------------------------
# Per lane and slice of time: which family of events took most of it, and how much of it was busy.
# Always true: the finest level's seconds add up to the busy time of the whole trace, and each coarser level's to pairs of the
# finer one's; a slice in which anything began is never empty. A lane is one agent, or from 200 agents on a role at a depth.
# Seconds are busy pieces (`Facts.pieces`), so nested spans count once; a trace without durations is drawn by its counts. All in
# all at most `MOST` bytes.

MOST = 2_000_000
LEVELS = 5
_FINEST = 32_768
_FOLD_ABOVE = 200
_OTHER = len(FAMILIES)
_FAMILY = np.array([next((f for f, types in enumerate(FAMILIES.values()) if name in types), _OTHER) for name in TYPES], np.uint8)

Floats = NDArray[np.float64]


class Cells(NamedTuple):
    """One level: seconds and beginnings per family, lane and slice of time."""

    seconds: Floats
    """(families, lanes, bins)"""
    counts: NDArray[np.int64]
    """(families, lanes, bins)"""

    def halved(self) -> Cells:
        """The level above: two slices as one."""
        families, rows, n = self.seconds.shape
        pairs = (families, rows, n // 2, 2)
        return Cells(self.seconds.reshape(pairs).sum(axis=3), self.counts.reshape(pairs).sum(axis=3))


def is_large(trace: Trace) -> bool:
    """Whether a trace travels as bins and windows."""
    return view_of(trace).is_large


def bins(trace: Trace) -> bytes:
    """`BinsHead` and five levels, coarse to fine: per lane and slice two bytes, the family of most time and the density."""
    return bin_bytes(view_of(trace))


class Binnable(Protocol):
    """What a picture is made of: `TraceView`, or the first look at a stored trace."""

    @property
    def span(self) -> tuple[float, float]: ...
    @property
    def kind_E(self) -> NDArray[Any]: ...
    @property
    def team(self) -> Any: ...
    @property
    def facts(self) -> Any: ...


def bin_bytes(view: Binnable) -> bytes:
    """The same for what has been looked at."""
    names, members = lanes(view)
    start, end = view.span
    head = BinsHead(lanes=names, members=members, start=start, end=end, levels=[])
    room = MOST - len(msgspec.json.encode(head)) - 64 * LEVELS
    finest = _size(room, len(names))
    size = np.array([len(m) for m in members], np.float64)
    level, width = cells(view, members, finest), (end - start) / finest or 1.0
    blocks = [_bytes(level, size, width)]
    for _ in range(LEVELS - 1):
        level, width = level.halved(), width * 2
        blocks.append(_bytes(level, size, width))
    blocks.reverse()
    heads, at = [], 0
    for k, block in enumerate(blocks):
        heads.append(BinsLevel(bins=finest >> (LEVELS - 1 - k), offset=at))
        at += len(block)
    return packed(msgspec.structs.replace(head, levels=heads), blocks)


def lanes(view: Binnable) -> tuple[list[str], list[list[int]]]:
    """The names of the lanes, and the agents in each, in the order of the agents."""
    team = view.team
    if len(team) <= _FOLD_ABOVE:
        return list(team.label_A), [[a] for a in range(len(team))]
    depth, role = team.depth_A.tolist(), view.facts.role_A
    groups: dict[tuple[int, str], list[int]] = {}
    for a in range(len(team)):
        groups.setdefault((depth[a], role[a] or "agent"), []).append(a)
    if len(groups) > _FOLD_ABOVE:  # every agent has a role of its own: depth is all that is left to fold by
        groups = {}
        for a in range(len(team)):
            groups.setdefault((depth[a], "depth"), []).append(a)
    keys = sorted(groups, key=lambda key: (key[0], groups[key][0]))
    return [_label(key, groups[key], team.label_A) for key in keys], [groups[key] for key in keys]


def _label(key: tuple[int, str], members: list[int], names: list[str]) -> str:
    depth, role = key
    if len(members) == 1:
        return names[members[0]]
    return f"{role} {depth} ×{len(members):,}" if role == "depth" else f"{role} ×{len(members):,}"


def _size(room: int, rows: int) -> int:
    """The finest level's slices: as many as fit, at two bytes each, with the levels above it; halves LEVELS - 1 times."""
    step = 1 << (LEVELS - 1)
    per_step = 2 * max(rows, 1) * (2 * step - 1)  # bytes of `step` slices and of all that is above them
    return int(np.clip(room // per_step * step, step, _FINEST))


def cells(view: Binnable, members: list[list[int]], finest: int) -> Cells:
    """Seconds and beginnings at the finest level: an event gives each slice the part of its busy piece that lies in it."""
    start, end = view.span
    scale = finest / (end - start) if end > start else 0.0
    lane_A = np.zeros(len(view.team), np.int64)
    for lane, group in enumerate(members):
        lane_A[group] = lane
    shape = (_OTHER + 1, len(members), finest)
    row_E = (_FAMILY[view.kind_E].astype(np.int64) * len(members) + lane_A[view.team.agent_E]) * finest
    size = shape[0] * shape[1] * shape[2]

    def slices(at: Floats) -> NDArray[np.int64]:
        return np.minimum(at.astype(np.int64), finest - 1)

    counts = np.bincount(row_E + slices((view.facts.t_E - start) * scale), minlength=size)
    cut = view.facts.pieces
    has = np.flatnonzero(cut.end_E > cut.start_E)
    row = row_E[has]
    begin, until = (cut.start_E[has] - start) * scale, (cut.end_E[has] - start) * scale
    first, last = slices(begin), slices(until)
    one = first == last
    head = np.where(one, until - begin, first + 1 - begin)
    tail = np.where(one, 0.0, until - last)
    seconds = np.bincount(row + first, head, size) + np.bincount(row + last, tail, size)
    # whole slices between the first and the last: +1 where they begin, -1 where they end, summed up along time
    many = last > first
    steps = np.bincount(row[many] + first[many] + 1, minlength=size) - np.bincount(row[many] + last[many], minlength=size)
    whole = np.cumsum(steps.reshape(shape), axis=2)
    width = 1 / scale if scale else 1.0
    return Cells(((seconds.reshape(shape) + whole) * width).astype(np.float64), counts.reshape(shape))


def _bytes(level: Cells, size: Floats, width: float) -> bytes:
    """Two bytes per cell. Density is of the slice's time for one agent, and of the lane's busiest slice for a group: of
    thousands only a few are busy at once, and that should be seen."""
    timed = level.seconds.sum(axis=0)
    counted = level.counts.sum(axis=0)
    if timed.any():
        share = timed / np.where(size > 1, np.maximum(timed.max(axis=1), 1e-12), width)[:, None]
        # where nothing took time, what began most decides
        family = np.where(timed > 0, level.seconds.argmax(axis=0), level.counts.argmax(axis=0))
    else:
        share = counted / max(int(counted.max(initial=0)), 1)
        family = level.counts.argmax(axis=0)
    density = np.clip(np.rint(share * 255), 0, 255)
    density = np.where((timed > 0) | (counted > 0), np.maximum(density, 1), 0)
    return np.stack([family.astype(np.uint8), density.astype(np.uint8)], axis=2).tobytes()
