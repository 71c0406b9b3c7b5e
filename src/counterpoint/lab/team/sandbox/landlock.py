"""What of the file system a sandboxed program may touch, as Landlock rules (Linux 5.13 and later).

Always true: every right that the kernel's Landlock knows is handled, so what no rule grants is refused. The own folder may be
read and written; of the rest only the standard library and the shared objects that the interpreter loads may be read, not
`site-packages` (where our own generators and checkers can lie). Nothing may be executed.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

Rule = tuple[str, int]
"""A path and the rights on it and on all below it."""
_CREATE_RULESET = 444
_ASK_VERSION = 1
_WRITE, _READ, _LIST, _REMOVE_DIR, _REMOVE, _MAKE_DIR, _MAKE = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 7, 1 << 8
_REFER, _TRUNCATE, _DEVICE = 1 << 13, 1 << 14, 1 << 15
_NOT_LIBRARY = {"site-packages", "dist-packages", "test", "ensurepip", "idlelib", "turtledemo"}
# Imports every compiled module of the standard library, and names all files that the loader mapped for them.
_NAME_OBJECTS = """
import os, sys
folder = sys.argv[1]
for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
    name = name.split(".")[0]
    if not name.startswith(("_test", "_xx", "xx", "_tkinter", "_curses", "readline", "_dbm", "_gdbm", "nis", "ossaudiodev")):
        try:
            __import__(name)
        except Exception:
            pass
with open("/proc/self/maps", encoding="utf-8") as maps:
    print("\\n".join(sorted({line.split(None, 5)[5].rstrip() for line in maps if ".so" in line and "/" in line})))
"""


@cache
def version() -> int:
    """The kernel's Landlock version; 0 where it has none, or where it is switched off."""
    if sys.platform != "linux":
        return 0
    try:
        return max(0, int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))
    except (OSError, AttributeError):  # a C library without `syscall`
        return 0


def handled(abi: int) -> bytes:
    """`struct landlock_ruleset_attr` with everything that this version can refuse: files, TCP, signals and abstract sockets."""
    files = (1 << 13) - 1
    files |= _REFER if abi >= 2 else 0
    files |= _TRUNCATE if abi >= 3 else 0
    files |= _DEVICE if abi >= 5 else 0
    words = [files]
    if abi >= 4:
        words.append(0b11)
    if abi >= 6:
        words.append(0b11)
    return b"".join(word.to_bytes(8, sys.byteorder) for word in words)


def _known(rights: int, abi: int) -> int:
    return rights & int.from_bytes(handled(abi)[:8], sys.byteorder)


def own_folder(folder: Path, abi: int) -> Rule:
    """Read, write, make and remove plain files and folders; no links, pipes, sockets or devices."""
    return str(folder), _known(_WRITE | _READ | _LIST | _REMOVE_DIR | _REMOVE | _MAKE_DIR | _MAKE | _REFER | _TRUNCATE, abi)


def interpreter() -> str:
    """The interpreter itself, not a virtual environment's link to it."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)


@cache
def library() -> tuple[Path, ...]:
    """The folders of the standard library."""
    return tuple(sorted({Path(os.path.realpath(sysconfig.get_path(name))) for name in ("stdlib", "platstdlib")}))


@cache
def trap() -> str:
    """The library behind `ctypes`, which no program may load: opening it stands for trying to."""
    found = sorted(p for folder in library() for p in (folder / "lib-dynload").glob("_ctypes.*"))
    return str(found[0]) if found else "/_ctypes"


@cache
def readable(abi: int) -> tuple[Rule, ...]:
    """The rules for what the interpreter needs; found once per process by asking a fresh interpreter what it loads."""
    rules: dict[str, int] = {"/dev/null": _known(_READ | _WRITE | _TRUNCATE, abi), "/etc/ld.so.cache": _READ}
    for folder in library():
        if not folder.is_dir():
            continue
        rules[str(folder)] = _LIST
        for entry in os.scandir(folder):
            if entry.name not in _NOT_LIBRARY:
                rules[entry.path] = _READ | _LIST if entry.is_dir() else _READ
        dynamic = folder / "lib-dynload"
        asked = [interpreter(), "-I", "-S", "-B", "-c", _NAME_OBJECTS, str(dynamic)]
        found = subprocess.run(asked, capture_output=True, text=True, env={}, stdin=subprocess.DEVNULL, check=False).stdout
        rules.update((line, _READ) for line in found.splitlines() if not line.startswith(f"{folder}/"))
    return tuple((path, rights) for path, rights in sorted(rules.items()) if os.path.exists(path))
