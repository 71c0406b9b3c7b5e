"""What learning takes: bytes of weights, gradients, moments, activations and the engine, by sizes alone; and how long it takes.

Always true: counts of weights, gradients and moments are exact; activations are what the way back needs of the largest
micro-batch, to within a quarter where nothing is fused, and more than that where a compiler fuses. Seconds are those of one
measured update, for as many operations: they suppose that every model and every number of cards computes at that rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from counterpoint.lab.lm.network import LINEAR, Shape, sizes

MEASURED = {"weights": 134_515_008, "teams": 180, "tokens": 380_000, "seconds": 1.92}
"""One update of SmolLM2-135M on one H200, all weights, rows of a forest: teams, tokens that differ, seconds of its 4 steps."""
_AGAIN = 4 / 3
"""A layer that is recomputed computes forward twice, of what are three times as much otherwise."""
_SAID = 3
"""Of so many tokens of a micro-batch one was said by the model: supposed."""
CARDS = (1, 8, 64)
"""What an estimate is made for."""


def count_weights(shape: Shape) -> int:
    """How many numbers the network has."""
    return sum(prod(size) for size in sizes(shape).values())


def count_adapter(shape: Shape, rank: int) -> int:
    """How many numbers an adapter of this rank has: A and B of every linear map of a layer."""
    return sum(rank * sum(size) for name, size in sizes(shape).items() if name.partition(".")[2] in LINEAR)


def layer_bytes(shape: Shape, *, each: int) -> int:
    """What one layer keeps of a token for the way back, `each` bytes a number."""
    heads, kept = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    return 2 * shape.width * (4 + 2 * each) + (5 * heads + 4 * kept + 4 * shape.inner) * each


def kept_bytes(shape: Shape, tokens: int, said: int, *, each: int, is_recomputed: bool) -> int:
    """What is kept of a micro-batch for its way back; of its tokens `said` were said."""
    layer = shape.width * each if is_recomputed else layer_bytes(shape, each=each)
    return tokens * (shape.layers * layer + shape.width * each) + said * (shape.width * (4 + 2 * each) + 4 * shape.vocabulary)


def activation_bytes(shape: Shape, tokens: int, said: int, *, each: int, is_recomputed: bool) -> int:
    """The same, and what is there at once on the way back: gradients of logits, and of a layer that is computed again."""
    again = tokens * layer_bytes(shape, each=each) if is_recomputed else 0
    kept = kept_bytes(shape, tokens, said, each=each, is_recomputed=is_recomputed)
    return kept + again + said * shape.vocabulary * (8 + each) + 2 * tokens * shape.inner * each


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be estimated: a model and how it learns."""

    shape: Shape
    adapters: int = 0
    """How many adapters learn; 0: all weights do."""
    rank: int = 8
    tokens: int = 65_536
    """Of a micro-batch."""
    teams: int = 128
    """Of an update."""
    slots: int = 768
    """Calls that each engine answers at once."""
    context: int = 4096
    is_recomputed: bool = False
    is_gpu: bool = True

    @property
    def each(self) -> int:
        """Bytes of a number that is computed with."""
        return 2 if self.is_gpu else 4

    @property
    def engines(self) -> int:
        """One for each policy."""
        return max(1, self.adapters)

    @property
    def linear(self) -> int:
        """Numbers of what adapters are added to."""
        return sum(prod(size) for name, size in sizes(self.shape).items() if name.partition(".")[2] in LINEAR)


def memory(plan: Plan, cards: int) -> dict[str, int]:
    """Bytes on the first card, which has the engine beside its shards of what learns."""
    shape, count, is_recomputed = plan.shape, count_weights(plan.shape), plan.is_recomputed
    learned = plan.adapters * count_adapter(shape, plan.rank) if plan.adapters else count
    said = plan.tokens // _SAID
    out = {
        "weights": -(-(_still(plan, cards) + 4 * learned) // cards),
        "gradients": -(-4 * learned // cards),
        "optimiser": -(-8 * learned // cards),
        "whole layers": _whole(plan, cards),
        "activations": activation_bytes(shape, plan.tokens, said, each=plan.each, is_recomputed=is_recomputed),
        "engine": plan.engines * plan.each * count,
        "engine's cache": plan.engines * (plan.slots + 1) * cache_bytes(plan),
    }
    return out | {"total": sum(out.values())}


def _still(plan: Plan, cards: int) -> int:
    """Bytes of what adapters are added to, on all cards: in float32 on one; on several as they compute, for each policy."""
    if not plan.adapters:
        return 0
    return count_weights(plan.shape) * (4 if cards == 1 else plan.each * plan.adapters)


def _whole(plan: Plan, cards: int) -> int:
    """Bytes of weights that lie whole beside the shards: a layer and the next one, the words, and sums with an adapter."""
    layer = plan.linear // plan.shape.layers
    if cards == 1:
        return 4 * plan.linear if plan.adapters else 0
    added = plan.each * (layer if plan.is_recomputed else plan.linear) if plan.adapters else 0
    return added + plan.each * (2 * layer + count_weights(plan.shape) - plan.linear) + (0 if plan.adapters else 4 * layer)


def cache_bytes(plan: Plan) -> int:
    """Keys and values of one slot, as long as it is at first."""
    return min(1024, plan.context) * 2 * plan.shape.layers * plan.shape.kv_heads * plan.shape.head_width * plan.each


def seconds(plan: Plan, cards: int) -> float:
    """What the learning of one update takes, by the measured rate."""
    share = count_weights(plan.shape) / MEASURED["weights"] * plan.teams / MEASURED["teams"]
    return MEASURED["seconds"] * share / cards * (_AGAIN if plan.is_recomputed else 1.0)
