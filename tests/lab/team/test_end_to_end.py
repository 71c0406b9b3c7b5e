"""`counterpoint record` against an endpoint that fails in every way: the run goes on or ends in order, and the trace says how."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from counterpoint import Store, Trace, problems
from counterpoint.app.cli import main
from counterpoint.trace.line_records import OPEN_EVENTS, UNFINISHED
from counterpoint.trace.model_calls import prompt_of
from endpoint_help import FaultServer, closed_port
from plays_help import plays
from warm_help import programs

SMALL = ("--task", "T1", "--set", "parts=2", "--cap", "width=2", "--model", "openai:small", "-q")
Ends = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cpt(capsys: pytest.CaptureFixture[str]) -> Ends:
    """The command line in this process: exit code, stdout, stderr."""

    def run(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in args])
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return run


def _trace(store: Path, name: str) -> Trace:
    with Store(store, read_only=True) as opened:
        return opened.get(name)


def _sound(trace: Trace) -> Trace:
    assert [str(p) for p in problems(trace) if p.severity == "error"] == []
    assert OPEN_EVENTS not in trace.meta
    return trace


def _calls(trace: Trace) -> list[dict[str, Any]]:
    return [e.extra["call"] for e in trace.events if e.model and e.extra and "call" in e.extra]


@pytest.mark.parametrize(
    ("faults", "retried"),
    [
        (["429 ms 50", "ok", "429 after 0"], {"rate"}),
        (["500", "ok", "503"], {"server"}),
        (["cut", "ok", "cut clean", "hang up"], {"cut"}),
        (["wrong json", "ok", "html"], {"malformed"}),
        (["empty", "ok", "only reasoning"], {"empty"}),
        (["silent", "ok", "stall"], {"slow"}),
    ],
)
def test_what_fails_for_a_while_is_asked_again_and_the_event_says_so(
    faults: list[str], retried: set[str], tmp_path: Path, cpt: Ends
) -> None:
    limit_s = 0.6 if retried == {"slow"} else 120  # a slow machine is no slow endpoint
    with FaultServer(plays, faults=faults) as server:
        code, out, err = cpt(
            "play", *SMALL, "--base-url", server.url, "--model-set", f"timeout_s={limit_s}", "--store", tmp_path, "--id", "a", "--json"
        )
    assert (code, err) == (0, "")
    assert json.loads(out)["ended"] == "stopped"
    calls = _calls(_sound(_trace(tmp_path, "a")))
    assert sum(call.get("attempts", 1) for call in calls) == len(server.requests)
    assert {kind for call in calls for kind in call["told"].get("retried", ())} == retried
    for request in server.requests:
        roles = [m["role"] for m in request["messages"]]
        assert roles[:2] == ["system", "user"]
        assert all(a != b for a, b in pairwise(roles)), "roles take turns: some templates refuse all else"


@pytest.mark.parametrize(
    ("always", "kind", "says"),
    [
        ("silent", "slow", "was silent for 0.2 s"),
        ("500", "server", "HTTP 500"),
        ("401", "refused", "HTTP 401"),
        ("down", "down", "cannot be reached"),
    ],
)
def test_an_endpoint_that_stays_broken_is_one_error_with_a_kept_trace(
    always: str, kind: str, says: str, tmp_path: Path, cpt: Ends
) -> None:
    with FaultServer(plays, always=always) as server:
        url = closed_port() if always == "down" else server.url
        code, _, err = cpt(
            "play", *SMALL, "--base-url", url, "--model-set", f"timeout_s={0.2 if kind == 'slow' else 120}", "--model-set", "retries=0", "--store", tmp_path, "--id", "a"
        )
    assert (code, err.count("error:")) == (1, 1)
    assert says in err
    assert f"counterpoint show a --store {tmp_path}" in err
    trace = _sound(_trace(tmp_path, "a"))
    assert {e.error for e in trace.events if e.ok is False} == {f"model: {kind}"}
    assert len(server.requests) <= 3, "who was asked in vain is not asked for repairs"
    code, out, _ = cpt("show", "a", "e2", "--store", tmp_path, "--prompt")
    assert code == 0
    assert f"failed: {kind}" in out
    assert "Question from user:" in out


def test_a_prompt_that_is_too_long_is_shortened_once_and_the_team_goes_on(tmp_path: Path, cpt: Ends) -> None:
    refused: list[int] = []

    class Short(FaultServer):
        async def _respond(self, fault: str, asked: dict[str, Any], writer: Any) -> bool:
            size = sum(len(m["content"]) for m in asked["messages"])
            is_long = size > 2200
            refused.append(size) if is_long else None
            return await super()._respond("too long vllm" if is_long else fault, asked, writer)

    with Short(plays) as server:
        code, out, err = cpt("play", *SMALL, "--base-url", server.url, "--store", tmp_path, "--id", "a", "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["ended"] == "stopped"
        trace = _sound(_trace(tmp_path, "a"))
        failed = [e for e in trace.events if e.error == "model: too long"]
        assert len(failed) == len(refused) >= 1
        by_key = {e.key: e for e in trace.events}
        for event in failed:
            again = by_key[f"{event.key}|shorter"]
            assert again.ok
            assert (event.id, again.id) in {(e.src, e.dst) for e in trace.edges}
            assert sum(map(len, prompt_of(trace, again))) <= sum(map(len, prompt_of(trace, event))) * 0.6
        at = next(e.id for e in reversed(trace.events) if e.type == "return")
        count = len(server.requests)
        told = json.loads(cpt("fork", "a", "--at", at, "--substitute", "none", "--store", tmp_path, "--json", "--model", "openai:small",
                              "--base-url", server.url)[1])  # fmt: skip
        assert told["live"]["calls"]["recorded"] >= len(failed), "what was too long is too long in a fork, and is not asked again"
        assert len(server.requests) - count == told["live"]["calls"]["re-run"]


def test_credit_of_a_team_behind_an_endpoint(tmp_path: Path, cpt: Ends) -> None:
    with FaultServer(plays) as server:
        live = ("--base-url", server.url)
        assert cpt("play", *SMALL, *live, "--store", tmp_path, "--id", "a")[0] == 0
        asked = len(server.requests)
        code, _, err = cpt("credit", "a", "--mechanism", "message_delete", "--store", tmp_path)
        assert (code, "--model openai:..." in err) == (5, True), err
        assert len(server.requests) == asked, "an endpoint is not asked unnamed"
        code, out, err = cpt("credit", "a", "--mechanism", "message_delete", "--model", "openai:small", *live, "--store", tmp_path)
        assert code == 0
        assert err.startswith("message_delete: ")  # what it may cost is said first
        assert "tokens" in err
        assert len(err.splitlines()) == 1
        assert out.count("\nmessage") >= 2
        assert len(server.requests) > asked


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        (["--cap", "tokens=2500"], "because the token budget is exhausted"),
        (["--cap", "usd=0.002", "--model-set", "price=1,2"], "because the dollar budget is exhausted: $"),
        (["--cap", "seconds=0.7"], "because the time budget is exhausted"),
    ],
)
def test_a_spent_budget_ends_the_run_in_order_and_says_why(budget: list[str], says: str, tmp_path: Path, cpt: Ends) -> None:
    with FaultServer(plays, delay_s=0.15 if "seconds" in budget[1] else 0) as server:
        code, out, err = cpt("play", *SMALL, "--base-url", server.url, *budget, "--store", tmp_path, "--id", "a")
    assert (code, err) == (0, "")
    assert says in out
    trace = _sound(_trace(tmp_path, "a"))
    assert trace.meta["ended"] == "budget"
    assert trace.costs["tokens"] <= 2500
    assert (trace.costs.get("cost_usd") or 0.0) <= 0.002


def test_a_wrong_budget_or_tool_leaves_no_run_behind(tmp_path: Path, cpt: Ends) -> None:
    assert cpt("play", "--task", "T1", "--cap", "usd=1", "--store", tmp_path)[0] == 2
    assert cpt("play", "--task", "T1", "--tool", "nosuch", "--store", tmp_path)[0] == 3
    assert "No traces here" in "".join(cpt("ls", "--store", tmp_path)[1:])


# -- function calls ----------------------------------------------------------------------------------------------------------


class ToolCaller(FaultServer):
    """Answers with the function call that the text grammar's player would have chosen."""

    def _said(self, fault: str, asked: dict[str, Any]) -> tuple[list[str], str]:
        return [], "tool_calls"

    async def _respond(self, fault: str, asked: dict[str, Any], writer: Any) -> bool:
        line = plays(asked["messages"])
        head, _, text = line.partition(": ")
        verb, _, target = head.partition(" ")
        names = {f["function"]["name"]: f["function"]["parameters"] for f in asked["tools"]}
        given = {k: v for k, v in (("target", target), ("text", text)) if k in names[verb.lower()]["properties"]}
        call = [{"id": "t", "type": "function", "function": {"name": verb.lower(), "arguments": json.dumps(given, indent=1)}}]
        message = {"role": "assistant", "content": None, "tool_calls": call}
        body = {
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3},
        }
        from endpoint_help import _whole

        await _whole(writer, 200, body)
        return True


def test_a_team_that_speaks_in_function_calls(tmp_path: Path, cpt: Ends) -> None:
    with ToolCaller(plays) as server:
        code, out, err = cpt(
            "play", *SMALL, "--model-set", "harness=tools", "--base-url", server.url, "--store", tmp_path, "--id", "a", "--json"
        )
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["ended"] == "stopped"
    assert "C-1234|Acme Mills|50000" in told["answer"]
    assert all("stop" not in request for request in server.requests), "the lines of a function call are not its end"
    trace = _sound(_trace(tmp_path, "a"))
    assert {e.type for e in trace.events} >= {"spawn", "message", "tool_call", "tool_result", "return", "aggregate"}
    assert all(call["tool_calls"] for call in _calls(trace))
    at = next(e.id for e in trace.events if e.type == "return")
    code, _, err = cpt("fork", "a", "--at", at, "--substitute", "none", "--store", tmp_path)
    assert (code, "--model openai:..." in err) == (5, True), "an endpoint is not asked unnamed"


# -- real processes ----------------------------------------------------------------------------------------------------------


def _start(store: Path, url: str, *more: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = [f"{programs()}/counterpoint", "play", *SMALL, "--base-url", url, "--store", str(store), "--id", "a", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | (env or {}))


def _until(is_it: Callable[[], bool], limit_s: float = 300.0) -> None:
    end = time.monotonic() + limit_s
    while not is_it():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def test_ctrl_c_ends_at_once_and_the_printed_command_goes_on(tmp_path: Path) -> None:
    tmp_path /= "a store"
    key = "sk-very-secret-indeed"
    with FaultServer(plays, faults=["ok"] * 5, always="silent", key=key) as server:
        process = _start(tmp_path, server.url, "--model-set", "timeout_s=3600", "--model-set", "key_env=SOME_KEY", env={"SOME_KEY": key})
        _until(lambda: len(server.requests) >= 7)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)  # those who wait for the endpoint, for an hour, are not waited for
        assert process.returncode == 130
        assert "Traceback" not in err
        cut = _trace(tmp_path, "a")
        assert cut.meta[UNFINISHED]
        assert [e.error for e in cut.events if e.ok is False] == [], "nobody failed: they were interrupted"
        command = shlex.split(err.partition("resume it with: ")[2].splitlines()[0])
        assert command[:3] == ["counterpoint", "play", "--resume"]
        server.always = "ok"
        asked = len(server.requests)
        done = subprocess.run(
            [f"{programs()}/counterpoint", *command[1:], "--json"], capture_output=True, text=True, env=os.environ | {"SOME_KEY": key}, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["ended"] == "stopped"
        trace = _sound(_trace(tmp_path, "a"))
        assert len(server.requests) - asked == len(_calls(trace)) - 5, "what was answered is not asked again"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes()


def _answered(cut: Trace) -> int:
    """How many model calls of a broken-off recording have their answer."""
    closed = [e for e in cut.events if e.id not in cut.meta.get(OPEN_EVENTS, ())]
    return sum(e.model is not None and bool((e.extra or {}).get("call")) for e in closed)


def test_a_killed_run_goes_on_with_the_endpoint(tmp_path: Path) -> None:
    with FaultServer(plays, faults=["ok"] * 5, always="silent") as server:
        process = _start(tmp_path, server.url)
        _until(lambda: len(server.requests) >= 7)
        _until(lambda: _answered(_trace(tmp_path, "a")) >= 3)  # what is written is on disk a little later
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        cut = _trace(tmp_path, "a")
        answered = _answered(cut)
        asked = len(server.requests)
        server.always = "ok"
        command = [f"{programs()}/counterpoint", "play", "--resume", "a", "--model-set", "retries=1", "--store", str(tmp_path), "--json"]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode == 5
        assert len(server.requests) == asked, "an address out of a journal gets no key unless it is named again"
        assert f"--base-url {server.url}" in refused.stdout
        done = subprocess.run([*command, "--base-url", server.url], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    trace = _sound(_trace(tmp_path, "a"))
    assert trace.meta["ended"] == "stopped"
    assert len(server.requests) - asked == len(_calls(trace)) - answered
    assert [e for e in trace.events if e.id in {c.id for c in cut.events} - set(cut.meta[OPEN_EVENTS])] == [
        e for e in cut.events if e.id not in cut.meta[OPEN_EVENTS]
    ]
