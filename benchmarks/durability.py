"""Nothing lost, nothing silent: many writers on one store, changed bits in every kind of file, and how long `verify` takes.

Counts, not speed, but for the last row: of so many acknowledged traces none may be lost, of so many changed bits none may be
read as something else without a word. Kills are counted by a test: `COUNTERPOINT_KILLS=1000 pytest tests/store/test_kill.py -s`.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _timing import arguments, report, row

from counterpoint.errors import CounterpointError
from counterpoint.store import Store
from counterpoint.store.verify import verify
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event, Trace

# -- many writers ------------------------------------------------------------------------------------------------


def _write(folder: Path, who: int, count: int, how: str, acks: Any) -> None:
    """One process: opens the store, be it there or not, and adds or records its traces."""
    try:
        with Store(folder) as store:
            for i in range(count):
                name, event = f"{how}-{who}-{i}", Event(id="e0", t=0, type="message", agent=f"a{who}", tokens_in=i)
                if how == "add":
                    store.add(Trace(trace_id=name, task_id="writers", events=[event]))
                else:
                    with store.record(name, task_id="writers") as run:
                        run.event(event)
                        run.finish(rewards={"team": i})
                acks.put(name)
                if who == 0 and i % 40 == 39:
                    store.compact(grace_s=0)
    except CounterpointError as error:
        acks.put(f"error: {error}")
    acks.put(None)


def writers(how: str, processes: int, total: int) -> dict[str, Any]:
    """Acknowledged traces that are not there afterwards, and errors that nobody should have met."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as base:
        folder, acks = Path(base) / "store", context.Queue()
        crew = [context.Process(target=_write, args=(folder, k, total // processes, how, acks)) for k in range(processes)]
        for process in crew:
            process.start()
        said, left = [], processes
        while left:
            word = acks.get()
            left -= word is None
            said += [word] * (word is not None)
        for process in crew:
            process.join()
        errors = [s for s in said if s.startswith("error: ")]
        names = {s for s in said if not s.startswith("error: ")}
        with Store(folder) as store:
            missing = names - set(store.ids())
            some = random.Random(0).sample(sorted(names - missing), min(200, len(names - missing)))
            unread = sum(store.get(name).trace_id != name for name in some)
        faults = verify(folder).faults
    return {"names": len(names), "lost": len(missing) + unread, "errors": errors + [f.what for f in faults]}


def opened_at_once(processes: int, folders: int) -> int:
    """How many of so many processes were refused when all opened fresh folders at one moment."""
    context = multiprocessing.get_context("fork")
    refused = context.Value("i", 0)
    with tempfile.TemporaryDirectory() as base:
        for k in range(folders):
            together = context.Barrier(processes)

            def work(folder: Path = Path(base) / str(k), together: Any = together) -> None:
                together.wait()
                try:
                    Store(folder).close()
                except CounterpointError:
                    with refused.get_lock():
                        refused.value += 1

            crew = [context.Process(target=work) for _ in range(processes)]
            for process in crew:
                process.start()
            for process in crew:
                process.join()
                refused.value += process.exitcode != 0
    return int(refused.value)


# -- changed bits ------------------------------------------------------------------------------------------------


def _made(folder: Path) -> None:
    """A store with every kind of file."""
    with Store(folder) as store:
        for i in range(4):
            store.add(synthetic_trace(2, 6, "swarm", i, trace_id=f"t{i}", contents=i % 2 == 0))
        store._log.checkpoint()
        store.add_many([synthetic_trace(3, 8, "centralized", i, trace_id=f"t{i}", contents=True) for i in range(4, 8)])
        with store.record("running", task_id="demo", meta={"k": 1}) as run:
            for i in range(5):
                run.event(Event(id=f"e{i}", t=i, type="message", agent="a", tokens_in=i))
                run.sync()
        store.hot()


def _told(folder: Path) -> Any:
    """Everything that a store says, by every way that there is to ask."""
    with Store(folder, read_only=True) as store:
        hot = store.hot()
        return (
            [(s.id, s.task_id, s.tokens, s.events, s.team_reward) for s in store.rows()],
            {name: store.get(name) for name in [*store.ids(), "running"]},
            store.sql("select * exclude (added) from traces order by trace_id").rows,
            store.sql("select * from events order by trace_id, n").rows,
            store.sql("select * from edges order by all").rows,
            {name: hot.array(name).tobytes() for name in ("t", "tokens_in", "agent", "type")},
            hot.words,
        )


def _kind(file: Path) -> str:
    if file.suffix == ".parquet":
        return file.name.split(".")[1] + " part"
    if file.name in ("head", "counterpoint.json"):
        return file.stem
    if ".key." in file.name:
        return "key of the hot file"
    return {".checkpoint": "checkpoint", ".jsonl": "journal", ".arrow": "hot file", ".json": "commit"}[file.suffix]


def flips(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Change single bits over every kind of file: how many by kind, and after which something else was said, or a raw error."""
    rng, tried, silent = random.Random(seed), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "store"
        _made(folder)
        told = _told(folder)
        files: dict[str, list[Path]] = {}
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            files.setdefault(_kind(file), []).append(file)
        for turn in range(count):
            kind = sorted(files)[turn % len(files)]
            file = rng.choice(files[kind])
            data = file.read_bytes()
            place, bit = rng.randrange(len(data)), rng.randrange(8)
            file.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
            tried[kind] += 1
            try:
                if _told(folder) != told:
                    silent.append(f"{kind}: byte {place}, bit {bit}")
            except CounterpointError:
                pass
            except Exception as error:
                silent.append(f"{kind}: byte {place}, bit {bit}: {type(error).__name__}")
            file.write_bytes(data)
    return tried, silent


# -- verify ------------------------------------------------------------------------------------------------------


def verifying(count: int) -> list[dict[str, Any]]:
    """`verify`, beside reading the same bytes and doing nothing with them."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "store"
        with Store(folder) as store:
            store.add_many(synthetic_trace(10, 150, seed=i % 50, trace_id=f"t{i}") for i in range(count))
        begin = time.perf_counter()
        found = verify(folder)
        took = time.perf_counter() - begin
        begin = time.perf_counter()
        read = sum(len(p.read_bytes()) for p in folder.rglob("*") if p.is_file())
        plain = time.perf_counter() - begin
        assert not found.faults
    return [row(f"verify {count:,} traces, {read / 1e6:,.0f} MB, beside reading the bytes", took, plain, "s", limit=20.0)]


def main() -> None:
    options = arguments(__doc__)
    say: Callable[[str], None] = (lambda text: print(text, file=sys.stderr)) if options.json else print
    processes, total, changes, traces = (8, 160, 120, 200) if options.quick else (20, 10_000, 2_000, 10_000)
    rows = []
    for how in ("add", "finish"):
        found = writers(how, processes, total)
        for error in found["errors"][:5]:
            say(error)
        say(f"{how}: {found['names']:,} acknowledged, {found['lost']} lost, {len(found['errors'])} errors")
        what = f"{processes} processes, {found['names']:,} acknowledged by {how}: lost"
        rows.append(row(what, found["lost"], None, "traces", limit=0))
        rows.append(row(f"{processes} processes, {how}: errors", len(found["errors"]), None, "errors", limit=0))
    folders = 3 if options.quick else 12
    refused = opened_at_once(20, folders)
    rows.append(row(f"20 processes open a fresh folder at once, {folders} times: refused", refused, None, "processes", limit=0))
    tried, silent = flips(changes, seed=int(os.environ.get("COUNTERPOINT_SEED", "0")))
    for what in silent[:10]:
        say(what)
    say("changed bits: " + ", ".join(f"{kind} {n:,}" for kind, n in sorted(tried.items())))
    what = f"{sum(tried.values()):,} changed bits over {len(tried)} kinds of files: silent"
    rows.append(row(what, len(silent), None, "bits", limit=0))
    rows += verifying(traces)
    report("Durability (counts; seconds wall)", rows, as_json=options.json)


if __name__ == "__main__":
    main()
