"""Which traces a command works on: those it names, one by one, or all of a store that match a query.

Always true: words that each name a file or a trace of the store select those traces; other words are one query of `counterpoint
ls`, and no words select the whole store. No match is `NotFound`. A stored trace that cannot be read is reported and left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from counterpoint.app.load_save import load, names_file, store_path
from counterpoint.app.price_file import read_prices, reprice
from counterpoint.app.search import matcher, period_of, remarks
from counterpoint.app.terminal.output import note
from counterpoint.app.terminal.progress import track
from counterpoint.app.terminal.store import open_store
from counterpoint.errors import InputError, NotFound
from counterpoint.formats.importing.usage import Prices
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace


@dataclass(frozen=True)
class Selection:
    """Traces, loaded one at a time."""

    refs: tuple[str, ...]
    """Files and ids, as they were named; empty where a query found the traces."""
    rows: tuple[Summary, ...]
    """What the store lists of those that a query found."""
    query: str
    store: Path | None
    prices: Prices | None
    """Prices to reprice them by."""

    def __len__(self) -> int:
        return len(self.refs) or len(self.rows)

    @property
    def is_query(self) -> bool:
        """Whether the traces were asked for together."""
        return not self.refs

    @property
    def words(self) -> str:
        """What was asked for, for a heading."""
        return self.query or "all traces"

    def one(self) -> Trace:
        """The one trace that was named."""
        return self._priced(load(self.refs[0], store=self.store))

    def traces(self, *, quiet: bool = False) -> Iterator[Trace]:
        """Each of them."""
        return (trace for _, trace in self.named(quiet=quiet))

    def named(self, *, quiet: bool = False) -> Iterator[tuple[str, Trace]]:
        """Each of them, with the name that it was asked for by, for errors."""
        if self.refs:
            for ref in self.refs:
                yield ref, self._priced(load(ref, store=self.store))
            return
        with open_store(self.store, read_only=True) as opened:
            for row in track(self.rows, "traces", quiet=quiet):
                try:
                    trace = opened.get(row.id)
                except (InputError, NotFound) as error:  # damaged, or removed meanwhile
                    note(f"left out: {row.id}: {error.what}")
                    continue
                yield row.id, self._priced(trace)

    def summaries(self, *, quiet: bool = False, by_time: bool = False) -> Iterator[Summary]:
        """A line about each; from the store's list where that has them at the prices asked for.

        `by_time` asks when they did what: a trace that was stored before the list kept that is read.
        """
        if self.refs or self.prices is not None:
            yield from map(Summary.of_trace, self.traces(quiet=quiet))
            return
        old = [row for row in self.rows if (by_time and row.quarters is None) or (row.sides is None and row.agents > 1)]
        unread = {row.id for row in old}
        yield from (row for row in self.rows if row.id not in unread)
        if old:
            yield from map(Summary.of_trace, replace(self, rows=tuple(old)).traces(quiet=quiet))

    @property
    def period(self) -> tuple[float, float] | None:
        """From when to before when the query asks; None where it says nothing of dates."""
        return period_of(self.query) if self.is_query else None

    def _priced(self, trace: Trace) -> Trace:
        return trace if self.prices is None else reprice(trace, self.prices)


def select(words: Sequence[str], store: Path | None, prices: Path | None = None) -> Selection:
    """The traces that these words name."""
    table = None if prices is None else read_prices(prices)
    traces = [single_trace(word, store) for word in words]
    if words and None not in traces:
        names = dict(zip(reversed(traces), reversed(words), strict=True))  # each once, by the first of its names
        return Selection(tuple(reversed(names.values())), (), "", store, table)
    query = " ".join(words)
    if query and not store_path(store).exists():
        load(words[0], store=store)  # the error that says what would help
    with open_store(store, read_only=True) as opened:
        matches = matcher(query, opened.datasets())
        for remark in remarks(query):
            note(remark)
        every = opened.rows()
        rows = tuple(row for row in every if matches(row))
    if not rows:
        what = f"no trace has the name or matches {query!r}" if query else "there are no traces yet"
        fix = "counterpoint ls lists what there is" if every else "counterpoint import brings sessions in"
        raise NotFound(what, where=os.fspath(store_path(store)), fix=fix)
    return Selection((), rows, query, store, table)


def single_trace(word: str, store: Path | None) -> str | None:
    """The one trace that a word names: a file's path, or an id by itself, its short form or unique prefix; None where it names
    none. An ambiguous prefix is an error."""
    if names_file(word, store):
        return os.path.realpath(word)
    if not store_path(store).exists():
        return None
    with open_store(store, read_only=True) as opened:
        try:
            return opened.find(word)
        except NotFound:
            return None
