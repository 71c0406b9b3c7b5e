"""Published methods on a language model, side by side: from one imitated model, at equal device time.

Each preset brings its rewards, its credit and its loss; on equal terms are the model, the start, the tasks, the teams of an
update, the learning rate and its fall, and the seconds of reinforcement (the runs share the GPU, as many at once in every
batch). All of them change one set of weights, whatever the regime of their source: the roles of regimes A and C are told apart
by their calls alone, which departs from sources with networks apart. Ours is team credit with the ledger's shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from counterpoint.bench.claim import ClaimRow, reported
from counterpoint.bench.claims._language import (
    AT_ONCE,
    T1,
    begun,
    folder_of,
    go_on,
    last_eval,
    scale,
    shown,
    side_by_side,
    solved_rows,
    usual,
)
from counterpoint.bench.claims._language import played as reinforced
from counterpoint.train.folder import RunFolder

PRESETS = ("grpo", "dr_mas", "m_grpo", "c3", "sharp", "magrpo", "matpo", "agent_lightning", "sirius")
_SECONDS = 90.0


def _arms() -> dict[str, dict[str, Any]]:
    """What differs between the runs."""
    ours = {"learn": {"credit": ["group_relative", "ledger"]}}
    return {"ledger (ours)": ours} | {name: {"preset": name, "learn": {}} for name in PRESETS}


def lm_methods(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Nine published methods and ours on a language model, one start, equal device time: as it falls; needs CUDA."""
    folder = folder_of("lm-methods")
    start = begun(folder, seed, usual(seed, 1, task=[T1], imitate=shown(500)))
    runs: dict[str, list[Any]] = {}
    given = []
    for i in range(seeds):  # a seed of every method before the next one, so that a claim made in parts has whole comparisons
        for arm, how in _arms().items():
            run = folder / f"{arm.split()[0]}-{seed}-{seed + i}"
            runs.setdefault(arm, []).append(run)
            told = {**reinforced(0), "updates": 0, "seconds": max(1.0, _SECONDS * scale()), **how["learn"]}
            told.pop("steps")  # a method may say how many
            more = {"task": [T1], "model": str(start), "imitate": {"steps": 0}, "adapters": "", "learn": told}
            given.append((run, usual(seed + i, AT_ONCE, **more, **{k: v for k, v in how.items() if k == "preset"})))
    side_by_side(go_on, given)
    yield from solved_rows("imitation", [start])
    for arm, some in runs.items():
        yield from solved_rows(arm, some)
        yield reported(f"{arm}: updates", [RunFolder.open(run).about["updates"] for run in some])
    for arm, some in runs.items():
        if arm != "grpo":
            over = [last_eval(a)["solved"] - last_eval(b)["solved"] for a, b in zip(some, runs["grpo"], strict=True)]
            yield reported(f"{arm} over grpo, solved, sampled", over)
    solved = np.array([[last_eval(run)["solved"] for run in some] for some in runs.values()])
    better, same = (solved[None] > solved[:, None]).sum(1), (solved[None] == solved[:, None]).sum(1)
    for arm, places in zip(runs, better + (same + 1) / 2, strict=True):  # equal ones share the mean of their ranks
        yield reported(f"{arm}: rank among {len(runs)}", [float(x) for x in places])
