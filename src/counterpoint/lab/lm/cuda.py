"""The engine on a GPU: attention over slots in two Triton kernels; writing tokens, and reading few, as CUDA graphs.

Always true: it answers what `Engine` answers, beyond rounding; tokens are drawn, held to the trie and ended on the device, and
the host looks every few tokens only. A row that has ended goes on in place without effect until the host takes it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from counterpoint.lab.lm import kernels
from counterpoint.lab.lm.engine import Answer, AnswerDraft, Engine, _Row
from counterpoint.lab.lm.network import ALONE, Network, Weights
from counterpoint.lab.lm.sampling import END, FREE, SPACE, draw
from counterpoint.lab.lm.slots import Slots

if TYPE_CHECKING:
    from torch import Tensor

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
_READS = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
"""Tokens of a pass that reads as a graph: below, the host takes longer to ask for a pass than the device to make it."""
_READERS = 256
"""Rows of such a pass."""
_GRAPHED = 1_000_000_000
"""Weights of a network that is read by graphs: a larger one takes the device longer than the host anyway."""
_COPIED = 4096
"""Numbers that a program copies at once."""


class _DeviceSlots(Slots):
    """Slots whose beginnings are copied many at once, before the next pass."""

    def __init__(self, network: Network, count: int) -> None:
        super().__init__(network, count)
        self._copies: list[tuple[int, int, int]] = []

    def _copy(self, source: int, slot: int, count: int) -> None:
        self._copies.append((source, slot, count))

    def copy_all(self) -> None:
        """Make the copies that were asked for, in their order."""
        if not self._copies or self._all is None:
            return
        keys, shape = self._all, self.network.shape
        source, slot, count = np.array(self._copies, np.int64).T
        numbers = count * shape.kv_heads * shape.head_width
        places = _there(np.stack([source, slot, numbers]), keys.device)
        parts, blocks = 2 * shape.layers, -(-int(numbers.max()) // _COPIED)
        kernels.copy_beginnings[(parts, blocks)](
            keys, *places, len(slot), keys.stride(1), keys.stride(2), BLOCK=_COPIED, num_warps=8
        )
        self._copies.clear()

    def clear(self) -> None:
        """Forget what every idle slot holds."""
        self._copies.clear()
        super().clear()


class _Plan:
    """Where the tokens of a pass stand, and how each layer attends."""

    def __init__(self, slots: Slots, slot_T: Tensor, place_T: Tensor) -> None:
        self.slots, self.slot_T, self.place_T = slots, slot_T, place_T

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """One new token of each row."""
        keys, values, shape = self.slots.keys[layer], self.slots.values[layer], self.slots.network.shape
        out = torch.empty_like(q)
        kernels.attend_one[(len(q), shape.kv_heads)](
            q, keys, values, out, self.slot_T, self.place_T, keys.stride(0), keys.stride(1), 1 / math.sqrt(shape.head_width),
            G=shape.heads // shape.kv_heads, KV=shape.kv_heads, D=shape.head_width, WIDE=_wide(shape.head_width), BLOCK=64,
            num_warps=4, num_stages=3,
        )  # fmt: skip
        return out


class _Told(NamedTuple):
    """What a pass that reads is told: all in one array, and how many tokens, blocks and rows it has."""

    numbers: np.ndarray
    """Of each token the word, the slot and the place; of each block of tokens its row and its beginning there; of each row its
    first token, its new ones, those before, its slot and its last token."""
    tokens: int
    blocks: int
    rows: int

    @classmethod
    def of(cls, ids: Sequence[np.ndarray], rows: Sequence[tuple[int, int, int]], *, size: int = 0, spare: int = 0) -> _Told:
        """New tokens of rows (slot, tokens before, new ones); `size`: made so many tokens, those that fill up in the spare slot,
        where a row without any has the blocks that fill up."""
        slot, before, new = (np.array(column, np.int32) for column in zip(*rows, strict=True))
        blocks, ends = -(-new // _Reading.BLOCK), np.cumsum(new)
        row = np.repeat(np.arange(len(rows)), blocks)
        offset = (np.arange(len(row)) - np.repeat(np.cumsum(blocks) - blocks, blocks)) * _Reading.BLOCK
        place = np.concatenate([np.arange(b, b + n) for b, n in zip(before, new, strict=True)])
        tokens = size or len(place)
        most, count = (size // _Reading.BLOCK + _READERS, _READERS + 1) if size else (len(row), len(rows))

        def filled(values: np.ndarray, length: int, value: int = 0) -> np.ndarray:
            return np.concatenate([values, np.full(length - len(values), value)])

        parts = [
            *(filled(np.concatenate(ids), tokens), filled(np.repeat(slot, new), tokens, spare), filled(place, tokens)),
            *(filled(row, most, count - 1), filled(offset, most)),
            *(filled(x, count, fill) for x, fill in ((ends - new, 0), (new, 0), (before, 0), (slot, spare), (ends - 1, 0))),
        ]
        return cls(np.concatenate(parts).astype(np.int32), tokens, most, count)


class _Reading(_Plan):
    """New tokens of several rows, each after what its slot holds."""

    BLOCK = 64

    def __init__(self, slots: Slots, numbers: Tensor, told: _Told) -> None:
        """`numbers`: those that are told, on the device."""
        sizes = [told.tokens] * 3 + [told.blocks] * 2 + [told.rows] * 5
        self.ids, slot_T, place_T, *self.plan_columns, self.last = numbers.split(sizes)
        self.blocks = told.blocks
        super().__init__(slots, slot_T.long(), place_T.long())

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """Each token sees what its slot held and the new ones up to itself; those that fill up see nothing."""
        keys, values, shape = self.slots.keys[layer], self.slots.values[layer], self.slots.network.shape
        out = torch.zeros_like(q)
        kernels.attend_many[(self.blocks, shape.heads)](
            q, keys, values, out, *self.plan_columns, keys.stride(0), keys.stride(1), 1 / math.sqrt(shape.head_width),
            H=shape.heads, G=shape.heads // shape.kv_heads, D=shape.head_width, WIDE=_wide(shape.head_width),
            BM=self.BLOCK, BN=64, num_warps=4, num_stages=2,
        )  # fmt: skip
        return out


class _ReadGraph:
    """A pass that reads so many tokens, asked for at once."""

    def __init__(self, engine: CudaEngine, told: _Told) -> None:
        self._numbers = _there(told.numbers, engine.network.device)
        self._hidden: Tensor
        self._last: Tensor

        def read() -> None:
            plan = _Reading(engine.slots, self._numbers, told)
            self._hidden, self._last = hidden_states(engine.network, engine.weights, plan.ids, plan), plan.last

        self._graph = engine.captured(read)

    def read(self, numbers: np.ndarray, rows: int) -> Tensor:
        """What the network makes of the last new token of each row."""
        self._numbers.copy_(torch.from_numpy(numbers), non_blocking=True)
        self._graph.replay()
        return self._hidden[self._last[:rows]]


def _there(array: np.ndarray, device: Any) -> Tensor:
    """An array on the device; the host goes on at once (CUDA has taken it when this returns, wherever it came from)."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)


def hidden_states(network: Network, weights: Weights, ids: Tensor, plan: _Plan) -> Tensor:
    """[tokens, width] after the final norm: `Network.hidden_states`, with what stands between two products in one kernel."""
    s, slots, n = network.shape, plan.slots, len(ids)
    h = torch.nn.functional.embedding(ids, weights["words"]).to(network.dtype)
    delta: Tensor | None = None
    heads = s.heads + 2 * s.kv_heads

    def normed(delta: Tensor | None, weight: Tensor) -> Tensor:
        out = torch.empty_like(h)
        options = {"HAS_DELTA": delta is not None, "BLOCK": _wide(s.width), "num_warps": 4}
        kernels.add_norm[(n,)](h, h if delta is None else delta, weight, out, s.width, s.eps, **options)
        return out

    for i in range(s.layers):
        cos, sin = network.turns(i)
        joined = torch.nn.functional.linear(normed(delta, weights[f"{i}.norm1"]), weights[f"{i}.qkv"])
        q = torch.empty((n, s.heads, s.head_width), device=h.device, dtype=h.dtype)
        bias, q_norm, k_norm = (weights.get(f"{i}.{name}", joined) for name in ("qkv_bias", "q_norm", "k_norm"))
        kernels.turn_and_keep[(n,)](
            joined, bias, q_norm, k_norm, cos, sin, plan.slot_T, plan.place_T, q, slots.keys[i], slots.values[i],
            slots.keys[i].stride(0), slots.keys[i].stride(1), s.eps,
            H=s.heads, KV=s.kv_heads, D=s.head_width, HEADS=_wide(heads, 1), HALF=_wide(s.head_width // 2, 1),
            HAS_BIAS=s.has_qkv_bias, HAS_NORM=s.has_qk_norm, num_warps=4,
        )  # fmt: skip
        delta = torch.nn.functional.linear(plan.attend(i, q).view(n, -1), weights[f"{i}.o"], weights.get(f"{i}.o_bias"))
        wide = torch.nn.functional.linear(normed(delta, weights[f"{i}.norm2"]), weights[f"{i}.gate_up"])
        narrow = torch.empty((n, s.inner), device=h.device, dtype=h.dtype)
        kernels.gate[(n, -(-s.inner // 1024))](wide, narrow, s.inner, BLOCK=1024, num_warps=4)
        delta = torch.nn.functional.linear(narrow, weights[f"{i}.down"])
    return normed(delta, weights["norm"])


def _freely(logits: Tensor, temperature: Tensor, noise: Tensor, node: Tensor, after_space: Tensor) -> tuple[Tensor, Tensor]:
    """`draw_freely` in one kernel."""
    rows, width = logits.shape
    token, logp = torch.empty_like(node), torch.empty_like(noise)
    kernels.pick[(rows,)](logits, temperature, noise, node, after_space, token, logp, width, SPACE=SPACE, BLOCK=4096, num_warps=8)
    return token, logp


def _wide(width: int, least: int = 16) -> int:
    """The next power of two."""
    return max(least, 1 << (width - 1).bit_length())


class _State:
    """Where every slot is, on the device; one slot more than there are takes the rows that fill up a batch."""

    def __init__(self, slots: int, most: int, nodes: int, children: int, device: Any) -> None:
        n = slots + 1
        zeros = lambda *size, dtype=torch.int64: torch.zeros(size, dtype=dtype, device=device)  # noqa: E731
        self.most, self.nodes, self.children = most, nodes, children
        self.numbers, self.flags = zeros(5, n), zeros(3, n, dtype=torch.bool)
        self.token, self.place, self.count, self.limit, self.node = self.numbers
        self.is_done, self.is_over, self.is_one_line = self.flags
        self.node.fill_(FREE)
        self.is_done.fill_(True)
        self.heat, self.noise = torch.ones(n, device=device), torch.zeros(n, most, device=device)
        self.written, self.logps = zeros(n, most), torch.zeros(n, most, device=device)
        self.tokens = torch.full((n * nodes, children), -1, dtype=torch.int64, device=device)
        self.leads = torch.full((n * nodes, children), FREE, dtype=torch.int64, device=device)


class CudaEngine(Engine):
    """`Engine`, with the whole of decoding on the device."""

    def __init__(
        self, network: Network, weights: Weights, *, ends: Sequence[int], after_space: np.ndarray | None = None,
        lines: Sequence[int] = (), slots: int = 256, reads: int = 65_536, room: int = 2048, most: int = 128, look: int = 4,
    ) -> None:  # fmt: skip
        """`room`: tokens that a slot holds at first; `most`: tokens of an answer at first; `look`: tokens between two looks."""
        network.shape.require_kernels()
        super().__init__(network, weights, ends=ends, after_space=after_space, lines=lines, slots=slots, reads=reads)
        device = network.device
        self.slots: _DeviceSlots = _DeviceSlots(network, slots + 1)
        del self.slots.idle[slots]
        self.slots.grow(min(room, network.shape.context))
        self.look, self._is_end = look, torch.zeros(network.shape.vocabulary, dtype=torch.bool, device=device)
        self._is_line = torch.zeros_like(self._is_end)
        self._is_end[list(self.ends)], self._is_line[list(self.lines)] = True, True
        self._active = torch.full((slots,), slots, dtype=torch.int64, device=device)
        self._state = _State(slots, most, 64, 16, device)
        self._graphs: dict[int, Any] = {}
        self._read_graphs: dict[int, _ReadGraph] = {}
        self._memory: Any = None
        self._is_graphed = sum(w.numel() for w in weights.values()) < _GRAPHED
        self._room = self.slots.room
        self._draw = partial(draw, freely=_freely)

    # -- one pass ----------------------------------------------------------------------------------------------------

    def step(self) -> list[tuple[int, Answer]]:
        """Who waits joins and writes a token; then everybody writes a few."""
        with torch.inference_mode():
            fresh: list[_Row] = []
            logits: list[Tensor] = []
            while joined := self._join():  # the host goes on with the next while the device reads these
                logits.append(self._read(joined))
                fresh += joined
            if fresh:
                self._write(fresh, torch.cat(logits))
            done = self._leave()
            self._place([row for row in fresh if not (row.is_over or row.is_full)])
            if self._rows and not (self._waiting and self.slots.idle):
                if any(row.ask.needs_logits for row in self._rows):
                    self._write_seen()
                else:
                    self._decode()
                done += self._leave()
        return done

    def _read(self, rows: Sequence[_Row]) -> Tensor:
        """The logits after the prompts of rows."""
        self.slots.copy_all()
        new = [row.new() for row in rows]
        logits = self._pass([ids for _, ids in new], [(row.slot, before) for row, (before, _) in zip(rows, new, strict=True)])
        for row in rows:
            row.read = len(row.prompt)
            self.slots.holds(row.slot, row.prompt, row.hashes)
        return logits

    def _pass(self, ids: Sequence[np.ndarray], places: Sequence[tuple[int, int]]) -> Tensor:
        rows = [(slot, before, len(new)) for new, (slot, before) in zip(ids, places, strict=True)]
        tokens = sum(new for _, _, new in rows)
        is_graphed = self._is_graphed and len(rows) <= _READERS
        size = next((n for n in _READS if n >= tokens), 0) if is_graphed else 0
        told = _Told.of(ids, rows, size=size, spare=self.slots.count - 1)
        self.stats.passes += 1
        if size:
            self._keep_room()
            if size not in self._read_graphs:
                self._read_graphs[size] = _ReadGraph(self, told)
            return self._logits(self._read_graphs[size].read(told.numbers, len(rows)))
        plan = _Reading(self.slots, _there(told.numbers, self.network.device), told)
        return self._logits(hidden_states(self.network, self.weights, plan.ids, plan)[plan.last])

    def _keep_room(self) -> None:
        """Make graphs anew where the caches have moved."""
        if self._room != self.slots.room:
            self._graphs.clear()
            self._read_graphs.clear()
            self._room = self.slots.room

    def _place(self, rows: Sequence[_Row]) -> None:
        """The state of rows that have written their first token, told to the device."""
        if not rows:
            return
        self._fit(rows)
        s, device = self._state, self.network.device
        at = _there(np.array([row.slot for row in rows]), device)
        numbers = [
            (row.tokens[-1], len(row.prompt) + len(row.tokens) - 1, len(row.tokens), row.limit,
             row.slot * s.nodes + row.node if row.node >= 0 else row.node)
            for row in rows
        ]  # fmt: skip
        s.numbers[:, at] = _there(np.array(numbers, np.int64).T, device)
        s.flags[:, at] = _there(np.array([(False, False, row.ask.is_one_line) for row in rows]).T, device)
        s.heat[at] = _there(np.array([row.ask.temperature for row in rows], np.float32), device)
        noise = np.zeros((len(rows), s.most), np.float32)
        for i, row in enumerate(rows):
            noise[i, : len(row.noise)] = row.noise
        s.noise[at] = _there(noise, device)
        self._tell_tries([row for row in rows if row.node >= 0])

    def _tell_tries(self, rows: Sequence[_Row]) -> None:
        if not rows:
            return
        s = self._state
        tokens = np.full((len(rows), s.nodes, s.children), -1, np.int64)
        leads = np.full_like(tokens, FREE)
        for i, row in enumerate(rows):
            for n, node in enumerate(row.trie):
                for j, (token, to) in enumerate(sorted(node.items())):
                    tokens[i, n, j], leads[i, n, j] = token, row.slot * s.nodes + to if to >= 0 else to
        at = np.concatenate([np.arange(row.slot * s.nodes, (row.slot + 1) * s.nodes) for row in rows])
        where, device = _there(at, self.network.device), self.network.device
        s.tokens[where] = _there(tokens.reshape(-1, s.children), device)
        s.leads[where] = _there(leads.reshape(-1, s.children), device)

    def _fit(self, rows: Sequence[_Row]) -> None:
        """Make the state larger where an answer, a trie or a slot does not fit; graphs are made anew then."""
        s = self._state
        most = max(s.most, *(len(row.noise) for row in rows))
        nodes = max(s.nodes, *(len(row.trie) for row in rows))
        children = max(s.children, *(max((len(n) for n in row.trie), default=0) for row in rows))
        if (most, nodes, children) == (s.most, s.nodes, s.children) and self._room == self.slots.room:
            return
        fresh = {id(row) for row in rows}
        running = [row for row in self._rows if id(row) not in fresh and row.tokens]
        self._keep_room()
        self._graphs.clear()
        if (most, nodes, children) != (s.most, s.nodes, s.children):
            double = lambda new, old: old if new == old else max(new, 2 * old)  # noqa: E731
            size = double(most, s.most), double(nodes, s.nodes), double(children, s.children)
            self._collect(running)
            self._state = _State(self.slots.count - 1, *size, self.network.device)
            self._place(running)

    def _write_seen(self) -> None:
        """One token of every row by way of the host, who sees the logits: slower, for rows that ask for what no graph has."""
        rows = self._rows
        self._collect([row for row in rows if row.tokens])
        new = [row.new() for row in rows]
        places = [(row.slot, before) for row, (before, _) in zip(rows, new, strict=True)]
        self._write(rows, self._pass([ids for _, ids in new], places))
        self._place([row for row in rows if not (row.is_over or row.is_full)])

    # -- many tokens -------------------------------------------------------------------------------------------------

    def _decode(self) -> None:
        rows = self._rows
        batch = next((b for b in _BATCHES if b >= len(rows)), len(rows))
        batch = min(batch, len(self._active))
        active = np.full(batch, self.slots.count - 1, np.int64)
        active[: len(rows)] = [row.slot for row in rows]
        self._active[:batch] = _there(active, self.network.device)
        self._keep_room()
        graph = self._graph(batch)
        for _ in range(self.look):
            graph.replay()
        self.stats.passes += self.look
        self.stats.widest = max(self.stats.widest, len(rows))
        is_done = self._state.is_done[self._active[: len(rows)]].tolist()
        self._collect([row for row, is_row_done in zip(rows, is_done, strict=True) if is_row_done])

    def _collect(self, rows: Sequence[_Row]) -> None:
        """What the device has written of some rows since it was last looked at."""
        if not rows:
            return
        s = self._state
        at = torch.tensor([row.slot for row in rows], device=self.network.device)
        state = torch.stack([s.count[at], s.node[at], s.is_over[at].long()]).tolist()
        longest = max(state[0])
        written, logps = s.written[at, :longest].tolist(), s.logps[at, :longest].tolist()
        for row, count, node, is_over, ids, lp in zip(rows, *state, written, logps, strict=True):
            had = len(row.tokens)
            row.tokens += ids[had:count]
            row.logps += lp[had:count]
            row.is_over = bool(is_over)
            row.node = node - row.slot * s.nodes if node >= 0 else node
            self.stats.written += count - had

    def tokens_so_far(self, ticket: int) -> Sequence[int]:
        """What a call has written so far."""
        self._collect([row for row in self._rows if row.ticket == ticket])
        return super().tokens_so_far(ticket)

    def under_way(self) -> dict[int, AnswerDraft]:
        """What every call that has a slot has written so far, by its ticket."""
        self._collect(self._rows)
        return super().under_way()

    def cancel(self, ticket: int) -> Answer | None:
        """End a call now, with what it has written; None where it waits or is over."""
        self._collect([row for row in self._rows if row.ticket == ticket])
        return super().cancel(ticket)

    def _graph(self, batch: int) -> Any:
        if batch not in self._graphs:
            s = self._state
            backup = [x.clone() for x in (s.numbers, s.flags, s.written, s.logps)]
            self._graphs[batch] = self.captured(lambda: self._token(batch))
            for x, old in zip((s.numbers, s.flags, s.written, s.logps), backup, strict=True):
                x.copy_(old)
        return self._graphs[batch]

    def captured(self, work: Callable[[], None]) -> Any:
        """Work as a graph; it is done twice to begin with."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # another thread may be learning: it must not wait for the whole device meanwhile, as compiling does
        with ALONE, torch.cuda.graph(graph, pool=self._pool(), capture_error_mode="thread_local"):
            work()
        return graph

    def _pool(self) -> Any:
        """The memory of all graphs: no two run at once."""
        if not (self._graphs or self._read_graphs):  # it ends with the last of them
            self._memory = torch.cuda.graph_pool_handle()
        return self._memory

    def _token(self, batch: int) -> None:
        """The next token of each active row, from state to state."""
        s, at = self._state, self._active[:batch]
        place = s.place[at]
        logits = self._logits(hidden_states(self.network, self.weights, s.token[at], _Plan(self.slots, at, place)))
        count, is_done, limit, before = s.count[at], s.is_done[at], s.limit[at], s.node[at]
        where = count.clamp(max=s.most - 1)
        noise = s.noise[at].gather(1, where[:, None])[:, 0]
        token, logp, node = self._draw(logits, s.heat[at], noise, before, s.tokens, s.leads, self._after_space)
        s.written[at, where] = torch.where(is_done, s.written[at, where], token)
        s.logps[at, where] = torch.where(is_done, s.logps[at, where], logp)
        s.token[at] = torch.where(is_done, s.token[at], token)
        s.node[at] = torch.where(is_done, s.node[at], node)
        goes = (~is_done).long()
        s.count[at], s.place[at] = count + goes, place + goes
        breaks = s.is_one_line[at] & (before < 0) & self._is_line[token]
        is_over = torch.where(is_done, s.is_over[at], self._is_end[token] | breaks | (node == END))
        s.is_over[at] = is_over
        s.is_done[at] = is_done | is_over | ((node < 0) & (count + 1 >= limit))

    def _logits(self, normed: Tensor) -> Tensor:
        return torch.nn.functional.linear(normed, self.weights["words" if self.network.shape.is_tied else "out"])
