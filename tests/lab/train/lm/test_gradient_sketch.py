"""Sketches of a gradient: what they keep, how far they are off, and that they are of the gradient that was asked for."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.lab.train.lm.test_learner import SHAPE, said, weights_of  # noqa: E402

from counterpoint.lab.lm.network import Network, Packed  # noqa: E402
from counterpoint.lab.train.lm.gradient_sketch import Sketch, group_of, score_sketch  # noqa: E402
from counterpoint.lab.train.lm.learner import LanguageLearner, Options  # noqa: E402


def test_products_are_kept_on_average_and_the_error_is_as_said() -> None:
    rng, k = np.random.default_rng(0), 64
    a = rng.normal(size=3_000)
    b = 0.5 * a + rng.normal(size=3_000)
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    made = []
    for seed in range(600):
        sketch = Sketch(k, seed)
        one, two = (sketch.of({"0.qkv": torch.from_numpy(x)})["attention"] for x in (a, b))
        made.append(one @ two)
    told = (1 + (a @ b) ** 2) / k
    assert abs(np.mean(made) - a @ b) < 4 * np.sqrt(told / len(made)), "unbiased"
    assert 0.7 * told < np.var(made) < 1.3 * told


def test_a_sketch_is_linear_and_of_its_seed() -> None:
    one, two = torch.randn(40, 5, generator=torch.Generator().manual_seed(1)), torch.ones(40, 5)
    s = Sketch(16, 3)
    of = [s.of({"1.o": x, "words": x})["attention"] for x in (one, two, one + 2 * two)]
    assert np.allclose(of[2], of[0] + 2 * of[1], atol=1e-5)
    assert np.array_equal(Sketch(16, 3).of({"1.o": one})["attention"], of[0])
    assert not np.array_equal(Sketch(16, 4).of({"1.o": one})["attention"], of[0])
    assert not np.array_equal(s.of({"0.o": one})["attention"], of[0]), "another weight has other directions"
    single = s.of({"2.o": torch.tensor([2.5])})["attention"]
    assert sorted(np.abs(single).tolist())[-2:] == [0.0, 2.5]


def test_groups_of_weights() -> None:
    assert {group_of(name) for name in weights_of()} == {"attention", "feed-forward", "words", "rest"}
    assert [group_of(n) for n in ("3.qkv", "0.down", "words", "0.norm1", "1.qkv_bias")] == [
        "attention", "feed-forward", "words", "rest", "rest",
    ]  # fmt: skip


def test_the_sketch_is_of_the_score_gradient() -> None:
    weights = weights_of()
    learner = LanguageLearner(Network(SHAPE), weights, Options(tokens=32))
    calls = [
        said("a", [1, 2, 3], [4, 5], advantages=np.array([0.5, 0.5])),
        said("b", [6, 7], [8, 9, 0], advantages=np.array([-1.0, 0.0, 2.0])),
    ]
    sketch = Sketch(64, 1)
    found = score_sketch(learner, calls, sketch, teams=4)
    assert all(w.grad is None for w in weights.values()), "nothing is left behind"
    for call in calls:  # each by itself, through the network as it is
        ids = torch.as_tensor(np.concatenate([call.prompt, call.said]))
        packed = Packed([len(ids)])
        network = learner.network
        rows = network.logits(weights, network.hidden_states(weights, ids, packed.positions, packed)).log_softmax(-1)
        own = torch.stack([rows[len(call.prompt) - 1 + j, int(t)] for j, t in enumerate(call.said)])
        (own * torch.as_tensor(call.advantages).float()).sum().backward()
    wanted = sketch.of({name: w.grad / 4 for name, w in weights.items() if w.grad is not None})
    assert found.keys() == wanted.keys()
    for group, each in wanted.items():
        assert np.abs(each).max() > 1e-3
        assert found[group] == pytest.approx(each, abs=1e-5)
    assert score_sketch(learner, [], sketch, teams=4) == {}
