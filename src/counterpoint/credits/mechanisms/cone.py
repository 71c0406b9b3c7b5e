"""Causal-cone advantages: what came of an event, summed over its recorded descendants only.

Always true: an event that nothing depends on has its own surprise as its advantage; what lies outside an event's cone does not
touch it. With delta the surprises of the Doob ledger (V_t - V_{t-1}):

    A_t = sum over s in cone(t) of lambda^d(t,s) * delta_s        (or Q_t - V_{t-1}, where q is given)

cone(t) is t and all that depends on it, d(t,s) the difference of their depths in the graph (the longest way from a root).
At lambda = 1 its mean is the full return's, R - V_{t-1} (`over="all"`), if what is outside the cone is independent of the action
given the prefix, that is, if information edges are complete; one edge that was not recorded biases it. Its spread stays that of
the cone, where the full return's grows with the team.
Nearest in print: GAE, arXiv:1506.02438, which is this on a chain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.mechanisms.ledger import Critic, parts_of
from counterpoint.credits.shared_options import VALUE, Q
from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.graph import Graph
from counterpoint.trace.rows import Credit, CreditRow

Floats = NDArray[np.float64]


def cone_sums(graph: Graph, delta_E: ArrayLike, events: Iterable[int] | None = None, discount: float = 1.0) -> Floats:
    """(..., events asked for) the discounted sum of delta (..., E) over each event's descendants, itself included."""
    if not 0 <= discount <= 1:
        raise InputError(f"lambda is between 0 and 1, not {discount}")
    delta = np.asarray(delta_E, np.float64)
    if delta.shape[-1:] != (graph.n,):
        raise InputError(f"delta has shape {delta.shape}, not (..., {graph.n})", fix="one number per event")
    wanted = list(range(graph.n) if events is None else events)
    level = graph.levels()
    out = np.empty((*delta.shape[:-1], len(wanted)))
    for column, (t, cone_E) in enumerate(_cones(graph, wanted)):
        weight = discount ** (level[cone_E] - level[t])
        out[..., column] = delta[..., cone_E] @ weight
    return out


def _cones(graph: Graph, wanted: list[int]) -> Iterable[tuple[int, NDArray[np.int64]]]:
    """Each event with the numbers of its descendants: one by one for a few, else by bit sets in one pass over the edges."""
    if len(wanted) <= 32:
        yield from ((t, np.flatnonzero(graph.descendants(t))) for t in wanted)
        return
    below = [1 << i for i in range(graph.n)]
    for s, d in zip(graph.src[::-1].tolist(), graph.dst[::-1].tolist(), strict=True):
        below[s] |= below[d]
    size = (graph.n + 7) // 8
    for t in wanted:
        bits = np.unpackbits(np.frombuffer(below[t].to_bytes(size, "little"), np.uint8), bitorder="little")
        yield t, np.flatnonzero(bits)


def return_sums(graph: Graph, delta_E: ArrayLike) -> Floats:
    """(..., E) the sum of delta over each event and all that stand after it in order: the full return less V_{t-1}."""
    delta = np.asarray(delta_E, np.float64)[..., graph.order]
    out = np.empty_like(delta)
    out[..., graph.order] = np.cumsum(delta[..., ::-1], axis=-1)[..., ::-1]
    return out


def _cone_credit(
    traces: list[Trace],
    *,
    value: Annotated[Critic, VALUE] = None,
    q: Annotated[Critic, Q] = None,
    discount: float = 1.0,
    over: str = "cone",
    channel: Channel = "team",
) -> Credit:
    if over not in ("cone", "all"):
        raise InputError(f"unknown over={over!r}", fix="cone: what depends on the event; all: the full return")
    rows: list[CreditRow] = []
    shares = []
    for k, trace in enumerate(traces):
        parts = parts_of(trace, k, value=value, q=q, channel=channel)
        delta = parts.skill_E + parts.luck_E
        if over == "cone":
            amounts = cone_sums(trace.graph, delta, discount=discount)
        else:
            amounts = return_sums(trace.graph, delta)
        amounts = np.where(parts.split_E, parts.skill_E, amounts)
        rows += [CreditRow(k, "message", e.id, a) for e, a in zip(trace.events, amounts.tolist(), strict=True)]
        shares.append({"by_q": int(parts.split_E.sum()), "prior": parts.prior})
    return Credit(
        mechanism="cone",
        estimand=f"what came of each event beyond expectation, over {'its cone' if over == 'cone' else 'all later events'}",
        additive=False,
        trace_ids=tuple(t.trace_id for t in traces),
        rows=tuple(rows),
        notes={
            "over": over,
            "discount": discount,
            "critic": "drafts" if value is None else "given",
            "traces": shares,
        },
    )


cone = Mechanism(
    unit="message",
    estimand="advantage of each event: discounted surprise over its recorded causal descendants",
    assumptions="information edges are complete: outside the cone nothing depends on the event, given the prefix",
    cost="a critic; nothing with draft scores",
    additive=False,
    source="ours; GAE, arXiv:1506.02438, is its chain case at the same lambda",
    run=_cone_credit,
    needs=("critic, unless drafts are scored",),
    example=lambda: Example(rollouts()),
)
