"""What a run is said to take is what torch takes: weights and moments exactly, activations nearly; told without any weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoint.lab.lm.adapter import Adapter  # noqa: E402
from counterpoint.lab.lm.network import Network, Rope, Shape, shape_of, sizes  # noqa: E402
from counterpoint.lab.train.lm.learner import CallTokens, LanguageLearner, Options  # noqa: E402
from counterpoint.lab.train.lm.memory import Plan, count_adapter, count_weights, kept_bytes, memory, seconds  # noqa: E402

LLAMA = Shape(
    layers=4, heads=4, kv_heads=2, head_width=16, width=64, inner=160, vocabulary=300, context=512, eps=1e-5, rope=Rope()
)
QWEN = Shape(
    layers=6, heads=8, kv_heads=2, head_width=32, width=192, inner=500, vocabulary=900, context=512, eps=1e-5, rope=Rope(),
    has_qk_norm=True, has_qkv_bias=True, is_tied=False,
)  # fmt: skip


def learner_of(shape: Shape, *, rank: int = 0, is_recomputed: bool = False) -> LanguageLearner:
    random = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(*size, generator=random) * 0.1 for name, size in sizes(shape).items()}
    adapter = Adapter.new(shape, weights, rank=rank) if rank else None
    return LanguageLearner(Network(shape, is_recomputed=is_recomputed), weights, Options(tokens=100_000), adapter)


def calls_of(shape: Shape, said: int) -> list[CallTokens]:
    rng = np.random.default_rng(1)
    return [CallTokens(str(i), *(rng.integers(0, shape.vocabulary, n) for n in (50, said))) for i in range(6)]


def moments(learner: LanguageLearner) -> int:
    """Bytes that the optimiser holds, without its counts of steps."""
    return sum(t.nbytes for own in learner.optimizer.state.values() for t in own.values() if t.ndim)


@pytest.mark.parametrize("shape", [LLAMA, QWEN])
@pytest.mark.parametrize("rank", [0, 4])
def test_weights_gradients_and_moments_are_counted_exactly(shape: Shape, rank: int) -> None:
    learner = learner_of(shape, rank=rank)
    learner.imitate(calls_of(shape, 4))
    told = memory(Plan(shape=shape, adapters=1 if rank else 0, rank=rank or 8), 1)
    assert count_weights(shape) == sum(w.numel() for w in learner.weights.values())
    if rank:
        assert count_adapter(shape, rank) == sum(p.numel() for p in learner.learned)
    assert told["weights"] == sum(t.nbytes for t in {id(t): t for t in [*learner.weights.values(), *learner.learned]}.values())
    assert told["gradients"] == sum(p.grad.nbytes for p in learner.learned if p.grad is not None)
    assert told["optimiser"] == moments(learner)


@pytest.mark.parametrize("shape", [LLAMA, QWEN])
@pytest.mark.parametrize("is_recomputed", [False, True])
@pytest.mark.parametrize("said", [4, 60])
def test_what_is_kept_for_the_way_back_is_told_to_within_a_quarter(shape: Shape, is_recomputed: bool, said: int) -> None:
    learner, calls = learner_of(shape, is_recomputed=is_recomputed), calls_of(shape, said)
    own, kept = {w.untyped_storage().data_ptr() for w in learner.weights.values()}, dict[int, tuple[int, Any]]()

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes(), tensor  # held, so that no other takes its place
        return tensor

    (batch,) = learner._batches(calls)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        learner._token_logps(learner.now(), learner._row(batch))
    found = sum(size for size, _ in kept.values())
    told = kept_bytes(shape, sum(map(len, calls)), 6 * said, each=4, is_recomputed=is_recomputed)
    assert 0.75 * found < told < 1.25 * found


def test_more_cards_hold_less_and_take_less_time() -> None:
    plan = Plan(shape=QWEN)
    one, eight = memory(plan, 1), memory(plan, 8)
    for part in ("weights", "gradients", "optimiser"):
        assert eight[part] == -(-one[part] // 8)
    assert eight["engine"] == one["engine"]  # the first card has all of it
    assert seconds(plan, 8) == seconds(plan, 1) / 8


CONFIG = {
    "model_type": "qwen2", "hidden_size": 5120, "intermediate_size": 27648, "num_attention_heads": 40, "num_key_value_heads": 8,
    "num_hidden_layers": 64, "vocab_size": 152064, "max_position_embeddings": 32768, "tie_word_embeddings": False,
}  # fmt: skip


def test_a_config_alone_is_enough_for_an_estimate(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "config.json").write_text(json.dumps(CONFIG))
    line = ["train", "lm", "--model", str(tmp_path / "large"), "--task", "T1", "--set", "device=cuda", "--dry-run"]
    code, out, _ = run(*line, "--json")
    told = json.loads(out)["estimate"]
    assert code == 0
    assert told["weights"] == 32_763_876_352 == count_weights(shape_of(tmp_path / "large"))  # as its publisher counts them
    assert [one["cards"] for one in told["cards"]] == [1, 8, 64]
    assert all(one["bytes"]["total"] == sum(n for part, n in one["bytes"].items() if part != "total") for one in told["cards"])
    assert told["activations_otherwise"] < told["cards"][0]["bytes"]["activations"]
    monkeypatch.setenv("WORLD_SIZE", "24")
    text = run(*line)[1]
    assert "24 cards" in text
    assert "32,763,876,352 weights" in text
    assert "GiB on the first card" in text
    code, _, err = run(*line[:-1])
    assert (code, "WORLD_SIZE is 24, and there is no RANK" in err) == (2, True)
    monkeypatch.setenv("WORLD_SIZE", "many")
    code, _, err = run(*line)
    assert (code, "WORLD_SIZE is 'many'" in err) == (2, True)
