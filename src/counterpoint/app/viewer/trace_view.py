"""A trace looked at once for the page: its facts as arrays, its marks, its critical path.

Always true: what is worked out is kept beside the trace, as its graph is, and goes with it; the trace itself is not changed.
Arrays carry `_E` where they stand in file order; the page's order is the story's (`TraceTeam.order_E`), and an event's number
`n` is its place in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from counterpoint.app.viewer.shapes import FLAGS, TYPES
from counterpoint.audits.authority import Sink
from counterpoint.audits.facts import facts_of
from counterpoint.audits.incidents import sinks_by_effect
from counterpoint.audits.injection import Injection, injections
from counterpoint.audits.outside import outside
from counterpoint.audits.taint import MayTaint, may_taint
from counterpoint.formats.importing.report import Report
from counterpoint.trace import Trace
from counterpoint.trace.line_records import OPEN_EVENTS
from counterpoint.trace.quantities import is_thinking

T = TypeVar("T")

LARGE = 200_000
"""A trace with more events than this travels as bins and windows."""

_KEY = "_seen_by_viewer"


def view_of(trace: Trace) -> TraceView:
    """What was worked out for this trace, now or before."""
    kept = vars(trace).get(_KEY)
    if not isinstance(kept, TraceView):
        kept = vars(trace)[_KEY] = TraceView(trace)
    return kept


def finite(values: dict[str, Any] | None) -> dict[str, float]:
    """The numbers of a map that are numbers: JSON has no infinity, and no integers beyond 64 bits."""
    out = {}
    for name, value in (values or {}).items():
        number = float(value)
        if np.isfinite(number):
            out[name] = number
    return out


class TraceView:
    """One trace, looked at for the page."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.facts = facts_of(trace)
        self.team = self.facts.team
        self.kept: dict[Any, Any] = {}
        """Answers that cost something (credit, safety), by what was asked."""

    def once(self, name: str, make: Callable[[], T]) -> T:
        """An answer, made when it is first asked for."""
        if name not in self.kept:
            self.kept[name] = make()
        kept: T = self.kept[name]
        return kept

    @property
    def n(self) -> int:
        return len(self.trace.events)

    @property
    def is_large(self) -> bool:
        return self.n > LARGE

    @cached_property
    def end_E(self) -> NDArray[np.float64]:
        """When each event was over; its start where its duration is not known."""
        return self.facts.t_E + np.maximum(self.facts.dur_E, 0.0)

    @cached_property
    def span(self) -> tuple[float, float]:
        """From the first start to the last end."""
        return (float(self.facts.t_E.min()), float(self.end_E.max())) if self.n else (0.0, 0.0)

    @cached_property
    def untrusted_E(self) -> NDArray[np.bool_]:
        """Events whose content came from outside, as `audit.outside` has it."""
        out = np.zeros(self.n, np.bool_)
        out[sorted(outside(self.trace))] = True
        return out

    @cached_property
    def tainted_E(self) -> NDArray[np.bool_]:
        """Events that untrusted content may have reached: as `audit.taint.may_taint` without declassifying."""
        sources = np.flatnonzero(self.untrusted_E)
        return self.facts.info.reach(sources.tolist()) if len(sources) else self.untrusted_E

    @cached_property
    def open(self) -> list[int]:
        """Events that have begun and not ended."""
        named = self.trace.meta.get(OPEN_EVENTS)
        return [self.trace.index[name] for name in named if name in self.trace.index] if named else []

    @cached_property
    def report(self) -> Report:
        """What the importer said; empty for a trace that was not imported."""
        said = self.trace.meta.get("import")
        return Report.of(said) if isinstance(said, dict) else Report()

    @cached_property
    def unlinked_A(self) -> list[int]:
        """Agents that an importer could not hang on a spawn: roots beside the main one, where it says that there are some."""
        return [a for a in self.team.roots if a != self.team.main] if self.report.unlinked_count else []

    @cached_property
    def flags_E(self) -> NDArray[np.uint16]:
        """The marks of `shapes.FLAGS`."""
        events, contents = self.trace.events, self.trace.contents
        on_path = np.zeros(self.n, np.bool_)
        on_path[self.facts.path.events if self.facts.path else []] = True
        is_open = np.zeros(self.n, np.bool_)
        is_open[self.open] = True
        has_text = np.array([e.content_ref in contents for e in events] if contents else [False] * self.n, np.bool_)
        marks = {
            "untrusted": self.untrusted_E,
            "tainted": self.tainted_E,
            "failed": self.facts.failed_E,
            "on_path": on_path,
            "open": is_open,
            "text": has_text,
            "human": self.team.of_types(("human_intervention",)),
            "safety": self.team.of_types(("safety_event",)),
            "unlinked": np.isin(self.team.agent_E, self.unlinked_A),
        }
        flags = np.zeros(self.n, np.uint16)
        for name, mask in marks.items():
            flags[mask] |= FLAGS[name]
        return flags

    @cached_property
    def kind_E(self) -> NDArray[np.uint8]:
        """Codes into `shapes.TYPES`: the events' types, but for thinking."""
        thinking = np.fromiter((is_thinking(e) for e in self.trace.events), np.bool_, self.n)
        return np.where(thinking, TYPES.index("thinking"), self.team.type_E).astype(np.uint8)

    @cached_property
    def tools(self) -> tuple[list[str], NDArray[np.uint16]]:
        """The tools in order of first use, and for each event its tool's number plus one, 0 for none."""
        named = [e.tool for e in self.trace.events]
        order = self.team.order_E.tolist()
        names = [tool for tool in dict.fromkeys(map(named.__getitem__, order)) if tool is not None]
        number: dict[str | None, int] = {tool: k for k, tool in enumerate(names, 1)} | {None: 0}
        if len(names) > 65_535:  # more than the column can count: the rest share its last number
            names = [*names[:65_534], "(other tools)"]
        codes = np.fromiter(map(number.__getitem__, named), np.int64, len(named))
        return names, np.minimum(codes, 65_535).astype(np.uint16)


# -- Incidents: the effects that untrusted content reached, as `counterpoint audit --taint` finds them ----------------
# Always true: they are worked out once for a trace; where that takes long, not before somebody asks.

# Looking for every argument in every text: beyond this many characters it is not done unasked.
_UNASKED = 2_000_000_000


def is_dear(view: TraceView) -> bool:
    """Whether judging the sinks takes so long that it is left until somebody asks."""
    if view.is_large:
        return True
    calls = sum(1 for e in view.trace.events if e.type == "tool_call" and e.extra and "args" in e.extra)
    return calls * sum(map(len, view.trace.contents.values())) > _UNASKED


def injected_orders(view: TraceView) -> list[Injection]:
    """The texts from outside that give the team orders, and what came of them."""
    return view.once("injections", lambda: injections(view.trace))


def sinks(view: TraceView) -> tuple[MayTaint, list[Sink]]:
    """What the audit says: layer 1 of taint, and every sink that untrusted content reaches."""
    return view.once("sinks", lambda: _sinks(view))


def _sinks(view: TraceView) -> tuple[MayTaint, list[Sink]]:
    may = may_taint(view.trace)
    return may, sinks_by_effect(view.trace, may, injected_orders(view))
