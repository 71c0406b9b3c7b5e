"""The critic of teams: planted values with a step, nobody, two families, and tasks of two sizes; by hand where it is arithmetic."""

import numpy as np
import pytest
import torch

from counterpoint.lab.train.policies.features import ROLE
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.spawn_critic import SpawnCritic, against_others, members, sizes
from counterpoint.lab.train.spawn_head import fit_heads

ROOM = 16


def rows(items: int, works: float = 0.0) -> np.ndarray:
    """(2, ROLE) the roles A and B of a task."""
    x = np.zeros((2, ROLE))
    x[:, 0], x[1, 1], x[:, 3], x[:, 7] = 1, 1, np.log1p(items) / 4, works
    return x


def worth(number: np.ndarray, items: int) -> np.ndarray:
    """Rounds cost 5, agents 1, and a share of family A 6: step by step, so that a few agents too few cost a whole round."""
    total = number.sum(axis=1)
    played = 6.0 * items - 5 * np.ceil(items / np.maximum(total, 1)) - total - 6 * number[:, 0] / np.maximum(total, 1)
    return np.where(total > 0, played, 0.0)


def trained(tasks: dict[int, float], updates: int, seed: int = 0) -> tuple[SpawnCritic, Network]:
    """Tasks in turn (items: what the orchestrator earns alone), each update 24 of them four times over, with noise."""
    rng, net, critic = np.random.default_rng(seed), Network(), SpawnCritic()
    for update in range(updates):
        items, alone = list(tasks.items())[update % len(tasks)]
        x = np.repeat(rows(items, float(alone > 0))[None], 96, axis=0)
        with torch.no_grad():
            gate, size = (v.numpy() for v in net.roles(torch.from_numpy(x.astype(np.float32))))
        go = rng.random(gate.shape) < 1 / (1 + np.exp(-gate))
        number = np.where(go, np.clip(np.round(np.exp(size + 0.3 * rng.normal(size=size.shape))), 1, ROOM), 0).astype(np.int64)
        y = np.where(number.sum(axis=1) > 0, worth(number, items) * (alone == 0) - number.sum(axis=1) * (alone > 0), 0.0)
        task = np.repeat(100 * update + np.arange(24), 4)
        y = against_others((y + rng.normal(size=96))[:, None], task)[:, 0]
        ep, role = (v.reshape(-1) for v in np.mgrid[0:96, 0:2])
        table = {"ep": ep, "round": np.zeros(192, np.int64), "role": role, "x": x.reshape(-1, ROLE), "number": number.reshape(-1)}
        critic.add(table, y[ep], task[ep])
        wanted = critic.wanted(net, ROOM, update / updates)
        fit_heads(net, *wanted, np.where(wanted[1] > 0, 1.0, 0.01))
    return critic, net


def test_sizes_and_memberships_by_hand() -> None:
    assert sizes(14).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert sizes(40)[-5:].tolist() == [29, 32, 35, 38, 40]
    found = members(np.array([0, 1, 3, np.sqrt(6), 9]), np.array([0, 1, 2, 3]))
    assert found == pytest.approx(np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0.5, 0.5], [0, 0, 0, 1]]))


def test_rows_are_held_against_the_others_of_their_task() -> None:
    x = np.array([[1.0], [2.0], [6.0], [9.0]])
    assert against_others(x, np.array([7, 7, 7, 8]))[:, 0].tolist() == [1 - 4, 2 - 3.5, 6 - 1.5, 9 - 4.5]


def test_it_finds_the_size_before_a_step_and_the_better_family() -> None:
    critic, net = trained({12: 0.0}, 60)
    gate, size = (v.detach().numpy() for v in net.roles(torch.from_numpy(rows(12).astype(np.float32))))
    assert gate[0] < 0 < gate[1]
    assert round(float(np.exp(size[1]))) == 6  # two rounds: 10 + 6; three rounds with 5: 15 + 5
    known = critic.judge(rows(12), 6.0, np.array([0.01, 0.99]), ROOM)
    assert known is not None
    assert known.value[5] == pytest.approx(-4, abs=1)
    assert known.role[1] == pytest.approx(6, abs=1.5)


def test_tasks_of_two_sizes_and_one_for_nobody_are_kept_apart() -> None:
    _, net = trained({12: 0.0, 2: 0.0, 11: 1.0}, 120)
    found = [net.roles(torch.from_numpy(rows(n, w).astype(np.float32))) for n, w in ((12, 0.0), (2, 0.0), (11, 1.0))]
    gates, lengths = ([float(pair[i][1].detach()) for pair in found] for i in (0, 1))
    assert gates[0] > 0
    assert gates[1] > 0
    assert gates[2] < 0
    assert [round(float(np.exp(s))) for s in lengths[:2]] == [6, 2]


def test_what_it_knows_is_saved_whole() -> None:
    critic, net = trained({12: 0.0}, 5)
    other = SpawnCritic()
    other.restore(critic.state())
    for one, two in zip(critic.wanted(net, ROOM, 0.5), other.wanted(net, ROOM, 0.5), strict=True):
        assert np.array_equal(one, two)
    assert SpawnCritic().judge(rows(3), 1.0, np.ones(2) / 2, ROOM) is None


def test_sizes_grow_while_nobody_is_the_best_team() -> None:
    critic, rng = SpawnCritic(), np.random.default_rng(1)
    number = np.stack([rng.integers(0, 2, 96), rng.integers(0, 3, 96)], axis=1)
    task, ep, role = np.repeat(np.arange(24), 4), *(v.reshape(-1) for v in np.mgrid[0:96, 0:2])
    y = np.array([0.0, -80.0, -40.0, -18.0])[number.sum(axis=1)] + rng.normal(size=96)
    table = {"ep": ep, "round": 0 * ep, "role": role, "x": np.tile(rows(24), (96, 1)), "number": number.reshape(-1)}
    critic.add(table, against_others(y[:, None], task)[ep, 0], task[ep])
    gate, size = critic.targets(np.array([-2.0, -1.5]), np.zeros(2), rows(24), ROOM, 0.2)
    assert gate[1] < -1.5
    assert size[1] > 0.1
