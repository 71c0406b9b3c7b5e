"""Low-rank adapters: W + scale B A for every linear map of a network (LoRA, arXiv 2106.09685).

Always true: a new adapter changes nothing (B is 0); only A and B learn. Adapted weights are weights like any other, so engine and
learner need not know of them, and several adapters over one model are several policies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from counterpoint.errors import InputError
from counterpoint.lab.lm.network import LINEAR

if TYPE_CHECKING:
    from torch import Tensor

    from counterpoint.lab.lm.network import Shape, Weights


@dataclass
class Adapter:
    """One adapter: rank, scale, and A and B of each linear map by its name."""

    rank: int
    scale: float
    a: dict[str, Tensor] = field(default_factory=dict)
    b: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def new(cls, shape: Shape, weights: Weights, *, rank: int = 8, scale: float = 2.0, seed: int = 0) -> Adapter:
        """An adapter that changes nothing yet; A is drawn from the seed."""
        if not 1 <= rank <= shape.width:
            raise InputError(f"an adapter cannot have rank {rank}", fix=f"from 1 to {shape.width}")
        out, random = cls(rank, scale), torch.Generator().manual_seed(seed)
        for i in range(shape.layers):
            for name in (f"{i}.{linear}" for linear in LINEAR):
                rows, columns = weights[name].shape
                drawn = torch.randn(rank, columns, generator=random) / columns**0.5
                out.a[name] = drawn.to(weights[name].device).requires_grad_()
                out.b[name] = torch.zeros(rows, rank, device=weights[name].device).requires_grad_()
        return out

    def parameters(self) -> list[Tensor]:
        """What learns."""
        return [*self.a.values(), *self.b.values()]

    def over(self, weights: Weights) -> Weights:
        """The weights with the adapter added; gradients flow to A and B alone."""
        if missing := [name for name in self.a if name not in weights]:
            raise InputError(
                f"this adapter is for another model: there is no {missing[0]}", fix="use the model that it was trained with"
            )
        out = dict(weights)
        for name, a in self.a.items():
            base, b = weights[name].detach(), self.b[name]
            if base.shape != (b.shape[0], a.shape[1]):
                what = f"{name} is {tuple(base.shape)} and the adapter's {(b.shape[0], a.shape[1])}"
                raise InputError(f"this adapter is for another model: {what}", fix="use the model that it was trained with")
            out[name] = base + self.scale * (b @ a).to(base.dtype)
        return out

    def shrunk(self, rank: int) -> Adapter:
        """The nearest adapter of a lower rank: B A cut to its largest singular values, which no other comes nearer to."""
        if not 1 <= rank <= self.rank:
            raise InputError(f"an adapter cannot have rank {rank}", fix=f"from 1 to {self.rank}, which it has")
        out = Adapter(rank, self.scale)
        with torch.no_grad():
            for name, a in self.a.items():
                u, s, v = torch.linalg.svd(self.b[name] @ a, full_matrices=False)
                root = s[:rank].sqrt()
                out.a[name], out.b[name] = (root[:, None] * v[:rank]).contiguous(), (u[:, :rank] * root).contiguous()
        return out

    def as_tensors(self) -> dict[str, Tensor]:
        """A and B by their names in a file."""
        return {f"{name}.a": t for name, t in self.a.items()} | {f"{name}.b": t for name, t in self.b.items()}

    @classmethod
    def load(cls, file: Path, device: str | torch.device = "cpu") -> Adapter:
        """The adapter of a file that `save` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(file, framework="pt", device=str(device)) as opened:
                scale = float((opened.metadata() or {})["scale"])
                return cls.of_tensors({name: opened.get_tensor(name) for name in opened.keys()}, scale=scale)  # noqa: SIM118
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            why = "it does not say its scale" if isinstance(error, KeyError) else str(error)
            raise InputError("the adapter cannot be read", where=file.name, why=why, fix="a file that training wrote") from error

    def save(self, file: Path, *, base: str) -> None:
        """Write it in bfloat16, whole or not at all; `base` is the digest of the weights that it is for."""
        from counterpoint.lab.lm.tensor_files import save_tensors

        tensors = {name: t.detach().to("cpu", torch.bfloat16).contiguous() for name, t in self.as_tensors().items()}
        draft = file.with_name(f".{file.name}.tmp")
        try:
            save_tensors(tensors, draft, {"scale": str(self.scale), "base": base})
            os.replace(draft, file)
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor], *, scale: float) -> Adapter:
        """What `as_tensors` gave."""
        a = {name[:-2]: t.float().requires_grad_() for name, t in tensors.items() if name.endswith(".a")}
        b = {name[:-2]: t.float().requires_grad_() for name, t in tensors.items() if name.endswith(".b")}
        if not a or a.keys() != b.keys():
            raise InputError("this is not an adapter", fix="a file that training wrote")
        return cls(len(next(iter(a.values()))), scale, a, b)


@dataclass(frozen=True)
class PolicyWeights:
    """What one policy speaks with: weights, and the adapter over them where only that learns."""

    base: Weights
    adapter: Adapter | None = None

    def whole(self) -> Weights:
        """The weights with the adapter added, apart from what learns."""
        with torch.no_grad():
            return {name: w.detach() for name, w in (self.adapter.over(self.base) if self.adapter else self.base).items()}


def adapted(weights: Weights, files: Sequence[Path], where: str) -> Weights:
    """Weights with adapters of files added, one after the other; `where` names them in errors."""
    with torch.no_grad():
        for file in files:
            try:
                weights = Adapter.load(file, weights["words"].device).over(weights)
            except InputError as error:
                raise InputError(error.what, where=where, why=error.why, fix=error.fix) from error
    return weights
