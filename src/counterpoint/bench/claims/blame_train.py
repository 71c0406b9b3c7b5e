"""The shipped ranker made again, from planted mistakes and the labelled runs of Who&When that are at hand.

Always true: labelled runs are fitted with a ridge that draws to what planted mistakes teach, averaged over recipes; without
labelled runs it knows planted mistakes alone. The weights are written where `BLAME_WEIGHTS` names a file, and compared with the
shipped ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from counterpoint.audit.blame.learning import averaged
from counterpoint.audit.blame.ranker import Ranker, shipped
from counterpoint.bench.blame_cases import column_names, planted, ranker_of_planted, who_and_when
from counterpoint.bench.claim import ClaimRow, at_most, reported
from counterpoint.errors import InputError

WRITE = "BLAME_WEIGHTS"
"""The variable that names the file to write the weights to."""


def blame_train(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Train the ranker that `blame` ships, from the cases of all seeds; `BLAME_WEIGHTS=FILE` keeps it."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    made = made_ranker(seed, seeds)
    text = msgspec.json.format(msgspec.json.encode(made), indent=0)
    if path := os.environ.get(WRITE):
        Path(path).write_bytes(text)
    yield reported("cases planted by us", made.made["planted"])
    yield reported("labelled runs of Who&When at hand", made.made["labelled"])
    yield reported("held-out probability of the decisive step (geometric mean)", made.made["held_out"])
    yield at_most("size of the weights, bytes", float(len(text)), 1_000_000)
    if made.names == shipped().names:
        ours, theirs = (np.concatenate([r.weight, r.mean]) for r in (made, shipped()))
        yield reported("largest difference from the shipped weights", float(np.abs(ours - theirs).max()))


def made_ranker(seed: int, seeds: int) -> Ranker:
    """The ranker of these seeds, with what it was made of."""
    names = column_names(places=True, words=True)
    ours = [k for s in range(seed, seed + seeds) for k in planted(s, chats=120, teams=1, worlds=2)]
    labelled = [k.case(names, group=k.trace.trace_id) for k in who_and_when() if k.truth >= 0]
    prior = ranker_of_planted(ours, names, seed=seed)
    if not labelled:
        made, loss = prior, float("nan")
    else:
        made, loss = averaged(labelled, names, prior, seed=seed)
    about = {
        **made.made,
        "planted": float(len(ours)),
        "labelled": float(len(labelled)),
        "held_out": float(np.exp(-loss)),
        "seed": seed,
        "seeds": seeds,
    }
    return msgspec.structs.replace(made, made=about, weight=_short(made.weight), mean=_short(made.mean))


def _short(values: list[float]) -> list[float]:
    return [float(f"{v:.5g}") for v in values]
