"""What a configuration means: that of a family's newest files, of older ones, and of one that is silent."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from counterpoint.errors import InputError
from counterpoint.lab.lm.shape import FAMILIES, Rope, Shape, Sight
from families_help import SIZES

WITH_TRANSFORMERS = pytest.mark.skipif(find_spec("transformers") is None, reason="needs the llm extra")
SIZED = {**SIZES, "num_hidden_layers": 12, "head_dim": 16, "tie_word_embeddings": True}
OLD: dict[str, dict[str, Any]] = {
    "llama": {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}},
    "mistral": {"rope_theta": 1e6, "sliding_window": None},
    "qwen2": {"rope_theta": 1e6, "sliding_window": 32_768, "use_sliding_window": False, "max_window_layers": 8},
    "qwen3": {"rope_theta": 1e6, "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 8},
    "smollm3": {"rope_theta": 5e6, "no_rope_layers": [1, 1, 1, 0] * 3, "sliding_window": None, "use_sliding_window": False},
    "gemma": {"rope_theta": 10_000.0, "hidden_act": "gelu", "hidden_activation": None},
    "gemma2": {"hidden_act": "gelu_pytorch_tanh", "query_pre_attn_scalar": 144, "sliding_window": 64, "attn_logit_softcapping": None},
    "gemma3_text": {"rope_theta": 1e6, "rope_local_base_freq": 20_000.0, "sliding_window": 32, "sliding_window_pattern": 5, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
}
"""As configurations were written before transformers 5."""


def through_transformers(config: dict[str, Any]) -> Shape:
    import transformers

    return Shape.of(transformers.AutoConfig.for_model(**config).to_dict())


@WITH_TRANSFORMERS
@pytest.mark.parametrize("family", FAMILIES)
def test_an_old_configuration_means_what_transformers_makes_of_it(family: str) -> None:
    config = {"model_type": family, **SIZED, **OLD[family]}
    own = Shape.of(config)
    assert own == through_transformers(config)
    assert own != Shape.of({"model_type": family, **SIZED}) or family in ("mistral", "gemma")


@WITH_TRANSFORMERS
@pytest.mark.parametrize("family", FAMILIES)
def test_where_a_configuration_is_silent_it_means_what_transformers_takes_it_to(family: str) -> None:
    silent = {k: v for k, v in SIZES.items() if k != "max_position_embeddings"} | {"model_type": family}
    own, wanted = Shape.of(silent), through_transformers(silent)
    # Llama, Mistral and Qwen always say how much they read; 2,048 is safe for those that do not.
    assert own == (replace(wanted, context=2048) if family in ("llama", "mistral", "qwen2", "qwen3") else wanted)


def test_a_window_as_wide_as_the_context_is_none() -> None:
    shape = Shape.of({"model_type": "mistral", **SIZES, "sliding_window": 64})
    assert shape.sight(1) == Sight(window=64)
    assert replace(shape, context=64).sight(1) == Sight()


def test_layers_differ_where_their_family_says_so() -> None:
    smollm = Shape.of({"model_type": "smollm3", **SIZED})
    assert [smollm.rope_of(i).kind for i in range(5)] == ["default", "default", "default", "none", "default"]
    gemma = Shape.of({"model_type": "gemma3_text", **SIZED, "sliding_window": 32})
    assert [gemma.sight(i).window for i in range(7)] == [32, 32, 32, 32, 32, 0, 32]
    assert (gemma.rope_of(0), gemma.rope_of(5)) == (Rope(theta=10_000.0), Rope(theta=1e6))


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"model_type": "gemma"}, r"do not compute gemma models \(norms by 1 \+ w and GELU\); device=cpu"),
        ({"model_type": "gemma3_text"}, "do not compute gemma3_text models"),
        ({"model_type": "mistral", "sliding_window": 64}, r"a sliding window of 64 tokens\); context=64, or device=cpu"),
        ({"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 1}, "32 queries of one key"),
    ],
)
def test_a_gpu_refuses_what_its_kernels_do_not_compute(config: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        Shape.of({**SIZES, **config}).require_kernels()


@pytest.mark.parametrize("config", [{"model_type": "qwen2"}, {"model_type": "qwen3"}, {"model_type": "smollm3"}, {"model_type": "mistral", "sliding_window": 128}])
def test_a_gpu_takes_what_its_kernels_compute(config: dict[str, Any]) -> None:
    Shape.of({**SIZES, **config}).require_kernels()
