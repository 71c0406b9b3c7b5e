"""The shipped ranker made again, from planted mistakes and the labelled runs of Who&When that are at hand.

Always true: labelled runs are fitted with ridges that draw to what planted mistakes teach, weighed by folds held out; a ranker
without labelled runs of its shape of team knows planted mistakes alone. Those of a team with a ledger, and of its agents, come
from labelled runs alone; where there are none the shipped ones stay. How far down the ranking the labelled step is comes from
folds held out. The weights are written where `BLAME_WEIGHTS` names a file, and compared with the shipped ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from counterpoint.audits.blame.learning import averaged, held_out, reach_of
from counterpoint.audits.blame.ledgers import LEDGER_SIGNALS
from counterpoint.audits.blame.ranker import AGENTS, SHAPES, Ranker, shape_of, shipped
from counterpoint.errors import InputError
from counterpoint.lab.bench.blame_cases import (
    CHATS,
    LabelledRun,
    agent_cases,
    agent_ranker,
    chats,
    column_names,
    ledger_ranker,
    ranker_of_chats,
    who_and_when,
)
from counterpoint.lab.bench.claim import ClaimRow, at_most, reported

WRITE = "BLAME_WEIGHTS"
"""The variable that names the file to write the weights to."""


def blame_train(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Train the ranker that `blame` ships, from the cases of all seeds; `BLAME_WEIGHTS=FILE` keeps it."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    made, before = made_rankers(seed, seeds), {shape: shipped(shape) for shape in (*SHAPES, AGENTS)}
    text = msgspec.json.format(msgspec.json.encode(made), indent=0)
    if path := os.environ.get(WRITE):
        Path(path).write_bytes(text)
    for shape, ranker in made.items():
        yield reported(f"{shape}: runs with planted mistakes", ranker.made["planted"])
        yield reported(f"{shape}: share of the steps that holds the labelled one in nine of ten", ranker.reach)
        yield reported(f"{shape}: labelled runs of Who&When at hand", ranker.made["labelled"])
        yield reported(f"{shape}: held-out probability of the decisive step", ranker.made["held_out"])
        if ranker.names == before[shape].names:
            yield reported(f"{shape}: largest difference from the shipped weights", _apart(ranker, before[shape]))
    yield at_most("size of the weights, bytes", float(len(text)), 1_000_000)


def made_rankers(seed: int, seeds: int) -> dict[str, Ranker]:
    """A ranker for each shape of team, and one of agents, with what it was made of."""
    names = column_names(places=True, words=True)
    labelled = [k for k in who_and_when() if k.truth >= 0]
    out = {}
    for shape in ("panel", "led"):
        ours = [k for s in range(seed, seed + seeds) for k in chats(s, shape, 2 * CHATS // seeds)]
        made = ranker_of_chats(ours, names, seed=seed)
        cases = [k.case(names, group=k.trace.task_id) for k in labelled if shape_of(k.steps) == shape]
        reach = 1.0
        if cases:
            prior = made
            make = lambda some, prior=prior: averaged(some, names, prior, is_weighed=True, seed=seed)[0]  # noqa: E731
            made, reach = make(cases), reach_of(cases, held_out(cases, make, 5, seed))
        about = {
            "planted": float(len(ours)),
            "labelled": float(len(cases)),
            "held_out": made.made["held_out"],
            "seed": seed,
            "seeds": seeds,
        }
        out[shape] = _written(made, about, reach)
    return out | _with_ledger([k for k in labelled if shape_of(k.steps) == "ledger"], seed)


def _with_ledger(known: Sequence[LabelledRun], seed: int) -> dict[str, Ranker]:
    """The rankers of teams with a ledger, of steps and of agents; the shipped ones where no labelled run is at hand."""
    if not known:
        return {name: shipped(name) for name in ("ledger", AGENTS)}
    out = {}
    for name, cases, make in (
        ("ledger", [k.case(LEDGER_SIGNALS) for k in known], lambda some: ledger_ranker(some, seed)),
        (AGENTS, agent_cases(known), lambda some: agent_ranker(some, seed)),
    ):
        made = make(cases)
        about = {"planted": 0.0, "labelled": float(len(cases)), "held_out": made.made["held_out"], "seed": seed}
        out[name] = _written(made, about, reach_of(cases, held_out(cases, make, 5, seed)))
    return out


def _written(made: Ranker, about: dict[str, float], reach: float) -> Ranker:
    reach = float(f"{reach:.5g}")
    return msgspec.structs.replace(made, made=about, reach=reach, weight=_short(made.weight), mean=_short(made.mean))


def _apart(a: Ranker, b: Ranker) -> float:
    return float(np.abs(np.concatenate([a.weight, a.mean]) - np.concatenate([b.weight, b.mean])).max())


def _short(values: list[float]) -> list[float]:
    return [float(f"{v:.5g}") for v in values]
