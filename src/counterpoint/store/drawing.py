"""Which traces and which columns a batch is of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace.columns import EVENT_SCHEMA


def draw(ids: Sequence[str], n: int, rng: np.random.Generator) -> list[str]:
    """`n` different ids, drawn evenly."""
    if not 0 < n <= len(ids):
        raise InputError(f"cannot draw {n} traces from {len(ids)}", fix="ask for fewer, or add more traces")
    return [ids[i] for i in rng.choice(len(ids), n, replace=False)]


def event_columns(columns: Sequence[str]) -> list[str]:
    """The names of some columns of events as the lake has them; an unknown one is an error."""
    known = EVENT_SCHEMA.names[:-2]
    names = ["from_" if c == "from" else c for c in columns]
    for name in names:
        if name not in known:
            raise InputError(f"events have no column {name!r}", fix=did_you_mean(name, known))
    return names
