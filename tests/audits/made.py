"""Small traces made by hand, and random ones, for the tests of the audit room."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from counterpoint.trace import Edge, Event, Trace


class Story:
    """A trace written event by event; ids are e1, e2, ... and time goes on by one unless given."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.events: list[Event] = []
        self.edges: list[Edge] = []
        self.contents: dict[str, str] = {}

    def add(self, kind: str, agent: str, *, reads: Any = (), text: str | None = None, by: str = "causal", **fields: Any) -> str:
        name = f"e{len(self.events) + 1}"
        if text is not None:
            fields["content_ref"] = f"text-{name}"
            self.contents[f"text-{name}"] = text
        fields.setdefault("t", len(self.events))
        if "from_" not in fields and kind in ("message", "return"):
            fields["from_"] = agent
        self.events.append(Event(id=name, type=kind, agent=agent, **fields))  # type: ignore[arg-type]
        self.edges += [Edge(src, name, by) for src in ([reads] if isinstance(reads, str) else reads)]  # type: ignore[arg-type]
        return name

    def trace(self, **fields: Any) -> Trace:
        known = {"trace_id": "made", "task_id": "task", **self.fields, **fields}
        return Trace(events=self.events, edges=self.edges, contents=self.contents, **known)


def fan_out(
    team: int = 3, *, serial: bool = False, unread: int = 0, task: str | None = None, calls: int = 3, same_result: bool = False
) -> Story:
    """An orchestrator sends out sub-agents that each call a tool a few times and return; one aggregate reads the returns.

    `serial` runs them one after another; the last `unread` returns are not read; `task` gives all the same one.
    """
    story = Story(topology="centralized", rewards={"team": 1.0})
    plan = story.add("orchestrator_decision", "lead", t=0, dur=1, decision="spawn", tokens_in=10, tokens_out=5)
    spawns = [
        story.add("spawn", "lead", t=1, to=f"w{k}", role="worker", reads=plan, task=task or f"task-{k}") for k in range(team)
    ]
    returns = []
    for k in range(team):
        at = 1 + (k * (calls * 2 + 1) if serial else 0)
        last = spawns[k]
        for c in range(calls):
            asked = {"content_ref": f"ask-{k}-{c}", "tokens_in": 20, "tokens_out": 10}
            call = story.add("tool_call", f"w{k}", role="worker", t=at, dur=1, tool="search", reads=last, **asked)
            last = story.add("tool_result", f"w{k}", role="worker", t=at + 1, dur=1, tool="search", reads=call, by="tool_dependency",
                             content_ref=f"got-{k}-{c}")  # fmt: skip
            at += 2
        ref = "same" if same_result else f"answer-{k}"
        done = {"content_ref": ref, "tokens_in": 30, "tokens_out": 15}
        returns.append(story.add("return", f"w{k}", role="worker", t=at, dur=1, to="lead", reads=last, **done))
    end = max(e.t for e in story.events) + 1
    read = returns[: team - unread]
    final = story.add("aggregate", "lead", t=end, dur=2, reads=read, by="return", tokens_in=40, tokens_out=20)
    story.add("orchestrator_decision", "lead", t=end + 2, dur=1, decision="stop", reads=final, tokens_in=10, tokens_out=1)
    return story


_AGENTS = ["lead", "a", "b", "c", "d1", "d2", "user"]
_KINDS = ["orchestrator_decision", "spawn", "despawn", "message", "tool_call", "tool_result", "return", "aggregate"]
_AMOUNT = st.none() | st.integers(0, 9)


@st.composite
def _event(draw: st.DrawFn, number: int) -> Event:
    kind = draw(st.sampled_from(_KINDS))
    fields: dict[str, Any] = {name: draw(_AMOUNT) for name in ("dur", "tokens_in", "tokens_out", "turn")}
    fields["cost_usd"] = draw(st.none() | st.sampled_from([0.25, 0.5, 1.0]))
    fields["to"] = draw(st.none() | st.sampled_from(_AGENTS))
    fields["ok"] = draw(st.sampled_from([None, True, False]))
    fields["trusted"] = draw(st.sampled_from([None, True, False]))
    fields["role"] = draw(st.sampled_from([None, "worker", "critic", "lead"]))
    fields["tool"] = draw(st.sampled_from([None, "search", "shell"]))
    fields["content_ref"] = draw(st.sampled_from([None, "r1", "r2", "r3"]))
    fields["extra"] = draw(st.sampled_from([None, {"corrupt": True}, {"planted": True}, {"corrupt": False}]))
    t = draw(st.integers(0, 6)) + number // 3
    return Event(id=f"e{number}", t=t, type=kind, agent=draw(st.sampled_from(_AGENTS)), **fields)  # type: ignore[arg-type]


@st.composite
def random_traces(draw: st.DrawFn) -> Trace:
    """Any trace that is a graph: events of every kind, spawns of anybody by anybody, edges that go forward by number."""
    n = draw(st.integers(1, 18))
    events = [draw(_event(k)) for k in range(n)]
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.sampled_from(["temporal", "causal", "message"]))
    pairs = draw(st.lists(pair, max_size=2 * n))
    edges = [Edge(f"e{a}", f"e{b}", kind) for a, b, kind in pairs if a < b]  # type: ignore[arg-type]
    contents = draw(st.sampled_from([{}, {"r1": "the gauge shows a rise of two"}, {"r1": "one two three four", "r2": "one two three four"}]))
    costs = {"tokens": draw(st.integers(0, 300)), "wall_clock_s": draw(st.integers(0, 50))}
    return Trace(trace_id="t", task_id="k", events=events, edges=edges, contents=contents, costs=costs, rewards={"team": 0.5})
