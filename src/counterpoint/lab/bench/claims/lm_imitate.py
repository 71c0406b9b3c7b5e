"""One language model imitates teams on all six text tasks at small dials: solved before and after.

Each training seed has its own demonstrations (`fake:1`, of whom only those that solved their task are shown) and batches. Tasks
whose teams say little, and the ledger hunt, are shown more often; held-out tasks are drawn alike. "All six" is the mean of six
shares.
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
    folder = folder_of("lm-imitate")
    runs = [folder / f"all-{one}" for one in range(seed, seed + seeds)]
    how = imitate_settings(900, demos="fake:1", keep="solved", teams=scaled(4000))
    more = {"is_eval_first": True, "eval_episodes": scaled(770, 10)}
    given = [(run, usual(seed + i, AT_ONCE, task=SIX, imitate=how, **more)) for i, run in enumerate(runs)]
    side_by_side(go_on, [(run, {**config, "learn": {"updates": 0}}) for run, config in given])
    first = [RunFolder.open(run).evals()[0] for run in runs]
    last = [last_eval(run) for run in runs]
    before, after, greedy = by_task(first, "successes"), by_task(last, "successes"), by_task(last, "greedy_successes")
    for i, task in enumerate(SIX):
        name = f"{task['name']} {task['topology']}"
        yield reported(f"{name}: before, solved, sampled", before[:, i].tolist())
        yield reported(f"{name}: after, solved, sampled", after[:, i].tolist())
        yield reported(f"{name}: after, solved, greedy", greedy[:, i].tolist())
    for when, evals, solved in (("before", first, before), ("after", last, after)):
        yield reported(f"all six: {when}, malformed", [e["malformed"] for e in evals])
        yield reported(f"all six: {when}, solved, sampled", solved.mean(1).tolist())
    yield at_least("all six: how much more is solved than before", (after - before).mean(1).tolist(), 0.1, by="low")


def by_task(evals: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    """The share of held-out tasks that each evaluation solved, for each of the six: [evaluations, 6]."""
    turns = np.repeat(np.arange(len(SIX)), [task["share"] for task in SIX])  # the task of a seed, as a run takes it
    return np.array([[np.asarray(e[key])[np.resize(turns, len(e[key])) == i].mean() for i in range(len(SIX))] for e in evals])
