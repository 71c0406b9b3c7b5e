"""Does finer credit teach a language model's team more? Team, agent and ledger credit at equal budget.

From one imitated model (`fake:0.7`) the ledger hunt is played by teams of two and of eight workers. Every call is credited with
its team's score against the other teams on the task (team); a worker by what the last merge would lose without its return
(agent); or everybody by what changed the score of all that was returned so far (ledger). All play the same number of teams: the
counterfactuals make a merge again and ask no model, so forks cost no calls. Seeds, tasks and first samples are the same for all.

`counterpoint reproduce counterpoint.bench.claims.lm_credit:eight_workers` is one width by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from counterpoint.bench.claim import ClaimRow, reported
from counterpoint.bench.claims._language import (
    AT_ONCE,
    T1,
    begun,
    folder_of,
    gained,
    go_on,
    last_eval,
    ledger_hunt,
    score_while_learning,
    shown,
    side_by_side,
    solved_rows,
    usual,
)
from counterpoint.bench.claims._language import played as reinforced

_CREDITS = {"team": ["group_relative"], "agent": ["group_relative", "difference"], "ledger": ["group_relative", "ledger"]}


def lm_credit(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Team, agent and ledger credit at equal budget, teams of 2 and 8 workers: the effect, whichever way it falls; needs CUDA."""
    yield from two_workers(seed=seed, seeds=seeds)
    yield from eight_workers(seed=seed, seeds=seeds)


def two_workers(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with teams of 2."""
    yield from _credited("2 workers", T1, {"updates": 12, "groups": 16}, seed, seeds)


def eight_workers(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with teams of 8, who say four times as much."""
    yield from _credited("8 workers", ledger_hunt(24, 8, width=8), {"updates": 8, "groups": 6}, seed, seeds)


def _credited(team: str, task: dict[str, Any], length: dict[str, int], seed: int, seeds: int) -> Iterator[ClaimRow]:
    """One width: all credits of a seed before the next seed, so that what was cut off can still be compared."""
    folder = folder_of("lm-credit") / team.replace(" ", "-")
    start = begun(folder, seed, usual(seed, 1, task=[task], imitate=shown(400)))
    runs = {credit: [folder / f"{credit}-{seed}-{one}" for one in range(seed, seed + seeds)] for credit in _CREDITS}
    given = []
    for i in range(seeds):
        for credit, names in _CREDITS.items():
            how = {"model": str(start), "imitate": {"steps": 0}, "learn": reinforced(**length, credit=names)}
            given.append((runs[credit][i], usual(seed + i, AT_ONCE, task=[task], **how)))
    side_by_side(go_on, given)
    yield from solved_rows(f"{team}: imitation", [start])
    yield reported(f"{team}: imitation, score", [last_eval(start)["score"]])
    for credit, some in runs.items():
        yield from solved_rows(f"{team}: {credit} credit", some)
        yield reported(f"{team}: {credit} credit, score", [last_eval(run)["score"] for run in some])
    soon = {credit: [score_while_learning(run) for run in some] for credit, some in runs.items()}
    for credit, scores in soon.items():
        yield reported(f"{team}: {credit} credit, score while learning", scores)
    for credit in ("agent", "ledger"):
        over = [a - b for a, b in zip(soon[credit], soon["team"], strict=True)]
        yield reported(f"{team}: {credit} over team credit, score while learning", over)
        for key in ("solved", "score"):
            yield reported(f"{team}: {credit} over team credit, {key}", gained(runs[credit], runs["team"], key))
