"""One forward pass over many sequences at once, without padding: each token attends to its own sequence and nothing else.

The tokens of all sequences stand one after the other in one row; the linear layers see them all together, which is what makes a
batch cheap, and attention goes sequence by sequence over that sequence's own keys and values. So nothing is padded and nothing is
moved when a sequence joins or leaves.

Always true: what a token attends to is every earlier token of its own sequence and, among the new ones, those its `local` mask
shows; keys and values of a token are written once and never changed, so that a common prefix may be copied at any time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.credit.call_rows import common_prefix

NAME = "counterpoint_ragged"
_now = threading.local()
"""The pass that this thread is in: attention functions are given no cache."""


class Cache:
    """Keys and values of one sequence, layer by layer, with room for `room` tokens."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.length = 0
        """Tokens whose keys and values are there, in every layer."""
        self.keys: dict[int, Any] = {}
        self.values: dict[int, Any] = {}

    def write(self, layer: int, begin: int, keys: Any, values: Any) -> None:
        """Keys and values [heads, tokens, width] of new tokens from position `begin` on."""
        if layer not in self.keys:
            heads = keys.shape[0]
            self.keys[layer] = keys.new_empty((heads, self.room, keys.shape[2]))
            self.values[layer] = values.new_empty((heads, self.room, values.shape[2]))
        end = begin + keys.shape[1]
        self.keys[layer][:, begin:end] = keys
        self.values[layer][:, begin:end] = values

    def copy_prefix(self, other: Cache, length: int) -> None:
        """Begin with the first `length` tokens of another sequence."""
        for layer, keys in other.keys.items():
            self.write(layer, 0, keys[:, :length], other.values[layer][:, :length])
        self.length = length

    def take(self, begin: int, places: Sequence[int]) -> None:
        """Keep from `begin` on only the tokens at these places: one branch of a tree."""
        if places:
            for kept in (*self.keys.values(), *self.values.values()):
                kept[:, begin : begin + len(places)] = kept[:, list(places)]
        self.length = begin + len(places)

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        return sum(t.numel() * t.element_size() for t in (*self.keys.values(), *self.values.values()))


@dataclass
class Segment:
    """The new tokens of one sequence in a pass."""

    cache: Cache
    ids: Sequence[int]
    positions: Sequence[int]
    want: Sequence[int]
    """Of which tokens, counted within the segment, the logits are wanted."""
    local: Any = None
    """Who sees whom among the new tokens, bool [tokens, tokens]; None: each all before it and itself."""


class _Pass:
    """What a model takes for its cache during one forward pass."""

    is_compileable = False

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self.masks: dict[Any, Any] = {}

    def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Store the new keys and values, [1, heads, tokens, width], with their sequences."""
        begin = 0
        for segment in self.segments:
            end = begin + len(segment.ids)
            segment.cache.write(layer, segment.cache.length, keys[0, :, begin:end], values[0, :, begin:end])
            begin = end
        return keys, values

    def get_seq_length(self, *_: Any) -> int:
        """Positions are given, so nobody needs it."""
        return 0

    def mask(self, index: int, window: int | None, device: Any) -> Any:
        """Who sees whom, bool [new tokens, all tokens], of a segment; the same for all layers of a kind."""
        import torch

        key = (index, window)
        if key not in self.masks:
            segment = self.segments[index]
            new, old = len(segment.ids), segment.cache.length
            local = segment.local
            if local is None:
                local = torch.ones(new, new, dtype=torch.bool).tril()
            seen = torch.cat([torch.ones(new, old, dtype=torch.bool), local], dim=1)
            if window is not None:
                at = torch.tensor([*range(old), *segment.positions])
                seen &= at[None, :] > torch.tensor(segment.positions)[:, None] - window
            self.masks[key] = seen.to(device)
        return self.masks[key]


def _attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **options: Any
) -> tuple[Any, None]:
    """Attention for `transformers`: [1, heads, tokens, width] in, [1, tokens, heads, width] out."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    now: _Pass = _now.value
    layer, window = module.layer_idx, options.get("sliding_window")
    out, begin = [], 0
    for index, segment in enumerate(now.segments):
        new, end = len(segment.ids), begin + len(segment.ids)
        total = segment.cache.length + new
        keys, values = segment.cache.keys[layer][None, :, :total], segment.cache.values[layer][None, :, :total]
        asked = query[:, :, begin:end]
        groups = asked.shape[1] // keys.shape[1]
        if new == 1:
            first = max(0, total - window) if window is not None else 0
            # The heads that share a key stand as further questions to it: nothing is repeated in memory.
            shared = asked.reshape(1, keys.shape[1], groups, asked.shape[3])
            got = scaled_dot_product_attention(shared, keys[:, :, first:], values[:, :, first:], scale=scaling)
            got = got.reshape(1, asked.shape[1], 1, values.shape[3])
        else:
            if groups > 1:
                keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
            mask = now.mask(index, window, query.device)
            got = scaled_dot_product_attention(asked, keys, values, attn_mask=mask, scale=scaling)
        out.append(got)
        begin = end
    return torch.cat(out, dim=2).transpose(1, 2).contiguous(), None


def register() -> None:
    """Make the attention known to `transformers` under `NAME`; a second call does nothing."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attend)


def forward(model: Any, segments: Sequence[Segment]) -> list[Any]:
    """The wanted logits of each segment, float32 [wanted, vocabulary] on the CPU; the caches have grown by the new tokens."""
    import torch

    device = next(model.parameters()).device
    ids = torch.tensor([[i for s in segments for i in s.ids]], device=device)
    positions = torch.tensor([[p for s in segments for p in s.positions]], device=device)
    wanted, begin = [], 0
    for segment in segments:
        wanted += [begin + w for w in segment.want]
        begin += len(segment.ids)
    _now.value = _Pass(segments)
    try:
        with torch.inference_mode():
            keep = torch.tensor(wanted or [0], device=device)
            out = model(input_ids=ids, position_ids=positions, past_key_values=_now.value, use_cache=True, logits_to_keep=keep)
            logits = out.logits[0].float().cpu()
    finally:
        _now.value = None
    for segment in segments:
        segment.cache.length += len(segment.ids)
    counts = [len(s.want) for s in segments]
    return list(logits[: sum(counts)].split(counts))


class Prefixes:
    """Caches of sequences that ended, the last used kept longest, so that a prompt that grew is not read again."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.reused = 0
        """Tokens that were not computed again, so far."""
        self._kept: OrderedDict[int, tuple[np.ndarray, Cache]] = OrderedDict()
        self._bytes = 0
        self._next = 0

    def keep(self, ids: Sequence[int], cache: Cache) -> None:
        """Keep a sequence that ended; one that it extends is let go."""
        held = np.asarray(ids[: cache.length], dtype=np.int64)
        if cache.bytes > self.limit_bytes or not len(held):
            return
        for name, (old, _) in list(self._kept.items()):
            if common_prefix(old, held) == len(old):
                self._drop(name)
        self._kept[self._next] = (held, cache)
        self._next += 1
        self._bytes += cache.bytes
        while self._bytes > self.limit_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, name: int) -> None:
        self._bytes -= self._kept.pop(name)[1].bytes

    def begin(self, cache: Cache, ids: Sequence[int], running: Iterable[tuple[Sequence[int], Cache]]) -> None:
        """Fill a new sequence's cache with the longest prefix that is known; its last token is always computed."""
        wanted = np.asarray(ids[:-1], dtype=np.int64)
        best, source, used = 0, None, None
        for name, (held, other) in self._kept.items():
            common = common_prefix(held, wanted)
            if common > best:
                best, source, used = common, other, name
        for other_ids, other in running:
            common = common_prefix(np.asarray(other_ids[: other.length], dtype=np.int64), wanted)
            if common > best:
                best, source, used = common, other, None
        if source is not None and self.limit_bytes:
            cache.copy_prefix(source, best)
            self.reused += best
            if used is not None:
                self._kept.move_to_end(used)

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self._bytes = 0
