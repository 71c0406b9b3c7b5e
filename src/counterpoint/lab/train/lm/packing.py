"""Calls in rows of tokens: what they share is read once, within a conversation and across the teams of a task.

Prompts grow, and the teams of one task begin alike. The calls of a row (prompt and what was said) are a forest of tokens, in the
order of their sorted sequences, so that of each call only what no call before it began with is new: a prefix tree in preorder.

    token q sees token k  iff  k <= q < end_k,     end_k the first place of the row that is not below k

Its position is its depth, which is where it stands in its own call. So each call's log-probabilities and gradients are those of
the call alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from counterpoint.lab.lm.network import LongRow, look
from counterpoint.lab.lm.shape import WHOLE, Sight
from counterpoint.trace.model_calls import common_prefix

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Call = tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]
    """A prompt, and what was said."""

_ROUND = 8
"""Squares are a multiple of this wide: kernels with masks want it."""
_BLOCK = 128
"""Tokens that FlexAttention looks at, or passes over, at once."""
_ASKING = 4096
"""Tokens of a row that ask together: a beginning that all share is not one program's work alone, which all others wait for."""
SQUARE = 2048
"""Tokens of a row on a CPU, where a mask is a square."""


@dataclass(frozen=True)
class ForestRow:
    """Calls in one row of tokens."""

    calls: tuple[int, ...]
    """Which calls, by their numbers."""
    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    ends: NDArray[np.int64]
    """The first place that does not see a token any more."""
    said: NDArray[np.int64]
    """Where the tokens that were said stand, call after call."""
    before: NDArray[np.int64]
    """And where the token before each of them stands."""

    def __len__(self) -> int:
        return len(self.ids)


class _Draft:
    """A row that is being made."""

    def __init__(self, longest: int) -> None:
        self.length, self.depth = 0, 0
        self._path = np.empty(longest, np.int64)
        self._calls: list[int] = []
        self._ids: list[Any] = []
        self._positions: list[Any] = []
        self._places: list[tuple[Any, Any]] = []
        self._dead: list[tuple[Any, int]] = []

    def add(self, number: int, full: NDArray[np.int64], asked: int, shared: int) -> None:
        """One call more, of which so many tokens begin the last one too; of `asked` tokens is its prompt."""
        self._dead.append((self._path[shared : self.depth].copy(), self.length))
        new = len(full) - shared
        self._path[shared : len(full)] = np.arange(self.length, self.length + new)
        self._ids.append(full[shared:])
        self._positions.append(np.arange(shared, len(full)))
        self._places.append((self._path[asked : len(full)].copy(), self._path[asked - 1 : len(full) - 1].copy()))
        self._calls.append(number)
        self.length, self.depth = self.length + new, len(full)

    def row(self) -> ForestRow:
        """What it became."""
        ends = np.full(self.length, self.length, np.int64)
        for places, end in self._dead:
            ends[places] = end
        said, before = (np.concatenate(some) for some in zip(*self._places, strict=True))
        return ForestRow(tuple(self._calls), np.concatenate(self._ids), np.concatenate(self._positions), ends, said, before)


def forest_rows(calls: Sequence[Call], most: int, least: int = 0) -> list[ForestRow]:
    """Rows of at most so many tokens, or of one call that is longer; one that shares less than `least` begins a row."""
    full = [np.concatenate(call).astype(np.int64, copy=False) for call in calls]
    keys = [one.astype(">i4").tobytes() for one in full]  # in the order of bytes, who begins alike stands together
    longest = max(map(len, full), default=0)
    rows: list[ForestRow] = []
    draft, last = _Draft(longest), -1
    for i in sorted(range(len(full)), key=lambda i: (keys[i], i)):
        shared = 0 if last < 0 else common_prefix(full[last], full[i])
        if last >= 0 and (shared < least or draft.length + len(full[i]) - shared > most):
            rows.append(draft.row())
            draft, shared = _Draft(longest), 0
        draft.add(i, full[i], len(calls[i][0]), shared)
        last = i
    return [*rows, draft.row()] if last >= 0 else rows


class Squares:
    """`attend` for rows that stand one after the other, on a CPU."""

    def __init__(self, rows: Sequence[ForestRow], device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> None:
        lengths = [len(row) for row in rows]
        self.rows, self.longest = len(rows), -(-max(lengths) // _ROUND) * _ROUND
        place = np.arange(self.longest)
        ends = np.tile(place + 1, (self.rows, 1))  # what only fills up sees itself
        for own, row in zip(ends, rows, strict=True):
            own[: len(row)] = row.ends
        is_real = place[None] < np.array(lengths)[:, None]
        self.at = torch.as_tensor(np.flatnonzero(is_real.reshape(-1)), device=device)
        self.positions = torch.as_tensor(np.concatenate([row.positions for row in rows]), device=device)
        seen = (place[None, None, :] <= place[None, :, None]) & (place[None, :, None] < ends[:, None, :])
        hidden = torch.as_tensor(~seen, device=device)
        self._biases = {0: torch.zeros(seen.shape, device=device, dtype=dtype).masked_fill(hidden, -torch.inf)[:, None]}

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, sight: Sight = WHOLE) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        q, k, v = self._square(q), self._square(k).repeat_interleave(groups, 1), self._square(v).repeat_interleave(groups, 1)
        out = look(q, k, v, self._bias(sight.window), sight.cap)
        return out.transpose(1, 2).flatten(0, 1).index_select(0, self.at)

    def _bias(self, window: int) -> Tensor:
        """What is added to the scores; a window is of positions, since others may stand between two tokens of a call."""
        if window not in self._biases:
            at = self.positions.new_zeros(self.rows * self.longest).index_copy(0, self.at, self.positions).view(self.rows, -1)
            is_far = at[:, :, None] - at[:, None] >= window
            self._biases[window] = self._biases[0].masked_fill(is_far[:, None], -torch.inf)
        return self._biases[window]

    def _square(self, x: Tensor) -> Tensor:
        padded = x.new_zeros((self.rows * self.longest, *x.shape[1:])).index_copy(0, self.at, x)
        return padded.view(self.rows, self.longest, *x.shape[1:]).transpose(1, 2)


def long_row(row: ForestRow, length: int, device: str | torch.device) -> LongRow:
    """`attend` for a row on a GPU, which is made `length` tokens long; those behind its own fill it up, and see themselves.

    Blocks of 128 tokens of which none is seen are passed over, and in those that are seen whole, as most of a trunk is, nothing
    is asked. The tokens that ask are cut into parts, as a batch over the same keys: going back, a block of keys is one program,
    which meets all that see it.
    """
    from torch.nn.attention.flex_attention import BlockMask

    parts = next(n for n in range(-(-length // _ASKING), length + 1) if length // _BLOCK % n == 0)
    size = length // parts
    ends = np.concatenate([row.ends, np.arange(len(row), length) + 1])
    ends_T = on_device(ends.astype(np.int32), device)

    def is_visible(part: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        place = part * size + q
        return (k <= place) & (place < ends_T[k])

    by = ends.reshape(-1, _BLOCK)
    first = np.arange(len(by)) * _BLOCK
    is_before = first[None] < first[:, None]
    some = (is_before & (by.max(1)[None] > first[:, None])) | np.eye(len(by), dtype=bool)
    whole = is_before & (by.min(1)[None] >= first[:, None] + _BLOCK)
    kinds = [x for kind in (some & ~whole, whole) for x in _listed(kind)]
    count, which, count_whole, which_whole = (
        on_device(x.reshape(parts, 1, len(by) // parts, *x.shape[1:]), device) for x in kinds
    )
    blocks: Any = BlockMask.from_kv_blocks
    mask = blocks(count, which, count_whole, which_whole, BLOCK_SIZE=_BLOCK, mask_mod=is_visible, seq_lengths=(size, length))
    return LongRow(mask, on_device(np.concatenate([row.positions, np.zeros(length - len(row), np.int64)]), device))


def _listed(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """How many columns of each row are chosen, and which, those first."""
    return chosen.sum(1).astype(np.int32), np.argsort(~chosen, axis=1, kind="stable").astype(np.int32)


def on_device(array: NDArray[Any], device: str | torch.device) -> Tensor:
    """An array as a tensor there; on a GPU the host goes on at once, since the bytes are copied from pinned memory."""
    found = torch.from_numpy(np.ascontiguousarray(array))
    if torch.device(device).type != "cuda":
        return found.to(device)
    return found.pin_memory().to(device, non_blocking=True)


def row_length(tokens: int, most: int) -> int:
    """How long a row is made for some tokens: half or all of what a row may have, since each length is compiled once."""
    unit = max(_BLOCK, most // 2 // _BLOCK * _BLOCK)
    return -(-tokens // unit) * unit
