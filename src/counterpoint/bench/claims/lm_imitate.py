"""One language model imitates teams on all six text tasks at small dials: solved before and after.

Each training seed has its own demonstrations (`fake:1`, of whom only those that solved their task are shown) and batches. The
tasks take turns, so each of the six has a sixth of the held-out ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from counterpoint.bench.claim import ClaimRow, at_least, reported
from counterpoint.bench.claims._language import AT_ONCE, T1, folder_of, go_on, last_eval, scaled, shown, side_by_side, usual
from counterpoint.train.folder import RunFolder


def _mix(name: str, topology: str, width: int, **dials: Any) -> dict[str, Any]:
    limits = {"width": width, "turns": 16, "steps": 14, "max_tokens": 96, "context": 4096}
    return {"name": name, "topology": topology, "set": dials, "limits": limits}


SIX = [
    T1,
    _mix("T2", "centralized", 2, rules=2, joins=0.0, rows=40, violations=2, distractors=2, superseded=0.0, contradictions=0.0),
    _mix("T3", "centralized", 2, modules=3, wired=0.5, tests=4),
    _mix("T4", "debate", 3, claims=2, facts=2, independents=2, clones=1, flawed=0.5),
    _mix("T5", "harness", 2, hops=3, parts=1, distractors=6, search_rate=0.0, superseded=0.0),
    _mix("T6", "planner_executor_critic", 2, days=1, talks=3, slots=3, rooms=2, speakers=4, rules=1, ties=0),
]
"""The six text tasks at small dials."""


def lm_imitate(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """One model for six text tasks in four topologies: solved before and after imitation, each task; needs CUDA."""
    folder = folder_of("lm-imitate")
    runs = [folder / f"all-{one}" for one in range(seed, seed + seeds)]
    how = shown(900, demos="fake:1", keep="solved", teams=scaled(6000))
    more = {"is_eval_first": True, "eval_episodes": scaled(768, 6)}
    given = [(run, usual(seed + i, AT_ONCE, task=SIX, imitate=how, **more)) for i, run in enumerate(runs)]
    side_by_side(go_on, [(run, {**config, "learn": {"updates": 0}}) for run, config in given])
    first = [RunFolder.open(run).evals()[0] for run in runs]
    last = [last_eval(run) for run in runs]
    for i, task in enumerate(SIX):
        name = f"{task['name']} {task['topology']}"
        yield reported(f"{name}: before, solved, sampled", [np.mean(e["successes"][i :: len(SIX)]) for e in first])
        yield reported(f"{name}: after, solved, sampled", [np.mean(e["successes"][i :: len(SIX)]) for e in last])
        yield reported(f"{name}: after, solved, greedy", [np.mean(e["greedy_successes"][i :: len(SIX)]) for e in last])
    for when, evals in (("before", first), ("after", last)):
        yield reported(f"all six: {when}, malformed", [e["malformed"] for e in evals])
        yield reported(f"all six: {when}, solved, sampled", [e["solved"] for e in evals])
    more_solved = [b["solved"] - a["solved"] for a, b in zip(first, last, strict=True)]
    yield at_least("all six: more is solved than before", more_solved, 0.0, by="low")
