"""Blame learned from planted mistakes alone, tried on Who&When, beside every constant.

Each seed makes its own conversations of experts who err and trains its own ranker: the mean over four ridges, no choice between
them. Signals of absolute places and hashed words are not used: they are habits of a world. Beside it stands every constant
(always the n-th entry, always the n-th from the end), a step at random, and the step before the first tool error; the best of
these is what the ranker is held to: the lower end of the difference, paired by run. Intervals are over seeds and runs.

Always true: labels are read to judge, after the ranker is made.
"""

from __future__ import annotations

from collections.abc import Iterator

from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.blame_cases import (
    CHATS,
    agent_hits,
    chats,
    column_names,
    constants,
    error_rule,
    hits_of,
    needed_logs,
    ranker_of_chats,
)
from counterpoint.lab.bench.claim import ClaimRow
from counterpoint.lab.bench.claims._blame import gain_over_runs, over_runs, share_row


def blame_zero_shot(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Step and agent accuracy on Who&When of a ranker trained on planted mistakes alone, beside every constant and the rule."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    every = needed_logs()
    names = column_names(places=False, words=False)
    for part in sorted({k.world for k in every}):
        known = [k for k in every if k.world == part]
        shape = "led" if part == "hand-crafted" else "panel"
        rankers = [ranker_of_chats(chats(s, shape, CHATS), names, seed=s) for s in tracked(range(seed, seed + seeds), "seeds")]
        fixed = constants(known) | {"before the first tool error, else first": error_rule(known)}
        best = [max(fixed, key=lambda name: sum(fixed[name][which])) for which in (0, 1)]
        scores = [[r.sharpness * r.scores(k.case(names).x) for k in known] for r in rankers]
        step_SR = [hits_of(known, one)[0] for one in scores]
        agent_SR = [agent_hits(known, one) for one in scores]
        yield over_runs(f"{part} ({len(known)} runs): step", step_SR)
        yield gain_over_runs(f"{part}: step, over the best fixed rule ({best[0]})", step_SR, fixed[best[0]][0])
        yield over_runs(f"{part}: agent, by all its steps", agent_SR)
        yield gain_over_runs(f"{part}: agent, over the best fixed rule ({best[1]})", agent_SR, fixed[best[1]][1])
        yield over_runs(f"{part}: agent of the first suspect", [hits_of(known, one)[1] for one in scores])
        for name, (step, agent) in fixed.items():
            yield share_row(f"{part}: {name}: step", step)
            yield share_row(f"{part}: {name}: agent", agent)
