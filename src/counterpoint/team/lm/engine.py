"""The engine: many calls at once on one network; whoever ends makes room for whoever waits.

Always true: a call's answer depends on its own prompt and seed and, beyond the last bits of rounding, on nobody else's. A prompt
that begins like something a slot holds is read only from where they part. New weights forget every slot.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from counterpoint.errors import InputError
from counterpoint.team.lm.network import Network, Weights
from counterpoint.team.lm.sampling import END, FREE, Start, Trie, allowed_table, draw, uniforms
from counterpoint.trace.model_calls import common_prefix

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 16
"""Prefixes are known by blocks of so many tokens."""
_SLACK = 4
"""A prompt that leaves out at most so many of a slot's last tokens goes on in it."""
_LOOKED_AT = 4
"""Slots that are compared where many begin alike."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What is to be continued, and how."""

    prompt: Sequence[int]
    most: int = 128
    """Tokens that may be written."""
    temperature: float = 1.0
    seed: int = 0
    starts: Sequence[Start] = ()
    """Where given, the answer begins with one of these, also where that takes more than `most` tokens."""
    is_one_line: bool = False
    """Whether a token with a line break ends it, once its start is written."""
    policy: str = ""
    """Which adapter answers, where the engine has several; the weights themselves where empty."""


class TooLong(InputError):
    """A prompt that leaves no room for an answer."""


@dataclass(frozen=True)
class Answer:
    """What was written: its tokens (the one that ended it is the last), and how likely each was where it was drawn."""

    token_ids: tuple[int, ...]
    logps: tuple[float, ...]
    finish: Literal["stop", "length"]
    reused: int
    """Tokens of the prompt that were not read again."""


@dataclass
class Stats:
    """What an engine has done so far."""

    asked: int = 0
    read: int = 0
    """Tokens of prompts that went through the network."""
    reused: int = 0
    written: int = 0
    passes: int = 0
    widest: int = 0


@dataclass
class _Row:
    ticket: int
    ask: Ask
    noise: np.ndarray
    trie: list[dict[int, int]]
    node: int
    slot: int = -1
    reused: int = 0
    read: int = 0
    """Tokens of the prompt that its slot holds."""
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    is_over: bool = False
    """Whether its last token ended it."""

    @classmethod
    def of(cls, ticket: int, ask: Ask, context: int) -> _Row:
        """A row that has no slot yet."""
        trie = Trie.of(ask.starts).nodes if ask.starts else []
        longest = max((len(s.ids) for s in ask.starts), default=0)
        room = min(max(ask.most, longest), context - len(ask.prompt))
        return cls(ticket, ask, uniforms(ask.seed, room), trie, 0 if trie else FREE)

    @property
    def limit(self) -> int:
        """Tokens that it may write once its start is written."""
        return min(self.ask.most, len(self.noise))

    @property
    def is_full(self) -> bool:
        """Whether it has written all it may; a start that was begun is written to its end."""
        return self.node < 0 and len(self.tokens) >= self.limit

    @property
    def unread(self) -> int:
        """Tokens of the prompt that the network has not read yet."""
        return len(self.ask.prompt) - self.read

    def new(self, most: int | None = None) -> tuple[int, np.ndarray]:
        """What the network has not read yet, of a prompt at most so many: how many tokens stand before it, and its tokens."""
        if self.unread:
            end = len(self.ask.prompt) if most is None else min(self.read + most, len(self.ask.prompt))
            return self.read, np.asarray(self.ask.prompt[self.read : end], np.int64)
        return len(self.ask.prompt) + len(self.tokens) - 1, np.array([self.tokens[-1]], np.int64)


class _Waiting(NamedTuple):
    """A call that has no slot yet."""

    ticket: int
    ask: Ask
    prompt: np.ndarray
    hashes: list[int]


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
        self._hashes: list[list[int]] = [[] for _ in range(count)]
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
            assert self._all is not None
            self._all[:, :, slot, :common] = self._all[:, :, source, :common]
            self.filled[slot] = max(self.filled[slot], common)
        self.holds(slot, prompt[: common if source is not None else 0])
        del self.idle[slot]
        return slot, common if source is not None else 0

    def _longest(self, prompt: np.ndarray, hashes: Sequence[int]) -> tuple[int | None, int]:
        """A slot that begins with as many whole blocks of the prompt as any does, rather one that nobody writes in."""
        n = self.known(hashes)
        if not n:
            return None, 0
        slots = self._known[hashes[n - 1]]
        few = list(islice(reversed(slots), _LOOKED_AT))
        best = max(few, key=lambda slot: (common_prefix(self.held[slot], prompt), slot in self.idle))
        return best, common_prefix(self.held[best], prompt)

    def known(self, hashes: Sequence[int]) -> int:
        """How many first blocks some slot holds."""
        low, high = 0, len(hashes)
        while low < high:  # who holds some blocks holds those before them
            middle = (low + high + 1) // 2
            low, high = (middle, high) if hashes[middle - 1] in self._known else (low, middle - 1)
        return low

    def holds(self, slot: int, ids: np.ndarray) -> None:
        """The keys and values of these tokens are in the slot now."""
        before, self._hashes[slot] = self._hashes[slot], hashes_of(ids, self.held[slot], self._hashes[slot])
        self.held[slot] = ids
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, self._hashes[slot], strict=False)))
        self._drop(slot, before[kept:])
        for hashed in self._hashes[slot][kept:]:
            self._known.setdefault(hashed, {})[slot] = None

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


def hashes_of(ids: np.ndarray, begins: np.ndarray | None = None, known: Sequence[int] = ()) -> list[int]:
    """A hash of the first block, of the first two, ...; a tail that fills no block has none.

    `known` are those of `begins`, which `ids` may begin with: what they have in common is not hashed again.
    """
    blocks = len(ids) // _BLOCK
    same = 0 if begins is None or not known else min(common_prefix(begins, ids) // _BLOCK, len(known), blocks)
    out = list(known[:same])
    so_far, raw, width = out[-1] if out else 0, ids.tobytes(), _BLOCK * ids.itemsize
    for k in range(same, blocks):
        so_far = hash((so_far, raw[k * width : (k + 1) * width]))
        out.append(so_far)
    return out


class _Cached:
    """`attend` over slots: new tokens of several rows, each after what its slot holds."""

    def __init__(self, slots: Slots, rows: Sequence[tuple[int, int, int]]) -> None:
        self.slots, self.rows = slots, rows
        """(slot, tokens before, new tokens) of each row."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        import torch
        from torch.nn.functional import scaled_dot_product_attention

        keys, values = self.slots.keys[layer], self.slots.values[layer]
        out, begin = [], 0
        for slot, before, new in self.rows:
            end, total = begin + new, before + new
            keys[slot, before:total], values[slot, before:total] = k[begin:end], v[begin:end]
            self.slots.filled[slot] = max(self.slots.filled[slot], total)
            seen = keys[slot, :total].transpose(0, 1)[None], values[slot, :total].transpose(0, 1)[None]
            asked = q[begin:end].transpose(0, 1)[None]
            mask = None
            if new > 1 and before:  # each new token sees everything before it
                at = torch.arange(total, device=q.device)
                mask = at[None] <= at[before:, None]
            got = scaled_dot_product_attention(asked, *seen, attn_mask=mask, is_causal=new > 1 and not before, enable_gqa=True)
            out.append(got[0].transpose(0, 1))
            begin = end
        return torch.cat(out)


class Engine:
    """Calls in, answers out: `add` as many as you like, `step` until all have answered."""

    def __init__(
        self,
        network: Network,
        weights: Weights,
        *,
        ends: Sequence[int],
        after_space: np.ndarray | None = None,
        lines: Sequence[int] = (),
        slots: int = 32,
        reads: int = 4096,
    ) -> None:
        """`ends`: tokens that end an answer; `lines`: tokens that hold a line break; `slots`: calls at once; `reads`: tokens of
        prompts in one pass, the rest of a long one comes in the next."""
        import torch

        if slots < 1 or reads < 1:
            raise InputError(f"an engine with {slots} slots that reads {reads} tokens", fix="at least 1 of each")
        self.network, self.weights, self.ends, self.reads = network, weights, frozenset(ends), reads
        self.lines = frozenset(lines)
        self.slots, self.stats = Slots(network, slots), Stats()
        spaces = np.ones(network.shape.vocabulary, bool) if after_space is None else after_space
        self._after_space = torch.as_tensor(spaces, device=network.device)
        self._waiting: deque[_Waiting] = deque()
        self._rows: list[_Row] = []
        self._next = 0

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._waiting or self._rows)

    def load(self, weights: Weights) -> None:
        """Take over other weights in place; what slots hold was computed with the old ones and is forgotten."""
        import torch

        if self._rows:
            raise InputError("calls are under way", fix="step until the engine is not busy")
        with torch.no_grad():
            for name, own in self.weights.items():
                own.copy_(weights[name])
        self.slots.clear()

    def add(self, ask: Ask) -> int:
        """Ask; the ticket comes back with the answer."""
        context, need = self.network.shape.context, max((len(s.ids) for s in ask.starts), default=1)
        if not len(ask.prompt):
            raise InputError("an empty prompt", fix="at least one token")
        if ask.most < 1:
            raise InputError(f"an answer of at most {ask.most} tokens", fix="at least one token")
        if len(ask.prompt) + need > context:
            raise TooLong(f"the prompt has {len(ask.prompt):,} tokens and the model reads {context:,}", fix="shorten it")
        prompt = np.asarray(ask.prompt, np.int64)
        self._waiting.append(_Waiting(self._next, ask, prompt, hashes_of(prompt)))
        self._next += 1
        self.stats.asked += 1
        return self._next - 1

    def run(self, asks: Sequence[Ask]) -> list[Answer]:
        """The answers of many, in their order."""
        tickets = {self.add(ask): i for i, ask in enumerate(asks)}
        out: dict[int, Answer] = {}
        while self.is_busy:
            out |= {tickets[ticket]: answer for ticket, answer in self.step()}
        return [out[i] for i in range(len(asks))]

    def step(self) -> list[tuple[int, Answer]]:
        """One pass: who waits joins, everybody writes a token; gives those that are done."""
        import torch

        with torch.inference_mode():
            self._join()
            if self._rows:
                self._advance()
        return self._leave()

    def _advance(self) -> None:
        """The next token of every row that writes, and the next piece of prompts, as far as the tokens of one pass go."""
        left, work = self.reads, list[tuple[_Row, int, np.ndarray]]()
        for row in self._rows:
            if row.unread and left < 1:
                continue
            before, ids = row.new(left)
            left -= len(ids) if row.unread else 0
            work.append((row, before, ids))
        logits = self._pass([ids for _, _, ids in work], [(row.slot, before) for row, before, _ in work])
        for row, _, ids in work:
            if row.unread:
                row.read += len(ids)
                if not row.unread:
                    self.slots.holds(row.slot, np.asarray(row.ask.prompt, np.int64))
        ready = [k for k, (row, _, _) in enumerate(work) if not row.unread]
        if ready:
            self._write([work[k][0] for k in ready], logits[ready])

    def _join(self) -> None:
        """Rows for calls that wait, as far as slots and the tokens of one pass go.

        Of those that begin alike, the first reads the beginning, and the others join a pass later with a copy.
        """
        later, reads = deque[_Waiting](), [row for row in self._rows if row.unread]
        budget = self.reads - sum(row.unread for row in reads)
        reading = {h for row in reads for h in hashes_of(np.asarray(row.ask.prompt, np.int64))}
        while self._waiting and self.slots.idle and budget > 0:
            waiting = self._waiting.popleft()
            ticket, ask, prompt, hashes = waiting
            new = hashes[self.slots.known(hashes) :]
            if any(h in reading for h in new):
                later.append(waiting)
                continue
            reading.update(new)
            row = _Row.of(ticket, ask, self.network.shape.context)
            row.slot, row.reused = self.slots.take(prompt, len(prompt) + len(row.noise), hashes)
            row.read = row.reused
            self._rows.append(row)
            budget -= row.unread
            self.stats.read += row.unread
            self.stats.reused += row.reused
        self._waiting.extendleft(reversed(later))

    def _pass(self, ids: Sequence[np.ndarray], places: Sequence[tuple[int, int]]) -> Tensor:
        """The logits after the last new token of each row; keys and values of all new tokens are in their slots."""
        import torch

        device = self.network.device
        lengths = [len(i) for i in ids]
        flat = torch.as_tensor(np.concatenate(ids), device=device)
        at = np.concatenate([np.arange(before, before + n) for (_, before), n in zip(places, lengths, strict=True)])
        attend = _Cached(self.slots, [(slot, before, n) for (slot, before), n in zip(places, lengths, strict=True)])
        hidden = self.network.hidden(self.weights, flat, torch.as_tensor(at, device=device), attend)
        last = torch.as_tensor(np.cumsum(lengths) - 1, device=device)
        self.stats.passes += 1
        self.stats.widest = max(self.stats.widest, len(ids))
        return self.network.logits(self.weights, hidden[last])

    def _write(self, rows: Sequence[_Row], logits: Tensor) -> None:
        import torch

        device = self.network.device
        nodes: list[dict[int, int]] = [row.trie[row.node] if row.node >= 0 else {} for row in rows]
        table = allowed_table(nodes, device)
        node = [k if row.node >= 0 else row.node for k, row in enumerate(rows)]

        def told(values: list[Any], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, device=device, dtype=dtype)

        heat = told([row.ask.temperature for row in rows], torch.float32)
        noise = told([float(row.noise[len(row.tokens)]) for row in rows], torch.float32)
        drawn = draw(logits, heat, noise, told(node, torch.int64), *table, self._after_space)
        for row, token, logp, then in zip(rows, *(x.tolist() for x in drawn), strict=True):
            row.tokens.append(token)
            row.logps.append(logp)
            row.is_over = self._ends(row, token) or then == END
            row.node = then
        self.stats.written += len(rows)

    def _ends(self, row: _Row, token: int) -> bool:
        """Whether a token ends a row; a line break in a start is part of it."""
        return token in self.ends or (row.ask.is_one_line and row.node < 0 and token in self.lines)

    def _leave(self) -> list[tuple[int, Answer]]:
        done = [row for row in self._rows if row.is_over or row.is_full]
        if done:
            self._rows = [row for row in self._rows if not (row.is_over or row.is_full)]
        return [(row.ticket, self._let_go(row)) for row in done]

    def _let_go(self, row: _Row) -> Answer:
        read = np.asarray(row.ask.prompt[: row.read], np.int64)
        self.slots.holds(row.slot, np.concatenate([read, np.array(row.tokens[:-1], np.int64)]))
        self.slots.release(row.slot)
        return Answer(tuple(row.tokens), tuple(row.logps), "stop" if row.is_over else "length", row.reused)

    # -- calls that are under way --------------------------------------------------------------------------------------------

    def written(self, ticket: int) -> Sequence[int]:
        """What a call has written so far."""
        return next((row.tokens for row in self._rows if row.ticket == ticket), ())

    def reset(self) -> None:
        """Forget every call, and what the slots hold: after an error nobody knows how far a pass came."""
        self._waiting.clear()
        for row in self._rows:
            self.slots.release(row.slot)
        self._rows.clear()
        self.slots.clear()

    def cancel(self, ticket: int) -> Answer | None:
        """End a call now, with what it has written; None where it waits or is over."""
        self._waiting = deque(asked for asked in self._waiting if asked[0] != ticket)
        row = next((row for row in self._rows if row.ticket == ticket), None)
        if row is None:
            return None
        self._rows = [other for other in self._rows if other is not row]
        return self._let_go(row)


class Engines:
    """Several engines as one: each ask goes to that of its policy."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self.engines = dict(engines)
        self._all = list(self.engines.values())
        self._place = {name: i for i, name in enumerate(self.engines)}

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return any(engine.is_busy for engine in self._all)

    @property
    def stats(self) -> Stats:
        """What all have done so far; the widest pass of one."""
        out = Stats()
        for f in fields(Stats):
            values = [getattr(engine.stats, f.name) for engine in self._all]
            setattr(out, f.name, max(values) if f.name == "widest" else sum(values))
        return out

    def add(self, ask: Ask) -> int:
        """Ask the policy that the ask names; one that is unknown speaks with the first."""
        place = self._place.get(ask.policy, 0)
        return self._all[place].add(ask) * len(self._all) + place

    def step(self) -> list[tuple[int, Answer]]:
        """One pass of each."""
        out = []
        for place, engine in enumerate(self._all):
            if engine.is_busy:
                out += [(ticket * len(self._all) + place, answer) for ticket, answer in engine.step()]
        return out

    def written(self, ticket: int) -> Sequence[int]:
        """What a call has written so far."""
        return self._all[ticket % len(self._all)].written(ticket // len(self._all))

    def cancel(self, ticket: int) -> Answer | None:
        """End a call now, with what it has written; None where it waits or is over."""
        return self._all[ticket % len(self._all)].cancel(ticket // len(self._all))

    def reset(self) -> None:
        """Forget every call, and what the slots hold."""
        for engine in self._all:
            engine.reset()
