"""A language model learns more than it was shown: reinforcement beats a weak demonstrator, and more imitation.

A 135M model imitates teams of `fake:0.7` on the ledger hunt at its easiest, good and bad ones alike. From there it goes on in two
ways for the same device time: paid for its teams' scores (group-relative credit, clipped policy gradient), or imitating on. All
are held to the same 512 tasks, sampled and greedy. Each training seed has its own demonstrations, tasks and noise; differences
are taken seed by seed.

Always true: every number is from runs that are made now, or by an earlier part of the same claim (see `_language`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from counterpoint.bench.claim import ClaimRow, at_least, reported
from counterpoint.bench.claims._language import T1, demonstrator, folder_of, last_eval, made, scaled, side_by_side, usual
from counterpoint.train.folder import RunFolder

_SHOWN: dict[str, Any] = {"demos": "fake:0.7", "options": {"explore": 0.0}, "keep": "all", "lr": 3e-4}


def _part(folder: Path, seed: int, at_once: int) -> None:
    """One training seed: the start, then both ways on."""
    shown = _SHOWN | {"teams": scaled(2500), "steps": scaled(500), "batch": scaled(192)}
    start = made(folder / f"start-{seed}", usual(seed, at_once, task=[T1], imitate=shown, learn={"updates": 0}))
    again = usual(seed, at_once, task=[T1], model=str(start.path))
    learn = {"updates": scaled(16), "groups": scaled(16), "samples": scaled(12), "lr": 1e-4, "steps": 4, "cap": 0.0}
    learned = made(folder / f"learn-{seed}", again | {"imitate": {"steps": 0}, "learn": learn})
    seconds = learned.evals()[-1]["seconds"]["learn"]
    more = _SHOWN | {"teams": scaled(2500), "steps": 0, "seconds": seconds, "batch": scaled(192)}
    made(folder / f"more-{seed}", again | {"imitate": more, "learn": {"updates": 0}})


def lm_learn(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """From a weak demonstrator, reinforcement ends above it and above imitation alone at equal device time; needs CUDA."""
    folder = folder_of("lm-learn")
    chosen = range(seed, seed + seeds)
    side_by_side(_part, [(folder, one, seeds) for one in chosen])
    runs = {arm: [RunFolder.open(folder / f"{arm}-{one}") for one in chosen] for arm in ("start", "learn", "more")}
    shown = demonstrator(T1, "fake:0.7", {"explore": 0.0}, scaled(512))
    yield reported("demonstrator fake:0.7, solved", [shown])
    solved = {arm: [last_eval(run)["solved"] for run in some] for arm, some in runs.items()}
    greedy = {arm: [last_eval(run)["greedy_solved"] for run in some] for arm, some in runs.items()}
    for arm, name in (("start", "imitation"), ("learn", "then reinforcement"), ("more", "then as long imitation")):
        yield reported(f"{name}, solved, sampled", solved[arm])
        yield reported(f"{name}, solved, greedy", greedy[arm])
    yield at_least("reinforcement over the demonstrator, sampled", [x - shown for x in solved["learn"]], 0.0, by="low")
    over = [x - y for x, y in zip(solved["learn"], solved["more"], strict=True)]
    yield at_least("reinforcement over as long imitation, sampled", over, 0.0, by="low")
    over = [x - y for x, y in zip(greedy["learn"], greedy["more"], strict=True)]
    yield at_least("reinforcement over as long imitation, greedy", over, 0.0, by="low")
    yield reported("seconds of each way, on a shared GPU", [run.evals()[-1]["seconds"]["learn"] for run in runs["learn"]])
