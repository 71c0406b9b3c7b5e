"""Conversations laid out once: each call's log-probabilities and gradients are those of the call alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoint.lab.lm.network import Network, Rope, Shape  # noqa: E402
from counterpoint.lab.train.lm.learner import CallTokens, LanguageLearner, Options  # noqa: E402
from counterpoint.lab.train.lm.packing import Conversations, conversation, long_row, row_length, threads  # noqa: E402

SHAPE = Shape(layers=2, heads=4, kv_heads=2, head_width=8, width=16, inner=32, vocabulary=40, context=256, eps=1e-5, rope=Rope())


def weights_of() -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    drawn = lambda *size: torch.randn(*size, generator=g) * 0.3  # noqa: E731
    out = {"words": drawn(40, 16), "norm": torch.ones(16)}
    for i in range(2):
        out |= {f"{i}.norm1": torch.ones(16), f"{i}.norm2": torch.ones(16), f"{i}.qkv": drawn(64, 16), f"{i}.o": drawn(16, 32)}
        out |= {f"{i}.gate_up": drawn(64, 16), f"{i}.down": drawn(16, 32)}
    return out


def wide_weights() -> dict[str, torch.Tensor]:
    """With heads of 16, which FlexAttention needs."""
    drawn, out = np.random.default_rng(1), weights_of()
    for i in range(2):
        for name, rows, columns in (("qkv", 128, 16), ("o", 16, 64)):
            out[f"{i}.{name}"] = torch.as_tensor(drawn.normal(0, 0.3, (rows, columns)), dtype=torch.float32)
    return out


def grown(rng: np.random.Generator, calls: int, name: str) -> list[CallTokens]:
    """An agent's calls: each prompt is what was seen so far and a question, which the next one leaves out."""
    seen, out = rng.integers(3, 40, 34), []
    for k in range(calls):
        ask, said = rng.integers(3, 40, rng.integers(2, 6)), rng.integers(3, 40, rng.integers(1, 5))
        out.append(CallTokens(f"{name} e{k}", np.concatenate([seen, ask]), said))
        seen = np.concatenate([seen, said, rng.integers(3, 40, rng.integers(1, 9))])
    return out


def test_a_layout_by_hand() -> None:
    one = (np.array([1, 2, 3, 9]), np.array([5]))
    two = (np.array([1, 2, 3, 5, 6, 9]), np.array([7, 8]))
    got = conversation([one, two])
    assert got.ids.tolist() == [1, 2, 3, 5, 6, 9, 7, 8, 9, 5]
    assert got.positions.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 3, 4]
    assert got.branch.tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert got.limit.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 3, 3]
    assert got.said.tolist() == [9, 6, 7]


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
    loss = -torch.cat([learner._token_logps(weights, batch) for batch in batches]).sum()
    apart = -torch.cat([learner._token_logps(weights, batch) for call in calls for batch in learner._batches([call])]).sum()
    learnt = list(weights.values())
    for name, x, y in zip(weights, torch.autograd.grad(loss, learnt), torch.autograd.grad(apart, learnt), strict=True):
        assert torch.allclose(x, y, atol=1e-4), name


@pytest.mark.parametrize("length", [512, 1024])
def test_one_long_row_sees_what_squares_see(length: int) -> None:
    """FlexAttention has no gradients on a CPU; `tests/team/lm/test_cuda.py` holds those."""
    rng = np.random.default_rng(5)
    parts = [
        conversation([(s.prompt, s.said) for s in grown(rng, calls, name)]) for calls, name in ((6, "a"), (1, "b"), (9, "c"))
    ]
    total = sum(map(len, parts))
    q, k, v = (torch.randn(length, heads, 16, generator=torch.Generator().manual_seed(heads)) for heads in (4, 2, 2))
    row, squares = long_row(parts, length, "cpu"), Conversations(parts)
    assert row.positions[:total].equal(squares.positions)
    got, wanted = row(0, q, k, v), squares(0, q[:total], k[:total], v[:total])
    assert torch.allclose(got[:total], wanted, atol=1e-5)
    assert got.isfinite().all()
    network, weights = Network(replace(SHAPE, head_width=16)), wide_weights()
    ids = torch.randint(0, 40, (length,), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        whole = network.hidden_states(weights, ids, row.positions, row)[:total]
        assert torch.allclose(whole, network.hidden_states(weights, ids[:total], squares.positions, squares), atol=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_blocks_are_passed_over_or_taken_whole_only_where_all_is_unseen_or_seen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = [int(n) for n in rng.integers(1, 9, rng.integers(1, 5))]
    parts = [conversation([(s.prompt, s.said) for s in long_grown(rng, calls)]) for calls in ends]
    length = row_length(sum(map(len, parts)), 4096)
    mask = long_row(parts, length, "cpu").mask
    at = torch.arange(length)
    seen = mask.mask_mod(None, None, at[:, None], at[None]).view(length // 128, 128, length // 128, 128)
    partly = _dense(mask.kv_num_blocks, mask.kv_indices)
    whole = _dense(mask.full_kv_num_blocks, mask.full_kv_indices)
    assert not (partly & whole).any()
    assert ((partly | whole) | ~seen.any(1).any(-1)).all()  # what somebody sees is looked at
    assert seen.all(1).all(-1)[whole].all()
    exact = seen.any(1).any(-1)
    assert (partly | whole).sum() <= 1.3 * exact.sum() + 8  # and little else
    if max(ends) > 4:
        assert whole.any()


def _dense(count: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    n = count.shape[-1]
    out = torch.zeros(n, n, dtype=torch.bool)
    for row in range(n):
        out[row, which[0, 0, row, : count[0, 0, row]].long()] = True
    return out


def long_grown(rng: np.random.Generator, calls: int) -> list[CallTokens]:
    """As `grown`, in blocks of realistic length."""
    seen, out = rng.integers(3, 40, int(rng.integers(40, 500))), []
    for k in range(calls):
        ask, said = rng.integers(3, 40, int(rng.integers(20, 200))), rng.integers(3, 40, int(rng.integers(5, 60)))
        out.append(CallTokens(f"e{k}", np.concatenate([seen, ask]), said))
        seen = np.concatenate([seen, said, rng.integers(3, 40, int(rng.integers(10, 200)))])
    return out


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_gpu_gives_the_log_probabilities_and_gradients_of_a_cpu() -> None:
    shape, weights = replace(SHAPE, head_width=16), wide_weights()
    rng = np.random.default_rng(3)
    calls = [said for k in range(12) for said in grown(rng, 1 + k % 5, f"a{k}")]
    found = []
    for device in ("cpu", "cuda"):
        own = {n: w.detach().to(device, copy=True) for n, w in weights.items()}
        learner = LanguageLearner(Network(shape, device=device, is_compiled=device == "cuda"), own, Options(tokens=512))
        loss = -torch.cat([learner._token_logps(own, batch) for batch in learner._batches(calls)]).sum()
        gradients = torch.autograd.grad(loss, list(own.values()))
        found.append((learner.logps(calls), [g.cpu() for g in gradients]))
    (here, gradients), (there, on_gpu) = found
    for x, y in zip(here, there, strict=True):
        assert x == pytest.approx(y, abs=2e-2)  # sums in another order, products in TF32
    for name, x, y in zip(weights, gradients, on_gpu, strict=True):
        assert torch.allclose(x, y, atol=2e-2 * float(x.abs().max())), name


def test_rows_have_few_lengths() -> None:
    assert [row_length(n, 4096) for n in (1, 1024, 1025, 4096, 4097, 9000)] == [2048, 2048, 2048, 4096, 6144, 10240]
    assert row_length(3, 64) == 128
