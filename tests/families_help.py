"""A tiny random model of every family that the engine knows, as transformers makes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def _transformers() -> Any:
    """Loaded by the first test that needs it: it takes seconds, in every process that collects the tests."""
    import transformers

    return transformers


SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: _transformers().LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama3": lambda: _transformers().LlamaConfig(**SIZES, rope_parameters={**LLAMA3, "original_max_position_embeddings": 16}),
    "mistral": lambda: _transformers().MistralConfig(**SIZES, sliding_window=None),
    "qwen2": lambda: _transformers().Qwen2Config(**SIZES),
    "llama-biased": lambda: _transformers().LlamaConfig(**SIZES, attention_bias=True),
    "linear": lambda: _transformers().LlamaConfig(**SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}),
    "mistral-sliding": lambda: _transformers().MistralConfig(**SIZES, sliding_window=5, head_dim=16),
    "qwen2-tied": lambda: _transformers().Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen2-sliding": lambda: _transformers().Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "qwen3": lambda: _transformers().Qwen3Config(**SIZES, head_dim=16),
    "qwen3-tied": lambda: _transformers().Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True),
    "smollm3": lambda: _transformers().SmolLM3Config(**SIZES, no_rope_layer_interval=2, **NO_TOKENS),
    "smollm3-sliding": lambda: _transformers().SmolLM3Config(**SIZES, no_rope_layers=[0, 1], use_sliding_window=True, sliding_window=6, **NO_TOKENS),
    "gemma": lambda: _transformers().GemmaConfig(**SIZES, head_dim=16, **NO_TOKENS),
    "gemma2": lambda: _transformers().Gemma2Config(**SIZES, **GEMMA2, attn_logit_softcapping=3.0, final_logit_softcapping=5.0),
    "gemma3": lambda: _transformers().Gemma3TextConfig(**SIZES, **GEMMA2, rope_parameters=GEMMA3),
    "gemma3-untied": lambda: _transformers().Gemma3TextConfig(**SIZES, **GEMMA2, tie_word_embeddings=False),
}
WIDE = ("mistral-sliding", "qwen3", "qwen3-tied", "gemma", "gemma2", "gemma3", "gemma3-untied")
"""Those with heads of 16, which FlexAttention needs."""
NO_TOKENS = {"pad_token_id": None, "eos_token_id": None, "bos_token_id": None}
GEMMA2 = {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"], **NO_TOKENS}
GEMMA3 = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}


def made(name: str, folder: Path) -> tuple[Any, Path]:
    """A model of a family whose every weight is drawn, and the folder that holds it."""
    import torch

    torch.manual_seed(0)
    model = _transformers().AutoModelForCausalLM.from_config(FAMILIES[name](), attn_implementation="eager").eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0.0, 0.3)
    model.save_pretrained(folder)
    return model, folder
