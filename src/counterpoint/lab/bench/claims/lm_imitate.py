"""One language model imitates teams on six text tasks at small dials: solved before and after.

Each training seed has its own demonstrations (`fake:1`, of whom only those that solved their task are shown) and batches. Tasks
whose teams say little, and the ledger hunt, are shown more often; held-out tasks are drawn alike, by the claim's seed. "All six"
is the mean over tasks, each weighed by one over how often its kind comes. Intervals are over runs and tasks (`_starts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._language import (
    AT_ONCE,
    T1,
    folder_of,
    go_on,
    imitate_settings,
    last_eval,
    scaled,
    side_by_side,
    usual,
)
from counterpoint.lab.bench.claims._starts import first_held_out, of_rows, per_task
from counterpoint.lab.train.folder import RunFolder


def _mix(name: str, topology: str, width: int, *, share: int = 1, **dials: Any) -> dict[str, Any]:
    limits = {"width": width, "turns": 16, "steps": 14, "max_tokens": 96, "context": 4096}
    return {"name": name, "topology": topology, "set": dials, "limits": limits, "share": share}


SIX = [
    {**T1, "share": 2},
    _mix("T2", "centralized", 2, rules=2, joins=0.0, rows=40, violations=2, distractors=2, superseded=0.0, contradictions=0.0),
    _mix("T3", "centralized", 2, modules=3, wired=0.5, tests=4),
    _mix("T4", "debate", 3, claims=2, facts=2, independents=2, clones=1, flawed=0.5),
    _mix("T5", "harness", 2, share=3, hops=3, parts=1, distractors=6, search_rate=0.0, superseded=0.0),
    _mix("T6", "planner_executor_critic", 2, share=2, days=1, talks=3, slots=3, rooms=2, speakers=4, rules=1, ties=0),
]
"""The six text tasks at small dials."""


def lm_imitate(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """One model for six text tasks in four topologies: solved before and after imitation, each task; needs CUDA."""
    folder, first = folder_of("lm-imitate"), first_held_out(seed)
    runs = [folder / f"all-{seed}-{k}" for k in range(seeds)]
    how = imitate_settings(900, demos="fake:1", keep="solved", teams=scaled(4000))
    more = {"is_eval_first": True, "eval_episodes": scaled(770, 10), "eval_first": first, "learn": {"updates": 0}}
    side_by_side(go_on, [(run, usual(seed + k, AT_ONCE, task=SIX, imitate=how, **more)) for k, run in enumerate(runs)])
    evals = [RunFolder.open(run).evals()[0] for run in runs]
    before, after, greedy = _each(evals, "successes"), per_task(runs, "successes"), per_task(runs, "greedy_successes")
    kinds = kinds_of(first, before.shape[1])
    for i, task in enumerate(SIX):
        name = f"{task['name']} {task['topology']}"
        yield reported(f"{name}: before, solved, sampled", of_rows(before[:, kinds == i], "run"))
        yield reported(f"{name}: after, solved, sampled", of_rows(after[:, kinds == i], "run"))
        yield reported(f"{name}: after, solved, greedy", of_rows(greedy[:, kinds == i], "run"))
    weight = len(kinds) / (len(SIX) * np.bincount(kinds)[kinds])  # so that the mean over tasks is that of six shares
    for when, some, solved in (("before", evals, before), ("after", [last_eval(run) for run in runs], after)):
        yield reported(f"all six: {when}, malformed", of_rows([e["malformed"] for e in some], "run"))
        yield reported(f"all six: {when}, solved, sampled", of_rows(solved * weight, "run"))
    yield at_least("all six: how much more is solved than before", of_rows((after - before) * weight, "run"), 0.1, by="low")


def _each(evals: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    return np.array([e[key] for e in evals], np.float64)


def kinds_of(first: int, count: int) -> np.ndarray:
    """Which of the six each held-out task is: the turns that a run takes them in."""
    turns = np.repeat(np.arange(len(SIX)), [task["share"] for task in SIX])
    return turns[(first + np.arange(count)) % len(turns)]
