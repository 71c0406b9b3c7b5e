"""The lake with many traces: one trace, a batch of 64, a scan, bytes per event; beside gzip JSONL, SQLite and polars.

Wall time, warm cache. Traces are invented (`counterpoint.testing.synthetic_trace`), all different. "Hot" is the memory-mapped
Arrow file, "cold" the Parquet lake with its footers in memory; both end in numpy arrays, and so does polars, which filters one
plain Parquet file of all events, as a user would write it.
"""

from __future__ import annotations

import gzip
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from _timing import arguments, interleaved, report, row

from counterpoint.store import Store
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Trace
from counterpoint.trace.wire import encode_event

COLUMNS = ["t", "tokens_in", "role"]
FIVE = ["t", "dur", "tokens_in", "tokens_out", "role"]


FIELDS = ["id", "t", "type", "agent", "role", "from_", "to", "tool", "content_ref", "trusted", "dur", "tokens_in", "tokens_out"]


class Peers:
    """The same traces as a user would keep them otherwise."""

    def __init__(self, folder: Path) -> None:
        self.jsonl, self.base, self.parquet = folder / "events.jsonl.gz", folder / "events.db", folder / "events.parquet"
        self._gzip = gzip.GzipFile(self.jsonl, "wb", compresslevel=6)
        self.sqlite = sqlite3.connect(self.base)
        quoted = ", ".join(f'"{f}"' for f in FIELDS)
        self.sqlite.execute(f"create table events (trace_id text, n int, {quoted})")
        try:
            import polars
        except ImportError:
            polars = None  # type: ignore[assignment]
        self.polars: Any = polars

    def add(self, trace: Trace) -> None:
        head = f'{{"trace_id":"{trace.trace_id}",'.encode()
        self._gzip.write(b"".join(head + encode_event(e)[1:] + b"\n" for e in trace.events))
        rows = ((trace.trace_id, n, *(getattr(e, f) for f in FIELDS)) for n, e in enumerate(trace.events))
        self.sqlite.executemany(f"insert into events values ({','.join('?' * (len(FIELDS) + 2))})", rows)

    def close(self, store: Store) -> None:
        self._gzip.close()
        self.sqlite.execute("create index by_trace on events (trace_id, n)")
        self.sqlite.commit()
        if self.polars is not None:
            lake = [str(p) for p in store.files("events")]
            self.polars.read_parquet(lake, hive_partitioning=False).write_parquet(self.parquet)

    def jsonl_scan(self) -> dict[str, int]:
        tokens: dict[str, int] = {}
        with gzip.open(self.jsonl, "rb") as file:
            for line in file:
                event = msgspec.json.decode(line)
                role = event.get("role")
                tokens[role] = tokens.get(role, 0) + event.get("tokens_out", 0)
        return tokens

    def jsonl_one(self, trace_id: str) -> list[Any]:
        mark = f'{{"trace_id":"{trace_id}"'.encode()
        with gzip.open(self.jsonl, "rb") as file:
            return [msgspec.json.decode(line) for line in file if line.startswith(mark)]

    def polars_one(self, trace_id: str) -> Any:
        pl = self.polars
        return pl.scan_parquet(self.parquet).filter(pl.col("trace_id") == trace_id).collect()

    def polars_batch(self, ids: list[str], columns: list[str]) -> list[Any]:
        pl = self.polars
        found = pl.scan_parquet(self.parquet).filter(pl.col("trace_id").is_in(ids)).select(columns).collect()
        return [
            found[c].to_physical().to_numpy() if c != "role" else found[c].cast(pl.Categorical).to_physical().to_numpy()
            for c in columns
        ]

    def sqlite_batch(self, ids: list[str], columns: list[str]) -> list[Any]:
        marks = ",".join("?" * len(ids))
        found = self.sqlite.execute(
            f"select {','.join(columns)} from events where trace_id in ({marks}) order by trace_id, n", ids
        )
        return found.fetchall()


def _arrays(batch: Any, columns: list[str]) -> list[Any]:
    return [batch.codes(c) if c == "role" else batch.column(c) for c in columns]


def _once(call: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds of one call, for what takes many seconds, and its result."""
    begin = time.perf_counter()
    result = call()
    return (time.perf_counter() - begin) * 1e3, result


def _fill(folder: Path, count: int, agents: int, steps: int) -> tuple[Store, Peers, float]:
    """The store and its peers with the same different traces, and the seconds that the store took."""
    store, peers, taken = Store(folder / "store"), Peers(folder), 0.0
    for first in range(0, count, 500):
        numbers = range(first, min(count, first + 500))
        made = [
            synthetic_trace(agents, steps, "centralized", i, trace_id=f"run-{i:06d}", task_id=f"task-{i % 50}") for i in numbers
        ]
        begin = time.perf_counter()
        store.add_many(made)
        taken += time.perf_counter() - begin
        for trace in made:
            peers.add(trace)
    store.compact(grace_s=0)
    peers.close(store)
    return store, peers, taken


def compare(label: str, count: int, agents: int, steps: int, *, repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """All measures for one size of store."""
    with tempfile.TemporaryDirectory() as base:
        store, peers, taken = _fill(Path(base), count, agents, steps)
        events = sum(r.events for r in store.rows())
        say(f"{label}: {count:,} traces, {events:,} events; added at {events / taken:,.0f} events/s")
        if peers.polars is None:
            say("polars is not installed: its comparisons are left out")
        rows = _sizes(label, store, peers, events)
        rows += _one(label, store, peers, repeats)
        rows += _batches(label, store, peers, repeats)
        rows += _scan(label, store, peers, repeats)
        rows += _opening(label, store)
        store.close()
        peers.sqlite.close()
    return rows


def _sizes(label: str, store: Store, peers: Peers, events: int) -> list[dict[str, Any]]:
    ours = sum(p.stat().st_size for p in store.files("events")) / events
    whole = sum(p.stat().st_size for kind in ("traces", "events", "edges") for p in store.files(kind)) / events
    packed, database = peers.jsonl.stat().st_size / events, peers.base.stat().st_size / events
    rows = [
        row(f"{label}: bytes per event, gzip JSONL", ours, packed, "B", target=1.25),
        row(f"{label}: bytes per event, SQLite", ours, database, "B"),
        row(f"{label}: with edges and trace rows", whole, packed, "B"),
    ]
    if peers.polars is not None:
        rows.append(row(f"{label}: bytes per event, polars Parquet", ours, peers.parquet.stat().st_size / events, "B"))
    return rows


def _one(label: str, store: Store, peers: Peers, repeats: int) -> list[dict[str, Any]]:
    ids = store.ids()
    turns = iter(range(10**9))

    def some() -> str:
        return ids[(next(turns) * 7919) % len(ids)]

    work: dict[str, Callable[[], Any]] = {
        "columns": lambda: store.batch([some()]),
        "objects": lambda: store.get(some()),
        "sqlite": lambda: peers.sqlite_batch([some()], ["*"]),
    }
    if peers.polars is not None:
        work["polars"] = lambda: peers.polars_one(some())
    taken = {k: v * 1e3 for k, v in interleaved(work, repeats).items()}
    slow, _ = _once(lambda: peers.jsonl_one(some()))
    return [
        row(f"{label}: one trace as columns, polars filter", taken["columns"], taken.get("polars"), "ms", limit=2.0),
        row(f"{label}: one trace as a Trace, SQLite rows", taken["objects"], taken["sqlite"], "ms"),
        row(f"{label}: one trace as a Trace, gzip JSONL", taken["objects"], slow, "ms"),
    ]


def _batches(label: str, store: Store, peers: Peers, repeats: int) -> list[dict[str, Any]]:
    rng, ids = np.random.default_rng(0), store.ids()
    hot = store.hot()
    n = min(64, len(ids))

    def some() -> list[str]:
        return [ids[i] for i in rng.choice(len(ids), n, replace=False)]

    work: dict[str, Callable[[], Any]] = {
        "hot": lambda: _arrays(hot.sample(n, rng, columns=COLUMNS), COLUMNS),
        "cold": lambda: _arrays(store.sample(n, rng, columns=FIVE), FIVE),
        "sqlite": lambda: peers.sqlite_batch(some(), COLUMNS),
    }
    if peers.polars is not None:
        work["polars"] = lambda: peers.polars_batch(some(), COLUMNS)
        work["polars5"] = lambda: peers.polars_batch(some(), FIVE)
    taken = {k: v * 1e3 for k, v in interleaved(work, repeats).items()}
    return [
        row(f"{label}: batch of {n}, hot, 3 columns, polars", taken["hot"], taken.get("polars"), "ms", target=20.0),
        row(f"{label}: batch of {n}, cold, 5 columns, polars", taken["cold"], taken.get("polars5"), "ms", target=5.0),
        row(f"{label}: batch of {n}, hot, SQLite", taken["hot"], taken["sqlite"], "ms"),
    ]


def _scan(label: str, store: Store, peers: Peers, repeats: int) -> list[dict[str, Any]]:
    query = "select role, sum(tokens_out) from events group by 1"
    work: dict[str, Callable[[], Any]] = {
        "ours": lambda: store.sql(query).rows,
        "sqlite": lambda: peers.sqlite.execute(query).fetchall(),
    }
    taken = {k: v * 1e3 for k, v in interleaved(work, max(3, repeats // 3)).items()}
    slow, tokens = _once(peers.jsonl_scan)
    assert dict(store.sql(query).rows) == tokens, "the scans disagree"
    return [
        row(f"{label}: tokens per role, gzip JSONL", taken["ours"], slow, "ms", target=100.0),
        row(f"{label}: tokens per role, SQLite", taken["ours"], taken["sqlite"], "ms"),
    ]


def _opening(label: str, store: Store) -> list[dict[str, Any]]:
    def once() -> float:
        begin = time.perf_counter()
        Store(store.path, create=False).close()
        return time.perf_counter() - begin

    return [row(f"{label}: open the store", statistics.median(once() for _ in range(5)) * 1e3, None, "ms")]


def main() -> None:
    options = arguments(__doc__)
    say: Callable[[str], None] = (lambda text: None) if options.json else print
    sizes = [("200 x 330", 200, 10, 150), ("24 x K2.5", 24, 100, 1500)] if options.quick else [
        ("1,000 x 330", 1_000, 10, 150), ("10,000 x 330", 10_000, 10, 150), ("600 x K2.5", 600, 100, 1500)
    ]  # fmt: skip
    rows: list[dict[str, Any]] = []
    for label, count, agents, steps in sizes:
        rows += compare(label, count, agents, steps, repeats=5 if options.quick else 15, say=say)
    report("Lake (wall, median)", rows, as_json=options.json)


if __name__ == "__main__":
    main()
