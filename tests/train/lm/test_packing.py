"""Conversations laid out once: each call's log-probabilities and gradients are those of the call alone."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoint.team.lm.network import Network, Rope, Shape  # noqa: E402
from counterpoint.train.lm.learner import LanguageLearner, Options, Said  # noqa: E402
from counterpoint.train.lm.packing import conversation, threads  # noqa: E402

SHAPE = Shape(layers=2, heads=4, kv_heads=2, head_width=8, width=16, inner=32, vocabulary=40, context=256, eps=1e-5, rope=Rope())


def weights_of() -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    drawn = lambda *size: torch.randn(*size, generator=g) * 0.3  # noqa: E731
    out = {"words": drawn(40, 16), "norm": torch.ones(16)}
    for i in range(2):
        out |= {f"{i}.norm1": torch.ones(16), f"{i}.norm2": torch.ones(16), f"{i}.qkv": drawn(64, 16), f"{i}.o": drawn(16, 32)}
        out |= {f"{i}.gate_up": drawn(64, 16), f"{i}.down": drawn(16, 32)}
    return out


def grown(rng: np.random.Generator, calls: int, name: str) -> list[Said]:
    """An agent's calls: each prompt is what was seen so far and a question, which the next one leaves out."""
    seen, out = rng.integers(3, 40, 34), []
    for k in range(calls):
        ask, said = rng.integers(3, 40, rng.integers(2, 6)), rng.integers(3, 40, rng.integers(1, 5))
        out.append(Said(f"{name} e{k}", np.concatenate([seen, ask]), said))
        seen = np.concatenate([seen, said, rng.integers(3, 40, rng.integers(1, 9))])
    return out


def test_a_layout_by_hand() -> None:
    one = (np.array([1, 2, 3, 9]), np.array([5]))
    two = (np.array([1, 2, 3, 5, 6, 9]), np.array([7, 8]))
    got = conversation([one, two])
    assert got.ids.tolist() == [1, 2, 3, 9, 5, 5, 6, 9, 7, 8]
    assert got.positions.tolist() == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7]
    assert got.branch.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2, 2]
    assert got.said.tolist() == [4, 8, 9]


def test_calls_that_follow_each_other_are_found() -> None:
    rng = np.random.default_rng(0)
    a, b = grown(rng, 3, "a"), grown(rng, 2, "b")
    assert threads([(s.prompt, s.said) for s in [*a, *b]]) == [[0, 1, 2], [3, 4]]
    assert threads([(s.prompt, s.said) for s in [a[0], b[0], a[1]]]) == [[0], [1], [2]]
    assert threads([(s.prompt, s.said) for s in [*a, a[0]]]) == [[0, 1, 2], [3]]  # a trunk does not shrink


@pytest.mark.parametrize("tokens", [64, 4096])
def test_together_is_as_alone(tokens: int) -> None:
    rng = np.random.default_rng(3)
    calls = [*grown(rng, 4, "a"), *grown(rng, 1, "b"), *grown(rng, 3, "c")]
    weights = weights_of()
    learner = LanguageLearner(Network(SHAPE), weights, Options(tokens=tokens))
    together = learner.logps(calls)
    alone = [learner.logps([call])[0] for call in calls]
    for x, y in zip(together, alone, strict=True):
        assert x == pytest.approx(y, abs=1e-5)
    batches = list(learner._batches(calls))
    assert sum(len(one.tokens) for batch in batches for one in batch) < 0.7 * sum(len(c) for c in calls)
    loss = -torch.cat([learner._said(weights, batch) for batch in batches]).sum()
    apart = -torch.cat([learner._said(weights, batch) for call in calls for batch in learner._batches([call])]).sum()
    learnt = list(weights.values())
    for name, x, y in zip(weights, torch.autograd.grad(loss, learnt), torch.autograd.grad(apart, learnt), strict=True):
        assert torch.allclose(x, y, atol=1e-4), name
