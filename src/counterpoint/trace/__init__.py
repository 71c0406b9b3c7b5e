"""The trace: records, graph and checks. Pure: no files, no clock, no network.

Always true: the graph and the checks, which need numpy, are loaded when they are first used: who lists or names traces needs
neither.
"""

from __future__ import annotations

import importlib

from counterpoint.trace.problem import Findings, Problem
from counterpoint.trace.records import Edge, Event
from counterpoint.trace.trace import Trace, content_ref, summed_costs
from counterpoint.trace.wire import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from counterpoint.trace.check import findings, problems
    from counterpoint.trace.graph import Graph

__all__ = [
    "Edge",
    "Event",
    "Findings",
    "Graph",
    "Problem",
    "Trace",
    "content_ref",
    "decode",
    "encode",
    "findings",
    "problems",
    "summed_costs",
]

_HOME = {"Graph": "graph", "findings": "check", "problems": "check"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'counterpoint.trace' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"counterpoint.trace.{_HOME[name]}"), name)
    globals()[name] = value
    return value
