"""Published methods on a language model, side by side: from the same imitated model, at equal device time.

Each preset brings its rewards, its credit and its loss; on equal terms are the model, the start, the tasks, the teams of an
update, the learning rate and its fall, and the seconds of reinforcement (five runs share the GPU at any time, in another order
for each seed, so that none always has the same neighbours). A seed of every method is made before the next seed, so
that what was cut off can still be compared. All methods change one set of weights, whatever the regime of their source: the roles
of regimes A and C are told apart by their calls alone, which departs from sources with networks apart. Ours is team credit with
the ledger's shares. When all methods are made, ours is made again with a limit on how far an update may move the model
(`learn.kl_limit`), which takes no part in the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.lab.bench.claim import ClaimRow, reported
from counterpoint.lab.bench.claims._language import (
    AT_ONCE,
    T1,
    begun,
    folder_of,
    gained,
    go_on,
    imitate_settings,
    last_eval,
    scale,
    side_by_side,
    solved_rows,
    usual,
)
from counterpoint.lab.bench.claims._language import learn_settings as reinforced
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


def _runs(folder: Path, seeds: Sequence[int]) -> dict[str, list[Path]]:
    return {arm: [folder / f"{arm.split()[0]}-{one}" for one in seeds] for arm in _arms()}


def _order(seed: int) -> list[str]:
    """The methods in the order in which a seed of each begins."""
    names = list(_arms())
    return [names[i] for i in np.random.default_rng(seed).permutation(len(names))]


def _config(how: dict[str, Any], seed: int, start: Path) -> dict[str, Any]:
    """A run of one method from a start."""
    learn = {**reinforced(0, **_TEAMS), "updates": 0, "seconds": max(1.0, _SECONDS * scale()), **how["learn"]}
    learn.pop("steps")  # a method may say how many
    more = {"task": [T1], "model": str(start), "imitate": {"steps": 0}, "adapters": "", "learn": learn}
    return usual(seed, AT_ONCE, **more, **{k: v for k, v in how.items() if k == "preset"})


def lm_methods(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Nine published methods and ours on a language model, one start, equal device time: as it falls; needs CUDA."""
    folder, arms = folder_of("lm-methods"), _arms()
    runs = _runs(folder, range(seed, seed + seeds))
    limited = {limit: [folder / f"ledger-limit-{limit}-{one}" for one in range(seed, seed + seeds)] for limit in _LIMITS}
    start = begun(folder, seed, usual(seed, 1, task=[T1], imitate=imitate_settings(500)))
    given = [(runs[arm][i], _config(arms[arm], seed + i, start)) for i in range(seeds) for arm in _order(seed + i)]
    for limit, some in limited.items():
        how = {"learn": {**_CREDIT, "kl_limit": limit}}
        given += [(run, _config(how, seed + i, start)) for i, run in enumerate(some)]
    side_by_side(go_on, given)
    yield from solved_rows("imitation", [start])
    yield from _ranked(runs)
    yield from _held(runs[_OURS], limited)


def _held(free: list[Path], limited: dict[float, list[Path]]) -> Iterator[ClaimRow]:
    """Ours with a limit on each update, and without."""
    for limit, some in limited.items():
        name = f"ledger, updates of at most {limit} KL"
        yield from solved_rows(name, some)
        yield reported(f"{name}, over those without a limit, solved, sampled", gained(some, free))
        kept = [[row["step_kept"] for row in RunFolder.open(run).metrics() if "step_kept" in row] for run in some]
        yield reported(f"{name}: share of updates that were cut", [float(np.mean([k < 1 for k in one] or [0])) for one in kept])


def _ranked(runs: dict[str, list[Path]]) -> Iterator[ClaimRow]:
    """The methods, each by itself, against `grpo`, and by rank."""
    for arm, some in runs.items():
        yield from solved_rows(arm, some)
        yield reported(f"{arm}: updates", [RunFolder.open(run).about["updates"] for run in some])
    for arm, some in runs.items():
        if arm != "grpo":
            yield reported(f"{arm} over grpo, solved, sampled", gained(some, runs["grpo"]))
    solved = [{arm: last_eval(some[i])["solved"] for arm, some in runs.items()} for i in range(len(runs["grpo"]))]
    places = [places_of(one) for one in solved]
    for arm in runs:
        yield reported(f"{arm}: rank among {len(runs)}", [one[arm] for one in places])
