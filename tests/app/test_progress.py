"""How far a command is: on a terminal, in a file, as JSON."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import threading

import pytest

from counterpoint.app.terminal import progress as _progress
from counterpoint.app.terminal.progress import Bar, progress, track
from counterpoint.display import tracked


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for two seconds, and every step is told."""
    monkeypatch.delenv("COUNTERPOINT_PROGRESS")  # off in the other tests, for which it would depend on the time that they take
    for name in ("_AFTER_S", "_LINE_S", "_DRAW_S"):
        monkeypatch.setattr(_progress, name, 0.0)
    monkeypatch.setattr(Bar, "line_after_s", 0.0)
    monkeypatch.setattr(Bar, "line_every_s", 0.0)
    monkeypatch.setattr(Bar, "run", lambda self: None)  # no thread: what is told is what the test tells


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COUNTERPOINT_PROGRESS", "off")
    assert list(track([10, 20], "traces")) == [10, 20]
    assert capsys.readouterr().err == ""


def test_a_line_says_what_how_much_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    assert list(track([10, 20], "traces")) == [10, 20]
    first, last = out.getvalue().splitlines()
    assert first.startswith("traces  1/2 50%  ")
    assert first.endswith(" left")
    assert last.startswith("traces  2/2 100%  0 s left")


def test_a_terminal_shows_one_line_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    with progress("runs", 4) as outer:
        outer.at(1, about="grpo\x1b[2J")
        before = len(out.getvalue())
        with progress("inside") as inner:
            outer.step()  # the innermost shows
            inner.step(3)
    text = out.getvalue()
    assert text[before:].startswith("\r\x1b[K")  # what the outer one showed is gone before the inner one begins
    assert text.count("\n") == 0
    assert text.endswith("\r\x1b[K")
    assert "####" in text or "█████" in text
    assert "grpo\N{REPLACEMENT CHARACTER}[2J" in text
    assert "runs  ██████████" not in text
    assert "inside  3" in text


def test_json_is_told_as_json_and_quiet_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    list(track(range(3), "traces", quiet=True))
    assert out.getvalue() == ""
    monkeypatch.setattr(_progress._State, "as_json", True)
    with progress("rows", quiet=True) as bar:
        bar.begin_at(5)
        bar.at(6, 10, "qmix")
    (told,) = (json.loads(line)["progress"] for line in out.getvalue().splitlines())
    assert {k: told[k] for k in ("what", "done", "total", "about")} == {"what": "rows", "done": 6, "total": 10, "about": "qmix"}
    assert told["left_s"] >= 0


def test_nothing_is_said_where_nobody_can_know() -> None:
    bar = Bar("rows", 10)
    bar.begin_at(4)
    assert bar.left_s is None
    assert "40%" in bar.line()
    slow = Bar("runs", 10)
    slow.done = 0.01
    assert slow.left_s is None, "a start is no pace"
    slow.done = 0.2
    assert slow.left_s is not None


_SLOW = """
import sys, time
import click
from counterpoint.app.cli import cli, main
from counterpoint.app.terminal import progress as _progress
_progress._AFTER_S = 0.05
@cli.command("slow")
def slow():
    end = time.monotonic() + 60
    while not _progress._State.bars[-1]._is_shown and time.monotonic() < end:
        time.sleep(0.01)
    click.echo("result")
main(["slow"])
"""


def test_a_command_that_says_nothing_is_seen_on_a_terminal_and_its_result_is_clean() -> None:
    ours, theirs = pty.openpty()
    read: list[bytes] = []

    def drain() -> None:
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:
                return
            if not data:
                return
            read.append(data)

    reader = threading.Thread(target=drain)
    reader.start()
    subprocess.run([sys.executable, "-c", _SLOW], stdout=theirs, stderr=theirs, check=True, timeout=120)
    os.close(theirs)
    reader.join()
    os.close(ours)
    text = b"".join(read).decode()
    assert "\rslow  " in text
    assert "\r\x1b[Kresult" in text


def test_other_rooms_say_how_far_they_are_inside_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    assert list(tracked([1, 2], "seeds")) == [1, 2]  # nobody watches
    assert out.getvalue() == ""
    with _progress.command_bar(["reproduce", "--json"]), progress("claims", 3) as bar:
        bar.at(1, about="hacks, 2 rows")
        assert list(tracked([1, 2], "seeds")) == [1, 2]
    told = [json.loads(line)["progress"] for line in out.getvalue().splitlines()]
    assert [(one["what"], one["done"]) for one in told] == [("claims", 1), ("seeds", 1), ("seeds", 2)]
    assert [one.get("in") for one in told] == [None, "hacks, 2 rows", "hacks, 2 rows"]
    with progress("claims", 3) as bar:
        bar.at(1, about="hacks")
        with progress("seeds", 2) as inner:
            assert inner.line().startswith("hacks: seeds  0/2 0%")
