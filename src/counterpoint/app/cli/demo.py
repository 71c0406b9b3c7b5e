"""Train a team, and show it beside hand-made ones."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

import counterpoint.registry as registry
from counterpoint.app.file_check import check_trace
from counterpoint.app.samples import browser_words, print_next, samples, write_samples
from counterpoint.app.terminal.options import cap_option, caps_of, dry_run_option, output_option, seed_option
from counterpoint.app.terminal.output import emit, json_option, note, table
from counterpoint.audits.hacks import hacks
from counterpoint.audits.measures import measures
from counterpoint.display import number
from counterpoint.errors import InputError
from counterpoint.trace import Trace

_MEASURES = ("parallelism_efficiency", "useful_agent_utilisation", "protocol_overhead", "message_redundancy")

HEADING = "Look"

_CALLS = 150_000


@click.command(
    epilog="\b\nExamples:\n  counterpoint demo\n  counterpoint demo --quick -o samples --seed 7\n  counterpoint demo --lm",
)
@output_option("The folder to write into.", metavar="FOLDER", default=Path("counterpoint_demo"))
@seed_option("Seed of the traces and of the training.")
@click.option("--quick", is_flag=True, help="Train nothing: write and audit eight sample traces, in seconds.")
@click.option("--lm", "is_lm", is_flag=True, help="Let a small language model play a team, offline, on this machine.")
@click.option("--world", default="width", show_default=True, help="The world to train in: one of the suites, or a TeamWorld.")
@click.option("--seeds", default=4, show_default=True, type=click.IntRange(1), help="Training seeds of each method.")
@cap_option("calls (calls and rounds of each run, 150000)")
@click.option("--episodes", default=480, show_default=True, type=click.IntRange(2), help="Unseen tasks that judge the teams.")
@dry_run_option
@json_option
def demo(
    output: Path, seed: int, quick: bool, is_lm: bool, world: str, seeds: int, caps: tuple[str, ...], episodes: int, is_dry: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Train orchestrators whose five decisions are all learned, by our method and by GRPO; minutes on two cores, offline."""
    if is_lm:
        registry.hook("demo_language", "a language model plays a team")(output, seed, as_json=as_json)
        return
    if quick:
        quick_demo(output, seed, is_dry=is_dry, as_json=as_json)
        return
    if is_dry:
        raise InputError("--dry-run goes with --quick", fix="counterpoint demo --quick --dry-run")
    calls = caps_of(caps, {"calls": int}).get("calls", _CALLS)
    if calls < 1:
        raise InputError("calls is at least 1", where="--cap", fix=f"as in --cap calls={_CALLS}")
    for train in registry.hooks("demo_training"):
        train(output, world=world, seed=seed, seeds=seeds, budget=calls, tasks=episodes, as_json=as_json)
        return
    note("no installed package trains teams: the sample traces alone, as with --quick", quiet=as_json)
    quick_demo(output, seed, is_dry=False, as_json=as_json)


def quick_demo(folder: Path, seed: int, *, is_dry: bool, as_json: bool) -> None:
    """Write the sample traces, check and audit them."""
    begin = time.perf_counter()
    traces = samples(seed)
    if not is_dry:
        write_samples(folder, traces)
    rows = [_row(trace) for trace in traces]
    if as_json:
        for row in rows:
            emit(row)
        return
    what = "Would write" if is_dry else "Wrote"
    took = time.perf_counter() - begin
    click.echo(f"{what} {os.fspath(folder)}/: {len(rows)} traces, a store and a file each ({took:.1f} s, offline)\n")
    _print(folder, rows)


def _row(trace: Trace) -> dict[str, object]:
    report = check_trace(trace)
    found = {m.name: m.value for m in measures(trace)}
    fired = [f.hack for f in hacks(trace) if f.status == "found"]
    counts = {"agents": len(trace.members), "events": len(trace.events), "reward": trace.rewards.get("team")}
    verdict = {"errors": report.findings.error_count, "warnings": report.findings.warning_count, "hacks": fired}
    return {"trace": trace.trace_id, "topology": trace.topology} | counts | verdict | {n: found.get(n) for n in _MEASURES}


def _print(folder: Path, rows: list[dict[str, object]]) -> None:
    header = ["trace", "topology", "agents", "events", "R", "check", "speed-up", "useful", "overhead", "redundant", "hacks"]
    cells = [
        [str(r["trace"]), str(r["topology"]), *(number(r[k]) for k in ("agents", "events", "reward")), _verdict(r)]  # type: ignore[arg-type]
        + [number(r[k], 3) for k in _MEASURES]  # type: ignore[arg-type]
        + [", ".join(r["hacks"]) or "-"]  # type: ignore[arg-type]
        for r in rows
    ]
    click.echo(table(header, cells, right=(2, 3, 4, 6, 7, 8, 9), drop=("redundant", "topology", "check", "useful")))
    place = os.fspath(folder)
    click.echo(f"\nNext  export COUNTERPOINT_STORE={place}")
    print_next(
        [
            ("show research-team", "who did what, and what was waited for"),
            ("top research-team", "where the tokens went"),
            ("audit busy-team", "a team that was paid for looking busy: two reward hacks"),
            ("audit mailroom --taint", "a letter that gave the team orders, and its effects"),
            ("sql 'select topology, count(*) from traces group by all'", "any question, in SQL"),
            (f"store check {place}/samples/*.json", "the same traces as files"),
            ("view", browser_words()),
        ],
        head="      ",
    )


def _verdict(row: dict[str, object]) -> str:
    return "ok" if not row["errors"] else f"{row['errors']} errors"
