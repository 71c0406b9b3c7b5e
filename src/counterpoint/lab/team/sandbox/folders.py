"""An agent's own folder: made with its first files, measured while a program runs, and removed whatever a program left in it.

Always true: no path of a file from outside the folder is followed or named; removing needs neither deep recursion nor long paths,
so a program cannot leave something that stays.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from counterpoint.errors import InputError


def checked(files: Mapping[str, str]) -> dict[str, str]:
    """The files, if each path stays inside the folder; otherwise an `InputError`."""
    for name in files:
        path = PurePosixPath(name)
        if not name or path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name:
            raise InputError(
                f"a file of an instance cannot lie at {name!r}", why="that is outside the folder", fix="a relative path"
            )
    return dict(files)


def make(folder: Path, files: Mapping[str, str]) -> None:
    """Make the folder, for its owner only, with its first files; one that is there already is left as it is."""
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def is_over(folder: Path, size: int, count: int) -> bool:
    """Whether the folder holds more bytes or entries than allowed; one too deep to be walked counts as over, too."""
    todo = [str(folder)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # a program is at work in here
                        seen = entry.stat(follow_symlinks=False)
                        size -= max(seen.st_size if stat.S_ISREG(seen.st_mode) else 0, seen.st_blocks * 512)
                        if stat.S_ISDIR(seen.st_mode):
                            todo.append(entry.path)
                    count -= 1
                    if size < 0 or count < 0:
                        return True
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return False


def unnamed_bytes(pid: int) -> int:
    """What a process holds on disk that has no name any more: removed files that it has open, or mapped."""
    found: dict[tuple[int, int], int] = {}
    with suppress(OSError):  # it is gone, or is another's
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                seen = os.stat(f"/proc/{pid}/fd/{name}")
                if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 0:
                    found[seen.st_dev, seen.st_ino] = max(seen.st_size, seen.st_blocks * 512)
        mapped: dict[tuple[int, int], int] = {}
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                parts = line.rstrip("\n").split(None, 5)
                if len(parts) == 6 and parts[5].endswith(" (deleted)") and parts[4] != "0":
                    begin, _, end = parts[0].partition("-")
                    major, _, minor = parts[3].partition(":")
                    key = os.makedev(int(major, 16), int(minor, 16)), int(parts[4])
                    mapped[key] = mapped.get(key, 0) + int(end, 16) - int(begin, 16)
        for key, size in mapped.items():
            found.setdefault(key, size)
    return sum(found.values())


def remove(folder: Path) -> None:
    """Remove the folder and all in it. What lies deep is first moved up, so that depth never matters."""
    if folder.is_symlink() or not folder.is_dir():
        return
    moved = 0
    while True:
        with os.scandir(folder) as entries:
            here = list(entries)
        if not here:
            break
        for entry in here:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            with os.scandir(entry.path) as entries:
                below = list(entries)
            for child in below:
                if child.is_dir(follow_symlinks=False):
                    moved += 1
                    os.rename(child.path, _free(folder, moved))
                else:
                    os.unlink(child.path)
            os.rmdir(entry.path)
    folder.rmdir()


def _free(folder: Path, number: int) -> Path:
    while (path := folder / f".moved-{number}-{os.urandom(4).hex()}").exists():
        number += 1
    return path
