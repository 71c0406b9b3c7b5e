"""The engine: many calls at once on one network; whoever ends makes room for whoever waits.

Always true: a call's answer depends on its own prompt and seed and, beyond the last bits of rounding, on nobody else's. A prompt
that begins like something a slot holds is read only from where they part. New weights forget every slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.lm.network import Network, Weights
from counterpoint.lab.lm.sampling import (
    END,
    FREE,
    Start,
    Trie,
    allowed_logps,
    allowed_table,
    draw,
    most_likely,
    parting,
    start_logps,
    uniforms,
    within_nucleus,
)
from counterpoint.lab.lm.slots import BLOCK, Cached, Slots, hashes_of

if TYPE_CHECKING:
    from torch import Tensor

    from counterpoint.lab.lm.adapter import PolicyWeights


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
    is_scored: bool = False
    """Whether the answer says how likely each start was; it takes one more pass for every place where starts part."""
    is_one_line: bool = False
    """Whether a token with a line break ends it, once its start is written."""
    policy: str = ""
    """Which adapter answers, where the engine has several; the weights themselves where empty."""
    top_p: float = 1.0
    """Free tokens are drawn from the fewest that are this likely together."""
    alternatives: int = 0
    """How many of the most likely tokens the answer names at each place."""

    @property
    def needs_logits(self) -> bool:
        """Whether the host has to see the logits of every token."""
        return self.top_p < 1 or self.alternatives > 0


Alternatives = tuple[tuple[int, float], ...]
"""Tokens that could have stood at one place, with their log-probabilities, the most likely first."""


class AnswerDraft(NamedTuple):
    """What a call under way has written so far; the engine goes on writing into it."""

    token_ids: Sequence[int]
    logps: Sequence[float]
    alternatives: Sequence[Alternatives]
    reused: int
    """Tokens of the prompt that were not read again."""


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
    start_logps: tuple[float, ...] | None = None
    alternatives: tuple[Alternatives, ...] = ()
    """For each token, where they were asked for."""


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


@dataclass(frozen=True)
class _Waiting:
    """A call that has no slot yet."""

    ticket: int
    ask: Ask
    prompt: np.ndarray

    @cached_property
    def hashes(self) -> list[int]:
        """Of its blocks; made when it may join, while the network reads other prompts."""
        return hashes_of(self.prompt)


@dataclass
class _Row:
    ticket: int
    ask: Ask
    prompt: np.ndarray
    hashes: list[int]
    noise: np.ndarray
    limit: int
    """Tokens that it may write once its start is written."""
    trie: list[dict[int, int]]
    node: int
    slot: int = -1
    reused: int = 0
    read: int = 0
    """Tokens of the prompt that its slot holds."""
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    alternatives: list[Alternatives] = field(default_factory=list)
    is_over: bool = False
    """Whether its last token ended it."""
    start_logps: tuple[float, ...] | None = None

    @classmethod
    def of(cls, waiting: _Waiting, context: int) -> _Row:
        """A row that has no slot yet."""
        ask, prompt = waiting.ask, waiting.prompt
        trie = Trie.of(ask.starts).nodes if ask.starts else []
        longest = max((len(s.ids) for s in ask.starts), default=0)
        room = min(max(ask.most, longest), context - len(prompt))
        noise = uniforms(ask.seed, room) if ask.temperature > 0 else np.zeros(room, np.float32)
        return cls(waiting.ticket, ask, prompt, waiting.hashes, noise, min(ask.most, room), trie, 0 if trie else FREE)

    @property
    def is_full(self) -> bool:
        """Whether it has written all it may; a start that was begun is written to its end."""
        return self.node < 0 and len(self.tokens) >= self.limit

    @property
    def unread(self) -> int:
        """Tokens of the prompt that the network has not read yet."""
        return len(self.prompt) - self.read

    def new(self, most: int | None = None) -> tuple[int, np.ndarray]:
        """What the network has not read yet, of a prompt at most so many: how many tokens stand before it, and its tokens."""
        if self.unread:
            return self.read, self.prompt[self.read : None if most is None else self.read + most]
        return len(self.prompt) + len(self.tokens) - 1, np.array([self.tokens[-1]], np.int64)


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
        self._draw = draw
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
        self._waiting.append(_Waiting(self._next, ask, np.asarray(ask.prompt, np.int64)))
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
        budget, work = self.reads, list[tuple[_Row, int, np.ndarray]]()
        for row in self._rows:
            if row.unread and budget < 1:
                continue
            before, ids = row.new(budget)
            budget -= len(ids) if row.unread else 0
            work.append((row, before, ids))
        logits = self._pass([ids for _, _, ids in work], [(row.slot, before) for row, before, _ in work])
        for row, _, ids in work:
            if row.unread:
                row.read += len(ids)
                if not row.unread:
                    self.slots.holds(row.slot, row.prompt, row.hashes)
        ready = [k for k, (row, _, _) in enumerate(work) if not row.unread]
        if ready:
            self._write([work[k][0] for k in ready], logits[ready])

    def _join(self) -> list[_Row]:
        """Rows for calls that wait, as far as slots and the tokens of one pass go; those that are new.

        Of those that begin alike, the first reads the beginning, and the others join a pass later with a copy.
        """
        later, reads, joined = deque[_Waiting](), [row for row in self._rows if row.unread], list[_Row]()
        budget = self.reads - sum(row.unread for row in reads)
        reading = {h for row in reads for h in row.hashes}
        while self._waiting and self.slots.idle and budget > 0:
            waiting = self._waiting.popleft()
            new = waiting.hashes[self.slots.cached_blocks(waiting.hashes) :]
            if any(h in reading for h in new):
                later.append(waiting)
                continue
            reading.update(new)
            row = _Row.of(waiting, self.network.shape.context)
            row.slot, row.reused = self.slots.take(row.prompt, len(row.prompt) + len(row.noise), row.hashes)
            row.read = row.reused
            self._rows.append(row)
            joined.append(row)
            budget -= row.unread
            self.stats.read += row.unread
            self.stats.reused += row.reused
        self._waiting.extendleft(reversed(later))
        return joined

    def _pass(self, ids: Sequence[np.ndarray], places: Sequence[tuple[int, int]]) -> Tensor:
        """The logits after the last new token of each row; keys and values of all new tokens are in their slots."""
        import torch

        device = self.network.device
        lengths = [len(i) for i in ids]
        flat = torch.as_tensor(np.concatenate(ids), device=device)
        at = np.concatenate([np.arange(before, before + n) for (_, before), n in zip(places, lengths, strict=True)])
        attend = Cached(self.slots, [(slot, before, n) for (slot, before), n in zip(places, lengths, strict=True)])
        hidden = self.network.hidden_states(self.weights, flat, torch.as_tensor(at, device=device), attend)
        last = torch.as_tensor(np.cumsum(lengths) - 1, device=device)
        self.stats.passes += 1
        self.stats.widest = max(self.stats.widest, len(ids))
        return self.network.logits(self.weights, hidden[last])

    def _score(self, rows: Sequence[_Row], logits: Tensor) -> None:
        """How likely each start is, for rows that are to write their first token and ask for it."""
        asked = [
            (row, {0: allowed_logps(line, row.trie[0], row.ask.temperature)}, parting(row.trie, self.ends))
            for row, line in zip(rows, logits, strict=True)
            if row.ask.is_scored and row.trie and not row.tokens
        ]
        for k in range(max((len(places) for _, _, places in asked), default=0)):
            now = [(row, known, places[k]) for row, known, places in asked if k < len(places)]
            paths = [np.array(place.path, np.int64) for _, _, place in now]
            lines = self._pass(paths, [(row.slot, len(row.prompt) + place.common) for row, _, place in now])
            for (row, known, place), line in zip(now, lines, strict=True):
                known[place.node] = allowed_logps(line, row.trie[place.node], row.ask.temperature)
        for row, known, _ in asked:
            row.start_logps = start_logps(row.ask.starts, row.trie, known)

    def _write(self, rows: Sequence[_Row], logits: Tensor) -> None:
        import torch

        self._score(rows, logits)
        device = self.network.device
        nodes: list[dict[int, int]] = [row.trie[row.node] if row.node >= 0 else {} for row in rows]
        table = allowed_table(nodes, device)
        node = [k if row.node >= 0 else row.node for k, row in enumerate(rows)]

        def as_tensor(values: list[Any], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, device=device, dtype=dtype)

        heat = as_tensor([row.ask.temperature for row in rows], torch.float32)
        noise = as_tensor([float(row.noise[len(row.tokens)]) for row in rows], torch.float32)
        at_node = as_tensor(node, torch.int64)
        if any(row.ask.top_p < 1 for row in rows):
            share = as_tensor([row.ask.top_p if row.node == FREE else 1.0 for row in rows], torch.float32)
            logits = within_nucleus(logits, heat, share)
        if any(row.ask.alternatives for row in rows):
            counts = [row.ask.alternatives for row in rows]
            named = most_likely(logits, heat, at_node, table[0], self._after_space, counts)
            for row, alternatives in zip(rows, named, strict=True):
                row.alternatives += [alternatives] if row.ask.alternatives else []
        drawn = self._draw(logits, heat, noise, at_node, *table, self._after_space)
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
        done, going = list[_Row](), list[_Row]()
        for row in self._rows:
            (done if row.is_over or row.is_full else going).append(row)
        self._rows = going
        return [(row.ticket, self._let_go(row)) for row in done]

    def _let_go(self, row: _Row) -> Answer:
        held = np.concatenate([row.prompt[: row.read], np.array(row.tokens[:-1], np.int64)])
        self.slots.holds(row.slot, held, hashes_of(held, row.hashes[: row.read // BLOCK]))
        self.slots.release(row.slot)
        finish: Literal["stop", "length"] = "stop" if row.is_over else "length"
        named = tuple(row.alternatives)
        return Answer(tuple(row.tokens), tuple(row.logps), finish, row.reused, row.start_logps, named)

    # -- calls that are under way --------------------------------------------------------------------------------------------

    def tokens_so_far(self, ticket: int) -> Sequence[int]:
        """What a call has written so far."""
        return next((row.tokens for row in self._rows if row.ticket == ticket), ())

    def under_way(self) -> dict[int, AnswerDraft]:
        """What every call that has a slot has written so far, by its ticket."""
        return {row.ticket: AnswerDraft(row.tokens, row.logps, row.alternatives, row.reused) for row in self._rows}

    def reset(self) -> None:
        """Forget every call, and what the slots hold: after an error nobody knows how far a pass came."""
        self._waiting.clear()
        for row in self._rows:
            self.slots.release(row.slot)
        self._rows.clear()
        self.slots.clear()

    def cancel(self, ticket: int) -> Answer | None:
        """End a call now, with what it has written; None where it waits or is over."""
        self._waiting = deque(asked for asked in self._waiting if asked.ticket != ticket)
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

    def tokens_so_far(self, ticket: int) -> Sequence[int]:
        """What a call has written so far."""
        return self._all[ticket % len(self._all)].tokens_so_far(ticket // len(self._all))

    def under_way(self) -> dict[int, AnswerDraft]:
        """What every call that has a slot has written so far, by its ticket."""
        count = len(self._all)
        every = enumerate(engine.under_way() for engine in self._all)
        return {ticket * count + place: written for place, one in every for ticket, written in one.items()}

    def cancel(self, ticket: int) -> Answer | None:
        """End a call now, with what it has written; None where it waits or is over."""
        return self._all[ticket % len(self._all)].cancel(ticket // len(self._all))

    def reset(self) -> None:
        """Forget every call, and what the slots hold."""
        for engine in self._all:
            engine.reset()

    def load(self, policies: Mapping[str, PolicyWeights]) -> None:
        """Each speaks with the weights of its policy from now on."""
        for name, policy in policies.items():
            self.engines[name].load(policy.whole())

    def close(self) -> None:
        """Nothing to let go of."""
