"""A checkpoint's bytes: written whole, and read without running anything that stands in them.

Always true: only tensors, numbers, texts, arrays and the two records named here come out of a file; a pickle that asks for
anything else is refused before it is carried out, so the run folder of a stranger can be looked at.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy._core import multiarray

from counterpoint.envs.teamworld.config import Config
from counterpoint.errors import InputError
from counterpoint.train.rollouts import Rollout

_TYPES = {type(np.dtype(t)) for t in ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u8", "?")}
_SAFE: list[Any] = [Rollout, Config, np.ndarray, np.dtype, multiarray._reconstruct, multiarray.scalar, *_TYPES]


def dump(held: Mapping[str, Any]) -> bytes:
    """The bytes of a checkpoint."""
    into = io.BytesIO()
    torch.save(dict(held), into)
    return into.getvalue()


def load(data: bytes, where: str) -> dict[str, Any]:
    """What `dump` was given."""
    try:
        with torch.serialization.safe_globals(_SAFE):
            held: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        why = str(error).splitlines()[0][:200]
        raise InputError("not a checkpoint, or a broken one", where=where, why=why, fix="an older one of the run") from error
    return held
