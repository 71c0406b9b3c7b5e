"""A tiny random Llama and a toy task that a team of it can learn in seconds: real parts, no weights to fetch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.envs.task import Act, Draw, Instance, Score, Subtask, View
from counterpoint.envs.world import changed, parameter

TEXTS = (
    "You are lead, agent in a team of agents that answers a question together.\nYou work alone with your tools; a worker can be "
    "spawned for a part.\nAnswer with exactly one line: one of the actions that are listed as legal, filled in where it has <...>.",
    "You split the work, spawn and brief workers, merge what they return, and stop when more costs more than it gives.",
    "Question from user:\nSay one: red, blue\nAnswer format: one word\nThe work can be split into these parts:\ns1: Say it.",
    "Legal now:\nSTOP: red\nSTOP: blue\nSPAWN worker\nDELEGATE worker.1: s1\nNOOP\nRETURN: <the answer>\nAGGREGATE first\nYour action:",
)
"""What a tokenizer should have words for."""
COLOURS = ("red", "blue", "grey", "gold")


@dataclass(frozen=True)
class Dials:
    colours: int = parameter(2, "1", "Words to choose from.")


@dataclass(frozen=True)
class Colours:
    """Say the one good word: nothing in the prompt tells which, so that only what is paid teaches it."""

    config: Dials = Dials()
    name = "tests.lm_help:colours"
    short = "colours"
    version = "1"
    rules = ("first",)

    def replace(self, **changes: Any) -> Colours:
        return Colours(changed(self.config, changes))

    def instance(self, seed: int) -> Instance:
        words = ", ".join(COLOURS[: self.config.colours])
        return Instance(
            task=self.name,
            seed=seed,
            question=f"Say one: {words}",
            answer_format="one word",
            subtasks=(Subtask("s1", "Say it."),),
        )

    def check(self, instance: Instance, answer: str) -> Score:
        value = float(answer.strip() == COLOURS[0])
        return Score(value, value == 1.0)

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        return texts[0] if texts else ""

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        word = COLOURS[int(draw("word") * self.config.colours)]
        return Act("return", "", word)

    def truth_file(self, instance: Instance) -> str:
        return ""


colours = Colours()


def make_tiny_lm(folder: Path, *, texts: Sequence[str] = (), width: int = 32, layers: int = 2, seed: int = 0) -> Path:
    """A transformers folder: random weights, and a byte tokenizer with the words of some texts."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from counterpoint.team.lm.chat import CHATML, Chat
    from counterpoint.team.lm.network import Shape, as_transformers

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        list(texts) * 2,
        trainers.BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    chat = Chat(raw, template=CHATML, ends=(2,), names={"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"})
    chat.save(folder)
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 4, "num_key_value_heads": 2,
        "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers, "vocab_size": chat.size,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "hidden_act": "silu", "eos_token_id": 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    shape, random = Shape.of(config), torch.Generator().manual_seed(seed)
    drawn = lambda *size: torch.randn(*size, generator=random) * 0.15  # noqa: E731
    weights = {"words": drawn(chat.size, width), "norm": torch.ones(width)}
    for i in range(layers):
        weights |= {
            f"{i}.norm1": torch.ones(width),
            f"{i}.norm2": torch.ones(width),
            f"{i}.qkv": drawn(8 * shape.head_width, width),
        }
        weights |= {
            f"{i}.o": drawn(width, 4 * shape.head_width),
            f"{i}.gate_up": drawn(4 * width, width),
            f"{i}.down": drawn(width, 2 * width),
        }
    save_file(as_transformers(shape, weights), folder / "model.safetensors", {"format": "pt"})
    return folder
