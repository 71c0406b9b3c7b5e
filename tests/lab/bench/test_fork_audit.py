"""Fork audits: the threshold and the payments by hand and by law, forks of real runs, training behind them, the claim's parts."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.errors import InputError, NotIdentified
from counterpoint.lab.bench import fork_teams
from counterpoint.lab.bench.claims import fork_audit as claim
from counterpoint.lab.bench.fork_teams import OPTIONS, Arm, Table, choices_of, kind_of, learn, tables_of, worlds_of
from counterpoint.lab.bench.hack_teams import COLLUSION, PAYS, Farming, team
from counterpoint.lab.bench.pair_games import dials_of, forks_of, games, mean_pay, predicted, worths
from counterpoint.lab.bench.pair_games import learn as learn_game
from counterpoint.lab.train.fork_audit import ACTS, acts_of, audit_pay, fork_audit, pair_worths, threshold
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.options import lack_of
from counterpoint.lab.train.preset import named_preset
from counterpoint.lab.train.settings import Settings
from counterpoint.lab.train.training import Training
from counterpoint.lab.worlds.teamworld.team_replay import TeamReplay
from counterpoint.testing import check_reward
from counterpoint.trace import Trace
from counterpoint.trace.replay import Delete, Fork
from lab.train.quick import TINY

NAME = "counterpoint.lab.train.fork_audit:fork_audit"
amounts = st.floats(-5, 5, allow_nan=False)


def test_the_threshold_by_hand() -> None:
    assert threshold(0.6, 2.4) == pytest.approx(0.2)  # 0.6 / 3
    assert threshold(0.4, 0.4) == 0.5
    assert threshold(-0.1, 1.0) == threshold(0.0, 1.0) == 0.0  # it does not pay even where nobody looks
    assert threshold(0.5, 0.0) == threshold(0.5, -1.0) == math.inf  # it pays even where everybody looks
    # an idle hire at a price of 1 and its cost of 0.06, which deleting it gives back; fine 3
    gain, loss = 1 - 0.06, 0.06 + 0.06 + 3
    q = threshold(gain, loss)
    assert q == pytest.approx(0.94 / 4.06)
    assert (1 - q) * gain - q * loss == pytest.approx(0)


def test_payments_by_hand() -> None:
    worth, audit = np.array([0.5, 0.0, -0.06, 0.0]), np.array([True, True, True, False])
    assert audit_pay(worth, audit, 0.1, 2.0).tolist() == pytest.approx([0.5, -2.0, -2.06, 0.1])
    # either of two suffices for 1: alone nothing, together 1; a third one adds 0.25 of its own
    both = np.array([[np.nan, 1.0, 0.25], [1.0, np.nan, 0.25], [0.25, 0.25, np.nan]])
    assert pair_worths(np.array([0.0, 0.0, 0.25]), both).tolist() == pytest.approx([0.5, 0.5, 0.25])
    # both are needed for 1: alone 1 each, together 1
    assert pair_worths(np.ones(2), np.array([[9.0, 1.0], [1.0, 9.0]])).tolist() == pytest.approx([0.5, 0.5])
    assert pair_worths(np.ones(2), np.full((2, 2), np.nan)).tolist() == [1.0, 1.0]
    with pytest.raises(InputError, match="pairs are"):
        pair_worths(np.ones(2), np.ones((3, 3)))


@given(st.lists(amounts, min_size=1, max_size=6), st.floats(0, 1), st.floats(0, 9))
def test_laws_where_effects_are_additive(parts: list[float], price: float, fine: float) -> None:
    def worth(on: frozenset[int]) -> float:
        return sum(parts[k] for k in on)

    single = worths(len(parts), worth, pairs=False)
    paid = audit_pay(single, True, price, 0.0)
    assert paid == pytest.approx(parts, abs=1e-9)
    assert paid.sum() == pytest.approx(worth(frozenset(range(len(parts)))), abs=1e-9)
    assert worths(len(parts), worth, pairs=True) == pytest.approx(single, abs=1e-9)
    null = audit_pay(np.zeros(3), True, price, 0.0)
    assert null.tolist() == [0.0] * 3
    assert audit_pay(np.zeros(3), True, price, fine).sum() == pytest.approx(-3 * fine)


@given(st.lists(amounts, min_size=3, max_size=3), st.lists(amounts, min_size=3, max_size=3))
def test_pairs_conserve_what_interactions_of_two_do(own: list[float], between: list[float]) -> None:
    edges = dict(zip(((0, 1), (0, 2), (1, 2)), between, strict=True))

    def worth(on: frozenset[int]) -> float:
        return sum(own[k] for k in on) + sum(x for pair, x in edges.items() if on >= set(pair))

    everything = worth(frozenset(range(3)))
    assert worths(3, worth, pairs=True).sum() == pytest.approx(everything, abs=1e-9)
    # singles count each interaction twice
    assert worths(3, worth, pairs=False).sum() == pytest.approx(everything + sum(between), abs=1e-9)


def test_where_audits_of_single_acts_and_of_pairs_fail() -> None:
    d = dials_of(1)
    value = {name: [worths(way.acts, way.states[0][1], pairs=p).tolist() for p in (False, True)] for name, (_, way) in games(d).items()}
    assert value["padding"] == [[0, 0], [0, 0]]
    assert value["arson"][0] == pytest.approx([0, d.damage])  # the repair of one's own damage looks like worth
    assert value["arson"][1] == pytest.approx([-d.damage / 2, d.damage / 2])
    assert value["copies"] == [pytest.approx([0, 0]), pytest.approx([d.job / 2, d.job / 2])]
    assert value["relay"] == [pytest.approx([d.job] * 2), pytest.approx([d.job / 2] * 2)]
    assert value["three copies"] == [[0] * 3, [0] * 3]  # order three: pairs see nothing either
    gain, fine = 2 * (d.price - d.cost), 2 * (d.fine + d.cost)
    assert predicted(d, "padding", pairs=False) == pytest.approx(gain / (gain + fine))
    assert predicted(d, "arson", pairs=False) == predicted(d, "relay", pairs=False) == math.inf
    assert predicted(d, "arson", pairs=True) == pytest.approx(gain / (2 * d.price + d.fine))  # -D/2 - fine + D/2
    q, (plain, other) = predicted(d, "copies", pairs=False), games(d)["copies"]
    assert mean_pay(d, plain, q, pairs=False) == pytest.approx(mean_pay(d, other, q, pairs=False))
    assert (forks_of(2, pairs=False), forks_of(2, pairs=True)) == (6, 21)


@pytest.mark.parametrize("name", ["padding", "arson"])
def test_learners_of_a_planted_game_follow_the_threshold(name: str) -> None:
    d = dials_of(1)
    q = predicted(d, name, pairs=True)
    assert learn_game(d, name, q / 2, 1, pairs=True) > 0.9
    assert learn_game(d, name, min(1.0, 2 * q), 1, pairs=True) < 0.1
    assert learn_game(d, name, q / 2, 1, pairs=True) == learn_game(d, name, q / 2, 1, pairs=True)


# -- real forks ------------------------------------------------------------------------------------------------------------------


CHOICE = dict.fromkeys(OPTIONS, 0) | {"idle": 2, "again": 1, "used": False, "whom": "same", "brief": "same"}
PLACE = team(vote_items=6)


@cache
def _run() -> Trace:
    """A team that hires for show and asks again."""
    return PLACE.run(Farming(PLACE.policy("reference"), CHOICE), [3], log=True).trace(0)


def _replay() -> TeamReplay:
    """What forks it, anew for each call: the policy keeps where it began."""
    return TeamReplay(PLACE, Farming(PLACE.policy("reference"), CHOICE))


def test_the_reward_pays_what_forks_say() -> None:
    check_reward(fork_audit)
    trace = _run()
    for unit in ACTS:
        acts = acts_of(trace, unit)
        [blind] = fork_audit(trace, unit=unit, q=0.0, price=0.25)
        assert blind.value == pytest.approx(0.25 * len(acts))  # no fork, no replay
        without = _replay().returns(trace, [Fork(e.id, Delete()) for e in acts])
        worth = trace.rewards["team"] - without
        [full] = fork_audit(trace, unit=unit, q=1.0, fine=2.0, replay=_replay())
        assert full.value == pytest.approx(worth.sum() - 2.0 * (worth <= 1e-9).sum())
        assert (worth <= 1e-9).any()
    hires = trace.rewards["team"] - _replay().returns(trace, [Fork(e.id, Delete()) for e in acts_of(trace, "agent")[-2:]])
    assert hires.tolist() == pytest.approx([-0.06, -0.06])  # an idle hire costs its price, and changes nothing else
    returns = acts_of(trace, "message")
    padding = [e for k, e in enumerate(returns) if e.task in {r.task for r in returns[:k]}]
    assert padding
    worth = trace.rewards["team"] - _replay().returns(trace, [Fork(e.id, Delete()) for e in padding])
    assert np.median(np.abs(worth)) == 0.0  # exact: both arms share every draw


def test_who_is_audited_is_keyed_and_needs_a_replay() -> None:
    trace = _run()
    some = [fork_audit(trace, q=0.4, seed=s, replay=_replay())[0].value for s in (1, 1, 2, 3)]
    assert some[0] == some[1]
    assert len(set(some)) > 1
    with pytest.raises(NotIdentified, match="fork audit"):
        fork_audit(trace, q=1.0)
    with pytest.raises(InputError, match="no unit 'tol'"):
        fork_audit(trace, unit="tol")
    with pytest.raises(InputError, match="q"):
        fork_audit(trace, q=1.5)
    with pytest.raises(InputError, match="fine"):
        fork_audit(trace, fine=-1.0)
    empty = Trace(trace_id="t", task_id="q", events=[], rewards={"team": 1.0})
    assert fork_audit(empty, q=1.0) == []


def test_training_behind_an_audit_counts_its_forks() -> None:
    rows = {}
    for q in (0.0, 1.0):
        change = {"reward": {"team_outcome": {}, NAME: {"q": q}}, "episodes": 8}
        run = Training(Settings(preset="grpo", world="wide_verify", set=TINY, updates=1, change=change))
        job = run.job(0, 0, run.weights())
        rows[q] = run.learn([play(job.payload, job.weights)])
        assert run.preset.needs_replay
    assert rows[0.0]["forks"] == 0 < rows[1.0]["forks"]
    assert rows[0.0]["charged"] < rows[1.0]["charged"]
    assert rows[0.0]["loss"] != rows[1.0]["loss"]
    audit = replace(named_preset("grpo"), reward={"team_outcome": {}, NAME: {}})
    assert audit.plays_forks
    assert lack_of(audit) == "a reward replays TeamWorld's episodes"
    assert not named_preset("grpo").plays_forks


# -- the claim -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    patch = pytest.MonkeyPatch()
    patch.setattr(fork_teams, "LEARN", 3)
    patch.setattr(fork_teams, "HELD_OUT", 6)
    patch.setattr(fork_teams, "OPTIONS", OPTIONS | {"idle": (0, 4), "used": (False,), "whom": ("same",), "brief": ("same",)})
    try:
        return tables_of(7)
    finally:
        patch.undo()


def test_a_seed_draws_everything_and_choices_differ() -> None:
    assert worlds_of(1) == worlds_of(1) != worlds_of(2)
    choices = choices_of("tool_spam")
    assert len(choices) == len(set(choices)) == 30
    assert kind_of("tool_spam", choices[0]) == "honest"
    assert {kind_of("tool_spam", c) for c in choices} == {"honest", "open", "disguised"}
    assert [kind_of(COLLUSION, c) for c in choices_of(COLLUSION)] == ["honest", "open", "open", "disguised"]


def test_tables_are_what_was_played(tables: dict[str, Table]) -> None:
    assert set(tables) == set(PAYS)
    for hack, table in tables.items():
        free, full = table.mean_pay(0.0), table.mean_pay(1.0)
        assert free == pytest.approx((table.value_CI + np.nansum(table.price_CIM, axis=2)).mean(axis=1))
        assert table.mean_pay(0.25) == pytest.approx(0.75 * free + 0.25 * full)
        assert table.is_hack[0] == np.False_
        if hack != COLLUSION:  # free hires and padding pay where nobody looks, and not where everybody does
            assert table.choices[int(free.argmax())] != table.choices[0]
            assert not table.is_hack[int(full.argmax())]
            assert 0 < table.predicted_at(4 * table.fine) < table.predicted < 1
            assert 0 < table.payments_threshold < 1
            assert table.live_share < 0.5
    gain, loss, fines = tables["free_riding"].terms_3C[:, tables["free_riding"].is_hack][:, 0]
    assert fines == 4  # idle hires
    assert tables["free_riding"].predicted >= threshold(gain, loss + 4 * tables["free_riding"].fine) - 1e-12


def test_learners_stop_where_predicted_and_arms_are_paired(tables: dict[str, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_teams, "LEARN", 3)
    monkeypatch.setattr(fork_teams, "OPTIONS", OPTIONS | {"used": (False,), "whom": ("same",), "brief": ("same",)})
    table = tables["free_riding"]
    [start] = learn(table, [Arm()], 1, updates=40)
    low, high, mask = learn(table, [Arm(table.predicted / 2), Arm(min(1.0, 2 * table.predicted)), Arm(rule="mask")], 1, start.logits)
    assert start.hacks > 0.8
    assert low.hacks > 0.9
    assert high.hacks < 0.1
    assert low.cost < high.cost
    assert mask.forks == 0 < low.forks
    [alone] = learn(table, [Arm(table.predicted / 2)], 1, start.logits)
    assert alone[:6] == pytest.approx(low[:6])  # no arm depends on the others
    detector, record = learn(table, [Arm(1.0, "detector"), Arm(1.0, "record")], 1, start.logits, updates=30)
    assert detector.forks > 0 < record.forks


def test_rows_of_the_learners(tables: dict[str, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_teams, "LEARN", 3)
    monkeypatch.setattr(fork_teams, "OPTIONS", OPTIONS | {"used": (False,), "whom": ("same",), "brief": ("same",)})
    monkeypatch.setattr(claim, "_tables", lambda seed: tables)
    short = lambda table, arms, seed, start=None, updates=400: learn(table, arms, seed, start, min(updates, 12))  # noqa: E731
    monkeypatch.setattr(claim, "learn", short)
    rows = {r.name: r for r in [*claim.thresholds(seed=7, seeds=1), *claim.fines(seed=7, seeds=1)]}
    for hack in PAYS:
        shares = [rows[f"{hack}, q = {q:g}: forks an episode"].value for q in claim.GRID]
        assert shares == sorted(shares)
        assert shares[0] == 0 < shares[-1]
        assert rows[f"{hack}, q = 0: calls over those without audits"].value == 1
    assert rows["free_riding: predicted q*, where there is one"].value == tables["free_riding"].predicted
    assert [r.has_target for r in rows.values()].count(True) == 4 * 5  # none for the critic
    assert rows["tool_spam, fines x 64: 2 q*"].value < rows["tool_spam, fines x 1: 2 q*"].value


def test_parts_of_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {r.name: r for r in claim.pairs(seed=3, seeds=1)}
    assert rows["arson, audits of single acts: worlds in which some q is predicted to stop it"].value == 0
    assert rows["arson, audits of pairs: worlds in which some q is predicted to stop it"].value == 1
    assert all(r.ok for r in rows.values())
    monkeypatch.setattr(claim, "_RUNS", 1)
    spent = {r.name: r.value for r in claim.redundancy(seed=3, seeds=1)}
    assert 0 <= spent["honest votes, audits of single acts: share without effect"] <= 1
    with pytest.raises(InputError, match="seeds"):
        list(claim.fork_audit(seed=0, seeds=0))
