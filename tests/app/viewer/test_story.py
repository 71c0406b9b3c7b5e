"""The story: what each agent was given, did and gave back, in the trace's own words and numbers."""

from __future__ import annotations

from pathlib import Path

import msgspec

from counterpoint.app.discover import read_logs
from counterpoint.app.viewer.panels.story import story
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.trace import content_ref

SHOP = Path(__file__).parents[3] / "examples" / "logs" / "claude_code" / "projects" / "-repo-shop"


def test_a_session_is_told_in_order() -> None:
    (trace,) = read_logs(SHOP)
    told = story.answer(trace)
    assert told.title == "Slow checkout"
    assert [one.name for one in told.agents] == ["main", "Look at the queries", "Look at the page"]
    main, queries, _ = told.agents
    assert main.given is not None
    assert (main.given.text, main.given.agent) == ("Why is the checkout slow? Ask two agents, then fix it.", "a person")
    assert main.did == ["started 2 helpers", "read files or pages once", "ran 1 command", "met 2 failures"]
    assert queries.given is not None
    assert queries.gave is not None
    assert (queries.given.text, queries.given.agent) == ("Find slow queries in /repo/shop/db.", "main")
    assert (queries.gave.text, queries.gave.agent) == ("Table orders has no index on customer.", "main")
    assert queries.did == ["looked something up once"]


def test_what_is_not_recorded_is_not_made_up_and_a_long_text_says_that_it_is_cut() -> None:
    long = "x" * 5_000
    events = [
        Event(id="a", t=0, type="spawn", agent="lead", to="helper", content_ref=content_ref(long)),
        Event(id="b", t=1, type="tool_call", agent="helper", tool="Grep"),
    ]
    trace = Trace(trace_id="t", task_id="t", events=events, edges=[Edge("a", "b", "causal")], contents={content_ref(long): long})
    lead, helper = story.answer(trace).agents
    assert (lead.given, lead.gave) == (None, None)
    assert lead.did == ["started 1 helper"]
    assert helper.given is not None
    assert helper.given.length == 5_000
    assert len(helper.given.text) < 1_000
    assert helper.gave is None


def test_a_page_in_one_file_has_it_masked() -> None:
    from counterpoint.app.viewer.share_file import share_file

    (trace,) = read_logs(SHOP)
    key = "ghp_" + "Ab3" * 12
    ref = content_ref(key)
    first = next(e for e in trace.events if e.type == "human_intervention")
    events = [msgspec.structs.replace(e, content_ref=ref) if e is first else e for e in trace.events]
    dirty = msgspec.structs.replace(trace, events=events, contents={**trace.contents, ref: key})
    assert key in str(story.answer(dirty))
    assert key.encode() not in share_file([dirty]).file.data
