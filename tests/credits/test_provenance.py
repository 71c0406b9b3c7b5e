"""Provenance: where the words of the result stand first, by hand and by law."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from counterpoint.credits.mechanisms.provenance import origins, provenance, results_of, words_of
from counterpoint.errors import CounterpointError, NotFound, NotIdentified
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.rows import Credit
from counterpoint.trace.team import TraceTeam


def team_of(*said: tuple[str, str, str], edges: list[tuple[int, int]] | None = None, **fields: object) -> Trace:
    """A lead with two helpers; each line is (agent, type, text), and by default each event reads the one before."""
    events = [Event(id="s1", t=0, type="spawn", agent="lead", to="ann"), Event(id="s2", t=0, type="spawn", agent="lead", to="bob")]
    contents = {}
    for k, (agent, kind, text) in enumerate(said):
        contents[f"text {k}"] = text
        to = "lead" if kind == "return" else None
        events.append(Event(id=f"e{k}", t=k + 1, type=kind, agent=agent, to=to, content_ref=f"text {k}"))  # type: ignore[arg-type]
    pairs = [(k, k + 1) for k in range(len(said) - 1)] if edges is None else edges
    links = [Edge(f"e{a}", f"e{b}", "causal") for a, b in pairs]
    return Trace(trace_id="t", task_id="q", events=events, edges=links, contents=contents, **fields)  # type: ignore[arg-type]


def agents(trace: Trace, **options: object) -> dict[str, float]:
    return provenance([trace], **options).of(0, "agent")


def test_by_hand() -> None:
    trace = team_of(
        ("user", "human_intervention", "how deep is the lake near Thun"),
        ("ann", "message", "the lake is 217 metres deep at most"),  # words 2 to 7 of the answer
        ("ann", "return", "it says the lake is 217 metres deep at most"),
        ("bob", "return", "nobody swims there in winter I think"),
        ("lead", "aggregate", "We found: the lake is 217 metres deep, near Thun, says ann."),
    )
    # the answer has 12 words: we found | the lake is 217 metres deep | near | thun | says ann. `Thun` is a name that the user gave;
    # `near` stands in no window of four words that was said before, and tells nothing alone
    found = provenance([trace])
    assert agents(trace) == pytest.approx({"ann": 6 / 12, "bob": 0, "lead": 0})
    assert found.of(0, "message") == pytest.approx({"e1": 6 / 12})
    about = found.notes["traces"][0]
    assert (about["given"], about["new"], about["unlinked"]) == pytest.approx((1 / 12, 5 / 12, 0))
    assert (about["unused"], about["unread"]) == (["bob"], [])
    assert about["matched"] == {"e1": ["the lake is 217 metres deep"]}


def test_nobody_is_paid_for_what_a_tool_printed() -> None:
    trace = team_of(
        ("ann", "tool_result", "26 files changed, 310 insertions(+)"),
        ("ann", "return", "done: 26 files changed, 310 insertions(+), as you asked me to do"),
        ("lead", "aggregate", "26 files changed, 310 insertions, as you asked me to do"),
    )
    found = provenance([trace])
    # 26 files changed 310 insertions | as you asked me to do: five words of the tool, six of ann
    assert found.of(0, "agent") == pytest.approx({"ann": 6 / 11, "lead": 0})
    assert found.notes["traces"][0]["printed"] == pytest.approx(5 / 11)


def test_what_a_program_wrote_into_an_agents_words_is_nobodys() -> None:
    warning = (
        "/usr/lib/python3/site-packages/team/lead.py:216: UserWarning: Resolved model mismatch: big-2 != big-1. Mapping may be wrong.\n"
        "  response = await client.create(messages)"
    )
    failed = 'Traceback (most recent call last):\n  File "team/lead.py", line 3, in <module>\n    run()\nValueError: no such page here'
    trace = team_of(
        ("lead", "orchestrator_decision", f"ask ann for the depth of it\n{warning}"),
        ("ann", "return", f"the lake is 217 metres deep\n{failed}"),
        ("lead", "aggregate", f"the lake is 217 metres deep\n{warning}\n{failed}"),
    )
    found = provenance([trace])
    assert found.of(0, "agent") == {"lead": 0, "ann": 1}
    assert found.notes["traces"][0]["words"] == 6


def test_what_nobody_read_is_unlinked_and_earns_nothing() -> None:
    said = (
        ("ann", "tool_result", "the key is under the old stone"),
        ("bob", "message", "the key is under the old stone"),
        ("lead", "aggregate", "the key is under the old stone"),
    )
    assert agents(team_of(*said, edges=[(1, 2)])) == {"ann": 0, "bob": 1, "lead": 0}
    none = provenance([team_of(*said, edges=[])])
    assert none.of(0, "agent") == {"ann": 0, "bob": 0, "lead": 0}
    assert none.notes["traces"][0]["unlinked"] == 1
    assert none.notes["traces"][0]["unread"] == ["ann", "bob"]
    when = [Edge("e1", "e2", "temporal")]  # it says when, not what was read
    assert provenance([replace(team_of(*said), edges=when)]).of(0, "agent")["bob"] == 0


def test_an_answer_for_each_time_that_the_user_speaks() -> None:
    trace = team_of(
        ("user", "human_intervention", "first"),
        ("ann", "message", "alpha beta gamma delta"),
        ("lead", "message", "so alpha beta gamma delta"),
        ("lead", "message", "TERMINATE"),
        ("user", "human_intervention", "second"),
        ("lead", "orchestrator_decision", "one two three four five"),
        ("lead", "message", "one two three four five"),  # the same words, recorded twice
    )
    found = origins(trace)
    assert [trace.events[i].id for i in found.results] == ["e2", "e6"]
    assert (found.words, found.traced, found.new) == (10, 4, 6)
    assert agents(trace, result="e2") == pytest.approx({"ann": 4 / 5, "lead": 0})


def test_a_number_is_traced_alone_and_a_common_word_is_not() -> None:
    trace = team_of(
        ("ann", "return", "temperature: 89 file_map ready"),
        ("lead", "aggregate", "It is 89 degrees, ready, says file_map"),
    )
    assert agents(trace)["ann"] == pytest.approx(2 / 7)
    short = team_of(("ann", "return", "yes 0 yes"), ("lead", "aggregate", "0"))
    assert agents(short)["ann"] == 0  # one character tells nothing
    exact = team_of(("ann", "return", "sum 1842"), ("lead", "aggregate", "1842"))
    assert agents(exact)["ann"] == 1


def test_scripts_without_blanks() -> None:
    assert words_of("Delete 文件 now") == ["delete", "文", "件", "now"]
    trace = team_of(("ann", "return", "湖的深度是二百米"), ("lead", "aggregate", "答案:湖的深度是二百米"))
    assert agents(trace)["ann"] == pytest.approx(8 / 10)


def test_equals_talk_and_the_last_one_answers() -> None:
    events = [
        Event(id="a", t=0, type="message", agent="x", content_ref="1"),
        Event(id="b", t=1, type="message", agent="y", content_ref="2"),
    ]
    trace = Trace(trace_id="t", task_id="q", events=events, contents={"1": "one", "2": "two"})
    assert results_of(trace, TraceTeam(trace)) == [1]


def test_refusals() -> None:
    bare = team_of(("lead", "aggregate", "words"))
    with pytest.raises(NotIdentified, match="no result in words"):
        provenance([replace(bare, contents={})])
    with pytest.raises(NotFound, match="no event 'e9'"):
        provenance([bare], result="e9")
    with pytest.raises(CounterpointError):
        provenance([bare], unit="token")


_WORDS = st.lists(st.sampled_from(["sun", "moon", "Sea", "17", "wind", "a_b"]), max_size=7).map(" ".join)
_LINES = st.lists(
    st.tuples(st.sampled_from(["ann", "bob", "lead", "user"]), st.sampled_from(["message", "return", "tool_result"]), _WORDS),
    min_size=1,
    max_size=7,
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    said = draw(_LINES)
    pairs = st.tuples(st.integers(0, len(said)), st.integers(0, len(said))).filter(lambda p: p[0] < p[1])
    return team_of(*said, ("lead", "aggregate", draw(_WORDS.filter(bool))), edges=draw(st.lists(pairs, max_size=8, unique=True)))


def parts(found: Credit) -> tuple[float, ...]:
    about = found.notes["traces"][0]
    return tuple(about[name] for name in ("traced", "printed", "given", "unlinked", "new"))


@settings(max_examples=150, deadline=None)
@given(traces())
def test_shares_sum_to_what_is_traced_and_the_parts_to_the_whole(trace: Trace) -> None:
    found = provenance([trace])
    for unit in found.units:
        assert sum(found.of(0, unit).values()) == pytest.approx(parts(found)[0], abs=1e-12)
        assert all(value >= 0 for value in found.of(0, unit).values())
    assert sum(parts(found)) == pytest.approx(1)
    last = origins(trace).results[-1]
    ancestors = trace.graph.ancestors(last)
    if len(origins(trace).results) == 1:
        assert all(ancestors[trace.index[name]] for name in found.of(0, "message"))


@settings(max_examples=75, deadline=None)
@given(traces(), _WORDS)
def test_what_nobody_read_changes_no_row(trace: Trace, text: str) -> None:
    more = Event(id="z", t=0.5, type="message", agent="bob", to="ann", content_ref="z")
    other = replace(trace, events=[*trace.events, more], contents={**trace.contents, "z": text})
    assert provenance([other]).of(0, "message") == provenance([trace]).of(0, "message")
