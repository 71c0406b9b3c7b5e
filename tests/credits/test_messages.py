"""Message credit: unread is 0, coupling pays, substitution has mean 0, pairs show what single deletion misses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import counterpoint as cpt
from counterpoint.credits.doubly_robust import ridge
from counterpoint.credits.forks import Contrast, effects, fork_seeds, pair_interaction, paired
from counterpoint.credits.masked_replay import Vote, gains, majority, masked, smoothed, votes_of
from counterpoint.credits.mechanisms.message_amortised import NAMES, blended, features, fit, message_amortised
from counterpoint.credits.mechanisms.message_delete import message_delete
from counterpoint.credits.mechanisms.message_masked import message_masked
from counterpoint.credits.mechanisms.message_substitute import message_substitute
from counterpoint.errors import InputError, NotFound, NotIdentified
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.lab.worlds.teamworld.team_replay import TeamReplay
from counterpoint.trace import Event, Trace
from counterpoint.trace.replay import Delete, Do, Fork

HARD: dict[str, Any] = {
    "vote_items": 6,
    "topology": "swarm",
    "memory_copy": 0.6,
    "skill_a": (0.7, 0.65, 0.55),
    "skill_b": (0.7, 0.65, 0.55),
    "misconception_a": (0.0, 0.0, 0.0),
    "misconception_b": (0.0, 0.0, 0.0),
}


def _team(votes: int = 3, **changes: Any) -> tuple[TeamReplay, list[Trace]]:
    world = cpt.world("W1", **{**HARD, **changes})
    policy = ComposedPolicy(world.config, Parts(cap=votes, aggregate="majority"), "capped")
    runs = world.run(policy, range(6), log=True)
    return TeamReplay(world, policy), [runs.trace(i) for i in range(6)]


class Toy:
    """Three messages to a lead; what is paid depends on which of them arrive, and a little on the noise."""

    def __init__(self, pays: str) -> None:
        self.pays = pays

    def trace(self, gone: Sequence[str] = (), noise: int = 0) -> Trace:
        events = [
            Event(id=f"e{n}", t=float(n), type="message", agent="w", from_="w", to="lead", key=f"w|{m}", tokens_out=10)
            for n, m in enumerate(m for m in "abc" if m not in gone)
        ]
        here = {m for m in "abc" if m not in gone}
        got = bool(here & {"a", "b"}) if self.pays == "either" else {"a", "b"} <= here
        rewards = {"team": float(got) + noise / 8}
        return Trace(trace_id="toy", task_id="t", events=events, rewards=rewards, meta={"gone": list(gone), "noise": noise})

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        event = trace.events[trace.index[at]]
        if event.key == "w|c" and do is not None:
            raise InputError("c is carved in stone")
        gone = [*trace.meta["gone"], *([str(event.key)[2:]] if isinstance(do, Delete) else [])]
        return self.trace(gone, trace.meta["noise"] if seed is None else seed % 8)


def test_paired_differences_by_hand() -> None:
    effect, se = paired(np.array([[3.0, 5.0, 4.0]]), np.array([[1.0, 1.0, 3.0]]))
    assert effect[0] == pytest.approx(7 / 3)  # 2, 4, 1
    assert se[0] == pytest.approx(np.sqrt(((2 - 7 / 3) ** 2 + (4 - 7 / 3) ** 2 + (1 - 7 / 3) ** 2) / 2 / 3))
    assert np.isnan(paired(np.ones((1, 1)), np.zeros((1, 1)))[1][0])


def test_cost_counts_forks_and_their_tokens() -> None:
    toy = Toy("either")
    found = effects(toy, toy.trace(), [Contrast("e1", None, Delete())], k=3)
    assert found.cost.forks == 5  # the recorded trace is the first kept arm
    assert found.cost.tokens == 5 * 20  # e1 and e2 run again
    assert found.effect_U[0] == 0
    assert found.se_U[0] == 0


def test_seeds_belong_to_the_trace() -> None:
    toy = Toy("either").trace()
    assert fork_seeds(0, toy, 3) == fork_seeds(0, toy, 5)[:3] != fork_seeds(1, toy, 3)
    assert all(0 <= s < 2**62 for s in fork_seeds(0, toy, 50))


def test_what_cannot_be_forked_is_refused_alone() -> None:
    toy = Toy("both")
    credit = message_delete(toy.trace(), replay=toy)
    assert credit.of(0) == {"e0": 1.0, "e1": 1.0}
    assert credit.unidentified == {(0, "e2"): "c is carved in stone"}
    with pytest.raises(NotIdentified, match="carved"):
        message_delete(toy.trace(), replay=toy, ids=["e2"])


def test_either_suffices_singles_nothing_pair_all() -> None:
    toy = Toy("either")
    assert message_delete(toy.trace(), replay=toy, ids=["e0", "e1"], k=3).of(0) == {"e0": 0.0, "e1": 0.0}
    pair = pair_interaction(toy, toy.trace(), "e0", "e1", k=3)
    assert (pair.a, pair.b, pair.both, pair.interaction, pair.se) == (0.0, 0.0, 1.0, 1.0, 0.0)
    needed = pair_interaction(Toy("both"), Toy("both").trace(), "e1", "e0")
    assert (needed.a, needed.b, needed.both, needed.interaction, needed.se) == (1.0, 1.0, 1.0, -1.0, None)
    with pytest.raises(InputError, match="twice"):
        pair_interaction(toy, toy.trace(), "e0", "e0")
    with pytest.raises(NotFound):
        pair_interaction(toy, toy.trace(), "e0", "e9")


def test_pair_of_two_votes_in_a_simulator() -> None:
    """Two right votes on one question, none else: either answers it, and without both the draft stays at 0, which is wrong."""
    replay, traces = _team(votes=2, topology="centralized")
    said = [
        (t, [v for v in votes_of(t) if v.task == task]) for t in traces for task in dict.fromkeys(v.task for v in votes_of(t))
    ]
    trace, votes = next((t, vs) for t, vs in said if len(vs) == 2 and all(v.claim == 1 and v.worth == 1 for v in vs))
    first, second = (v.id for v in votes)
    pair = pair_interaction(replay, trace, first, second, k=2)
    assert (pair.a, pair.b) == pytest.approx((0, 0), abs=0.1)  # either alone answers 1
    assert pair.both == pytest.approx(1, abs=0.1)  # without both the draft stays 0
    assert pair.interaction > 0.8


def test_a_lost_return_is_worth_exactly_nothing() -> None:
    world = cpt.world("W1", vote_items=24, topology="hierarchical")
    runs = world.run("reference", range(8), log=True)
    traces = [runs.trace(i) for i in range(8)]
    lost = [(t, e.id) for t in traces for e in t.events if e.type == "return" and (e.extra or {}).get("lost")]
    assert lost
    for trace, at in lost[:4]:
        for k in (1, 3):
            assert message_delete(trace, replay=world, ids=[at], k=k).of(0) == {at: 0.0}
        assert message_masked(trace, ids=[at]).of(0) == {at: 0.0}


def test_coupled_forks_have_a_third_of_the_variance_and_the_same_mean() -> None:
    replay, traces = _team()
    coupled, fresh = (message_delete(traces, replay=replay, k=12, types=["return"], coupled=c) for c in (True, False))
    variances = [np.mean([(r.se or 0) ** 2 for r in c.rows]) for c in (coupled, fresh)]
    assert variances[0] <= variances[1] / 3
    gap = np.array([a.value - b.value for a, b in zip(coupled.rows, fresh.rows, strict=True)])
    by_trace = np.array([gap[[r.trace == i for r in fresh.rows]].mean() for i in range(len(traces))])
    assert abs(by_trace.mean()) <= 3 * by_trace.std(ddof=1) / np.sqrt(len(by_trace)) + 1e-9
    one = next(r for r in coupled.rows if r.value > 0.2)
    exact = np.mean(replay.returns(traces[one.trace], [Fork(one.unit_id, None, s) for s in range(40)])) - np.mean(
        replay.returns(traces[one.trace], [Fork(one.unit_id, Delete(), s) for s in range(40)])
    )
    assert one.value == pytest.approx(exact, abs=0.3)
    assert exact > 0


def test_substitution_has_mean_zero_under_the_policy() -> None:
    world = cpt.world("W1", **HARD)
    policy = ComposedPolicy(world.config, Parts(cap=3, aggregate="majority"), "capped")
    runs = world.run(policy, range(100, 140), log=True)
    credit = message_substitute([runs.trace(i) for i in range(40)], replay=TeamReplay(world, policy), k=2)
    means = np.array([np.mean(list(credit.of(i).values())) for i in range(40)])
    se = means.std(ddof=1) / np.sqrt(len(means))
    assert abs(means.mean()) <= 3 * se
    assert se < 0.05
    assert np.std([r.value for r in credit.rows]) > 0.2  # some messages do matter


def test_no_replay_is_a_refusal_with_a_fix() -> None:
    _, traces = _team()
    for mechanism in (message_delete, message_substitute):
        with pytest.raises(NotIdentified, match="give a replay: a simulator's world or a live team"):
            mechanism(traces)
    with pytest.raises(InputError, match="not a replay"):
        message_delete(traces, replay=3)
    with pytest.raises(InputError, match="k is 0"):
        message_delete(traces, replay=cpt.world("W1"), k=0)
    with pytest.raises(InputError, match="type of message"):
        message_delete(traces, replay=cpt.world("W1"), types=["spawn"])
    with pytest.raises(NotFound):
        message_delete(traces, replay=cpt.world("W1"), ids=["nobody"])


def test_majority_ties_keep_the_earlier_draft() -> None:
    assert majority([1, 0], [1, 2]) == 1
    assert majority([1, 0], [1, 1], start=0) == 0
    assert majority([], [], start=7) == 7
    assert majority([0, 1, 1, 2, 2, 2], [1, 2, 3, 4, 5, 6]) == 2


def test_masked_by_hand() -> None:
    votes = [Vote(f"m{i}", "q", i, claim, float(claim == 1), True) for i, claim in enumerate([1, 0, 1])]
    values, reasons = masked([*votes, Vote("lost", "q", 9, 0, 0.0, False)], start=0)
    # all: 1 is right. without m0: (0, 1) ties after 0 led: 0, worth 0. without m1: 1. without m2: (1, 0): 1 led first.
    assert values == {"m0": 1.0, "m1": 0.0, "m2": 0.0, "lost": 0.0}
    assert not reasons
    by_rule, _ = masked(votes, rule=lambda claims: claims[-1])
    assert by_rule == {"m0": 0.0, "m1": 0.0, "m2": 1.0}
    unscored = [v._replace(worth=None) for v in votes]
    assert set(masked(unscored)[1]) == {"m0", "m1", "m2"}
    assert masked(unscored, verify=lambda task, answer: 5.0 * (answer == 1))[0]["m0"] == 5.0
    with pytest.raises(InputError, match="no aggregator"):
        masked(votes, rule="plurality")


def test_smoothed_and_gain_by_hand() -> None:
    task, v = np.array([0, 0, 1]), np.array([1.0, -1.0, 1.0])
    s1 = 1 / (1 + np.exp(-1))
    assert smoothed(task, v) == pytest.approx([0.5 - (1 - s1), 0.5 - s1, s1 - 0.5])
    assert gains(task, v) == pytest.approx([s1 - 0.5, 0.5 - s1, s1 - 0.5])


@given(st.lists(st.integers(0, 1), min_size=1, max_size=9), st.integers(0, 1))
def test_masked_equals_the_answer_with_less_votes(claims: list[int], truth: int) -> None:
    votes = [Vote(str(i), "q", i, c, float(c == truth), True) for i, c in enumerate(claims)]
    values, _ = masked(votes, start=0)
    worth = lambda some: float(majority(some, range(len(some)), 0) == truth)  # noqa: E731
    for i in range(len(claims)):
        assert values[str(i)] == worth(claims) - worth(claims[:i] + claims[i + 1 :])


def test_masked_is_the_fork_where_nobody_reacts() -> None:
    replay, traces = _team(topology="centralized")
    last = {}
    for e in traces[0].events:
        if e.type == "return":
            last[e.task] = e.id
    chosen = list(last.values())
    real = message_delete(traces[0], replay=replay, ids=chosen).of(0)
    assert message_masked(traces[0], ids=chosen, start=0).of(0) == pytest.approx(real, abs=1e-9)


def test_masked_refuses_what_carries_no_claim() -> None:
    _, traces = _team()
    credit = message_masked(traces[0])
    briefs = [e.id for e in traces[0].events if e.type == "message"]
    assert {at for _, at in credit.unidentified} == set(briefs)
    with pytest.raises(NotIdentified):
        message_masked(Toy("either").trace())


def test_ridge_finds_a_line_and_shrinks() -> None:
    x = np.column_stack([np.arange(20.0), np.ones(20)])
    y = 3 + 2 * np.arange(20.0)
    assert ridge(x, y, 0.0)(x) == pytest.approx(y)
    assert ridge(x, y, 1e9)(x) == pytest.approx(np.full(20, y.mean()), abs=1e-3)
    with pytest.raises(InputError):
        ridge(x, y)(x[:, :1])


def test_amortised_learns_and_costs_nothing() -> None:
    replay, traces = _team()
    learn, test = traces[:4], traces[4:]
    with pytest.raises(NotIdentified, match="no weights"):
        message_amortised(test)
    truth = message_delete(learn, replay=replay, k=6, types=["return"])
    weights = fit(learn, truth, start=0, types=["return"])
    credit = message_amortised(test, weights=weights, start=0, types=["return"])
    real = message_delete(test, replay=replay, k=24, seed=3, types=["return"])
    a, b = (np.array([r.value for r in c.rows]) for c in (credit, real))
    assert np.corrcoef(a, b)[0, 1] > 0.5
    assert credit.cost == (0, 0)
    blend = message_amortised(test, weights=weights, replay=replay, k=2, start=0, types=["return"])
    assert blend.cost.forks == 3 * len(b)
    alone = message_delete(test, replay=replay, k=2, types=["return"])
    error = [np.sqrt(np.mean((np.array([r.value for r in c.rows]) - b) ** 2)) for c in (blend, alone)]
    assert error[0] < error[1]
    with pytest.raises(InputError, match="k is 1"):
        message_amortised(test, weights=weights, k=1)
    with pytest.raises(InputError, match="other traces"):
        fit(test, truth)
    with pytest.raises(NotIdentified, match="fork credit"):
        fit(learn[:1], message_delete(learn[:1], replay=replay, ids=[votes_of(learn[0])[0].id]))


def test_blend_weighs_by_variance() -> None:
    value, se = blended(np.array([0.0, 0.0, 3.0]), 1.0, np.array([2.0, 2.0, np.nan]), np.array([1.0, 1.0, np.nan]), 5)
    assert value == pytest.approx([1.0, 1.0, 3.0])
    assert se == pytest.approx([np.sqrt(0.5), np.sqrt(0.5), 1.0])
    sure, _ = blended(np.zeros(2), 1.0, np.full(2, 2.0), np.zeros(2), 5)
    assert sure == pytest.approx([2.0, 2.0])


def test_features_read_what_is_there() -> None:
    _, traces = _team()
    table = features(traces[:2])
    assert table.x_MD.shape == (len(table.ids), len(NAMES))
    assert np.isfinite(table.x_MD).all()
    is_vote = table.x_MD[:, NAMES.index("is_vote")]
    kinds = [traces[i].events[traces[i].index[at]].type for i, at in zip(table.trace_M, table.ids, strict=True)]
    assert is_vote.tolist() == [float(kind == "return") for kind in kinds]
    assert set(table.x_MD[is_vote == 1, NAMES.index("own")]) == {-1.0, 1.0}
