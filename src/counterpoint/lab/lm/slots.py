"""Where sequences stand while they are read and written: keys and values by slot, and which tokens each slot holds.

Always true: a prompt that begins like something a slot holds is read only from where they part; what a slot says it holds is not
written to until the slot is taken for another sequence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from counterpoint.lab.lm.network import Network, look, visible
from counterpoint.lab.lm.shape import WHOLE, Sight
from counterpoint.trace.model_calls import common_prefix

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 16
"""Prefixes are known by blocks of so many tokens."""
_SLACK = 4
"""A prompt that leaves out at most so many of a slot's last tokens goes on in it."""
_LOOKED_AT = 4
"""Slots that are compared where many begin alike."""


class Slots:
    """Keys and values of sequences, and which tokens each slot holds."""

    def __init__(self, network: Network, count: int) -> None:
        self.network, self.count, self.room = network, count, 0
        self._all: Tensor | None = None
        """[keys and values, layers, slots, room, kv heads, width]: one tensor, so that a beginning is copied at once."""
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        """Views of it, each [slots, room, kv heads, width], layer by layer."""
        self.filled = [0] * count
        """Tokens of each slot that were ever written: on a CPU, memory that nobody has written to is not taken."""
        self.held: list[np.ndarray] = [np.empty(0, np.int64)] * count
        """The tokens whose keys and values a slot holds."""
        self.idle: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))
        """Slots that nobody writes in, those that are soonest taken first."""
        self._hashes: list[Sequence[int]] = [[] for _ in range(count)]
        self._known: dict[int, dict[int, None]] = {}
        """Hash of a whole number of blocks from the beginning, to the slots that hold them."""

    def grow(self, room: int) -> None:
        """Room for so many tokens in every slot."""
        import torch

        if room <= self.room:
            return
        room, shape, net = min(max(room, 2 * self.room), self.network.shape.context), self.network.shape, self.network
        size = (2, shape.layers, self.count, room, shape.kv_heads, shape.head_width)
        is_lazy = net.device.type == "cpu"
        wider = (torch.empty if is_lazy else torch.zeros)(size, device=net.device, dtype=net.dtype)
        if self._all is not None and is_lazy:
            for slot, filled in enumerate(self.filled):
                wider[:, :, slot, :filled] = self._all[:, :, slot, :filled]
        elif self._all is not None:
            wider[:, :, :, : self.room] = self._all
        self._all, self.room = wider, room
        self.keys, self.values = (list(part.unbind(0)) for part in wider.unbind(0))

    def take(self, prompt: np.ndarray, room: int, hashes: Sequence[int]) -> tuple[int, int]:
        """A slot for a prompt, and how many of its first tokens are there already; its last one is always read."""
        self.grow(room)
        source, common = self._longest(prompt, hashes)
        common = min(common, len(prompt) - 1)
        # A conversation that goes on stays where it is; whoever only begins alike gets a copy, and the other's end is kept.
        left_out = 0 if source is None else len(self.held[source]) - common
        if source is not None and source in self.idle and left_out <= _SLACK:
            slot = source
        else:
            first = islice(self.idle, 64)
            slot = next((slot for slot in first if not len(self.held[slot])), next(iter(self.idle)))
            if source is not None and source in self.idle and 3 * left_out <= len(self.held[source]):
                self.idle.move_to_end(source, last=False)  # most likely the same conversation, which goes on in its copy
        if source is not None and common and slot != source:
            self._copy(source, slot, common)
            self.filled[slot] = max(self.filled[slot], common)
        self.holds(slot, prompt[:common], hashes[: common // BLOCK])
        del self.idle[slot]
        return slot, common

    def _copy(self, source: int, slot: int, count: int) -> None:
        """Keys and values of another slot's first tokens into a slot."""
        assert self._all is not None
        self._all[:, :, slot, :count] = self._all[:, :, source, :count]

    def _longest(self, prompt: np.ndarray, hashes: Sequence[int]) -> tuple[int | None, int]:
        """A slot that begins with as many whole blocks of the prompt as any does, rather one that nobody writes in."""
        n = self.cached_blocks(hashes)
        if not n:
            return None, 0
        slots = self._known[hashes[n - 1]]
        few = [(common_prefix(self.held[slot], prompt), slot in self.idle, slot) for slot in islice(reversed(slots), _LOOKED_AT)]
        common, _, best = max(few, key=lambda one: one[:2])
        return best, common

    def cached_blocks(self, hashes: Sequence[int]) -> int:
        """How many first blocks some slot holds."""
        # who holds some blocks holds those before them
        return bisect_left(range(len(hashes)), True, key=lambda k: hashes[k] not in self._known)

    def holds(self, slot: int, ids: np.ndarray, hashes: Sequence[int]) -> None:
        """The keys and values of these tokens, with their hashes, are in the slot now."""
        before, self._hashes[slot], self.held[slot] = self._hashes[slot], hashes, ids
        both = range(min(len(before), len(hashes)))
        shared = bisect_left(both, True, key=lambda k: before[k] != hashes[k])
        self._drop(slot, before[shared:])
        for hashed in hashes[shared:]:
            known = self._known.get(hashed)
            if known is None:
                self._known[hashed] = {slot: None}
            else:
                known[slot] = None

    def release(self, slot: int) -> None:
        """Nobody writes in the slot any more."""
        self.idle[slot] = None

    def _drop(self, slot: int, hashes: Sequence[int]) -> None:
        for hashed in hashes:
            known = self._known[hashed]
            del known[slot]
            if not known:
                del self._known[hashed]

    def _forget(self, slot: int) -> None:
        self._drop(slot, self._hashes[slot])
        self.held[slot], self._hashes[slot] = self.held[slot][:0], []

    def clear(self) -> None:
        """Forget what every idle slot holds."""
        for slot in list(self.idle):
            self._forget(slot)


def hashes_of(ids: np.ndarray, known: Sequence[int] = ()) -> list[int]:
    """A hash of the first block, of the first two, ...; a tail that fills no block has none. `known`: those of its beginning."""
    out, width = list(known), BLOCK * ids.itemsize
    so_far, raw = out[-1] if out else 0, ids[len(out) * BLOCK :].tobytes()
    for begin in range(0, len(raw) - width + 1, width):
        so_far = hash((so_far, raw[begin : begin + width]))
        out.append(so_far)
    return out


class Cached:
    """`attend` over slots: new tokens of several rows, each after what its slot holds."""

    def __init__(self, slots: Slots, rows: Sequence[tuple[int, int, int]]) -> None:
        self.slots, self.rows = slots, rows
        """(slot, tokens before, new tokens) of each row."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, sight: Sight = WHOLE) -> Tensor:
        import torch
        from torch.nn.functional import scaled_dot_product_attention

        keys, values = self.slots.keys[layer], self.slots.values[layer]
        out, begin = [], 0
        for slot, before, new in self.rows:
            end, total = begin + new, before + new
            keys[slot, before:total], values[slot, before:total] = k[begin:end], v[begin:end]
            self.slots.filled[slot] = max(self.slots.filled[slot], total)
            first = max(0, before + 1 - sight.window) if sight.window else 0
            cached = keys[slot, first:total].transpose(0, 1)[None], values[slot, first:total].transpose(0, 1)[None]
            asked = q[begin:end].transpose(0, 1)[None]
            begin, mask = end, None
            if any(sight):
                at = torch.arange(first, total, device=q.device)
                out.append(look(asked, *cached, visible(at[-new:], at, sight.window), sight.cap)[0].transpose(0, 1))
                continue
            if new > 1 and before:  # each new token sees everything before it
                at = torch.arange(total, device=q.device)
                mask = at[None] <= at[before:, None]
            got = scaled_dot_product_attention(asked, *cached, attn_mask=mask, is_causal=new > 1 and not before, enable_gqa=True)
            out.append(got[0].transpose(0, 1))
        return torch.cat(out)
