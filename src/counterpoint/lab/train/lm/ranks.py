"""The processes of one learner, as torchrun starts them: who is there, what is said to all, what all have found.

Always true: the first process plays, writes and decides; the others compute what it is asked to compute, call by call, until it
ends. Objects travel over gloo, between CPUs; weights and gradients over NCCL where there are GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from counterpoint.errors import InputError
from counterpoint.lab.train.lm.torchrun import world_size

_PATIENCE = timedelta(days=30)
"""How long the others wait for the first one, which plays, is interrupted and goes on; one that dies ends them at once."""


class Ranks:
    """The processes of one learner."""

    def __init__(self) -> None:
        """Join the others; each process has the GPU of its number on its machine, where there are GPUs."""
        is_gpu = torch.cuda.is_available()
        if is_gpu:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK") or 0))
        dist.init_process_group("cpu:gloo,cuda:nccl" if is_gpu else "gloo", timeout=_PATIENCE)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._words = dist.new_group(backend="gloo", timeout=_PATIENCE)
        self._meshes: dict[str, DeviceMesh] = {}
        self._is_leading = self._is_told = False

    @property
    def is_first(self) -> bool:
        """Whether this is the process that plays and writes."""
        return self.rank == 0

    def mesh(self, kind: str) -> DeviceMesh:
        """Their devices of this kind."""
        if kind not in self._meshes:
            self._meshes[kind] = init_device_mesh(kind, (self.size,))
        return self._meshes[kind]

    def gather(self, value: Any) -> list[Any]:
        """What each process found, by rank."""
        out: list[Any] = [None] * self.size
        dist.all_gather_object(out, value, self._words)
        return out

    def of_first(self, value: Any = None) -> Any:
        """What the first process says."""
        box = [value]
        dist.broadcast_object_list(box, 0, self._words)
        return box[0]

    def begin(self, *about: Any) -> None:
        """The first process leads from now on: the others make learners of what it says, and compute what it computes."""
        self._is_leading = True
        self.of_first(("begin", *about))

    @contextmanager
    def together(self, *asked: Any) -> Iterator[None]:
        """What is computed here the others compute, too: because the first process leads, or because all were asked for it."""
        tells = self._is_leading and not self._is_told
        if tells:
            self.of_first(("compute", *asked))
            self._is_told = True
        try:
            yield
        finally:
            if tells:
                self._is_told = False

    def close(self) -> None:
        """The end, for all of them; the others hear it from the first."""
        if self.is_first:
            self.of_first(("end",))
        dist.destroy_process_group()


def all_ranks() -> Ranks | None:
    """All of torchrun's processes, joined when this is first asked; None where there is this one alone."""
    if world_size() == 1:
        return None
    if missing := [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
        fix = f"torchrun --nproc-per-node {world_size()} -m counterpoint train lm ..., or unset WORLD_SIZE"
        raise InputError(f"WORLD_SIZE is {world_size()}, and there is no {missing[0]}", where="the environment", fix=fix)
    return _joined()


@cache
def _joined() -> Ranks:
    return Ranks()
