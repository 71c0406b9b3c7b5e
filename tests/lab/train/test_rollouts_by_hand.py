"""Rollouts joined and counted, who earned what of an item, and the spawn gradient: numbers by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cpt
from counterpoint.lab.train.policies.features import ROLE
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.rollouts import Rollout, _credit_changes, _prices, _settle, along, merge_rollouts, play_out
from counterpoint.lab.train.spawn_head import SpawnGradient, _codes
from counterpoint.lab.worlds.teamworld.action import Action, Calls
from counterpoint.lab.worlds.teamworld.engine import Batch
from lab.train.nets import says

CONFIG = cpt.world("W1", vote_items=3).config


def rollout(tables: Any = None, values: Any = (6.0, 2.5), value_TE: Any = ((1.0, 0.0), (4.0, 2.0)), **more: Any) -> Rollout:
    n = len(values)
    return Rollout(CONFIG, np.arange(n), np.arange(n), tables or {}, np.array(value_TE), np.array(values), {}, **more)


# -- what is counted


def test_decisions_and_calls() -> None:
    rows = {name: {"ep": np.zeros(n)} for name, n in (("stop", 2), ("spawn", 3), ("talk", 4), ("rule", 5), ("worker", 6), ("candidate", 99))}
    out = rollout({**rows, "item": {"ep": np.zeros(7), "agent": np.array([-1, 0, 1, 2, -1, -1, -1])}})
    assert out.decisions == 2 + 3 + 4 + 5 + 6 + 7 + 2 * 3
    assert rollout(rows).decisions == 20
    out.columns = {"calls": np.array([3, 4])}
    assert out.calls == 7


def test_what_is_left_to_get_and_what_does_not_add_up() -> None:
    out = rollout({"stop": {"ep": np.array([1, 0, 0]), "round": np.array([1, 1, 0])}}, extra={"team": np.array([5.0, 2.0])})
    assert out.to_go("stop").tolist() == [0.5, 2.0, 5.0]
    assert out.gap() == 0.5  # 1 + 5 is 6; 0 + 2 is not 2.5
    out.tables["item"] = {"ep": np.array([1, 1]), "reward": np.array([0.25, 0.25])}
    assert out.gap() == 0
    out.tables["item"]["reward"] = np.array([0.25, 3.25])
    assert out.gap() == 3


def part(episodes: int, chains: list[int], rounds: int) -> Rollout:
    n = len(chains)
    item = {
        "ep": np.zeros(n, np.int64), "chain": np.array(chains), "order": np.arange(n)[::-1], "reward": np.arange(n) + 10.0 * episodes,
    }  # fmt: skip
    tables = {
        "item": item, "candidate": {"ep": np.zeros(1, np.int64), "row": np.array([1])}, "worker": {"ep": np.zeros(1, np.int64), "row": np.array([0])},
        "stop": {"ep": np.arange(episodes)},
    }  # fmt: skip
    out = rollout(tables, np.full(episodes, 7.0), np.arange(rounds * episodes, dtype=float).reshape(rounds, episodes))
    out.columns, out.extra = {"calls": np.full(episodes, 2)}, {"team": np.full(episodes, 0.5)}
    out.seeds, out.salts = np.full(episodes, 40 + episodes), np.full(episodes, 50 + episodes)
    return out


def test_rollouts_become_one() -> None:
    one, two = part(1, [0, 0, 1], 3), part(2, [0, 1], 2)
    assert merge_rollouts([one]) is one
    out = merge_rollouts([one, two, part(1, [0], 1)])
    t = out.tables
    assert t["item"]["ep"].tolist() == [0, 0, 0, 1, 1, 3]
    assert t["item"]["chain"].tolist() == [0, 0, 1, 2, 3, 4]
    assert t["item"]["order"].tolist() == [2, 1, 0, 4, 3, 5]
    assert t["candidate"]["row"].tolist() == [1, 4, 6]
    assert t["worker"]["row"].tolist() == [0, 3, 5]
    assert t["stop"]["ep"].tolist() == [0, 1, 2, 3]
    assert out.value_TE.tolist() == [[0, 0, 1, 0], [1, 2, 3, 0], [2, 2, 3, 0]]  # shorter ones stay as they ended
    assert (out.seeds.tolist(), out.salts.tolist()) == ([41, 42, 42, 41], [51, 52, 52, 51])
    assert (out.columns["calls"].tolist(), out.extra["team"].tolist(), out.values.tolist()) == ([2] * 4, [0.5] * 4, [7] * 4)
    assert out.config is CONFIG
    bare = part(1, [0], 1)
    del bare.tables["item"]
    assert merge_rollouts([bare, part(1, [0], 1)]).tables["item"]["order"].tolist() == [0]


# -- who earned what


def test_what_changed_goes_to_the_last_round_with_a_call() -> None:
    # item 0 of the episode is called twice in round 0 and once in round 2; its worth rises in rounds 0, 1 and 2
    t = {"ep": np.array([0, 0, 0, 0, 0]), "item": np.array([0, 0, 0, 1, 1]), "round": np.array([0, 0, 2, 1, 0])}
    called = np.array([True, True, True, True, False])
    worths = [np.array([row]) for row in ([0.0, 0.0], [4.0, 9.0], [6.0, 9.0], [7.0, 14.0])]
    reward = np.zeros(5)
    _credit_changes(t, called, reward, worths)
    # 4 and 2 to the two of round 0 in equal parts, 1 to that of round 2; item 1: the 9 of round 0 is nobody's, the 5 is round 1's
    assert reward.tolist() == [3, 3, 1, 5, 0]
    nobody = np.zeros(5)
    _credit_changes(t, np.zeros(5, bool), nobody, worths)
    assert nobody.tolist() == [0] * 5


def test_prices_time_chains_and_calls_to_go() -> None:
    out = rollout(
        {"item": {
            "ep": np.array([0, 0, 0, 1]), "item": np.array([0, 0, 1, 0]), "round": np.array([1, 0, 0, 0]), "copy": np.zeros(4, np.int64),
            "agent": np.array([1, 2, 0, -1]),
        }}
    )  # fmt: skip
    prices = [np.array([0.5]), np.array([0.25, 0.125])]
    worths = [np.zeros((2, 3)), np.full((2, 3), 0.0), np.full((2, 3), 0.0)]
    worths[1][0, 1] = 3.0
    worths[2][0, 1] = 3.0
    clocks = [np.array([0.0, 0.0]), np.array([2.0, 0.0]), np.array([5.0, 0.0])]
    _settle(out, worths, clocks, prices)
    t, p = out.tables["item"], CONFIG.round_price
    # prices come in the order of the rows; round 0 took 2 for two calls, round 1 took 3 for one
    assert t["reward"] == pytest.approx([-0.5 - 3 * p, -0.25 - p, -0.125 - p + 3.0, 0.0])
    assert t["chain"].tolist() == [0, 0, 1, 2]
    assert t["order"].tolist() == [1, 0, 2, 3]
    assert t["calls_to_go"].tolist() == [1, 2, 1, 0]
    assert t["worth"].tolist() == [0, 0, 0, 0]
    assert along(t, np.array([1.0, 10.0, 100.0, 1000.0])).tolist() == [1, 11, 100, 1000]


def test_the_price_of_a_call() -> None:
    config = cpt.world("W1", vote_items=2, chain_items=1, brief_price=0.01, check_price=0.07).config
    batch = Batch(config, np.array([0]))
    calls = Calls.of(ep=[0, 0, 0], item=[0, 1, 2], agent=[0, 1, 1], brief=[3, 2, 1], purpose=[0, 1, 1])
    own, other = (config.price[batch.state.family[0, a]] for a in (0, 1))
    plain = Action(stop=np.zeros(1, np.bool_), calls=calls)
    # oneself is told nothing; to check a chain has a price of its own
    assert _prices(config, batch, plain) == pytest.approx([own, other + 0.02, 0.07 + 0.01])
    full = Action(stop=np.zeros(1, np.bool_), calls=calls, full_return=np.ones(1, np.bool_))
    assert _prices(config, batch, full) == pytest.approx([own, other + 0.02, 0.08])
    answers = Action(stop=np.zeros(1, np.bool_), calls=Calls.of(ep=[0], item=[2], agent=[1], brief=[0], purpose=[0]))
    assert _prices(config, batch, answers) == pytest.approx([other])
    harness = cpt.world("W1", vote_items=1, topology="harness", brief_price=0.0).config
    one = Action(stop=np.zeros(1, np.bool_), calls=Calls.of(ep=[0], item=[0], agent=[0]))
    through = Batch(harness, np.array([0]))
    assert _prices(harness, through, one) == pytest.approx([harness.price[through.state.family[0, 0]] + 0.0005])
    assert _prices(config, batch, Action(stop=np.zeros(1, np.bool_))).shape == (0,)


def test_a_played_rollout_adds_up() -> None:
    torch.manual_seed(0)
    net = Network()
    out = play_out(cpt.world("W1", vote_items=4, max_rounds=5).config, net, np.arange(4), np.arange(4))
    assert out.gap() < 1e-9
    assert out.batch is None
    assert np.array_equal(out.values, out.value_TE[-1])
    logged = play_out(cpt.world("W1", vote_items=4, max_rounds=5).config, net, np.arange(4), np.arange(4), log=True)
    assert logged.batch is not None
    assert np.array_equal(logged.values, out.values)
    team = out.values - out.value_TE[0] - np.bincount(out.tables["item"]["ep"], out.tables["item"]["reward"], 4)
    assert out.extra["team"] == pytest.approx(team)


# -- the spawn gradient


def spawn_rows(**changes: Any) -> dict[str, np.ndarray]:
    """Two decisions: in the first, two roles, one that came with log size 2 and one that did not; in the second one that came."""
    x = np.zeros((3, ROLE), np.float32)
    x[0, 0] = x[1, 1] = x[2, 0] = 1
    return {
        "ep": np.array([0, 0, 1]), "round": np.array([0, 0, 0]), "x": x, "choice": np.array([True, False, True]),
        "forced": np.array([False, False, True]), "logp": np.log([0.25, 0.4, 0.9]), "size": np.array([2.0, 0.0, 0.5]), **changes,
    }  # fmt: skip


def net_of(size: float = 1.0, gate: float = 0.0) -> Network:
    net = Network()
    says(net.size, size)
    says(net.gate, gate)
    return net


def test_evidence_by_hand() -> None:
    made = SpawnGradient()
    made.add(net_of(), spawn_rows(), np.array([3.0, 3.0, 1.0]), spread=1.0)
    # spread 1: y = 3, 1. phi of the first: 1 - 0.25 for role 0, 0 - 0.6 for role 1, sizes 2 - 1; of the second 1 - 1/2 and 0.5 - 1
    phi = np.zeros((2, 2 * ROLE))
    phi[0, [0, 1, ROLE]] = 0.75, -0.6, 1.0
    phi[1, [0, ROLE]] = 0.5, -0.5
    assert made.square == pytest.approx(phi.T @ phi)
    assert made.cross == pytest.approx(phi.T @ [3, 1])
    assert (made.energy, made.count) == (pytest.approx(10), 2)
    made.add(net_of(), spawn_rows(), np.array([3.0, 3.0, 1.0]), spread=1.0)
    assert made.square == pytest.approx(1.9 * phi.T @ phi)
    assert made.cross == pytest.approx(1.9 * phi.T @ [3, 1])
    assert (made.energy, made.count) == (pytest.approx(19), pytest.approx(3.8))
    twice = SpawnGradient()
    twice.add(net_of(), spawn_rows(), np.array([6.0, 6.0, 2.0]), spread=2.0)
    assert twice.cross == pytest.approx(phi.T @ [3, 1])  # in units of the spread
    flat = SpawnGradient()
    flat.add(net_of(), spawn_rows(), np.zeros(3), spread=0.0)
    assert flat.energy == 0


def test_the_roles_of_a_round_are_one_decision() -> None:
    which, first = _codes({"ep": np.array([1, 0, 0, 0]), "round": np.array([0, 1, 0, 1])})
    assert (which.tolist(), first.tolist()) == ([2, 1, 0, 1], [2, 1, 0])


def one_feature(square: float, cross: float, energy: float, count: float, part: int = 0) -> SpawnGradient:
    made = SpawnGradient()
    made.square[part * ROLE, part * ROLE], made.cross[part * ROLE] = square, cross
    made.energy, made.count = energy, count
    return made


def test_an_estimate_and_its_error_by_hand() -> None:
    x = np.zeros((1, ROLE))
    x[0, 0] = 2.0
    for part in (0, 1):
        made = one_feature(7.5, 4.0, 50.0, 2 * ROLE + 12, part)
        gain, error = made.estimate(x, part)
        # w = 4 / 8; noise = (50 - 0.5 * 4) / 12 = 4
        assert gain == pytest.approx([1.0])
        assert error == pytest.approx([np.sqrt(4 * 4 / 8)])
        assert made.estimate(x, 1 - part)[0] == pytest.approx([0.0])
    few = one_feature(7.5, 4.0, 50.0, 3.0)
    assert few.estimate(x, 0)[1] == pytest.approx([np.sqrt(48 * 4 / 8)])
    exact = one_feature(7.5, 4.0, 1.0, 3.0)
    assert exact.estimate(x, 0)[1] == pytest.approx([np.sqrt(1e-6 * 4 / 8)], rel=1e-3)


def moved(made: SpawnGradient, net: Network, room: int = 100, *, left: float = 1.0, least: float = -2.5) -> tuple[float, float]:
    """How far gate and size of the first role should go."""
    x = np.eye(ROLE)[:1]
    before = [float(v.detach()) for v in net.roles(torch.from_numpy(x.astype(np.float32)))]
    gate, size = made.targets(net, x, room, left=left, least=least)
    return float(gate[0]) - before[0], float(size[0]) - before[1]


def test_a_step_goes_as_far_as_the_evidence() -> None:
    # w = 0.4 and noise 4.8, so that t^2 = 0.16 * 8 / noise
    made = one_feature(7.5, 3.2, 2.88 + 1.28, 2 * ROLE + 2)
    noise = (4.16 - 0.4 * 3.2) / 2
    square = 0.16 * 8 / noise
    gate, size = moved(made, net_of())
    assert gate == pytest.approx(0.4 * square / (1 + square), rel=1e-4)
    assert size == pytest.approx(0.0, abs=1e-6)
    assert moved(made, net_of(), left=0.5)[0] == pytest.approx(0.5 * gate, rel=1e-4)
    strong = one_feature(7.5, 32.0, 128.0 + 1e-3, 2 * ROLE + 2)  # w = 4, and next to no noise
    assert moved(strong, net_of())[0] == pytest.approx(0.5)  # no further in one update
    assert moved(made, net_of(gate=2.45))[0] == pytest.approx(0.05, rel=1e-2)  # no further than 2.5
    down = one_feature(7.5, -3.2, 4.16, 2 * ROLE + 2)
    assert moved(down, net_of())[0] == pytest.approx(-gate, rel=1e-4)
    assert moved(one_feature(7.5, -32.0, 128.001, 2 * ROLE + 2), net_of())[0] == pytest.approx(-0.5)
    assert moved(down, net_of(gate=-2.45))[0] == pytest.approx(-0.05, rel=1e-2)
    assert moved(down, net_of(gate=-3.0))[0] == pytest.approx(0.0, abs=1e-6)  # what is below the least already stays


def test_a_step_in_size_stays_within_the_room() -> None:
    made = one_feature(7.5, 3.2, 4.16, 2 * ROLE + 2, part=1)
    noise = (4.16 - 0.4 * 3.2) / 2
    square = 0.16 * 8 / noise
    gate, size = moved(made, net_of())
    assert gate == pytest.approx(0, abs=1e-6)
    assert size == pytest.approx(0.6 * 0.4 * square / (1 + square), rel=1e-4)
    strong = one_feature(7.5, 32.0, 128.001, 2 * ROLE + 2, part=1)
    assert moved(strong, net_of())[1] == pytest.approx(0.25)  # half of what a gate may
    assert moved(made, net_of(size=float(np.log(3)) - 0.01), room=3)[1] == pytest.approx(0.01, rel=1e-2)
    down = one_feature(7.5, -3.2, 4.16, 2 * ROLE + 2, part=1)
    assert moved(down, net_of(size=0.01))[1] == pytest.approx(-0.01, rel=1e-2)
    assert moved(made, net_of(size=0.0), room=0)[1] == pytest.approx(0.0, abs=1e-6)


def test_what_was_learned_is_kept() -> None:
    made = SpawnGradient()
    made.add(net_of(), spawn_rows(), np.array([3.0, 3.0, 1.0]), spread=1.0)
    other = SpawnGradient()
    other.restore(made.state())
    assert (other.energy, other.count) == (made.energy, made.count)
    assert np.array_equal(other.square, made.square)
