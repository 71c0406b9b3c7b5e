"""A tiny random Llama in a transformers folder, so that the examples need no download and no GPU.

Run it: python examples/trainers/tiny_model.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from counterpoint.lab.lm.chat import CHATML, Chat

TEXTS = (
    "You are lead, agent in a team of agents that answers a question together.\nYou work alone with your tools; a worker can be "
    "spawned for a part.\nAnswer with exactly one line: one of the actions that are listed as legal, filled in.",
    "Question from user:\nSay one: red, blue\nAnswer format: one word\nThe work can be split into these parts:\ns1: Say it.",
    "Legal now:\nSTOP: red\nSTOP: blue\nSPAWN worker\nNOOP\nRETURN: <the answer>\nAGGREGATE first\nYour action:",
)


def make(folder: Path) -> Path:
    """Write the model and its tokenizer."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special, alphabet = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], pre_tokenizers.ByteLevel.alphabet()
    how = trainers.BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    raw.train_from_iterator(list(TEXTS) * 2, how)
    chat = Chat(raw, template=CHATML, ends=(2,), names={"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"})
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=chat.size, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, eos_token_id=2, tie_word_embeddings=True, initializer_range=0.15,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    chat.save(folder)
    return folder


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
