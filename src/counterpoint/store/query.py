"""SQL over the lake, by DuckDB, read only.

Always true: a query can read the store's own Parquet files and nothing else: no other file, no network, no extension, no
setting; only statements that read are run. Views hold the finished traces, each once; what runs is in the journal, not here.
DuckDB does not know our checksums: the caller compares those of the files that a query reads before it runs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from counterpoint.display import BARS
from counterpoint.errors import CounterpointError, InputError, Refused
from counterpoint.store.lake import REPAIR, MissingFile
from counterpoint.store.log import State
from counterpoint.store.parts import SCHEMAS, part_path
from counterpoint.store.statement import check_statement
from counterpoint.store.summary import Summary
from counterpoint.store.titles import told_apart
from counterpoint.trace.annotation import Annotation
from counterpoint.trace.tabular import ROWS_SHOWN, Bar, Tabular

VIEWS = ("traces", "events", "edges", "rewards", "costs", "annotations")
_HIDDEN = ("ints", "exact")
_KINDS = {name: (name,) for name in ("traces", "events", "edges")} | {"rewards": ("traces", "events"), "costs": ("traces",)}
"""The files that each view reads."""
_LISTED: dict[str, Any] = {
    "title": pa.string(),
    "project": pa.string(),
    "models": pa.list_(pa.string()),
    "started": pa.timestamp("us", tz="UTC"),
    "cost_usd": pa.float64(),
    "unpriced": pa.int64(),
    "errors": pa.int64(),
}
"""Columns of the view `traces` that stand in the manifest and not in the files, as `Summary` names them."""
_ANNOTATIONS = pa.schema(
    [
        ("trace_id", pa.string()), ("event_id", pa.string()), ("name", pa.string()), ("label", pa.string()),
        ("score", pa.float64()), ("text", pa.string()), ("by", pa.string()), ("at", pa.timestamp("us", tz="UTC")),
        ("is_model", pa.bool_()), ("basis", pa.string()), ("id", pa.string()),
    ]
)  # fmt: skip
_SETTINGS = (
    "SET parquet_metadata_cache = true",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
_ENTRIES = "unnest(map_entries(from_json({column}, '\"MAP(VARCHAR, DOUBLE)\"')))"


class Result(Tabular):
    """The answer to a query: column names, rows as tuples, or the Arrow table."""

    def __init__(self, table: pa.Table, *, is_cut: bool = False) -> None:
        self._table = table
        self.is_cut = is_cut
        """Whether a limit left rows out."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._table.column_names)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Rows as Python values; whole decimals, which sums of integers are, become integers."""
        columns = [_plain(c.to_pylist()) for c in self._table.columns]
        return list(zip(*columns, strict=True))

    def to_arrow(self) -> pa.Table:
        """The answer as Arrow: its own columns and types."""
        return self._table

    def table_rows(self) -> Iterable[Sequence[Any]]:
        """The same as `rows`."""
        return self.rows

    def row_count(self) -> int:
        """How many rows there are."""
        return len(self)

    def caption(self) -> str:
        """How many rows, and whether a limit left some out."""
        return f"{len(self):,} rows" + (", cut by a limit" if self.is_cut else "")

    def picture(self) -> list[Bar]:
        """Names with one number each are drawn as bars."""
        types = self._table.schema.types
        if len(types) != 2 or not pa.types.is_string(types[0]) or not 1 < len(self) <= BARS:
            return []
        if not (pa.types.is_integer(types[1]) or pa.types.is_floating(types[1]) or pa.types.is_decimal(types[1])):
            return []
        return [(str(name), value, None, None) for name, value in self.rows]

    def sample(self) -> tuple[list[str], Iterable[Sequence[Any]]]:
        """Its own columns, and the first rows alone: the others are not made into Python's values."""
        return self.columns, Result(self._table.slice(0, ROWS_SHOWN)).rows

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"<Result of {len(self):,} rows: {', '.join(self.columns)}>"


def _plain(values: list[Any]) -> list[Any]:
    def one(value: Any) -> Any:
        if isinstance(value, Decimal):
            return int(value) if value == value.to_integral_value() else float(value)
        return None if isinstance(value, float) and math.isnan(value) else value

    return [one(v) for v in values] if any(isinstance(v, (Decimal, float)) for v in values) else values


Mask = Callable[[Sequence[str | None]], Sequence[str | None]]
"""Texts to what may be shown of them, one for one."""


class Query:
    """A connection with the views of one state of the store."""

    def __init__(
        self, state: State, lake: Path, annotations: Sequence[Annotation], version: object, mask: Mask | None = None
    ) -> None:
        """`version` is another one when the traces or the annotations are. With `mask` the views hold masked texts, nothing but
        the views can be named, and nothing is written beside the memory: no function of SQL sees what was masked."""
        self.version = version
        self._is_masked = mask is not None
        self._connection = _connect()
        if mask is not None:
            self._connection.create_function(
                "masked", _of_columns(mask), ["VARCHAR"], "VARCHAR",
                type=PythonUDFType.ARROW, null_handling=FunctionNullHandling.SPECIAL,
            )  # fmt: skip
            self._connection.execute("SET temp_directory = ''")
            self._connection.execute("SET memory_limit = '2GB'")
        self._names = _connect()
        self._read: dict[str, list[str]] = {}
        try:
            self._files = self._make_views(state, lake)
            self._annotate(annotations)
            self._connection.execute(f"SET allowed_paths = {_list(self._files)}")
            for view in VIEWS:
                self._names.execute(f"CREATE TABLE {view} (x INTEGER)")
            for setting in _SETTINGS:
                self._connection.execute(setting)
                self._names.execute(setting)
        except duckdb.IOException as error:
            raise MissingFile(str(error)) from error
        except (duckdb.Error, UnicodeDecodeError) as error:
            raise InputError("a file of the lake is damaged", where=str(lake), why=_first_line(error), fix=REPAIR) from error

    def close(self) -> None:
        self._connection.close()
        self._names.close()

    def _kinds(self, query: str) -> list[str]:
        """The kinds of files that a query reads; all of them where that cannot be told."""
        if query not in self._read:
            try:
                names = {name.lower() for name in self._names.get_table_names(query)}
            except (duckdb.Error, UnicodeError):
                names = set(VIEWS)
            self._read[query] = sorted({kind for name in names & _KINDS.keys() for kind in _KINDS[name]})
        return self._read[query]

    # -- views ---------------------------------------------------------------------------------------------------

    def _make_views(self, state: State, lake: Path) -> list[str]:
        files: list[str] = []
        for kind in ("traces", "events", "edges"):
            files += self._view(kind, state, lake)
        paid = sorted(p.name for p in state.parts.values() if p.has_rewards)
        per_event = ""
        if paid:
            # Only parts where an event is paid: reading a JSON column of all the others would find nothing.
            per_event = f"""UNION ALL SELECT trace_id, id, e.key, e.value FROM
                (SELECT trace_id, id, {_ENTRIES.format(column="reward")} AS e FROM events WHERE reward IS NOT NULL)"""
        self._connection.execute(f"""CREATE VIEW rewards AS
            SELECT trace_id, NULL::VARCHAR AS event_id, e.key AS channel, e.value AS value FROM
            (SELECT trace_id, {_ENTRIES.format(column="rewards")} AS e FROM traces) {per_event}""")
        self._connection.execute(f"""CREATE VIEW costs AS SELECT trace_id, e.key AS name, e.value AS value FROM
            (SELECT trace_id, {_ENTRIES.format(column="costs")} AS e FROM traces)""")
        return files

    def _view(self, kind: str, state: State, lake: Path) -> list[str]:
        names = [name for name in SCHEMAS[kind].names if name not in _HIDDEN]
        is_text = {name: kind != "traces" and pa.types.is_string(SCHEMAS[kind].field(name).type) for name in names}
        columns = ", ".join(self._shown(name) if is_text[name] else f'"{name}"' for name in names)
        view = "_trace_files" if kind == "traces" else kind
        if not state.parts:
            self._connection.register(f"_{kind}", SCHEMAS[kind].empty_table())
            self._connection.execute(f"CREATE TABLE {view} AS SELECT {columns} FROM _{kind}")
            if kind == "traces":
                self._name_traces(state)
            return []
        clean = [p for p in state.parts if state.live[p] == state.parts[p].traces]
        mixed = [p for p in state.parts if state.live[p] < state.parts[p].traces]
        paths = {p: str(part_path(lake.absolute(), p, kind)) for p in state.parts}
        selects = []
        if clean:
            files = _list([paths[p] for p in clean])
            selects.append(f"SELECT {columns} FROM read_parquet({files}, hive_partitioning = false)")
        if mixed:
            # These parts also hold rows of traces that were removed or replaced.
            live = [(r.id, paths[r.part]) for r in state.rows.values() if r.part in set(mixed)]
            table = pa.table({"trace_id": [i for i, _ in live], "filename": [f for _, f in live]})
            self._connection.register("_arrow_live", table)
            self._connection.execute(f"CREATE TABLE _live_{kind} AS SELECT * FROM _arrow_live")
            self._connection.unregister("_arrow_live")
            files = _list([paths[p] for p in mixed])
            selects.append(
                f"SELECT {columns} FROM read_parquet({files}, hive_partitioning = false, filename = true)"
                f" SEMI JOIN _live_{kind} USING (trace_id, filename)"
            )
        self._connection.execute(f"CREATE VIEW {view} AS {' UNION ALL '.join(selects)}")
        if kind == "traces":
            self._name_traces(state)
        return list(paths.values())

    def _name_traces(self, state: State) -> None:
        """The view of traces: their files, and what the manifest says of each beyond them. `errors`: events that failed."""
        rows = told_apart(sorted(map(Summary.of_row, state.rows.values()), key=lambda row: row.added))
        values: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in _LISTED}
        values["started"] = [None if t is None else round(t * 1e6) for t in values["started"]]
        values["unpriced"] = [min(row.unpriced_tokens, 1 << 62) for row in rows]
        values["cost_usd"] = [None if usd is None else float(usd) for usd in values["cost_usd"]]
        types = pa.schema([("trace_id", pa.string()), *_LISTED.items()])
        self._connection.register("_arrow_listed", pa.table({"trace_id": [row.id for row in rows], **values}, schema=types))
        self._connection.execute("CREATE TABLE _listed AS SELECT * FROM _arrow_listed")
        self._connection.unregister("_arrow_listed")
        texts = ("title", "project")
        own = ", ".join(self._shown(name, "_listed.") if name in texts else f"_listed.{name}" for name in _LISTED)
        stored = [name for name in SCHEMAS["traces"].names if pa.types.is_string(SCHEMAS["traces"].field(name).type)]
        shown = ", ".join(self._shown(name, "f.") for name in stored)
        first = "f.* EXCLUDE (errors)" + (f" REPLACE ({shown})" if self._is_masked else "")
        self._connection.execute(
            f"""CREATE VIEW traces AS SELECT {first}, f.errors AS problems, {own}
            FROM _trace_files f LEFT JOIN _listed USING (trace_id)"""
        )

    def _shown(self, name: str, of: str = "") -> str:
        """A column of texts as the views have it."""
        return f'masked({of}"{name}") AS "{name}"' if self._is_masked else f'{of}"{name}"'

    def _annotate(self, annotations: Sequence[Annotation]) -> None:
        """The view of annotations; `event_id` is null for those of a whole trace, `basis` is JSON."""
        cells = [
            (a.trace_id, a.event, a.name, a.label, None if a.score is None else float(a.score), a.text, a.by, round(a.at * 1e6),
             a.is_model, msgspec.json.encode(a.basis).decode() if a.basis else None, a.id)
            for a in annotations
        ]  # fmt: skip
        columns = [list(column) for column in zip(*cells, strict=True)] or [[] for _ in _ANNOTATIONS]
        self._connection.register("_arrow_annotations", pa.table(columns, schema=_ANNOTATIONS))
        shown = ", ".join(self._shown(f.name) if pa.types.is_string(f.type) else f'"{f.name}"' for f in _ANNOTATIONS)
        self._connection.execute(f"CREATE TABLE annotations AS SELECT {shown} FROM _arrow_annotations")
        self._connection.unregister("_arrow_annotations")

    # -- asking --------------------------------------------------------------------------------------------------

    def run(
        self,
        query: str,
        params: Sequence[Any] | None,
        limit: int | None,
        verify: Callable[[list[str]], None],
        within_s: float | None = None,
    ) -> Result:
        """The answer; `InputError` for what DuckDB cannot do, `Refused` for what would write or reach out.

        `verify` is called with the kinds of files that are about to be read, and raises when one has changed. A query that takes
        longer than `within_s` is stopped.
        """
        alarm = None if within_s is None else threading.Timer(within_s, self._connection.interrupt)
        if alarm is not None:
            alarm.start()
        try:
            statements = self._connection.extract_statements(query)
            kinds = [s.type for s in statements]
            if not kinds:
                raise InputError("the query is empty", fix='for example: "select trace_id, tokens from traces"')
            if len(kinds) > 1:
                raise InputError("one statement at a time", fix="split the query at its semicolon")
            if kinds[0] not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
                raise _refused(kinds[0].name)
            if kinds[0] == duckdb.StatementType.EXPLAIN and "analyze" in query.lower():
                raise _refused("EXPLAIN ANALYZE")
            if self._is_masked:
                check_statement(self._parsed(query), VIEWS)
            verify(self._kinds(query))
            return self._fetch(query, params, limit)
        except duckdb.InterruptException:
            raise InputError(f"the query took longer than {within_s:g} s", fix="ask for less: where, limit, group by") from None
        except duckdb.PermissionException as error:
            self._look_for_files(error)  # DuckDB takes a file that is gone for a folder, and that for forbidden
            raise _refused(_first_line(error)) from error
        except duckdb.IOException as error:
            self._look_for_files(error)
            raise InputError("the query failed", why=_first_line(error)) from error
        except UnicodeDecodeError as error:
            raise InputError("the answer holds bytes that are not text", why=_first_line(error)) from error
        except duckdb.Error as error:
            raise InputError(
                _first_line(error), where=_line_of(error), fix="`counterpoint sql` lists views and columns"
            ) from error
        finally:
            if alarm is not None:
                alarm.cancel()

    def _parsed(self, query: str) -> Any:
        """The statement as the tree that DuckDB reads it as."""
        row = self._names.execute("SELECT json_serialize_sql(?)", [query]).fetchone()
        return msgspec.json.decode(row[0] if row else b"{}")

    def _look_for_files(self, error: duckdb.Error) -> None:
        """`MissingFile` when compaction has taken a file away since the views were made."""
        if any(file in str(error) and not Path(file).exists() for file in self._files):
            raise MissingFile(str(error)) from error

    def _fetch(self, query: str, params: Sequence[Any] | None, limit: int | None) -> Result:
        answer = self._connection.sql(query, params=list(params)) if params else self._connection.sql(query)
        if limit is None:
            return Result(answer.to_arrow_table())
        table = answer.limit(limit + 1).to_arrow_table()
        return Result(table.slice(0, limit), is_cut=table.num_rows > limit)


def _connect() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"python_enable_replacements": "false"})


def _of_columns(mask: Mask) -> Callable[[Any], Any]:
    """A function of texts as one of columns; each different text is asked for once."""

    def of_column(column: Any) -> Any:
        found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        coded = found.dictionary_encode()
        shown = pa.array(mask(coded.dictionary.to_pylist()), pa.string())
        return shown.take(coded.indices)

    return of_column


def _list(files: list[str]) -> str:
    return "[" + ", ".join("'" + f.replace("'", "''") + "'" for f in files) + "]"


def _refused(what: str) -> CounterpointError:
    fix = "select from traces, events, edges, rewards, costs, annotations; to write results use --json or --csv"
    return Refused(f"sql only reads the store: {what}", fix=fix)


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]


def _line_of(error: Exception) -> str | None:
    """Where in the query, as DuckDB draws it."""
    lines = str(error).split("\n")
    place = next((i for i, line in enumerate(lines) if line.startswith("LINE ")), None)
    return None if place is None else lines[place].strip()
