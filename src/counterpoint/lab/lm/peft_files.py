"""Adapters as the library PEFT keeps them, which is what engines of others read.

Always true: the folder appears whole or not at all, and its adapter does to a transformers model what ours does to the same
weights. Ours lies over joined maps (queries, keys and values are one); there each map has its own, with an equal A.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from counterpoint.lab.lm.conversion import whole_folder
from counterpoint.lab.lm.tensor_files import save_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from counterpoint.lab.lm.adapter import Adapter
    from counterpoint.lab.lm.network import Shape

_MAPS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


def peft_tensors(adapter: Adapter, shape: Shape) -> dict[str, Tensor]:
    """A and B of each map of a transformers model, by PEFT's names."""
    heads = [shape.heads * shape.head_width, shape.kv_heads * shape.head_width, shape.kv_heads * shape.head_width]
    out: dict[str, Tensor] = {}
    for name, a in adapter.a.items():
        layer, kind = name.split(".")
        b = adapter.b[name].detach()
        sizes = heads if kind == "qkv" else [shape.inner] * 2 if kind == "gate_up" else [len(b)]
        for part, rows in zip(_MAPS[kind], b.split(sizes), strict=True):
            at = f"base_model.model.model.layers.{layer}.{part}"
            out[f"{at}.lora_A.weight"], out[f"{at}.lora_B.weight"] = a.detach(), rows
    return {name: t.to("cpu", torch.float32, copy=True).contiguous() for name, t in out.items()}


def write_adapter(adapter: Adapter, shape: Shape, target: Path) -> None:
    """A folder of PEFT: `adapter_config.json` and `adapter_model.safetensors`; one that is there is replaced."""
    config: dict[str, Any] = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": adapter.rank, "lora_alpha": adapter.scale * adapter.rank,
        "target_modules": sorted({part.rpartition(".")[2] for parts in _MAPS.values() for part in parts}),
        "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False, "inference_mode": True, "base_model_name_or_path": None,
    }  # fmt: skip
    with whole_folder(target) as draft:
        save_tensors(peft_tensors(adapter, shape), draft / "adapter_model.safetensors", {"format": "pt"})
        (draft / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
