"""`Trace`: one run of a team, whole.

Always true: a trace is frozen; what is derived from it (its graph) is computed once, on demand, and never stored in it.
`rewards`, `costs` and `metrics` are the survey's maps; `meta` and `contents` are ours and never reach a survey-format file.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

import counterpoint.trace.quantities as quantities
from counterpoint.display import counted, display
from counterpoint.trace.records import Edge, Event, Number
from counterpoint.trace.vocabulary import Topology

if TYPE_CHECKING:
    from counterpoint.trace.graph import Graph


class Trace(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True, weakref=True):
    """A team's run: a rooted, labelled, temporal graph of events, with its rewards and costs.

    >>> import counterpoint as cpt
    >>> asked = cpt.Event(id="e1", t=0.0, type="message", agent="lead", to="coder")
    >>> done = cpt.Event(id="e2", t=0.4, type="return", agent="coder", to="lead")
    >>> trace = cpt.Trace(trace_id="t", task_id="demo", events=[asked, done], edges=[cpt.Edge("e1", "e2", "causal")])
    >>> trace
    <Trace t of demo: unknown, 2 events, 1 edge, 2 agents>
    >>> [str(problem) for problem in cpt.problems(trace) if problem.severity == "error"]
    []
    """

    trace_id: str
    """Unique in a store."""
    task_id: str
    """What was asked; traces of one task are comparable."""
    system: str | None = None
    """Who ran it: a product, a framework, a simulator."""
    topology: Topology | None = None
    """One of the survey's shapes."""
    events: list[Event]
    """The vertices, in file order."""
    edges: Sequence[Edge] = field(default_factory=list)
    """The dependencies; information edges are what was actually read."""
    rewards: dict[str, Number] = field(default_factory=dict)
    """Reward channel to number."""
    costs: dict[str, Number] = field(default_factory=dict)
    """`tokens`, `wall_clock_s` and any other cost."""
    metrics: dict[str, Number] | None = None
    """Benchmark metrics, where the source has them."""
    meta: dict[str, Any] = field(default_factory=dict)
    """Ours: where it came from, versions, marks."""
    contents: dict[str, str] = field(default_factory=dict)
    """Texts by `content_ref`; may be absent or redacted."""

    @cached_property
    def graph(self) -> Graph:
        """The event graph as arrays; raises `InvalidTrace` when the records are not a graph."""
        from counterpoint.trace.graph import Graph  # with numpy, which a list of traces does without

        return Graph.of(self.events, self.edges)

    @cached_property
    def agents(self) -> list[str]:
        """Every agent that acts, in order of first appearance."""
        return list(dict.fromkeys([e.agent for e in self.events]))

    @cached_property
    def members(self) -> frozenset[str]:
        """The agents of the team: who acts in it, spawns or is spawned; not users, tools and others who are only heard."""
        return quantities.members(self.events)

    @cached_property
    def duration_s(self) -> Number | None:
        """The wall clock: the span of the events, or what the source states where that is more; None without times."""
        return quantities.duration_s(self.events, self.costs, self.meta)

    @cached_property
    def tokens(self) -> Number | None:
        """Tokens of all events, or what the source states where that is more; None where neither says any."""
        return quantities.tokens(self.events, self.costs)

    @cached_property
    def cost_usd(self) -> Number | None:
        """US dollars of all events, or what the source states where that is more; None where neither says any."""
        return quantities.cost_usd(self.events, self.costs)

    @cached_property
    def known_costs(self) -> dict[str, Number]:
        """`costs` with `tokens`, `wall_clock_s` and `cost_usd` as above, without what nobody knows: what is shown of a trace."""
        return quantities.known_costs(self.events, self.costs, self.meta)

    @cached_property
    def unpriced(self) -> dict[str, int]:
        """Tokens that no cost covers, by model ("" where none is named), the most first."""
        return quantities.unpriced(self.events, self.costs)

    @cached_property
    def failures(self) -> list[int]:
        """The events that went wrong, by their place in `events`; a call and its result are one failure."""
        return quantities.failures(self.events, self.edges)

    @cached_property
    def index(self) -> dict[str, int]:
        """Event id to its place in `events`."""
        return {e.id: i for i, e in enumerate(self.events)}

    def text(self, event: Event) -> str | None:
        """The content of an event, or None when it is absent or redacted."""
        return self.contents.get(event.content_ref) if event.content_ref else None

    def __repr__(self) -> str:
        sizes = ((len(self.events), "event"), (len(self.edges), "edge"), (len(self.members), "agent"))
        shape = ", ".join(counted(n, one) for n, one in sizes)
        reward = f", team reward {self.rewards['team']:g}" if "team" in self.rewards else ""
        return f"<Trace {self.trace_id} of {self.task_id}: {self.topology or 'unknown'}, {shape}{reward}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: a card, lanes and, where there is a reward, the credit bar; static, under 60 kB."""
        return display().card(self)

    def save_html(self, path: Any, *, masked: bool = True, overwrite: bool = True) -> Any:
        """Write the viewer with this trace in it as one file that opens from disk, secrets in texts masked; gives its path."""
        return display().save_html(self, path, masked=masked, overwrite=overwrite)

    def view(self, *, height: int = 640, masked: bool = True) -> Any:
        """The viewer: in a notebook a frame with the one-file page, elsewhere a local server and a browser."""
        return display().view(self, height=height, masked=masked)


def content_ref(text: str) -> str:
    """The reference of a text: sha256 of its canonical form (Unicode NFC, newlines as \\n)."""
    canonical = text if text.isascii() else unicodedata.normalize("NFC", text)
    if "\r" in canonical:
        canonical = canonical.replace("\r\n", "\n").replace("\r", "\n")
    return "sha256:" + hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def summed_costs(events: list[Event], wall_clock_s: float | None = None) -> Mapping[str, Number]:
    """The survey's `costs` counted from events: what the events carry, nothing assumed."""
    return {
        "tokens": quantities.counted_tokens(events),
        "wall_clock_s": quantities.span_s(events) if wall_clock_s is None else wall_clock_s,
        "tool_calls": sum(e.type == "tool_call" for e in events),
        "messages": sum(e.type == "message" for e in events),
    }
