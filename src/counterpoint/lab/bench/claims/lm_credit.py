"""Does finer credit teach a language model's team more? Team, agent and ledger credit at equal budget and step.

From imitated models (`fake:0.7`) the ledger hunt is played by teams of two and of eight workers. Every call is credited with its
team's score against the other teams on the task (team); a worker by what the last merge would lose without its return (agent); or
everybody by what changed the score of all that was returned so far (ledger).

What is equal. Teams: all play the same number on the same tasks, and groups without spread are not replaced; the counterfactuals
make a merge again and ask no model, so forks cost no calls. A group teaches agents where they differ, though their teams earned
the same. The normaliser: (x - mean) / (std + 0.05), of a team's score and of an agent's amount alike. The length of a step: at
one learning rate agent credit moves the model further, so every update is shortened to one KL per token (`learn.kl_limit`, from
twice the usual rate, which does not fall); the rows say how far the arms did move.

Starts, runs and held-out tasks are drawn by the seed (`_starts`); differences are taken run by run and task by task.

`counterpoint reproduce counterpoint.lab.bench.claims.lm_credit:eight_workers` is one width by itself (also `two_workers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from counterpoint.lab.bench.claim import ClaimRow, reported
from counterpoint.lab.bench.claims._language import (
    AT_ONCE,
    T1,
    another_model,
    folder_of,
    go_on,
    imitate_settings,
    ledger_hunt,
    side_by_side,
)
from counterpoint.lab.bench.claims._language import learn_settings as reinforced
from counterpoint.lab.bench.claims._starts import Starts, per_run, per_task

_SOFT = {"group_relative": {"ddof": 0, "eps": 0.05}}
"""The normaliser of the amounts of agents (`train.lm.advantages.normalise`), for teams too."""
_STEP: dict[str, Any] = {"lr": 2e-4, "last_rate": 1.0, "kl_limit": 0.002, "resample": 0, "options": _SOFT}
"""Team credit at half this rate moved 0.0020 nats per token in its first update, agent credit 0.0051: the limit binds both."""
_ARMS = {"team": ["group_relative"], "agent": ["group_relative", "difference"], "ledger": ["group_relative", "ledger"]}
_TWO: tuple[str, dict[str, Any], dict[str, int]] = "2 workers", T1, {"updates": 12, "groups": 16}
_EIGHT: tuple[str, dict[str, Any], dict[str, int]] = "8 workers", ledger_hunt(24, 8, width=8), {"updates": 8, "groups": 6}


def lm_credit(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Team, agent and ledger credit at equal budget, teams of 2 and 8 workers: the effect, whichever way it falls; needs CUDA."""
    for part in (two_workers, eight_workers):
        yield from part(seed=seed, seeds=seeds)


def two_workers(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with teams of 2."""
    yield from _credited(*_TWO, seed, seeds)


def eight_workers(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with teams of 8, who say four times as much."""
    yield from _credited(*_EIGHT, seed, seeds)


def _credited(team: str, task: dict[str, Any], length: dict[str, int], seed: int, seeds: int) -> Iterator[ClaimRow]:
    """One width: all arms of a run before the next run, so that what was cut off can still be compared."""
    yield from another_model()
    plan = Starts(folder_of("lm-credit") / team.replace(" ", "-"), seed, seeds)
    plan.begin({"task": [task], "imitate": imitate_settings(400)}, at_once=1)
    each = [plan.orders(arm, _settings(task, length, arm), at_once=AT_ONCE) for arm in _ARMS]
    side_by_side(go_on, [arm[k] for k in range(seeds) for arm in each])
    yield from plan.solved_rows(f"{team}: imitation", plan.starts, "starts")
    yield reported(f"{team}: imitation, score", plan.of_starts(per_task(plan.starts, "values")))
    runs = {arm: plan.runs(arm) for arm in _ARMS}
    for arm, some in runs.items():
        yield from _rows_of(plan, f"{team}: {arm} credit", some)
    for arm in ("agent", "ledger"):
        yield from _over(plan, f"{team}: {arm} over team credit", runs[arm], runs["team"])


def _settings(task: dict[str, Any], length: dict[str, int], arm: str) -> dict[str, Any]:
    return {"task": [task], "learn": reinforced(**length, **_STEP, credit=_ARMS[arm])}


def _rows_of(plan: Starts, name: str, runs: Sequence[Path]) -> Iterator[ClaimRow]:
    yield from plan.solved_rows(name, runs)
    yield reported(f"{name}, score", plan.of_runs(per_task(runs, "values")))
    yield reported(f"{name}, score while learning", plan.of_runs(per_run(runs, "score", after=1)))
    yield reported(f"{name}, nats per token that an update moves", plan.of_runs(per_run(runs, "kl_after")))


def _over(plan: Starts, name: str, runs: Sequence[Path], others: Sequence[Path]) -> Iterator[ClaimRow]:
    soon = per_run(runs, "score", after=1) - per_run(others, "score", after=1)
    yield reported(f"{name}, score while learning", plan.of_runs(soon))
    for key, word in (("successes", "solved"), ("greedy_successes", "greedy solved"), ("values", "score")):
        yield reported(f"{name}, {word}", plan.of_runs(per_task(runs, key) - per_task(others, key)))
