"""`counterpoint steer` against a running `counterpoint record`: pause, a message that changes the end, stops; and a fork of it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from counterpoint import Store, Trace, problems
from counterpoint.trace.steering import is_steered
from endpoint_help import FaultServer
from plays_help import plays
from steer_help import until
from warm_help import programs

Cpt = Callable[..., Any]

TEAM = (
    "--task",
    "T1",
    "--set",
    "parts=2",
    "--cap",
    "width=2",
    "--model",
    "openai:small",
    "--cap",
    "steps=60",
    "-q",
    "--json",
    "--id",
    "a",
)


def obeys(messages: list[dict[str, str]]) -> str:
    """Workers search without end, until the operator says what to return; the lead answers with what the operator says."""
    said = [line for m in messages for line in re.findall(r"The operator says:\nsay (.*)", m["content"])]
    legal = messages[-1]["content"]
    if said:
        return f"RETURN: {said[-1]}" if "RETURN" in legal else f"STOP: {said[-1]}"
    return "TOOL search: contract" if "TOOL search" in legal else plays(messages)


@contextmanager
def _running(store: Path) -> Iterator[tuple[subprocess.Popen[str], FaultServer]]:
    with FaultServer(obeys, delay_s=0.05) as server:
        command = [f"{programs()}/counterpoint", "play", *TEAM, "--base-url", server.url, "--store", str(store)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            until(lambda: len(server.requests) > 8)
            yield process, server
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def cpt() -> Cpt:
    """What a command tells, run in a process of its own, forked from one that has imported the package."""

    def run(*args: object) -> Any:
        done = subprocess.run([f"{programs()}/counterpoint", *map(str, args)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    return run


def _trace(store: Path) -> Trace:
    with Store(store, read_only=True) as opened:
        return opened.get("a")


def test_a_team_is_paused_told_something_else_and_its_trace_can_be_forked(cpt: Cpt, tmp_path: Path) -> None:
    def steer(*words: str) -> Any:
        return cpt("steer", "a", *words, "--yes", "--json", "--store", tmp_path)

    with _running(tmp_path) as (process, server):
        assert steer("pause")["state"] == "applied"
        until(lambda: server.at_once == 0)
        asked = len(server.requests)
        assert steer("message", "--agent", "lead.1", "--message", "say C-1111|Alder Mills|70000", "--wait", "0")["state"] == "queued"
        assert len(server.requests) == asked, "a team that is paused asks nothing"
        assert steer("resume")["state"] == "applied"
        assert steer("stop", "--agent", "lead.2")["events"][0]["agent"] == "lead.2"
        out, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")
        told = json.loads(out)
        assert (told["ended"], told["steered"], told["answer"]) == ("stopped", True, "C-1111|Alder Mills|70000")
        _is_steered_as_told(_trace(tmp_path))
        server._delay_s = 0.0
        _forks(cpt, tmp_path, server)


def _is_steered_as_told(trace: Trace) -> None:
    assert is_steered(trace)
    assert [str(p) for p in problems(trace) if p.severity == "error"] == []
    orders = [(e.to, trace.text(e)) for e in trace.events if e.type == "human_intervention"]
    assert ("lead.1", "say C-1111|Alder Mills|70000") in orders
    assert ("lead.2", "stop") in orders
    stopped = [e for e in trace.events if e.type == "return" and e.agent == "lead.2"]
    assert [(e.ok, e.error) for e in stopped] == [(False, "stopped")]


def _forks(cpt: Cpt, store: Path, server: FaultServer) -> None:
    """What the operator said is an event like any other: it can be said otherwise, or not at all."""
    trace = _trace(store)
    at = next(e.id for e in trace.events if e.type == "human_intervention" and str(trace.text(e)).startswith("say"))
    ends = []
    for edit in (["--substitute", "say C-2222|Fern Glass|80000"], ["--do", "delete"]):
        told = cpt(
            "fork", "a", "--at", at, *edit, "--model", "openai:small", "--base-url", server.url, "--store", store, "--json"
        )
        with Store(store, read_only=True) as opened:
            forked = opened.get(told["fork"])
        assert is_steered(forked)
        assert told["badges"]["reused"] == trace.index[at]
        ends.append(forked.meta["answer"])
    assert ends == ["C-2222|Fern Glass|80000", "C-1234|Acme Mills|50000"]


def test_a_team_is_stopped_and_answers_with_what_it_has(cpt: Cpt, tmp_path: Path) -> None:
    with _running(tmp_path) as (process, _):
        told = cpt("steer", "a", "stop", "--message", "enough", "--yes", "--json", "--store", tmp_path)
        assert told["state"] == "applied"
        out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    told = json.loads(out)
    assert (told["ended"], told["steered"]) == ("steered", True)
    trace = _trace(tmp_path)
    assert [str(p) for p in problems(trace) if p.severity == "error"] == []
    assert {e.to for e in trace.events if e.type == "human_intervention"} == {"lead", "lead.1", "lead.2"}
