"""The ordered passes compiled, where numba is installed and the graph is large enough to repay its start-up.

Always true: a kernel gives the same numbers as the plain loop in `graph.py`; without numba nothing changes but the time.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

from numpy.typing import NDArray

__all__ = ["longest", "pays", "spread"]

# Importing numba and loading its cache costs half a second; a plain pass over this many edges costs about a tenth of that.
_WORTH_IT = 400_000


@cache
def _is_installed() -> bool:
    return importlib.util.find_spec("numba") is not None


def pays(edges: int) -> bool:
    """Whether the compiled pass is the quicker way for this many edges."""
    return edges >= _WORTH_IT and _is_installed()


@cache
def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    import numba

    compiled: Callable[..., None] = numba.njit(cache=True)(function)
    return compiled


def _longest(src: Any, dst: Any, weight: Any, start: Any) -> None:
    for k in range(len(src)):
        ready = start[src[k]] + weight[src[k]]
        if ready > start[dst[k]]:
            start[dst[k]] = ready


def _forward(src: Any, dst: Any, marked: Any) -> None:
    for k in range(len(src)):
        if marked[src[k]]:
            marked[dst[k]] = 1


def _backward(src: Any, dst: Any, marked: Any) -> None:
    for k in range(len(src) - 1, -1, -1):
        if marked[dst[k]]:
            marked[src[k]] = 1


def longest(src: NDArray[Any], dst: NDArray[Any], weight: NDArray[Any], start: NDArray[Any]) -> None:
    """Fill `start` with the earliest start of each event; see `Graph.starts`."""
    _compiled(_longest)(src, dst, weight, start)


def spread(src: NDArray[Any], dst: NDArray[Any], marked: NDArray[Any], forward: bool) -> None:
    """Spread marks along the edges, or against them."""
    _compiled(_forward if forward else _backward)(src, dst, marked)
