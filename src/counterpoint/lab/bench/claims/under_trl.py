"""Under TRL's own trainer a team learns with computed credit what a shared reward does not teach in that time.

Always true: real TRL on a CPU, a Llama of two layers, in processes of their own (`counterpoint.lab.trainers.trl.team_task`, which
says what the task and the arms are); run k begins with start k mod 3, and runs of all arms see the same starts. Everybody has
25 updates of 32 teams. Scores are shares of what the best team is paid, over the last tenth of the updates. With $COUNTERPOINT_LM
(smollm2-135m, say) that model learns, 60 updates, on the GPU where there is one:

    COUNTERPOINT_LM=smollm2-135m counterpoint reproduce under-trl --seeds 12
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from counterpoint.display import working
from counterpoint.errors import CounterpointError, InputError, Refused, install
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._language import another_model
from counterpoint.lab.bench.claims._starts import STARTS, Starts

ARMS = ("computed", "dr-mas", "identical", "reward/K")
_STEPS, _MODELS_STEPS = 25, 60
_AT_ONCE = 8
"""Processes that share a GPU."""
_TASK = "counterpoint.lab.trainers.trl.team_task"


def under_trl(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Four ways to share one reward, in TRL's GRPOTrainer; it asks for 12 seeds: 3 starts by 4 runs."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    missing = [name for name in ("trl", "datasets", "torch") if find_spec(name) is None]
    if missing:
        fix = f"{install('trl')}; `make trainers TRAINERS=trl` makes an environment with it"
        raise Refused(f"this claim learns with TRL, and {missing[0]} is not installed", fix=fix)
    plan = Starts(Path(), seed, seeds)
    orders = [(arm, s) for arm in ARMS for s in range(min(STARTS, seeds))]
    done = {}
    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool, working("runs of TRL", len(orders)) as work:
        parts = pool.map(lambda order: _learnt(order[0], order[1], seed, len(range(order[1], seeds, STARTS))), orders)
        for order, part in zip(orders, parts, strict=True):
            done[order] = part
            work.step()
    yield from another_model() if _model() else ()
    share = {arm: [done[arm, k % STARTS][k // STARTS] for k in range(seeds)] for arm in ARMS}
    yield at_least("computed: share of the best team's reward", plan.of_runs([one[0] for one in share["computed"]]), 0.75)
    for arm in ARMS[1:]:
        yield reported(f"{arm}: share of the best team's reward", plan.of_runs([one[0] for one in share[arm]]))
    for arm in ARMS[1:]:
        over = np.subtract([one[0] for one in share["computed"]], [one[0] for one in share[arm]])
        yield at_least(f"computed over {arm}, share of the best", plan.of_runs(over), 0.1, by="low" if seeds > 1 else "mean")
    yield reported("before anything is learnt: share of the best", plan.of_runs([one[1] for one in share["computed"]]))


def _model() -> str | None:
    return os.environ.get("COUNTERPOINT_LM")


def _learnt(arm: str, start: int, seed: int, runs: int) -> list[tuple[float, float]]:
    """The runs of one arm from one start: share of the best reward at the end, and before."""
    numbers = [str(seed * 1000 + run) for run in range(runs)]
    steps = _MODELS_STEPS if _model() else _STEPS
    command = [sys.executable, "-W", "ignore", "-m", _TASK, arm, str(seed * STARTS + start), str(steps), *numbers]
    quiet = {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}
    out = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **quiet}, check=False)
    if out.returncode:
        said = (out.stderr.strip().splitlines() or ["nothing"])[-1]
        raise CounterpointError(f"TRL ended with {out.returncode}", where=f"{arm}, start {start}", why=said, fix="run it by hand")
    rows = [json.loads(line) for line in out.stdout.splitlines() if line.startswith('{"arm"')]
    return [(row["score"] / row["best"], row["before"] / row["best"]) for row in rows]
