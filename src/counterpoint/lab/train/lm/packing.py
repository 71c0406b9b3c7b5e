"""Calls of one conversation in one row of tokens: what they share is read once.

An agent's prompts grow: call i + 1 begins like call i up to where that asks what to do now. With full_i the prompt and answer of
call i, and s_i how much of it call i + 1 begins with, a conversation is laid out as a trunk and branches,

    full_1[:s_1]  full_2[s_1:s_2]  ...  full_n[s_n-1:]   |full_1[s_1:]|  |full_2[s_2:]|  ...

A token of the trunk sees the trunk before it; one of branch i sees the first s_i of the trunk and its own branch before it; its
position is the one that it has in its own call. So each call's log-probabilities and gradients are those of the call alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from counterpoint.lab.lm.network import LongRow
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
    limit: NDArray[np.int64]
    """How much of the trunk a token sees."""
    said: NDArray[np.int64]
    """Where the tokens that were said stand, call after call."""

    def __len__(self) -> int:
        return len(self.ids)


def conversation(calls: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> Conversation:
    """The layout of calls (prompt, what was said) in their order; those that do not follow each other share what they can."""
    full = [np.concatenate([prompt, said]).astype(np.int64, copy=False) for prompt, said in calls]
    trunk, branches, ends = [], [], []
    begun = 0
    for i, (prompt, _) in enumerate(calls[:-1]):
        shared = common_prefix(full[i], np.asarray(calls[i + 1][0], np.int64))
        end = max(begun, min(shared, len(prompt) - 1))
        trunk.append(full[i][begun:end])
        branches.append(full[i][end:])
        ends.append(end)
        begun = end
    trunk.append(full[-1][begun:])
    length, sizes = len(full[-1]), [len(b) for b in branches]
    starts = length + np.cumsum([0, *sizes])
    said = [np.arange(len(c[0]), len(f)) - e + at for c, f, e, at in zip(calls, full, [*ends, 0], [*starts[:-1], 0], strict=True)]
    return Conversation(
        ids=np.concatenate([*trunk, *branches]),
        positions=np.concatenate([np.arange(length), *(e + np.arange(n) for e, n in zip(ends, sizes, strict=True))]),
        branch=np.concatenate([np.zeros(length, np.int64), np.repeat(np.arange(1, len(calls)), sizes)]),
        limit=np.concatenate([np.arange(1, length + 1), np.repeat(np.array(ends, np.int64), sizes)]),
        said=np.concatenate(said),
    )


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
        square = np.full((2, self.rows, self.longest), -1, np.int64)
        for row, part in enumerate(parts):
            square[:, row, : len(part)] = part.branch, part.limit
        self.at = torch.as_tensor(np.flatnonzero(square[0].reshape(-1) >= 0), device=device)
        self.positions = torch.as_tensor(np.concatenate([p.positions for p in parts]), device=device)
        branch, limit = torch.as_tensor(square, device=device)
        place = torch.arange(self.longest, device=device)  # in the trunk, also the position
        own = (branch[:, None, :] == branch[:, :, None]) & (place[None, None, :] <= place[None, :, None])
        seen = own | ((branch[:, None, :] == 0) & (place[None, None, :] < limit[:, :, None]))
        # what only fills up sees what fills up before it, so that no row is empty
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

    Blocks of 128 tokens of which none is seen are passed over, and in those that are seen whole, as most of a trunk is, nothing
    is asked. A row has `length` tokens; those behind the last conversation fill it up, and see little.
    """
    from torch.nn.attention.flex_attention import BlockMask

    sizes = [len(p) for p in parts]
    missing = length - sum(sizes)
    filler = np.arange(length - missing, length)
    owner = np.concatenate([np.repeat(np.arange(len(parts)), sizes), len(parts) + filler // _BLOCK])
    nothing = np.zeros(missing, np.int64)
    positions, branch = (np.concatenate([*(getattr(p, n) for p in parts), nothing]) for n in ("positions", "branch"))
    begin = np.concatenate([np.repeat(np.cumsum([0, *sizes[:-1]]), sizes), filler])
    limit = begin + np.concatenate([*(p.limit for p in parts), nothing + 1])  # as a place in the row
    owner_T, branch_T, limit_T = (torch.as_tensor(x.astype(np.int32), device=device) for x in (owner, branch, limit))

    def is_visible(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        trunk = (branch_T[k] == 0) & (k < limit_T[q])
        return (owner_T[q] == owner_T[k]) & (trunk | ((branch_T[k] == branch_T[q]) & (k <= q)))

    some, whole = _blocks(owner, branch, limit)
    count, which, count_whole, which_whole = (
        torch.as_tensor(x, device=device)[None, None] for kind in (some & ~whole, whole) for x in _listed(kind)
    )
    mask: Any = BlockMask.from_kv_blocks(count, which, count_whole, which_whole, BLOCK_SIZE=_BLOCK, mask_mod=is_visible)
    return LongRow(mask, torch.as_tensor(positions, device=device))


def _blocks(owner: NDArray[np.int64], branch: NDArray[np.int64], limit: NDArray[np.int64]) -> tuple[Any, Any]:
    """[blocks, blocks] whether a block (row) sees something of another (column), as far as can be told at once; and all of it."""
    by = [x.reshape(-1, _BLOCK) for x in (owner, branch, limit)]
    least, most = ([x.min(1) for x in by], [x.max(1) for x in by])
    place = np.arange(len(least[0]))
    is_one = least[0] == most[0]
    same_owner = is_one[:, None] & is_one[None] & (least[0][:, None] == least[0][None])
    first = np.where(least[1] == 0, (by[1] == 0).argmax(1) + place * _BLOCK, len(owner))  # of the trunk, in the block
    lowest = np.where(by[1] == 0, len(owner), by[1]).min(1)  # branch
    trunk = first[None] < most[2][:, None]
    own = (lowest[:, None] <= most[1][None]) & (lowest[None] <= most[1][:, None])
    is_before = place[None] <= place[:, None]
    meet = (least[0][:, None] <= most[0][None]) & (least[0][None] <= most[0][:, None])
    some = is_before & np.where(same_owner, trunk | own, meet)
    last = (place + 1) * _BLOCK
    all_trunk = (most[1] == 0)[None] & (last[None] <= least[2][:, None])
    one_branch = (least[1] == most[1])[None] & (least[1] == most[1])[:, None] & (least[1][:, None] == least[1][None])
    return some, same_owner & (place[None] < place[:, None]) & (all_trunk | (one_branch & (least[1] > 0)[None]))


def _listed(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """How many columns of each row are chosen, and which, those first."""
    return chosen.sum(1).astype(np.int32), np.argsort(~chosen, axis=1, kind="stable").astype(np.int32)


def row_length(tokens: int, most: int) -> int:
    """How long a row is made for some tokens: a few lengths only, since each is compiled once."""
    unit = max(_BLOCK, most // 2 // _BLOCK * _BLOCK)
    return -(-tokens // unit) * unit
