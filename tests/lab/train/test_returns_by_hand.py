"""Credit of rollout rows, number by number: two episodes whose rewards, critics and chances are written down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cpt
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.returns import (
    Lesson,
    alternatives,
    going_on,
    lesson,
    measure,
    row_advantages,
    scored_rows,
    team_scale,
)
from counterpoint.lab.train.rollouts import Rollout
from lab.train.nets import item_x, known_net

LOG = np.log


def items() -> dict[str, np.ndarray]:
    """Three items: rows 0 and 3 of the first (kind 0), row 1 of the second (kind 1), rows 2 and 4 of the other episode's."""
    mask = np.ones((5, 4), np.bool_)
    mask[3] = [False, True, False, True]  # kept from leaving; verifying was not to be had
    return {
        "ep": np.array([0, 0, 1, 0, 1]), "round": np.array([0, 0, 0, 1, 1]), "x": item_x(0, 1, 0, 0, 0), "mask": mask,
        "chain": np.array([0, 1, 2, 0, 2]), "order": np.array([0, 3, 1, 2, 4]), "choice": np.array([1, 0, 2, 3, 0]),
        "agent": np.array([1, -1, 0, 2, -1]), "reward": np.array([2.0, 0.0, 1.0, 4.0, 0.0]),
        "worth": np.array([1.0, 2.0, 3.0, 4.0, 0.0], np.float32),
    }  # fmt: skip


def spawns() -> dict[str, np.ndarray]:
    """Two roles: the first episode calls three of the first, the second one of the second; one more comes in round 1."""
    return {
        "ep": np.array([0, 0, 1, 1, 0]), "round": np.array([0, 0, 0, 0, 1]), "role": np.array([0, 1, 0, 1, 1]),
        "choice": np.array([True, False, False, True, True]), "number": np.array([3, 0, 0, 1, 9]),
    }  # fmt: skip


def stops() -> dict[str, np.ndarray]:
    """Out of order: the second episode first."""
    return {
        "ep": np.array([1, 0, 0]), "round": np.array([1, 1, 0]), "chance": np.array([0.2, 0.5, 0.25]), "open": np.array([1, 0, 3]),
        "choice": np.array([True, False, False]),
    }  # fmt: skip


def made(**tables: Any) -> Rollout:
    value_TE = np.array([[1.0, 0.0], [4.0, 2.0], [6.0, 2.5]])
    config = cpt.world("W1", vote_items=2).config
    return Rollout(config, np.array([7, 8]), np.array([0, 1]), tables, value_TE, np.array([6.0, 2.5]), {})


def net_of() -> Network:
    net = known_net()
    net.scale.copy_(torch.tensor([2.0, 4.0, 1.0, 1.0, 1.0]))
    return net


def rules() -> dict[str, np.ndarray]:
    return {"ep": np.array([0, 1, 0]), "round": np.array([1, 0, 0])}


@pytest.fixture
def taught() -> tuple[Network, Lesson]:
    net = net_of()
    found = lesson(net, made(item=items(), stop=stops(), rule=rules(), spawn=spawns()), lam=0.5)
    assert found is not None
    return net, found


# In units (2, 4, 2, 2, 2): r = 1, 0, 0.5, 2, 0;  W = 0.5, 0.5, 1.5, 2, 0 and 0.25 each;  p of row 3: one of three that are open.
#   G_3 = 2;  G_0 = 1 + 0.5 * 2.25 + 0.5 * 2/3 * 2;  G_1 = 0;  G_4 = 0;  G_2 = 0.5 + 0.5 * 0.25
G = np.array([1 + 1.125 + 2 / 3, 0.0, 0.625, 2.0, 0.0])
W = np.array([0.75, 0.75, 1.75, 2.25, 0.25])
OWN = np.array([0.3, 0.0, 0.6, 0.9, 0.0])
LEFT = np.where([True, False, True, True, False], G - W + 0.1 - OWN, 0.0)


def test_advantages_and_returns_of_items(taught: tuple[Network, Lesson]) -> None:
    found = taught[1]
    assert found.advantage == pytest.approx(G - W, abs=1e-6)
    assert found.item == pytest.approx(G - W + 0.1, abs=1e-6)
    assert found.worth == pytest.approx([G[0], 0.0, 0.625, 2 * 2 / 3, 0.0], abs=1e-6)
    assert found.left == pytest.approx(LEFT, abs=1e-6)


def test_a_round_answers_for_its_calls_and_for_the_costs_that_no_call_bears(taught: tuple[Network, Lesson]) -> None:
    net, found = taught
    # first episode, round 1: 2 * left of row 3, and of the value's rise by 2 the call had 4; round 0: a rise of 3, of which 2
    by_hand = np.array([2 * LEFT[3] + 2 - 4, 2 * LEFT[2] + 2 - 1, 2 * LEFT[0] + 3 - 2])
    assert float(net.round_scale) == pytest.approx(by_hand.std(), abs=1e-5)
    assert found.rule == pytest.approx(by_hand / by_hand.std(), abs=1e-5)


def test_stops_are_judged_per_open_item_and_in_units_of_their_spread(taught: tuple[Network, Lesson]) -> None:
    net, found = taught
    # C of the second episode's round 1: 0.5;  of the first's: C_1 = 2, C_0 = 3 + (1 - 0.5) 2
    assert going_on(made(stop=stops())) == pytest.approx([0.5, 2.0, 4.0])
    assert team_scale(stops()).tolist() == [2, 1, 4]
    per_item = np.array([0.25, 2.0, 1.0])
    assert float(net.team_scale) == pytest.approx(per_item.std(), abs=1e-6)
    assert found.team == pytest.approx(per_item / per_item.std(), abs=1e-6)


def test_the_luck_of_the_items_is_taken_off_the_spawns_return_unless_the_choice_explains_it(taught: tuple[Network, Lesson]) -> None:
    # luck: what the chains brought less V of their first rows, in points:  (6 - 1.5) + (0 - 3) = 1.5;  1 - 3.5 = -2.5
    luck = np.array([1.5, -2.5])
    # teams of 3 and 1, each a place on the curve of sizes; who came; how many
    choice = np.array([[0, 1, 1, 0, LOG(4), 0], [1, 0, 0, 1, 0, LOG(2)]])
    level = luck - luck.mean()
    rest = level - choice @ np.linalg.solve(choice.T @ choice + 0.5 * np.eye(6), choice.T @ level)
    # returns to go: 6 - 1, 2.5 - 0; in round 1: 6 - 4, and no luck is taken off there
    by_hand = [5 - 0.8 * rest[0], 5 - 0.8 * rest[0], 2.5 - 0.8 * rest[1], 2.5 - 0.8 * rest[1], 2.0]
    assert taught[1].spawn == pytest.approx(by_hand, abs=1e-5)
    assert abs(rest).max() > 0.2


def test_time_is_no_luck(taught: tuple[Network, Lesson]) -> None:
    timed = items() | {"time": np.array([1.0, 0.0, 0.0, 2.0, 0.0])}
    timed["reward"] = timed["reward"] - timed["time"]  # the same luck but for the clock
    found = lesson(net_of(), made(item=timed, stop=stops(), rule=rules(), spawn=spawns()), lam=0.5)
    assert found is not None
    assert found.spawn == pytest.approx(taught[1].spawn, abs=1e-5)


def test_spreads_run_on_from_update_to_update_and_never_fall_to_nothing() -> None:
    net = net_of()
    net.team_scale.fill_(3.0)
    net.round_scale.fill_(2.0)
    out = made(item=items(), stop=stops(), rule=rules())
    found = lesson(net, out, lam=0.5)
    assert found is not None
    spread = np.array([0.25, 2.0, 1.0]).std()
    assert float(net.team_scale) == pytest.approx(0.9 * 3 + 0.1 * spread)
    rounds = np.array([2 * LEFT[3] - 2, 2 * LEFT[2] + 1, 2 * LEFT[0] + 1])
    assert float(net.round_scale) == pytest.approx(0.9 * 2 + 0.1 * rounds.std(), abs=1e-5)
    assert found.rule == pytest.approx(rounds / float(net.round_scale), abs=1e-5)
    one = {k: v[:1] for k, v in stops().items()}
    lesson(net := net_of(), made(item=items(), stop=one))
    assert float(net.team_scale) == pytest.approx(0.02)


def test_what_is_not_there_teaches_nothing() -> None:
    net = net_of()
    assert lesson(net, made(item=items())) is None
    assert lesson(net, made(stop=stops())) is None
    found = lesson(net, made(item=items(), stop=stops()))
    assert found is not None
    assert (found.rule.shape, found.spawn.shape) == ((0,), (0,))
    assert float(net.round_scale) == 1.0
    measure(net, made(stop=stops()))
    assert net.scale.tolist() == [2.0, 4.0, 1.0, 1.0, 1.0]


def test_lambda_is_nine_tenths_unless_given() -> None:
    out = made(item=items(), stop=stops())
    plain, said = lesson(net_of(), out), lesson(net_of(), out, lam=0.9)
    assert plain is not None
    assert said is not None
    assert np.array_equal(plain.worth, said.worth)
    assert plain.worth[0] == pytest.approx(1 + 0.1 * 2.25 + 0.9 * 2 / 3 * 2, abs=1e-6)


def test_the_masks_given_stay_as_they_were() -> None:
    t = items()
    lesson(net_of(), made(item=t, stop=stops()))
    assert t["mask"].tolist() == items()["mask"].tolist()


def test_the_unit_of_a_kind_is_the_spread_of_its_returns_to_go() -> None:
    net = Network()
    out = made(item=items())
    measure(net, out)
    # to go: kind 0 has 6, 4, 1, 0, kind 1 only a 0
    spread = np.array([6.0, 1.0, 4.0, 0.0]).std()
    assert net.scale.tolist() == pytest.approx([spread, 0.02, 1.0, 1.0, 1.0])
    out.tables["item"]["reward"] *= 2
    measure(net, out)
    assert net.scale.tolist() == pytest.approx([0.8 * spread + 0.2 * 2 * spread, 0.02, 1.0, 1.0, 1.0])
    measure(net, out, share=1.0)
    assert float(net.scale[0]) == pytest.approx(2 * spread)


def test_critics_see_the_drafts_score_in_units() -> None:
    t = items()
    rows = scored_rows(t, np.array([2.0, 4.0, 2.0, 2.0, 2.0]))
    assert rows.dtype == np.float32
    assert np.array_equal(rows[:, :-1], t["x"])
    assert rows[:, -1].tolist() == [0.5, 0.5, 1.5, 2.0, 0.0]


def test_alternatives_leave_out_what_was_masked_and_leaving_is_worth_nothing() -> None:
    net, t = known_net(purpose=(0.0, 0.0, 5.0, 0.0)), items()
    log_pi, q = alternatives(net, t)
    assert log_pi[3].exp().tolist() == pytest.approx([0, 0.5, 0, 0.5])
    whole = 3 + np.e**5
    assert log_pi[0].exp().tolist() == pytest.approx([1 / whole, 1 / whole, np.e**5 / whole, 1 / whole])
    assert q.tolist() == [pytest.approx([0, 0.3, 0.6, 0.9])] * 5


def _lesson(out: Rollout, **columns: Any) -> Lesson:
    zero = np.zeros(0)
    return Lesson(**(dict.fromkeys(("item", "advantage", "worth", "left", "rule", "team", "spawn"), zero) | columns), tables=out.tables)


def test_every_decision_reads_its_own_column() -> None:
    stop = stops() | {"choice": np.array([True, False, False]), "chance": np.array([0.2, 0.5, 0.25])}
    out = made(stop=stop)
    columns = {n: np.array([float(i)]) for i, n in enumerate(("item", "advantage", "worth", "left", "rule"))}
    found = row_advantages(Network(), out, _lesson(out, team=np.array([3.0, 4.0, -8.0]), **columns))
    assert {k: v.tolist() for k, v in found.items()} == {
        "item": [1.0], "brief": [3.0], "point": [3.0], "rule": [4.0], "talk": [4.0],
        "stop": [pytest.approx(-0.8 * 3), 0.5 * 4, 0.25 * -8],
    }  # fmt: skip


def test_a_spawn_is_compared_with_the_other_episodes_of_its_seed_and_round() -> None:
    spawn = {
        "ep": np.array([0, 0, 1, 1, 2, 2, 0, 0, 1, 1]), "round": np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1]),
        "role": np.array([0, 1] * 5),
    }  # fmt: skip
    out = Rollout(
        cpt.world("W1", vote_items=2).config, np.array([7, 7, 8]), np.arange(3), {"stop": stops(), "spawn": spawn}, np.zeros((2, 3)),
        np.zeros(3), {},
    )  # fmt: skip
    returns = np.array([1.0, 1.0, 5.0, 5.0, 9.0, 9.0, 2.0, 2.0, 3.0, 3.0])
    found = row_advantages(Network(), out, _lesson(out, team=np.zeros(3), spawn=returns))["spawn"]
    # the seed with one episode has the mean of all, 4, to be compared with
    assert found.tolist() == [-4, -4, 4, 4, 5, 5, -1, -1, 1, 1]


def test_three_of_a_seed_are_compared_with_the_mean_of_two() -> None:
    spawn = {"ep": np.array([0, 1, 2]), "round": np.zeros(3, np.int64), "role": np.zeros(3, np.int64)}
    out = Rollout(
        cpt.world("W1", vote_items=2).config, np.array([7, 7, 7]), np.arange(3), {"stop": stops(), "spawn": spawn}, np.zeros((2, 3)),
        np.zeros(3), {},
    )  # fmt: skip
    found = row_advantages(Network(), out, _lesson(out, team=np.zeros(3), spawn=np.array([1.0, 3.0, 8.0])))["spawn"]
    assert found == pytest.approx([1 - 5.5, 3 - 4.5, 8 - 2.0])
