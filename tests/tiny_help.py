"""A tiny random Llama with a byte tokeniser, made on the spot without transformers: real parts, no weights to fetch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

WORDS = "SPAWN worker DELEGATE lead.1: s3 MESSAGE TOOL search: open: sql AGGREGATE union RETURN: STOP: NOOP the answer is 42\n"


def make_tiny(
    folder: Path, *, seed: int = 0, chat: bool = True, context: int = 512, width: int = 32, layers: int = 2, spread: float = 0.4,
    texts: Sequence[str] = (WORDS,), words: int = 330, family: str = "llama",
) -> Path:  # fmt: skip
    """A transformers folder: random weights of this spread, 4 heads that share 2 keys, and a byte tokeniser with the words of
    some texts; of the family llama, or qwen2 with its biases."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from counterpoint.lab.lm.chat import CHATML, Chat
    from counterpoint.lab.lm.network import Shape, as_transformers

    torch.set_num_threads(1)
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=words, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    raw.train_from_iterator(list(texts) * 2, trainer)
    names = {"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"}
    spoken = Chat(raw, template=CHATML if chat else None, ends=(2,), names=names)
    spoken.save(folder)
    config = {
        "model_type": family, "architectures": [f"{family.title()}ForCausalLM"], "num_attention_heads": 4, "num_key_value_heads": 2,
        "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers, "vocab_size": spoken.size,
        "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "hidden_act": "silu", "eos_token_id": 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    shape, random = Shape.of(config), torch.Generator().manual_seed(seed)
    drawn = lambda *size: torch.randn(*size, generator=random) * spread  # noqa: E731
    ones = torch.ones(width)
    weights = {"words": drawn(spoken.size, width), "norm": ones}
    for i in range(layers):
        weights |= {f"{i}.norm1": ones.clone(), f"{i}.norm2": ones.clone(), f"{i}.qkv": drawn(8 * shape.head_width, width)}
        weights |= {f"{i}.o": drawn(width, 4 * shape.head_width), f"{i}.gate_up": drawn(4 * width, width)}
        weights |= {f"{i}.down": drawn(width, 2 * width)}
        if shape.has_qkv_bias:
            weights[f"{i}.qkv_bias"] = drawn(8 * shape.head_width)
    save_file(as_transformers(shape, weights), folder / "model.safetensors", {"format": "pt"})
    return folder
