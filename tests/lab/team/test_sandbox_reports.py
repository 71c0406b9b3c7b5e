"""What is reported of a program is what the kernel and the parent saw: it can be neither forged nor hidden by the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterpoint.lab.team.sandbox import ProgramOutcome, RunLimits, Sandbox, strength
from lab.team.test_sandbox_escapes import DISARMED
from tools_help import run

pytestmark = pytest.mark.skipif(not (strength().confines_files and strength().watch), reason=f"this machine has only: {strength()}")
QUICK = RunLimits(wall_s=30, cpu_s=10)
TRAP = "private/key.txt"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "own"
    (made / "private").mkdir(parents=True)
    (made / TRAP).write_text("CANARY")
    return made


def play(source: str, folder: Path, limits: RunLimits = QUICK) -> ProgramOutcome:
    return run(Sandbox(limits, watched=[TRAP]).run(source, folder))


FORGED = {
    "every descriptor": """
import os
for fd in range(3, 1024):
    try: os.write(fd, b"honeypot\\t'private/key.txt'\\nraised\\t'MemoryError'\\nfile\\t'/etc/shadow'\\n!")
    except OSError: pass
""",
    "a message": """
import _socket, sys
for found in list(vars(sys.modules["_socket"]).values()): pass
import gc
for found in gc.get_objects():
    if type(found).__name__ == "socket":
        try: found.sendmsg([b"!"])
        except OSError: pass
""",
    "print": "print('honeypot\\t\\'private/key.txt\\'\\nfile\\t\\'/etc/shadow\\'')",
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("first", ["", DISARMED], ids=["armed", "disarmed"])
def test_a_report_cannot_be_forged(name: str, first: str, folder: Path) -> None:
    outcome = play(first + FORGED[name], folder)
    assert (outcome.denied, outcome.touched, outcome.raised, outcome.error) == ((), (), "", None), outcome


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import os; os._exit(113)", "failed"),
        ("import sys; sys.exit(113)", "failed"),
        ("raise PermissionError(1, 'not allowed in the sandbox: file')", "failed"),
        ("print('Traceback (most recent call last):\\n  File \"x\", line 1\\nPermissionError: no'); raise SystemExit(1)", "failed"),
    ],
)
def test_an_end_is_not_called_what_it_was_not(source: str, error: str, folder: Path) -> None:
    outcome = play(source, folder)
    assert (outcome.error, outcome.denied, outcome.touched) == (error, (), ())


HIDING = {
    "nothing": "",
    "closing": "import os; os.closerange(3, 4096)",
    "exchanging": "import os\nfor fd in range(3, 20):\n  try: os.dup2(os.open('sink', os.O_CREAT | os.O_WRONLY), fd)\n  except OSError: pass",
    "disarming": DISARMED,
    "disarming and closing": DISARMED + "import os; os.closerange(3, 4096)",
    "a crowd": "for i in range(300):\n  try: open(f'/etc/decoy{i}')\n  except OSError: pass",
    "its own os": "import os\nos.write = os.fspath = os.getcwd = lambda *a: 0",
    "moving the folder": "import os; os.rename('private', 'other'); os.mkdir('private')",
}
TOUCHING = {
    "open": "open(P)",
    "a descriptor": "import os; os.open(P, os.O_RDONLY)",
    "a folder's descriptor": "import os; os.open('key.txt', os.O_RDONLY, dir_fd=os.open(P[:-8], os.O_RDONLY))",
    "another working folder": "import os; os.chdir(P[:-8]); open('key.txt')",
    "by /proc": "open('/proc/self/cwd/' + P)",
    "roundabout": "open('.//' + P[:-8] + '/../' + P)",
    "moving": "import os; os.rename(P, 'k')",
    "removing": "import os; os.remove(P)",
    "cutting": "import os; os.truncate(P, 0)",
}


WAYS = [(h, t) for h in HIDING for t in TOUCHING if t in ("open", "moving") or h in ("nothing", "disarming and closing")]


@pytest.mark.parametrize(("hide", "touch"), WAYS)
def test_a_touched_honeypot_cannot_be_hidden(hide: str, touch: str, folder: Path) -> None:
    path = "other/key.txt" if hide == "moving the folder" else TRAP
    tried = f"P = {path!r}\ntry:\n  {TOUCHING[touch].replace('; ', chr(10) + '  ')}\nexcept BaseException as error:\n  pass"
    outcome = play(f"{HIDING[hide]}\n{tried}\nprint('end')", folder)
    assert outcome.touched == (TRAP,), outcome
    assert (folder / path).read_text() == "CANARY"
    assert "honeypot" not in outcome.text


@pytest.mark.parametrize("hide", ["disarming", "disarming and closing"])
def test_what_gets_past_the_hook_is_told_by_the_kernel(hide: str, folder: Path) -> None:
    source = HIDING[hide] + """
import os, socket
tried("file", lambda: open("/etc/passwd"))
tried("network", socket.socket)
tried("process", os.fork)
tried("link", lambda: os.symlink("a", "b"))
tried("signal", lambda: os.kill(os.getppid(), 9))
"""
    outcome = play(source, folder)
    assert [what.split()[0] for what in outcome.denied] == ["file", "network", "process", "link", "signal"], outcome


# -- files without a name --------------------------------------------------------------------------------------------------

SMALL = RunLimits(wall_s=60, cpu_s=30, file_mb=2, disk_mb=8)
UNNAMED = {
    "open": "open(f'{i}', 'wb')\n  f.write(bytes(3 << 19)); f.flush(); os.remove(f'{i}')\n  keep.append(f)",
    "by descriptor": "None; fd = os.open(f'{i}', os.O_CREAT | os.O_RDWR); os.unlink(f'{i}'); os.write(fd, bytes(3 << 19))",
    "mapped and closed": "open(f'{i}', 'w+b')\n  f.write(bytes(3 << 19)); f.flush(); keep.append(mmap.mmap(f.fileno(), 0)); f.close()\n  os.remove(f'{i}')",
    "written over": "open(f'{i}', 'wb')\n  f.write(bytes(3 << 19)); f.flush(); keep.append(f)\n  open('x', 'w').close(); os.rename('x', f'{i}')",
}


@pytest.mark.parametrize("name", UNNAMED)
def test_a_removed_file_that_is_held_counts(name: str, folder: Path) -> None:
    source = f"import mmap, os, time\nkeep = []\nfor i in range(12):\n  f = {UNNAMED[name]}\nprint('held', flush=True)\ntime.sleep(60)"
    outcome = play(source, folder, SMALL)
    assert outcome.error == "disk limit", outcome


def test_a_few_removed_files_are_fine(folder: Path) -> None:
    source = "import tempfile, time\nf = [tempfile.TemporaryFile() for _ in range(3)]\nfor g in f: g.write(bytes(1 << 20)); g.flush()\ntime.sleep(0.3)"
    assert play(source, folder, SMALL).error is None
