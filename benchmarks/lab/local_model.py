"""A local model beside transformers' `generate`, on the prompts of one team: the same greedy tokens, how much sooner.

A team's calls come as a team makes them: all agents of a round at once, and every prompt begins with the agent's last one. Ours
answers a round in one engine that keeps what it has read; theirs is one padded `generate` per round, as the library offers it. On
a CPU, one thread, float32, in CPU seconds. Without the weights of SmolLM2 (`counterpoint models install smollm2-135m`) a random
network of its shape stands in: what is written differs, what it costs does not.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import arguments, interleaved, report, row

from counterpoint.lab.lm.engine import Ask, Engine
from counterpoint.lab.lm.network import Network, read
from counterpoint.lab.lm.weights import INSTALLABLE, models_folder

TARGET = 1.5
_HEAD, _GROWTH = 160, 60


def smollm_folder(base: Path) -> Path:
    """SmolLM2, or a random network of its shape."""
    found = models_folder() / INSTALLABLE["smollm2-135m"].folder
    if (found / "model.safetensors").is_file():
        return found
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "vocab_size": 49_152}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True, "max_position_embeddings": 8192}
    LlamaForCausalLM(LlamaConfig(**sizes, **heads)).save_pretrained(base)
    return base


def _rounds(agents: int, rounds: int) -> list[list[list[int]]]:
    """Prompts of each round: a beginning that all share, then each agent's own words, more with every round."""
    random = np.random.default_rng(0)
    words = lambda n: random.integers(1000, 40_000, n).tolist()  # noqa: E731
    head, own = words(_HEAD), [words(20) for _ in range(agents)]
    out = []
    for _ in range(rounds):
        out.append([[*head, *said] for said in own])
        own = [[*said, *words(_GROWTH)] for said in own]
    return out


def _theirs(model: Any, rounds: list[list[list[int]]], most: int) -> list[list[int]]:
    """Each round as one batch, padded on the left."""
    out = []
    for prompts in rounds:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        with torch.inference_mode():
            said = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=most, pad_token_id=0)
        out += [line[longest:].tolist() for line in said]
    return out


def measure(*, quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Rounds of a team, both ways."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    agents, turns, most = (3, 2, 8) if quick else (6, 4, 16)
    rounds = _rounds(agents, turns)
    with tempfile.TemporaryDirectory() as base:
        folder = smollm_folder(Path(base))
        plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        shape, weights = read(folder)
    plain.generation_config.eos_token_id = None  # both write all tokens, whatever they say

    def ours() -> list[list[int]]:
        engine = Engine(Network(shape), weights, ends=(), slots=agents)
        asks = [[Ask(prompt=p, most=most, temperature=0) for p in prompts] for prompts in rounds]
        said = [list(answer.token_ids) for each in asks for answer in engine.run(each)]
        stats.append(engine.stats)
        return said

    stats: list[Any] = []
    same = sum(a == b for a, b in zip(ours(), _theirs(plain, rounds, most), strict=True))
    took = interleaved({"ours": ours, "theirs": lambda: _theirs(plain, rounds, most)}, 1 if quick else 3, "cpu")
    calls, read_, reused = agents * turns, stats[-1].read, stats[-1].reused
    say(f"{calls} calls of {agents} agents, {most} tokens each; {same} of {calls} answers equal token by token")
    say(f"tokens of prompts: {read_ + reused:,} sent, {read_:,} read")
    return [row(f"{turns} rounds of {agents} agents", took["ours"], took["theirs"], "s", target=TARGET)]


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    rows = measure(quick=options.quick, say=(lambda text: None) if options.json else print)
    report("Local model (CPU seconds)", rows, as_json=options.json)


if __name__ == "__main__":
    main()
