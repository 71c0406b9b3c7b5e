"""The team that a person names: a function in a file of theirs, `FILE:FUNCTION`, or in a module, `package.module:team`.

Always true: the file is run anew each time it is loaded, under a name of its own, so that what one run left in its globals is not
there in the next; what the file itself raises is said to be its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

from counterpoint.errors import CounterpointError, InputError, NotFound, did_you_mean
from counterpoint.recorder.answers import loaded_class

_FIX = "my.py:team, a function that runs the team once"


class TeamFile:
    """A file or module, and a function in it."""

    def __init__(self, name: str) -> None:
        """Only the form of the name is looked at, and whether the file exists."""
        self.name = name
        self.place, _, self.attribute = name.rpartition(":")
        if not self.place or not self.attribute.isidentifier():
            raise InputError(f"{name!r} names no function", where="--team", fix=_FIX)
        self.path = Path(self.place).expanduser() if self.place.endswith(".py") else None
        if self.path is not None and not self.path.is_file():
            raise NotFound(f"no file {self.place}", where="--team", fix=_FIX)
        self._module: Any = None

    def load(self, *, is_function: bool = True) -> Any:
        """The function, or another object, with its file run anew."""
        try:
            self._module = importlib.import_module(self.place) if self.path is None else self._run(self.path)
        except CounterpointError:
            raise
        except ImportError as error:
            fix = "run it where its packages are installed"
            raise NotFound(f"cannot be imported: {error}", where=self.name, fix=fix) from error
        except Exception as error:
            what = f"fails when it is loaded: {type(error).__name__}: {error}"
            raise InputError(what, where=self.name, fix="guard what runs the team with `if __name__ == '__main__':`") from error
        if not hasattr(self._module, self.attribute):
            known = [name for name in dir(self._module) if not name.startswith("_")]
            raise NotFound(f"has no {self.attribute!r}", where=self.place, fix=did_you_mean(self.attribute, known))
        found = getattr(self._module, self.attribute)
        if is_function and (not callable(found) or inspect.isclass(found)):
            raise InputError(f"is a {type(found).__name__}, not a function", where=self.name, fix=_FIX)
        return found

    def find(self, name: str) -> Any:
        """The class of a name among what is loaded; the file that was run as a program is the team's file."""
        module, _, path = name.partition(":")
        if self.path is not None and module in ("__main__", self.path.stem):
            return loaded_class(f"{self._module.__name__}:{path}")
        return loaded_class(name)

    def _run(self, path: Path) -> Any:
        folder, name = str(path.resolve().parent), f"_counterpoint_team_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise InputError("is no Python file", where=self.place, fix=_FIX)
        module = importlib.util.module_from_spec(spec)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
