"""Runs that break off: kill -9 and Ctrl-C of a real process; what was acknowledged is there, and resuming ends as if nothing had been."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from counterpoint import InputError, NotFound, Store, Trace, problems
from counterpoint.audits.diff import fingerprint
from counterpoint.lab.team.session import resume_team
from counterpoint.lab.team.state import Limits
from counterpoint.trace.line_records import OPEN_EVENTS, UNFINISHED
from team_help import Says, record, sends
from warm_help import programs

SLOW = Path(__file__).parents[2] / "team_slow.py"


def _begin(store: Path, name: str, topology: str = "centralized", seconds: str = "0.02") -> subprocess.Popen[bytes]:
    return subprocess.Popen([programs() / "python", str(SLOW), str(store), name, seconds, topology], stderr=subprocess.PIPE)


def _events(store: Path, name: str) -> int:
    try:
        with Store(store, read_only=True) as opened:
            return len(opened.get(name).events)
    except (NotFound, InputError):
        return 0


def _until(store: Path, name: str, count: int) -> None:
    deadline = time.monotonic() + 300
    while _events(store, name) < count:
        assert time.monotonic() < deadline, "the team does not get on"
        time.sleep(0.03)


def _story(trace: Trace) -> dict[str | None, tuple[object, ...]]:
    return {e.key: (fingerprint(e), e.t, e.dur) for e in trace.events}


@pytest.mark.parametrize(("topology", "count"), [("centralized", 12), ("centralized", 70), ("swarm", 60)])
def test_a_killed_run_is_there_and_goes_on_to_the_same_end(topology: str, count: int, tmp_path: Path) -> None:
    process = _begin(tmp_path, "killed", topology)
    try:
        _until(tmp_path, "killed", count)
    finally:
        process.kill()
        process.communicate()
    with Store(tmp_path) as store:
        cut = store.get("killed")
        assert cut.meta[UNFINISHED]
        assert len(cut.events) >= count
        assert cut.meta.get(OPEN_EVENTS), "what was under way is marked as open"
        whole = asyncio.run(resume_team("killed", store))
        again = store.get("killed")
    assert UNFINISHED not in again.meta
    assert OPEN_EVENTS not in again.meta
    assert [str(p) for p in problems(again) if p.severity == "error"] == []
    unbroken = record(tmp_path / "other", topology=topology, seed=6, limits=Limits(width=3, steps=20))
    assert _story(again) == _story(unbroken) == _story(whole)
    assert again.rewards == unbroken.rewards
    kept = [e for e in cut.events if e.id not in cut.meta[OPEN_EVENTS]]
    assert [again.events[again.index[e.id]] for e in kept] == kept, "what was recorded is not written again"


def test_ctrl_c_leaves_a_run_that_can_be_resumed_by_the_command(tmp_path: Path) -> None:
    process = _begin(tmp_path, "stopped", seconds="0.1")
    _until(tmp_path, "stopped", 20)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode != 0
    command = [f"{programs()}/counterpoint", "play", "--resume", "stopped", "--store", str(tmp_path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ended"] == "stopped"
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "this run has ended" in again.stdout


def test_only_one_may_go_on_with_a_run(tmp_path: Path) -> None:
    process = _begin(tmp_path, "busy", seconds="0.5")
    try:
        _until(tmp_path, "busy", 5)
        command = [f"{programs()}/counterpoint", "play", "--resume", "busy", "--store", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 6
        assert "is being recorded" in done.stderr
    finally:
        process.kill()
        process.communicate()


_DIES = """
import os, sys
from pathlib import Path
from team_help import Says, record, sends
from counterpoint.lab.team.state import Limits
from counterpoint.lab.team.tools.outbox import outbox
send = outbox._append
def dies(self, line):
    send(self, line)
    os._exit(9)
outbox._append = dies
record(Path(sys.argv[1]), using=Says(sends), trace_id="sent", tools={"outbox": {}}, limits=Limits(width=1, steps=4))
"""


@pytest.mark.parametrize(("consent", "lines", "error"), [(frozenset(), 1, "held"), (frozenset({"outbox"}), 2, None)])
def test_what_may_have_been_sent_is_not_sent_again_without_consent(
    consent: frozenset[str], lines: int, error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died between sending and recording: nobody knows whether it was sent."""
    monkeypatch.chdir(tmp_path)
    store, box = tmp_path / "store", tmp_path / "outbox.jsonl"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(SLOW.parent), *sys.path])}
    done = subprocess.run([programs() / "python", "-c", _DIES, str(store)], env=env, check=False)
    assert done.returncode == 9
    assert len(box.read_text().splitlines()) == 1
    with Store(store) as opened:
        trace = asyncio.run(resume_team("sent", opened, model=Says(sends), consent=consent))
    assert len(box.read_text().splitlines()) == lines
    result = next(e for e in trace.events if e.type == "tool_result")
    assert result.error == error
