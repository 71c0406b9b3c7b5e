"""`counterpoint steer`: orders to a team in another process take effect, are said to be queued, or are refused."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from counterpoint.recorder.control import FileControl
from counterpoint.store import Store
from counterpoint.trace import Event
from counterpoint.trace.steering import is_steered
from ends_help import Ends
from steer_help import running, until
from web_help import CPT


def test_a_team_is_paused_told_resumed_and_stopped(tmp_path: Path, run: Ends) -> None:
    path = tmp_path / "s"

    def steer(*words: str) -> tuple[int, str, str]:
        return run("steer", "runn", *words, "--store", path, "--yes")

    def count() -> int:
        with Store(path, read_only=True) as store:
            return sum(event.agent == "lead.1" for event in store.get("running").events)

    with running(path) as process:
        code, out, err = steer("pause", "--agent", "lead.1")
        assert (code, err) == (0, "")
        assert out.startswith("pause lead.1 of running: took effect at e")
        assert "(lead.1, " in out
        before = count()
        code, out, _ = steer("message", "--agent", "lead.2", "--message", "only the second ledger", "--json")
        told = json.loads(out)
        assert (code, told["state"], told["order"]["agent"], [one["agent"] for one in told["events"]]) == (0, "applied", "lead.2", ["lead.2"])
        assert count() == before, "it is paused, and yet it worked"
        assert steer("resume", "--agent", "lead.1")[0] == 0
        until(lambda: count() > before)
        code, out, _ = steer("stop", "--message", "enough", "--json")
        assert (code, json.loads(out)["order"]["tree"]) == (0, True)
        assert process.wait(10) == 0
        code, out, err = steer("pause")
        assert code == 5
        assert "is over" in err
        assert "counterpoint fork running" in err
    with Store(path, read_only=True) as store:
        trace = store.get("running")
        assert is_steered(trace)
        assert [row.is_steered for row in store.rows()] == [True]
        said = [trace.text(e) for e in trace.events if e.type == "human_intervention" and e.to == "lead.2"]
        assert said == ["only the second ledger", "enough"]
    with Store(path) as store:
        store.add(replace(trace, trace_id="alone", events=[e for e in trace.events if e.type != "human_intervention"], edges=[]))
    assert "B was steered by hand: running" in run("compare", "traces", "alone", "running", "--store", path)[1]
    assert json.loads(run("compare", "traces", "running", "alone", "--store", path, "--json")[1])["steered"] == ["running"]
    assert "steered by hand" in run("audit", "running", "--only", "scale", "--store", path)[1]
    assert "1 of 2 traces were steered" in run("audit", "running", "alone", "--summary", "--only", "scale", "--store", path)[2]
    assert [line.split()[0] for line in run("ls", "steered", "--store", path)[1].splitlines()[1:]] == ["running"]


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """A store with a running team that comes to no safe point, a recording that takes no orders, and one that was cut off."""
    path = tmp_path / "s"
    with Store(path) as store:
        runs = [store.record(name, task_id="t") for name in ("busy", "deaf", "dead")]
        for one in runs:
            one.event(Event(id="e1", t=0.0, type="message", agent="lead", role="lead"))
            one.sync()
        controls = [FileControl(path, name) for name in ("busy", "dead")]
        runs[2].release()
        yield path
        for control in controls:
            asyncio.run(control.close())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["busy", "pause", "--yes", "--wait", "0.2"], 6, "queued for the next safe point"),
        (["busy", "pause", "--yes", "--wait", "0"], 0, ""),
        (["busy", "pause"], 2, "--yes"),
        (["busy", "message", "--yes"], 2, "a message needs a text"),
        (["busy", "dance", "--yes"], 2, "dance"),
        (["busy", "stop", "--agent", "laed", "--yes"], 3, "did you mean 'lead'?"),
        (["bussy", "stop", "--yes"], 3, "did you mean 'busy'?"),
        (["deaf", "stop", "--yes"], 5, "takes no orders"),
        (["dead", "stop", "--yes"], 5, "counterpoint play --resume dead"),
    ],
)
def test_what_cannot_be_done_at_once_says_so(silent: Path, run: Ends, words: list[str], code: int, said: str) -> None:
    ended, _, err = run("steer", *words, "--store", silent)
    assert ended == code
    assert said in err
    assert "Traceback" not in err


def test_json_says_what_is_queued_and_what_is_wrong(silent: Path, run: Ends) -> None:
    code, out, _ = run("steer", "busy", "stop", "--yes", "--wait", "0.1", "--store", silent, "--json")
    told = json.loads(out)
    assert (code, told["state"], told["events"], told["order"]["action"]) == (6, "queued", [], "stop")
    code, out, _ = run("steer", "deaf", "stop", "--yes", "--store", silent, "--json")
    assert (code, json.loads(out)["error"]["exit"]) == (5, 5)


@pytest.mark.parametrize(("answer", "code", "count"), [("n", 130, 0), ("y", 0, 1)])
def test_on_a_terminal_it_asks(silent: Path, answer: str, code: int, count: int) -> None:
    ours, theirs = pty.openpty()
    command = [*CPT, "steer", "busy", "pause", "--wait", "0", "--store", str(silent)]
    process = subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    try:
        asked = b""
        while b"steered" not in asked:
            asked += os.read(ours, 1000)
        os.write(ours, answer.encode() + b"\n")
        assert process.wait(300) == code
    finally:
        process.kill()
        os.close(ours)
        assert process.stdout is not None
        process.stdout.close()
    (control,) = (path for path in (silent / "control").iterdir() if path.name.startswith("busy"))
    assert len(control.read_text().splitlines()) == count
