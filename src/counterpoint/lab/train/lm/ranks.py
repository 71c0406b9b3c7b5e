"""The processes of one learner, as torchrun starts them: who is there, what is said to all, what all have found.

Always true: the first process plays, writes and decides; the others compute what it is asked to compute, call by call, until it
ends. Objects travel over gloo, between CPUs; weights and gradients over NCCL where there are GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

_PATIENCE = timedelta(days=30)
"""How long the others wait for the first one, which plays, is interrupted and goes on; one that dies ends them at once."""


def world_size() -> int:
    """How many processes torchrun started together; 1 where it started none."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def is_first() -> bool:
    """Whether this process plays and writes."""
    return int(os.environ.get("RANK") or 0) == 0


class Ranks:
    """The processes of one learner."""

    def __init__(self, kind: str) -> None:
        """Join the others, on devices of this kind (cpu or cuda); each process has the GPU of its number on its machine."""
        is_gpu = kind == "cuda"
        if is_gpu:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK") or 0))
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if is_gpu else "gloo", timeout=_PATIENCE)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.mesh: DeviceMesh = init_device_mesh("cuda" if is_gpu else "cpu", (self.size,))
        self._words = dist.new_group(backend="gloo", timeout=_PATIENCE)
        self._is_told = False
        self.is_led = False
        """Whether the first process tells the others what to compute; else all of them ask for the same themselves."""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that plays and writes."""
        return self.rank == 0

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

    @contextmanager
    def led(self, *asked: Any) -> Iterator[None]:
        """The first process computes something here, and the others the same because they are told to."""
        tells = self.is_led and self.is_first and not self._is_told
        if tells:
            self.of_first(asked)
            self._is_told = True
        try:
            yield
        finally:
            if tells:
                self._is_told = False

    def end(self) -> None:
        """Let the others go."""
        if self.is_first:
            self.of_first(())
