"""What each agent spent, in one pass: events, tokens, seconds, money.

Always true: the sums are over an agent's own events and are exact for integers; an amount that no event carries is zero
here, so ask `audit.rollups` where measured and missing must be told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.trace.records import Event


class AgentTotals(NamedTuple):
    """Per agent, in order of first appearance in the file."""

    names: list[str]
    events: NDArray[np.int64]
    tokens_in: NDArray[np.int64]
    tokens_out: NDArray[np.int64]
    dur: NDArray[np.float64]
    cost_usd: NDArray[np.float64]


def agent_totals(events: Sequence[Event]) -> AgentTotals:
    """The totals of every agent that acts."""
    codes: dict[str, int] = {}
    # `len` is taken before a new name goes in, so that codes count up from zero.
    code_E = np.array([codes.setdefault(e.agent, len(codes)) for e in events], np.intp)
    n = len(codes)

    def whole(values: list[int]) -> NDArray[np.int64]:
        try:
            weight = np.array(values, np.int64)
        except OverflowError:  # a count beyond 64 bits: slow, but exact
            weight = np.array(values, object)
        out: NDArray[Any] = np.zeros(n, weight.dtype)
        np.add.at(out, code_E, weight)
        return out

    def real(values: list[int | float]) -> NDArray[np.float64]:
        sums: NDArray[np.float64] = np.bincount(code_E, weights=np.array(values, np.float64), minlength=n).astype(np.float64)
        return sums

    return AgentTotals(
        names=list(codes),
        events=np.bincount(code_E, minlength=n).astype(np.int64),
        tokens_in=whole([e.tokens_in or 0 for e in events]),
        tokens_out=whole([e.tokens_out or 0 for e in events]),
        dur=real([e.dur or 0 for e in events]),
        cost_usd=real([e.cost_usd or 0 for e in events]),
    )
