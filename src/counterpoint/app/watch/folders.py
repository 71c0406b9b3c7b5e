"""The files under some folders, and which of them have changed: by size and time alone, nothing is opened.

Always true: a look at everything finds each file that is new or another one; a look at the recent ones costs a call for each file
that changed in the last quarter of an hour, and for each folder of them. A folder is entered once, however many links lead to it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

_RECENT_S = 900.0
_MOST_RECENT = 500
_TOGETHER = 500
"""Files of a folder that are looked at together with one that changed."""


class FileState(NamedTuple):
    """What tells a file from what it was."""

    size: int
    changed: float
    inode: int


class Folders:
    """Some files and folders, as they were at the last look."""

    def __init__(self, roots: Sequence[str | os.PathLike[str]]) -> None:
        self.roots = [os.path.abspath(root) for root in roots]
        self.files: dict[str, FileState] = {}
        self._recent: list[str] = []
        self._folders: dict[str, int] = {}
        """Folders of the recent files, and when something was made or removed there."""

    def look(self) -> set[str]:
        """Every file that is new or another one since the last look."""
        found: dict[str, FileState] = {}
        seen: set[tuple[int, int]] = set()
        for root in self.roots:
            self._walk(root, found, seen)
        changed = {name for name, state in found.items() if self.files.get(name) != state}
        self.files = found
        self._choose_recent()
        return changed

    def look_at_recent(self) -> set[str]:
        """Those of them that changed lately, and new ones beside them."""
        changed = set()
        for name in self._recent:
            if (state := _state(name)) is not None and self.files.get(name) != state:
                self.files[name] = state
                changed.add(name)
        for folder, before in self._folders.items():
            now = _folder_time(folder)
            if now != before:
                self._folders[folder] = now
                changed |= self._new_in(folder)
        if changed:
            self._choose_recent()
        return changed

    def _new_in(self, folder: str) -> set[str]:
        found: dict[str, FileState] = {}
        try:
            names = [entry.path for entry in os.scandir(folder) if entry.path not in self.files]
        except OSError:
            return set()
        for name in names:
            self._walk(name, found, set())
        new = {name for name, state in found.items() if self.files.get(name) != state}
        self.files.update(found)
        return new

    def _choose_recent(self) -> None:
        since = time.time() - _RECENT_S
        recent = [name for name, state in self.files.items() if state.changed >= since]
        self._recent = sorted(recent, key=lambda name: -self.files[name].changed)[:_MOST_RECENT]
        places = {os.path.dirname(name) for name in self._recent} | {root for root in self.roots if os.path.isdir(root)}
        self._folders = {place: self._folders.get(place, _folder_time(place)) for place in places}

    def _walk(self, root: str, found: dict[str, FileState], seen: set[tuple[int, int]]) -> None:
        waiting = [root]
        while waiting:
            path = waiting.pop()
            try:
                status = os.stat(path)
                if stat.S_ISREG(status.st_mode):
                    found[path] = FileState(status.st_size, status.st_mtime, status.st_ino)
                if not stat.S_ISDIR(status.st_mode) or (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                with os.scandir(path) as entries:
                    for entry in entries:
                        if entry.is_file(follow_symlinks=False):
                            inside = entry.stat(follow_symlinks=False)
                            found[entry.path] = FileState(inside.st_size, inside.st_mtime, inside.st_ino)
                        else:
                            waiting.append(entry.path)
            except OSError:
                continue  # it went away, or may not be read

    # -- what belongs together

    def around(self, changed: Iterable[str], since: float) -> list[str]:
        """What has to be read for some changed files: what changed since then, and what lies in the same folders."""
        wanted = {name for name, state in self.files.items() if state.changed >= since}
        wanted |= {root for root in self.roots if root in self.files}
        counts = self._counts()
        units = {self._unit(name, counts) for name in changed if name in self.files}
        prefixes = tuple(unit + os.sep for unit in units if unit is not None)
        wanted |= {name for name in self.files if name.startswith(prefixes)} if prefixes else set()
        return sorted(wanted | {name for name in changed if name in self.files})

    def _counts(self) -> dict[str, int]:
        """Folder to the files in it and below."""
        counts: dict[str, int] = {}
        for name in self.files:
            folder = os.path.dirname(name)
            counts[folder] = counts.get(folder, 0) + 1
            while folder not in self.roots and folder != os.path.dirname(folder):
                folder = os.path.dirname(folder)
                counts[folder] = counts.get(folder, 0) + 1
        return counts

    def _unit(self, name: str, counts: dict[str, int]) -> str | None:
        """The highest folder around a file, within the roots, with few enough files; at least its own."""
        if name in self.roots:
            return None
        folder = os.path.dirname(name)
        while folder not in self.roots:
            above = os.path.dirname(folder)
            if above == folder or counts.get(above, 0) > _TOGETHER or not any(self._is_in(above, root) for root in self.roots):
                break
            folder = above
        return folder

    @staticmethod
    def _is_in(folder: str, root: str) -> bool:
        return folder == root or folder.startswith(root + os.sep)


def _state(path: str | Path) -> FileState | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return FileState(status.st_size, status.st_mtime, status.st_ino)


def _folder_time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return -1
