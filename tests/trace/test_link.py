"""Three routes from ids to numbers, one result."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.trace import link as link_module
from counterpoint.trace.link import Links, _by_arrow, _by_dict, _by_number

_texts = st.text(max_size=4) | st.sampled_from(["e1", "e2", "e01", "e", "e-1", "e+1", "1", "0", "e0", "e1\n", "é1", "１"])
_numbered = st.integers(0, 40).map(lambda i: f"e{i}") | st.integers(0, 10**12).map(lambda i: f"e{i}")


def lists(links: Links) -> list[list[int]]:
    return [a.tolist() for a in links]


@settings(max_examples=120, deadline=None)
@given(st.lists(_texts, min_size=1, max_size=12), st.data())
def test_all_routes_agree(ids: list[str], data: st.DataObject) -> None:
    ends = st.lists(st.sampled_from(ids) | _texts, max_size=8)
    src = data.draw(ends)
    dst = data.draw(st.lists(st.sampled_from(ids) | _texts, min_size=len(src), max_size=len(src)))
    expected = lists(_by_dict(ids, src, dst))
    assert lists(_by_arrow(ids, src, dst)) == expected
    numbered = _by_number(ids, src, dst)
    assert numbered is None or lists(numbered) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(_numbered, min_size=1, max_size=20), st.data())
def test_the_integer_route_agrees_on_numbered_ids(ids: list[str], data: st.DataObject) -> None:
    src = data.draw(st.lists(st.sampled_from(ids) | _numbered, max_size=8))
    numbered = _by_number(ids, src, src)
    assert numbered is None or lists(numbered) == lists(_by_dict(ids, src, src))


def test_the_integer_route_is_taken_for_numbered_ids() -> None:
    links = _by_number(["e0", "e1", "e2", "e10"], ["e0", "e10", "e7"], ["e1", "e0", "e2"])
    assert links is not None
    assert lists(links) == [[0, 3, -1], [1, 0, 2], []]


@pytest.mark.parametrize("ids", [["e01", "e1"], ["a1", "b2"], ["e", "e1"], ["e1", "e99999999999999999999"], ["e1", "e²"]])
def test_other_ids_take_another_route(ids: list[str]) -> None:
    assert _by_number(ids, [], []) is None


def test_a_repeated_id_means_its_first_event() -> None:
    assert lists(_by_dict(["a", "b", "a"], ["a"], ["b"])) == [[0], [1], [2]]
    assert lists(_by_arrow(["a", "b", "a"], ["a"], ["b"])) == [[0], [1], [2]]


def test_large_traces_take_the_arrow_route(monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpoint.trace import Edge, Event

    monkeypatch.setattr(link_module, "_LARGE", 2)
    events = [Event(id=i, t=0, type="message", agent="x") for i in ("p", "q", "r")]
    assert lists(link_module.link(events, [Edge("q", "r", "causal"), Edge("p", "nowhere", "causal")])) == [[1, 0], [2, -1], []]
