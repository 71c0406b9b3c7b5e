"""One event whole, the transcript, and texts that are hard to carry."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from app.viewer.small import WEB, team
from counterpoint.app.viewer.events import TALK_CAP, TEXT_CAP, cut_text, event, talk
from counterpoint.app.viewer.shapes import EventDetail
from counterpoint.errors import NotFound
from counterpoint.testing import odd_trace, synthetic_trace


def test_an_event_has_its_fields_its_text_and_its_neighbours() -> None:
    told = event(team(), 3)
    assert (told.id, told.text, told.text_size, told.is_cut, told.badge) == ("e3", WEB, len(WEB), False, None)
    assert told.fields["trusted"] is False
    assert told.fields["tool"] == "web"
    assert "extra" not in told.fields
    assert [(c.n, c.id, c.agent, c.edge) for c in told.causes] == [(2, "e2", 1, "tool_dependency")]
    assert [(c.n, c.id, c.type, c.edge) for c in told.effects] == [(4, "e4", "return", "causal")]


def test_own_fields_of_a_source_are_spread_out() -> None:
    told = event(team(), 5)
    assert told.fields["args"] == {"command": "rm -rf /tmp/x"}
    assert told.text is None
    assert told.text_size == 0


def test_a_long_text_is_cut_and_can_be_had_whole() -> None:
    long = "é" * TEXT_CAP
    trace = replace(team(), contents={e.content_ref: long for e in team().events if e.content_ref})
    cut, whole = event(trace, 0), event(trace, 0, whole=True)
    assert cut.is_cut
    assert cut.text_size == 2 * TEXT_CAP
    assert cut.text == "é" * (TEXT_CAP // 2)
    assert not whole.is_cut
    assert whole.text == long
    row = talk(trace, 0, count=1).rows[0]
    assert row.is_cut
    assert row.text_size == 2 * TEXT_CAP
    assert len(row.text) == TALK_CAP // 2


def test_long_fields_are_cut_too() -> None:
    trace = team()
    events = [replace(e, extra={"blob": "x" * (TEXT_CAP + 1), "deep": [{"huge": 1 << 80}]}) for e in trace.events]
    told = event(replace(trace, events=events), 0)
    assert told.fields["blob"].endswith(f"[cut: {TEXT_CAP:,} of {TEXT_CAP + 1:,} bytes]")
    assert told.fields["deep"] == [{"huge": str(1 << 80)}]


def test_half_a_surrogate_pair_and_other_things_that_json_lacks() -> None:
    assert cut_text("a\ud800b", None) == ("a?b", 3)
    assert cut_text("aé", 2) == ("a", 3)
    trace = odd_trace()
    for n in range(len(trace.events)):
        detail = event(trace, n)
        assert msgspec.json.decode(msgspec.json.encode(detail), type=EventDetail).id == detail.id
    assert event(trace, 1).fields["tokens_in"] == str(1 << 70)


def test_there_is_no_such_event_or_agent() -> None:
    for n in (-1, 7):
        with pytest.raises(NotFound, match="no event number"):
            event(team(), n)
    for agent in (-2, 2):
        with pytest.raises(NotFound, match="no agent number"):
            talk(team(), agent)


def test_the_transcript_of_one_of_a_subtree_and_of_all() -> None:
    assert [row.n for row in talk(team(), 1).rows] == [2, 3, 4]
    assert [row.n for row in talk(team(), 0).rows] == [0, 1, 5, 6]
    under_lead, everybody = talk(team(), 0, tree=True), talk(team())
    assert [row.n for row in under_lead.rows] == [row.n for row in everybody.rows] == list(range(7))
    assert [row.depth for row in under_lead.rows] == [0, 0, 1, 1, 1, 0, 0]
    assert [row.depth for row in talk(team(), 1, tree=True).rows] == [0, 0, 0]


def test_a_line_says_who_to_whom_and_what() -> None:
    back = talk(team(), 1).rows[2]
    assert (back.type, back.agent, back.to, back.text, back.tokens) == ("return", 1, 0, "done, 12 m", 7)
    call = talk(team(), 0).rows[2]
    assert (call.tool, call.ok, call.trusted, call.text, call.tokens, call.to) == ("shell", False, None, "", None, -1)


def test_windows_of_the_transcript_join_up() -> None:
    trace = synthetic_trace(6, 60, "swarm", contents=True)
    whole = talk(trace, count=2000)
    parts = [row for first in range(0, whole.total, 17) for row in talk(trace, first=first, count=17).rows]
    assert parts == whole.rows
    assert whole.total == len(trace.events)
    assert talk(trace, first=10**9).rows == []
    assert talk(trace, count=-3).rows == []
