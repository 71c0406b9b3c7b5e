"""A session that hangs is seen: in the list, in the report, and in the live view, by its title and since when."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.hung_help import claude, codex
from counterpoint.app.api.report import report
from counterpoint.app.discover import read_logs
from counterpoint.app.viewer.live import Follower
from counterpoint.store import Store
from counterpoint.store.summary import Summary
from counterpoint.trace import Event
from counterpoint.trace.activity import waiting_of
from counterpoint.trace.ending import ending_words
from ends_help import Ends
from logs import REAL

HUNG = {"claude": "Wait for the door to dry.", "codex": "Wait for the paint to dry."}


@pytest.mark.parametrize("write", [claude, codex])
@pytest.mark.parametrize("how", [[], ["--workers", "2"]])
def test_an_imported_session_that_hangs_is_open(
    write: Callable[[Path, float], Path], how: list[str], tmp_path: Path, run: Ends
) -> None:
    began = time.time() - 7_500
    write(tmp_path / "logs", began)
    store = tmp_path / "s"
    assert run("import", tmp_path / "logs", *how, "--store", store)[0] == 0
    title = HUNG[write.__name__]
    code, out, _ = run("ls", "open", "--store", store)
    assert code == 0
    assert title in out
    assert "sleep 99999" in out
    assert "2h0" in out, "for how long"
    assert "No trace matches" in run("ls", "finished", "--store", store)[2]
    told = json.loads(run("report", "--json", "--store", store)[1])["waiting"]
    assert [(h["title"], h["since"] - began < 60) for h in told] == [(title, True)]
    text = run("report", "--store", store)[1]
    assert "Open calls" in text
    assert title in text
    live = Follower(store).look().traces
    assert [one.title for one in live] == [title]
    assert live[0].silent_s > 7_000
    waits = {one["what"]: one["at"] - began < 60 for one in live[0].open}
    assert waits[next(what for what in waits if "sleep 99999" in what)]


def test_of_calls_made_at_once_the_one_without_an_answer_is_waited_for(tmp_path: Path) -> None:
    def waits(**more: object) -> list[str]:
        path = claude(tmp_path, time.time() - 100, **more)  # type: ignore[arg-type]
        return [one.what for one in waiting_of(next(read_logs(path)))]

    assert waits(answers=0) == ["Read: /srv/shop/door.txt", "Bash: sleep 99999"]
    assert waits(answers=1) == ["Bash: sleep 99999"]
    assert waits(answers=2) == []
    assert waits(answers=1, then="Are you there?") == ["Bash: sleep 99999"], "words do not answer a call"
    assert waits(answers=1, then="[Request interrupted by user for tool use]") == []


def test_an_answered_call_is_not_open(tmp_path: Path) -> None:
    assert waiting_of(next(read_logs(codex(tmp_path, time.time(), is_answered=True)))) == ()
    hung = next(read_logs(codex(tmp_path, time.time())))
    assert ending_words(hung) == ["without an end: call_1 shell of root"]


def test_a_session_that_goes_on_is_open_no_more(tmp_path: Path, run: Ends) -> None:
    at = time.time() - 100
    store = tmp_path / "s"
    for answers, found in ((1, 1), (2, 0)):
        claude(tmp_path / "logs", at, answers=answers)
        assert run("import", tmp_path / "logs", "--store", store)[0] == 0
        assert len(run("ls", "open", "--json", "--store", store)[1].splitlines()) == found


def test_a_follower_sees_a_session_begin_to_hang_and_go_on(tmp_path: Path, run: Ends) -> None:
    store = tmp_path / "s"
    Store(store).close()
    follower = Follower(store)
    assert follower.look().traces == []
    at = time.time()
    for answers, waits in ((1, ["Bash: sleep 99999"]), (2, [])):
        claude(tmp_path / "logs", at, answers=answers)
        run("import", tmp_path / "logs", "--store", store)
        follower._looked = -1.0  # it looks at the store twice a second
        assert [one["what"] for one in follower.look().traces[0].open] == waits


def test_a_session_that_was_cut_off_long_ago_is_not_live(tmp_path: Path, run: Ends) -> None:
    claude(tmp_path / "logs", time.time() - 40 * 86_400)
    run("import", tmp_path / "logs", "--store", tmp_path / "s")
    assert Follower(tmp_path / "s").look().traces == []
    assert "40d" in run("ls", "open", "--store", tmp_path / "s")[1]


def test_our_own_recording_that_hangs(tmp_path: Path, run: Ends) -> None:
    began = time.time() - 3_700
    store = Store(tmp_path / "s")
    meta = {"title": "Dry the door", "began": began, "names": {"a4ca7529859c": "Fan"}}
    with store.record("0a7b1c2d-0000-0000", task_id="dry", meta=meta) as recording:
        recording.open(Event(id="e1", t=0.0, at=began, type="tool_call", agent="a4ca7529859c", tool="fan"))
        recording.sync()
        out = run("ls", "open", "--store", tmp_path / "s")[1]
        assert "Dry the door" in out
        assert "open: fan for 1h0" in out
        live = Follower(tmp_path / "s").look().traces
        assert (live[0].title, live[0].open[0]["name"]) == ("Dry the door", "Fan")
        assert [h.title for h in report("open", store=store).waiting] == ["Dry the door"]
        recording.finish()
    line = next(row for row in store.rows())
    assert (line.waiting, line.is_open) == ((), False), "what is over waits for nothing"
    store.close()


@pytest.mark.skipif(not REAL.is_dir(), reason="the developers' logs are not here")
def test_real_sessions_that_came_to_an_end_wait_for_nothing() -> None:
    traces = [t for name in ("claude_code", "codex") for t in read_logs(REAL / name)]
    assert [t.trace_id for t in traces if Summary.of_trace(t).waiting] == []
