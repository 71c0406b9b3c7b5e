"""Two traces side by side: which events are the same, which differ, which are only in one, and what that did to the reward.

Always true: events are aligned by their stable key; where a trace has none, by agent, type and what the event is about, in order.
Every event of either trace is in exactly one of `same`, `changed`, `gone` (only in the first) and `new` (only in the second).
Times, prices and rewards are not content: an event is the same when it says the same to the same.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from counterpoint.trace import Event, Trace
from counterpoint.trace.tabular import Tabular

# What only the maker of a world knows, places in its tables, and how a fork came by an event: no content.
_NOT_SAID = {"planted", "corrupt", "control", "slot", "badge", "call", "of", "edited", "replay"}


def fingerprint(event: Event) -> Hashable:
    """The hash of what an event passes on: its words (its other fields where it has none), from whom, to whom, how it went."""
    content = event.content_ref
    if content is None and event.extra:
        fields = {k: v for k, v in event.extra.items() if k not in _NOT_SAID}
        content = json.dumps(fields, sort_keys=True, default=str) if fields else None
    return (event.type, event.agent, event.to, event.tool, event.decision, event.ok, event.error, content)


def aligned(events: Sequence[Event]) -> list[str]:
    """A name for each event that its twin in another trace has too; unique in the trace."""
    counts: dict[str, int] = {}
    out = []
    for event in events:
        about = f"{event.tool or ''}|{event.to or ''}|{event.task or ''}"
        name = event.key if event.key is not None else f"{event.agent}|{event.type}|{about}"
        counts[name] = counts.get(name, 0) + 1
        out.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return out


class Pair(Struct, frozen=True):
    """An event of the first trace and its twin in the second; None where there is none."""

    key: str
    a: str | None
    b: str | None


class Divergence(Struct, frozen=True):
    """Where two traces part: the first event, in order, that is not the same in both."""

    how: str
    """`changed`, `gone` or `new`."""
    event: Pair
    text_a: str | None = None
    text_b: str | None = None


class Diff(Struct, Tabular, frozen=True):
    """What two traces share and where they differ."""

    TABLE: ClassVar = {"what": "string", "key": "string", "a": "string", "b": "string"}

    a: str
    b: str
    first: Divergence | None
    """None when every event is the same."""
    same: int
    changed: tuple[Pair, ...]
    new: tuple[Pair, ...]
    gone: tuple[Pair, ...]
    rewards: dict[str, tuple[float | None, float | None]]
    """Channel to its value in each; None where a trace has none."""
    costs: dict[str, tuple[float | None, float | None]]

    @property
    def is_same(self) -> bool:
        """Whether no event differs."""
        return not (self.changed or self.new or self.gone)

    @property
    def effect(self) -> float | None:
        """Team reward of the second less that of the first."""
        a, b = self.rewards.get("team", (None, None))
        return None if a is None or b is None else b - a

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per event that is not the same in both: `changed`, `new` or `gone`, with its id in each."""
        kinds = (("changed", self.changed), ("new", self.new), ("gone", self.gone))
        return ((what, pair.key, pair.a, pair.b) for what, pairs in kinds for pair in pairs)

    def caption(self) -> str:
        """The two traces, and how many events are the same."""
        counts = f"{self.same:,} same, {len(self.changed):,} changed, {len(self.new):,} new, {len(self.gone):,} gone"
        return f"{self.a} and {self.b}: {counts}" + ("" if self.effect is None else f"; team reward {self.effect:+.4g}")


def diff(a: Trace, b: Trace) -> Diff:
    """Compare two traces, such as an original and its fork."""
    keys_a, keys_b = aligned(a.events), aligned(b.events)
    at_a = dict(zip(keys_a, a.events, strict=True))
    at_b = dict(zip(keys_b, b.events, strict=True))
    differs = {k for k, e in at_a.items() if k in at_b and fingerprint(e) != fingerprint(at_b[k])}
    changed = tuple(Pair(k, at_a[k].id, at_b[k].id) for k in keys_a if k in differs)
    gone = tuple(Pair(k, at_a[k].id, None) for k in keys_a if k not in at_b)
    new = tuple(Pair(k, None, at_b[k].id) for k in keys_b if k not in at_a)
    return Diff(
        a=a.trace_id,
        b=b.trace_id,
        first=_first(a, b, keys_a, keys_b, differs),
        same=len(keys_a) - len(changed) - len(gone),
        changed=changed,
        new=new,
        gone=gone,
        rewards=_both(a.rewards, b.rewards),
        costs=_both(a.costs, b.costs),
    )


def _first(a: Trace, b: Trace, keys_a: list[str], keys_b: list[str], differs: set[str]) -> Divergence | None:
    """Walk both in their orders; events that only stand elsewhere are no divergence."""
    in_a, in_b = set(keys_a), set(keys_b)
    stop_a = next((i for i, k in enumerate(keys_a) if k in differs or k not in in_b), len(keys_a))
    stop_b = next((i for i, k in enumerate(keys_b) if k in differs or k not in in_a), len(keys_b))
    if stop_a == len(keys_a) and stop_b == len(keys_b):
        return None
    key_a = keys_a[stop_a] if stop_a < len(keys_a) else None
    if key_a is not None and (stop_a <= stop_b or key_a in differs):
        event = a.events[stop_a]
        if key_a not in in_b:
            return Divergence("gone", Pair(key_a, event.id, None), a.text(event))
        twin = b.events[keys_b.index(key_a)]
        if stop_a <= stop_b or keys_b[stop_b] == key_a:
            return Divergence("changed", Pair(key_a, event.id, twin.id), a.text(event), b.text(twin))
    event = b.events[stop_b]
    return Divergence("new", Pair(keys_b[stop_b], None, event.id), None, b.text(event))


def _both(a: dict[str, int | float], b: dict[str, int | float]) -> dict[str, tuple[float | None, float | None]]:
    return {name: (a.get(name), b.get(name)) for name in dict.fromkeys((*a, *b))}
