"""Published methods on a language model, side by side: from the same imitated models, at equal device time.

Each preset brings its rewards, its credit and its loss; on equal terms are the model, the start, the tasks, the teams of an
update, the learning rate and its fall, and the seconds of reinforcement (five runs share the GPU at any time, in another order
for each seed, so that none always has the same neighbours). A seed of every method is made before the next seed, so
that what was cut off can still be compared. All methods change one set of weights, whatever the regime of their source: the roles
of regimes A and C are told apart by their calls alone, which departs from sources with networks apart. Ours is team credit with
the ledger's shares. When all methods are made, ours is made again with a limit on how far an update may move the model
(`learn.kl_limit`), which takes no part in the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.lab.bench.claim import ClaimRow, reported
from counterpoint.lab.bench.claims._language import (
    AT_ONCE,
    T1,
    folder_of,
    go_on,
    imitate_settings,
    last_eval,
    scale,
    side_by_side,
)
from counterpoint.lab.bench.claims._language import learn_settings as reinforced
from counterpoint.lab.bench.claims._starts import Starts, per_task
from counterpoint.lab.bench.race.judging import places_of
from counterpoint.lab.train.folder import RunFolder

PRESETS = ("grpo", "dr_mas", "m_grpo", "c3", "sharp", "magrpo", "matpo", "agent_lightning", "sirius")
_LIMITS = (0.02, 0.1)
_OURS = "ledger (ours)"
_SECONDS = 90.0
_TEAMS = {"groups": 8, "samples": 8}
"""Of an update: a third of what the other claims play, so that a method has more updates in its time."""
_CREDIT = {"credit": ["group_relative", "ledger"]}


def _arms() -> dict[str, dict[str, Any]]:
    """What differs between the runs."""
    return {_OURS: {"learn": _CREDIT}} | {name: {"preset": name, "learn": {}} for name in PRESETS}


def _order(seed: int) -> list[str]:
    """The methods in the order in which a seed of each begins."""
    names = list(_arms())
    return [names[i] for i in np.random.default_rng(seed).permutation(len(names))]


def _settings(how: dict[str, Any]) -> dict[str, Any]:
    """Those of the runs of one method."""
    learn = {**reinforced(0, **_TEAMS), "updates": 0, "seconds": max(1.0, _SECONDS * scale()), **how["learn"]}
    learn.pop("steps")  # a method may say how many
    return {"task": [T1], "adapters": "", "learn": learn, **{k: v for k, v in how.items() if k == "preset"}}


def lm_methods(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Nine published methods and ours on a language model, equal starts, equal device time: as it falls; needs CUDA."""
    plan, arms = Starts(folder_of("lm-methods"), seed, seeds), _arms()
    plan.begin({"task": [T1], "imitate": imitate_settings(500)}, at_once=1)
    each = {arm: plan.orders(arm.split()[0], _settings(how), at_once=AT_ONCE) for arm, how in arms.items()}
    given = [each[arm][k] for k in range(seeds) for arm in _order(seed + k)]
    limited = {limit: {"learn": {**_CREDIT, "kl_limit": limit}} for limit in _LIMITS}
    for limit, how in limited.items():
        given += plan.orders(f"ledger-limit-{limit}", _settings(how), at_once=AT_ONCE)
    side_by_side(go_on, given)
    yield from plan.solved_rows("imitation", plan.starts, "starts")
    runs = {arm: plan.runs(arm.split()[0]) for arm in arms}
    yield from _ranked(plan, runs)
    yield from _held(plan, runs[_OURS])


def _held(plan: Starts, free: list[Path]) -> Iterator[ClaimRow]:
    """Ours with a limit on each update, and without."""
    for limit in _LIMITS:
        name, some = f"ledger, updates of at most {limit} KL", plan.runs(f"ledger-limit-{limit}")
        yield from plan.solved_rows(name, some)
        over = per_task(some, "successes") - per_task(free, "successes")
        yield reported(f"{name}, over those without a limit, solved, sampled", plan.of_runs(over))
        kept = [[row["step_kept"] for row in RunFolder.open(run).metrics() if "step_kept" in row] for run in some]
        cut = [float(np.mean([k < 1 for k in one] or [0])) for one in kept]
        yield reported(f"{name}: share of updates that were cut", plan.of_runs(cut))


def _ranked(plan: Starts, runs: dict[str, list[Path]]) -> Iterator[ClaimRow]:
    """The methods, each by itself, against `grpo`, and by rank."""
    for arm, some in runs.items():
        yield from plan.solved_rows(arm, some)
        yield reported(f"{arm}: updates", plan.of_runs([RunFolder.open(run).about["updates"] for run in some]))
    for arm, some in runs.items():
        if arm != "grpo":
            over = per_task(some, "successes") - per_task(runs["grpo"], "successes")
            yield reported(f"{arm} over grpo, solved, sampled", plan.of_runs(over))
    solved = [{arm: last_eval(some[i])["solved"] for arm, some in runs.items()} for i in range(len(runs["grpo"]))]
    places = [places_of(one) for one in solved]
    for arm in runs:
        yield reported(f"{arm}: rank among {len(runs)}", plan.of_runs([one[arm] for one in places]))
