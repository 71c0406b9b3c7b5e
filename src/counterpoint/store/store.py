"""`Store`: a folder of traces. Running ones lie in the journal, finished ones in the lake.

Always true: a trace is in the lake whole or not at all; an id names at most one trace; what `add`, `sync` or `finish` has
acknowledged is found by every later reader, whatever was killed in between. Any number of processes may write and read one
store. Opening never changes what another process is writing.

    counterpoint.json   what this folder is, and which version wrote it
    journal/            a file per running trace
    control/            orders to running teams, a file each (recorder/control.py)
    log/                the manifest: numbered commits and checkpoints
    annotations.jsonl   what people say about traces, and collections of them
    head                how far the log goes; its lock is the writers'
    lake/               Parquet: day=YYYY-MM-DD/shard=X/<part>.{traces,events,edges,contents}.parquet
    hot/                an Arrow file for sampling, rebuilt at will
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

import counterpoint.store.compaction as compaction
import counterpoint.store.disk as disk
import counterpoint.store.opening as recovery
import counterpoint.store.pending as pending
from counterpoint.errors import CounterpointError, InputError, NotFound, TryAgain, did_you_mean
from counterpoint.store.annotations import AnnotationFile, Change, Dataset
from counterpoint.store.drawing import draw, event_columns
from counterpoint.store.flusher import Flusher
from counterpoint.store.handles import named, nearest
from counterpoint.store.hot import Hot
from counterpoint.store.journal import Journal, is_there, path_of, peek
from counterpoint.store.lake import REPAIR, Lake, MissingFile
from counterpoint.store.listing import listing, open_summaries
from counterpoint.store.log import Commit, Row, State
from counterpoint.store.opening import open_folder, open_log
from counterpoint.store.parts import SCHEMAS, part_path
from counterpoint.store.removal import Removals
from counterpoint.store.run import Run
from counterpoint.store.summary import Info, StoreTable, Summary, info
from counterpoint.store.tally import lost_run
from counterpoint.store.writing import Writer, check
from counterpoint.trace import Trace
from counterpoint.trace.annotation import Annotation, annotations_of, with_annotations
from counterpoint.trace.batch import TraceBatch
from counterpoint.trace.outcome import Outcome

if TYPE_CHECKING:
    from counterpoint.store.query import Query, Result


class Store:
    """A folder of traces: running ones in its journal, finished ones in its lake.

    >>> import counterpoint as cpt
    >>> with cpt.Store("traces") as store, store.record("t1", task_id="demo") as run:
    ...     run.event(cpt.Event(id="e1", t=0.0, type="message", agent="lead", tokens_out=40))
    ...     run.finish(rewards={"team": 1.0})
    <Trace t1 of demo: unknown, 1 event, 0 edges, 1 agent, team reward 1>
    """

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = True, read_only: bool = False, flush_ms: float = 50.0
    ) -> None:
        """Open a store, recovering what a killed process left; make it when it is not there, unless told otherwise.

        `flush_ms` is how long a record may wait for the disk when nobody asks with `sync`.
        """
        self.path = Path(path)
        self.is_read_only = read_only
        with disk.translate_errors(self.path):
            self.form = open_folder(self.path, create=create and not read_only)
            self._log = open_log(self.path, self.form, read_only=read_only)
        self._lake = Lake(self.path / "lake", self._sums)
        self._log.refresh()
        self._annotation_file = AnnotationFile(self.path)
        self._flusher = Flusher(flush_ms / 1000)
        self._writer = Writer(self._log, self._lake)
        self.removals = Removals(self._log, self._lake)
        self._query: Query | None = None
        self._asking = threading.Lock()
        self._hot: Hot | None = None
        self.damaged: dict[Path, CounterpointError] = {}
        """What the last look at the traces could not read, each with the reason: journals, and files of the log."""
        self.unsealed: list[CounterpointError] = []
        """Journals that could not be recovered, each with the reason; they are left as they are."""
        if not read_only:
            self.unsealed = recovery.recover(self._journal_folder, self._writer)

    @property
    def _journal_folder(self) -> Path:
        return self.path / "journal"

    def _sums(self, part: str) -> dict[str, list[tuple[int, int]]]:
        known = self._log.state.parts.get(part)
        if known is None:
            raise MissingFile(part)
        return known.sums

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every run (unfinished ones stay in the journal) and of all files."""
        pending.settle(self.path)
        self._flusher.close()
        self._lake.close()
        self._log.close()
        if self._query is not None:
            self._query.close()
            self._query = None

    def __repr__(self) -> str:
        return f"<Store {os.fspath(self.path)}: {len(self._log.state.rows):,} traces>"

    def _writable(self) -> None:
        pending.settle(self.path)
        if self.is_read_only:
            raise InputError("this store was opened read-only", where=str(self.path), fix="open it with read_only=False")

    # -- recording -----------------------------------------------------------------------------------------------

    def record(
        self,
        trace_id: str,
        *,
        task_id: str,
        system: str | None = None,
        topology: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Run:
        """Begin a trace. Use it as a context: leaving it without `finish` leaves the trace unfinished, not lost."""
        journal = self.journal(trace_id, task_id=task_id, system=system, topology=topology, meta=meta)
        return Run(trace_id, journal, self._flusher, check, self._writer.seal)

    def journal(self, trace_id: str, **about: Any) -> Journal:
        """The journal of a new trace, for a `Run`; `about` is what `record` takes."""
        self._writable()
        if trace_id in self._log.refresh().rows:
            fix = "record under another id; store.add(trace) replaces a stored one"
            raise InputError(f"trace {trace_id!r} is stored already", where=str(self.path), fix=fix)
        task_id, system, topology = (about.get(name) for name in ("task_id", "system", "topology"))
        journal = Journal.create(self._journal_folder, trace_id, str(task_id), system, topology, about.get("meta") or {})
        disk.remove(path_of(self.path / "control", trace_id))  # orders to an earlier trace of this name, which was removed
        return journal

    def seal(self, traces: Sequence[Trace]) -> None:
        """Move traces that their runs have ended into the lake, in one part; the journals are theirs to delete."""
        self._writer.seal(*traces)

    def resume(self, trace_id: str) -> Run:
        """Go on with a trace whose writer died or let go; `TryAgain` while somebody still records it."""
        self._writable()
        path = path_of(self._journal_folder, trace_id)
        resumed = Journal.resume(path)
        if resumed is None:
            if path.exists():
                raise TryAgain(f"trace {trace_id!r} is being recorded", where=str(path), fix="wait for its writer to end")
            raise lost_run(path, self._log.refresh().rows) or self._not_found(trace_id, self.open_ids())
        journal, so_far = resumed
        return Run(trace_id, journal, self._flusher, check, self._writer.seal, so_far=so_far)

    def open_ids(self) -> list[str]:
        """The traces that are running, or were cut off: in the journal and not yet in the lake."""
        return [s.id for s in self._open_summaries()]

    def _open_summaries(self) -> list[Summary]:
        summaries, self.damaged = open_summaries(self._journal_folder, self._log.refresh().rows)
        return summaries

    # -- adding --------------------------------------------------------------------------------------------------

    def add(self, trace: Trace, source: str | None = None) -> str:
        """Store a trace: "added", "unchanged" when this very content is stored, "updated" when the id had another.

        `source` names where it came from; one id from two sources is refused. `InvalidTrace` when it is not a graph.
        """
        return self.add_many([trace], source)[0]

    def add_many(self, traces: Iterable[Trace], source: str | Sequence[str | None] | None = None) -> list[str]:
        """The same for many, which is quicker: they are written together. All that came before an error are stored."""
        self._writable()
        carried: list[Annotation] = []

        def bare() -> Iterator[Trace]:
            for trace in traces:
                carried.extend(annotations_of(trace))
                yield with_annotations(trace, ())

        try:
            whats = self._writer.add_many(bare(), source, is_open=self._is_open)
        finally:
            if carried:
                rows = self._log.refresh().rows
                self._annotate([one for one in carried if one.trace_id in rows])
        compaction.tidy(self._log, self._lake)
        return whats

    def _is_open(self, trace_id: str) -> bool:
        """Whether a run of this id is in the journal, or should be."""
        return (path := path_of(self._journal_folder, trace_id)).exists() or lost_run(path, self._log.state.rows) is not None

    def score(self, trace_id: str, outcomes: Sequence[Outcome]) -> Trace:
        """Give a finished trace outcomes, which become its rewards; all that were given before stay on record.

        Whoever scores at the same time, or imports the trace again, loses nothing of it.
        """
        self._writable()
        if path_of(self._journal_folder, trace_id).exists():
            raise InputError(f"trace {trace_id!r} is being recorded, or was interrupted", fix="score it when it is finished")
        trace = self._writer.score(trace_id, outcomes)
        if trace is None:
            raise self._not_found(trace_id, self._log.state.rows)
        compaction.tidy(self._log, self._lake)
        return trace

    def remove(self, trace_id: str, *, remember: bool = True) -> None:
        """Drop a trace. Its bytes stay in the files until `purge`, or compactions, erase them.

        What it was called is remembered, so that no import brings it back, until `removals.restore`; unless told otherwise.
        """
        self._writable()
        path = path_of(self._journal_folder, trace_id)
        had_journal = is_there(path)
        if had_journal and not Journal.drop(path, trace_id):
            raise TryAgain(f"trace {trace_id!r} is being recorded", where=str(path), fix="wait for its writer to end")
        row = self._log.refresh().rows.get(trace_id)
        gone = [self.removals.of(trace_id, row)] if remember and (row is not None or had_journal) else []

        def drop(state: State) -> Commit | None:
            known = [trace_id] if trace_id in state.rows else []
            return Commit(at=time.time(), drop=known, removed=gone) if known or gone else None

        if self._log.commit(drop) is None and not had_journal:
            raise self._not_found(trace_id, self._log.state.rows)
        annotated = self._annotation_file.refresh()
        if trace_id in annotated.by_trace or any(trace_id in known.ids for known in annotated.datasets.values()):
            self._annotation_file.append(lambda annotated: [Change(forget=trace_id)])

    def purge(self) -> compaction.CompactionResult:
        """Erase at once what was removed or replaced: from the lake's files, the log, the annotations, and the hot file."""
        self._writable()
        self._annotation_file.rewrite()
        report = compaction.purge(self._log, self._lake)
        for file in (self.path / "hot").glob("*"):
            disk.remove(file)
        self._hot = None
        return report

    def compact(self, *, grace_s: float = 600.0) -> compaction.CompactionResult:
        """Merge small parts, drop the rows of removed and superseded traces, delete files that died `grace_s` ago."""
        self._writable()
        self._annotation_file.rewrite()
        return compaction.compact(self._log, self._lake, grace_s=grace_s)

    # -- what people say -----------------------------------------------------------------------------------------

    def annotate(self, annotations: Iterable[Annotation], *, is_known: bool = False) -> None:
        """Keep annotations of traces that are here, finished or running; whoever else writes, none is lost.

        `is_known` says that their traces and events were just read from here, and need not be looked for again.
        """
        self._writable()
        if is_known:
            self._annotate(list(annotations))
            return
        new = list(annotations)
        events: dict[str, set[str]] = {}
        for one in new:
            events.setdefault(one.trace_id, set()).update(() if one.event is None else (one.event,))
        for name, of_trace in events.items():
            if self.version(name) is None:
                raise self._not_found(name, [*self._log.state.rows, *self.open_ids()])
            self._check_events(name, of_trace)
        self._annotate(new)

    def _check_events(self, trace_id: str, events: set[str]) -> None:
        known = self.get(trace_id).index if events else {}
        for name in sorted(events - known.keys()):
            raise NotFound(f"trace {trace_id!r} has no event {name!r}", where=str(self.path), fix=did_you_mean(name, known))

    def _annotate(self, annotations: Sequence[Annotation]) -> None:
        if not annotations:
            return
        self._annotation_file.append(
            lambda state: [
                Change(annotate=one) for one in annotations if one.id not in state.annotations and one.id not in state.withdrawn
            ]
        )

    def annotations(self, trace_id: str | None = None) -> list[Annotation]:
        """What is said about a trace, or about all of them, the oldest first."""
        state = self._annotation_file.refresh()
        return list(state.annotations.values()) if trace_id is None else state.of(trace_id)

    def withdraw(self, annotation_id: str) -> Annotation:
        """Take an annotation back, by its id or the unique beginning of it; `compact` erases it from the file."""
        self._writable()
        matches: list[Annotation] = []

        def decide(state: Any) -> list[Change]:
            matches[:] = [one for name, one in state.annotations.items() if annotation_id and name.startswith(annotation_id)]
            return [Change(withdraw=matches[0].id)] if len(matches) == 1 else []

        self._annotation_file.append(decide)
        if len(matches) > 1:
            raise InputError(f"{len(matches)} annotations have ids that begin with {annotation_id!r}", fix="give more of the id")
        if not matches:
            raise NotFound(f"no annotation {annotation_id!r}", where=str(self.path), fix="counterpoint notes ls lists them")
        return matches[0]

    def datasets(self) -> dict[str, Dataset]:
        """The collections of traces, by name."""
        return dict(self._annotation_file.refresh().datasets)

    def change_datasets(self, decide: Callable[[dict[str, Dataset]], Sequence[Change]]) -> None:
        """Change collections: `decide` sees those that are there, and nobody changes them until its changes are durable."""
        self._writable()
        self._annotation_file.append(lambda state: decide(state.datasets))

    # -- reading -------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """The finished traces, in the order they were added."""
        return list(self._log.refresh().rows)

    def __contains__(self, trace_id: object) -> bool:
        return trace_id in self._log.refresh().rows

    def __len__(self) -> int:
        return len(self._log.refresh().rows)

    def rows(self) -> list[Summary]:
        """A line per trace, finished and open, by the time it was added. Reads the manifest, not the lake."""
        rows, self.damaged = listing(self._journal_folder, self._log, self._annotation_file.refresh())
        return rows

    def table(self) -> StoreTable:
        """The same as a table, for Arrow, pandas, polars and notebooks."""
        return StoreTable(os.fspath(self.path), tuple(self.rows()))

    def _repr_html_(self) -> str:
        """What a notebook shows: the traces that came last."""
        return self.table()._repr_html_()

    def info(self) -> Info:
        """The store in numbers: what it holds, how large it is, how it grew."""
        n_open = len(self.open_ids())
        return info(self.path, self.form, self._log.state, n_open, self._annotation_file.refresh())

    def version(self, trace_id: str) -> str | None:
        """Something that is another one when the trace is, or what people say about it; None when there is no such trace."""
        annotations = self._annotation_file.refresh().by_trace.get(trace_id)
        mark = "" if annotations is None else f"+{zlib.crc32(' '.join(annotations).encode()):08x}"
        row = self._log.refresh().rows.get(trace_id)
        if row is not None:
            return row.digest + mark
        try:
            stat = path_of(self._journal_folder, trace_id).stat()
        except FileNotFoundError:
            return None
        return f"open-{stat.st_ino}-{stat.st_size}-{stat.st_mtime_ns}{mark}"

    def latest(self, count: int) -> list[tuple[str, Summary]]:
        """The finished traces that were added or changed last, the newest first, each with its version."""
        rows = reversed(self._log.refresh().rows.values())
        return [(row.digest, Summary.of_row(row)) for row in itertools.islice(rows, count)]

    def find(self, prefix: str) -> str:
        """The one id that is `prefix`, or begins with it, or has it for its handle (`handles.handle`); else the one trace whose
        source's own id, which stands in the id or is that of its task, is it or begins with it."""
        rows = self._log.refresh().rows
        known = dict.fromkeys([*rows, *self.open_ids()])
        if prefix in known or path_of(self._journal_folder, prefix) in self.damaged:
            return prefix
        matches = named(prefix, {name: rows[name].task if name in rows else "" for name in known})
        if matches and all(f"{name}~".startswith(f"{min(matches, key=len)}~") for name in matches):
            return min(matches, key=len)  # a trace goes before its forks
        if matches:
            shown = ", ".join(matches[:5]) + (f" and {len(matches) - 5} more" if len(matches) > 5 else "")
            what = f"{len(matches)} traces have ids that begin with {prefix!r}: {shown}"
            raise InputError(what, fix=f"give more of the id; the newest is {matches[-1]}")
        raise self._not_found(prefix, known)

    def get(self, trace_id: str) -> Trace:
        """A trace, whole. One that is not finished comes as far as it is recorded, with `unfinished` in its meta.

        What people say about it comes in `meta` too (`trace.annotation`).
        """
        trace = self._whole(trace_id)
        annotations = self._annotation_file.refresh().of(trace_id)
        return with_annotations(trace, annotations) if annotations else trace

    def _whole(self, trace_id: str) -> Trace:
        def read(state: State) -> Trace | None:
            row = state.rows.get(trace_id)
            return None if row is None else self._lake.trace(row)

        for _ in range(2):  # a trace may be sealed between the look into the lake and the look into the journal
            trace: Trace | None = self._reading(read)
            if trace is not None:
                return trace
            lines = peek(path_of(self._journal_folder, trace_id))
            if lines is not None and lines.header is not None:
                return lines.trace()
        if (lost := lost_run(path_of(self._journal_folder, trace_id), self._log.state.rows)) is not None:
            raise lost
        raise self._not_found(trace_id, [*self._log.state.rows, *self.open_ids()])

    def batch(self, ids: Sequence[str], columns: Sequence[str] | None = None, *, edges: bool = False) -> TraceBatch:
        """Finished traces as columns; all columns, edges, meta and texts unless some are named."""
        if not ids:
            raise InputError("a batch needs at least one trace")
        names = None if columns is None else event_columns(columns)

        def read(state: State) -> TraceBatch:
            rows = [self._row(state, name) for name in ids]
            return self._lake.whole_batch(rows) if names is None else self._lake.batch(rows, names, edges=edges)

        return self._reading(read)

    def sample(
        self,
        n: int,
        rng: np.random.Generator,
        columns: Sequence[str] | None = None,
        *,
        edges: bool = False,
        among: Sequence[str] | None = None,
    ) -> TraceBatch:
        """A batch of `n` different finished traces, drawn evenly; `among` these, where they are named."""
        return self.batch(draw(self.ids() if among is None else among, n, rng), columns, edges=edges)

    def hot(self, *, rebuild: bool = False) -> Hot:
        """The finished traces in one memory-mapped file, for sampling at memory speed; made anew when traces changed."""
        state = self._log.refresh()
        if self._hot is None or self._hot.number != state.number or rebuild:
            self._hot = self._reading(lambda s: Hot.of(self.path / "hot", s, self._lake, rebuild=rebuild))
        return self._hot

    def sql(self, query: str, params: Sequence[Any] | None = None, *, limit: int | None = None) -> Result:
        """Ask the finished traces in SQL: views `traces`, `events`, `edges`, `rewards`, `costs`, `annotations`; reading only."""

        from counterpoint.store.query import Query  # the engine for SQL is loaded by who asks in SQL

        def ask(state: State) -> Result:
            with self._asking:
                annotated = self._annotation_file.refresh()
                version = (state.number, self._annotation_file.version)
                if self._query is None or self._query.version != version:
                    self._query = Query(state, self._lake.folder, list(annotated.annotations.values()), version)
                return self._query.run(query, params, limit, lambda kinds: self._lake.verify_all(list(state.parts), kinds))

        return self._reading(ask)

    def files(self, kind: str = "events") -> list[Path]:
        """The Parquet files that hold the finished traces, for other tools: traces, events, edges or contents.

        The folder may also hold files that compaction has replaced and not yet deleted, and these files rows of traces that
        were removed or replaced; right after `compact(grace_s=0)` neither is so.
        """
        if kind not in SCHEMAS:
            raise InputError(f"there are no {kind!r} files", fix=did_you_mean(kind, SCHEMAS))
        parts = self._log.refresh().parts.values()
        return [part_path(self._lake.folder, p.name, kind) for p in parts if kind in p.sums]

    def _row(self, state: State, trace_id: str) -> Row:
        row = state.rows.get(trace_id)
        if row is None:
            raise self._not_found(trace_id, state.rows)
        return row

    def _reading(self, read: Callable[[State], Any]) -> Any:
        """Read with the newest manifest, and again as often as compaction has taken a file away in between."""
        while True:
            number = self._log.refresh().number
            try:
                return read(self._log.state)
            except MissingFile as gone:
                self._query = None
                if self._log.refresh().number == number:
                    raise InputError("a file of the lake is missing", where=str(gone), fix=REPAIR) from gone

    def _not_found(self, trace_id: str, known: Iterable[str]) -> NotFound:
        # Comparing with every id of a large store would take a second; those that begin alike are the likely ones.
        names = list(known)
        near = [n for n in names if n[:2] == trace_id[:2]][:1000] or names[:1000]
        return NotFound(f"no trace {trace_id!r}", where=str(self.path), fix=nearest(trace_id, near))
