"""A language model that learned on small teams is used on larger tasks and in wider teams, as it is.

The models of `lm-learn` (two workers, eight papers) play the ledger hunt with more papers, more rows to find and more workers.
Nothing is trained. What imitation alone had made of the model stands beside each.

`counterpoint reproduce counterpoint.lab.bench.claims.lm_transfer:eight_workers` is one size by itself (also `two_workers`,
`four_workers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from counterpoint.lab.bench.claim import ClaimRow, reported
from counterpoint.lab.bench.claims._language import AT_ONCE, by_hand, folder_of, held_out, ledger_hunt, side_by_side
from counterpoint.lab.bench.claims._starts import of_tasks, per_task
from counterpoint.lab.bench.claims.lm_learn import learned


def lm_transfer(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """What was learned on eight papers and two workers, used on up to 32 papers and eight workers; needs CUDA."""
    for part in (two_workers, four_workers, eight_workers):
        yield from part(seed=seed, seeds=seeds)


def two_workers(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with twelve papers and two workers."""
    yield from _used("12 papers, 2 workers", "size0", ledger_hunt(12, 2, width=2), seed, seeds)


def four_workers(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with sixteen papers and four workers."""
    yield from _used("16 papers, 4 workers", "size1", ledger_hunt(16, 4, width=4), seed, seeds)


def eight_workers(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with 32 papers and eight workers."""
    yield from _used("32 papers, 8 workers", "size2", ledger_hunt(32, 8, width=8), seed, seeds)


def _used(name: str, tag: str, task: dict[str, Any], seed: int, seeds: int) -> Iterator[ClaimRow]:
    """One size."""
    plan, runs = learned(seed, seeds)
    starts, mine = ([folder_of("lm-transfer") / f"{tag}-{run.name}" for run in some] for some in (plan.starts, runs))
    given = zip((*starts, *mine), (*plan.starts, *runs), strict=True)
    side_by_side(held_out, [(to, run, task, plan.first, AT_ONCE) for to, run in given])
    rewards, solved = by_hand([task], "fake:0.7", {"explore": 0.0}, {}, first=plan.first)
    yield reported(f"{name}: demonstrator fake:0.7, solved", of_tasks(solved))
    yield reported(f"{name}: demonstrator fake:0.7, score", of_tasks(rewards))
    for key, word in (("successes", "solved"), ("greedy_successes", "greedy_solved"), ("values", "score")):
        yield reported(f"{name}: imitation, {word}", plan.of_starts(per_task(starts, key)))
        yield reported(f"{name}: reinforcement, {word}", plan.of_runs(per_task(mine, key)))
