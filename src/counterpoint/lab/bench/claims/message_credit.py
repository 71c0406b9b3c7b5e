"""Message credit: coupled forks rank an episode's messages as the truth does; a regression does so unasked.

Always true: the truth of a message is its deletion credit, E[R | prefix with m] - E[R | m never delivered, others react], by 48
coupled replicates, none of them the recorded noise. So that it is well defined and not a tie at the price of a call, the team
plays a fixed schedule: nine hard questions, three votes each, in a swarm whose workers read the last vote on a question and copy
it with 0.6; majority decides. (A policy that buys another vote when one is missing makes all credits nearly equal: nothing to
rank.) Ranks are compared within episodes, Spearman by hand with mean ranks for ties. Weights are learned on other episodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from counterpoint.credits.mechanisms.message_amortised import fit, message_amortised
from counterpoint.credits.mechanisms.message_delete import message_delete
from counterpoint.credits.mechanisms.message_masked import message_masked
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.lab.worlds.teamworld.team_replay import TeamReplay
from counterpoint.lab.worlds.world import world
from counterpoint.trace import Trace, statistics
from counterpoint.trace.keyed import child_seed, purpose
from counterpoint.trace.replay import Delete, Fork
from counterpoint.trace.rows import Credit, CreditRow, rows_of

_SKILL = (0.75, 0.65, 0.55)
_WORLD = {
    "vote_items": 9,
    "topology": "swarm",
    "memory_copy": 0.6,
    "difficulty_shares": (0.34, 0.33, 0.33),
    "skill_a": _SKILL,
    "skill_b": _SKILL,
    "misconception_a": (0.0, 0.0, 0.0),
    "misconception_b": (0.0, 0.0, 0.0),
}
_VOTES, _EPISODES, _LEARN, _REPLICATES = 3, 20, 12, 48
_REPEATS = {2: 4, 8: 2}
_RETURNS = ("return",)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Correlation of mean ranks; 0 where one side has no ranks."""
    return statistics.spearman(np.round(x, 12), np.round(y, 12)) or 0.0


def message_credit(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Each seed: twenty fresh episodes to judge and twelve to learn from."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    found = [_measured(s) for s in tracked(range(seed, seed + seeds), "seeds")]
    told = {name: [f[name] for f in found] for name in found[0]}
    yield at_least("Spearman, coupled forks, k = 2", told["coupled 2"], 0.75)
    yield at_least("Spearman, coupled forks, k = 8", told["coupled 8"], 0.85)
    yield at_least("Spearman, coupled k = 2 less fresh k = 8", told["2 over fresh 8"], 0.0)
    yield at_most("variance, coupled over fresh, k = 8", told["variance"], 1 / 3)
    yield at_least("Spearman, masked replay, no calls", told["masked"], 0.1)
    yield at_least("Spearman, amortised, no calls", told["amortised"], 0.55)
    yield at_least("Spearman, amortised less masked", told["over masked"], 0.0)
    yield at_most("rmse, blend over forks alone, k = 2", told["blend"], 1.0)


def _measured(seed: int) -> dict[str, float]:
    w = world("W1", **_WORLD)
    policy = ComposedPolicy(w.config, Parts(cap=_VOTES, aggregate="majority"), "three votes each")
    replay = TeamReplay(w, policy)
    key = purpose("message credit")
    runs = w.run(policy, [child_seed(seed, key, i) >> 16 for i in range(_EPISODES + _LEARN)], log=True)
    traces = [runs.trace(i) for i in range(_EPISODES + _LEARN)]
    test, learn = traces[:_EPISODES], traces[_EPISODES:]

    def forks(of: Sequence[Trace], k: int, salt: int, *, coupled: bool = True) -> Credit:
        return message_delete(of, replay=replay, k=k, seed=child_seed(seed, key, salt), coupled=coupled, types=_RETURNS)

    truth = _truth(replay, test, child_seed(seed, key, 1))
    ranked = lambda credit: _within(credit, truth)  # noqa: E731
    by_k = {k: [forks(test, k, 10 * k + n) for n in range(times)] for k, times in _REPEATS.items()}
    fresh = forks(test, 8, 3, coupled=False)
    weights = fit(learn, forks(learn, 8, 4), start=0, types=_RETURNS)
    plain = {"start": 0, "types": _RETURNS}
    masked, amortised = message_masked(test, **plain), message_amortised(test, weights=weights, **plain)
    blend = message_amortised(test, weights=weights, replay=replay, k=2, seed=child_seed(seed, key, 20), **plain)
    out = {f"coupled {k}": float(np.mean([ranked(c) for c in many])) for k, many in by_k.items()}
    return out | {
        "2 over fresh 8": out["coupled 2"] - ranked(fresh),
        "variance": _variance(by_k[8][0]) / _variance(fresh),
        "masked": ranked(masked),
        "amortised": ranked(amortised),
        "over masked": ranked(amortised) - ranked(masked),
        "blend": _rmse(blend, truth) / _rmse(by_k[2][0], truth),
    }


def _truth(replay: TeamReplay, traces: Sequence[Trace], seed: int) -> Credit:
    """Deletion credit by many replicates, none of which is the recorded noise that the estimators may use."""
    rows: list[CreditRow] = []
    for i, trace in enumerate(traces):
        at = [e.id for e in trace.events if e.type in _RETURNS]
        seeds = [child_seed(seed, i, n) >> 2 for n in range(_REPLICATES)]
        jobs = [Fork(m, do, s) for do in (None, Delete()) for m in at for s in seeds]
        kept, gone = replay.returns(trace, jobs).reshape(2, len(at), _REPLICATES).mean(axis=2)
        rows += rows_of(i, "message", dict(zip(at, kept - gone, strict=True)))
    return Credit("truth", "deletion credit", False, tuple(t.trace_id for t in traces), tuple(rows))


def _by_trace(credit: Credit) -> list[np.ndarray]:
    return [np.array(list(credit.of(i).values())) for i in range(len(credit.trace_ids))]


def _within(credit: Credit, truth: Credit) -> float:
    """The mean over episodes of Spearman within an episode."""
    pairs = zip(_by_trace(credit), _by_trace(truth), strict=True)
    return float(np.mean([spearman(x, y) for x, y in pairs]))


def _variance(credit: Credit) -> float:
    return float(np.mean([(row.se or 0.0) ** 2 for row in credit.rows]))


def _rmse(credit: Credit, truth: Credit) -> float:
    gap = np.array([r.value for r in credit.rows]) - np.array([r.value for r in truth.rows])
    return float(np.sqrt((gap**2).mean()))
