"""Counterpoint: a team's run as one orchestration trace.

```python
import counterpoint as cpt

trace = cpt.load("run.trace.json")      # or an id in the store
cpt.problems(trace)                     # what is wrong with it
cpt.credit(trace, "ledger")             # who earned it
```
Importing this costs almost nothing: each name below is loaded when it is first used. Names that an installed package adds by the
entry points `counterpoint.names` stand beside them; the laboratory adds `compare`, `judge`, `train` and `world`.

A type checker sees the names of the core with their types. Names that are added it takes for `Any` (by `__getattr__`), since the
core imports nothing of who adds them; imported from where they are defined they are typed too, as in
`from counterpoint.lab.app.api.train import train`.
"""

from __future__ import annotations

import importlib

from counterpoint.display import drawn_by as _drawn_by

TYPE_CHECKING = False  # type checkers take this name for true; importing `typing` would cost more than all else here
if TYPE_CHECKING:
    from typing import Any

    from counterpoint.app.api.advise import advise
    from counterpoint.app.api.annotate import annotate, dataset, notes
    from counterpoint.app.api.audit import audit
    from counterpoint.app.api.blame import blame
    from counterpoint.app.api.credit import credit, reward, rows
    from counterpoint.app.api.fork import diff, fork
    from counterpoint.app.api.gate import gate
    from counterpoint.app.api.issues import issues
    from counterpoint.app.api.top import top
    from counterpoint.app.discover import read_logs
    from counterpoint.app.load_save import load, save
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
    from counterpoint.recorder.recording import record
    from counterpoint.store import Store
    from counterpoint.trace import Edge, Event, Findings, Graph, Problem, Trace, content_ref, problems
    from counterpoint.trace.batch import TraceBatch
    from counterpoint.trace.replay import Delete, Force, Insert, Substitute

__version__ = "0.1.0"

# The core's public names, each with the module that defines it. One table: `__all__`, `__dir__` and `__getattr__` read it.
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
    "advise": "app.api.advise",
    "annotate": "app.api.annotate",
    "audit": "app.api.audit",
    "blame": "app.api.blame",
    "content_ref": "trace",
    "credit": "app.api.credit",
    "dataset": "app.api.annotate",
    "diff": "app.api.fork",
    "fork": "app.api.fork",
    "gate": "app.api.gate",
    "issues": "app.api.issues",
    "load": "app.load_save",
    "notes": "app.api.annotate",
    "problems": "trace",
    "read_logs": "app.discover",
    "record": "recorder.recording",
    "reward": "app.api.credit",
    "rows": "app.api.credit",
    "save": "app.load_save",
    "top": "app.api.top",
}

# A trace shows itself in notebooks and in the viewer; which room draws it is said here, at the top.
_drawn_by(lambda: importlib.import_module("counterpoint.app.viewer.notebook"))


def __getattr__(name: str) -> Any:
    if name == "__all__":  # asked for by `from counterpoint import *`: entry points are not read before
        return sorted([*_HOME, *_added()])
    if name in _HOME:
        module, attribute = f"counterpoint.{_HOME[name]}", name
    else:
        module, _, attribute = _added().get(name, "").partition(":")
    if not module or name.startswith("_"):
        raise AttributeError(f"module 'counterpoint' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, *_added(), "__version__"])


def _added() -> dict[str, str]:
    from counterpoint.registry import names

    return names()
