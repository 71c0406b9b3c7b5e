"""The quick demo: six sample traces, checked and audited, and where to look next.

Always true: the same seed writes the same traces; nothing is trained and nothing is asked of the network.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import click

from counterpoint.app.checking import check_trace
from counterpoint.app.cli._output import emit, number, table
from counterpoint.app.library import save
from counterpoint.audit.hacks import hacks
from counterpoint.audit.measures import measures
from counterpoint.envs.synthetic import synthetic_trace
from counterpoint.errors import InputError
from counterpoint.store import Store
from counterpoint.trace import Trace

# name, sub-agents, steps, topology: one of each of the survey's six shapes.
_SAMPLES = (
    ("research-team", 13, 180, "centralized"),
    ("code-team", 6, 60, "planner_executor_critic"),
    ("panel", 4, 24, "debate"),
    ("crawl", 40, 400, "swarm"),
    ("build", 12, 90, "hierarchical"),
    ("assistant", 1, 20, "harness"),
)
_SHOWN = ("parallelism_efficiency", "useful_agent_utilisation", "protocol_overhead", "message_redundancy")


def quick_demo(folder: Path, seed: int, *, is_dry: bool, as_json: bool) -> None:
    """Write six sample traces, one of each topology, check and audit them."""
    begin = time.perf_counter()
    traces = [
        synthetic_trace(agents, steps, topology, seed, contents=True, trace_id=name) for name, agents, steps, topology in _SAMPLES
    ]
    if not is_dry:
        _write(folder, traces)
    rows = [_row(trace) for trace in traces]
    if as_json:
        for row in rows:
            emit(row)
        return
    what = "Would write" if is_dry else "Wrote"
    took = time.perf_counter() - begin
    click.echo(f"{what} {os.fspath(folder)}/: {len(rows)} traces, a store and a file each ({took:.1f} s, offline)\n")
    _print(folder, rows)


def _write(folder: Path, traces: list[Trace]) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file, not a folder", where=os.fspath(folder), fix="name a new folder with --to")
    with Store(folder) as store:
        store.add_many(traces)
    for trace in traces:
        save(trace, folder / "samples" / f"{trace.trace_id}.trace.json")


def _row(trace: Trace) -> dict[str, object]:
    report = check_trace(trace)
    found = {m.name: m.value for m in measures(trace)}
    fired = [f.hack for f in hacks(trace) if f.status == "found"]
    counts = {"agents": len(trace.members), "events": len(trace.events), "reward": trace.rewards.get("team")}
    verdict = {"errors": report.findings.error_count, "warnings": report.findings.warning_count, "hacks": fired}
    return {"trace": trace.trace_id, "topology": trace.topology} | counts | verdict | {n: found.get(n) for n in _SHOWN}


def _print(folder: Path, rows: list[dict[str, object]]) -> None:
    header = ["trace", "topology", "agents", "events", "R", "check", "speed-up", "useful", "overhead", "redundant", "hacks"]
    cells = [
        [str(r["trace"]), str(r["topology"]), *(number(r[k]) for k in ("agents", "events", "reward")), _verdict(r)]  # type: ignore[arg-type]
        + [number(r[k], 3) for k in _SHOWN]  # type: ignore[arg-type]
        + [", ".join(r["hacks"]) or "-"]  # type: ignore[arg-type]
        for r in rows
    ]
    click.echo(table(header, cells, right=(2, 3, 4, 6, 7, 8, 9)))
    command = command_name()
    place = os.fspath(folder)
    steps = [
        ("show research-team", "who did what, and what was waited for"),
        ("top research-team", "where the tokens went"),
        ("audit research-team", "E1-E4, and reward hacks, with their events"),
        ("sql 'select topology, count(*) from traces group by all'", "any question, in SQL"),
        (f"check {place}/samples/*.json", "the same traces as files"),
    ]
    width = max(len(arguments) for arguments, _ in steps)
    click.echo(f"\nNext  export COUNTERPOINT_STORE={place}")
    for arguments, why in steps:
        click.echo(f"      {command} {arguments.ljust(width)}  {why}")


def command_name() -> str:
    """What to type: where our command is not on the path (a fresh clone), where it is."""
    return "counterpoint" if shutil.which("counterpoint") else os.path.relpath(sys.argv[0])


def _verdict(row: dict[str, object]) -> str:
    return "ok" if not row["errors"] else f"{row['errors']} errors"
