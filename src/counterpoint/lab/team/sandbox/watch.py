"""What a program tried, as the kernel tells it: the parent's own observation, which the program can neither write nor hide.

Always true: every call that names a path, and every call of the kinds in `_KINDS`, stops in the kernel until this has looked at
it and answered; a path outside of what is allowed, and a watched file (a honeypot), is refused here and noted. The program is
one thread, so nothing can change a path between our look and the kernel's. Nothing that a program sends is believed: there is no
channel from it to us but what it prints.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

NUMBER = 277 if platform.machine() == "aarch64" else 317
"""Of the system call `seccomp`."""

# name: (x86_64, aarch64), where the path is among the arguments, where its folder is (None: the working folder), where the flags
# are (None: it writes), as in the kernel's `syscall_64.tbl` and `asm-generic/unistd.h`.
PATHS: dict[str, tuple[tuple[int | None, int | None], tuple[tuple[int, int | None], ...], int | None]] = {
    "open": ((2, None), ((0, None),), 1), "openat": ((257, 56), ((1, 0),), 2), "truncate": ((76, 45), ((0, None),), None),
    "mkdir": ((83, None), ((0, None),), None), "mkdirat": ((258, 34), ((1, 0),), None), "rmdir": ((84, None), ((0, None),), None),
    "unlink": ((87, None), ((0, None),), None), "unlinkat": ((263, 35), ((1, 0),), None),
    "rename": ((82, None), ((0, None), (1, None)), None), "renameat": ((264, 38), ((1, 0), (3, 2)), None),
    "renameat2": ((316, 276), ((1, 0), (3, 2)), None),
}  # fmt: skip
# What is refused whatever its arguments: name: numbers, kind. Not what libraries try of themselves (SQLite: fchown, fchmod).
REFUSED: dict[str, tuple[tuple[int | None, int | None], str]] = {
    "socket": ((41, 198), "network"), "socketpair": ((53, 199), "network"), "fork": ((57, None), "process"),
    "vfork": ((58, None), "process"), "clone": ((56, 220), "process"), "execve": ((59, 221), "process"),
    "execveat": ((322, 281), "process"), "kill": ((62, 129), "signal"), "chmod": ((90, None), "mode"),
    "fchmodat": ((268, 53), "mode"), "chown": ((92, None), "mode"),
    "lchown": ((94, None), "mode"), "fchownat": ((260, 54), "mode"), "setxattr": ((188, 5), "mode"),
    "removexattr": ((197, 14), "mode"), "link": ((86, None), "link"), "linkat": ((265, 37), "link"),
    "symlink": ((88, None), "link"), "symlinkat": ((266, 36), "link"), "prlimit64": ((302, 261), "limits"),
    "setrlimit": ((160, 164), "limits"),
}  # fmt: skip
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_EPERM, _GO_ON, _HERE = 1, 1, -100
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY
_THREAD = 0x10000
_MOST = 32
_PAGE = 4096
# What C libraries open of themselves, to read; the kernel refuses it where it must, and nobody meant anything by it.
_OWN_ACCORD = (
    "/etc/ld.so.", "/etc/localtime", "/etc/ssl/", "/etc/nsswitch.conf", "/usr/share/zoneinfo", "/usr/share/locale",
    "/usr/lib/locale", "/usr/lib/ssl/", "/sys/devices/system/cpu", "/proc/self/maps", "/proc/sys/",
    "/proc/cpuinfo", "/proc/meminfo", "/dev/urandom",
)  # fmt: skip


@cache
def is_available() -> bool:
    """Whether the kernel can ask us, and lets us read what the child's arguments point at."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return False
    action = ctypes.c_uint32(0x7FC00000)
    try:
        is_there = ctypes.CDLL(None, use_errno=True).syscall(NUMBER, 2, 0, ctypes.byref(action)) == 0
        scope = Path("/proc/sys/kernel/yama/ptrace_scope")
        return is_there and (os.geteuid() == 0 or not scope.exists() or int(scope.read_text()) < 2)
    except (OSError, AttributeError, ValueError):
        return False


class Watch:
    """The parent's end: waits until all layers are on, then answers the kernel until the program is gone."""

    def __init__(self, folder: Path, watched: Sequence[str], readable: Sequence[str], listed: Sequence[str], trap: str) -> None:
        """`readable`: files and folders that may be read, those in `listed` only as such; `trap`: what stands for `ctypes`."""
        self._folder, self._readable, self._trap = str(folder), frozenset(readable), trap
        self._below = tuple(f"{path}/" for path in self._readable.difference(listed))
        self._watched: dict[str | tuple[int, int], str] = {os.path.realpath(folder / name): name for name in watched}
        for real, name in list(self._watched.items()):
            with contextlib.suppress(OSError):  # also under another name, should its folder be moved
                self._watched[_inode(str(real))] = name
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._theirs: socket.socket | None = theirs
        self._ours.setblocking(False)
        self._listener = self._memory = -1
        self._pid = 0
        self._column = 0 if platform.machine() == "x86_64" else 1
        self.is_ready = False
        """Whether every layer was on before the program began."""
        self.denied: dict[str, None] = {}
        self.touched: dict[str, None] = {}

    @property
    def fd(self) -> int:
        """The child's end, which it closes before its program begins."""
        assert self._theirs is not None
        return self._theirs.fileno()

    def begin(self, pid: int) -> None:
        """The child has its end."""
        self._pid = pid
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None
        asyncio.get_running_loop().add_reader(self._ours, self._introduced)

    def close(self) -> None:
        """The program is gone, or never began."""
        loop = asyncio.get_running_loop()
        for end in (self._theirs, self._ours):
            if end is not None:
                if end is self._ours and end.fileno() >= 0:
                    loop.remove_reader(end)
                end.close()
        if self._listener >= 0:
            loop.remove_reader(self._listener)
            os.close(self._listener)
        if self._memory >= 0:
            os.close(self._memory)
        self._listener = self._memory = -1

    def _introduced(self) -> None:
        """One byte, with the kernel's listener if there is one: all layers are on. End of file before it: they are not."""
        said = b""
        fds: list[int] = []
        with contextlib.suppress(OSError):
            said, fds, _, _ = socket.recv_fds(self._ours, 1, 1)
        asyncio.get_running_loop().remove_reader(self._ours)
        self.is_ready = said == b"!"
        if fds:
            self._listener = fds[0]
            with contextlib.suppress(OSError):  # gone already
                self._memory = os.open(f"/proc/{self._pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            asyncio.get_running_loop().add_reader(self._listener, self._answer)

    # -- one call

    def _answer(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        events = dict(poll.poll(0)).get(self._listener, 0)
        if not events & select.POLLIN:
            if events:  # nobody is left to ask
                asyncio.get_running_loop().remove_reader(self._listener)
            return
        asked = bytearray(80)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, asked)
        except OSError:  # it was killed while it waited
            return
        id_, _, _, number, _, _, *args = struct.unpack("=QIIiIQ6Q", asked)
        may_go_on = self._judged(number, args)
        answer = bytearray(struct.pack("=QqiI", id_, 0, 0 if may_go_on else -_EPERM, _GO_ON if may_go_on else 0))
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._listener, _SEND, answer)

    def _judged(self, number: int, args: Sequence[int]) -> bool:
        """Whether the kernel may go on with a call; what is refused is noted."""
        for numbers, places, flags_at in PATHS.values():
            if number == numbers[self._column]:
                writes = flags_at is None or bool(args[flags_at] & _WRITES)
                judged = [self._may(self._text(args[at]), None if of is None else args[of], writes) for at, of in places]
                return all(judged)  # both paths of a move are looked at
        for name, (numbers, kind) in REFUSED.items():
            if number == numbers[self._column]:
                if name == "clone" and args[0] & _THREAD:
                    self._note("thread", "thread")
                elif name != "prlimit64" or args[2]:  # without a new limit it asks what the limit is
                    self._note(kind, name)
                return False
        return False

    def _note(self, kind: str, what: str) -> None:
        if len(self.denied) < _MOST:
            self.denied[f"{kind} {what[:200]}"] = None

    def _text(self, address: int) -> str | None:
        """The text at an address of the child; None where there is none."""
        out = b""
        try:
            while len(out) <= _PAGE:
                part = os.pread(self._memory, _PAGE - (address + len(out)) % _PAGE, address + len(out))
                end = part.find(b"\0")
                out += part if end < 0 else part[:end]
                if end >= 0 or not part:
                    return os.fsdecode(out)
        except (OSError, OverflowError, ValueError):
            return None
        return None

    def _may(self, path: str | None, folder_fd: int | None, writes: bool) -> bool:
        if path is None:  # the kernel cannot read it either
            return True
        if not writes and path.startswith(self._below) and ".." not in path and path != self._trap:
            return True
        real = self._real(path, folder_fd)
        if real is None:
            self._note("file", path)
            return False
        found = self._watched.get(real) or self._by_inode(real)
        if found is not None:  # counted apart: no number of other attempts can hide it
            self.touched[found] = None
            self._note("honeypot", path)
            return False
        if real == self._trap:
            self._note("ctypes", "ctypes")
            return False
        if real == self._folder or real.startswith(self._folder + "/") or real == os.devnull:
            return True
        if not writes and (real in self._readable or real.startswith(self._below) or _is_own_accord(path, real)):
            return True
        self._note("file", path)
        return False

    def _by_inode(self, real: str) -> str | None:
        try:
            return self._watched.get(_inode(real)) if self._watched else None
        except OSError:
            return None

    def _real(self, path: str, folder_fd: int | None) -> str | None:
        """Where a path of the child leads; None where it cannot be said."""
        try:
            if not path.startswith("/"):
                at = _HERE if folder_fd is None else ctypes.c_int32(folder_fd & 0xFFFFFFFF).value
                base = os.readlink(f"/proc/{self._pid}/cwd" if at == _HERE else f"/proc/{self._pid}/fd/{at}")
                path = f"{base}/{path}"
            for own in ("/proc/self/", "/proc/thread-self/"):
                path = f"/proc/{self._pid}/{path.removeprefix(own)}" if path.startswith(own) else path
            return os.path.realpath(path)
        except (OSError, ValueError):
            return None


def _inode(path: str) -> tuple[int, int]:
    seen = os.stat(path)
    return seen.st_dev, seen.st_ino


def _is_own_accord(path: str, real: str) -> bool:
    name = real.rpartition("/")[2]
    return path.startswith(_OWN_ACCORD) or name == "openssl.cnf" or ".so." in name or name.endswith(".so")
