"""The credit layer against a training step: CPU seconds of crediting a batch of rollouts, and of learning from its calls.

512 rollouts of 64 tasks, 50 calls each of a lead and its workers, 128 tokens a call. The step is a forward and a backward pass in
float32 of a Llama of the shape of SmolLM2-135M with random weights, of a few of these calls, per call; no optimiser and no
prompts, so that a real step takes longer. Both are CPU seconds of one thread: on a GPU the step is faster and the credit is not,
and the share there has to be measured there. The last rows estimate it: 6 operations for each parameter and token at 300 TFLOP/s,
of the answers alone and with prompts of 2,048 tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from _timing import arguments, interleaved, report, row

from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout, Sample

CALLS, TOKENS, GROUP, WORKERS = 50, 128, 8, 7
PARAMETERS, OPERATIONS_S, PROMPT = 134.5e6, 3e14, 2048
SMOLLM2_135M = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
                "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True}  # fmt: skip


def rollouts(count: int) -> list[Rollout]:
    """A lead's sample of eight calls, and seven workers' of six, with what was read between them."""
    draw = np.random.default_rng(0)
    out = []
    for i in range(count):
        samples = []
        for k in range(WORKERS + 1):
            calls = 8 if k == 0 else 6
            mask = np.tile(np.r_[np.ones(TOKENS, np.int8), np.zeros(16, np.int8)], calls)
            ids = draw.integers(0, 49152, len(mask), dtype=np.int32)
            samples.append(Sample(ids=ids, mask=mask, agent=f"a{k}", name=f"a{k}", parent="a0" if k else None))
        out.append(Rollout(f"r{i}", f"t{i // GROUP}", samples, reward=float(draw.random())))
    return out


def step_of(calls: int) -> Callable[[], Any]:
    """Forward and backward of a few calls at the shape of the 135M."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SMOLLM2_135M))
    ids = torch.randint(0, 49152, (calls, TOKENS))

    def step() -> None:
        model.zero_grad()
        model(ids, labels=ids).loss.backward()

    return step


def main() -> None:
    """Print the table."""
    options = arguments(__doc__)
    batch = rollouts(64 if options.quick else 512)
    layers = {
        "group_relative": CreditLayer("group_relative"),
        "agent_wise": CreditLayer("agent_wise"),
        "difference": CreditLayer("difference", counterfactual=lambda rollout, agent: rollout.reward / 2),
    }
    some = 2
    work: dict[str, Callable[[], Any]] = {name: (lambda own=own: own(batch).arrays()) for name, own in layers.items()}
    taken = interleaved({**work, "step": step_of(some)}, 2 if options.quick else 3, "cpu")
    calls, per_call = len(batch) * CALLS, taken["step"] / some
    table = [row("a step at 135M, forward and backward", 1e3 * per_call, None, "ms/call")]
    for name in layers:
        table.append(row(f"{name}: {calls:,} calls", taken[name], None, "s"))
        table.append(row(f"{name}: share of the step", 100 * taken[name] / calls / per_call, None, "%", limit=5))
    slowest = max(taken[name] for name in layers)
    for what, tokens in (("answers", TOKENS), (f"prompts of {PROMPT:,}", TOKENS + PROMPT)):
        step_s = 6 * PARAMETERS * calls * tokens / OPERATIONS_S
        table.append(row(f"estimated for a GPU, {what}: share of a step", 100 * slowest / step_s, None, "%"))
    report(f"credit of {len(batch)} rollouts of {CALLS} calls, CPU", table, as_json=options.json)


if __name__ == "__main__":
    main()
