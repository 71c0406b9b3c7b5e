"""The ordered passes compiled, where numba is installed and the graph is large enough to repay its start-up.

Always true: a kernel gives the same numbers as the plain loop in `graph.py`; without numba nothing changes but the time.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from numpy.typing import NDArray

# Importing numba and loading its cache costs half a second, and a plain pass over this many edges a tenth of that; where
# somebody has imported it already, much less is enough.
_WORTH_IT = 400_000
_WORTH_IT_LOADED = 1_000


@cache
def _is_installed() -> bool:
    return importlib.util.find_spec("numba") is not None


def pays(edges: int) -> bool:
    """Whether the compiled pass is the quicker way for this many edges."""
    return edges >= (_WORTH_IT_LOADED if "numba" in sys.modules else _WORTH_IT) and _is_installed()


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba

    compiled: Callable[..., Any] = numba.njit(cache=True)(function)
    return compiled


def _longest(src: Any, dst: Any, along: Any, head: Any) -> None:
    for k in range(len(src)):
        then = head[src[k]] + along[k]
        if then > head[dst[k]]:
            head[dst[k]] = then


def _way_back(first: Any, sources: Any, along: Any, head: Any, path: Any) -> int:
    """Fill `path` from its first entry backwards along the edges that bind; return how long it is."""
    n = 1
    while True:
        here = path[n - 1]
        has_way = False
        for k in range(first[here], first[here + 1]):
            if head[sources[k]] + along[k] == head[here]:
                path[n] = sources[k]
                n += 1
                has_way = True
                break
        if not has_way:
            return n


def _forward(src: Any, dst: Any, marked: Any) -> None:
    for k in range(len(src)):
        if marked[src[k]]:
            marked[dst[k]] = 1


def _backward(src: Any, dst: Any, marked: Any) -> None:
    for k in range(len(src) - 1, -1, -1):
        if marked[dst[k]]:
            marked[src[k]] = 1


def longest(src: NDArray[Any], dst: NDArray[Any], along: NDArray[Any], head: NDArray[Any]) -> None:
    """Raise `head`, which begins as zeros, to the weight of the heaviest way to each event; see `Graph`."""
    _compiled(_longest)(src, dst, along, head)


def way_back(first: NDArray[Any], sources: NDArray[Any], along: NDArray[Any], head: NDArray[Any], path: NDArray[Any]) -> int:
    """The critical path from its end, `path[0]`, to its beginning; returns its length."""
    return int(_compiled(_way_back)(first, sources, along, head, path))


def spread(src: NDArray[Any], dst: NDArray[Any], marked: NDArray[Any], forward: bool) -> None:
    """Spread marks along the edges, or against them."""
    _compiled(_forward if forward else _backward)(src, dst, marked)
