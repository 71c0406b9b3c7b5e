"""Does finer credit teach a language model's team more? Team, agent and ledger credit at equal budget.

From one imitated model (`fake:0.7`) the ledger hunt is played by teams of two and of eight workers. Every call is credited with
its team's score against the other teams on the task (team); a worker by what the last merge would lose without its return
(agent); or everybody by what changed the score of all that was returned so far (ledger). All play the same number of teams: the
counterfactuals make a merge again and ask no model, so forks cost no calls. Seeds, tasks and first samples are the same for all.

At the same learning rate, updates by agent credit move the model further, by 1.8 times on the calls that they learn from. So two
controls have team credit at 1.4 times the rate, which with eight workers should move the model as far as agent credit does in the
first update (0.0051 nats per token; team credit moves it 0.0020, and at twice the rate 0.0136), and at twice the rate: what agent
credit has more than those is not the length of its steps.

`counterpoint reproduce counterpoint.lab.bench.claims.lm_credit:eight_workers` is one width by itself, `:eight_workers_control`
its controls (also `two_workers`, `two_workers_control`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from counterpoint.lab.bench.claim import ClaimRow, reported
from counterpoint.lab.bench.claims._language import (
    AT_ONCE,
    T1,
    begun,
    folder_of,
    gained,
    go_on,
    imitate_settings,
    last_eval,
    ledger_hunt,
    moved_by_updates,
    score_while_learning,
    side_by_side,
    solved_rows,
    usual,
)
from counterpoint.lab.bench.claims._language import learn_settings as reinforced

_ARMS: dict[str, dict[str, Any]] = {
    "team": {"credit": ["group_relative"]},
    "agent": {"credit": ["group_relative", "difference"]},
    "ledger": {"credit": ["group_relative", "ledger"]},
    "matched": {"credit": ["group_relative"], "lr": 1.4e-4},
    "control": {"credit": ["group_relative"], "lr": 2e-4},
}
_NAMES = {"matched": "team credit at 1.4 times the rate", "control": "team credit at twice the rate"}
_TWO: tuple[str, dict[str, Any], dict[str, int]] = "2 workers", T1, {"updates": 12, "groups": 16}
_EIGHT: tuple[str, dict[str, Any], dict[str, int]] = "8 workers", ledger_hunt(24, 8, width=8), {"updates": 8, "groups": 6}


def lm_credit(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Team, agent and ledger credit at equal budget, teams of 2 and 8 workers: the effect, whichever way it falls; needs CUDA."""
    for part in (two_workers, eight_workers, two_workers_control, eight_workers_control):
        yield from part(seed=seed, seeds=seeds)


def two_workers(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with teams of 2."""
    yield from _credited(*_TWO, seed, seeds)


def eight_workers(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with teams of 8, who say four times as much."""
    yield from _credited(*_EIGHT, seed, seeds)


def two_workers_control(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The controls of teams of 2."""
    yield from _held_to_longer_steps(*_TWO, seed, seeds)


def eight_workers_control(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The controls of teams of 8."""
    yield from _held_to_longer_steps(*_EIGHT, seed, seeds)


def _credited(team: str, task: dict[str, Any], length: dict[str, int], seed: int, seeds: int) -> Iterator[ClaimRow]:
    """One width."""
    start, runs = _made(team, task, length, seed, seeds, ("team", "agent", "ledger"))
    yield from solved_rows(f"{team}: imitation", [start])
    yield reported(f"{team}: imitation, score", [last_eval(start)["score"]])
    for arm, some in runs.items():
        yield from _rows_of(team, arm, some)
    for arm in ("agent", "ledger"):
        yield from _over(team, arm, runs[arm], "team", runs["team"])


def _held_to_longer_steps(team: str, task: dict[str, Any], length: dict[str, int], seed: int, seeds: int) -> Iterator[ClaimRow]:
    """One width's controls, and what agent credit has more than them."""
    _, runs = _made(team, task, length, seed, seeds, ("agent", *_NAMES))
    for arm in _NAMES:
        yield from _rows_of(team, arm, runs[arm])
        yield from _over(team, "agent", runs["agent"], arm, runs[arm])


def _made(
    team: str, task: dict[str, Any], length: dict[str, int], seed: int, seeds: int, arms: Sequence[str]
) -> tuple[Path, dict[str, list[Path]]]:
    """The start, and each arm's runs: all arms of a seed before the next seed, so that what was cut off can still be compared."""
    folder = folder_of("lm-credit") / team.replace(" ", "-")
    start = begun(folder, seed, usual(seed, 1, task=[task], imitate=imitate_settings(400)))
    runs = {arm: [folder / f"{arm}-{seed}-{one}" for one in range(seed, seed + seeds)] for arm in arms}
    given = []
    for i in range(seeds):
        for arm in arms:
            how = {"model": str(start), "imitate": {"steps": 0}, "learn": reinforced(**length, **_ARMS[arm])}
            given.append((runs[arm][i], usual(seed + i, AT_ONCE, task=[task], **how)))
    side_by_side(go_on, given)
    return start, runs


def _rows_of(team: str, arm: str, runs: Sequence[Path]) -> Iterator[ClaimRow]:
    name = f"{team}: {_NAMES.get(arm, f'{arm} credit')}"
    yield from solved_rows(name, runs)
    yield reported(f"{name}, score", [last_eval(run)["score"] for run in runs])
    yield reported(f"{name}, score while learning", [score_while_learning(run) for run in runs])
    yield reported(f"{name}, nats per token that an update moves", [moved_by_updates(run) for run in runs])


def _over(team: str, arm: str, runs: Sequence[Path], other: str, others: Sequence[Path]) -> Iterator[ClaimRow]:
    name = f"{team}: {arm} over {_NAMES.get(other, f'{other} credit')}"
    soon = [score_while_learning(a) - score_while_learning(b) for a, b in zip(runs, others, strict=True)]
    yield reported(f"{name}, score while learning", soon)
    for key in ("solved", "greedy_solved", "score"):
        yield reported(f"{name}, {key.replace('_', ' ')}", gained(runs, others, key))
