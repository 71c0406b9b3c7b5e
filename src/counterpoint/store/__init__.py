"""Traces at rest: journal (append, crash-safe) and lake (columnar, queryable), in one folder.

Always true: each name below is loaded when it is first used, so that who needs a path or a lock of the store loads no lake.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from counterpoint.store.hot import DecisionRef, Hot
    from counterpoint.store.query import Result
    from counterpoint.store.run import Run
    from counterpoint.store.store import Store
    from counterpoint.store.summary import Summary

__all__ = ["DecisionRef", "Hot", "Result", "Run", "Store", "Summary"]

_HOME = {"DecisionRef": "hot", "Hot": "hot", "Result": "query", "Run": "run", "Store": "store", "Summary": "summary"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'counterpoint.store' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"counterpoint.store.{_HOME[name]}"), name)
    globals()[name] = value
    return value
