"""Calls of one conversation in one row of tokens: what they share is read once.

An agent's prompts grow: call i + 1 begins like call i up to where that asks what to do now. With full_i the prompt and answer of
call i, and s_i how much of it call i + 1 begins with, a conversation is laid out as

    full_1[:s_1]  |full_1[s_1:]|  full_2[s_1:s_2]  |full_2[s_2:]|  ...

trunk and branches. A token sees the trunk before it and, in a branch, its own branch before it; its position is the one that it
has in its own call. So each call's log-probabilities, and their gradients, are those of the call alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from counterpoint.team.lm.network import LongRow
from counterpoint.trace.model_calls import common_prefix

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_ROUND = 8
"""Squares are a multiple of this wide: kernels with masks want it."""
_BLOCK = 128
"""Tokens that FlexAttention looks at, or passes over, at once."""


@dataclass(frozen=True)
class Conversation:
    """Calls laid out as trunk and branches."""

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    branch: NDArray[np.int64]
    """0 for the trunk, then 1, 2, ..."""
    said: NDArray[np.int64]
    """Where the tokens that were said stand, call after call."""

    def __len__(self) -> int:
        return len(self.ids)


def conversation(calls: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> Conversation:
    """The layout of calls (prompt, what was said) in their order; those that do not follow each other share what they can."""
    full = [np.concatenate([prompt, said]).astype(np.int64, copy=False) for prompt, said in calls]
    ids, positions, branch, said_at = [], [], [], []
    begun, at = 0, 0
    for i, (prompt, _) in enumerate(calls):
        shared = 0 if i + 1 == len(calls) else common_prefix(full[i], np.asarray(calls[i + 1][0], np.int64))
        end = max(begun, min(shared, len(prompt) - 1))
        rest = len(full[i]) - end
        ids.append(full[i][begun:])
        positions.append(np.arange(begun, len(full[i])))
        branch.append(np.concatenate([np.zeros(end - begun, np.int64), np.full(rest, i + 1)]))
        said_at.append(np.arange(len(prompt), len(full[i])) - begun + at)
        at += len(full[i]) - begun
        begun = end
    return Conversation(*(np.concatenate(x) for x in (ids, positions, branch, said_at)))


def threads(prompts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], least: int = 32) -> list[list[int]]:
    """Calls that follow each other, by number: each begins with all of the trunk that those before it have laid out."""
    out: list[list[int]] = []
    trunk = 0
    for i, (prompt, _) in enumerate(prompts):
        if out:
            before, answer = prompts[out[-1][-1]]
            whole = np.concatenate([before, answer])
            shared = min(common_prefix(whole, np.asarray(prompt)), len(before) - 1)
            if shared >= max(trunk, least):
                trunk = shared
                out[-1].append(i)
                continue
        out.append([i])
        trunk = 0
    return out


class Conversations:
    """`attend` for conversations that stand one after the other."""

    def __init__(
        self, parts: Sequence[Conversation], device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        lengths = np.array([len(p) for p in parts])
        self.rows, self.longest = len(parts), -(-int(lengths.max()) // _ROUND) * _ROUND
        square = np.full((self.rows, self.longest), -1, np.int64)
        for row, part in zip(square, parts, strict=True):
            row[: len(part)] = part.branch
        self.at = torch.as_tensor(np.flatnonzero(square.reshape(-1) >= 0), device=device)
        self.positions = torch.as_tensor(np.concatenate([p.positions for p in parts]), device=device)
        branch = torch.as_tensor(square, device=device)
        place = torch.arange(self.longest, device=device)
        seen = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])
        seen &= place[None, None, :] <= place[None, :, None]
        # what only fills up sees itself, so that no row is empty
        self.bias = torch.zeros(seen.shape, device=device, dtype=dtype).masked_fill(~seen, -torch.inf)[:, None]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from torch.nn.functional import scaled_dot_product_attention

        groups = q.shape[1] // k.shape[1]
        q, k, v = self._square(q), self._square(k).repeat_interleave(groups, 1), self._square(v).repeat_interleave(groups, 1)
        out = scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
        return out.transpose(1, 2).flatten(0, 1).index_select(0, self.at)

    def _square(self, x: Tensor) -> Tensor:
        padded = x.new_zeros((self.rows * self.longest, *x.shape[1:])).index_copy(0, self.at, x)
        return padded.view(self.rows, self.longest, *x.shape[1:]).transpose(1, 2)


def long_row(parts: Sequence[Conversation], length: int, device: str | torch.device) -> LongRow:
    """`attend` for conversations one after the other in one long row, on a GPU.

    What no token of a block of 128 sees is not computed: the cost of attention is that of the conversations themselves, without
    the squares that a mask fills. A row has `length` tokens; those behind the last conversation fill it up, and see little.
    """
    from torch.nn.attention.flex_attention import BlockMask

    missing = length - sum(map(len, parts))
    blocks = length // _BLOCK
    filled = -1 - np.arange(length - missing, length) // _BLOCK
    owner = np.concatenate([*(np.full(len(p), i) for i, p in enumerate(parts)), filled])
    begins = np.flatnonzero(np.diff(owner, prepend=-length))
    first = begins[np.searchsorted(begins, np.arange(blocks) * _BLOCK, side="right") - 1] // _BLOCK
    nothing = np.zeros(missing, np.int64)
    positions = torch.as_tensor(np.concatenate([*(p.positions for p in parts), nothing]), device=device)
    owner_T = torch.as_tensor(owner.astype(np.int32), device=device)
    branch_T = torch.as_tensor(np.concatenate([*(p.branch for p in parts), nothing]).astype(np.int32), device=device)

    def seen(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        in_sight = (branch_T[k] == 0) | (branch_T[k] == branch_T[q])
        return (owner_T[q] == owner_T[k]) & in_sight & (k <= q)

    count = torch.as_tensor((np.arange(blocks) - first + 1).astype(np.int32), device=device)
    which = torch.as_tensor(((np.arange(blocks) + first[:, None]) % blocks).astype(np.int32), device=device)
    mask: Any = BlockMask.from_kv_blocks(count[None, None], which[None, None], BLOCK_SIZE=_BLOCK, mask_mod=seen)
    return LongRow(mask, positions)


def row_length(tokens: int, most: int) -> int:
    """How long a row is made for some tokens: a few lengths only, since each is compiled once."""
    unit = max(_BLOCK, most // 2 // _BLOCK * _BLOCK)
    return -(-tokens // unit) * unit
