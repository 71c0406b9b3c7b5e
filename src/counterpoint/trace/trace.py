"""`Trace`: one run of a team, whole.

Always true: a trace is frozen; what is derived from it (its graph) is computed once, on demand, and never stored in it.
`rewards`, `costs` and `metrics` are the survey's maps; `meta` and `contents` are ours and never reach a survey-format file.
"""

from __future__ import annotations

import hashlib
import importlib
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from counterpoint.trace.graph import Graph
from counterpoint.trace.records import Edge, Event, Number
from counterpoint.trace.vocabulary import Topology


class Trace(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True, weakref=True):
    """A rooted, labelled, temporal graph of events, with its rewards and costs."""

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
        return Graph.of(self.events, self.edges)

    @cached_property
    def agents(self) -> list[str]:
        """Every agent that acts, in order of first appearance."""
        return list(dict.fromkeys([e.agent for e in self.events]))

    @cached_property
    def index(self) -> dict[str, int]:
        """Event id to its place in `events`."""
        return {e.id: i for i, e in enumerate(self.events)}

    def text(self, event: Event) -> str | None:
        """The content of an event, or None when it is absent or redacted."""
        return self.contents.get(event.content_ref) if event.content_ref else None

    def __repr__(self) -> str:
        shape = f"{len(self.events):,} events, {len(self.edges):,} edges, {len(self.agents):,} agents"
        reward = f", team reward {self.rewards['team']:g}" if "team" in self.rewards else ""
        return f"<Trace {self.trace_id} of {self.task_id}: {self.topology or 'unknown'}, {shape}{reward}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: a card, lanes and, where there is a reward, the credit bar; static, under 60 kB."""
        picture, by_agent = importlib.import_module("counterpoint.trace.picture"), _above("credit.by_agent", "by_agent")
        html: str = picture.card(self, by_agent(self))
        return html

    def save_html(self, path: Any, *, masked: bool = True, overwrite: bool = True) -> Any:
        """Write the viewer with this trace in it as one file that opens from disk, secrets in texts masked; gives its path."""
        return _above("app.viewer.notebook", "save_html")(self, path, masked=masked, overwrite=overwrite)

    def view(self, *, height: int = 640, masked: bool = True) -> Any:
        """The viewer: in a notebook a frame with the one-file page, elsewhere a local server and a browser."""
        return _above("app.viewer.notebook", "view")(self, height=height, masked=masked)


def _above(module: str, name: str) -> Any:
    """Something of a room above this one, by its name.

    A notebook asks the trace itself for its picture, so three methods need what lies above. A trace must not depend on it: no
    arrow points up, nothing is imported before somebody looks, and without those rooms everything else here works.
    """
    return getattr(importlib.import_module(f"counterpoint.{module}"), name)


def content_ref(text: str) -> str:
    """The reference of a text: sha256 of its canonical form (Unicode NFC, newlines as \\n)."""
    canonical = text if text.isascii() else unicodedata.normalize("NFC", text)
    if "\r" in canonical:
        canonical = canonical.replace("\r\n", "\n").replace("\r", "\n")
    return "sha256:" + hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def summed_costs(events: list[Event], wall_clock_s: float | None = None) -> Mapping[str, Number]:
    """The survey's `costs` counted from events: what the events carry, nothing assumed."""
    end = max((e.t + (e.dur or 0) for e in events), default=0)
    start = min((e.t for e in events), default=0)
    return {
        "tokens": sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in events),
        "wall_clock_s": end - start if wall_clock_s is None else wall_clock_s,
        "tool_calls": sum(e.type == "tool_call" for e in events),
        "messages": sum(e.type == "message" for e in events),
    }
