"""Coupled forks of live teams: shared noise makes message credit cheaper, and exactly 0 where nobody reads.

Small teams of fake models, recorded, on T1 in five topologies and T4 in three, dials drawn from the seed. Of each run three
returns and one other message, drawn, get their deletion credit by k = 4 replicates: once with both arms on the same noise, once
on independent noise, the same number of forks. The variance of an estimate is its squared standard error, and the ratio is of
sums over messages.

What to expect: the claim `message_credit` has, in a simulator, an error of 0.42 against 0.88 at k = 8, a ratio of about 0.23.
This is not a promise for other teams: where a message comes late, or a team settles everything by vote, both variances are small
and their ratio says little (debate); and where an order is deleted, the orchestrator's later turns may no longer line up with
the recorded ones, and then share no noise. So what is held is that for returns coupling is better than fresh noise, with its
whole interval, and that both have the same mean; for other messages the ratio is reported.

Always true: an unread message is one that no recorded edge leads away from; runs are stored and read back before they are forked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from counterpoint.credits.mechanisms.message_delete import message_delete
from counterpoint.display import tracked
from counterpoint.lab.bench.claim import NO_TARGET, ClaimRow, at_most, equal_within
from counterpoint.lab.bench.claims._live import check_seeds, none, recorded, reported
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec
from counterpoint.lab.team.state import Limits
from counterpoint.trace import Trace
from counterpoint.trace.keyed import child_seed, purpose
from counterpoint.trace.rows import Credit

_K, _UNREAD, _TRIES = 4, 3, 12
_MESSAGES = {"return": 3, "message": 1}
_TEAMS = (
    *(("ledger_hunt", t) for t in ("centralized", "debate", "hierarchical", "planner_executor_critic", "swarm")),
    *(("split_evidence", t) for t in ("centralized", "hierarchical", "planner_executor_critic")),
)
_SHORT = {"ledger_hunt": "T1", "split_evidence": "T4"}
_MANY_ERRORS = 4.5  # a z-value this large does not come from chance, whatever the seed


class _Pair(NamedTuple):
    """The credits of one run's messages, both ways."""

    team: str
    coupled: Credit
    fresh: Credit
    returns: frozenset[str]

    def variances(self, *, of_returns: bool) -> tuple[float, float]:
        """Summed over its returns, or over its other messages: coupled, fresh."""
        one, two = (
            sum((r.se or 0.0) ** 2 for r in credit.rows if (r.unit_id in self.returns) is of_returns)
            for credit in (self.coupled, self.fresh)
        )
        return one, two


def live_coupling(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Each seed: eight teams, four messages of each, both kinds of noise; and messages that nobody reads."""
    yield from rows(seed, seeds, _TEAMS, _K)


def rows(seed: int, seeds: int, teams: tuple[tuple[str, str], ...], k: int) -> Iterator[ClaimRow]:
    """The claim at any size."""
    check_seeds(seeds)
    found = [[_pair(task, topology, s, k) for task, topology in teams] for s in tracked(range(seed, seed + seeds), "seeds")]
    every = [pair for pairs in found for pair in pairs]
    ratios = [_ratio(pairs, of_returns=True) for pairs in found]
    name = f"variance of credit, coupled over fresh, k = {k}"
    yield at_most(f"{name}: returns", ratios, 1.0, by="high" if seeds > 1 else "mean")
    yield reported(f"{name}: orders and statements", [_ratio(pairs, of_returns=False) for pairs in found])
    for team in dict.fromkeys(p.team for p in every):
        mine = [p for p in every if p.team == team]
        yield ClaimRow(f"{team}: returns, all seeds in one", _ratio(mine, of_returns=True), None, None, NO_TARGET, True)
    yield ClaimRow("forks, coupled less fresh", *_forks(every), "= 0", _forks(every)[0] == 0)
    # One number per run: the messages of a run share their noise. In some runs nobody says anything.
    spoke = [list(zip(p.coupled.rows, p.fresh.rows, strict=True)) for p in every if p.coupled.rows]
    gaps = np.array([np.mean([a.value - b.value for a, b in run]) for run in spoke])
    yield equal_within("coupled less fresh credit, in standard errors", _z(gaps), 0.0, _MANY_ERRORS)
    yield from _unread(seed, seeds)


def _spec(task: str, topology: str, rng: np.random.Generator, *, explore: float) -> Spec:
    dials: dict[str, Any] = (
        {"documents": int(rng.integers(22, 32)), "rows": int(rng.integers(3, 6)), "parts": int(rng.integers(3, 5))}
        if task == "ledger_hunt"
        else {"claims": int(rng.integers(4, 9)), "independents": int(rng.integers(2, 4)), "clones": int(rng.integers(1, 4))}
    )
    return Spec(
        task=task,
        config=dials,
        seed=int(rng.integers(1 << 31)),
        topology=topology,
        model=f"fake:{rng.uniform(0.55, 0.85):.2f}",
        options={"explore": explore, "gullible": 0.0},
        limits=Limits(width=int(rng.integers(3, 5)), steps=40, rounds=1),
    )


def _pair(task: str, topology: str, s: int, k: int) -> _Pair:
    number = child_seed(s, purpose(f"live coupling {task} {topology}")) >> 16
    rng = np.random.default_rng(number)
    trace = recorded(_spec(task, topology, rng, explore=0.02))
    ids: list[str] = []
    for kind, count in _MESSAGES.items():
        said = [e.id for e in trace.events if e.type == kind and e.agent != "user"]
        ids += [str(at) for at in rng.choice(said, min(count, len(said)), replace=False)]
    coupled, fresh = (
        message_delete([trace], replay=LiveReplay(), k=k, seed=number, coupled=is_coupled, ids=ids)
        for is_coupled in (True, False)
    )
    returns = frozenset(e.id for e in trace.events if e.type == "return")
    return _Pair(f"{_SHORT[task]} {topology}", coupled, fresh, returns)


def _ratio(pairs: list[_Pair], *, of_returns: bool) -> float:
    """Of sums; 1 where no noise reaches the reward at all."""
    one, two = map(sum, zip(*(p.variances(of_returns=of_returns) for p in pairs), strict=True))
    return one / two if two else 1.0


def _forks(pairs: list[_Pair]) -> tuple[float, None, None]:
    return float(sum(p.coupled.cost.forks - p.fresh.cost.forks for p in pairs)), None, None


def _z(gaps: np.ndarray) -> float:
    error = float(gaps.std(ddof=1)) / np.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
    return float(gaps.mean() / error) if error else 0.0


# -- messages that nobody reads ------------------------------------------------------------------------------------------


def _unread(seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Leads that answer while their workers still work: what these return is recorded, and nobody hears it."""
    values: list[float] = []
    loud: list[float] = []
    for s in tracked(range(seed, seed + seeds), "seeds"):
        mine = 0
        for i in range(_TRIES):
            number = child_seed(s, purpose("live coupling, unread"), i) >> 16
            rng = np.random.default_rng(number)
            trace = recorded(_spec("ledger_hunt", "hierarchical", rng, explore=0.2))
            ids = _nobody_reads(trace)[: _UNREAD - mine]
            if ids:
                args: dict[str, Any] = {"replay": LiveReplay(), "k": 3, "seed": number, "ids": ids}
                values += [abs(r.value) + (r.se or 0.0) for r in message_delete([trace], **args).rows]
                loud += [abs(r.value) for r in message_delete([trace], coupled=False, **args).rows]
                mine += len(ids)
            if mine >= _UNREAD:
                break
    yield ClaimRow("messages that nobody reads", float(len(values)), None, None, ">= 1", len(values) >= 1)
    yield none("credits of these other than exactly 0, coupled", sum(v != 0 for v in values))
    yield reported("mean absolute credit of these, fresh", loud or [0.0])


def _nobody_reads(trace: Trace) -> list[str]:
    read = {e.src for e in trace.edges}
    return [e.id for e in trace.events if e.type in ("message", "return") and e.id not in read]
