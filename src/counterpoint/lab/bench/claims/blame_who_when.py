"""Blame learned from labelled runs: nested cross-validation over the part of Who&When that is at hand.

Five outer folds, each judged by a ranker that has not seen it: the mean of rankers by all recipes (ridge, hashed words, whether
they are drawn to what planted mistakes teach), each weighed by how well it does on five inner folds of the rest. A seed is
another split, and other planted mistakes. The targets are the best that is published for all of Who&When (FALAT, arXiv
2606.00765); the rows beside them are every constant, a step at random and the step before the first tool error.

Always true: no choice sees the outer fold; runs of one question stay in one fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from counterpoint.audits.blame.judge import STANDS_OUT
from counterpoint.audits.blame.learning import Case, averaged, held_out
from counterpoint.audits.blame.ranker import Ranker, softmax
from counterpoint.audits.blame.steps import Floats
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.blame_cases import (
    CHATS,
    LabelledRun,
    agent_hits,
    chats,
    column_names,
    constants,
    error_rule,
    hits_of,
    needed_logs,
    ranker_of_chats,
)
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported

_TARGET = {"generated": 0.460, "hand-crafted": 0.291}


def blame_who_when(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Step and agent accuracy by nested cross-validation on Who&When, beside the published best and every constant."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    every = needed_logs()
    names = column_names(places=True, words=True)
    for part in sorted({k.world for k in every}):
        known = [k for k in every if k.world == part]
        shape = "led" if part == "hand-crafted" else "panel"
        scores = [
            _nested(known, names, ranker_of_chats(chats(s, shape, CHATS), names, seed=s), s)
            for s in tracked(range(seed, seed + seeds), "seeds")
        ]
        told = [hits_of(known, one) for one in scores]
        yield at_least(f"{part} ({len(known)} runs): step", [sum(step) / len(known) for step, _ in told], _TARGET[part])
        yield reported(f"{part}: agent, by all its steps", [sum(agent_hits(known, one)) / len(known) for one in scores])
        yield reported(f"{part}: agent of the first suspect", [sum(agent) / len(known) for _, agent in told])
        yield from _bars(part, shape, scores, [step for step, _ in told])
        yield reported(f"{part}: step, over the runs", [sum(row) / len(row) for row in zip(*(s for s, _ in told), strict=True)])
        for name, (step, agent) in {**constants(known), "before the first tool error, else first": error_rule(known)}.items():
            yield reported(f"{part}: {name}: step", sum(step) / len(known))
            yield reported(f"{part}: {name}: agent", sum(agent) / len(known))


def _bars(part: str, shape: str, scores: Sequence[Sequence[Floats]], right: Sequence[Sequence[float]]) -> Iterator[ClaimRow]:
    """How often first suspects were right below the bar from which a step is named, and from it on."""
    bar = STANDS_OUT[shape]
    every = [
        (float(softmax(s).max()), hit) for one, hits in zip(scores, right, strict=True) for s, hit in zip(one, hits, strict=True)
    ]
    for what, some in (("below", [hit for p, hit in every if p < bar]), ("from", [hit for p, hit in every if p >= bar])):
        if some:
            yield reported(f"{part}: right {what} {bar:.0%} ({len(some)} rankings)", sum(some) / len(some))


def _nested(known: Sequence[LabelledRun], names: Sequence[str], prior: Ranker, seed: int) -> list[Floats]:
    """The scores of every run by a ranker, and a recipe, that its fold had no part in."""
    cases = [k.case(names, group=k.trace.task_id) for k in known]

    def make(some: list[Case]) -> Ranker:
        able = [c for c in some if c.truth >= 0]
        return averaged(able, names, prior, is_weighed=True, seed=seed)[0]

    return held_out(cases, make, 5, seed)
