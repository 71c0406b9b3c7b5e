"""What a team is made of, as a sum: its source and what that imports from its own tree, or the weights of a run.

Always true: nothing is run or imported to find it. A file belongs to a team's tree where Python would import it and it is neither
of the standard library, nor installed, nor ours; imports are followed wherever they stand in a file. What cannot be read off the
source is no part of the sum: data that it opens, modules that it names while it runs, installed packages, a model at an address.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

import counterpoint
from counterpoint.errors import NotFound

_INSTALLED = {"site-packages", "dist-packages"}
_WEIGHTS = {".pt", ".safetensors", ".toml", ".bin", ".npz"}
_CALLS = {"import_module", "__import__"}


@dataclass(frozen=True)
class TeamCode:
    """The files that a team is made of, and their sum; an empty sum where all of it comes with this version."""

    digest: str = ""
    files: tuple[str, ...] = ()


def code_of(*names: str) -> TeamCode:
    """Of code that is named `package.module:object` or `path/to/file.py:object`; other names are ours and have none."""
    tree = _Tree()
    for name in names:
        path, sign, _ = name.rpartition(":")
        if not sign:
            continue
        if path.endswith(".py"):
            file = Path(path).resolve()
            tree.add(file, "")
            tree.read([*sys.path, str(file.parent)])
        else:
            tree.follow(path, sys.path)
            tree.read(sys.path)
    return _summed(tree.files)


def weights_of(folder: Path) -> TeamCode:
    """Of the weights and settings in the folder of a run."""
    found = (p for p in folder.rglob("*") if p.suffix in _WEIGHTS or p.name in ("model.json", "last"))
    return _summed({p: str(p.relative_to(folder)) for p in found if p.is_file() and "store" not in p.relative_to(folder).parts})


def _summed(files: dict[Path, str]) -> TeamCode:
    if not files:
        return TeamCode()
    out = hashlib.sha256()
    for path, name in sorted(files.items(), key=lambda one: one[1]):
        try:
            with path.open("rb") as file:
                inner = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise NotFound("cannot be read", where=str(path), why=error.strerror or "") from error
        out.update(f"{name}\0{inner}\0".encode())
    return TeamCode(out.hexdigest()[:16], tuple(sorted(files.values())))


class _Tree:
    """The files of a team's own tree that its code can reach by imports, by the names of their modules."""

    def __init__(self) -> None:
        self.files: dict[Path, str] = {}
        self._specs: dict[str, ModuleSpec | None] = {}
        self._unread: list[tuple[Path, str]] = []

    def add(self, path: Path, module: str) -> None:
        """A file; `module` is its name with dots, empty for a file that is no module of a package."""
        if path not in self.files:
            self.files[path] = module or path.name
            self._unread.append((path, module))

    def read(self, search: list[str]) -> None:
        """What the files import, and what that imports."""
        while self._unread:
            path, module = self._unread.pop()
            try:
                tree = ast.parse(path.read_bytes() if path.suffix == ".py" else b"")
            except (OSError, SyntaxError, ValueError, RecursionError):
                continue  # it cannot be imported either: its bytes are in the sum
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            for name, is_all in _imported(tree, package):
                self.follow(name, search, is_all=is_all)

    def follow(self, name: str, search: list[str], *, is_all: bool = False) -> None:
        """A module by its name, with the packages around it, where there is one."""
        parts, path = name.split("."), search
        for k in range(len(parts)):
            spec = self._found(".".join(parts[: k + 1]), path) if path else None
            if spec is None:
                return
            file = Path(spec.origin).resolve() if spec.has_location and spec.origin else None
            if file is not None:
                if not _is_own(file):
                    return
                self.add(file, spec.name)
            path = list(spec.submodule_search_locations or ())
        for folder in path if is_all else ():  # `from package import *` may name its modules in `__all__`
            for inner in sorted(Path(folder).glob("*.py")):
                self.follow(f"{name}.{inner.stem}", search)

    def _found(self, name: str, path: list[str]) -> ModuleSpec | None:
        if name not in self._specs:
            self._specs[name] = next((s for f in sys.meta_path if (s := _spec(f, name, path)) is not None), None)
        return self._specs[name]


def _spec(finder: object, name: str, path: list[str]) -> ModuleSpec | None:
    find = getattr(finder, "find_spec", None)
    try:
        found = find(name, path) if find is not None else None
    except Exception:  # a finder of somebody else's
        return None
    return found if isinstance(found, ModuleSpec) else None


def _is_own(file: Path) -> bool:
    if _INSTALLED & set(file.parts):
        return False
    paths = sysconfig.get_paths()
    theirs = [Path(paths["stdlib"]), Path(paths["platstdlib"]), Path(counterpoint.__file__).parent]
    return not any(file.is_relative_to(where.resolve()) for where in theirs)


def _imported(tree: ast.Module, package: str) -> Iterator[tuple[str, bool]]:
    """The modules that a file may import, anywhere in it, and whether all of a package is taken."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".") if package else []
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            if base:
                yield base, any(alias.name == "*" for alias in node.names)
            yield from ((f"{base}.{alias.name}" if base else alias.name, False) for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            named = node.args[0].value
            if called in _CALLS and isinstance(named, str) and named.strip("."):
                yield (f"{package}{named}" if named.startswith(".") and named.count(".") == 1 else named.lstrip(".")), False
