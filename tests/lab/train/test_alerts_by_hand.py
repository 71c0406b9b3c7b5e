"""Alerts at their limits: which side of each number raises, what the text says, and the arithmetic below it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.lab.train.alert import mean, number
from counterpoint.lab.train.alerts import (
    AGAIN,
    CODES,
    SHOWN,
    WINDOW,
    _collapse,
    _dominant,
    _equal,
    _flat,
    _mismatched,
    _most,
    _ratio,
    _se,
    _talkative,
    _windows,
    mismatch,
    raised_alerts,
    signals,
)
from counterpoint.lab.train.learner import log_probs
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.rollouts import Rollout
from lab.train.test_learner_by_hand import candidates, item_table, net_of, spawn_table, team_table

Rows = list[dict[str, Any]]


def line(**columns: Any) -> dict[str, Any]:
    return columns


# -- arithmetic


def test_numbers_out_of_rows() -> None:
    row = {"a": 1, "b": {"c": 2.5, "d": None}, "e": "x"}
    assert (number(row, "a"), number(row, "b.c")) == (1.0, 2.5)
    assert all(math.isnan(number(row, name)) for name in ("b.d", "b", "e", "z", "a.x", "b.c.d"))
    assert mean([{"a": 1}, {"a": None}, {"a": 4}, {"a": math.inf}], "a") == 2.5
    assert math.isnan(mean([{"a": None}], "a"))
    assert _se([{"reward_se": 3.0}, {"reward_se": 4.0}]) == 2.5
    assert _se([]) == 0
    assert (_ratio(1.0, 4.0), _ratio(1.0, 0.0), _ratio(1.0, -1.0)) == (0.25, None, None)


def test_windows_end_with_the_last_row() -> None:
    rows: Any = list(range(7))
    assert _windows(rows, 3) == [[1, 2, 3], [4, 5, 6]]
    assert _windows(rows, 7) == [rows]
    assert _windows(rows, 8) == []
    assert (WINDOW, AGAIN, SHOWN) == (10, 50, 3)


def test_the_highest_scores_first_and_the_first_of_equals() -> None:
    assert _most(np.array([1.0, 3.0, 3.0, 2.0, 5.0])) == (4, 1, 2)
    assert _most(np.array([1.0, 3.0, 3.0]), np.array([True, False, True])) == (2, 0)
    assert _most(np.zeros(2), np.zeros(2, bool)) == ()


# -- each at its limit


def sizes(before: float, after: float, *, was: float = 1.0, now: float = 2.0) -> Any:
    return _collapse([[line(agents=before, reward=was)], [line(agents=after, reward=now)]])


def test_a_collapse() -> None:
    assert sizes(2.0, 1.0) is not None
    assert sizes(1.99, 0.9) is None  # it had never been two
    assert sizes(4.0, 1.49) is not None
    assert sizes(4.0, 1.5) is None
    assert sizes(2.8, 1.4) is not None
    assert sizes(2.7, 1.4) is None  # not half of what it was
    assert sizes(4.0, 1.0, was=2.0, now=2.0) is None  # reward did not rise
    assert sizes(4.0, 0.99, was=2.0, now=1.0) == ("spawning collapsed 4.0 -> 1.0 agents and reward fell", sizes(4.0, 1.0)[1])
    assert sizes(4.0, 1.0)[0] == "spawning collapsed 4.0 -> 1.0 agents while reward rose"
    assert _collapse([[line(agents=4.0)]]) is None
    # compared with the largest team there was, and with the reward of then
    three = [[line(agents=3.0, reward=9.0)], [line(agents=6.0, reward=1.0)], [line(agents=1.2, reward=5.0)]]
    assert _collapse(three)[0] == "spawning collapsed 6.0 -> 1.2 agents while reward rose"  # type: ignore[index]


def test_one_agent_gets_the_calls() -> None:
    def share(*values: float | None) -> Any:
        return _dominant([{"signals": {"top_share": v}} for v in values])

    assert share(0.6, 0.6, 0.6, 0.6, 0.6) == ("one agent gets 60% of the calls in teams of three or more", share(*[0.9] * 5)[1])
    assert share(*[0.59] * 5) is None
    assert share(*[0.9] * 4) is None
    assert share(0.0, *[0.6] * 5) is not None  # only the last five
    assert share(*[None] * 5) is None


def talk(price: float, share: float, gain: float, *, se: float = 1.0, before: float = 1.0) -> Any:
    old = {"reward": 10.0, "reward_se": se, "signals": {"message_price": before, "message_share": 0.5}}
    new = {"reward": 10.0 + gain, "reward_se": se, "signals": {"message_price": price, "message_share": share}}
    return _talkative([[old], [new]])


def test_messages_that_cost_more_and_bring_nothing() -> None:
    assert talk(2.001, 0.1, 0.0) is not None
    assert talk(2.0, 0.1, 0.0) is None
    assert talk(3.0, 0.0999, 0.0) is None
    limit = 2 * math.hypot(1.0, 1.0)
    assert talk(3.0, 0.1, limit - 1e-6) is not None
    assert talk(3.0, 0.1, limit + 1e-6) is None
    assert talk(3.0, 0.5, 0.0)[0] == "messages cost 1 -> 3 points per call and reward has not risen for it"
    assert _talkative([[line()]]) is None
    empty = {"reward": 1.0, "signals": {"message_price": None, "message_share": 0.5}}
    assert _talkative([[empty], [empty]]) is None
    # the cheapest window before is what it is compared with
    rows = [[{"reward": 1.0, "reward_se": 0.0, "signals": {"message_price": p, "message_share": 0.5}}] for p in (3.0, 1.0, 2.0, 2.5)]
    assert _talkative(rows)[0].startswith("messages cost 1 -> 2.5")  # type: ignore[index]


def test_groups_in_which_all_are_equal() -> None:
    def share(*values: float | None) -> Any:
        return _equal([{"signals": {"equal_groups": v}} for v in values])

    assert share(*[0.5] * 5)[0].startswith("in 50% of the groups")
    assert share(*[0.49] * 5) is None
    assert share(*[0.9] * 4) is None
    assert share(0.0, *[0.5] * 5) is not None


def flat(gain: float, *, rise: float = 1.0, se: float = 0.0, held: Any = None, update: int = 4, seed: int = 0) -> Any:
    metrics = [{"update": u, "reward": 10.0 + rise * (u == 4), "reward_se": se} for u in range(1, 5)]
    old, new = {"update": 1, "first_seed": 0, "values": [1.0, 2.0]}, {"update": update, "first_seed": seed, "values": held or [1.0 + gain, 2.0 + gain]}
    return _flat(metrics, [old, *[{"update": 2}] * 2, new], 1)


def test_held_out_seeds_that_do_not_follow() -> None:
    assert flat(0.0999) is not None  # a tenth of the rise, and no spread
    assert flat(0.101) is None
    assert flat(0.0)[0] == "reward rose by 1 in training since update 1, by 0 on held-out tasks: 9.5 apart"
    # gains 0 and 0.6: mean and standard error both 0.3
    assert flat(0.0, held=[0.999, 2.6]) is not None
    assert flat(0.0, held=[1.01, 2.6]) is None
    se = 1 / (3 * math.sqrt(2))
    assert flat(0.0, se=se * 0.99) is not None
    assert flat(0.0, se=se * 1.01) is None
    assert flat(0.0, update=3) is None
    assert flat(0.0, seed=1) is None
    assert flat(0.0, held=[1.0]) is None
    assert flat(9.0, held=[50.0, 50.0]) is None  # training is not above
    rows = [{"update": 4, "reward": 1.0}]
    assert _flat(rows, [{"update": 4}] * 3, 1) is None
    assert _flat(rows, [{"update": 1, "first_seed": 0, "values": [1.0]}, *[{"update": 4, "first_seed": 0, "values": [1.0]}] * 3], 1) is None


def test_training_must_be_above_the_held_out_level_by_two_errors() -> None:
    def above(level: float) -> Any:
        metrics = [{"update": u, "reward": 10.0 * (u == 4), "reward_se": 0.5} for u in range(1, 5)]
        evals = [{"update": 1, "first_seed": 0, "values": [level]}, {}, {}, {"update": 4, "first_seed": 0, "values": [level]}]
        return _flat(metrics, evals, 1)

    assert above(8.99) is not None
    assert above(9.0) is None


def test_windows_of_the_training_reward_reach_back_from_each_evaluation() -> None:
    metrics = [{"update": u, "reward": r, "reward_se": 0.0} for u, r in enumerate([99.0, 1.0, 3.0, 0.0, 6.0, 8.0], 1)]
    evals = [{"update": 3, "first_seed": 0, "values": [0.0]}, {}, {}, {"update": 6, "first_seed": 0, "values": [0.0]}]
    assert _flat(metrics, evals, 2)[0].startswith("reward rose by 5 in training since update 3")  # type: ignore[index]


def test_masks_and_probabilities_that_differ() -> None:
    def row(masked: Any, gap: Any) -> Any:
        return _mismatched([{"signals": {"masked": 9.0, "mismatch": 9.0}}, {"signals": {"masked": masked, "mismatch": gap}}])

    assert row(0.0, 1e-3) is None
    assert row(0.0, 1.1e-3)[0].startswith("recomputed log-probabilities differ by 0.0011")
    assert row(2.0, 0.0)[0] == "2 decisions took an action that was masked"
    assert row(None, None) is None


def test_alerts_come_in_order_with_their_episodes() -> None:
    inner = {"top_share": 0.9, "equal_groups": 0.9, "masked": 1.0}
    metrics: Rows = [{"update": u, "agents": 3.0, "reward": 1.0, "signals": inner} for u in range(1, 6)]
    worst = {"dominant_agent": (3, 1), "mask_mismatch": (2,)}
    alerts = raised_alerts(metrics, [], [{"update": 5 - AGAIN, "code": "mask_mismatch"}], worst, window=2)
    assert [(a.code, a.episodes, a.is_held_out) for a in alerts] == [
        ("dominant_agent", (3, 1), False), ("zero_variance", (), False), ("mask_mismatch", (2,), False),
    ]  # fmt: skip
    assert [a.code for a in raised_alerts(metrics, [], [{"update": 6 - AGAIN, "code": "mask_mismatch"}], worst)] == ["dominant_agent", "zero_variance"]
    assert CODES[0] == "serial_collapse"


# -- what a batch shows


def batch(**tables: Any) -> Rollout:
    columns = {
        "agents": np.array([3, 2, 5]), "calls": np.array([4, 0, 12]), "cost_messages": np.array([1.0, 3.0, 2.0]), "cost_calls": np.array([2.0, 2.0, 2.0]),
        "costly": np.array([100.0, 100.0, 100.0]),
    }  # fmt: skip
    return Rollout(None, np.array([7, 7, 8]), np.arange(3), tables, np.zeros((1, 3)), np.array([1.0, 1.0, 5.0]), columns)  # type: ignore[arg-type]


def test_the_signals_of_a_batch_by_hand() -> None:
    agent = np.array([1] * 9 + [2] * 3 + [-1] + [1] * 10 + [0] * 10)
    ep = np.array([0] * 13 + [2] * 20)
    mask = np.ones((33, 4), bool)
    mask[[1, 2, 20], 0] = False
    item = {"ep": ep, "agent": agent, "choice": np.zeros(33, np.int64), "mask": mask}
    seen = signals(batch(item=item))
    # the first has 12 calls for a team of 3, nine to one; the last 20 for a team of 5, ten to one: both are enough
    assert seen.row["top_share"] == pytest.approx((0.75 + 0.5) / 2)
    assert seen.row["message_price"] == 6 / 16
    assert seen.row["message_share"] == 0.5
    assert (seen.row["equal_groups"], seen.row["masked"]) == (1.0, 3.0)
    assert seen.worst == {
        "serial_collapse": (1, 0, 2), "dominant_agent": (0, 2), "over_communication": (1, 0, 2), "zero_variance": (0, 1),
        "held_out_flat": (2, 0, 1), "mask_mismatch": (0, 2),
    }  # fmt: skip
    few = signals(batch(item={**item, "ep": np.where(np.arange(33) == 0, 1, ep)}))
    assert few.worst["dominant_agent"] == (2,)  # eleven calls are too few for a team of three
    bare = signals(batch())
    assert (bare.row["top_share"], bare.row["masked"], bare.worst["mask_mismatch"]) == (None, 0.0, ())


def test_equal_means_equal_to_the_last_digit_but_one() -> None:
    out = batch()
    out.values = np.array([1.0, 1.0 + 5e-10, 5.0])
    assert signals(out).row["equal_groups"] == 1.0
    out.values = np.array([1.0, 1.0 + 2e-9, 5.0])
    assert signals(out).row["equal_groups"] == 0.0
    out.seeds = np.array([1, 2, 3])
    assert signals(out).row["equal_groups"] is None


def recorded(net: Network) -> dict[str, Any]:
    """Tables whose log-probabilities are those of the network."""
    tables: dict[str, Any] = {
        "item": item_table(), "candidate": candidates(), "stop": team_table([True, False]), "spawn": spawn_table(),
        "rule": team_table([0, 5]), "talk": team_table([[True, False], [False, True]]),
    }  # fmt: skip
    with torch.no_grad():
        logp = {k: v.numpy().astype(np.float64) for k, v in log_probs(net, tables)[0].items()}
    tables["item"] |= {"logp": logp["item"], "brief_logp": logp["brief"], "point_logp": logp["point"]}
    tables["spawn"] |= {"logp": logp["spawn"], "size_logp": logp["size"]}
    for name in ("stop", "rule", "talk"):
        tables[name]["logp"] = logp[name]
    return tables


def out_of(tables: Any) -> Rollout:
    return Rollout(None, np.arange(2), np.arange(2), tables, np.zeros((1, 2)), np.zeros(2), {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "column", "row", "counts"),
    [
        ("item", "logp", 1, True), ("item", "brief_logp", 0, True), ("item", "brief_logp", 1, False), ("item", "point_logp", 2, True),
        ("item", "point_logp", 3, False), ("stop", "logp", 1, True), ("spawn", "logp", 1, True), ("spawn", "size_logp", 0, True),
        ("spawn", "size_logp", 1, False), ("rule", "logp", 0, True), ("talk", "logp", (1, 1), True),
    ],
)  # fmt: skip
def test_each_recorded_number_is_compared_where_its_decision_was_made(table: str, column: str, row: Any, counts: bool) -> None:
    net = net_of()
    tables = recorded(net)
    gap, who = mismatch(net, out_of(tables))
    assert gap < 1e-6
    assert who == ()
    tables[table][column][row] += 0.25
    gap, who = mismatch(net, out_of(tables))
    assert gap == pytest.approx(0.25 if counts else 0.0, abs=1e-6)
    at = int(tables[table]["ep"][row if isinstance(row, int) else row[0]])
    assert who == ((at,) if counts else ())
    tables[table][column][row] = np.nan
    assert mismatch(net, out_of(tables))[0] == (math.inf if counts else pytest.approx(0, abs=1e-6))


def test_what_was_not_recorded_is_not_compared() -> None:
    net = net_of()
    tables = recorded(net)
    del tables["spawn"]["size_logp"]
    assert mismatch(net, out_of(tables))[0] < 1e-6
    assert mismatch(net, out_of({}))[0] == 0
