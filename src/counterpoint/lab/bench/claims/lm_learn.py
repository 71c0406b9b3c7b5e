"""A language model learns more than it was shown: reinforcement beats a weak demonstrator, and more imitation.

A 135M model imitates teams of `fake:0.7` on the ledger hunt at its easiest, good and bad ones alike. From there it goes on in two
ways for the same device time: paid for its teams' scores (group-relative credit, clipped policy gradient), or imitating on. All
are held to the same 512 tasks, sampled and greedy. Training seeds begin with one imitated model; each has its own tasks, samples
and batches, and differences are taken seed by seed.

The device time is that of the first seed's reinforcement, alone on the GPU, all that it compiles included; what imitation could
make of it, by its step alone on the GPU, is what each control is given. The other seeds share the GPU.

Always true: every number is from runs that are made now, or by an earlier part of the same claim (see `_language`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._language import (
    AT_ONCE,
    T1,
    begun,
    by_hand,
    folder_of,
    gained,
    go_on,
    imitate_settings,
    last_eval,
    seconds_per_step,
    side_by_side,
    solved_rows,
    usual,
)
from counterpoint.lab.bench.claims._language import learn_settings as reinforced
from counterpoint.lab.train.folder import RunFolder


def learned(folder: Path, seed: int, seeds: int) -> tuple[Path, list[Path]]:
    """The start, and the runs that reinforcement made of it."""
    start = begun(folder, seed, usual(seed, 1, task=[T1], imitate=imitate_settings(500)))
    how = {"task": [T1], "model": str(start), "imitate": {"steps": 0}, "learn": reinforced(14)}
    runs = [folder / f"learn-{seed}-{one}" for one in range(seed, seed + seeds)]
    given = [(run, usual(seed + i, AT_ONCE if i else 1, **how)) for i, run in enumerate(runs)]
    side_by_side(go_on, given[:1])
    side_by_side(go_on, given[1:])
    return start, runs


def lm_learn(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """From a weak demonstrator, reinforcement ends above it and above imitation alone at equal device time; needs CUDA."""
    folder = folder_of("lm-learn")
    start, runs = learned(folder, seed, seeds)
    seconds = last_eval(runs[0])["seconds"]["learn"]
    steps = round(seconds / seconds_per_step(start))
    more = [folder / f"more-{seed}-{one}" for one in range(seed, seed + seeds)]
    how = {"task": [T1], "model": str(start), "imitate": imitate_settings(1) | {"steps": steps}, "learn": {"updates": 0}}
    side_by_side(go_on, [(run, usual(seed + i, AT_ONCE, **how)) for i, run in enumerate(more)])
    fakes = float(by_hand([T1], "fake:0.7", {"explore": 0.0}, {})[1].mean())
    yield reported("demonstrator fake:0.7, solved", [fakes])
    yield from solved_rows("imitation", [start])
    yield from solved_rows("then reinforcement", runs)
    yield from solved_rows("then as long imitation", more)
    for name, key in (("sampled", "solved"), ("greedy", "greedy_solved")):
        over = [last_eval(run)[key] - fakes for run in runs]
        yield at_least(f"reinforcement over the demonstrator, {name}", over, 0.0, by="low")
        yield at_least(f"reinforcement over as long imitation, {name}", gained(runs, more, key), 0.0, by="low")
    yield reported("seconds of reinforcement, alone on the GPU", [seconds])
    yield reported("steps that imitation makes in them", [steps])
    yield reported("teams that reinforcement played", [RunFolder.open(run).about["spent"]["episodes"] for run in runs])
