"""Particle worlds for the claim `particles`: arrays beside mpe2 itself, a step by hand, rules, what is learned."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.lab.bench.claims import particles as claim
from counterpoint.lab.bench.particles.fields import STEPS, WORLDS, Listener, PackageField, Spread, paper_return

has_package = pytest.mark.skipif(find_spec("mpe2") is None or find_spec("pygame") is None, reason="mpe2 is not installed")
RIGHT, UP = 2, 4


def listener(*, is_older: bool) -> Listener:
    """One that stands at the origin; its goal is at (1, 0)."""
    field = Listener(is_older=is_older)
    field.place(np.zeros((1, 2)), np.array([[[0.0, 1], [1, 0], [0, 0]]]), np.array([1]))
    return field


def test_two_steps_by_hand() -> None:
    """Force 5 for 0.1: v = 0.5. mpe2 moves by the old v: x = 0, then 0.05; the older package at once: 0.05, then with v = 0.875 0.1375."""
    for is_older, places in ((False, (0.0, 0.05)), (True, (0.05, 0.1375))):
        field = listener(is_older=is_older)
        for x in places:
            assert field.step(np.array([[1, RIGHT]])) == pytest.approx([-2 * (1 - x) ** 2])
            assert field.x.tolist() == [[pytest.approx(x), 0]]
        assert field.sight()[0, 1, 8:11].tolist() == [0, 1, 0], "the word that was said"


def test_what_spread_pays_by_hand() -> None:
    """Two agents 0.2 apart at the first landmark, one at the second, nobody at the third, which is 1 from the second:
    -3 (0 + 0 + 1) for the distances, -2 for two who touch, -3 for everybody's touch of itself."""
    field = Spread()
    field.place(np.array([[[0.0, 0], [0.2, 0], [5, 0]]]), np.array([[[0.0, 0], [5, 0], [5, 1]]]))
    assert field.step(np.zeros((1, 3), np.int64)) == pytest.approx([-8])
    push = 100 * 0.1  # 0.1 too near, and no more of the soft edge than that
    assert field.v[0, :, 0].tolist() == pytest.approx([-0.1 * push, 0.1 * push, 0])


@has_package
@pytest.mark.parametrize("name", WORLDS)
def test_mpe2_says_and_pays_the_same(name: str) -> None:
    count = 5
    theirs, ours = PackageField(name, range(count)), WORLDS[name][0]()
    worlds = [episode.env.unwrapped.world for episode in theirs.episodes]  # type: ignore[attr-defined]
    x = np.array([[agent.state.p_pos for agent in world.agents] for world in worlds])
    marks = np.array([[mark.state.p_pos for mark in world.landmarks] for world in worlds])
    if isinstance(ours, Spread):
        ours.place(x, marks)
    else:
        ours.place(x[:, 1], marks, np.array([world.landmarks.index(world.agents[0].goal_b) for world in worlds]))
    rng, total = np.random.default_rng(3), np.zeros(count)
    for _ in range(STEPS):
        assert theirs.sight() == pytest.approx(ours.sight(), abs=1e-5)
        actions = np.where(ours.possible, rng.random((count, ours.agents, 5)), -1.0).argmax(axis=-1)
        theirs.step(actions)
        total += ours.step(actions)
    assert theirs.returns() == pytest.approx(total, abs=1e-9)
    assert all(not episode.turn() for episode in theirs.episodes), "an episode has 25 steps"


def test_what_papers_call_a_return() -> None:
    """Half of -3 a step is paid by mpe2 where all three are 1 away in all: twice that, and the 3 of each step."""
    assert paper_return("spread", STEPS * -1.5) == STEPS * -6
    assert paper_return("speaker_listener", -7.0) == -7.0


@pytest.mark.parametrize("name", WORLDS)
def test_the_rule_is_far_above_chance_and_the_older_order_above_the_new(name: str) -> None:
    by_hand, chance = (claim.hand_returns(name, what, 0).mean() for what in ("by hand", "random"))
    assert by_hand > chance + 50
    assert by_hand > claim.hand_returns(name, "by hand", 0, is_older=False).mean(), "what moves at once arrives earlier"


def test_advantages_by_hand() -> None:
    pytest.importorskip("torch")
    from counterpoint.lab.bench.particles.learn import advantages

    # d_1 = 2 - 1 = 1, d_0 = 1 + 0.99 * 1 - 3 = -1.01; A_0 = d_0 + 0.99 * 0.95 * d_1
    found = advantages(np.array([[1.0], [2.0]]), np.array([[3.0], [1.0]]))
    assert found[:, 0].tolist() == pytest.approx([-1.01 + 0.9405, 1.0])


def test_units_of_what_is_seen_are_those_of_a_role() -> None:
    """Of the speaker the goal's colour alone varies, 0.65 or 0.15: mean 0.15 + 0.5 / 3, spread 0.5 sqrt(2) / 3; the rest is as it is."""
    pytest.importorskip("torch")
    from counterpoint.lab.bench.particles.learn import units

    means, spreads = units(Listener(is_older=True), np.random.default_rng(0))
    assert means[0, :3] == pytest.approx([0.15 + 0.5 / 3] * 3, abs=0.07)
    assert spreads[0, :3] == pytest.approx([0.5 * 2**0.5 / 3] * 3, abs=0.04)
    assert (means[0, 3:].tolist(), spreads[0, 3:].tolist()) == ([0.0] * 8 + [1.0, 0.0], [1.0] * 10)
    assert spreads[1, :2].min() > 0.1, "the listener's velocity"
    assert means[1, 8:11] == pytest.approx([24 / 75] * 3, abs=0.02), "words, of which there is none at the first step"


def test_a_network_learns_and_the_same_seed_is_the_same_network() -> None:
    pytest.importorskip("torch")
    from counterpoint.lab.bench.particles.learn import returns, train

    field = Listener(is_older=True)
    net, again = (train(field, 16_000, 5, rate=7e-4) for _ in range(2))
    assert all((a == b).all() for a, b in zip(net.parameters(), again.parameters(), strict=True))
    before = claim.hand_returns("speaker_listener", "random", 1).mean()
    assert returns(net, field, 300, 1).mean() > 0.8 * before
    assert not net.log_probs(field.sight())[:, 0, 3:].max() > -1e8, "the speaker has three words"


@has_package
def test_the_claim_whole_with_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    for name, value in (("BUDGET", 1_600), ("EPISODES", 20), ("IN_PACKAGE", 2)):
        monkeypatch.setattr(claim, name, value)
    rows = {row.name: row for row in claim.particles(seed=3, seeds=1)}
    assert len(rows) == 14
    gap = rows["spread: learned"].value - rows["spread: random"].value
    assert rows["spread: learned over random"].value == pytest.approx(gap)
    assert not any(row.has_target for name, row in rows.items() if "from memory" in name), "nothing is held to these"
    with pytest.raises(InputError, match="at least 1"):
        next(claim.spread(seed=0, seeds=0))
