"""Spans of every kind, by hand, and everything that must come of them (`told/spans/`).

`python tests/formats/test_span_stories.py NAME` prints what a story tells.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterpoint.formats.importer import Session
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.spans.span import Kind, Span
from counterpoint.formats.spans.trees import traces_of
from listing import listing
from logs import assert_sound


def S(id: str, kind: Kind, parent: str | None = None, start: float | None = 0.0, end: float | None = None, **more: Any) -> Span:
    return Span(id=id, trace=more.pop("trace", "t"), parent=parent, kind=kind, name=more.pop("name", id), start=start, end=end, **more)


def nested() -> list[Span]:
    """A workflow: an agent that calls tools, one of them an agent; guards, a human, a score, links, errors, what never ended."""
    return [
        S("flow", "chain", None, 0, 40, name="workflow", usage=Usage(99, output=9)),
        S("lead", "agent", "flow", 0, 38, agent="planner", input="Plan.", output="Planned."),
        S("g1", "guardrail", "lead", 0.5, 0.6, verdict="allow", input="Plan.", ok=True),
        S("l1", "llm", "lead", 1, 2, model="gpt-5", usage=Usage(10, 5, 1, 4, 2), input="Plan.", output="I ask.", extra={"response_id": "r1"}),
        S("l1copy", "llm", "l1", 1, 2, model="gpt-5", usage=Usage(10, 5, 1, 4, 2), output="I ask.", extra={"response_id": "r1"}),
        S("t1", "tool", "lead", 3, 9, tool="ask_guide", input="Which town?", output="Ghent", call="c1"),
        S("sub", "agent", "t1", 3.5, 8.5, agent="guide", output="Ghent"),
        S("l2", "llm", "sub", 4, 5, usage=Usage(7, output=1), output="Looking.", links=["l1"]),
        S("find", "retriever", "sub", 5, 6, tool="search", input="towns", output="Ghent, Bruges"),
        S("l3", "llm", "sub", 6, 8, usage=Usage(9, output=3), output="Ghent", cost_usd=0.5),
        S("t2", "tool", "lead", 10, 12, tool="book", input="hotel", error="full " + "x" * 600, ok=False),
        S("h1", "human", "lead", 13, 14, input="Sure?", output="Yes.", verdict="approved"),
        S("g2", "guardrail", "lead", 14.5, 14.6, verdict="deny", input="bad", ok=False, error="tripped"),
        S("l4", "llm", "lead", 15, 17, usage=Usage(13, output=4), output="Go to Ghent.", links=["t2", "nowhere"], reward={"score": 0.5}),
        S("e1", "evaluator", "lead", 18, 19, reward={"quality": 0.9}, links=["l4"]),
        S("t3", "tool", "lead", 20, None, tool="slow", input="wait"),
        S("again", "agent", "lead", 25, 30, agent="guide", agent_id="sub", input="Once more.", output="Bruges"),
        S("l5", "llm", "again", 26, 28, output="Bruges", usage=Usage(3, output=1)),
        S("silent", "agent", "lead", 31, 32, agent="mute"),
        S("o", "llm", None, 33, 34, output="A stray.", agent="ghost"),
    ]


def handed() -> list[Span]:
    """Agents one after the other, by handoffs and without; a handoff to nobody; two traces; no times at all; a lost parent."""
    return [
        S("root", "chain", None, 0, 20, name="run"),
        S("a", "agent", "root", 0, 5, agent="triage", input="Help."),
        S("a1", "llm", "a", 1, 2, output="To billing.", usage=Usage(5, output=1)),
        S("h", "handoff", "a", 3, 3.1, to="billing", input="Please.", error="late", ok=False),
        S("b", "agent", "root", 5, 9, agent="billing", output="Paid."),
        S("b1", "llm", "b", 6, 7, output="Paid.", usage=Usage(6, output=2)),
        S("h2", "handoff", "b", 8, 8.1, to="nobody", output="Gone?"),
        S("c", "agent", "root", 10, 15, agent="closer", input="Close it."),
        S("c1", "llm", "c", 11, 12, output="Closed.", usage=Usage(7, output=3)),
        S("lost", "tool", "missing", 13, 14, tool="orphan", input="x", output="y"),
        S("z1", "llm", None, None, None, output="No time.", trace="other", model="gpt-5", usage=Usage(1, output=1)),
        S("z2", "tool", "z1", None, None, tool="t", input="in", output="out", trace="other", ok=True),
    ]


STORIES: dict[str, Callable[[], list[Span]]] = {f.__name__: f for f in (nested, handed)}


def story(name: str) -> list[str]:
    out: list[str] = []
    for trace in traces_of(STORIES[name](), Session("s", []), system="test"):
        assert_sound(trace)
        out += [re.sub(r" at=[0-9.]+", "", row) for row in listing(trace)]
    return out


@pytest.mark.parametrize("name", STORIES)
def test_spans_tell(name: str) -> None:
    wanted = (Path(__file__).parent / "listings" / "spans" / f"{name}.txt").read_text(encoding="utf-8")
    assert story(name) == wanted.splitlines()


@pytest.mark.parametrize("name", STORIES)
def test_the_order_of_the_records_tells_nothing(name: str) -> None:
    spans = STORIES[name]()
    turned = list(traces_of(spans[::-1], Session("s", []), system="test"))
    first = {t.trace_id: t for t in traces_of(STORIES[name](), Session("s", []), system="test")}
    for trace in turned:
        if all(s.start is not None for s in spans if s.trace == trace.trace_id):
            assert {(e.id, e.type, e.agent, e.to) for e in trace.events} == {(e.id, e.type, e.agent, e.to) for e in first[trace.trace_id].events}


if __name__ == "__main__":
    print("\n".join(story(sys.argv[1])))
