"""Calls in forests of tokens: each call's log-probabilities and gradients are those of the call alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoint.lab.lm.network import Network, Rope, Shape  # noqa: E402
from counterpoint.lab.train.lm.learner import CallTokens, LanguageLearner, Options  # noqa: E402
from counterpoint.lab.train.lm.packing import ForestRow, Squares, forest_rows, long_row, row_length  # noqa: E402

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
    again = (np.array([1, 2, 3, 9]), np.array([4]))
    (got,) = forest_rows([one, two, again], most=100)
    assert got.calls == (1, 2, 0)
    assert got.ids.tolist() == [1, 2, 3, 5, 6, 9, 7, 8, 9, 4, 5]
    assert got.positions.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 3, 4, 4]
    assert got.ends.tolist() == [11, 11, 11, 8, 8, 8, 8, 8, 11, 10, 11]
    assert got.said.tolist() == [6, 7, 9, 10]
    assert got.before.tolist() == [5, 6, 8, 8]


def rows_of(calls: list[CallTokens], most: int, least: int = 0) -> list[ForestRow]:
    return forest_rows([(s.prompt, s.said) for s in calls], most, least)


def test_rows_have_room_for_so_many_tokens_and_every_call_is_whole_in_one() -> None:
    rng = np.random.default_rng(0)
    calls = [*grown(rng, 6, "a"), *grown(rng, 5, "b"), *grown(rng, 1, "c")]
    for most in (1, 100, 150, 10_000):
        rows = rows_of(calls, most)
        assert sorted(i for row in rows for i in row.calls) == list(range(len(calls)))
        for row in rows:
            assert len(row) <= most or len(row.calls) == 1
            for i, said in zip(row.calls, np.split(row.said, np.cumsum([len(calls[i].said) for i in row.calls])[:-1]), strict=True):
                path = [k for k in range(said[-1] + 1) if row.ends[k] > said[-1]]  # whom its last token sees
                assert row.ids[path].tolist() == [*calls[i].prompt, *calls[i].said]
                assert row.positions[path].tolist() == list(range(len(calls[i])))
    assert len(rows_of(calls, 10_000)) == 1
    assert [len(row.calls) for row in rows_of(calls, 10_000, least=20)].count(1) == 1  # who shares little stands alone


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
    assert tokens < 100 or sum(len(row) for batch in batches for row in batch) < 0.7 * sum(len(c) for c in calls)
    loss = -torch.cat([learner._token_logps(weights, learner._row(batch)) for batch in batches]).sum()
    apart = -torch.cat([learner._token_logps(weights, learner._row(batch)) for call in calls for batch in learner._batches([call])]).sum()
    learnt = list(weights.values())
    for name, x, y in zip(weights, torch.autograd.grad(loss, learnt), torch.autograd.grad(apart, learnt), strict=True):
        assert torch.allclose(x, y, atol=1e-4), name


@pytest.mark.parametrize(("length", "asking"), [(512, 4096), (1024, 256)])
def test_one_long_row_sees_what_squares_see(length: int, asking: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention has no gradients on a CPU; the last test but one holds those."""
    monkeypatch.setattr("counterpoint.lab.train.lm.packing._ASKING", asking)
    rng = np.random.default_rng(5)
    (row,) = rows_of([s for calls, name in ((6, "a"), (1, "b"), (9, "c")) for s in grown(rng, calls, name)], length)
    total = len(row)
    q, k, v = (torch.randn(length, heads, 16, generator=torch.Generator().manual_seed(heads)) for heads in (4, 2, 2))
    long, squares = long_row(row, length, "cpu"), Squares([row])
    assert long.positions[:total].equal(squares.positions)
    got, wanted = long(0, q, k, v), squares(0, q[:total], k[:total], v[:total])
    assert torch.allclose(got[:total], wanted, atol=1e-5)
    assert got.isfinite().all()
    network, weights = Network(replace(SHAPE, head_width=16)), wide_weights()
    ids = torch.randint(0, 40, (length,), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        whole = network.hidden_states(weights, ids, long.positions, long)[:total]
        assert torch.allclose(whole, network.hidden_states(weights, ids[:total], squares.positions, squares), atol=1e-4)


@pytest.mark.parametrize(("seed", "asking"), [(0, 100_000), (1, 1024), (2, 512), (3, 100_000), (4, 512), (5, 1024)])
def test_blocks_are_passed_over_or_taken_whole_only_where_all_is_unseen_or_seen(
    seed: int, asking: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    ends = [int(n) for n in rng.integers(1, 9, rng.integers(1, 5))]
    (row,) = rows_of([s for calls in ends for s in long_grown(rng, calls)], 100_000)
    length = row_length(len(row), 4096)
    monkeypatch.setattr("counterpoint.lab.train.lm.packing._ASKING", asking)
    mask = long_row(row, length, "cpu").mask
    parts = len(mask.kv_num_blocks)
    assert (parts == 1) == (asking >= length)
    at, part, own = torch.arange(length), torch.arange(parts)[:, None, None], torch.arange(length // parts)[None, :, None]
    seen = mask.mask_mod(part, None, own, at[None, None]).reshape(length // 128, 128, length // 128, 128)
    partly = _dense(mask.kv_num_blocks, mask.kv_indices)
    whole = _dense(mask.full_kv_num_blocks, mask.full_kv_indices)
    assert not (partly & whole).any()
    assert ((partly | whole) | ~seen.any(1).any(-1)).all()  # what somebody sees is looked at
    assert seen.all(1).all(-1)[whole].all()
    exact = seen.any(1).any(-1)
    assert (partly | whole).equal(exact)  # and nothing else
    if max(ends) > 4:
        assert whole.any()


def _dense(count: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    count, which = count.reshape(-1), which.reshape(count.numel(), -1)
    out = torch.zeros(len(count), len(count), dtype=torch.bool)
    for row, many in enumerate(count.tolist()):
        out[row, which[row, :many].long()] = True
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
        loss = -torch.cat([learner._token_logps(own, learner._row(batch)) for batch in learner._batches(calls)]).sum()
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
