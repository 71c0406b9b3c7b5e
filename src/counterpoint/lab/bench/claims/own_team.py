"""A LangGraph team of three roles learns as it is with a 135M model: as it comes, shown, and paid.

The team is `lab/bench/own_team/desk.py`; it speaks OpenAI's protocol to the endpoint of the run. Cases are drawn by the claim's
seed: 1,280 mails, of which a fifth is held out. Each start imitates recordings of the same graph whose model is a set of rules
that err in a fifth of all fields, and take most of what is broken for what is to go back (drawn anew for each start). From there
four runs go on paid for the share of right fields (group-relative credit), and as a control imitate on for the same device time.
Starts, runs and cases as in `_starts`.

Always true: every number is from runs that are made now, or by an earlier part of the same claim (see `_language`).
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._language import (
    device,
    folder_of,
    go_on,
    is_made,
    last_eval,
    scaled,
    seconds_per_step,
    side_by_side,
    usual,
)
from counterpoint.lab.bench.claims._starts import Starts, of_rows, of_tasks, per_task
from counterpoint.lab.bench.own_team.recordings import record_desk
from counterpoint.lab.train.folder import RunFolder

_CASES, _HELD_OUT = 1280, 256
_SHOWN, _STEPS, _BATCH = 1000, 120, 96
_UPDATES, _GROUPS, _SAMPLES = 10, 16, 12
_AT_ONCE = 4
"""Runs that share the GPU and the cores."""
_SHOWN_APART = 1_000_000


def own_team(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """A LangGraph team of three roles learns without a changed line: more than it was shown, or shown for longer."""
    folder = folder_of("own-team").resolve()
    plan = Starts(folder, seed, seeds)
    if not all(map(is_made, [*plan.starts, *plan.runs("learn"), *plan.runs("more")])):
        _check_machine()
    task = _task(folder, seed)
    _begin(plan, task)
    side_by_side(go_on, _orders(plan, "learn", task, {"learn": _learned()})[:1])
    side_by_side(go_on, _orders(plan, "learn", task, {"learn": _learned()})[1:], at_once=_AT_ONCE)
    runs = plan.runs("learn")
    seconds = last_eval(runs[0])["seconds"]["learn"]
    steps = max(1, round(seconds / seconds_per_step(plan.starts[0])))
    side_by_side(go_on, _orders(plan, "more", task, {"imitate": {"steps": steps}, "learn": {"updates": 0}}), at_once=_AT_ONCE)
    yield from _rows(plan, runs, seconds, steps)


def _rows(plan: Starts, runs: list[Path], seconds: float, steps: int) -> Iterator[ClaimRow]:
    first = RunFolder.open(plan.starts[0]).evals()[0]
    yield reported("as it comes, share of right fields, sampled", of_tasks(first["values"]))
    yield reported("as it comes, greedy", of_tasks(first["greedy"]))
    shown = [RunFolder.open(start).about["demonstrators"]["reward"] for start in plan.starts]
    yield reported("demonstrator", of_rows(shown, "start"))
    for way, key, solved in (("sampled", "values", "successes"), ("greedy", "greedy", "greedy_successes")):
        starts, mine, more = per_task(plan.starts, key), per_task(runs, key), per_task(plan.runs("more"), key)
        yield reported(f"after imitation, {way}", plan.of_starts(starts))
        yield reported(f"after reinforcement, {way}", plan.of_runs(mine))
        yield reported(f"after as long imitation, {way}", plan.of_runs(more))
        yield reported(f"all four fields right, after imitation, {way}", plan.of_starts(per_task(plan.starts, solved)))
        yield reported(f"all four fields right, after reinforcement, {way}", plan.of_runs(per_task(runs, solved)))
        before = np.array([starts[k % len(starts)] for k in range(len(mine))])
        yield at_least(f"reinforcement over imitation, {way}", plan.of_runs(mine - before), 0.0, by="low")
        yield at_least(f"reinforcement over as long imitation, {way}", plan.of_runs(mine - more), 0.0, by="low")
    yield reported("seconds of reinforcement, alone on the GPU", [seconds])
    yield reported("steps that imitation makes in them", [steps])
    told = [row.get("lost") or {} for run in runs for row in (*RunFolder.open(run).metrics(), *RunFolder.open(run).evals())]
    yield reported("rollouts lost, of all runs", float(sum(sum(one.values()) for one in told)))


def _check_machine() -> None:
    """What is refused is refused before anything is drawn or recorded."""
    device()
    missing = [name for name in ("langgraph", "langchain_openai") if find_spec(name) is None]
    if missing:
        raise InputError(f"the team needs {' and '.join(missing)}", fix="pip install langgraph langchain-openai")


def _task(folder: Path, seed: int) -> dict[str, Any]:
    import counterpoint.lab.bench.own_team as place
    from counterpoint.lab.bench.own_team.mails import write_cases

    desk, cases = Path(place.__file__).with_name("desk.py"), folder / f"cases-{seed}.jsonl"
    if not cases.is_file():
        write_cases(cases, seed, scaled(_CASES, 40))
    return {"name": f"{desk}:team", "cases": str(cases), "reward": f"{desk}:score", "limits": {"max_tokens": 32, "seconds": 120}}


def _settings(seed: int, task: dict[str, Any], **more: Any) -> dict[str, Any]:
    told = {"task": [task], "context": 1024, "eval_episodes": scaled(_HELD_OUT), **more}
    cores = os.cpu_count() or 2
    return usual(seed, _AT_ONCE, **told) | {"workers": max(1, 4 * cores // _AT_ONCE), "slots": 64, "tokens": 16_384}


def _begin(plan: Starts, task: dict[str, Any]) -> None:
    """The starts: each imitates its own recordings."""
    _show(plan)
    given = []
    for s, start in enumerate(plan.starts):
        how = {"imitate": _imitated(plan, s, scaled(_STEPS)), "learn": {"updates": 0}, "is_eval_first": s == 0}
        told = _settings(plan.seed + s, task, **how)
        given.append((start, told))
    side_by_side(go_on, given[:1], at_once=1)  # alone, so that its steps can be timed
    side_by_side(go_on, given[1:], at_once=_AT_ONCE)


def _imitated(plan: Starts, start: int, steps: int) -> dict[str, Any]:
    shown = str(plan.folder / f"shown-{plan.seed}-{start}")
    return {"demos": shown, "steps": steps, "batch": scaled(_BATCH, 8), "lr": 3e-4, "warmup": 10}


def _orders(plan: Starts, name: str, task: dict[str, Any], how: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    out = []
    for k, run in enumerate(plan.runs(name)):
        s = k % len(plan.starts)
        told = {**how, "imitate": _imitated(plan, s, 0) | how.get("imitate", {}), "model": str(plan.starts[s])}
        out.append((run, _settings(plan.seed + k, task, **told)))
    return out


def _learned() -> dict[str, Any]:
    told = {"updates": scaled(_UPDATES), "groups": scaled(_GROUPS), "samples": scaled(_SAMPLES)}
    return {**told, "lr": 1e-4, "last_rate": 0.1, "steps": 4, "cap": 0.0}


def _show(plan: Starts) -> None:
    """Recordings of the graph with the rules as its model, for each start in a process of its own; whole or not at all."""
    context, running = multiprocessing.get_context("spawn"), []
    for s, start in enumerate(plan.starts):
        folder = plan.folder / f"shown-{plan.seed}-{s}"
        if not is_made(start) and not folder.is_dir():
            args = (folder, _SHOWN_APART * (plan.seed + 1) + s, scaled(_SHOWN, 8))
            running.append(context.Process(target=record_desk, args=args))
            running[-1].start()
    for process in running:
        process.join()
        if process.exitcode:
            raise CounterpointError(f"recording the demonstrations ended with code {process.exitcode}", fix="see what it printed")
