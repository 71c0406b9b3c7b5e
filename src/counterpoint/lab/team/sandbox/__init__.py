"""`Sandbox`: a Python program as a process that can touch its own folder and nothing else, within limits.

Always true: a program runs only where the kernel can confine its files (Landlock), or where the caller said `weak=True`; it
starts with an empty environment and a closed stdin; when `run` returns or is cancelled its process is gone, and what it printed
beyond the limit was never kept.

The layers, from outside: limits (rlimits; wall time, output and disk watched by us), Landlock (files, TCP, signals), seccomp
(system calls), no capabilities, an audit hook that says in words what was refused. How a program ended, and what it tried, is
what we or the kernel saw (`watch`); it has no channel to us but what it prints.
"""

from __future__ import annotations

import asyncio
import inspect
import marshal
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

from counterpoint.errors import Refused
from counterpoint.lab.team.sandbox import folders, landlock, launch
from counterpoint.lab.team.sandbox.seccomp import REPORT_FD, filter_program
from counterpoint.lab.team.sandbox.watch import NUMBER, Watch, is_available

_POLL_S = 0.05
_FLAGS = ("-P", "-s", "-S", "-B", "-X", "utf8")
_START = "import marshal,sys;job=marshal.load(sys.stdin.buffer);space={};exec(job.pop('launch'),space);space['launch'](job)"


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """What one run may use."""

    wall_s: float = 10.0
    cpu_s: int = 5
    memory_mb: int = 256
    """Address space, the interpreter's own (about 30 MB) included."""
    file_mb: int = 16
    """The size of any one file."""
    disk_mb: int = 64
    """All files of the folder together; looked at twenty times a second, so a burst may exceed it shortly."""
    files: int = 1000
    """Files and folders in the folder."""
    open_files: int = 32
    output_kb: int = 64
    """What is printed; a program that prints more is ended."""


@dataclass(frozen=True)
class Strength:
    """The layers that this machine has."""

    landlock: int
    """The kernel's Landlock version; 0 for none. From 2 on a file can change its sub-folder, from 6 on signals are confined."""
    seccomp: bool
    limits: bool
    audit: bool = True
    watch: bool = False
    """Whether the kernel tells us what a program tried; without it `denied` and `touched` stay empty."""

    @property
    def confines_files(self) -> bool:
        """Whether the kernel keeps a program in its folder."""
        return self.landlock > 0

    def __str__(self) -> str:
        names = [f"Landlock {self.landlock}" if self.landlock else "", "seccomp" if self.seccomp else ""]
        names += ["limits" if self.limits else "", "audit hook" if self.audit else "", "kernel notices" if self.watch else ""]
        return ", ".join(name for name in names if name)


@cache
def strength() -> Strength:
    """Which layers this machine has; asked once."""
    has_filter = filter_program() is not None
    return Strength(landlock.version(), has_filter, os.name == "posix", watch=has_filter and is_available())


@dataclass(frozen=True)
class ProgramOutcome:
    """How a run ended."""

    text: str
    """What it printed, both streams in order; its folder is written `.`, so that the same program prints the same."""
    error: str | None = None
    """timeout, cpu limit, memory limit, output limit, disk limit, file limit, denied, failed, crashed, or unsafe."""
    exit: int | None = None
    """The exit code, negative for a signal; None where we ended it."""
    raised: str = ""
    """The exception that ended it, read off what it printed: its own word, as its text is."""
    denied: tuple[str, ...] = ()
    """What it tried and was refused, such as `file /etc/passwd`: what the kernel told us, at most 32."""
    touched: tuple[str, ...] = ()
    """Watched files (honeypots) that it tried to use, as they were named to us; every one, told by the kernel."""


class Sandbox:
    """Runs programs. Safe to share between tasks; each run is a process of its own."""

    def __init__(self, limits: RunLimits | None = None, *, weak: bool = False, watched: Iterable[str] = ()) -> None:
        self.limits = limits or RunLimits()
        self._watched = tuple(watched)
        self._running: set[asyncio.subprocess.Process] = set()
        self._strength = strength()
        if not self._strength.confines_files and not weak:
            raise Refused(
                "the Python sandbox cannot confine files on this machine",
                why=f"it has only: {self._strength}; Landlock needs Linux 5.13 or later with Landlock switched on",
                fix="leave the tool `python` out, or give the option weak=True where all programs are trusted",
            )
        if not self._strength.limits:
            raise Refused("the Python sandbox needs a POSIX system", fix="leave the tool `python` out")

    async def run(self, source: str, folder: Path) -> ProgramOutcome:
        """Run a program in a folder (which must exist) until it ends or a limit ends it."""
        real = Path(os.path.realpath(folder))
        job = await asyncio.to_thread(self._job, source, real)
        readable = [path for path, _ in landlock.readable(self._strength.landlock)]
        watch = Watch(real, self._watched, readable, [str(path) for path in landlock.library()], landlock.trap())
        try:
            process = await asyncio.create_subprocess_exec(
                landlock.interpreter(), *_FLAGS, "-c", _START, str(watch.fd),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                env=_environment(real), cwd=real, start_new_session=True, pass_fds=(watch.fd,),
            )  # fmt: skip
            watch.begin(process.pid)
            printed = bytearray()
            stopped = await self._until_over(process, job, real, printed)
            return _outcome(None if stopped else process.returncode, stopped, bytes(printed), watch, real, self._strength.watch)
        finally:
            watch.close()

    async def close(self) -> None:
        """End what still runs."""
        for process in list(self._running):
            await self._end(process)

    def _job(self, source: str, folder: Path) -> bytes:
        limits, layers = self.limits, self._strength
        mb = 1 << 20
        both = {
            "RLIMIT_AS": limits.memory_mb * mb, "RLIMIT_FSIZE": limits.file_mb * mb, "RLIMIT_NOFILE": limits.open_files,
            "RLIMIT_CORE": 0, "RLIMIT_NPROC": 0,
        }  # fmt: skip
        if sys.platform != "linux":
            del both["RLIMIT_AS"], both["RLIMIT_NPROC"]  # elsewhere they count what is not the program's
        rules = [landlock.own_folder(folder, layers.landlock), *landlock.readable(layers.landlock)] if layers.landlock else []
        job = {
            "launch": _launch_code(),
            "source": source.encode("utf-8", "replace").decode(),
            "folder": str(folder),
            "linux": sys.platform == "linux",
            "parent": os.getpid(),
            "limits": {**{name: (value, value) for name, value in both.items()}, "RLIMIT_CPU": (limits.cpu_s, limits.cpu_s + 1)},
            "ruleset": landlock.handled(layers.landlock) if layers.landlock else b"",
            "rules": rules,
            "seccomp": (filter_program(asks=layers.watch) or b"") if layers.seccomp else b"",
            "asks": NUMBER if layers.seccomp and layers.watch else 0,
            "report": REPORT_FD,
            "trap": landlock.trap() if layers.watch else "",
            "roots": [f"{path}/" for path in landlock.library()],
            "watched": [name for file in self._watched for name in (file, os.path.normpath(folder / file))],
        }
        return marshal.dumps(job)

    async def _until_over(self, process: asyncio.subprocess.Process, job: bytes, folder: Path, printed: bytearray) -> str | None:
        """Feed, listen and watch until the process ends; gives why we ended it, if we did. The process is gone afterwards."""
        self._running.add(process)
        works = (self._listen(process, job, printed), self._watch_disk(folder, process.pid))
        tasks = [asyncio.create_task(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, timeout=self.limits.wall_s, return_when=asyncio.FIRST_COMPLETED)
            return next((task.result() for task in tasks if task in done), "timeout")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._end(process)
            self._running.discard(process)

    async def _listen(self, process: asyncio.subprocess.Process, job: bytes, printed: bytearray) -> str | None:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(ConnectionError):
            process.stdin.write(job)
            await process.stdin.drain()
        process.stdin.close()
        left = self.limits.output_kb * 1024
        while chunk := await process.stdout.read(1 << 14):
            printed += chunk[:left]
            left -= len(chunk)
            if left < 0:
                return "output limit"
        await process.wait()
        return None

    async def _watch_disk(self, folder: Path, pid: int) -> str:
        while True:
            await asyncio.sleep(_POLL_S)
            if self.is_full(folder, pid):
                return "disk limit"

    def is_full(self, folder: Path, pid: int | None = None) -> bool:
        """Whether the folder holds more than it may; with what its program (`pid`) holds open that has no name any more."""
        unnamed = 0 if pid is None else folders.unnamed_bytes(pid)
        return folders.is_over(folder, (self.limits.disk_mb << 20) - unnamed, self.limits.files)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Kill the whole process group, and wait until the process is gone and its pipe is empty."""
        if process.returncode is None or not self._strength.seccomp:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout is not None
        with suppress(TimeoutError, RuntimeError):  # RuntimeError: `close` and `run` both wait for the pipe
            async with asyncio.timeout(2.0):
                while await process.stdout.read(1 << 16):
                    pass
        await process.wait()


@cache
def _launch_code() -> CodeType:
    return compile(inspect.getsource(launch), launch.NAME, "exec")


def _outcome(
    code: int | None, stopped: str | None, printed: bytes, watch: Watch, folder: Path, is_watched: bool
) -> ProgramOutcome:
    text = printed.decode("utf-8", "replace").replace(str(folder), ".")
    for path in landlock.library():
        text = text.replace(f"{path}/", "")
    raised = _raised(text) if code == 1 else ""
    is_denied = bool(watch.denied) if is_watched else raised == "PermissionError"
    why = stopped or ("unsafe" if not watch.is_ready else _reason(code or 0, raised, is_denied, text))
    return ProgramOutcome(text, why, code, raised, tuple(watch.denied), tuple(watch.touched))


def _raised(text: str) -> str:
    """The exception that a traceback at the end of a text names; empty where there is none."""
    lines = text.splitlines()
    last = next((i for i in range(len(lines) - 1, -1, -1) if lines[i].startswith('  File "')), len(lines))
    found = next((line for line in lines[last + 1 :] if line and not line[0].isspace()), "")
    name = found.partition(":")[0].rpartition(".")[2]
    return name if name.isidentifier() else ""


def _reason(code: int, raised: str, is_denied: bool, text: str) -> str | None:
    if code == -signal.SIGXCPU or code == -signal.SIGKILL:
        return "cpu limit"
    if is_denied:
        return "denied"
    if raised == "MemoryError":
        return "memory limit"
    if raised == "OSError" and "[Errno 27]" in text.rpartition("OSError")[2]:
        return "file limit"
    if code < 0:
        return "crashed"
    return "failed" if code else None


def _environment(folder: Path) -> dict[str, str]:
    """All that a program finds in its environment; a fixed hash seed, so that sets print in the same order each time."""
    return {"PYTHONHASHSEED": "0", "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8", "PATH": ""}
