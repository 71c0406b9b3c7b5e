"""Adding traces to the lake: checked, compared with what is stored, written as a part, committed.

Always true: the part is durable before the commit names it; a trace that cannot be stored exactly is refused before anything
is written; adding the same content twice stores it once, whoever added it first.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
from msgspec.structs import replace

import counterpoint.store.disk as disk
from counterpoint.errors import InputError, InvalidTrace
from counterpoint.store.hops import join_hops, removal_of, runs_of, with_parts
from counterpoint.store.lake import Lake, MissingFile
from counterpoint.store.log import Commit, Log, Row, Span, State
from counterpoint.store.parts import SCHEMAS, MissingPart, PartWriter, Unit, is_whole
from counterpoint.trace import Trace, findings
from counterpoint.trace.activity import quarters_of, waiting_of
from counterpoint.trace.columns import edge_table, event_table, present
from counterpoint.trace.link import link
from counterpoint.trace.naming import further_of, models_of, parent_session, project_of, started, title_of
from counterpoint.trace.outcome import Outcome, carried_over, outcomes_of, with_outcomes
from counterpoint.trace.quantities import uncounted
from counterpoint.trace.sides import sides_of
from counterpoint.trace.steering import is_steered

# Errors that edges as numbers, or typed columns, cannot represent. Others (a cycle, time running backwards) are kept and counted.
_UNSTORABLE = {"duplicate-id", "dangling-edge", "field", "non-finite"}
_PART_TRACES, _PART_EVENTS = 1024, 2_000_000
_TEXTS_AT_ONCE = 256
_NOWHERE = Span(0, 0, 0)
_MOST = 1 << 62
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def check(trace: Trace) -> int:
    """How many errors the trace has; `InvalidTrace` when one of them cannot be stored."""
    where = f"trace {trace.trace_id!r}"
    try:
        problems = findings(trace)
        fatal = [p for p in problems.errors if p.code in _UNSTORABLE]
        if fatal:
            more = f", and {len(fatal) - 1} more" if len(fatal) > 1 else ""
            what, fix = f"cannot be stored: {fatal[0]}{more}", "`counterpoint store check` lists every problem"
            raise InvalidTrace(what, problems=problems.problems, where=where, fix=fix)
        loose = [trace.meta, list(trace.contents), *(e.extra for e in trace.events if e.extra is not None)]
        if _decode(_encode(loose)) != loose or not all(isinstance(v, str) for v in trace.contents.values()):
            raise InvalidTrace(
                "meta, contents or extra hold something that JSON cannot carry, such as NaN or a tuple", where=where
            )
    except (OverflowError, UnicodeEncodeError, TypeError, msgspec.MsgspecError) as error:
        raise InvalidTrace(f"cannot be stored: {error}", where=where, fix="write finite numbers and valid Unicode") from error
    return problems.error_count


def _texts_of(contents: dict[str, str]) -> Iterator[bytes]:
    """What a JSON encoder writes for some texts, piece by piece, so that they are not all in memory once more."""
    yield b"{"
    rows = iter(contents.items())
    for k in itertools.count():
        piece = dict(itertools.islice(rows, _TEXTS_AT_ONCE))
        if not piece:
            break
        yield b"," if k else b""
        yield _encode(piece)[1:-1]
    yield b"}"


def digest_of(trace: Trace) -> str:
    """One hash of all that a trace says: events, edges, maps, meta and texts. `InvalidTrace` when a text cannot be written."""
    said = hashlib.sha256(b"[")
    try:
        for k, name in enumerate(trace.__struct_fields__):
            said.update(b"," if k else b"")
            for data in _texts_of(trace.contents) if name == "contents" else [_encode(getattr(trace, name))]:
                said.update(data)
        said.update(b"]")
        return said.hexdigest()
    except UnicodeEncodeError as error:
        where, fix = f"trace {trace.trace_id!r}", "write valid Unicode"
        raise InvalidTrace(f"cannot be stored: {error}", where=where, fix=fix) from error


def unit_of(trace: Trace, source: str | None, digest: str, problems: int) -> Unit:
    """A trace as tables, with the row that the manifest will keep."""
    links = link(trace.events, trace.edges)
    contents = None
    if trace.contents:
        columns = [pa.array(trace.contents.keys(), pa.string()), pa.array(trace.contents.values(), pa.large_string())]
        contents = pa.table(columns, schema=pa.schema(list(SCHEMAS["contents"])[1:]))
    row = Row(
        id=trace.trace_id,
        task=trace.task_id,
        system=trace.system,
        topology=trace.topology,
        events=_NOWHERE,
        edges=_NOWHERE,
        head=0,
        agents=len(trace.members),
        tokens=trace.tokens,
        wall_clock_s=trace.duration_s,
        rewards=trace.rewards,
        costs=trace.costs,
        metrics=trace.metrics,
        has_meta=bool(trace.meta),
        problems=problems,
        decisions=sum(e.decision is not None for e in trace.events),
        digest=digest,
        source=source,
        added=time.time(),
        is_steered=is_steered(trace),
        cost_usd=trace.cost_usd,
        title=title_of(trace),
        project=project_of(trace.meta),
        models=tuple(models_of(trace.events, trace.meta)),
        started=started(trace.events, trace.meta),
        failures=len(trace.failures),
        unpriced={model: min(count, _MOST) for model, count in trace.unpriced.items()},
        uncounted=uncounted(trace.meta),
        quarters=quarters_of(trace),
        waiting=waiting_of(trace),
        parent=parent_session(trace.meta),
        sides=sides_of(trace),
        further=further_of(trace),
    )
    meta = msgspec.json.encode(trace.meta).decode() if trace.meta else None
    events = event_table(trace.events)
    row = replace(row, present=present(events))
    return Unit(row, events, edge_table(trace.edges, links.src, links.dst), contents, meta)


class Writer:
    """Adds traces to one store."""

    def __init__(self, log: Log, lake: Lake) -> None:
        self._log, self._lake = log, lake

    def add_many(
        self, traces: Iterable[Trace], source: str | Sequence[str | None] | None, *, is_open: Callable[[str], bool]
    ) -> list[str]:
        """What happened to each: added, unchanged or updated."""
        sources: Iterable[str | None] = itertools.repeat(source) if source is None or isinstance(source, str) else source
        batch, runs = _Batch(self, self._log.refresh()), set[str]()
        for trace, origin in zip(traces, sources, strict=False):
            try:
                if found := runs_of(trace):
                    runs |= found
                    trace = with_parts(trace, self._log.state, self._lake)
                if is_open(trace.trace_id):
                    fix = "finish it with store.resume(id), or drop it with store.remove(id)"
                    raise InputError(f"trace {trace.trace_id!r} is being recorded, or was interrupted", fix=fix)
                batch.take(trace, origin)
            except BaseException:
                batch.commit()
                raise
        batch.commit()
        self._join(runs)
        return batch.whats

    def seal(self, *traces: Trace) -> None:
        """Move finished runs into the lake; nothing to do for those that are there already."""
        batch = _Batch(self, self._log.refresh(), is_new=True)
        for trace in traces:
            batch.take(trace, None)
        batch.commit()
        self._join({run for trace in traces for run in runs_of(trace)})

    def _join(self, runs: set[str]) -> None:
        """Make one trace of the recordings of several processes, where all that one needs are stored."""

        def put(trace: Trace, root: Row, parts: Sequence[Row]) -> bool:
            done: list[Row] = []

            def decide(state: State, rows: list[Row]) -> list[Row]:
                is_same = all((now := state.rows.get(r.id)) is not None and now.digest == r.digest for r in (root, *parts))
                done[:] = [replace(row, added=root.added) for row in rows] if is_same else []
                return done

            self.write(
                [unit_of(trace, root.source, digest_of(trace), check(trace))], decide, removal_of(parts, self._log, self._lake)
            )
            return bool(done)

        if runs:
            join_hops(runs, self._log, self._lake, put)

    def score(self, name: str, outcomes: Sequence[Outcome]) -> Trace | None:
        """Put outcomes on a stored trace; None when there is no such trace. Who comes second adds to the first."""
        while True:
            row = self._log.refresh().rows.get(name)
            if row is None:
                return None
            try:
                trace = with_outcomes(self._lake.trace(row), outcomes)
            except MissingFile:
                if self._log.refresh().rows.get(name) == row:
                    raise
                continue  # a compaction moved it meanwhile
            done: list[Row] = []

            def decide(state: State, rows: list[Row], row: Row = row, done: list[Row] = done) -> list[Row]:
                stored = state.rows.get(name)
                done[:] = [replace(r, added=row.added) for r in rows] if stored and stored.digest == row.digest else []
                return done

            self.write([unit_of(trace, row.source, digest_of(trace), check(trace))], decide)
            if done:
                return trace

    def outcomes(self, row: Row) -> list[Outcome]:
        """The outcomes that people gave a stored trace."""
        try:
            return outcomes_of(self._lake.meta(row)) if row.has_meta else []
        except MissingFile:
            moved = self._log.refresh().rows.get(row.id)
            if moved is None or moved == row:
                raise
            return self.outcomes(moved)

    def refreshed(self) -> State:
        """What is stored now."""
        return self._log.refresh()

    def write(self, units: list[Unit], decide: Callable[[State, list[Row]], list[Row]], also: Commit | None = None) -> None:
        """Write units as one part and commit the rows that `decide` keeps, looking at the newest state; `also` drops others."""
        while not self._wrote(units, decide, also or Commit(at=0)):
            pass  # we slept so long that a compaction took our files for a dead writer's: once more

    def _wrote(self, units: list[Unit], decide: Callable[[State, list[Row]], list[Row]], also: Commit) -> bool:
        """The same, once; False when the files were gone before the commit could name them."""
        writer = None
        with disk.translate_errors(self._lake.folder):
            try:
                day = datetime.now(UTC).strftime("%Y-%m-%d")
                writer = PartWriter(self._lake.folder, day)
                for unit in units:
                    writer.add(unit)
                part = writer.close()
                rows = writer.rows

                def change(state: State) -> Commit | None:
                    rows_now = decide(state, rows)
                    if rows_now and not is_whole(self._lake.folder, part):
                        raise MissingPart(part.name)
                    return msgspec.structs.replace(also, at=time.time(), parts=[part], rows=rows_now) if rows_now else None

                if self._log.commit(change) is None and not self._log.names(writer.name):
                    writer.abandon()  # a repair may have found it, and named it before we came
                return True
            except MissingPart:
                if writer is not None:
                    writer.abandon()
                return False
            except BaseException:
                if writer is not None and not self._log.names(writer.name):
                    writer.abandon()
                raise


class _Batch:
    """Traces on their way into one part."""

    def __init__(self, writer: Writer, state: State, *, is_new: bool = False) -> None:
        self._writer, self._state, self._is_new = writer, state, is_new
        self.whats: list[str] = []
        self._units: dict[str, Unit] = {}
        self._places: dict[str, int] = {}
        self._replaced: dict[str, tuple[Trace, str | None, Row]] = {}
        """What is held of traces that were stored before, and what was stored when they were taken."""
        self._events = 0

    def take(self, trace: Trace, source: str | None) -> None:
        """Check a trace and hold it until there are enough for a part."""
        name = trace.trace_id
        if name in self._units:
            self.commit()
        problems = check(trace)
        digest = digest_of(trace)
        stored = self._state.rows.get(name)
        if stored is not None and stored.digest != digest and (outcomes := self._writer.outcomes(stored)):
            trace = carried_over(trace, outcomes)
            digest = digest_of(trace)
        what = self._what(self._state.rows.get(name), digest, source)
        self.whats.append(what)
        if what == "unchanged":
            return
        try:
            self._units[name] = unit_of(trace, source, digest, problems)
        except OverflowError as error:
            raise InvalidTrace(f"cannot be stored: {error}", where=f"trace {name!r}", fix="write finite numbers") from error
        self._places[name] = len(self.whats) - 1
        if stored is not None:
            self._replaced[name] = (trace, source, stored)
        self._events += len(trace.events)
        if len(self._units) >= _PART_TRACES or self._events >= _PART_EVENTS:
            self.commit()

    def _what(self, stored: Row | None, digest: str, source: str | None) -> str:
        if stored is None:
            return "added"
        if stored.digest == digest:
            return "unchanged"
        if self._is_new:
            fix = "record under another id; store.add(trace) replaces a stored one"
            raise InputError(f"another process stored trace {stored.id!r} meanwhile", fix=fix)
        if stored.source is not None and source is not None and stored.source != source:
            raise InputError(
                f"trace {stored.id!r} is stored already, from {stored.source}",
                why=f"this one is from {source} and differs",
                fix="give it another trace_id, or remove the stored one first",
            )
        return "updated"

    def commit(self) -> None:
        """Write and commit what is held."""
        if not self._units:
            return
        units, places, replaced = list(self._units.values()), self._places, self._replaced
        self._units, self._places, self._replaced, self._events = {}, {}, {}, 0
        scored: list[str] = []
        self._writer.write(units, lambda state, rows: self._decide(state, rows, places, replaced, scored))
        if scored:
            self._state, whats = self._writer.refreshed(), self.whats
            for name in scored:
                self.whats = []
                self.take(*replaced[name][:2])
                self.commit()
                whats[places[name]] = self.whats[0]
            self.whats = whats

    def _decide(
        self,
        state: State,
        rows: list[Row],
        places: dict[str, int],
        replaced: dict[str, tuple[Trace, str | None, Row]],
        scored: list[str],
    ) -> list[Row]:
        """Again, with what others committed while we wrote; what somebody scored meanwhile is taken once more."""
        new = []
        scored.clear()
        for row in rows:
            stored = state.rows.get(row.id)
            was = replaced[row.id][2].digest if row.id in replaced else None
            is_other = stored is not None and was is not None and stored.digest not in (was, row.digest)
            if is_other and stored is not None and self._writer.outcomes(stored):
                scored.append(row.id)
                continue
            what = self.whats[places[row.id]] = self._what(stored, row.digest, row.source)
            if what == "updated" and stored is not None:
                new.append(replace(row, added=stored.added, source=row.source or stored.source))
            elif what == "added":
                new.append(row)
        return new
