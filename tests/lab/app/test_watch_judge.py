"""A watch with a model that judges: within its budget, once over restarts and kills, and shown no secret."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from counterpoint.app.cli import cli
from counterpoint.app.watch.ledger import Ledger
from counterpoint.store import Store
from endpoint_help import FaultServer

KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
CPT = (sys.executable, "-u", "-c", "from counterpoint.app.cli import main; main()")


def session(name: str, asked: str) -> str:
    """A session of Claude Code: a question with a key in it, and an answer."""
    about = {"sessionId": name, "cwd": "/home/ada/shop", "version": "2.0.14", "isSidechain": False, "userType": "external"}
    said = {"id": f"msg_{name}", "role": "assistant", "model": "claude-sonnet-4-5", "content": [{"type": "text", "text": "Done."}]}
    rows: list[dict[str, Any]] = [
        {"type": "user", "message": {"role": "user", "content": f"{asked}; the key is {KEY}"}},
        {"type": "assistant", "message": {"type": "message", "usage": {"input_tokens": 10, "output_tokens": 5}, **said}},
    ]
    lines = []
    for n, row in enumerate(rows):
        stamp = {"timestamp": f"2026-10-01T00:00:0{n}.000Z", "uuid": f"{name}-{n}", "parentUuid": f"{name}-{n - 1}" if n else None}
        lines.append(json.dumps({**about, **stamp, **row}))
    return "\n".join(lines) + "\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    for name, asked in (("good", "Mend the build"), ("bad", "Delete the tests")):
        (tmp_path / "logs" / f"{name}.jsonl").write_text(session(name, asked))
    (tmp_path / "verdict.toml").write_text('name = "verdict"\nlabels = ["right", "wrong"]\ntext = "Is it right?"\n')
    return tmp_path


def settings(url: str, *, tokens: int = 100_000, settled: float = 0) -> str:
    Path("w.toml").write_text(
        f'[judge]\nmodel = "openai:judge"\nbase_url = "{url}"\nrubric = "verdict.toml"\ntell = ["wrong"]\n'
        f"tokens = {tokens}\nsettled_minutes = {settled}\n"
    )
    return "w.toml"


def watch(*words: str) -> tuple[int, list[dict[str, Any]], str]:
    """One look: the exit code, the alerts, and what it says beside them."""
    done = CliRunner().invoke(cli, ["watch", "logs", "--once", "--json", "--store", "traces", "--alerts", "w.toml", *words])
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.exit_code, [row for row in rows if row["kind"] == "alert"], done.stderr


def verdict(messages: list[dict[str, Any]]) -> str:
    return "wrong: it deletes tests" if "Delete" in messages[-1]["content"] else "right: it mends"


@pytest.mark.usefixtures("place")
def test_a_verdict_is_a_note_and_is_told_once_and_no_key_leaves() -> None:
    with FaultServer(verdict) as server:
        settings(server.url)
        code, alerts, _ = watch()
        assert (code, [(one["rule"], one["trace_id"]) for one in alerts]) == (4, [("model", "bad")])
        assert "verdict: wrong, says openai:judge: it deletes tests" in alerts[0]["text"]
        assert watch()[:2] == (0, [])
        assert len(server.requests) == 2
        assert KEY not in json.dumps(server.requests)
        assert "masked" in json.dumps(server.requests)
        with Path("logs/bad.jsonl").open("a") as file:  # it grew: another question, and the same verdict is no other event
            file.write(session("bad", "Delete more").splitlines()[0].replace("bad-0", "bad-9") + "\n")
        assert watch()[1] == []
        assert len(server.requests) == 3
    with Store("traces", create=False, read_only=True) as store:
        labels = {(one.trace_id, one.label, one.is_model) for one in store.annotations()}
    assert labels == {("good", "right", True), ("bad", "wrong", True)}


@pytest.mark.usefixtures("place")
def test_a_run_waits_until_the_budget_of_a_day_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultServer(verdict) as server:
        settings(server.url, tokens=20)
        code, _, err = watch()
        assert (code, len(server.requests)) == (0, 0)
        assert err.count("more than judge.tokens") == 2
        ledger = Ledger(Path("traces/watch"))
        assert ledger.tokens_of_a_day() == 0
        ledger.note_spend(99_900)
        ledger.close()
        settings(server.url)
        code, alerts, err = watch()
        assert (alerts, server.requests) == ([], [])
        assert "used up its 100,000 tokens" in err
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 86_401)
        assert [one["trace_id"] for one in watch()[1]] == ["bad"]
        assert len(server.requests) == 2


def test_a_kill_while_it_is_asked_counts_what_it_may_have_taken(place: Path) -> None:
    with FaultServer(verdict, delay_s=60) as server:
        settings(server.url)
        words = ["watch", "logs", "--once", "--json", "--store", "traces", "--alerts", "w.toml"]
        process = subprocess.Popen([*CPT, *words], cwd=place, stdout=subprocess.DEVNULL)
        for _ in range(1200):
            if server.requests:
                break
            time.sleep(0.05)
        process.kill()
        process.wait()
    ledger = Ledger(place / "traces" / "watch")
    assert ledger.tokens_of_a_day() > 100
    ledger.close()


@pytest.mark.usefixtures("place")
def test_what_is_wrong_is_said_before_anything_is_watched() -> None:
    for old, new, what in (
        ('tell = ["wrong"]', 'tell = ["bad"]', "the rubric has no verdict 'bad'"),
        ('tell = ["wrong"]', "tell = []", "no verdict is told"),
        ('"openai:judge"', '"nothing:judge"', "no model 'nothing:judge'"),
        ("verdict.toml", "none.toml", "none.toml"),
    ):
        settings("http://127.0.0.1:9/v1")
        Path("w.toml").write_text(Path("w.toml").read_text().replace(old, new))
        done = CliRunner().invoke(cli, ["watch", "logs", "--once", "--store", "traces", "--alerts", "w.toml"])
        assert what in str(done.exception)
        with Store("traces", create=False, read_only=True) as store:
            assert len(store) == 0


def test_a_running_watch_asks_when_nothing_grew_for_a_while_and_an_endpoint_that_fails_is_asked_again(place: Path) -> None:
    with FaultServer(verdict) as server:
        settings(server.url, settled=0.02)
        words = ["watch", "logs", "--json", "--store", "traces", "--alerts", "w.toml"]
        process = subprocess.Popen([*CPT, *words], cwd=place, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            rows = [json.loads(process.stdout.readline()) for _ in range(3)]
            assert [(row["kind"], row.get("rule")) for row in rows] == [("session", None), ("session", None), ("alert", "model")]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
