"""Columns and fields as small JSON: what comes out is what went in."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.app.viewer import dense
from counterpoint.app.viewer.columns import arrays_of
from counterpoint.app.viewer.events import fields
from counterpoint.app.viewer.one_file import packed
from counterpoint.app.viewer.trace_view import view_of
from counterpoint.testing import synthetic_trace


def values(packed: dict[str, Any]) -> list[Any]:
    """As web/src/dense.ts reads a list."""
    if "d" in packed:
        found = list(itertools.accumulate(packed["d"]))
    elif "c" in packed:
        found = [packed["of"][k] for k in packed["c"]]
    else:
        found = packed["v"]
    return [x / packed["s"] for x in found] if "s" in packed else found


def rows(one: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of every event in a block's trace, as the page sees them."""
    about, columns = one["about"], one["columns"]
    agents = [about["agents"][a] for a in values(columns["columns"]["agent"])]
    known = {
        "id": columns["ids"].get("v") or [f"{s}{k}" for s, k in zip(values(columns["ids"]["stem"]), values(columns["ids"]["number"]), strict=True)],
        "t": values(columns["columns"]["t"]), "turn": values(columns["columns"]["turn"]),
        "type": [about["types"][k] for k in values(columns["columns"]["type"])], "agent": [a["name"] for a in agents],
        "role": [a["role"] for a in agents], "tool": [about["tools"][k - 1] if k else None for k in values(columns["columns"]["tool"])],
    }  # fmt: skip
    out: list[dict[str, Any]] = [{} for _ in range(columns["events"])]
    for name, told in one["events"].items():
        at = list(itertools.accumulate(told["at"])) if "at" in told else range(len(out))
        for n, value in zip(at, [known[name][n] for n in at] if "same" in told else values(told), strict=True):
            out[n][name] = value
    return out


def column(one: dict[str, Any], name: str) -> np.ndarray:
    """A column of a block's trace, as the page sees it."""
    told = one["columns"]["columns"][name]
    if "sum" not in told:
        found = np.array([np.nan if x is None else x for x in values(told)], np.float64)
        return np.array(values(one["columns"]["columns"]["dst"])) - found if name == "src" else found
    absent = np.nan if name == "dur" else 0.0
    return np.array([sum(row.get(f, 0) for f in told["sum"]) if any(f in row for f in told["sum"]) else absent for row in rows(one)])


@given(st.lists(st.floats(width=32) | st.integers(-(2**31), 2**31).map(float)))
def test_numbers_come_back_to_the_last_bit(numbers: list[float]) -> None:
    for dtype in (np.float64, np.float32):
        array = np.array([np.nan if np.isinf(x) else x for x in numbers], dtype)
        found = np.array([np.nan if x is None else x for x in values(dense.numbers(array))], np.float64).astype(dtype)
        assert np.array_equal(found, array, equal_nan=True)


@given(st.lists(st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none() | st.text(max_size=3) | st.just([1, "a"])))
def test_any_values_come_back(listed: list[Any]) -> None:
    found = values(msgspec.json.decode(msgspec.json.encode(dense.listed([x if type(x) is not int or abs(x) < 2**63 else str(x) for x in listed]))))
    wanted = msgspec.json.decode(msgspec.json.encode([x if type(x) is not int or abs(x) < 2**63 else str(x) for x in listed]))
    assert found == wanted
    assert [isinstance(x, bool) for x in found] == [isinstance(x, bool) for x in wanted]


def test_a_trace_comes_back_and_is_small() -> None:
    trace = synthetic_trace(40, 300, contents=True)
    look = view_of(trace)
    one = msgspec.json.decode(msgspec.json.encode(packed(trace, longest=1000)))
    told = [fields(trace.events[i]) for i in look.team.order_E.tolist()]
    assert rows(one) == [{name: value for name, value in row.items() if name != "content_ref"} for row in told]
    for name, array in arrays_of(look).items():
        assert np.array_equal(column(one, name).astype(array.dtype), array, equal_nan=True), name
    summary = msgspec.json.decode(msgspec.json.encode(packed(trace, longest=None)))
    assert summary["events"] == {}
    assert np.array_equal(column(summary, "dur").astype(np.float32), arrays_of(look)["dur"], equal_nan=True)
    by_row = len(msgspec.json.encode({"events": {str(n): row for n, row in enumerate(told)}}))
    assert len(msgspec.json.encode({"events": one["events"], "columns": one["columns"]})) < by_row / 3
