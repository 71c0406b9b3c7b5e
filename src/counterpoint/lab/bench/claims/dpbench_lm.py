"""DPBench's dining philosophers by a language model: imitation of a noisy rule, then reinforcement four ways.

One model plays all five philosophers, each from the package's information and the step (`dpbench:sim_n5_nocomm_step`); what it
saw before is not in its prompt. It imitates the rule of even and odd names with three steps of ten at random, which is no
solution: two of five starve under it. Then it learns from meals and fairness (`lab/bench/dining/pay.py`) with GRPO
as published, with team credit and our learner's settings, with an agent's credit for what
the table would lose had it done nothing (replayed), and with teams that share a beginning up to a call that is drawn
(`learn.tree`): forks.

The arms play equally many teams in each update, from the same starts. Starts, runs and held-out episodes as in `_starts`; the
table is the same in every episode, so that held-out means other draws.

On a GPU that is lent for ten minutes at a time, the same command again until it prints its rows, with `COUNTERPOINT_RUNS` a
folder that stays: each goes on where the last was cut off. At the signal a run ends the evaluation or the update that it is in,
and keeps a checkpoint, for which the rest of the ten minutes is left. Then more runs; those that are there are kept:

    timeout 450 counterpoint reproduce dpbench-lm --seed 90210 --seeds 3
    timeout 450 counterpoint reproduce dpbench-lm --seed 90210 --seeds 12

A trial on a CPU, whose numbers mean nothing: COUNTERPOINT_LM=TINY COUNTERPOINT_LM_SCALE=0.004, --seeds 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most, reported
from counterpoint.lab.bench.claims._language import (
    AT_ONCE,
    another_model,
    folder_of,
    go_on,
    imitate_settings,
    last_eval,
    learn_settings,
    scale,
    side_by_side,
)
from counterpoint.lab.bench.claims._starts import STARTS, Starts

_GROUPS, _SAMPLES, _UPDATES = 4, 8, 30
_PAY: dict[str, dict[str, Any]] = {"counterpoint.lab.bench.dining.pay:meals_and_fairness": {}}
_ARMS: dict[str, dict[str, Any]] = {
    "GRPO": {"preset": "grpo", "learn": {}},
    "team": {"learn": {"credit": ["group_relative"]}},
    "agent": {"learn": {"credit": ["group_relative", "difference"]}},
    "forks": {"learn": {"credit": ["group_relative"], "tree": [2, 4]}},
}
MEASURES = ("deadlock", "throughput", "fairness", "starvation")


def _table(condition: str) -> dict[str, Any]:
    limits = {"turns": 400, "steps": 40, "max_tokens": 12, "context": 1024}
    return {"name": f"dpbench:{condition}", "topology": "turns", "limits": limits}


TABLE = _table("sim_n5_nocomm_step")


def dpbench_lm(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """A language model at the table of five: imitation, and four ways to learn, held to the network's targets; needs CUDA."""
    yield from another_model()
    plan = Starts(folder_of("dpbench-lm"), seed, seeds)
    plan.begin({"task": [TABLE], "imitate": imitate_settings(300, teams=256), "is_greedy_too": False}, at_once=STARTS)
    each = [plan.orders(arm.lower(), _settings(how), at_once=AT_ONCE) for arm, how in _ARMS.items()]
    side_by_side(go_on, [arm[k] for k in range(seeds) for arm in each])
    yield from _rows(plan, "imitation", plan.starts, "starts")
    for arm in _ARMS:
        yield from _rows(plan, arm, plan.runs(arm.lower()), "runs")


def _settings(how: dict[str, Any]) -> dict[str, Any]:
    """Those of the runs of one arm."""
    updates = max(1, round(_UPDATES * scale()))
    learn = learn_settings(updates, groups=_GROUPS, samples=_SAMPLES) | {"samples": _SAMPLES, "reward": _PAY, **how["learn"]}
    return {"task": [TABLE], "learn": learn, "is_greedy_too": False, **{k: v for k, v in how.items() if k == "preset"}}


def _rows(plan: Starts, name: str, runs: Sequence[Path], of: str) -> Iterator[ClaimRow]:
    """The package's measures of the last evaluation."""
    measured = plan.of_runs if of == "runs" else plan.of_starts
    for what in MEASURES:
        value = measured([measure_of(run, what) for run in runs])
        if of == "starts" or what == "starvation":
            yield reported(f"5, {name}: {what}", value)
        elif what == "deadlock":
            yield at_most(f"5, {name}: deadlock", value, 0.01)
        else:
            yield at_least(f"5, {name}: {what}", value, 0.70 if what == "throughput" else 0.85, by="mean")


def measure_of(run: Path, what: str) -> float:
    """The mean of one measure of the package over the last evaluation's episodes."""
    return float(last_eval(run)["measures"][what])
