"""What torchrun tells a process by its environment: how many there are, and which of them this one is."""

from __future__ import annotations

import os

from counterpoint.errors import InputError


def world_size() -> int:
    """How many processes torchrun started together; 1 where it started none."""
    return _number("WORLD_SIZE", 1)


def own_rank() -> int:
    """Which of them this one is; the first is 0."""
    return _number("RANK", 0)


def _number(name: str, usual: int) -> int:
    told = os.environ.get(name) or str(usual)
    if not told.isdecimal():
        fix = f"a whole number, as torchrun sets it, or unset {name}"
        raise InputError(f"{name} is {told!r}", where="the environment", fix=fix)
    return int(told)
