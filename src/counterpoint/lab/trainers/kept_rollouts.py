"""A share of the rollouts, kept in a store beside the run, for `counterpoint view`.

Always true: which rollouts are kept is a function of their names; nothing else is written.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from counterpoint.errors import InputError
from counterpoint.lab.trainers.rollout import Rollout
from counterpoint.lab.trainers.rollout_traces import Decode, trace_of
from counterpoint.store.store import Store


class KeptRollouts:
    """Traces of a share of the rollouts, with the texts of their calls where a tokenizer can tell them."""

    def __init__(self, store: str | os.PathLike[str], *, share: float = 0.01, decode: Decode | None = None) -> None:
        """`decode` is that of the trainer's tokenizer: token ids to text."""
        if not 0 <= share <= 1:
            raise InputError(f"a share of {share}", where="share", fix="between 0 and 1: 0.01 keeps one rollout in a hundred")
        self.path, self.share, self.decode = Path(store), share, decode
        self._batch = 0

    def add(self, rollouts: Sequence[Rollout], version: int | None = None) -> list[str]:
        """Keep those whose turn it is; gives the names of their traces."""
        prefix = f"{self._batch}" if version is None else f"v{version}-{self._batch}"
        self._batch += 1
        chosen = [r for r in rollouts if zlib.crc32(f"{prefix} {r.name}".encode()) < self.share * 2**32]
        traces = [trace_of(r, name=f"{prefix}-{r.name}", decode=self.decode) for r in chosen]
        if traces:
            with Store(self.path) as store:
                store.add_many(traces)
        return [trace.trace_id for trace in traces]
