"""A language model learns more than it was shown: reinforcement beats a weak demonstrator, and more imitation.

A 135M model imitates teams of `fake:0.7` on the ledger hunt at its easiest, good and bad ones alike. From there it goes on in
three ways: paid for its teams' scores (group-relative credit, clipped policy gradient); imitating on, for the same device time;
or imitating on, for as many steps, only those teams that the verifier passed. All are held to the same 512 tasks, sampled and
greedy. Starts, runs and held-out tasks are drawn by the seed (`_starts`); differences are taken run by run and task by task.

The device time is that of the first run's reinforcement, alone on the GPU, all that it compiles included; what imitation could
make of it, by its step alone on the GPU, is what each control is given. The other runs share the GPU.

Always true: every number is from runs that are made now, or by an earlier part of the same claim (see `_language`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._language import (
    AT_ONCE,
    T1,
    another_model,
    by_hand,
    folder_of,
    go_on,
    imitate_settings,
    last_eval,
    seconds_per_step,
    side_by_side,
)
from counterpoint.lab.bench.claims._language import learn_settings as reinforced
from counterpoint.lab.bench.claims._starts import Starts, of_tasks, per_task
from counterpoint.lab.train.folder import RunFolder

_CONTROLS = {"more": {"keep": "all"}, "passed": {"keep": "solved"}}
_NAMES = {"more": "as long imitation", "passed": "as long imitation of what the verifier passed"}


def learned(seed: int, seeds: int) -> tuple[Starts, list[Path]]:
    """The starts, and the runs that reinforcement made of them."""
    plan = Starts(folder_of("lm-learn"), seed, seeds)
    plan.begin({"task": [T1], "imitate": imitate_settings(500)}, at_once=1)
    how = {"task": [T1], "learn": reinforced(14)}
    side_by_side(go_on, plan.orders("learn", how, at_once=1)[:1])
    side_by_side(go_on, plan.orders("learn", how, at_once=AT_ONCE)[1:])
    return plan, plan.runs("learn")


def lm_learn(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """From a weak demonstrator, reinforcement ends above it and above imitation alone at equal device time; needs CUDA."""
    yield from another_model()
    plan, runs = learned(seed, seeds)
    seconds = last_eval(runs[0])["seconds"]["learn"]
    steps = round(seconds / seconds_per_step(plan.starts[0]))
    for control, keep in _CONTROLS.items():
        how = {"task": [T1], "imitate": imitate_settings(1) | {"steps": steps} | keep, "learn": {"updates": 0}}
        side_by_side(go_on, plan.orders(control, how, at_once=AT_ONCE))
    fakes = by_hand([T1], "fake:0.7", {"explore": 0.0}, {}, first=plan.first)[1]
    yield reported("demonstrator fake:0.7, solved", of_tasks(fakes))
    yield from plan.solved_rows("imitation", plan.starts, "starts")
    yield from plan.solved_rows("then reinforcement", runs)
    for control, name in _NAMES.items():
        yield from plan.solved_rows(f"then {name}", plan.runs(control))
    for way, key in (("sampled", "successes"), ("greedy", "greedy_successes")):
        mine = per_task(runs, key)
        yield at_least(f"reinforcement over the demonstrator, {way}", plan.of_runs(mine - fakes), 0.0, by="low")
        for control, name in _NAMES.items():
            over = mine - per_task(plan.runs(control), key)
            yield at_least(f"reinforcement over {name}, {way}", plan.of_runs(over), 0.0, by="low")
    yield reported("seconds of reinforcement, alone on the GPU", [seconds])
    yield reported("steps that imitation makes in them", [steps])
    played = [RunFolder.open(run).about["spent"]["episodes"] for run in runs]
    yield reported("teams that reinforcement played", plan.of_runs(played))
