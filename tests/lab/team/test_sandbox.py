"""The sandbox from the side of honest programs, and on machines that have less."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from counterpoint.errors import InputError, Refused
from counterpoint.lab.team import sandbox
from counterpoint.lab.team.sandbox import ProgramOutcome, RunLimits, Sandbox, Strength, folders, strength
from counterpoint.lab.team.tools.python import python
from tools_help import instance, place, run

needs_landlock = pytest.mark.skipif(not strength().confines_files, reason=f"this machine has only: {strength()}")


def play(source: str, folder: Path, **options: object) -> ProgramOutcome:
    return run(Sandbox(RunLimits(), **options).run(source, folder))  # type: ignore[arg-type]


HONEST = {
    "printing": ("print('hi', 1 + 1)", "hi 2\n"),
    "unicode": ("print('ĳ → 漢')", "ĳ → 漢\n"),
    "both streams in order": ("import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')", "a\nb\nc\n"),
    "json, math, re": ("import json, math, re\nprint(json.dumps({'a': math.factorial(5), 'b': re.findall('[a-z]', 'x1y')}))", '{"a": 120, "b": ["x", "y"]}\n'),
    "dates and numbers": ("import datetime, decimal, fractions, statistics\nprint(datetime.date(2024, 2, 28) + datetime.timedelta(2), fractions.Fraction(2, 4), statistics.mean([1, 2]))", "2024-03-01 1/2 1.5\n"),
    "hashes and compression": ("import hashlib, zlib, lzma, bz2\nprint(hashlib.sha256(b'a').hexdigest()[:6], len(lzma.decompress(lzma.compress(b'a' * 99))))", "ca9781 99\n"),
    "own files": ("import os\nos.makedirs('a/b')\nopen('a/b/x.txt', 'w').write('v')\nos.rename('a/b/x.txt', 'y.txt')\nprint(open('y.txt').read(), sorted(os.listdir()))\nos.remove('y.txt'); os.rmdir('a/b')", "v ['a', 'y.txt']\n"),
    "paths, csv and temporary files": ("import csv, tempfile, pathlib, shutil\npathlib.Path('t').touch()\nshutil.copyfile('t', 'u')\nwith tempfile.NamedTemporaryFile('w+') as f:\n  csv.writer(f).writerow([1, 2]); f.seek(0); print(f.read().strip(), pathlib.Path('u').exists())", "1,2 True\n"),
    "a database of its own": ("import sqlite3\nwith sqlite3.connect('d.db') as d:\n  d.execute('create table t (a)'); d.execute('insert into t values (1)')\nprint(sqlite3.connect('d.db').execute('select * from t').fetchall())", "[(1,)]\n"),
    "a module of its own": ("open('mine.py', 'w').write('x = 3')\nimport mine\nprint(mine.x)", "3\n"),
    "dataclasses and pickles of its own": ("import dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n  a: int\nprint(pickle.loads(pickle.dumps(P(2))))", "P(a=2)\n"),
    "ending by hand": ("print('x')\nexit()", "x\n"),
    "what to do at the end": ("import atexit\natexit.register(print, 'bye')", "bye\n"),
    "an alarm of its own": ("import signal\ndef late(*_): raise TimeoutError\nsignal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ntry:\n  while True: sum(range(99))\nexcept TimeoutError: print('late')", "late\n"),
    "throwing away": ("print('x', file=open('/dev/null', 'w'))", ""),
    "no input": ("import sys\nprint(repr(sys.stdin.read()))", "''\n"),
    "an empty world": ("import os\nprint(sorted(os.environ), os.getcwd())", "['HOME', 'LANG', 'PATH', 'PYTHONHASHSEED', 'TMPDIR'] .\n"),
    "the same order each time": ("print(list({'a', 'b', 'c', 'd', 'e'}))", None),
}  # fmt: skip


@needs_landlock
@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_work(name: str, tmp_path: Path) -> None:
    source, expected = HONEST[name]
    outcome = play(source, tmp_path)
    assert (outcome.error, outcome.exit, outcome.denied) == (None, 0, ()), outcome
    assert outcome.text == (play(source, tmp_path).text if expected is None else expected)


@needs_landlock
def test_a_traceback_shows_the_program_and_no_path(tmp_path: Path) -> None:
    outcome = play("import json\ndef f(x):\n    return json.loads(x)\nf('{')", tmp_path)
    assert (outcome.error, outcome.exit, outcome.raised) == ("failed", 1, "JSONDecodeError")
    assert 'File "<program>", line 3, in f\n    return json.loads(x)' in outcome.text
    assert 'File "json/__init__.py"' in outcome.text
    assert str(tmp_path) not in outcome.text
    assert sys.base_prefix not in outcome.text
    assert "sandbox" not in outcome.text


@needs_landlock
@pytest.mark.parametrize(
    ("source", "exit_", "said"),
    [
        ("exit(3)", 3, ""),
        ("raise SystemExit('sorry')", 1, "sorry"),
        ("x = ", 1, "SyntaxError"),
        ("1/0", 1, "ZeroDivisionError"),
        ("\0", 1, "null bytes"),
        ("'\ud800'", 0, ""),
    ],
)
def test_how_a_program_ends(source: str, exit_: int, said: str, tmp_path: Path) -> None:
    outcome = play(source, tmp_path)
    assert (outcome.exit, outcome.error) == (exit_, "failed" if exit_ else None)
    assert said in outcome.text


@needs_landlock
def test_what_was_printed_before_a_limit_is_kept(tmp_path: Path) -> None:
    outcome = run(Sandbox(RunLimits(wall_s=4.0)).run("print('so far')\nimport time\ntime.sleep(60)", tmp_path))
    assert (outcome.text, outcome.error) == ("so far\n", "timeout")


@needs_landlock
def test_files_begin_as_the_instance_says_and_persist(tmp_path: Path) -> None:
    tool = python(instance(files={"data/in.txt": "ten\n"}))
    here = place(tmp_path / "agent")
    assert run(tool.call({"code": "print(open('data/in.txt').read()); open('out.txt', 'w').write('kept')"}, here)).text == "ten"
    assert run(tool.call({"code": "print(open('out.txt').read())"}, here)).text == "kept"
    assert run(tool.call({"code": "pass"}, here)).text == "(no output)"
    assert here.folder.stat().st_mode & 0o777 == 0o700


def test_without_landlock_it_refuses_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "strength", lambda: Strength(0, True, True))
    with pytest.raises(Refused, match=r"cannot confine files.*weak=True"):
        python(instance())


def test_weak_means_the_hook_alone_and_must_be_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sandbox, "strength", lambda: Strength(0, False, True))
    assert play("print(1)", tmp_path, weak=True).text == "1\n"
    for source in ("open('/etc/passwd')", "import socket; socket.socket()", "import os; os.fork()"):
        assert play(source, tmp_path, weak=True).error == "denied"


@needs_landlock
def test_a_layer_that_the_kernel_refuses_ends_it_before_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sandbox.landlock, "handled", lambda abi: b"\xff" * 8)
    outcome = play("open('ran', 'w')", tmp_path)
    assert outcome.error == "unsafe"
    assert not (tmp_path / "ran").exists()


def test_strength_says_its_layers() -> None:
    assert str(Strength(7, True, True)) == "Landlock 7, seccomp, limits, audit hook"
    assert not Strength(0, True, True).confines_files


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", "a\0b"])
def test_a_file_of_an_instance_stays_inside(name: str) -> None:
    with pytest.raises(InputError, match="cannot lie at"):
        folders.checked({name: ""})


def test_an_unknown_limit_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'cpu_s'"):
        python(instance(), weak=True, cpus=1)


def test_a_folder_is_removed_however_deep_and_odd(tmp_path: Path) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("x")
    folders.make(top, {"a/b/c.txt": "x", "d.txt": "y"})
    (top / "link").symlink_to(outside)
    (top / "a" / "locked").mkdir(mode=0)
    path = top
    for _ in range(30):  # deeper than a path may be long
        path = path / ("n" * 200)
        if len(str(path)) > 3500:
            break
        path.mkdir()
    assert folders.is_over(top, 1 << 30, 5)
    assert not folders.is_over(top, 1 << 30, 500)
    assert folders.is_over(top, 1, 500)
    folders.remove(top)
    assert not top.exists()
    assert (outside / "keep").read_text() == "x"
    folders.remove(top)
