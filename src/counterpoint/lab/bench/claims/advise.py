"""Advice from one run gains on others: the first habit that `counterpoint advise` names, on held-out runs.

Always true: advice is found on trials that share no episode and no question with the held-out ones; gains are with the advice
less without it, on the same held-out seeds; where the advice is to change nothing, the gain is 0 and counts. A gain is a share of
the world's optimum (TeamWorld), or points of the priced reward (text).

TeamWorld: hand-made policies that spawn too few or too many, stop too late or too early, or hire the wrong family, and one that
is nearly optimal. Text: teams of fakes on small ledger hunts and split evidence, whose agents and seconds cost (0.03 and 0.08),
with a topology, a width and a number of rounds drawn from the seed. Beside it: a change drawn from the same candidates, and the
habit that was advised most often, followed by every team that can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.credits.advice import Advice, Change
from counterpoint.credits.advice import advise as advised
from counterpoint.display import tracked
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._live import check_seeds, recorded
from counterpoint.lab.team.live_trials import LiveTrials
from counterpoint.lab.team.session import Spec
from counterpoint.lab.team.state import Limits
from counterpoint.lab.team.world_trials import WorldTrials
from counterpoint.lab.train.lm.advantages import less_prices
from counterpoint.lab.train.lm.settings import Prices
from counterpoint.lab.worlds.world import world
from counterpoint.trace import Trace
from counterpoint.trace.keyed import child_seed, purpose

_WORLDS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("W1", {"vote_items": 16}, "serial"),
    ("W1", {"vote_items": 16}, "spawn_all"),
    ("W1", {"vote_items": 16}, "reference"),
    ("W2", {}, "spawn_all"),
    ("W2", {}, "first_answer"),
    ("V", {"vote_items": 6}, "reference"),
)
_HUNT = {"documents": 12, "rows": 3, "parts": 3}
_EVIDENCE = {"claims": 4, "independents": 2, "clones": 2}
_TEAMS: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("ledger_hunt", _HUNT, ("centralized", "planner_executor_critic")),
    ("ledger_hunt", _HUNT, ("hierarchical", "swarm")),
    ("split_evidence", _EVIDENCE, ("debate",)),
    ("split_evidence", _EVIDENCE, ("centralized", "swarm")),
)
_PRICES = Prices(agent=0.03, second=0.08)
_WORLD_TRIALS, _TEXT_TRIALS = 24, 10
"""For each candidate."""
_WORLD_HELD_OUT, _TEXT_HELD_OUT = 200, 16


@dataclass
class _Case:
    """One team that gets advice."""

    group: str
    trials: Any
    advice: Advice
    seeds: list[int]
    scale: float
    rng: np.random.Generator

    def gain(self, change: Change | None) -> float:
        """On the held-out runs, as a share of the scale."""
        if change is None:
            return 0.0
        return float((self.trials.held_out(change, self.seeds) - self.plain).mean()) / self.scale

    def __post_init__(self) -> None:
        self.plain = self.trials.held_out(None, self.seeds)


def advise(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Each seed: six TeamWorld teams and four text teams."""
    yield from rows(seed, seeds, _WORLDS, _TEAMS)


def rows(seed: int, seeds: int, worlds: Any, teams: Any) -> Iterator[ClaimRow]:
    """The claim with any teams."""
    check_seeds(seeds)
    both = [_measured(s, worlds, teams) for s in tracked(range(seed, seed + seeds), "seeds")]
    found = [means for means, _ in both]
    for group in dict.fromkeys(name.partition(": ")[0] for f in found for name in f):
        told = lambda what, group=group: [f[f"{group}: {what}"] for f in found]  # noqa: E731
        each = [gain for _, gains in both for gain in gains[group]]  # every team of every seed is drawn by itself
        name = f"{group}: gain of the first advice on held-out runs, each team a sample"
        yield at_least(name, each, 0.0, by="low" if len(each) > 1 else "mean")
        yield reported(f"{group}: the same, means of seeds", told("advice"))
        yield reported(f"{group}: gain of a random change", told("random"))
        yield reported(f"{group}: gain of the change advised most often", told("frequent"))
        over = [a - max(r, m) for a, r, m in zip(told("advice"), told("random"), told("frequent"), strict=True)]
        yield at_least(f"{group}: advice less the better of the two", over, 0.0)
        yield reported(f"{group}: teams that were advised to change nothing", told("nothing"))
        yield at_least(f"{group}: first advice that said `helps` and gained on held-out runs", told("kept"), 0.9)


def _measured(seed: int, worlds: Any, teams: Any) -> tuple[dict[str, float], dict[str, list[float]]]:
    """The rows' numbers for one seed, and the gain of each team by its group."""
    cases = [_world_case(seed, *one) for one in worlds] + [_text_case(seed, *one) for one in teams]
    said = Counter(_habit(c.advice.first.change) for c in cases if c.advice.first is not None)
    out: dict[str, float] = {}
    every: dict[str, list[float]] = {}
    for group in dict.fromkeys(c.group for c in cases):
        mine = [c for c in cases if c.group == group]
        firsts = [c.advice.first for c in mine]
        gains = [c.gain(None if first is None else first.change) for c, first in zip(mine, firsts, strict=True)]
        every[group] = gains
        draws = [c.gain(c.trials.changes[int(c.rng.integers(len(c.trials.changes)))]) for c in mine]
        usual = [c.gain(_usual(c, said)) for c in mine]
        sure = [g > 0 for g, first in zip(gains, firsts, strict=True) if first is not None and first.verdict == "helps"]
        out |= {
            f"{group}: advice": float(np.mean(gains)),
            f"{group}: random": float(np.mean(draws)),
            f"{group}: frequent": float(np.mean(usual)),
            f"{group}: nothing": float(sum(first is None for first in firsts)),
            f"{group}: kept": float(np.mean(sure)) if sure else 1.0,
        }
    return out, every


def _habit(change: Change) -> str:
    return repr(sorted(change.habit.items()))


def _usual(case: _Case, said: Mapping[str, int]) -> Change | None:
    """The habit advised most often, of those that this team can follow."""
    able = {_habit(c): c for c in case.trials.changes}
    best = max((name for name in said if name in able), key=lambda name: (said[name], name), default=None)
    return None if best is None else able[best]


def _world_case(seed: int, name: str, dials: dict[str, Any], policy: str) -> _Case:
    key = purpose(f"advise {name} {policy}")
    made = world(name, **dials)
    trace = made.run(policy, [child_seed(seed, key) >> 16], log=True).trace(0)
    trials = WorldTrials(trace, made, seed=child_seed(seed, key, 1) >> 16)
    trials.changes = [c for c in trials.changes if c.is_habit]
    advice = advised(trials, trace.trace_id, budget=_WORLD_TRIALS * len(trials.changes), at_once=16)
    held_out = [child_seed(seed, key, 2, i) >> 16 for i in range(_WORLD_HELD_OUT)]
    return _Case("TeamWorld", trials, advice, held_out, made.optimum().value, np.random.default_rng([seed % 2**63, key % 2**31]))


def _text_case(seed: int, task: str, dials: dict[str, Any], topologies: tuple[str, ...]) -> _Case:
    key = purpose(f"advise {task} {topologies[0]}")
    rng = np.random.default_rng([seed % 2**63, key % 2**31])
    spec = Spec(
        task=task,
        config=dials,
        seed=int(rng.integers(1 << 31)),
        topology=str(rng.choice(list(topologies))),
        model=f"fake:{rng.uniform(0.6, 0.9):.2f}",
        options={"explore": 0.02},
        limits=Limits(width=int(rng.choice([2, 4, 6])), rounds=int(rng.integers(1, 4)), steps=40),
    )
    trace = recorded(spec)
    trials = LiveTrials(trace, value=_priced, seed=child_seed(seed, key, 1) >> 16)
    trials.changes = [c for c in trials.changes if c.is_habit]
    advice = advised(trials, trace.trace_id, budget=_TEXT_TRIALS * len(trials.changes))
    held_out = [int(x) for x in rng.integers(1 << 31, size=_TEXT_HELD_OUT)]
    return _Case("text", trials, advice, held_out, 1.0, rng)


def _priced(trace: Trace) -> float:
    return float(less_prices(trace, _PRICES).rewards["team"])
