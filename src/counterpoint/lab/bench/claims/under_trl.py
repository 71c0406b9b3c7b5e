"""Under TRL's own trainer a team learns with computed credit what a shared reward does not teach in that time.

Always true: real TRL on a CPU, a Llama of two layers, in processes of their own (`counterpoint.lab.trainers.trl.team_task`, which
says what the task and the arms are); run k begins with start k mod 3, and runs of all arms see the same starts. Everybody has
25 updates of 32 teams. Scores are shares of what the best team is paid, over the last tenth of the updates. With $COUNTERPOINT_LM
(smollm2-135m, say) that model learns, 60 updates from a weak team that it imitated, on the GPU where there is one:

    COUNTERPOINT_LM=smollm2-135m counterpoint reproduce under-trl --seeds 12

A run that ended is a small file in $COUNTERPOINT_RUNS (else ./runs), claims/under-trl-MODEL, and is read from there: the same
command again goes on where the last one was cut off. Delete the folder to begin anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.display import working
from counterpoint.errors import CounterpointError, InputError, Refused, install
from counterpoint.files import put
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._language import another_model, scaled
from counterpoint.lab.bench.claims._starts import STARTS, Starts

ARMS = ("computed", "dr-mas", "identical", "reward/K")
_STEPS, _MODELS_STEPS = 25, 60
_AT_ONCE = 12
"""Processes that share a GPU."""
_TASK = "counterpoint.lab.trainers.trl.team_task"


def under_trl(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Four ways to share one reward, in TRL's GRPOTrainer; it asks for 12 seeds: 3 starts by 4 runs."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    plan = Starts(_folder(), seed, seeds)
    done = _runs(plan, seed)
    yield from another_model() if _model() else ()
    share = {arm: [(one["score"] / one["best"], one["before"] / one["best"]) for one in done[arm]] for arm in ARMS}
    yield at_least("computed: share of the best team's reward", plan.of_runs([one[0] for one in share["computed"]]), 0.75)
    for arm in ARMS[1:]:
        yield reported(f"{arm}: share of the best team's reward", plan.of_runs([one[0] for one in share[arm]]))
    for arm in ARMS[1:]:
        over = np.subtract([one[0] for one in share["computed"]], [one[0] for one in share[arm]])
        yield at_least(f"computed over {arm}, share of the best", plan.of_runs(over), 0.1, by="low" if seeds > 1 else "mean")
    yield reported("before anything is learnt: share of the best", plan.of_runs([one[1] for one in share["computed"]]))


def _model() -> str | None:
    return os.environ.get("COUNTERPOINT_LM")


def _folder() -> Path:
    """Where the runs of this model are, the tiny one's too."""
    return Path(os.environ.get("COUNTERPOINT_RUNS", "runs")) / "claims" / f"under-trl-{Path(_model() or 'tiny').name}"


def _steps() -> int:
    return scaled(_MODELS_STEPS) if _model() else _STEPS


def _runs(plan: Starts, seed: int) -> dict[str, list[dict[str, Any]]]:
    """The runs of every arm: those that are there, and those made now, each kept when it ends."""
    files = {arm: [run.with_suffix(".json") for run in plan.runs(arm.replace("/", "-"))] for arm in ARMS}
    missing = {(arm, s): [k for k in range(s, plan.count, STARTS) if not files[arm][k].is_file()]
               for arm in ARMS for s in range(min(STARTS, plan.count))}  # fmt: skip
    orders = [(arm, s, [(k // STARTS, files[arm][k]) for k in own]) for (arm, s), own in missing.items() if own]
    if orders:
        _check_packages()
    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool, working("runs of TRL", len(orders)) as work:
        for _ in pool.map(lambda order: _learn(order[0], order[1], order[2], seed), orders):
            work.step()
    return {arm: [_kept(file) for file in own] for arm, own in files.items()}


def _check_packages() -> None:
    missing = [name for name in ("trl", "datasets", "torch") if find_spec(name) is None]
    if missing:
        fix = f"{install('trl')}; `make trainers TRAINERS=trl` makes an environment with it"
        raise Refused(f"this claim learns with TRL, and {missing[0]} is not installed", fix=fix)


def _learn(arm: str, start: int, runs: Sequence[tuple[int, Path]], seed: int) -> None:
    """Some runs of one arm from one start, in a process of their own; each is a file as soon as it has ended."""
    numbers = [str(seed * 1000 + run) for run, _ in runs]
    command = [sys.executable, "-W", "ignore", "-m", _TASK, arm, str(seed * STARTS + start), str(_steps()), *numbers]
    quiet = {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **quiet})
        with process:
            rows = (line for line in process.stdout or () if line.startswith('{"arm"'))
            for (_, file), line in zip(runs, rows, strict=False):
                put([(file, json.dumps({"steps": _steps(), **json.loads(line)}).encode() + b"\n")])
        errors.seek(0)
        said = (errors.read().strip().splitlines() or ["nothing"])[-1]
    if process.returncode:
        where = f"{arm}, start {start}"
        raise CounterpointError(f"TRL ended with {process.returncode}", where=where, why=said, fix="run it by hand")


def _kept(file: Path) -> dict[str, Any]:
    """A run that has ended; refused where it is another claim's, of a trial say."""
    row: dict[str, Any] = json.loads(file.read_bytes())
    if row["steps"] != _steps():
        what = f"{row['steps']} updates, where this claim makes {_steps()}"
        raise InputError(what, where=file.name, fix=f"delete {file.parent}, or another $COUNTERPOINT_RUNS")
    return row
