"""QMIX and VDN over sub-decisions: the mix, its monotony, rounds and their rewards, utilities, and that errors shrink."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.credits.mechanisms import qmix as reference
from counterpoint.errors import InputError
from counterpoint.lab.train.jobs import world_of
from counterpoint.lab.train.losses.td import Mixer, Options, beats_of, learn, td, utilities
from counterpoint.lab.train.policies.features import TEAM
from counterpoint.lab.train.policies.network import HEADS, Network
from counterpoint.lab.train.rollouts import Rollout, play_out

FLOATS = st.floats(-3, 3, allow_nan=False, width=32)


def _made(seed: int = 0) -> tuple[Network, Mixer]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Network(), Mixer()


def _rollout(net: Network, episodes: int = 12, **changes: object) -> Rollout:
    config = world_of("W1", {"vote_items": 5, "max_votes": 3, "max_rounds": 8, **changes}).config
    return play_out(config, net, np.arange(episodes), np.arange(episodes))


@settings(max_examples=25, deadline=None)
@given(st.lists(FLOATS, min_size=5, max_size=5), st.integers(0, 1000))
def test_the_mix_is_that_of_the_credit_mechanism(q: list[float], seed: int) -> None:
    _, mixer = _made()
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, TEAM)).astype(np.float32))
    with torch.no_grad():
        w1, b1, w2, level = (w[0].numpy().astype(np.float64) for w in mixer.weights(x))
        found = float(mixer(torch.tensor([q]), x))
    assert found == pytest.approx(float(reference.mix(q, reference.MixWeights(w1, b1, w2, float(level)))), abs=1e-4)


@settings(max_examples=50, deadline=None)
@given(st.lists(FLOATS, min_size=5, max_size=5), st.integers(0, 4), st.floats(0, 5), st.integers(0, 1000))
def test_the_team_never_loses_when_a_utility_rises(q: list[float], head: int, more: float, seed: int) -> None:
    _, mixer = _made()
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, TEAM)).astype(np.float32)).expand(2, -1)
    better = list(q)
    better[head] += more
    for mix in ("qmix", "vdn"):
        with torch.no_grad():
            low, high = mixer(torch.tensor([q, better]), x, mix=mix).tolist()
        assert high >= low - 1e-5


def test_vdn_is_a_sum_and_a_level() -> None:
    _, mixer = _made()
    x = torch.zeros(1, TEAM)
    with torch.no_grad():
        level = float(mixer.level(x))
        assert float(mixer(torch.tensor([[1.0, 0.5, -0.2, 0.0, 0.0]]), x, mix="vdn")) == pytest.approx(1.3 + level)


def test_rounds_follow_each_other_and_their_rewards_add_up_to_the_return() -> None:
    net, _ = _made()
    out = _rollout(net)
    beats = beats_of(out)
    assert np.array_equal(np.lexsort((beats.round, beats.ep)), np.arange(len(beats.ep)))
    assert np.bincount(beats.ep, beats.reward) == pytest.approx(out.values - out.value_TE[0])
    assert beats.last.sum() == len(out.values)
    stop = out.tables["stop"]
    assert np.array_equal(beats.x[beats.place(stop, len(out.value_TE))], stop["x"])
    assert np.array_equal(beats.seen, beats.round > 0)  # nobody is there to be called in the first round


def test_utilities_are_means_by_round_and_the_best_is_never_worse() -> None:
    net, _ = _made()
    out = _rollout(net)
    beats = beats_of(out)
    with torch.no_grad():
        chosen, best = utilities(net, out, beats, 2.0)
        assert (best >= chosen - 1e-6).all()
        t = out.tables["item"]
        at = beats.place(t, len(out.value_TE))
        mine = at == at[0]
        logits = net.items(torch.from_numpy(t["x"][mine]))[0].numpy()
        by_hand = logits[np.arange(mine.sum()), t["choice"][mine]].mean()
        c, points = out.tables["candidate"], []
        for row in np.flatnonzero(mine & (t["agent"] >= 0)):
            k = np.flatnonzero((c["row"] == row) & c["picked"])[0]
            query = net.items(torch.from_numpy(t["x"][[row]]))[2]
            score = (query * net.key(torch.from_numpy(c["agent_x"][[k]]))).sum() + net.pair(
                torch.from_numpy(c["pair_x"][[k]])
            ).sum()
            points.append(float(score))
    assert float(chosen[at[0], HEADS.index("delegate")]) == pytest.approx(2.0 * (by_hand + np.mean(points)), abs=1e-5)


@pytest.mark.parametrize("mix", ["qmix", "vdn"])
def test_errors_shrink_and_the_same_batch_gives_the_same_weights(mix: str) -> None:
    losses, ends = [], []
    for _ in range(2):
        net, mixer = _made()
        out = _rollout(net)
        optimizer = torch.optim.Adam([*net.policy_parameters(), *mixer.parameters()], lr=3e-3)
        losses = [learn(net, mixer, optimizer, out, Options(mix=mix, gamma=0.0), progress=0.0)["loss"] for _ in range(8)]
        ends.append([p.detach().clone() for p in net.parameters()])
    assert losses[-1] < 0.5 * losses[0]
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_one_mixer_takes_any_number_of_items_and_agents() -> None:
    net, mixer = _made()
    optimizer = torch.optim.Adam([*net.policy_parameters(), *mixer.parameters()], lr=1e-3)
    for items, agents in ((2, 1), (30, 20)):
        out = _rollout(net, 4, vote_items=items, max_agents=agents)
        found = learn(net, mixer, optimizer, out, Options(), progress=1.0)
        assert np.isfinite(found["loss"])
        assert found["tau"] == pytest.approx(Options.tau_to)


def test_unknown_options_are_one_clear_error() -> None:
    for options, says in (({"gama": 0.9}, "did you mean 'gamma'"), ({"mix": "qmixx"}, "did you mean 'qmix'")):
        with pytest.raises(InputError, match=says):
            td.resolved(options)
