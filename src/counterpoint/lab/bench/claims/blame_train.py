"""The shipped ranker made again, from planted mistakes and the labelled runs of Who&When that are at hand.

Always true: labelled runs are fitted with ridges that draw to what planted mistakes teach, weighed by folds held out; a ranker
without labelled runs of its shape of team knows planted mistakes alone. The weights are written where `BLAME_WEIGHTS` names a
file, and compared with the shipped ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from counterpoint.audits.blame.learning import averaged
from counterpoint.audits.blame.ranker import SHAPES, Ranker, shape_of, shipped
from counterpoint.errors import InputError
from counterpoint.lab.bench.blame_cases import CHATS, chats, column_names, ranker_of_chats, who_and_when
from counterpoint.lab.bench.claim import ClaimRow, at_most, reported

WRITE = "BLAME_WEIGHTS"
"""The variable that names the file to write the weights to."""


def blame_train(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Train the ranker that `blame` ships, from the cases of all seeds; `BLAME_WEIGHTS=FILE` keeps it."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    made, before = made_rankers(seed, seeds), {shape: shipped(shape) for shape in SHAPES}
    text = msgspec.json.format(msgspec.json.encode(made), indent=0)
    if path := os.environ.get(WRITE):
        Path(path).write_bytes(text)
    for shape, ranker in made.items():
        yield reported(f"{shape}: runs with planted mistakes", ranker.made["planted"])
        yield reported(f"{shape}: labelled runs of Who&When at hand", ranker.made["labelled"])
        yield reported(f"{shape}: held-out probability of the decisive step", ranker.made["held_out"])
        if ranker.names == before[shape].names:
            yield reported(f"{shape}: largest difference from the shipped weights", _apart(ranker, before[shape]))
    yield at_most("size of the weights, bytes", float(len(text)), 1_000_000)


def made_rankers(seed: int, seeds: int) -> dict[str, Ranker]:
    """A ranker for each shape of team, with what it was made of."""
    names = column_names(places=True, words=True)
    labelled = [k for k in who_and_when() if k.truth >= 0]
    out = {}
    for shape in SHAPES:
        ours = [k for s in range(seed, seed + seeds) for k in chats(s, shape, 2 * CHATS // seeds)]
        made = ranker_of_chats(ours, names, seed=seed)
        cases = [k.case(names, group=k.trace.task_id) for k in labelled if shape_of(k.steps) == shape]
        if cases:
            made = averaged(cases, names, made, is_weighed=True, seed=seed)[0]
        about = {
            "planted": float(len(ours)),
            "labelled": float(len(cases)),
            "held_out": made.made["held_out"],
            "seed": seed,
            "seeds": seeds,
        }
        out[shape] = msgspec.structs.replace(made, made=about, weight=_short(made.weight), mean=_short(made.mean))
    return out


def _apart(a: Ranker, b: Ranker) -> float:
    return float(np.abs(np.concatenate([a.weight, a.mean]) - np.concatenate([b.weight, b.mean])).max())


def _short(values: list[float]) -> list[float]:
    return [float(f"{v:.5g}") for v in values]
