"""A trace as rows for tables: which columns there are, and values that a cell can hold.

Always true: columns and their order do not depend on the data; `json_cell` gives text that reads back equal, or raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from counterpoint.errors import InputError, InvalidTrace
from counterpoint.trace import Trace
from counterpoint.trace.records import FIELDS, wire_name

EVENT_COLUMNS = ("trace_id", *(wire_name(f) for f in FIELDS), "extra")
EDGE_COLUMNS = ("trace_id", "src", "dst", "type")
TRACE_COLUMNS = ("trace_id", "task_id", "system", "topology", "events", "edges", "rewards", "costs", "metrics")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def json_cell(value: Any, where: str) -> str | None:
    """A map or list as JSON text; None stays None. NaN and other things that JSON lacks are refused."""
    if value is None:
        return None
    try:
        data = _encode(value)
        if _decode(data) == value:
            return data.decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidTrace("holds something that JSON cannot carry", where=where, why=str(error)) from error
    raise InvalidTrace("holds something that JSON cannot carry", where=where, fix="leave out NaN, and keys that are not text")


def trace_row(trace: Trace) -> tuple[Any, ...]:
    """The trace's own row: TRACE_COLUMNS."""
    where = f"trace {trace.trace_id!r}"
    maps = [json_cell(getattr(trace, name), f"{where}.{name}") for name in ("rewards", "costs", "metrics")]
    return (trace.trace_id, trace.task_id, trace.system, trace.topology, len(trace.events), len(trace.edges), *maps)


def refuse_doubles(traces: Sequence[Trace]) -> None:
    """Rows are told apart by `trace_id`, so no two traces may share one."""
    name, times = Counter(t.trace_id for t in traces).most_common(1)[0] if traces else ("", 0)
    if times > 1:
        why, fix = "the tables tell traces apart by their id", "export them to different folders"
        raise InputError(f"{times} traces have the id {name!r}", why=why, fix=fix)
