"""Plug-ins by file name: adding one thing is adding one file.

Always true: the id of a plug-in is its file's name, and the file defines one object of that name (a trailing underscore, as in
`import_.py`, belongs to Python and not to the id). A package counts as a file: its `__init__.py`. A file that defines nothing
of its own name is not a plug-in, and one that begins with an underscore is private to its folder. Code outside the package is
named `"my_lab.rewards:novelty"`. Nothing is imported until it is asked for, and what a file names is not asked for by anybody:
`check_consent` stands before every name that came out of a file.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

from counterpoint.errors import InputError, NotFound, Refused, did_you_mean

# Every command asks here what there is, so nothing is imported that click does not import already.
_ROOT = os.path.dirname(__file__)
_KEYWORDS = ("", "def ", "class ", "async def ")

# kind -> the package whose files are its plug-ins
_ROOMS = {
    "format": "formats",
    "reward": "reward/rewards",
    "credit": "credit/mechanisms",
    "env": "envs/worlds",
    "task": "envs/text",
    "model": "team/models",
    "tool": "team/tools",
    "topology": "team/topologies",
    "preset": "train/presets",
    "loss": "train/losses",
    "claim": "bench/claims",
    "trainer": "trainers",
    "command": "app/cli",
    "panel": "app/viewer/panels",
}


def kinds() -> list[str]:
    """The kinds of plug-in there are."""
    return sorted(_ROOMS)


def folder(kind: str) -> str:
    """Where the plug-ins of a kind lie, from the package's folder: `credit/mechanisms`."""
    if kind not in _ROOMS:
        raise NotFound(f"no kind of plug-in named {kind!r}", fix=did_you_mean(kind, _ROOMS))
    return _ROOMS[kind]


def ids(kind: str) -> list[str]:
    """The ids of all shipped plug-ins of a kind, sorted."""
    return list(_ids(kind))


@cache
def _ids(kind: str) -> tuple[str, ...]:
    return tuple(sorted(name.rstrip("_") for name in _files(kind)))


@cache
def _files(kind: str) -> dict[str, str]:
    """The plug-ins of a kind by the name of their module: found by reading, nothing is imported."""
    found: dict[str, str] = {}
    with os.scandir(os.path.join(_ROOT, *folder(kind).split("/"))) as entries:
        for entry in entries:
            name, is_file = entry.name.removesuffix(".py"), entry.name.endswith(".py")
            path = entry.path if is_file else os.path.join(entry.path, "__init__.py")
            if not name.startswith("_") and (is_file or os.path.isfile(path)) and _defines(path, name):
                found[name] = path
    return found


def _defines(path: str, name: str) -> bool:
    """Whether a line begins with the name, or with `def` or `class` and the name, and then comes (, : or =."""
    with open(path, encoding="utf-8") as file:
        text = f"\n{file.read()}"
    for keyword in _KEYWORDS:  # as plain text: every command asks, and a pattern takes three times as long
        begin = f"\n{keyword}{name}"
        at = text.find(begin)
        while at >= 0:
            if text[at + len(begin) : at + len(begin) + 80].lstrip()[:1] in ("(", ":", "="):
                return True
            at = text.find(begin, at + 1)
    return False


def _module(kind: str, name: str) -> str:
    files = _files(kind)
    for module in (name, f"{name}_"):
        if module in files:
            return module
    raise NotFound(f"no {kind} named {name!r}", fix=did_you_mean(name, ids(kind)))


def check_consent(named: Iterable[str], allow: Collection[str], *, where: str) -> None:
    """Raise `Refused` where a file names code from outside the package that nobody has allowed.

    The one rule: what a person types on the command line or writes as an argument in Python is consent; what a trace, a
    journal, a run.toml or any other file says is not. Such a name needs to be in `allow`, letter by letter. Call it with every
    name that came out of a file, before the name is looked up.
    """
    for name in named:
        if ":" in name and name not in allow:
            what = f"names third-party code: {name}"
            why = "it would be imported and run, and a file cannot give permission"
            raise Refused(what, where=where, why=why, fix=f"if you trust it:{allowing([name])}")


def allowing(named: Iterable[str]) -> str:
    """The options that a command needs where a file names these: ` --allow my_lab:thing`, or nothing."""
    import shlex

    return "".join(f" --allow {shlex.quote(name)}" for name in dict.fromkeys(named) if ":" in name)


def get(kind: str, name: str) -> Any:
    """The plug-in object: a shipped one by id, or anybody's by `"package.module:object"`, which is imported.

    A name that came out of a file goes through `check_consent` first.
    """
    if ":" in name:
        return _outside(kind, name)
    own = _module(kind, name)
    module = importlib.import_module(".".join(["counterpoint", *_ROOMS[kind].split("/"), own]))
    return getattr(module, own)


def _outside(kind: str, name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise NotFound(f"no {kind} {name!r}: {module_name!r} is not a module", fix='"package.module:object"')
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise NotFound(f"no {kind} {name!r}: {error}", fix="install the package or put it on PYTHONPATH") from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        known = [found for found in dir(module) if not found.startswith("_")]
        raise InputError(f"module {module_name!r} has no {attribute!r}", fix=did_you_mean(attribute, known)) from error


def summary(kind: str, name: str) -> str:
    """The first line of the plug-in file's docstring, read as text: nothing is imported."""
    with open(_files(kind)[_module(kind, name)], encoding="utf-8") as file:
        return file.readline().strip().strip('"').strip()
