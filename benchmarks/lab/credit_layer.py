"""The credit layer against a training step: seconds of crediting a batch of rollouts, and of learning from its calls.

512 rollouts of 64 tasks, 50 calls each of a lead and its workers, 128 tokens a call. The step is a forward and a backward pass of
a Llama of the shape of SmolLM2-135M with random weights, of a few of these calls, per call; no optimiser and no sampling, so that
a real step takes longer. Where there is a GPU the step is made there, in bf16 over float32 weights with the vocabulary only at
answers, after no prompt and after prompts of 2,048 tokens, and both are seconds on the wall. Elsewhere it is float32, both are
CPU seconds of one thread, and the last rows estimate the GPU: 6 operations for each parameter and token at 300 TFLOP/s.
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


def model_on(device: str) -> Any:
    """A Llama of the shape of the 135M."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SMOLLM2_135M)).to(device)


def step_of(model: Any, calls: int, prompt: int = 0) -> Callable[[], Any]:
    """Forward and backward of a few calls, of which the answers are learnt."""
    import torch

    device = model.device.type
    ids = torch.randint(0, 49152, (calls, prompt + TOKENS), device=device)

    def step() -> None:
        model.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = model(ids, logits_to_keep=TOKENS + 1).logits[:, -TOKENS - 1 : -1]
            targets = ids[:, -logits.shape[1] :]
            torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()).backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def has_gpu() -> bool:
    """Whether the step is made on a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def main() -> None:
    """Print the table."""
    options = arguments(__doc__)
    batch = rollouts(64 if options.quick else 512)
    layers = {
        "group_relative": CreditLayer("group_relative"),
        "agent_wise": CreditLayer("agent_wise"),
        "difference": CreditLayer("difference", counterfactual=lambda rollout, agent: rollout.reward / 2),
    }
    is_gpu = has_gpu()
    model = model_on("cuda" if is_gpu else "cpu")
    some = {0: 128, PROMPT: 16} if is_gpu else {0: 2}
    work: dict[str, Callable[[], Any]] = {name: (lambda own=own: own(batch).arrays()) for name, own in layers.items()}
    steps = {f"step {prompt}": step_of(model, count, prompt) for prompt, count in some.items()}
    taken = interleaved({**work, **steps}, 2 if options.quick else 3, "wall" if is_gpu else "cpu")
    calls = len(batch) * CALLS
    table = [row(f"{name}: {calls:,} calls", taken[name], None, "s") for name in layers]
    for prompt, count in some.items():
        per_call = taken[f"step {prompt}"] / count
        after = f"after prompts of {prompt:,}" if prompt else "without prompts"
        table.append(row(f"a step at 135M {after}, forward and backward", 1e3 * per_call, None, "ms/call"))
        for name in layers:
            share = 100 * taken[name] / calls / per_call
            table.append(row(f"{name}: of the step {after}", share, None, "%", limit=5))
    slowest = max(taken[name] for name in layers)
    for what, tokens in () if is_gpu else (("answers", TOKENS), (f"prompts of {PROMPT:,}", TOKENS + PROMPT)):
        step_s = 6 * PARAMETERS * calls * tokens / OPERATIONS_S
        table.append(row(f"estimated for a GPU, {what}: share of a step", 100 * slowest / step_s, None, "%"))
    report(f"credit of {len(batch)} rollouts of {CALLS} calls, {'GPU' if is_gpu else 'CPU'}", table, as_json=options.json)


if __name__ == "__main__":
    main()
