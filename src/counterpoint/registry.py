"""Plug-ins by file name: adding one thing is adding one file.

Always true: the id of a plug-in is its file's name, and the file defines one object of that name (a trailing underscore, as in
`import_.py`, belongs to Python and not to the id). A package counts as a file: its `__init__.py`. A file that defines nothing
of its own name is not a plug-in, nor is the file that is named like its kind; one that begins with an underscore is private to
its folder. Code outside the package is named `"my_lab.rewards:novelty"`, or `"path/to/file.py:novelty"`. Nothing is
imported until it is asked for, and what a file names is not asked for by anybody: `check_consent` stands before every name that
came out of a file.

An installed package hangs more into Counterpoint by entry points, read as text; the laboratory (`counterpoint.lab`) does so too:
`counterpoint.plugins` (a kind, and the package whose files are plug-ins of it), `counterpoint.hooks` (a question that the core
asks, and the function that answers), `counterpoint.commands` (a command, and its object) and `counterpoint.names` (a name of
`import counterpoint`, and what it stands for).

A folder in a kind's packages is a kind of its own, `"command/notes"`: the files of the folder `notes` of every such package.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

from counterpoint.errors import CounterpointError, InputError, NotFound, Refused, did_you_mean, install

# Every command asks here what there is, so nothing is imported that click does not import already.
_ROOT = os.path.dirname(__file__)
_KEYWORDS = ("", "def ", "class ", "async def ")

# kind -> the folder whose files are the core's plug-ins of it
_OWN = {
    "command": "app/cli",
    "format": "formats",
    "mechanism": "credits/mechanisms",
    "panel": "app/viewer/panels",
    "reward": "rewards/terms",
}
_GROUP = "[counterpoint."
_FILES: dict[str, tuple[tuple[str, int, int], Any]] = {}
"""Modules of files named by their path: name to (path, time, size) and the module."""


@cache
def _entries() -> dict[str, list[tuple[str, str]]]:
    """What installed packages hang into Counterpoint: group to (name, value), from their `entry_points.txt`.

    `importlib.metadata` reads the same, and takes longer to import than all else that a command needs.
    """
    out: dict[str, list[tuple[str, str]]] = {}
    packages: set[str] = set()
    for folder_ in dict.fromkeys(sys.path):
        try:
            names = sorted(name for name in os.listdir(folder_ or ".") if name.endswith(".dist-info"))
        except OSError:  # not a folder, or not there
            continue
        for name in names:
            package = name.partition("-")[0]
            if package in packages:  # the first on the path is the one that is imported
                continue
            packages.add(package)
            for group, entry, value in _read_entries(os.path.join(folder_ or ".", name, "entry_points.txt")):
                out.setdefault(group, []).append((entry, value))
    return out


def _read_entries(path: str) -> list[tuple[str, str, str]]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return []
    group, out = "", []
    for line in text.splitlines() if _GROUP in text else ():
        line = line.strip()
        if line.startswith("["):
            group = line.strip("[]").removeprefix("counterpoint.") if line.startswith(_GROUP) else ""
        elif group and "=" in line:
            name, _, value = line.partition("=")
            out.append((group, name.strip(), value.strip()))
    return out


@cache
def _rooms() -> dict[str, tuple[str, ...]]:
    """Kind to the packages whose files are plug-ins of it: the core's first, then those of installed packages."""
    out: dict[str, tuple[str, ...]] = {kind: ("counterpoint." + path.replace("/", "."),) for kind, path in _OWN.items()}
    for kind, package in _entries().get("plugins", ()):
        out[kind] = (*out.get(kind, ()), package)
    return out


def _folders(kind: str) -> list[tuple[str, str]]:
    """The packages of a kind with their folders, of those that have one."""
    outer, *inside = kind.split("/")
    paths = [(package, _path_of(outer_package)) for package, outer_package in zip(packages(kind), packages(outer), strict=True)]
    places = [(package, os.path.join(path, *inside)) for package, path in paths if path is not None]
    return [(package, path) for package, path in places if os.path.isdir(path)]


def _path_of(package: str) -> str | None:
    """The folder of a package, located without importing it or what it lies in."""
    first, *rest = package.split(".")
    if first == "counterpoint":
        return os.path.join(_ROOT, *rest)
    from importlib.util import find_spec

    try:
        spec = find_spec(first)
    except (ImportError, ValueError):
        return None
    places = (os.path.join(root, *rest) for root in (spec.submodule_search_locations or () if spec else ()))
    return next(filter(os.path.isdir, places), None)


def kinds() -> list[str]:
    """The kinds of plug-in there are."""
    return sorted(_rooms())


def packages(kind: str) -> tuple[str, ...]:
    """The packages whose files are the plug-ins of a kind: the core's, then those of installed packages."""
    outer, *inside = kind.split("/")
    if outer not in _rooms():
        raise NotFound(f"no kind of plug-in named {kind!r}", fix=did_you_mean(kind, _rooms()))
    return tuple(".".join((package, *inside)) for package in _rooms()[outer])


def hooks(question: str) -> list[Any]:
    """The functions of installed packages that answer a question of the core, imported now."""
    return [_loaded(value) for name, value in _entries().get("hooks", ()) if name == question]


def answer(question: str, *args: Any, **options: Any) -> Any:
    """What the first installed package that knows an answer says to a question of the core; None where none does."""
    answers = (hook(*args, **options) for hook in hooks(question))
    return next((one for one in answers if one is not None), None)


def hook(question: str, what: str) -> Any:
    """The function of the first installed package that answers a question; `NotFound` says what lacks where none does."""
    for function in hooks(question):
        return function
    raise NotFound(f"{what}: no installed package does this", fix=install())


def commands() -> dict[str, str]:
    """Single commands of installed packages: the name, and "package.module:object" (entry points `counterpoint.commands`)."""
    return dict(_entries().get("commands", ()))


def names() -> dict[str, str]:
    """What installed packages add to `import counterpoint`: the name, and "package.module:object"."""
    return dict(_entries().get("names", ()))


def _loaded(value: str) -> Any:
    module, _, attribute = value.partition(":")
    return getattr(importlib.import_module(module), attribute)


def ids(kind: str) -> list[str]:
    """The ids of all shipped plug-ins of a kind, sorted."""
    return list(_ids(kind))


@cache
def _ids(kind: str) -> tuple[str, ...]:
    return tuple(sorted(name.rstrip("_") for name in _files(kind)))


@cache
def _files(kind: str) -> dict[str, tuple[str, str]]:
    """The plug-ins of a kind by the name of their module: package and path, found by reading; nothing is imported."""
    out: dict[str, tuple[str, str]] = {}
    for package, folder_ in _folders(kind):
        with os.scandir(folder_) as entries:
            for entry in entries:
                name, is_file = entry.name.removesuffix(".py"), entry.name.endswith(".py")
                path = entry.path if is_file else os.path.join(entry.path, "__init__.py")
                if name.startswith("_") or name == kind or name in out or not (is_file or os.path.isfile(path)):
                    continue
                if _defines(path, name):
                    out[name] = package, path
    return out


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
    """The plug-in object: a shipped one by id, or anybody's by `"package.module:object"` or `"path/to/file.py:object"`.

    What is anybody's is imported; a file as the module of its name, so that other processes find it, and its neighbours with it.

    A name that came out of a file goes through `check_consent` first.
    """
    if ":" in name:
        return _outside(kind, name)
    own = _module(kind, name)
    return _loaded(f"{_files(kind)[own][0]}.{own}:{own}")


def named(kind: str, name: str, type_: Any, fix: str) -> Any:
    """The plug-in by id, by its `short` name, or anybody's; one that is not what its kind is, is an error with this `fix`."""

    def checked(id_: str) -> Any:
        found = get(kind, id_)
        if not isinstance(found, type_):
            raise InputError(f"is a {type(found).__name__}, not a {kind}", where=id_, fix=fix)
        return found

    wanted, known = name.lower().replace("-", "_"), ids(kind)
    if ":" in name or wanted in known:
        return checked(name if ":" in name else wanted)
    shorts = {checked(id_).short: id_ for id_ in known}
    for short, id_ in shorts.items():
        if short.lower() == name.lower():
            return checked(id_)
    raise NotFound(f"no {kind} named {name!r}", fix=did_you_mean(name, {*known, *shorts}))


def _outside(kind: str, name: str) -> Any:
    place, _, attribute = name.rpartition(":")
    module = _file_module(kind, place) if place.endswith(".py") else _named_module(kind, name, place)
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        known = [member for member in dir(module) if not member.startswith("_")]
        raise InputError(f"module {place!r} has no {attribute!r}", fix=did_you_mean(attribute, known)) from error


def _named_module(kind: str, name: str, place: str) -> Any:
    if not all(part.isidentifier() for part in place.split(".")):
        fix = '"package.module:object", or "path/to/file.py:object"'
        raise NotFound(f"no {kind} {name!r}: {place!r} is not a module", fix=fix)
    try:
        return importlib.import_module(place)
    except ImportError as error:
        fix = "install the package or put it on PYTHONPATH"
        if os.path.isfile(beside := place.replace(".", "/") + ".py"):
            fix = f"name the file: {beside}:{name.rpartition(':')[2]}"
        raise NotFound(f"no {kind} {name!r}: {error}", fix=fix) from error


def _file_module(kind: str, place: str) -> Any:
    """The module of a file; one that is loaded already as long as the file is the same, so that its classes are."""
    path = os.path.realpath(place)
    try:
        state = os.stat(path)
    except OSError as error:
        raise NotFound("no such file", where=place, fix=f"path/to/file.py:{kind}") from error
    name, top = _module_name(path)
    token = (path, state.st_mtime_ns, state.st_size)
    held, present = _FILES.get(name), sys.modules.get(name)
    if held is not None and held == (token, present):
        return present
    origin = getattr(present, "__file__", None)
    if present is not None and held is None and (origin is None or os.path.realpath(origin) != path):
        raise InputError(f"a module named {name!r} is loaded already", where=place, fix="give the file another name")
    sys.path += [folder for folder in dict.fromkeys((top, os.path.dirname(path))) if folder not in sys.path]
    try:
        module = _executed(name, path)
    except CounterpointError:
        raise
    except Exception as error:
        raise _unloadable(place, path, error) from error
    _FILES[name] = token, module
    return module


def _module_name(path: str) -> tuple[str, str]:
    """What a file is called as a module, with the packages around it, and the folder that these lie in."""
    names, top = [os.path.basename(path).removesuffix(".py")], os.path.dirname(path)
    while os.path.isfile(os.path.join(top, "__init__.py")):
        names, top = [os.path.basename(top), *names], os.path.dirname(top)
    return ".".join(names), top


def _executed(name: str, path: str) -> Any:
    from importlib.util import module_from_spec, spec_from_file_location

    if package := name.rpartition(".")[0]:
        importlib.import_module(package)
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name)
        _FILES.pop(name, None)
        raise
    return module


def _unloadable(place: str, path: str, error: Exception) -> CounterpointError:
    """The error of a file that could not be loaded, with the line of it that failed."""
    if isinstance(error, ImportError):
        return NotFound(f"it cannot be loaded: {error}", where=place, fix="install what it imports")
    from traceback import extract_tb

    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if os.path.realpath(frame.filename) == path]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    what = f"it cannot be loaded: {type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    return InputError(what, where=place if line is None else f"{place}:{line}", fix="mend the file")


def summary(kind: str, name: str) -> str:
    """The first line of the plug-in file's docstring, read as text: nothing is imported."""
    with open(_files(kind)[_module(kind, name)][1], encoding="utf-8") as file:
        return file.readline().strip().strip('"').strip()


def constant(kind: str, name: str, constant_name: str) -> str | None:
    """The text that a line of the plug-in's file gives to a name (`HEADING = "Look"`), read as text; None without such a line."""
    with open(_files(kind)[_module(kind, name)][1], encoding="utf-8") as file:
        for line in file:
            if line.startswith(f"{constant_name} ="):
                return line.partition("=")[2].strip().strip("\"'")
    return None
