"""Counterpoint: a team's run as one orchestration trace.

```python
import counterpoint as cpt

trace = cpt.load("run.trace.json")      # or an id in the store
cpt.problems(trace)                     # what is wrong with it
trace.graph.critical_path(...)          # what it waited for
```
Importing this costs almost nothing: each name below is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterpoint.app.library import load, save
    from counterpoint.app.logs import read_logs
    from counterpoint.envs.named import world
    from counterpoint.errors import (
        CounterpointError,
        InputError,
        InvalidTrace,
        NotFound,
        NotIdentified,
        Refused,
        TryAgain,
    )
    from counterpoint.formats.format import Format
    from counterpoint.store import Store
    from counterpoint.team.record import record
    from counterpoint.trace import Edge, Event, Findings, Graph, Problem, Trace, content_ref, problems
    from counterpoint.trace.batch import TraceBatch
    from counterpoint.trace.replay import Delete, Force, Insert, Substitute

__version__ = "0.1.0"

# The public names, each with the module that defines it. One table: `__all__` and `__getattr__` both read it.
_HOME = {
    "CounterpointError": "errors",
    "Delete": "trace.replay",
    "Edge": "trace",
    "Event": "trace",
    "Findings": "trace",
    "Force": "trace.replay",
    "Format": "formats.format",
    "Graph": "trace",
    "InputError": "errors",
    "Insert": "trace.replay",
    "InvalidTrace": "errors",
    "NotFound": "errors",
    "NotIdentified": "errors",
    "Problem": "trace",
    "Refused": "errors",
    "Store": "store",
    "Substitute": "trace.replay",
    "Trace": "trace",
    "TraceBatch": "trace.batch",
    "TryAgain": "errors",
    "content_ref": "trace",
    "load": "app.library",
    "problems": "trace",
    "read_logs": "app.logs",
    "record": "team.record",
    "save": "app.library",
    "world": "envs.named",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'counterpoint' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"counterpoint.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
