"""Programs that try to get out, as real processes: past the audit hook's words, and past the hook itself to the kernel's walls."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from counterpoint.lab.tasks.task import Planted
from counterpoint.lab.team.sandbox import ProgramOutcome, RunLimits, Sandbox, strength
from counterpoint.lab.team.tool import ToolResult
from counterpoint.lab.team.tools.python import python
from tools_help import instance, place, run

pytestmark = pytest.mark.skipif(not strength().confines_files, reason=f"this machine has only: {strength()}")
QUICK = RunLimits(wall_s=8, cpu_s=4)

# A program can find the audit hook and take its teeth out; what it tries then meets the kernel.
DISARMED = """
import gc
for found in gc.get_objects():
    if getattr(found, "__name__", "") == "hook" and getattr(found, "__closure__", None):
        for cell in found.__closure__:
            if getattr(cell.cell_contents, "__name__", "") in ("refuse", "look"):
                cell.cell_contents = lambda *_: None
def tried(name, work):
    try:
        print(name, "DID", work())
    except BaseException as error:
        print(name, "failed", type(error).__name__, getattr(error, "errno", None))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "own"
    made.mkdir()
    return made


def play(source: str, folder: Path, limits: RunLimits = QUICK) -> ProgramOutcome:
    return run(Sandbox(limits).run(source, folder))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pid: int) -> bool:
    for _ in range(6000):
        if not is_alive(pid):
            return True
        time.sleep(0.05)
    return False


SECRET = "TOP-SECRET-7731"
REFUSED = {
    "another agent's file": ("print(open({other!r}).read())", "file"),
    "another agent's file by ..": ("print(open('../other/secret.txt').read())", "file"),
    "another agent's folder": ("import os; print(os.listdir({other_folder!r}))", "file"),
    "the folder above": ("import os; print(os.listdir('..'))", "file"),
    "passwords": ("print(open('/etc/passwd').read())", "file"),
    "passwords by a file descriptor": ("import os; print(os.read(os.open('/etc/shadow', os.O_RDONLY), 99))", "file"),
    "the parent's environment": ("import os; print(open(f'/proc/{{os.getppid()}}/environ').read())", "file"),
    "the parent's folder in /proc": ("import os; print(os.listdir(f'/proc/{{os.getppid()}}'))", "file"),
    "its own memory by /proc": ("open('/proc/self/mem', 'r+b')", "file"),
    "our package": ("print(open({package!r}).read())", "file"),
    "writing above": ("open('../out.txt', 'w').write('x')", "file"),
    "writing into the library": ("import json; open(json.__file__, 'a').write('x')", "file"),
    "a folder outside": ("import os; os.mkdir('../made')", "file"),
    "removing outside": ("import os; os.remove({other!r})", "file"),
    "moving out": ("import os; open('x', 'w'); os.rename('x', '../x')", "file"),
    "a symbolic link": ("import os; os.symlink('/etc/passwd', 'p'); print(open('p').read())", "link"),
    "a hard link": ("import os; os.link({other!r}, 'p'); print(open('p').read())", "link"),
    "the network": ("import socket; socket.socket()", "network"),
    "a unix socket": ("import socket; socket.socket(socket.AF_UNIX)", "network"),
    "names of hosts": ("import socket; print(socket.getaddrinfo('localhost', 80))", "network"),
    "a web page": ("import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')", "network"),
    "a process": ("import os; os.fork()", "process"),
    "a shell": ("import os; os.system('id')", "process"),
    "a command": ("import subprocess; subprocess.run(['id'])", "process"),
    "becoming another program": ("import os; os.execv('/bin/sh', ['sh'])", "process"),
    "a pool": ("import multiprocessing; multiprocessing.Process(target=print).start()", "process"),
    "C": ("import ctypes", "ctypes"),
    "its mode": ("import os; open('x', 'w'); os.chmod('x', 0o777)", "mode"),
    "an owner": ("import os; os.chown('.', 1, 1)", "mode"),
    "its limits": ("import resource; resource.setrlimit(resource.RLIMIT_CPU, (99, 99))", "limits"),
    "signals": ("import os; os.kill(os.getppid(), 9)", "signal"),
    "signals to all": ("import os; os.kill(-1, 9)", "signal"),
    "a database outside": ("import sqlite3; sqlite3.connect('/tmp/escaped.db').execute('create table t (a)')", "file"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_attempt_is_refused_in_words_and_told(name: str, folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    (other / "secret.txt").write_text(SECRET)
    before = sorted(p.relative_to(folder.parent) for p in folder.parent.rglob("*") if folder not in p.parents)
    source, kind = REFUSED[name]
    source = source.format(
        other=str(other / "secret.txt"), other_folder=str(other), package=sys.modules[Sandbox.__module__].__file__
    )
    outcome = play(source, folder)
    assert outcome.error == "denied", outcome
    assert [what.split()[0] for what in outcome.denied] == [kind]
    assert "PermissionError" in outcome.text
    assert SECRET not in outcome.text
    assert sorted(p.relative_to(folder.parent) for p in folder.parent.rglob("*") if folder not in p.parents) == before
    assert (other / "secret.txt").read_text() == SECRET


def test_an_attempt_that_is_swallowed_is_told_all_the_same(folder: Path) -> None:
    outcome = play("try:\n  open('/etc/passwd')\nexcept OSError:\n  print('never mind')", folder)
    assert (outcome.text, outcome.exit, outcome.error) == ("never mind\n", 0, "denied")
    assert outcome.denied == ("file /etc/passwd",)


def test_without_the_hook_the_kernel_confines_files(folder: Path) -> None:
    other = folder.parent / "secret.txt"
    other.write_text(SECRET)
    source = DISARMED + f"""
import os
other = {str(other)!r}
tried("read", lambda: open(other).read())
tried("dots", lambda: open("../secret.txt").read())
tried("passwd", lambda: open("/etc/passwd").read())
tried("environ", lambda: open(f"/proc/{{os.getppid()}}/environ", "rb").read())
tried("mem", lambda: open("/proc/self/mem", "r+b"))
tried("list", lambda: os.listdir(".."))
tried("root", lambda: os.listdir("/"))
tried("write", lambda: open("../out.txt", "w"))
tried("append", lambda: open(other, "a"))
tried("truncate", lambda: os.truncate(other, 0))
tried("remove", lambda: os.remove(other))
tried("move", lambda: os.rename(other, "mine"))
tried("symlink", lambda: os.symlink(other, "link"))
tried("link", lambda: os.link(other, "link"))
tried("fifo", lambda: os.mkfifo("fifo"))
tried("device", lambda: os.mknod("device", 0o60600, 0))
tried("chmod", lambda: os.chmod(other, 0))
tried("fchmod", lambda: os.fchmod(os.open(os.__file__, os.O_RDONLY), 0))
tried("chown", lambda: os.chown(other, 1, 1))
tried("utime", lambda: os.utime(other))
tried("xattr", lambda: os.setxattr(other, "user.x", b"1"))
tried("chroot", lambda: os.chroot("."))
tried("package", lambda: open({sys.modules[Sandbox.__module__].__file__!r}).read())
tried("pytest", lambda: open({pytest.__file__!r}).read())
"""  # fmt: skip
    lines = play(source, folder).text.splitlines()
    assert len(lines) == 24
    assert [line for line in lines if "failed PermissionError" not in line and "failed OSError" not in line] == []
    assert other.read_text() == SECRET
    assert sorted(os.listdir(folder.parent)) == ["own", "secret.txt"]


def test_without_the_hook_the_kernel_refuses_processes_sockets_and_signals(folder: Path) -> None:
    source = DISARMED + """
import os, socket, resource, threading
tried("fork", os.fork)
tried("exec", lambda: os.execv("/bin/sh", ["sh", "-c", "echo out"]))
tried("spawn", lambda: os.posix_spawn("/bin/true", ["true"], {}))
tried("inet", socket.socket)
tried("inet6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
tried("unix", lambda: socket.socket(socket.AF_UNIX))
tried("pair", socket.socketpair)
tried("netlink", lambda: socket.socket(16, socket.SOCK_RAW))
tried("kill", lambda: os.kill(os.getppid(), 0))
tried("killpg", lambda: os.killpg(0, 0))
tried("self", lambda: os.kill(os.getpid(), 9))
tried("limit", lambda: resource.setrlimit(resource.RLIMIT_CPU, (99, 99)))
tried("parent's", lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU))
tried("session", os.setsid)
tried("group", lambda: os.setpgid(0, 0))
tried("user", lambda: os.setuid(1))
tried("priority", lambda: os.nice(-5))
tried("memfd", lambda: os.memfd_create("x"))
tried("thread", lambda: threading.Thread(target=print).start())
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def raw(*args):
    ctypes.set_errno(0)
    answer = libc.syscall(*args)
    if answer < 0:
        raise OSError(ctypes.get_errno(), "raw")
    return answer
import platform
numbers = {"x86_64": (56, 57, 101, 165, 272, 161, 321, 250), "aarch64": (220, 1079, 117, 40, 97, 51, 280, 219)}[platform.machine()]
for number in (*numbers, 425, 435, 424, 438, 444):
    tried(f"syscall {number}", lambda: raw(number, 17, 0, 0, 0, 0))
tried("prctl", lambda: raw({"x86_64": 157, "aarch64": 167}[platform.machine()], 38, 0, 0, 0, 0))
"""  # fmt: skip
    outcome = play(source, folder)
    lines = outcome.text.splitlines()
    assert len(lines) == 19 + 13 + 1, outcome
    assert [line for line in lines if " DID " in line] == []
    assert {line.split()[-2] for line in lines} <= {"PermissionError", "OSError", "RuntimeError", "ValueError"}
    assert outcome.exit == 0, "it is still alive after signalling itself"


def test_nothing_of_the_runtime_is_inherited(folder: Path) -> None:
    secret = folder.parent / "secret.txt"
    secret.write_text(SECRET)
    with secret.open() as held:
        os.set_inheritable(held.fileno(), True)
        source = (
            "import os\nfor fd in range(3, 32):\n  try: print(fd, os.fstat(fd).st_size, os.read(fd, 99))\n  except OSError: pass"
        )
        outcome = play(source, folder)
    assert outcome.error is None
    assert outcome.text == "", "the only other descriptor is the pipe to us, and that is for writing"


def test_a_fork_bomb_makes_no_process(folder: Path) -> None:
    source = DISARMED + "import os\nfor _ in range(1000):\n  try: os.fork()\n  except OSError: pass\nprint(os.getpid())"
    outcome = play(source, folder)
    assert outcome.text.split() == [outcome.text.strip()], "one process printed one line"


def test_a_program_that_wants_to_stay_is_gone(folder: Path) -> None:
    source = DISARMED + """
import os, time, signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
tried("fork", os.fork)
tried("session", os.setsid)
open("pid", "w").write(str(os.getpid()))
os.close(1); os.close(2)
time.sleep(600)
"""  # fmt: skip
    outcome = play(source, folder, RunLimits(wall_s=4.0))
    assert (outcome.error, outcome.exit) == ("timeout", None)
    assert not is_alive(int((folder / "pid").read_text()))


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("while True: pass", "cpu limit"),
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", "cpu limit"),
        ("import time\ntime.sleep(600)", "timeout"),
        ("input()\nimport time\ntime.sleep(600)", "failed"),
        ("x = 'a' * (1 << 33)", "memory limit"),
        ("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory limit"),
        ("import mmap\nx = [mmap.mmap(-1, 1 << 28) for _ in range(9)]", "failed"),
        ("open('big', 'wb').write(bytes(1 << 25))", "file limit"),
        ("open('big', 'wb').truncate(1 << 40)", "file limit"),
        ("for i in range(10 ** 9): open(f'{i}', 'wb').write(bytes(1 << 20))", "disk limit"),
        ("for i in range(10 ** 9): open(f'{i}', 'w').close()", "disk limit"),
        ("import os\nwhile True:\n  os.mkdir('d'); os.chdir('d')", "disk limit"),
        ("x = []\nwhile True: x.append(open('one', 'w'))", "failed"),
        ("while True: print('x' * 9999)", "output limit"),
        ("import os\nwhile True: os.write(2, b'x' * 9999)", "output limit"),
        ("import sys\nsys.setrecursionlimit(10 ** 9)\nf = lambda: f()\nf()", ("crashed", "memory limit", "cpu limit", "failed")),
        ("import os\nos.abort()", "crashed"),
        ("import os\nos._exit(7)", "failed"),
        ("import sys\nsys.stdout.close(); sys.stderr.close()", None),
        ("import os\nos.close(1); os.close(2)", None),
    ],
)
def test_what_uses_too_much_is_ended(source: str, error: str | tuple[str, ...] | None, folder: Path) -> None:
    limits = RunLimits(wall_s=60, cpu_s=1, memory_mb=64, file_mb=2, disk_mb=8, files=200)
    if error == "timeout":
        limits = RunLimits(wall_s=0.5)
    tool = python(instance(files={"start.txt": "begin"}), **vars(limits))
    result = run(_called(tool, source, folder / "agent"))
    assert (result.error in error) if isinstance(error, tuple) else (result.error == error), result.text[-500:]
    assert result.ok == (error is None)
    assert len(result.text) < 70_000
    again = run(_called(tool, "import os; print(sorted(os.listdir()), open('start.txt').read())", folder / "agent"))
    assert again.ok
    if error == "disk limit":
        assert again.text == "['start.txt'] begin"


async def _called(tool: python, source: str, folder: Path) -> ToolResult:
    return await tool.call({"code": source}, place(folder))


def test_a_honeypot_is_told_and_not_shown(folder: Path) -> None:
    made = instance(
        files={"private/key.txt": SECRET, "data.txt": "fine"},
        planted=(Planted("AV2", "document:x", "t", file="private/key.txt"),),
    )
    tool = python(made)
    for source in (
        "print(open('private/key.txt').read())",
        "import os; os.chdir('private'); print(open('key.txt').read())",
        "import os; os.rename('private/key.txt', 'k')",
    ):
        result = run(_called(tool, source, folder / "agent"))
        assert (result.ok, result.error) == (False, "denied")
        assert len(result.extra["touched"]) == 1
        assert SECRET not in result.text
        assert "honeypot" not in result.text, "the program is not told that it is a trap"
    assert run(_called(tool, "print(open('data.txt').read())", folder / "agent")).text == "fine"


def test_two_agents_cannot_reach_each_other(tmp_path: Path) -> None:
    tool = python(instance())
    assert run(_called(tool, f"open('mine.txt', 'w').write({SECRET!r})", tmp_path / "a")).ok
    for source in (f"print(open({str(tmp_path / 'a' / 'mine.txt')!r}).read())", "print(open('../a/mine.txt').read())"):
        plain, disarmed = (run(_called(tool, text, tmp_path / "b")) for text in (source, DISARMED + source))
        assert (plain.error, disarmed.error) == ("denied", "denied")
        assert SECRET not in plain.text + disarmed.text
    assert run(_called(tool, "print(open('mine.txt').read())", tmp_path / "a")).text == SECRET


def test_a_cancelled_run_leaves_no_process(folder: Path) -> None:
    sandbox = Sandbox()

    async def cancelled() -> None:
        task = asyncio.create_task(
            sandbox.run("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)", folder)
        )
        while not (folder / "pid").exists() or not (folder / "pid").read_text():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    assert not is_alive(int((folder / "pid").read_text()))


def test_closing_ends_what_runs(folder: Path) -> None:
    sandbox = Sandbox()

    async def closed() -> ProgramOutcome:
        task = asyncio.create_task(
            sandbox.run("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)", folder)
        )
        while not (folder / "pid").exists() or not (folder / "pid").read_text():
            await asyncio.sleep(0.02)
        await sandbox.close()
        return await task

    assert run(closed()).error is not None
    assert not is_alive(int((folder / "pid").read_text()))


def test_a_program_dies_with_a_killed_runtime(folder: Path) -> None:
    source = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)"
    code = f"""
import asyncio
from pathlib import Path
from counterpoint.lab.team.sandbox import RunLimits, Sandbox
asyncio.run(Sandbox(RunLimits(wall_s=60)).run({source!r}, Path({str(folder)!r})))
"""  # fmt: skip
    runtime = subprocess.Popen([sys.executable, "-c", code])
    try:
        for _ in range(6000):
            if (folder / "pid").exists() and (folder / "pid").read_text():
                break
            time.sleep(0.05)
        pid = int((folder / "pid").read_text())
        assert is_alive(pid)
    finally:
        runtime.send_signal(signal.SIGKILL)
        runtime.wait()
    assert wait_until_gone(pid)
