"""Drawing tokens: freely, or along a trie of allowed beginnings, with the log-probability of what it was drawn from.

Always true: the same seed and the same logits give the same token whoever else is in the batch: the only noise is one uniform
number per token, made from the call's seed. A recorded log-probability is that of the distribution the token was drawn from:
softmax at the call's temperature over the tokens that were allowed there. At temperature 0 the most likely allowed token is taken
and its log-probability is that at temperature 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FREE, SPACE, END = -1, -2, -3
"""Where a row is beyond its trie: any token, any token that begins with a space, or at its end."""


class Start(NamedTuple):
    """A beginning that is allowed: its tokens, and what may follow it (FREE, SPACE or END)."""

    ids: tuple[int, ...]
    then: int = FREE


@dataclass
class Trie:
    """Allowed beginnings as a tree of tokens: node to {token: next node, or FREE, SPACE, END}."""

    nodes: list[dict[int, int]] = field(default_factory=lambda: [{}])

    @classmethod
    def of(cls, starts: Sequence[Start]) -> Trie:
        """What follows a beginning that is also the beginning of another is held to no more than the shorter one asks for."""
        trie = cls()
        for start in starts:
            at = 0
            for k, token in enumerate(start.ids):
                known = trie.nodes[at].get(token)
                if k == len(start.ids) - 1:
                    is_longer_alike = known is not None and known >= 0 and start.then == SPACE
                    trie.nodes[at][token] = start.then if known in (None, start.then) or is_longer_alike else FREE
                elif known is None:
                    trie.nodes.append({})
                    trie.nodes[at][token] = len(trie.nodes) - 1
                elif known < 0:  # a shorter beginning ended here
                    trie.nodes[at][token] = FREE if known == END else known
                    break
                at = trie.nodes[at][token]
        return trie


class Parting(NamedTuple):
    """A node where starts part: how many of the tokens before it the node before has in common, and those after them."""

    node: int
    common: int
    path: tuple[int, ...]


def parting(nodes: Sequence[Mapping[int, int]], ends: Collection[int] = ()) -> list[Parting]:
    """The nodes after the first where starts part, a node before those below it. Where a line ends, by a line break or by one of
    the tokens that end an answer, nothing parts."""
    out, todo, last = list[Parting](), [(0, tuple[int, ...]())], tuple[int, ...]()
    while todo:
        node, path = todo.pop()
        if node and len(nodes[node]) > 1 and not _ends_a_line(nodes[node], ends):
            common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(path[:-1], last, strict=False)))
            out.append(Parting(node, common, path[common:]))
            last = path
        todo += [(to, (*path, token)) for token, to in sorted(nodes[node].items()) if to >= 0]
    return out


def _ends_a_line(node: Mapping[int, int], ends: Collection[int]) -> bool:
    return len(node) == 2 and set(node.values()) == {END} and any(token in ends for token in node)


def allowed_logps(logits: Tensor, node: Mapping[int, int], temperature: float) -> dict[int, float]:
    """Log-probability of each token that a node allows, from the logits [vocabulary] there; at temperature 0, that at 1."""
    tokens = list(node)
    return dict(zip(tokens, (logits[tokens].float() / (temperature or 1.0)).log_softmax(-1).tolist(), strict=True))


def start_logps(
    starts: Sequence[Start], nodes: Sequence[Mapping[int, int]], known: Mapping[int, Mapping[int, float]]
) -> tuple[float, ...]:
    """Log-probability of each start: the sum of its tokens', where starts part. Two ways to end one line have equal shares of it.
    A start that goes on where a shorter one has ended is part of that one, and has none of its own."""
    out = []
    for start in starts:
        at, total = 0, 0.0
        for token in start.ids:
            if at < 0:
                total = -math.inf
                break
            total += known[at][token] if at in known else -math.log(len(nodes[at]))
            at = nodes[at][token]
        out.append(total)
    return tuple(out)


def uniforms(seed: int, count: int) -> np.ndarray:
    """The noise of a call: one number in [0, 1) per token, from the call's seed alone."""
    drawn = np.random.Generator(np.random.PCG64(seed & (2**128 - 1))).random(count)
    return np.minimum(drawn, 1 - 2**-24).astype(np.float32)


def allowed_table(nodes: Sequence[dict[int, int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes as two tables [nodes, most children]: tokens (-1 where there is none) and where each leads."""
    import torch

    most = max((len(n) for n in nodes), default=1) or 1
    tokens = np.full((max(1, len(nodes)), most), -1, np.int64)
    leads = np.full_like(tokens, FREE)
    for i, node in enumerate(nodes):
        for j, (token, to) in enumerate(sorted(node.items())):
            tokens[i, j], leads[i, j] = token, to
    return torch.as_tensor(tokens, device=device), torch.as_tensor(leads, device=device)


def draw(
    logits: Tensor, temperature: Tensor, noise: Tensor, node: Tensor, tokens: Tensor, leads: Tensor, after_space: Tensor,
    *, freely: Callable[..., tuple[Tensor, Tensor]] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """One token of each row: (token, its log-probability, where the row is then), each [rows].

    `logits` [rows, vocabulary]; `temperature`, `noise` and `node` [rows]; `tokens` and `leads` as `allowed_table` gives them;
    `after_space` [vocabulary] says which tokens begin with a space; `freely`: what draws where no trie holds a row.
    """
    import torch

    free, free_logp = (freely or draw_freely)(logits, temperature, noise, node, after_space)
    here = node.clamp(min=0)
    allowed = tokens[here]
    among = logits.gather(1, allowed.clamp(min=0)).float() / _heat(temperature)
    picked, picked_logp = _pick(among.masked_fill(allowed < 0, -torch.inf), noise, temperature <= 0)
    is_held = node >= 0
    token = torch.where(is_held, allowed.gather(1, picked[:, None])[:, 0], free)
    logp = torch.where(is_held, picked_logp, free_logp)
    return token, logp, torch.where(is_held, leads[here].gather(1, picked[:, None])[:, 0], FREE)


def draw_freely(logits: Tensor, temperature: Tensor, noise: Tensor, node: Tensor, after_space: Tensor) -> tuple[Tensor, Tensor]:
    """Any token of each row, or any that begins with a space where its node says so, and its log-probability."""
    import torch

    scaled = logits.float() / _heat(temperature)
    scaled = scaled.masked_fill((node == SPACE)[:, None] & ~after_space[None], -torch.inf)
    return _pick(scaled, noise, temperature <= 0)


def within_nucleus(logits: Tensor, temperature: Tensor, share: Tensor) -> Tensor:
    """The logits [rows, vocabulary] with -inf outside the nucleus of each row: the fewest tokens, the most likely first, that are
    `share` [rows] likely together (nucleus sampling, arXiv 1904.09751). A row with a share of 1 stays as it is."""
    import torch

    order = (logits.float() / _heat(temperature)).sort(dim=-1, descending=True)
    mass = order.values.softmax(-1)
    is_beyond = mass.cumsum(-1) - mass >= share[:, None]  # what is likelier already makes up the share
    is_beyond[:, 0] = False
    is_out = torch.zeros_like(is_beyond).scatter(1, order.indices, is_beyond) & (share < 1)[:, None]
    return logits.masked_fill(is_out, -torch.inf)


def most_likely(
    logits: Tensor, temperature: Tensor, node: Tensor, tokens: Tensor, after_space: Tensor, counts: Sequence[int]
) -> list[tuple[tuple[int, float], ...]]:
    """The `counts` most likely tokens of each row with their log-probabilities, among those that `draw` draws from."""
    import torch

    scaled = logits.float() / _heat(temperature)
    allowed = tokens[node.clamp(min=0)]
    marks = torch.zeros(len(scaled), scaled.shape[1] + 1, dtype=torch.bool, device=scaled.device)  # the last takes no token
    is_in = marks.scatter(1, torch.where(allowed < 0, scaled.shape[1], allowed), True)[:, :-1]
    is_in = torch.where((node >= 0)[:, None], is_in, (node != SPACE)[:, None] | after_space[None])
    logp = scaled.masked_fill(~is_in, -torch.inf).log_softmax(-1)
    values, ids = (part.tolist() for part in logp.topk(min(max(counts), logp.shape[1]), dim=-1))
    rows = zip(ids, values, counts, strict=True)
    return [tuple((i, v) for i, v in zip(row[:n], of[:n], strict=True) if v > -math.inf) for row, of, n in rows]


def _heat(temperature: Tensor) -> Tensor:
    """What logits are divided by: 1 where the most likely token is taken."""
    import torch

    return torch.where(temperature <= 0, 1.0, temperature)[:, None]


def _pick(scaled: Tensor, noise: Tensor, is_greedy: Tensor) -> tuple[Tensor, Tensor]:
    """The place of one entry of each row, by inverse transform of its softmax, and its log-probability."""
    import torch

    logp = scaled.log_softmax(-1)
    mass = logp.exp().cumsum(-1)
    drawn = torch.searchsorted(mass, (noise * mass[:, -1])[:, None], right=True)[:, 0].clamp(max=mass.shape[1] - 1)
    place = torch.where(is_greedy, logp.argmax(-1), drawn)
    return place, logp.gather(1, place[:, None])[:, 0]
