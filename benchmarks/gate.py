"""The gate against a base: how often runs that are alike break it, and how often a drop of score or a rise of cost does.

Drawn teams, not a clock: each task has its own chance of success (a mean of 0.7), cost has a heavy tail (lognormal, sigma 1) and
calls fail now and then. Paired: both sides have one run of each task. All three figures are asked for at once, as `counterpoint
gate --against` does. The shares have Wilson's 95 % intervals. With $COUNTERPOINT_HALVES, a store, its runs are split into random
halves instead, and issues are asked for, too.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _timing import arguments, report, row
from msgspec.structs import replace

from counterpoint.app.api.annotate import dataset
from counterpoint.app.api.gate import LEVEL, base_checks, gate
from counterpoint.app.api.issues import issues
from counterpoint.store import Store
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace
from counterpoint.trace.statistics import wilson_ends

SIZES = (5, 10, 30, 100)
CHANGES = {"alike": (0.0, 1.0), "score -0.2": (0.2, 1.0), "score -0.4": (0.4, 1.0), "cost x2": (0.0, 2.0)}
"""What becomes of the new side: how far its chance of success drops in the mean, and by what its cost is multiplied."""
MEAN = 0.7
BLANK = Summary.of_trace(Trace(trace_id="r", task_id="t", events=[], edges=[]))


def side(rng: np.random.Generator, tasks: np.ndarray, name: str, drop: float, dearer: float) -> list[Summary]:
    """One run of each task; a row of `tasks` is its chance of success and its size."""
    out = []
    for k, (chance, size) in enumerate(tasks):
        score = float(rng.random() < chance * (1 - drop / MEAN))
        cost, errors = float(dearer * rng.lognormal(size / 2, 1)), int(rng.poisson(np.exp(size / 3 - 0.5)))
        out.append(replace(BLANK, id=f"{name}{k}", task_id=f"{name}{k}", team_reward=score, cost_usd=cost, errors=errors))
    return out


def drawn(rng: np.random.Generator, n: int) -> np.ndarray:
    """Tasks: a chance of success and a size each."""
    return np.column_stack([rng.beta(2.8, 1.2, n), rng.normal(size=n)])


def alarms(n: int, change: tuple[float, float], *, paired: bool, draws: int) -> int:
    """How many of the drawn comparisons break the gate."""
    rng = np.random.default_rng([n, paired])
    count = 0
    for _ in range(draws):
        tasks = drawn(rng, n)
        new = side(rng, tasks, "t", *change)
        base = side(rng, tasks if paired else drawn(rng, n), "t" if paired else "b", 0.0, 1.0)
        count += not all(check.passed for check in base_checks(new, base, LEVEL))
    return count


def halves(store: Path, draws: int) -> list[dict[str, Any]]:
    """How often random halves of a store's runs break the gate with `--no-new-issues`; the store itself stays as it is."""
    draw, broken = random.Random(7), 0
    with tempfile.TemporaryDirectory() as place:
        copy = shutil.copytree(store, Path(place) / "store")
        issues(store=copy)  # what runs show is remembered
        with Store(copy) as opened:
            names = [one.id for one in opened.rows()]
            for k in range(draws):
                draw.shuffle(names)
                half = len(names) // 2
                dataset(f"a{k}", names[:half], store=opened)
                dataset(f"b{k}", names[half:], store=opened)
                broken += not gate(f"in:a{k}", against=f"in:b{k}", no_new_issues=True, store=opened).passed
    low, high = wilson_ends(broken, draws)
    return [row(f"random halves of {len(names):,} runs [{low:.3f}, {high:.3f}]", broken / draws, None, "broken", limit=LEVEL)]


def rows(draws: int) -> list[dict[str, Any]]:
    """A row for each number of runs, way to compare and change; and one of all that are alike."""
    out, false, made = [], 0, 0
    for paired in (True, False):
        for n in SIZES:
            for name, change in CHANGES.items():
                broken = alarms(n, change, paired=paired, draws=draws)
                false, made = false + broken * (name == "alike"), made + draws * (name == "alike")
                low, high = wilson_ends(broken, draws)
                what = f"{n} against {n}, {'shared' if paired else 'other'} tasks, {name} [{low:.2f}, {high:.2f}]"
                out.append(row(what, broken / draws, None, "broken"))
    low, high = wilson_ends(false, made)
    return [*out, row(f"all that are alike [{low:.3f}, {high:.3f}]", false / made, None, "broken", limit=LEVEL)]


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    if store := os.environ.get("COUNTERPOINT_HALVES"):
        report("Gate", halves(Path(store), 20 if asked.quick else 100), as_json=asked.json)
    else:
        report("Gate", rows(20 if asked.quick else 200), as_json=asked.json)


if __name__ == "__main__":
    main()
