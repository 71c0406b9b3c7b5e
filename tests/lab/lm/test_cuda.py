"""The engine on a GPU against the engine on a CPU: the same answers, whatever grows on the way.

Where there is no GPU, the same is asked of all but its kernels and graphs: what stands on the device, what the host looks at, and
when. There the network computes on the CPU in their place.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if find_spec("transformers") is None:
    pytest.skip("needs the llm extra", allow_module_level=True)

from counterpoint.lab.lm.engine import Ask, Engine  # noqa: E402
from counterpoint.lab.lm.network import Network, _rms, read, shape_of  # noqa: E402
from counterpoint.lab.lm.sampling import END, FREE, SPACE, Start, draw_freely  # noqa: E402
from counterpoint.lab.lm.slots import Cached, Slots  # noqa: E402

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True}, "mistral": {"sliding_window": None}, "qwen2": {}, "qwen3": {"head_dim": 16},
    "smollm3": {"no_rope_layer_interval": 2, "attention_bias": True, "pad_token_id": None},
}  # fmt: skip
STARTS = [Start((5, 6)), Start((5, 7, 8), END), Start((9,), FREE)]
LINES = (6, 8, 30, 60)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HAS_KERNELS = torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"
"""Triton's interpreter runs kernels on a CPU, slowly."""


def _prompt(seed: int, length: int) -> list[int]:
    return [int(x) for x in np.random.default_rng(seed).integers(0, 90, length)]


def _folder(family: str, folder: Path) -> Path:
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **SIZES, **OWN[family])
    model = transformers.AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0.0, 0.3)
    model.save_pretrained(folder)
    return folder


def _alike(cpu: Engine, gpu: Engine) -> None:
    """Two engines say the same, in a first round and in one that goes on with it."""
    asks = [
        Ask(
            prompt=_prompt(i, 3 + 11 * (i % 9)), most=1 + i % 24, temperature=i % 3, seed=i, starts=STARTS if i % 4 == 0 else (),
            is_one_line=i % 5 < 2, is_scored=i % 8 == 0,
        )
        for i in range(40)
    ]  # fmt: skip
    said = cpu.run(asks)
    on = [Ask(prompt=[*a.prompt, *b.token_ids, 3, 4, 5], most=6, seed=7) for a, b in zip(asks, said, strict=True)][::-1]
    for want, got in zip([*said, *cpu.run(on)], [*gpu.run(asks), *gpu.run(on)], strict=True):
        assert (got.token_ids, got.finish) == (want.token_ids, want.finish)
        assert got.logps == pytest.approx(want.logps, abs=1e-3)
        assert (got.start_logps or ()) == pytest.approx(want.start_logps or (), abs=1e-3)
    seen = [replace(ask, top_p=0.5 if i % 3 else 1.0, alternatives=i % 4) for i, ask in enumerate(asks[:20])]
    for want, got in zip(cpu.run(seen), gpu.run(seen), strict=True):
        assert (got.token_ids, got.finish) == (want.token_ids, want.finish)
        assert [[i for i, _ in row] for row in got.alternatives] == [[i for i, _ in row] for row in want.alternatives]
    mixed = [gpu.add(ask) for ask in (asks[12], replace(asks[10], alternatives=2))]
    half = {}
    while gpu.is_busy:
        half |= dict(gpu.step())
        assert all(len(w.token_ids) == len(w.logps) for w in gpu.under_way().values())
    assert [half[ticket].token_ids for ticket in mixed] == [said[12].token_ids, said[10].token_ids]
    first, second = (gpu.add(ask) for ask in asks[9:11])
    gpu.step()
    ended = gpu.cancel(first)
    assert ended is None or ended.token_ids == said[9].token_ids[: len(ended.token_ids)]
    rest = dict(gpu.step())
    while gpu.is_busy:
        rest |= dict(gpu.step())
    assert rest.get(second, said[10]).token_ids == said[10].token_ids
    assert gpu.stats.reused > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("family", OWN)
def test_the_same_answers_as_on_a_cpu(family: str, tmp_path: Path) -> None:
    from counterpoint.lab.lm.cuda import CudaEngine

    (shape, here), (_, there) = read(_folder(family, tmp_path)), read(tmp_path, device="cuda")
    cpu = Engine(Network(shape), here, ends=(96,), lines=LINES, slots=4)
    gpu = CudaEngine(Network(shape, device="cuda"), there, ends=(96,), lines=LINES, slots=8, room=64, most=4, look=3)
    _alike(cpu, gpu)


@pytest.mark.skipif(not HAS_KERNELS, reason="there is no GPU here, and no TRITON_INTERPRET=1")
@pytest.mark.parametrize("words", [97, 4096, 49_152])
def test_a_kernel_draws_as_on_a_cpu(words: int) -> None:
    from counterpoint.lab.lm import cuda

    torch.manual_seed(words)
    logits, noise, spaces = torch.randn(96, words) * 3, torch.rand(96), torch.rand(words) < 0.3
    heat, node = torch.tensor([0.0, 1.0, 0.7, 2.0] * 24), torch.tensor([FREE, SPACE, 3] * 32)
    given = logits, heat, noise, node, spaces
    want, got = draw_freely(*given), [x.cpu() for x in cuda._freely(*(x.to(DEVICE) for x in given))]
    same = want[0] == got[0]
    assert same.float().mean() > 0.97  # sums round differently, so that a number near a border falls to its other side
    assert torch.allclose(want[1][same], got[1][same], atol=1e-5)
    assert spaces[got[0][node == SPACE]].all()


@pytest.mark.skipif(not HAS_KERNELS, reason="there is no GPU here, and no TRITON_INTERPRET=1")
def test_a_kernel_copies_beginnings_one_after_the_other(tmp_path: Path) -> None:
    from counterpoint.lab.lm import cuda

    slots = cuda._DeviceSlots(Network(shape_of(_folder("llama", tmp_path)), device=DEVICE), 6)
    slots.grow(200)
    assert slots._all is not None
    slots._all.normal_()
    want = slots._all.clone()
    for source, slot, count in ((0, 1, 150), (1, 2, 200), (3, 1, 90), (2, 4, 170), (1, 0, 40), (5, 3, 1)):
        slots._copy(source, slot, count)  # some read what another one before them has written, or overwrite what one has read
        want[:, :, slot, :count] = want[:, :, source, :count]
    slots.copy_all()
    assert torch.equal(slots._all, want)


@pytest.mark.parametrize("reads", [(), (8, 64, 256)])
def test_state_on_the_device_and_what_the_host_makes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: tuple[int, ...]
) -> None:
    """Passes that read one by one, and by graphs that are filled up."""
    filled = list[int]()
    if find_spec("triton") is None:
        monkeypatch.setitem(sys.modules, "counterpoint.lab.lm.kernels", ModuleType("kernels"))
    from counterpoint.lab.lm import cuda

    def hidden_states(network: Network, weights: Any, ids: Any, plan: Any) -> Any:
        rows = [(int(s), int(p), 1) for s, p in zip(plan.slot_T, plan.place_T, strict=True)]
        if isinstance(plan, cuda._Reading):
            new, before, slot = (plan.plan_columns[i].tolist() for i in (3, 4, 5))
            rows = [row for row in zip(slot, before, new, strict=True) if row[2]]
            filled.append(len(ids) - sum(n for _, _, n in rows))
        real = sum(n for _, _, n in rows)
        out = network.hidden_states(weights, ids[:real], plan.place_T[:real], Cached(plan.slots, rows))
        rest = torch.full((len(ids) - real, out.shape[1]), torch.nan)  # what fills up is nobody's
        return _rms(torch.cat([out, rest]), weights["norm"], network.shape)

    def captured(engine: Any, work: Any) -> Any:
        return SimpleNamespace(replay=work)

    monkeypatch.setattr(cuda, "hidden_states", hidden_states)
    monkeypatch.setattr(cuda, "_freely", draw_freely)
    monkeypatch.setattr(cuda._DeviceSlots, "_copy", Slots._copy)
    monkeypatch.setattr(cuda.CudaEngine, "captured", captured)
    monkeypatch.setattr(cuda, "_READS", reads)
    shape, weights = read(_folder("llama", tmp_path))
    gpu = cuda.CudaEngine(Network(shape), weights, ends=(96,), lines=LINES, slots=8, room=64, most=4, look=3)
    _alike(Engine(Network(shape), weights, ends=(96,), lines=LINES, slots=4), gpu)
    assert any(filled) == bool(reads)
