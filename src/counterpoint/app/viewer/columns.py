"""The events of a trace as arrays in bytes, whole or a window of it.

Always true: the bytes are 4 bytes of length (little-endian), that much JSON (`ColumnsHead`), padding to 8, then the arrays,
each beginning at a multiple of 8; offsets count from the end of that padding. Arrays stand in the story's order. In a window
`numbers` gives the number of each event, `src` and `dst` are places in the window, and only edges with both ends in it are
there.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from counterpoint.app.viewer.prepared import Prepared, prepared
from counterpoint.app.viewer.shapes import COLUMNS, ColumnHead, ColumnsHead
from counterpoint.trace import Trace

Arrays = dict[str, NDArray[np.generic]]
_EDGE_COLUMNS = ("src", "dst", "edge")
_INT32 = (1 << 31) - 1


def columns(trace: Trace) -> bytes:
    """Every event and edge."""
    look = prepared(trace)
    arrays = _arrays(look)
    order = look.team.order_E.tolist()
    return _written(arrays, [trace.events[i].id for i in order], [])


def window(trace: Trace, start: float, end: float, limit: int = 12_000) -> bytes:
    """The events that touch [start, end] seconds; of more than `limit` the longest, which are those one would see."""
    look = prepared(trace)
    arrays = _arrays(look)
    t, over = look.facts.t_E[look.team.order_E], look.end_E[look.team.order_E]
    chosen = np.flatnonzero((t <= end) & (over >= start))
    if len(chosen) > limit:
        shown = np.minimum(over[chosen], end) - np.maximum(t[chosen], start)
        chosen = np.sort(chosen[np.argsort(-shown, kind="stable")[: max(limit, 0)]])
    place = np.full(look.n, -1, np.int64)
    place[chosen] = np.arange(len(chosen))
    src, dst = place[arrays["src"].astype(np.int64)], place[arrays["dst"].astype(np.int64)]
    inside = (src >= 0) & (dst >= 0)
    part = {name: array[chosen] for name, array in arrays.items() if name not in _EDGE_COLUMNS}
    part |= {"src": src[inside].astype(np.uint32), "dst": dst[inside].astype(np.uint32), "edge": arrays["edge"][inside]}
    numbers = chosen.tolist()
    ids = [trace.events[i].id for i in look.team.order_E[chosen].tolist()]
    return _written(part, ids, numbers)


def _arrays(look: Prepared) -> Arrays:
    """The columns of `shapes.COLUMNS`, in the story's order."""
    if "columns" not in look.kept:
        facts, team, order = look.facts, look.team, look.team.order_E
        turns = [-1 if e.turn is None else min(e.turn, _INT32) for e in look.trace.events]
        values_E: Arrays = {
            "t": facts.t_E,
            "dur": np.where(facts.has_dur_E, facts.dur_E, np.nan),
            "agent": team.agent_E,
            "type": team.type_E,
            "flags": look.flags_E,
            "tokens": np.clip(facts.tokens_E, 0, (1 << 32) - 1),
            "cost": facts.cost_E,
            "tool": look.tools[1],
            "turn": np.array(turns, np.int32),
        }
        arrays: Arrays = {name: value[order].astype(COLUMNS[name]) for name, value in values_E.items()}
        graph, place = facts.graph, team.place_E
        arrays |= {"src": place[graph.src].astype(np.uint32), "dst": place[graph.dst].astype(np.uint32)}
        arrays["edge"] = graph.edge_type.astype(np.uint8)
        look.kept["columns"] = arrays
    kept: Arrays = look.kept["columns"]
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
