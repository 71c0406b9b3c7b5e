"""Blame learned from labelled runs: nested cross-validation over the part of Who&When that is at hand.

Five outer folds, each judged by a ranker that has not seen it: the mean of rankers by all recipes (ridge, and for panels hashed
words and whether they are drawn to what planted mistakes teach), each weighed by how well it does on five inner folds of the
rest. The set of steps is calibrated on inner folds too. A seed is another split, and for panels other planted mistakes;
intervals are over splits and runs. The targets are the best that is published for all of Who&When (FALAT, arXiv 2606.00765);
the rows beside them are every constant, a step at random and the step before the first tool error. Three variants: as `blame`
ranks, with the right answer known (`with gold`), and with the labels of other runs, which says what places alone give.
`COUNTERPOINT_LM`, a name that `counterpoint models` lists or a path, adds what the surprise of that model gains.

Always true: no choice sees the outer fold; runs of one question stay in one fold; what `blame` says of a first suspect is tried
on runs that its bar was not fitted on. What a team with a ledger does was put into signals with its labels in view, and fourteen
runs written by hand are in every training fold (`expert_chat/ledger_runs.py`): these choices are outside the folds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

import counterpoint.registry as registry
from counterpoint.audits.blame.certainty import BAR
from counterpoint.audits.blame.judge import TILT
from counterpoint.audits.blame.learning import Case, averaged, folds, held_out, reach_of
from counterpoint.audits.blame.ledgers import LEDGER_SIGNALS
from counterpoint.audits.blame.ranker import Ranker
from counterpoint.audits.blame.signals import Surprise, surprising
from counterpoint.audits.blame.steps import Floats
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.blame_cases import (
    CHATS,
    GOLD_SIGNALS,
    LabelledRun,
    agent_cases,
    agent_hits,
    agent_ranker,
    chats,
    column_names,
    constants,
    error_rule,
    hits_of,
    ledger_ranker,
    near_hits,
    needed_logs,
    ranker_of_chats,
    ranks_of,
)
from counterpoint.lab.bench.claim import ClaimRow, reported
from counterpoint.lab.bench.claims._blame import (
    first_shares,
    gain_over_runs,
    likely_elsewhere,
    over_runs,
    share_row,
)
from counterpoint.lab.bench.claims._language import model

_TARGET = {"generated": 0.460, "hand-crafted": 0.291}
Make = Callable[[list[Case]], Ranker]


class HeldOut(NamedTuple):
    """Every run by a ranker that had no part in its fold."""

    runs: Sequence[LabelledRun]
    scores: list[Floats]
    sizes: list[int]
    """How many first steps are its set."""
    agents: list[float]
    """Whether the first agent is right."""


def blame_who_when(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Step and agent accuracy by nested cross-validation on Who&When, beside the published best and every constant."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    every = needed_logs()
    for part in sorted({k.world for k in every}):
        known = [k for k in every if k.world == part]
        held: dict[str, list[HeldOut]] = {"": [], " with gold": [], " with others' labels": []}
        for s in tracked(range(seed, seed + seeds), "seeds"):
            for variant, judged in held.items():
                some = _exchanged(known, s) if "labels" in variant else known
                judged.append(nested(some, maker(part, s, is_gold="gold" in variant), part, s, is_gold="gold" in variant))
        fixed = {**constants(known), "before the first tool error, else first": error_rule(known)}
        best = max(fixed, key=lambda name: sum(fixed[name][0]))
        step_SR = [hits_of(known, one.scores)[0] for one in held[""]]
        yield over_runs(f"{part} ({len(known)} runs): step", step_SR, _TARGET[part])
        yield gain_over_runs(f"{part}: step, over the best fixed rule ({best})", step_SR, fixed[best][0])
        yield reported(f"{part}: step, over the splits alone", [sum(row) / len(known) for row in step_SR])
        yield from _measures(part, known, held[""])
        yield from _sets(part, known, held[""])
        yield from _words(part, [one.scores for one in held[""]], step_SR, seed)
        if "COUNTERPOINT_LM" in os.environ:
            odd = registry.hook("surprise", "a language model reads texts")(model())
            yield from surprise_rows(f"{part}: step, with the surprise of {model()}", known, [h.scores for h in held[""]], odd)
        for variant in (" with gold", " with others' labels"):
            some_SR = [hits_of(one.runs, one.scores)[0] for one in held[variant]]
            yield over_runs(f"{part}{variant}: step", some_SR)
            yield over_runs(f"{part}{variant}: agent", [one.agents for one in held[variant]])
        for name, (step, agent) in fixed.items():
            yield share_row(f"{part}: {name}: step", step)
            yield share_row(f"{part}: {name}: agent", agent)


def _measures(part: str, known: Sequence[LabelledRun], held: Sequence[HeldOut]) -> Iterator[ClaimRow]:
    """The first three, within one entry of the log, and the agent."""
    yield over_runs(f"{part}: step among the first three", [[float(r <= 3) for r in ranks_of(known, h.scores)] for h in held])
    yield over_runs(f"{part}: step within one", [near_hits(known, h.scores) for h in held])
    yield over_runs(f"{part}: agent", [h.agents for h in held])
    yield over_runs(f"{part}: agent of the first suspect", [hits_of(known, h.scores)[1] for h in held])


def _sets(part: str, known: Sequence[LabelledRun], held: Sequence[HeldOut]) -> Iterator[ClaimRow]:
    """How often the set of nine in ten holds the labelled step, and how large it is."""
    inside = [[float(r <= size) for r, size in zip(ranks_of(known, h.scores), h.sizes, strict=True)] for h in held]
    yield over_runs(f"{part}: the set holds the step", inside)
    yield reported(f"{part}: steps in the set, median", float(np.median([h.sizes for h in held])))
    shares = [size / len(k.steps) for h in held for k, size in zip(known, h.sizes, strict=True)]
    yield reported(f"{part}: share of the run in the set", float(np.mean(shares)))
    yield reported(f"{part}: sets that are the whole run", float(np.mean([share >= 1 for share in shares])))


def _words(part: str, scores: Sequence[Sequence[Floats]], step_SR: Sequence[Sequence[float]], seed: int) -> Iterator[ClaimRow]:
    """How often first suspects are right on either side of the bar; and above a bar that other runs chose for `likely`."""
    share_SR, hits_SR = first_shares(scores), np.asarray(step_SR)
    for what, is_part in (("below", share_SR < BAR), ("from", share_SR >= BAR)):
        if is_part.any():
            runs = is_part.any(axis=0).sum()
            yield reported(
                f"{part}: right {what} {BAR:.0%} ({is_part.sum()} rankings, {runs} runs)", float(hits_SR[is_part].mean())
            )
    right, said = likely_elsewhere(share_SR, hits_SR, seed)
    yield reported(f"{part}: right above a bar for one in two, fitted on other runs", right)
    yield reported(f"{part}: rankings above such a bar", said)


def surprise_rows(
    name: str, known: Sequence[LabelledRun], scores_SR: Sequence[Sequence[Floats]], odd: Surprise
) -> Iterator[ClaimRow]:
    """The step where what a model finds odd tilts the odds, as `blame --surprise` has it, and the gain over the ranking alone."""
    tilts = [TILT * surprising(k.steps, odd) for k in known]
    told = [hits_of(known, [s + tilt for s, tilt in zip(row, tilts, strict=True)])[0] for row in scores_SR]
    yield over_runs(name, told)
    yield gain_over_runs(f"{name}: gain", told, [hits_of(known, row)[0] for row in scores_SR], has_target=False)


def _columns(part: str, *, is_gold: bool) -> list[str]:
    own = list(LEDGER_SIGNALS) if part == "hand-crafted" else column_names(places=True, words=True)
    return own + (list(GOLD_SIGNALS) if is_gold else [])


def maker(part: str, seed: int, *, is_gold: bool) -> Make:
    """What makes a ranker from labelled runs; cases whose label is on no step teach nothing."""
    names = _columns(part, is_gold=is_gold)
    if part == "hand-crafted":
        return lambda some: ledger_ranker([c for c in some if c.truth >= 0], seed, names)
    prior = ranker_of_chats(chats(seed, "panel", CHATS), names, seed=seed)
    return lambda some: averaged([c for c in some if c.truth >= 0], names, prior, is_weighed=True, seed=seed)[0]


def nested(known: Sequence[LabelledRun], make: Make, part: str, seed: int, *, is_gold: bool) -> HeldOut:
    """The scores, sets and agents of every run by rankers, recipes and calibrations that its fold had no part in."""
    cases = [k.case(_columns(part, is_gold=is_gold)) for k in known]
    scores, sizes = [np.zeros(0)] * len(cases), [0] * len(cases)
    for fold in folds(cases, 5, seed):
        rest = [c for i, c in enumerate(cases) if i not in set(fold.tolist())]
        ranker = replace(make(rest), reach=reach_of(rest, held_out(rest, make, 5, seed)))
        for i in fold.tolist():
            n = len(cases[i].x)
            scores[i], sizes[i] = ranker.sharpness * ranker.scores(cases[i].x), ranker.set_size(n) or n
    if part != "hand-crafted":
        return HeldOut(known, scores, sizes, agent_hits(known, scores))
    agents = agent_cases(known)
    first = held_out(agents, lambda some: agent_ranker(some, seed), 5, seed)
    told = [float(k.agent == k.trace.events[k.steps.places[_first_of(k, int(np.argmax(s)))]].agent)
            for k, s in zip(known, first, strict=True)]  # fmt: skip
    return HeldOut(known, scores, sizes, told)


def _first_of(known: LabelledRun, agent: int) -> int:
    """The first candidate of an agent, counted in the order in which they begin."""
    return list(known.steps.agents).index(list(dict.fromkeys(known.steps.agents))[agent])


def _exchanged(known: Sequence[LabelledRun], seed: int) -> list[LabelledRun]:
    """Each run with the label of another: its place where there is such a step, else a random one, and who speaks there."""
    rng = np.random.default_rng([seed % (1 << 32), 48])
    out = []
    for k, other in zip(known, rng.permutation(len(known)).tolist(), strict=True):
        place = known[other].truth
        truth = place if 0 <= place < len(k.steps) else int(rng.integers(len(k.steps)))
        agent = k.trace.events[k.steps.places[truth]].agent
        out.append(LabelledRun(k.trace, k.steps, truth, agent, k.world))
    return out
