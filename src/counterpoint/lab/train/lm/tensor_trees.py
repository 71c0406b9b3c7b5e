"""Dicts and lists with tensors in them, as optimisers keep their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def each_tensor(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same value with every tensor in it changed, in the order in which they stand."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {k: each_tensor(v, change) for k, v in value.items()}
    return [each_tensor(v, change) for v in value] if isinstance(value, list) else value


def on_cpu(value: Any) -> Any:
    """A copy on the CPU."""
    return each_tensor(value, lambda t: t.to("cpu", copy=True))
