"""The engine on a GPU against the engine on a CPU: the same answers, whatever grows on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)
transformers = pytest.importorskip("transformers")

from counterpoint.team.lm.cuda import CudaEngine  # noqa: E402
from counterpoint.team.lm.engine import Ask, Engine  # noqa: E402
from counterpoint.team.lm.network import Network, read  # noqa: E402
from counterpoint.team.lm.sampling import END, FREE, Start  # noqa: E402

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True}, "mistral": {"sliding_window": None}, "qwen2": {}, "qwen3": {"head_dim": 16},
}  # fmt: skip
STARTS = [Start((5, 6)), Start((5, 7, 8), END), Start((9,), FREE)]


def _prompt(seed: int, length: int) -> list[int]:
    return [int(x) for x in np.random.default_rng(seed).integers(0, 90, length)]


@pytest.mark.parametrize("family", OWN)
def test_the_same_answers_as_on_a_cpu(family: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **SIZES, **OWN[family])
    model = transformers.AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0.0, 0.3)
    model.save_pretrained(tmp_path)
    (shape, here), (_, there) = read(tmp_path), read(tmp_path, device="cuda")
    lines = (6, 8, 30, 60)
    cpu = Engine(Network(shape), here, ends=(96,), lines=lines, slots=4)
    gpu = CudaEngine(Network(shape, device="cuda"), there, ends=(96,), lines=lines, slots=8, room=64, most=4, look=3)
    asks = [
        Ask(
            prompt=_prompt(i, 3 + 11 * (i % 9)), most=1 + i % 24, temperature=i % 3, seed=i, starts=STARTS if i % 4 == 0 else (),
            is_one_line=i % 5 < 2,
        )
        for i in range(40)
    ]  # fmt: skip
    said = cpu.run(asks)
    on = [Ask(prompt=[*a.prompt, *b.token_ids, 3, 4, 5], most=6, seed=7) for a, b in zip(asks, said, strict=True)]
    for want, got in zip([*said, *cpu.run(on)], [*gpu.run(asks), *gpu.run(on)], strict=True):
        assert (got.token_ids, got.finish) == (want.token_ids, want.finish)
        assert got.logps == pytest.approx(want.logps, abs=1e-3)
