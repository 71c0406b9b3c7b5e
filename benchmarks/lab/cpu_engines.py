"""Our engine on a CPU beside transformers' `generate` and, where it is installed, vLLM's CPU build: 64 prompts of 128 tokens, 32
new ones each, greedily, no two prompts alike.

All have one thread and take turns; seconds are of the wall, because vLLM computes in a process of its own. Ours and `generate`
compute in float32, vLLM in bfloat16, as each does when nothing is said. vLLM is asked over HTTP with ids both ways and
log-probabilities, as `engine = "vllm:..."` asks it: $COUNTERPOINT_VLLM names its executable. Without SmolLM2's weights a random
network of its shape stands in.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from _timing import arguments, interleaved, report, row
from local_model import smollm_folder

from counterpoint.lab.lm.engine import Ask, Engine
from counterpoint.lab.lm.network import Network, read
from counterpoint.lab.lm.served.engine import ModelPlace, ServedEngine, server_of
from counterpoint.lab.lm.served.launch import vllm_executable, vllm_server

_PROMPT, _NEW = 128, 32
_ALONE = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


def _vllm(executable: str, folder: Path, shape: Any, prompts: list[list[int]], stack: ExitStack) -> Callable[[], Any]:
    """What asks a vLLM of its own; the server ends with the stack."""
    how = ["--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "64", "--max-num-batched-tokens", "16384"]
    url = stack.enter_context(vllm_server(executable, folder, how, **_ALONE))
    found = server_of(f"vllm:{url}")
    assert found is not None
    engine = ServedEngine(*found, ModelPlace(shape, folder, folder / "engine"), ends=(), context=512)
    stack.callback(engine.close)

    def work() -> Any:
        engine.link.call("/reset_prefix_cache", {})
        return engine.run([Ask(prompt=p, most=_NEW, temperature=0) for p in prompts])

    return work


def measure(*, quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """All of them, in turns."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    count, random = 8 if quick else 64, np.random.default_rng(0)
    prompts = [random.integers(1000, 40_000, _PROMPT).tolist() for _ in range(count)]
    with tempfile.TemporaryDirectory() as base, ExitStack() as stack:
        folder = smollm_folder(Path(base))
        shape, weights = read(folder)
        plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        plain.generation_config.eos_token_id = None
        ids = torch.tensor(prompts)

        def ours() -> Any:
            engine = Engine(Network(shape), weights, ends=(), slots=count)
            return engine.run([Ask(prompt=p, most=_NEW, temperature=0) for p in prompts])

        def generate() -> Any:
            with torch.inference_mode():
                return plain.generate(ids, do_sample=False, max_new_tokens=_NEW, min_new_tokens=_NEW, pad_token_id=0)

        work = {"ours": ours, "generate": generate}
        if (executable := vllm_executable()) is not None and (folder / "tokenizer.json").is_file():
            work["vLLM"] = _vllm(executable, folder, shape, prompts, stack)
        else:
            say("no vLLM beside it: COUNTERPOINT_VLLM names an executable, and the weights are those of SmolLM2")
        took = interleaved(work, 1 if quick else 3)
    rate = {name: count * _NEW / seconds for name, seconds in took.items()}
    own = rate.pop("ours")
    return [row(f"{count} prompts, against {name}", own, theirs, "tok/s", is_rate=True) for name, theirs in rate.items()]


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    rows = measure(quick=options.quick, say=(lambda text: None) if options.json else print)
    report("Engines on a CPU (new tokens per second)", rows, as_json=options.json)


if __name__ == "__main__":
    main()
