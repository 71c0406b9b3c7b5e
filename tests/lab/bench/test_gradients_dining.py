"""Gradients at the table of philosophers: the parts of the reward, replays without somebody, forks, and the claim when small."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from counterpoint.errors import InputError
from counterpoint.lab.bench.claims.gradient_dining import rows
from counterpoint.lab.bench.dining import gradients as g
from counterpoint.lab.bench.dining.learn import Net, Rows, meals_and_fairness, play, score_gradient
from counterpoint.lab.bench.dining.tables import STEPS, Tables

SIZE, COUNT = 4, 12


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(2)
    return Net(numbered=True)


def test_the_parts_add_up_to_the_reward(net: Net) -> None:
    played = g.teams_of(net, SIZE, COUNT, 1)
    phi = g.parts_of(played)
    assert phi.shape == (STEPS + 1, COUNT, SIZE)
    assert not phi[0].any()
    assert np.allclose(phi[-1].sum(axis=1), meals_and_fairness(played))


def test_less_others_by_hand() -> None:
    found = g.less_others(np.array([[[1.0], [2.0], [6.0]]]))
    assert found[0, :, 0].tolist() == [1 - 4, 2 - 3.5, 6 - 1.5]


def test_replays_are_exact_and_blind_to_who_is_idle(net: Net) -> None:
    played = g.teams_of(net, SIZE, COUNT, 3)
    ends, calls = g.without(net, played.draws, np.ones((COUNT, SIZE), np.bool_))
    assert np.array_equal(ends, meals_and_fairness(played))
    assert calls == played.steps * SIZE
    other = played.draws.copy()
    other[:, :, 1] = np.random.default_rng(0).random(other[:, :, 1].shape)
    active = np.ones((COUNT, SIZE), np.bool_)
    active[:, 1] = False
    assert np.array_equal(g.without(net, played.draws, active)[0], g.without(net, other, active)[0])
    each, calls = g.differences(net, played)
    assert np.allclose(each[:, 1], meals_and_fairness(played) - g.without(net, played.draws, active)[0])
    assert calls <= COUNT * SIZE * (SIZE - 1) * STEPS


def test_shapley_shares_all_of_the_reward(net: Net) -> None:
    played = g.teams_of(net, SIZE, COUNT, 5)
    found, _ = g.shapley(net, played, np.random.default_rng(1))
    assert np.allclose(found.sum(axis=1), meals_and_fairness(played))


def test_siblings_are_of_one_sight(net: Net) -> None:
    played = g.teams_of(net, SIZE, COUNT, 7)
    found, paid = g.siblings(played), meals_and_fairness(played)
    assert np.allclose(found[0], (paid - (paid.sum() - paid) / (COUNT - 1))[:, None]), "all begin alike"
    x = np.stack(played.x)
    alone = [t for t in range(STEPS) if not (x[t, 1:, 2] == x[t, 0, 2]).all(axis=-1).any()]
    assert alone
    assert not found[alone, 0, 2].any(), "no sibling, no credit"


def test_the_gradient_is_that_of_the_sum(net: Net) -> None:
    rng = np.random.default_rng(4)
    x, possible = rng.normal(size=(9, 34)).astype(np.float32), np.ones((9, 4), np.bool_)
    advantage, choice = rng.normal(size=9), rng.integers(0, 4, 9)
    way = rng.normal(size=sum(p.numel() for p in net.parameters()))
    found = score_gradient(net, Rows(x, possible, choice, np.zeros(9), advantage)) @ way

    def value(by: float) -> float:
        moved, at = Net(numbered=True).double(), 0
        moved.load_state_dict({k: v.double() for k, v in net.state_dict().items()})
        with torch.no_grad():
            for p in moved.parameters():
                p += by * torch.from_numpy(way[at : at + p.numel()]).view_as(p)
                at += p.numel()
            logp = moved(torch.from_numpy(x).double(), torch.from_numpy(possible)).numpy()
        return float((logp[np.arange(9), choice] * advantage).sum())

    assert found == pytest.approx((value(1e-5) - value(-1e-5)) / 2e-5, rel=1e-3)


def test_forks_have_the_gradient_of_the_reward(net: Net) -> None:
    """Of very many forks of one batch, along the gradient of the same decisions' exact effects on average: no bias at its size."""
    played = play(net, Tables(COUNT, 3), np.random.default_rng(6).random((STEPS, COUNT, 3)))
    samples = np.stack([g.fork_gradient(net, played, np.random.default_rng(s), 60)[0] for s in range(24)])
    one, two = samples[::2].mean(0), samples[1::2].mean(0)
    assert one @ two > 0, "two independent halves see the same gradient"
    assert np.allclose(samples[0], g.fork_gradient(net, played, np.random.default_rng(0), 60)[0])


def test_forks_are_paid_and_the_same_seed_gives_the_same(net: Net) -> None:
    found, again = (g.gradient_sample(net, 3, g.NAMES, 11, 2, 4) for _ in range(2))
    assert all((found[name].batches == again[name].batches).all() for name in g.NAMES)
    free = {name: found[name].calls for name in g.NAMES if name not in g.FORKING}
    assert len(set(free.values())) == 1
    assert all(found[name].calls > found[g.TEAM].calls for name in g.FORKING)


def test_the_claim_at_a_small_size() -> None:
    made = {row.name: row for row in rows(3, 1, (3, 4), 640, 4, 1_000)}
    assert sum(row.has_target for row in made.values()) == 3
    for name in g.NAMES:
        assert f"signal to noise of a team, 4 philosophers: {name}" in made
        assert f"last layer, 4 philosophers, signal to noise of a team: {name}" in made
    assert not math.isnan(made["cosine of 16 teams with the truth, 4 philosophers: turns"].value)
    with pytest.raises(InputError, match="at least 1"):
        next(rows(1, 0, (3,), 160, 4, 1_000))
