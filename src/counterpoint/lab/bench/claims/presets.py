"""Every preset improves on its own start: what a few updates add, in a world that suits it, seed by seed.

Always true: a run's start and end play the same unseen tasks with the same noise, as in training (choices are drawn: before it
has learned, a greedy policy is a set of coin tosses). A row is the mean over seeds of (end - start) / start of a run of `UPDATES`
updates; the target is that the lower end of its interval is above 0. Budgets are not equal between presets, so that rows say
nothing about which is better: `counterpoint compare methods` does.

`counterpoint reproduce counterpoint.lab.bench.claims.presets:malt` is the row of one preset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.display import tracked
from counterpoint.lab.bench.claim import ClaimRow, at_least
from counterpoint.lab.train.preset import named_preset
from counterpoint.lab.worlds.teamworld.suites import CRITIC

UPDATES, TASKS = 28, 300
_FIRST = 5_000
# Easy questions: luck is small, so that a few hundred episodes are enough to learn from a team's reward alone.
EASY: Mapping[str, Any] = {
    "vote_items": 12, "max_votes": 3, "max_rounds": 16, "max_agents": 12, "skill_a": [0.97] * 3, "skill_b": [0.99] * 3,
    "misconception_a": [0.0] * 3, "misconception_b": [0.0] * 3,
}  # fmt: skip
_FREE: Mapping[str, Any] = {
    "price": [0.0, 0.0], "brief_price": 0.0, "judge_price": 0.0, "spawn_price": 0.01, "misconception_a": [0.0] * 3,
    "misconception_b": [0.0] * 3,
}  # fmt: skip
# Who is paid for answers alone is judged where answers are all that costs: a debate in which a second look helps, a board, and
# tasks of one call each.
_DEBATE: Mapping[str, Any] = {
    **_FREE, "vote_items": 6, "max_votes": 8, "votes_per_agent": 8, "max_rounds": 24, "max_agents": 4, "types": 1,
    "skill_a": [0.7] * 3, "skill_b": [0.7] * 3, "refine_gain": 0.6, "round_price": 0.005,
}  # fmt: skip
_BOARD: Mapping[str, Any] = {
    **_DEBATE, "vote_items": 4, "max_votes": 3, "max_rounds": 4, "round_price": 0.01, "refine_gain": 0.3
}  # fmt: skip
_ONE_CALL: Mapping[str, Any] = {
    **_FREE, "vote_items": 2, "max_votes": 1, "max_rounds": 4, "max_agents": 16, "skill_a": [0.5] * 3, "skill_b": [0.99] * 3,
    "mismatch": 0.0, "spawn_price": 0.001, "round_price": 0.005, "proposal_flaws": [0.0] * 3, "judge_false_accept": 0.05,
    "judge_false_reject": 0.05,
}  # fmt: skip
# Values that are learned by temporal differences, a round at a time: few questions and rounds, one family much better. One answer
# for each question, calls free: whom to ask is all there is. Attempts at one question, as MARTI-MARS2 has it, where one family is
# no better than chance.
_UNEVEN: Mapping[str, Any] = {**EASY, "vote_items": 6, "max_agents": 6, "max_rounds": 8, "skill_a": [0.6] * 3}
_COIN: Mapping[str, Any] = {**_FREE, "types": 1, "skill_a": [0.5] * 3, "skill_b": [0.99] * 3}
_WHOM: Mapping[str, Any] = {**_COIN, "vote_items": 6, "max_votes": 1, "max_rounds": 6, "max_agents": 8}
_ATTEMPTS: Mapping[str, Any] = {**_COIN, "vote_items": 1, "max_votes": 4, "max_rounds": 8, "max_agents": 8}
# Six small pools, in which every call pays: who learns slowly, or from calls played again, sees what it does.
_SEARCH: Mapping[str, Any] = {**CRITIC.set, "vote_items": 0, "pool_items": 6}
SUITED: Mapping[str, Mapping[str, Any]] = {
    "maporl": _DEBATE, "comas": _DEBATE, "learning_to_deliberate": _DEBATE, "agent_qmix": _BOARD, "mae": _ONE_CALL,
    "sage": _ONE_CALL, "vdn": _UNEVEN, "qmix": _UNEVEN, "difference_rewards": _WHOM, "marti_mars2": _ATTEMPTS,
    "c3_replay": _SEARCH, "dec_pomdp": _SEARCH, "puppeteer": _SEARCH, "magrpo": _ATTEMPTS,
}  # fmt: skip
"""Where it is not `EASY`. What a preset needs of a world (acts, judges, a proposer, a second side) is added to either."""


def presets(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Each preset but cloning, which learns from a log; a run per seed."""
    for name in registry.ids("preset"):
        if name != "clone":
            yield row(name, range(seed, seed + seeds))


def row(name: str, runs: Sequence[int]) -> ClaimRow:
    """What one preset adds to its own start."""
    gains = [gain(name, run) for run in tracked(runs, f"training runs of {name}")]
    return at_least(f"{name}: gain over its start", gains, 0.0, by="low")


def gain(name: str, run: int) -> float:
    """(end - start) / start of one run, over the same unseen tasks."""
    from counterpoint.lab.train.jobs import play
    from counterpoint.lab.train.policies.network import Network
    from counterpoint.lab.train.rollouts import play_out
    from counterpoint.lab.train.settings import settings_of
    from counterpoint.lab.train.training import Training

    world = {**SUITED.get(name, EASY), **named_preset(name).world}
    settings = {"preset": name, "world": "W1", "set": world, "updates": UPDATES, "budget_calls": 0, "seed": run}
    training = Training(settings_of(settings))
    seeds = _FIRST + 10_000 * run + np.arange(TASKS)

    # opponents and proposers are those of the start
    beside = {k: v for k, v in training.weights().items() if k.startswith(("extra.attack", "extra.proposal"))}

    def value() -> float:
        net = Network.of(training.weights() | beside, apart=training.preset.regime == "C")
        workers = training.preset.regime in "BC"
        out = play_out(training.worlds[0].config, net, seeds, np.zeros(TASKS, np.int64), workers=workers)
        return float(out.values.mean())

    start = value()
    while not training.is_done:
        job = training.job(training.update, training.update, training.weights())
        training.learn([play(job.payload, job.weights)])
    return (value() - start) / abs(start)


def __getattr__(name: str) -> Callable[..., Iterator[ClaimRow]]:
    """The claim of one preset alone."""
    if name not in registry.ids("preset"):
        raise AttributeError(name)

    def one(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
        """One preset over its own start."""
        yield row(name, range(seed, seed + seeds))

    return one
