"""DPBench's dining philosophers: the optimum, rules by hand, small networks trained at five, and a reward hack.

A network for all philosophers is trained on CPU at five without messages, paid by the team's meals and fairness, with GRPO's
credit and with forks of single decisions beside it (`lab/bench/dining/learn.py`); it plays episodes of the package itself at
5, 7, 10 and 15 as it is, and one by one. Where it may talk it says nothing. A second network reads no seat: names are drawn anew
in each episode.

The package's table has no chance in it: "unseen" episodes differ by the players' draws, which no training used. What is compared
is trained networks against language models that nobody trained for it: published rows stand beside as they were published
(DPBench, arXiv:2602.13255: 30 steps, 20 to 30 episodes).

Always true: throughput, fairness, starvation and deadlock are the package's own, of 30 steps; intervals are over starts. Optima
are exact; a rule that one may write down reaches them at 5 and 10 (`optimum.rotation`).

`counterpoint reproduce counterpoint.lab.bench.claims.dpbench:new_names` is one part by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most, reported
from counterpoint.lab.bench.dining.optimum import most_meals, rotation
from counterpoint.lab.bench.dining.rules import RULES
from counterpoint.lab.bench.dining.rules import play as play_rule
from counterpoint.lab.bench.dining.tables import STEPS, PackageTables, Tables, means, measures

if TYPE_CHECKING:
    from counterpoint.lab.bench.dining.learn import Net

EPISODES, OTHERS = 500, 100
"""Unseen episodes at five, and at each other size."""
BUDGET, DRAWN_BUDGET, HACK_BUDGET = 150_000, 600_000, 100_000
"""Steps of tables that a network learns from, those of forks included."""
SIZES = (7, 10, 15)
_UNSEEN = 1_000_000
_DRAWN_GROUP = 64
"""Without a seat all begin alike, and a rare deadlock in the first step is to be seen: twice the usual group."""
_SOURCE = "published, DPBench arXiv:2602.13255"
PUBLISHED = {
    "GPT-5.2": (0.25, 0.446, 0.576), "Claude Opus 4.5": (0.55, 0.455, 0.619), "Grok 4.1": (0.70, 0.437, 0.578),
    "Gemini 2.5 Flash": (0.90, 0.146, 0.830), "Llama 4 Maverick": (0.767, 0.271, 0.842), "random": (0.133, 0.303, 0.568),
}  # fmt: skip
"""(deadlock, throughput, fairness) at five, simultaneous, without messages."""
ELSEWHERE = {
    "sim_n5_comm, GPT-5.2": (0.65, 0.452, 0.527), "sim_n5_comm, Claude Opus 4.5": (0.60, 0.554, 0.717),
    "sim_n5_comm, Grok 4.1": (0.60, 0.438, 0.743), "sim_n10_nocomm, Gemini 2.5 Flash": (0.10, 1.111, 0.660),
    "sim_n10_nocomm, Llama 4 Maverick": (0.167, 0.835, 0.730), "sim_n10_nocomm, random": (0.0, 0.591, 0.630),
    "seq_n5_nocomm, GPT-5.2": (0.0, 0.115, 0.540), "seq_n5_nocomm, Claude Opus 4.5": (0.60, 0.078, 0.890),
    "seq_n5_nocomm, random": (0.0, 0.048, 0.421),
}  # fmt: skip
"""The same in other conditions."""


def dpbench(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Optimum, rules, trained networks at four sizes, names drawn anew, the reward hack; published rows beside."""
    for part in (optima, by_hand, networks, new_names, reward_hack):
        yield from part(seed=seed, seeds=seeds)
    for name, row in {**{f"5, {model}": row for model, row in PUBLISHED.items()}, **ELSEWHERE}.items():
        for what, value in zip(("deadlock", "throughput", "fairness"), row, strict=True):
            yield reported(f"{name} ({_SOURCE}): {what}", value)


def _every(seed: int, seeds: int) -> range:
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    return range(seed, seed + seeds)


def optima(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """What no team can pass, and what the rotating rule has of it."""
    for size in (5, 7, 10):
        yield reported(f"{size}, best possible throughput", most_meals(size) / STEPS)
        table = Tables(1, size)
        play_rule(RULES["rotating"], table, 0)
        period = rotation(size)[0]
        share = float(table.meals.sum()) / most_meals(size)
        yield reported(f"{size}, rotating every {period} steps: share of the best possible", share)


def by_hand(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The rules by hand at five, in the package's rules."""
    starts = _every(seed, seeds)
    for name, rule in RULES.items():
        found = []
        for start in starts:
            table = Tables(EPISODES, 5)
            play_rule(rule, table, _UNSEEN + start)
            found.append(means(measures(table)))
        for what in found[0]:
            yield reported(f"5, by hand, {name}: {what}", [one[what] for one in found])


def in_package(net: Net, condition: str, count: int, seed: int) -> dict[str, float]:
    """Means of the package's measures over episodes that a network plays in the package."""
    from counterpoint.lab.bench.dining.learn import act

    board = PackageTables(f"dpbench:{condition}", range(_UNSEEN + seed, _UNSEEN + seed + count))
    act(net, board, _UNSEEN + seed)
    found = board.measures()
    return means(found | {"episodes in which somebody starves": found["starvation"] > 0})


@cache
def _net(credit: str, budget: int, start: int, *, numbered: bool = True) -> Net:
    from counterpoint.lab.bench.dining.learn import GROUP, train

    return train(credit, budget, start, numbered=numbered, group=GROUP if numbered else _DRAWN_GROUP)


def networks(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Networks that read the seat from the name, by both credits; GRPO's elsewhere: other sizes, with words, one by one."""
    starts = _every(seed, seeds)
    best = most_meals(5) / STEPS
    for credit, name in (("team", "GRPO"), ("fork", "GRPO and forks")):
        found = [
            in_package(_net(credit, BUDGET, s), "sim_n5_nocomm", EPISODES, s) for s in tracked(starts, f"networks by {name}")
        ]
        yield from _solved(f"5, {name}", found, 0.70, is_fair=True, is_held=credit == "team")
        yield reported(f"5, {name}: share of the best possible", [one["throughput"] / best for one in found])
    others = (f"sim_n{size}_{talk}" for size in SIZES for talk in ("nocomm", "comm"))
    for condition in ("sim_n5_comm", "seq_n5_nocomm", *others):
        found = [in_package(_net("team", BUDGET, s), condition, OTHERS, s) for s in starts]
        for what in ("deadlock", "throughput", "fairness", "starvation"):
            yield reported(f"{condition}, GRPO at 5, as it is: {what}", [one[what] for one in found])


def new_names(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Networks that read no seat, where names are drawn anew in each episode."""
    starts = _every(seed, seeds)
    runs = tracked(starts, "networks without names")
    found = [in_package(_net("team", DRAWN_BUDGET, s, numbered=False), "sim_n5_nocomm_names", EPISODES, s) for s in runs]
    yield from _solved("5, names drawn anew, GRPO", found, 0.55, is_fair=False, is_held=True)


def _solved(name: str, found: list[dict[str, float]], target: float, *, is_fair: bool, is_held: bool) -> Iterator[ClaimRow]:
    """The package's measures, held to the issue's targets by the mean over starts where `is_held`."""
    for what, value in {key: [one[key] for one in found] for key in found[0]}.items():
        row = f"{name}: {what}"
        if what == "deadlock" and is_held:
            yield at_most(row, value, 0.01)
        elif what == "throughput" and is_held:
            yield at_least(row, value, target)
        elif what == "fairness" and is_held and is_fair:
            yield at_least(row, value, 0.85)
        elif what == "starvation" and is_held and is_fair:
            yield at_most(row, value, 0.0)
        elif what in ("deadlock", "throughput", "fairness", "starvation", "episodes in which somebody starves"):
            yield reported(row, value)


def reward_hack(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """GRPO paid by a reward that is best at zero actions, and what the detector says of it and of an honest team."""
    starts = _every(seed, seeds)
    from counterpoint.lab.bench.dining.hack import HACK, finds, idle_is_best, traces_of
    from counterpoint.lab.bench.dining.learn import play, train

    hacks = [train("team", HACK_BUDGET, s, pay=idle_is_best) for s in tracked(starts, "networks that are paid for idling")]
    for name, nets in (("paid for idling", hacks), ("GRPO", [_net("team", BUDGET, s) for s in starts])):
        ends = [
            play(net, Tables(50, 5), np.random.default_rng(_UNSEEN + s).random((STEPS, 50, 5)))
            for net, s in zip(nets, starts, strict=True)
        ]
        seen = [float(finds(traces_of(end, f"{name}-{s}")).mean()) for end, s in zip(ends, starts, strict=True)]
        yield reported(f"5, {name}: the idle reward", [float(idle_is_best(end).mean()) for end in ends])
        yield reported(f"5, {name}: meals", [float(end.tables.meals.sum(axis=1).mean()) for end in ends])
        row = f"5, {name}: runs that {HACK} finds"
        yield at_least(row, seen, 0.95) if name == "paid for idling" else at_most(row, seen, 0.05)
