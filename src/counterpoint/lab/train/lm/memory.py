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


def count_weights(shape: Shape) -> int:
    """How many numbers the network has."""
    return sum(prod(size) for size in sizes(shape).values())


def count_adapter(shape: Shape, rank: int) -> int:
    """How many numbers an adapter of this rank has: A and B of every linear map of a layer."""
    return sum(rank * sum(size) for name, size in sizes(shape).items() if name.partition(".")[2] in LINEAR)


def activation_bytes(shape: Shape, tokens: int, said: int, *, each: int, is_recomputed: bool) -> int:
    """What is kept of a micro-batch for its way back, `each` bytes a number; of its tokens `said` were said."""
    heads, kept = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    norm = shape.width * (8 + 2 * each)  # in float32, and what is given on
    look = (2 * heads + 2 * kept) * each + (heads + kept) * (8 if each < 4 else 4)
    layer = 2 * norm + look + (heads + shape.width + 4 * shape.inner) * each
    whole = (1 if is_recomputed else shape.layers) * layer + (shape.layers * shape.width * each if is_recomputed else 0)
    ends = said * (2 * norm + shape.vocabulary * 12)  # logits, their gradient, and that of what was picked
    return int(tokens * (whole + 3 * shape.width * each) + ends)


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
    """Calls that the engine answers at once."""
    context: int = 4096
    is_recomputed: bool = False
    is_gpu: bool = True

    @property
    def each(self) -> int:
        """Bytes of a number that is computed with."""
        return 2 if self.is_gpu else 4


def memory(plan: Plan, cards: int) -> dict[str, int]:
    """Bytes on the first card, which has the engine: of what learns the shards of one card, of the engine all."""
    shape, count = plan.shape, count_weights(plan.shape)
    own = plan.adapters * count_adapter(shape, plan.rank) if plan.adapters else count
    still = (count * (4 if cards == 1 else plan.each)) if plan.adapters else 0
    linear = sum(prod(size) for name, size in sizes(shape).items() if name.partition(".")[2] in LINEAR)
    layer, words = linear // shape.layers, count - linear
    whole = 0 if cards == 1 else plan.each * (2 * layer + words)  # a layer and the next one, and the words
    if plan.adapters:  # of each weight its sum with the adapter's, while it is needed
        whole += linear * 4 if cards == 1 else (plan.each * layer if plan.is_recomputed else plan.each * linear)
    out = {
        "weights": _part(still + 4 * own, cards),
        "gradients": _part(4 * own, cards),
        "optimiser": _part(8 * own, cards),
        "whole layers": whole + (4 * layer if cards > 1 and not plan.adapters else 0),
        "activations": activation_bytes(shape, plan.tokens, plan.tokens // 3, each=plan.each, is_recomputed=plan.is_recomputed),
        "engine": max(1, plan.adapters) * plan.each * count,
        "engine's cache": cache_bytes(plan),
    }
    return out | {"total": sum(out.values())}


def _part(size: int, cards: int) -> int:
    return -(-size // cards)


def cache_bytes(plan: Plan) -> int:
    """Keys and values of all slots, as long as they are at first."""
    per_token = 2 * plan.shape.layers * plan.shape.kv_heads * plan.shape.head_width * plan.each
    return (plan.slots + 1) * min(1024, plan.context) * per_token


def seconds(plan: Plan, cards: int) -> float:
    """What the learning of one update takes, by the measured rate."""
    share = count_weights(plan.shape) / MEASURED["weights"] * plan.teams / MEASURED["teams"]
    return MEASURED["seconds"] * share / cards * (_AGAIN if plan.is_recomputed else 1.0)
