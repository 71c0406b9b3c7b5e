"""Which store is meant where none is named.

Always true: a path that is given wins, then `$COUNTERPOINT_STORE`; then the project's store, which is a store named `traces` in
the working folder or the nearest folder above it; then the user's own, `$XDG_DATA_HOME/counterpoint`, which is
`~/.local/share/counterpoint` where nothing else is set. Nothing is made here.
"""

from __future__ import annotations

import os
from pathlib import Path

MARK = "counterpoint.json"
FOLDERS = ("journal", "log", "lake")
"""What a store has from the beginning."""
PROJECT = "traces"


def store_path(path: str | os.PathLike[str] | None = None) -> Path:
    """Where the store is: the path given, else `$COUNTERPOINT_STORE`, else the project's, else the user's own."""
    named = path or os.environ.get("COUNTERPOINT_STORE")
    return Path(named) if named else _projects() or _users()


def _projects() -> Path | None:
    if is_store(Path(PROJECT)):
        return Path(PROJECT)  # as people write it
    try:
        above = Path.cwd().parents
    except OSError:  # the working folder was deleted
        return None
    return next((folder / PROJECT for folder in above if is_store(folder / PROJECT)), None)


def is_store(path: Path) -> bool:
    """Whether a folder is a store, also one whose mark is lost: then its readers say so."""
    try:
        return (path / MARK).is_file() or all((path / name).is_dir() for name in FOLDERS)
    except OSError:  # not ours to read
        return False


def _users() -> Path:
    base = os.environ.get("XDG_DATA_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "counterpoint"
    try:
        return Path.home() / ".local" / "share" / "counterpoint"
    except RuntimeError:  # a user without a home
        return Path(PROJECT)
