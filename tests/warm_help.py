"""Commands as a user runs them, without the second of imports that each would begin with.

Always true: every command has a process of its own, forked from one that has imported the package and done nothing else, with
its own folder, environment and standard streams, and it ends with its own exit code. Only what a fresh interpreter would
import is there already; that imports are lazy is tested elsewhere, in fresh interpreters.

`commands_in(folder)` starts that first process and gives the folder of programs `counterpoint` and `python` to be put on PATH;
`programs()` is one for all tests. A program that is killed takes its command with it, which closes its streams when it is gone.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

# The program that a shell finds: hands over its words, streams, folder and environment, and passes on signals and the exit code.
_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({address!r})
job = {{"program": {program!r}, "words": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
data = json.dumps(job).encode()
socket.send_fds(line, [len(data).to_bytes(8, "big")], [0, 1, 2])
line.sendall(data)
said = line.makefile("r")
pid = int(said.readline())
for number in (signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, lambda number, _: os.kill(pid, number))
sys.exit(int(said.readline() or 1))
"""


KEPT = contextlib.ExitStack()  # closed by conftest when the tests are over


@functools.cache
def programs() -> Path:
    """The folder of the programs for all tests of this process, until they are over."""
    folder = KEPT.enter_context(tempfile.TemporaryDirectory())
    return KEPT.enter_context(commands_in(Path(folder)))


@contextlib.contextmanager
def commands_in(folder: Path) -> Iterator[Path]:
    """The folder of the programs; they work until the context ends. (Elsewhere than on Linux they are the usual ones.)"""
    if sys.platform != "linux":
        yield Path(sys.executable).parent
        return
    address = str(folder / "warm.sock")
    programs = folder / "bin"
    programs.mkdir()
    for program in ("counterpoint", "python"):
        file = programs / program
        file.write_text(_PROGRAM.format(python=sys.executable, address=address, program=program))
        file.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        server = subprocess.Popen([sys.executable, __file__, str(listening.fileno())], pass_fds=[listening.fileno()])
    try:
        yield programs
    finally:
        server.terminate()
        server.wait()


def _serve(listening: socket.socket) -> NoReturn:
    _import_everything_light()
    signal.signal(signal.SIGCHLD, _reap)
    parent = os.getppid()
    listening.settimeout(2)
    while True:
        try:
            line, _ = listening.accept()
        except TimeoutError:
            if os.getppid() != parent:  # the tests were killed
                sys.exit()
            continue
        head, fds, _, _ = socket.recv_fds(line, 8, 3)
        job = json.loads(_exactly(line, int.from_bytes(head, "big")))
        for name in job["environment"].get("WARM_IMPORTS", "").split():
            __import__(name)
        if os.fork() == 0:
            listening.close()
            _handle(line, fds, job)
        for fd in (line.detach(), *fds):
            os.close(fd)


def _import_everything_light() -> None:
    """All but what starts threads when it is used, which a fork would not have, and what takes longer than most commands."""
    import duckdb  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    from counterpoint import registry

    for kind in ("format", "command", "tool", "topology"):
        for name in registry.ids(kind):
            registry.get(kind, name)


def _reap(*_: Any) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _exactly(line: socket.socket, size: int) -> bytes:
    out = b""
    while len(out) < size:
        out += line.recv(size - len(out))
    return out


def _handle(line: socket.socket, fds: list[int], job: dict[str, Any]) -> NoReturn:
    """Run one job in one more process, tell its number and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        line.close()
        _end(_run(fds, job))
    for fd in fds:
        os.close(fd)
    line.sendall(f"{pid}\n".encode())
    if line in select.select([line, os.pidfd_open(pid)], [], [])[0]:  # whoever asked for it was killed, and so is it
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(BrokenPipeError):
        line.sendall(f"{code if code >= 0 else 128 - code}\n".encode())
    os._exit(0)


def _run(fds: list[int], job: dict[str, Any]) -> int:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.path[1:1] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place not in ("", *sys.path[1:])]
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    try:
        _call(job["program"], job["words"])
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _call(program: str, words: list[str]) -> None:
    if program == "counterpoint":
        from counterpoint.app.cli import main

        sys.argv = ["counterpoint", *words]
        main()
    elif words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        sys.modules["__main__"] = module = ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), vars(module))
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
        runpy.run_path(words[0], run_name="__main__")


def _end(code: int) -> NoReturn:
    """What an interpreter does at its end, less the taking apart of everything that was imported."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
