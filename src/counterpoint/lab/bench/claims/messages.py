"""What a message was worth, and who can tell without forks: labels by coupled forks, and a board of estimators.

Teams of test doubles on T1 to T6 and at the table of five (where dpbench is installed), four samples of each instance; every
message is deleted under four noises that both arms share (`counterpoint.lab.bench.messages`). Estimators that see the finished
run alone, and one fork on the run's own noise, are ranked against the labels. No target but what must hold: a message that
nobody reads is worth exactly 0. Ranks, calibration and cost are as they are, with the labels' own noise beside them, so that "no
difference" can be told from "could not be seen".

Labels are in $COUNTERPOINT_RUNS (else ./runs), claims/messages, a folder a seed, in parts of 16 runs: the same command goes on
where it was cut off, and what is there is not made again. `counterpoint bench messages FOLDER` prints the whole table.

With a language model (COUNTERPOINT_LM, a name of `counterpoint models`; the shipped `smollm2-135m-ledger` has learned T1, and
speaks for every team) the same claim labels its teams by two pairs of forks, in as many processes as there are cores but one,
each with an engine on the GPU where there is one, else in one process on the CPU; it judges the messages, too. On a machine that
is lent for ten minutes at a time and whose files come back in pieces of 16 MiB, a seed for each call; what was cut off goes on
from the pieces that came back, which are put into IN (here carried/):

    export IN=carried COUNTERPOINT_LM=smollm2-135m-ledger COUNTERPOINT_RUNS=/tmp/m COUNTERPOINT_MESSAGES=2400
    mkdir -p /tmp/m; ls $IN/messages.tar.* 2> /dev/null && cat $IN/messages.tar.* | tar x -C /tmp/m
    nvidia-cuda-mps-control -d 2> /dev/null  # kernels of several processes side by side
    timeout -s INT 450 counterpoint reproduce messages --seed 7100 --seeds 1 --json > $OUT/rows.jsonl
    tar c -C /tmp/m . | split -b 15000000 - $OUT/messages.tar.

What came back is ranked anywhere, whole or not: `counterpoint bench messages FOLDER`, with `--model local:NAME` for the judge.
COUNTERPOINT_MESSAGES is the number of runs of a seed (100 where it is not said). A trial on a CPU, whose numbers mean nothing:
COUNTERPOINT_LM=TINY COUNTERPOINT_MESSAGES=8.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import NO_TARGET, ClaimRow, reported
from counterpoint.lab.bench.claims._live import check_seeds, none
from counterpoint.lab.bench.intervals import Estimate
from counterpoint.lab.bench.messages.board import board_row, ceiling, scores
from counterpoint.lab.bench.messages.estimators import ESTIMATORS, Batch, Estimates
from counterpoint.lab.bench.messages.labels import judge_of, make
from counterpoint.lab.bench.messages.plan import SAMPLES, Plan
from counterpoint.lab.bench.messages.rows import MessageRow, read_messages
from counterpoint.trace import Trace

_RUNS = 100
FREE = ("masked replay", "provenance", "shapley", "c3", "c3, by place", "regression")
"""Those that are compared with the best of the plain columns."""
PLAIN = ("kind", "readers", "length", "late")


def messages(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Label a hundred runs a seed, and rank who can tell what their messages were worth."""
    check_seeds(seeds)
    folders = [_place() / str(s) for s in range(seed, seed + seeds)]
    for s, folder in zip(range(seed, seed + seeds), folders, strict=True):
        make(folder, plan_of(s), _count(), workers=_workers())
    yield from rows(folders, _model())


def _model() -> str:
    return os.environ.get("COUNTERPOINT_LM", "")


def _place() -> Path:
    name = f"messages-{Path(_model()).name}" if _model() else "messages"
    return Path(os.environ.get("COUNTERPOINT_RUNS", "runs")) / "claims" / name


def _count() -> int:
    said = os.environ.get("COUNTERPOINT_MESSAGES", str(_RUNS))
    if not said.isdigit() or int(said) < SAMPLES:
        raise InputError(f"{said!r} is no number of runs", where="COUNTERPOINT_MESSAGES", fix=f"{SAMPLES} or more")
    return int(said)


def _is_gpu() -> bool:
    from counterpoint.lab.bench.claims._language import has_gpu

    return bool(_model()) and has_gpu()


def _workers() -> int:
    """Processes at once: of a language model on a GPU as many as there are cores but one; else one."""
    return max(1, (os.cpu_count() or 2) - 1) if _is_gpu() else 1


def plan_of(seed: int) -> Plan:
    """What a seed labels."""
    if not _model():
        return Plan(seed=seed)
    options: dict[str, Any] = {"device": "cuda", "batch": 64} if _is_gpu() else {}
    return Plan(seed=seed, model=f"local:{_model()}", options=options, k=2)


def rows(folders: Sequence[Path], model: str = "") -> Iterator[ClaimRow]:
    """The claim on folders that are there."""
    found: list[MessageRow] = []
    places: list[Mapping[str, Trace]] = []
    for folder in folders:
        one = read_messages(folder)
        found += [r for r in one.rows if r.is_label and r.change == "delete"]
        places.append(one.runs())
    labels = tuple(found)
    yield from _of_labels(labels)
    judge = judge_of(f"local:{model}", {"device": "cuda"} if _is_gpu() else {}) if model else None
    batch = Batch(labels, ChainMap(*places), judge)  # type: ignore[arg-type]  # read only
    estimates = {name: make_(batch) for name, make_ in ESTIMATORS.items()}
    for name, one_found in estimates.items():
        yield from _of_estimator(name, labels, one_found)
    yield from _over_plain(labels, estimates)


def _of_labels(labels: tuple[MessageRow, ...]) -> Iterator[ClaimRow]:
    top = ceiling(labels)
    yield reported("labelled messages", top.messages)
    yield reported("instances of four runs", top.instances)
    yield reported("messages that changed nothing in any fork", top.zeros)
    unread = [r for r in labels if r.readers == 0]
    yield reported("messages that nobody reads", len(unread))
    yield none("labels of these other than exactly 0", sum(not r.is_zero for r in unread))
    yield reported("calls of a label", top.calls)
    yield from _row("Spearman of half the pairs with the other half, in a run", top.halves)
    yield from _row("the same among non-zero messages", top.nonzero_halves)
    yield from _row("Spearman of one pair of forks with the other pairs, in a run", top.single)
    if top.ceiling is not None:
        yield reported("ceiling of Spearman in a run, by the labels' noise", top.ceiling)
    if top.nonzero_ceiling is not None:
        yield reported("ceiling among non-zero messages", top.nonzero_ceiling)


def _row(name: str, found: Estimate) -> Iterator[ClaimRow]:
    """A mean; no row where no run has an order."""
    if found.mean is not None:
        yield ClaimRow(name, found.mean, found.low, found.high, NO_TARGET, True)


def _of_estimator(name: str, labels: tuple[MessageRow, ...], found: Estimates) -> Iterator[ClaimRow]:
    row = board_row(name, labels, found)
    if row.why_not:
        return
    yield reported(f"{name}: share of messages it has a number for", row.covers)
    yield from _row(f"{name}: Spearman in a run", row.within)
    yield from _row(f"{name}: among non-zero messages", row.nonzero)
    for what, value in (("pooled", row.pooled), ("slope of labels on it", row.slope), ("intervals that hold", row.holds)):
        if value is not None:
            yield reported(f"{name}: {what}", value)
    yield reported(f"{name}: calls a message", row.calls)


def _over_plain(labels: tuple[MessageRow, ...], estimates: Mapping[str, Estimates]) -> Iterator[ClaimRow]:
    """Each estimator less the best plain column, instance by instance: the interval says what could have been seen."""
    each = {name: scores(labels, found).within for name, found in estimates.items() if found.values}
    best = max((name for name in PLAIN if each.get(name)), key=lambda name: float(np.mean(list(each[name].values()))), default="")
    for name in ("leave-one-out", *FREE, "message_logged", "judge") if best else ():
        if name in each:
            less = [value - each[best][group] for group, value in each[name].items()]
            yield reported(f"{name} less {best}: Spearman in a run, by instance", less)
