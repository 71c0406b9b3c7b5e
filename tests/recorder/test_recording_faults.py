"""What may go wrong around a recording: a full disk, a defect of ours, Ctrl-C, kill -9, a fork. The team goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from counterpoint import Store, problems, record

HEAD = """
import asyncio, os, resource, signal, sys, time
from counterpoint import Store, problems, record
folder = sys.argv[1]
"""


def _run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HEAD + textwrap.dedent(code), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_a_full_disk_is_told_once_and_the_team_goes_on(tmp_path: Path) -> None:
    done = _run(
        """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        rec = record(folder, task="demo", trace_id="t1", agent="lead")
        with rec:
            rec.stop("kept")
            assert rec.sync()
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            total = 0
            for i in range(2000):
                with rec.tool_call("t", "x" * 50) as call:
                    call.result("y" * 50)
                    total += 1
                if i % 1000 == 999:
                    time.sleep(0.2)
        print("total", total, "trace", rec.trace, "problems", len(rec.problems), rec.problems[0])
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "total 2000 trace None problems" in done.stdout
    assert "no space left to write" in done.stdout
    told = [line for line in done.stderr.splitlines() if "the program continues" in line]
    assert len(told) == 1, done.stderr
    kept = Store(tmp_path).get("t1")
    assert kept.meta["unfinished"] is True
    assert kept.text(kept.events[0]) == "kept"


def test_a_store_that_cannot_be_opened_records_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("not a folder")
    with record(tmp_path / "file", task="demo") as rec:
        result = rec.agent(lambda: "fine")()
    assert result == "fine"
    assert rec.trace is None
    assert rec.problems[-1].endswith("is a file, not a store; name a folder with --store DIR; nothing of it is recorded")
    assert "is a file, not a store" in capsys.readouterr().err
    assert len(rec.problems) == 1


def test_a_defect_of_ours_is_no_defect_of_the_team(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:

        @rec.tool
        def look(words: str) -> str:
            return words

        def broken(*args: object, **kwargs: object) -> None:
            raise RuntimeError("a bug")

        assert rec.session is not None
        with monkeypatch.context() as patched:
            patched.setattr(rec.session.recorder, "open", broken)
            assert look("one") == "one"
            assert look("two") == "two"
        assert look("three") == "three"
    assert rec.problems == ["RuntimeError: a bug"] * 2
    assert capsys.readouterr().err.count("RuntimeError: a bug; the program continues") == 1
    assert [rec.trace.text(e) for e in rec.trace.events if e.type == "tool_call"] == ["three"]
    assert problems(rec.trace) == []


def test_a_name_that_fails_is_a_problem_and_the_agent_runs(tmp_path: Path) -> None:
    with record(tmp_path, task="demo") as rec:
        assert rec.agent(name=lambda x: x.missing)(lambda x: x + 1)(1) == 2
        assert rec.tool(text=lambda value: 1 / 0)(lambda: "r")() == "r"
    assert [p.split(":")[0] for p in rec.problems] == ["AttributeError", "ZeroDivisionError"]


def test_what_happens_after_the_end_is_not_recorded_and_said(tmp_path: Path) -> None:
    with record(tmp_path, task="demo") as rec:
        late = rec.tool_call("t")
        late.__enter__()
    late.__exit__(None, None, None)
    assert rec.trace.meta["open_events"] == ["e1"]
    assert rec.problems == ["something happened after the end of the recording, and is not in it"]


def test_ctrl_c_leaves_what_was_recorded_and_can_be_resumed(tmp_path: Path) -> None:
    done = _run(
        """
        rec = record(folder, task="demo", trace_id="t1", agent="lead")

        @rec.tool
        async def hang():
            await asyncio.sleep(30)

        @rec.agent
        async def lead():
            await asyncio.gather(hang(), hang())

        async def main():
            async with rec:
                asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)
                await lead()

        asyncio.run(main())
        """,
        tmp_path,
    )
    assert done.returncode in (-signal.SIGINT, 130), done.stderr
    store = Store(tmp_path)
    kept = store.get("t1")
    assert kept.meta["unfinished"] is True
    assert [(e.type, e.error) for e in kept.events if e.type == "tool_result"] == [("tool_result", "CancelledError")] * 2
    with store.resume("t1") as run:
        assert len(run.finish().events) == len(kept.events)


def test_kill_9_keeps_what_was_acknowledged_and_marks_what_was_open(tmp_path: Path) -> None:
    code = """
    rec = record(folder, task="demo", trace_id="t1", agent="lead")
    with rec:
        i = 0
        while True:
            with rec.tool_call("search", str(i)) as call:
                call.result("page")
                rec.sync()
                print(i, flush=True)
                i += 1
    """
    command = [sys.executable, "-c", HEAD + textwrap.dedent(code), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.readlines()
    acknowledged = max(int(line) for line in told if line.endswith("\n"))
    trace = Store(tmp_path).get("t1")
    called = {trace.text(e): e.id for e in trace.events if e.type == "tool_call"}
    assert str(acknowledged) in called
    answered = {e.src for e in trace.edges if e.type == "tool_dependency"}
    assert called.keys() >= {str(i) for i in range(acknowledged + 1)}
    still = [name for text, name in called.items() if name not in answered]
    assert set(trace.meta["open_events"]) == set(still)
    assert trace.meta["unfinished"] is True


def test_a_forked_child_records_nothing_and_its_parent_does(tmp_path: Path) -> None:
    done = _run(
        """
        with record(folder, task="demo", trace_id="t1", agent="lead") as rec:
            look = rec.tool(lambda x: x)
            look("parent")
            child = os.fork()
            if child == 0:
                look("child")
                sys.stderr.flush()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            look("parent again")
        texts = [rec.trace.text(e) for e in rec.trace.events if e.type == "tool_call"]
        print(texts, rec.problems)
        """,
        tmp_path,
    )
    assert done.stdout == "['parent', 'parent again'] []\n", done.stderr
    assert done.stderr == ""


def test_events_appear_while_they_are_under_way(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", trace_id="t1", agent="lead") as rec, rec.tool_call("browser", "page"):
        assert rec.sync()
        live = Store(tmp_path, read_only=True).get("t1")
        assert live.meta["open_events"] == [live.events[0].id]
        assert (live.events[0].tool, live.events[0].dur) == ("browser", None)
        time.sleep(0.01)
    assert rec.trace.events[0].dur >= 0.01
    assert os.listdir(tmp_path / "journal") == []


def test_a_disk_that_has_room_again_gets_it_all(tmp_path: Path) -> None:
    done = _run(
        """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        rec = record(folder, task="demo", trace_id="t1", agent="lead")
        look = rec.tool(lambda n: {"page": [n, "y" * 50]})
        with rec:
            rec.stop("kept")
            assert rec.sync()
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
            said = [look(i) for i in range(200)]
            refused = rec.sync()
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            print("synced", refused, rec.sync(), len(said))
        answers = [e for e in rec.trace.events if e.type == "tool_result"]
        print("answers", len(answers), rec.trace.text(answers[-1])[:14], len(problems(rec.trace)))
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["synced False True 200", 'answers 200 {"page":[199," 0']
    assert done.stderr.count("the program continues") == 1


def test_a_store_that_somebody_removes_is_said_and_nothing_is_acknowledged_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "store"
    with record(place, task="demo", agent="lead") as rec:
        look = rec.tool(lambda n: n + 1)
        assert look(1) == 2
        assert rec.sync()
        shutil.rmtree(place)
        assert [look(n) for n in range(5)] == [1, 2, 3, 4, 5]
        assert [rec.sync() for _ in range(3)] == [False] * 3
        assert look(7) == 8
    assert rec.trace is None
    assert all("somebody removed the journal" in problem for problem in rec.problems)
    assert rec.problems[-1].endswith("nothing of it is recorded")
    assert capsys.readouterr().err.count("the program continues") == 1
    with record(place, task="demo") as again:  # the next one begins anew
        again.stop("x")
    assert again.trace is not None


def test_a_store_that_is_moved_away_keeps_what_was_acknowledged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, away = tmp_path / "store", tmp_path / "away"
    with record(place, task="demo", agent="lead", trace_id="t1") as rec:
        look = rec.tool(lambda n: n + 1)
        assert look(1) == 2
        place.rename(away)
        assert look(2) == 3
        assert rec.sync()
    assert rec.trace is None
    assert "what there is stays in its journal" in rec.problems[0]
    assert capsys.readouterr().err.count("the program continues") == 1
    kept = Store(away).get("t1")
    assert [kept.text(e) for e in kept.events if e.type == "tool_result"] == ["2", "3"]
