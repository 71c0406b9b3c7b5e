"""Blame learned from planted mistakes alone, tried on Who&When, beside every constant.

Each seed makes its own conversations of experts who err and trains its own ranker: the mean over four ridges, no choice between
them. Signals of absolute places and hashed words are not used: they are habits of a world. Beside it stands every constant
(always the n-th entry, always the n-th from the end), a step at random, and the step before the first tool error; the best of
these is the target. A constant's value is exact; the ranker's interval is over the seeds, and one more row says how much the
runs at hand leave open.

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
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported


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
        best = [max(sum(rows[which]) / len(known) for rows in fixed.values()) for which in (0, 1)]
        scores = [[r.sharpness * r.scores(k.case(names).x) for k in known] for r in rankers]
        told = [hits_of(known, one) for one in scores]
        over = [sum(step) / len(known) for step, _ in told]
        yield at_least(f"{part} ({len(known)} runs): step", over, best[0] + 1e-9)
        yield at_least(
            f"{part}: agent, by all its steps", [sum(agent_hits(known, one)) / len(known) for one in scores], best[1] + 1e-9
        )
        yield reported(f"{part}: agent of the first suspect", [sum(agent) / len(known) for _, agent in told])
        yield reported(f"{part}: step, over the runs, first seed", told[0][0])
        for name, (step, agent) in fixed.items():
            yield reported(f"{part}: {name}: step", sum(step) / len(known))
            yield reported(f"{part}: {name}: agent", sum(agent) / len(known))
