"""Blame learned from labelled runs: nested cross-validation over the part of Who&When that is at hand.

Five outer folds, each judged by a ranker that has not seen it: the mean of rankers by all recipes (ridge, hashed words, whether
they are drawn to what planted mistakes teach), each weighed by how well it does on five inner folds of the rest. A seed is
another split, and other planted mistakes; intervals are over splits and runs. The targets are the best that is published for
all of Who&When (FALAT, arXiv 2606.00765); the rows beside them are every constant, a step at random and the step before the first
tool error. The shipped ranker is tried as it is on runs with a lead, of which it saw none.

Always true: no choice sees the outer fold; runs of one question stay in one fold; what `blame` says of a first suspect is tried
on runs that its bar was not fitted on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from counterpoint.audits.blame.certainty import BAR
from counterpoint.audits.blame.learning import Case, averaged, held_out
from counterpoint.audits.blame.ranker import Ranker, shipped
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
from counterpoint.lab.bench.claim import ClaimRow, reported
from counterpoint.lab.bench.claims._blame import (
    first_shares,
    gain_over_runs,
    likely_elsewhere,
    over_runs,
    share_row,
)

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
        step_SR = [hits_of(known, one)[0] for one in scores]
        fixed = {**constants(known), "before the first tool error, else first": error_rule(known)}
        best = max(fixed, key=lambda name: sum(fixed[name][0]))
        yield over_runs(f"{part} ({len(known)} runs): step", step_SR, _TARGET[part])
        yield gain_over_runs(f"{part}: step, over the best fixed rule ({best})", step_SR, fixed[best][0])
        yield reported(f"{part}: step, over the splits alone", [sum(row) / len(known) for row in step_SR])
        yield over_runs(f"{part}: agent, by all its steps", [agent_hits(known, one) for one in scores])
        yield over_runs(f"{part}: agent of the first suspect", [hits_of(known, one)[1] for one in scores])
        yield from _words(part, scores, step_SR, seed)
        if shape == "led":
            yield from _as_shipped(part, known)
        for name, (step, agent) in fixed.items():
            yield share_row(f"{part}: {name}: step", step)
            yield share_row(f"{part}: {name}: agent", agent)


def _words(part: str, scores: Sequence[Sequence[Floats]], step_SR: Sequence[Sequence[float]], seed: int) -> Iterator[ClaimRow]:
    """How often first suspects are right on either side of the bar; and above a bar that other runs chose for `likely`."""
    share_SR, hits_SR = first_shares(scores), np.asarray(step_SR)
    for what, is_part in (("below", share_SR < BAR), ("from", share_SR >= BAR)):
        if is_part.any():
            yield reported(f"{part}: right {what} {BAR:.0%} ({is_part.sum()} rankings)", float(hits_SR[is_part].mean()))
    right, said = likely_elsewhere(share_SR, hits_SR, seed)
    yield reported(f"{part}: right above a bar for one in two, fitted on other runs", right)
    yield reported(f"{part}: rankings above such a bar", said)


def _as_shipped(part: str, known: Sequence[LabelledRun]) -> Iterator[ClaimRow]:
    """The shipped ranker on runs of which it saw none."""
    ranker = shipped("led")
    scores = [ranker.sharpness * ranker.scores(k.case(ranker.names).x) for k in known]
    yield share_row(f"{part}: shipped ranker, step", hits_of(known, scores)[0])
    yield share_row(f"{part}: shipped ranker, agent by all its steps", agent_hits(known, scores))


def _nested(known: Sequence[LabelledRun], names: Sequence[str], prior: Ranker, seed: int) -> list[Floats]:
    """The scores of every run by a ranker, and a recipe, that its fold had no part in."""
    cases = [k.case(names, group=k.trace.task_id) for k in known]

    def make(some: list[Case]) -> Ranker:
        able = [c for c in some if c.truth >= 0]
        return averaged(able, names, prior, is_weighed=True, seed=seed)[0]

    return held_out(cases, make, 5, seed)
