"""Timing that survives a busy machine: candidates take turns in one process, and medians are compared.

Always true: a ratio is between medians of the same run; "x times" means better for us when it is above one. Nothing here
asserts a time: the scripts print whether a target was met, and a person reads it.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter, "thread": time.thread_time}


def interleaved(work: Mapping[str, Callable[[], Any]], repeats: int, clock: str = "wall") -> dict[str, float]:
    """Median seconds of each candidate, taking turns; one turn before the clock runs."""
    now = CLOCKS[clock]
    taken: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(repeats + 1):
        for name, call in work.items():
            gc.collect()
            begin = now()
            kept = call()  # held, so that letting go of what was made is in nobody's time
            took = now() - begin
            del kept
            if turn:
                taken[name].append(took)
    return {name: statistics.median(times) for name, times in taken.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def row(
    name: str,
    ours: float,
    peer: float | None,
    unit: str,
    *,
    target: float | None = None,
    is_rate: bool = False,
    limit: float | None = None,
) -> dict[str, Any]:
    """One comparison. `target` is the least ratio that we aim at, `limit` the most that ours may be."""
    ratio = None if peer is None else (ours / peer if is_rate else peer / ours)
    ok: bool | None = None
    if target is not None and ratio is not None:
        ok = ratio >= target
    if limit is not None:
        ok = ours <= limit and ok is not False
    goal = f">= {target:g}x" if target is not None else f"<= {limit:g} {unit}" if limit is not None else None
    return {"name": name, "ours": ours, "peer": peer, "ratio": ratio, "target": goal, "ok": ok, "unit": unit}


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def report(title: str, rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """A table for people, or the rows as one JSON list."""
    if as_json:
        print(json.dumps(rows))
        return
    print(f"\n{title}")
    cells = [["what", "ours", "peer", "unit", "ratio", "target", ""]]
    for r in rows:
        ratio = "-" if r["ratio"] is None else f"{r['ratio']:.3g}x"
        verdict = {True: "ok", False: "MISSED", None: ""}[r["ok"]]
        cells.append([r["name"], _number(r["ours"]), _number(r["peer"]), r["unit"], ratio, r["target"] or "", verdict])
    widths = [max(len(line[i]) for line in cells) for i in range(7)]
    for line in cells:
        parts = [cell.rjust(w) if i in (1, 2, 4) else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))]
        print("  ".join(parts).rstrip())


def arguments(about: str | None) -> argparse.Namespace:
    """`--quick` for a smaller run, `--json` for machines."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller run")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    return parser.parse_args()
