"""Counterpoint: a team's run as one orchestration trace.

```python
import counterpoint as cpt

trace = cpt.load("run.trace.json")      # or an id in the store
cpt.problems(trace)                     # what is wrong with it
cpt.credit(trace, "ledger")             # who earned it
```
Importing this costs almost nothing: each name below is loaded when it is first used. `credit`, `reward`, `audit` and `train` are
packages as well as functions, in whatever order they are imported: the package is what is called.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from counterpoint.display import drawn_by as _drawn_by

TYPE_CHECKING = False  # type checkers take this name for true; importing `typing` would cost more than all else here
if TYPE_CHECKING:
    from typing import Any

    from counterpoint.app.api.advise import advise
    from counterpoint.app.api.annotate import annotate, dataset, notes
    from counterpoint.app.api.audit import audit
    from counterpoint.app.api.blame import blame
    from counterpoint.app.api.compare import compare
    from counterpoint.app.api.credit import credit, reward, rows
    from counterpoint.app.api.fork import diff, fork
    from counterpoint.app.api.judge import judge
    from counterpoint.app.api.top import top
    from counterpoint.app.api.train import train
    from counterpoint.app.library import load, save
    from counterpoint.app.logs import read_logs
    from counterpoint.envs.world import world
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

# The public names, each with the module that defines it. One table: `__all__`, `__dir__` and `__getattr__` read it.
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
    "compare": "app.api.compare",
    "content_ref": "trace",
    "credit": "app.api.credit",
    "dataset": "app.api.annotate",
    "diff": "app.api.fork",
    "fork": "app.api.fork",
    "judge": "app.api.judge",
    "load": "app.library",
    "notes": "app.api.annotate",
    "problems": "trace",
    "read_logs": "app.logs",
    "record": "team.record",
    "reward": "app.api.credit",
    "rows": "app.api.credit",
    "save": "app.library",
    "top": "app.api.top",
    "train": "app.api.train",
    "world": "envs.world",
}
# Of these, the names that a package of ours has too.
_PACKAGES = frozenset({"audit", "credit", "reward", "train"})

__all__ = [*_HOME]

# A trace shows itself in notebooks and in the viewer; which room draws it is said here, at the top.
_drawn_by(lambda: importlib.import_module("counterpoint.app.viewer.notebook"))


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'counterpoint' has no attribute {name!r}")
    if name in _PACKAGES:
        package = importlib.import_module(f"counterpoint.{name}")
        package.__class__ = _CallablePackage  # it is already, unless another thread imports it at this moment
        return package
    value = _function(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])


def _function(name: str) -> Any:
    return getattr(importlib.import_module(f"counterpoint.{_HOME[name]}"), name)


class _CallablePackage(ModuleType):
    """A package that is also the function of its name: `cpt.credit(trace)` and `counterpoint.credit.mechanism` are one object."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._called(*args, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)

    @property
    def _called(self) -> Any:
        return _function(self.__name__.rpartition(".")[2])

    @property
    def __signature__(self) -> Any:
        import inspect

        return inspect.signature(self._called)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"{self._called.__doc__}\n    The package of this name: {vars(self)['__doc__']}\n"


class _Face(ModuleType):
    """This module: a package that the import system hangs into it becomes callable where a function has its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _PACKAGES and isinstance(value, ModuleType):
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
