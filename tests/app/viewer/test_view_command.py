"""`counterpoint view` as a user meets it: what an argument opens, what is refused, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.viewer.served import filled
from counterpoint.app.cli.view import _opened
from counterpoint.app.load_save import save
from counterpoint.errors import InputError, NotFound, install
from counterpoint.testing import synthetic_trace
from lab.app.runs_made import made

Run = Callable[..., tuple[int, str, str]]


@contextmanager
def started(*arguments: str, folder: Path) -> Iterator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    code = "from counterpoint.app.cli import main; main()"
    command = [sys.executable, "-c", code, "view", "--no-open", "--json", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline()), process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(300)


def test_it_says_where_it_is_answers_and_ends_with_a_signal(tmp_path: Path) -> None:
    filled(tmp_path / "traces")
    with started("plain", folder=tmp_path) as (said, process):
        assert said["url"].endswith("/t/plain")
        assert said["url"].startswith("http://127.0.0.1:")
        assert said["store"] == "traces"
        assert said["pid"] == process.pid
        with urllib.request.urlopen(said["url"].replace("/t/", "/api/t/"), timeout=300) as answer:
            assert json.load(answer)["id"] == "plain"
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


def test_without_a_store_it_opens_on_an_empty_list(tmp_path: Path) -> None:
    with started(folder=tmp_path) as (said, _), urllib.request.urlopen(said["url"] + "api/traces", timeout=300) as answer:
        assert json.load(answer)["rows"] == []
    assert not (tmp_path / "traces").exists()


def test_a_token_of_ones_own_is_in_the_link(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-secret-of-some-length\n")
    with started("--token-file", "token", folder=tmp_path) as (said, _):
        assert said["url"].endswith("/?token=a-secret-of-some-length")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COUNTERPOINT_STORE", raising=False)
    return tmp_path


def test_what_an_argument_opens(here: Path) -> None:
    filled(here / "traces")
    filled(here / "other")
    made(here / "runs" / "a")
    trace = synthetic_trace(2, 6, trace_id="in a file")
    save(trace, here / "one.jsonl")
    save(trace, here / "survey.json")
    home = Path("runs")

    def path(what: str | None) -> str:
        opened = _opened(what, None, home)
        opened.collection.close()
        return opened.path

    assert path(None) == "/"
    assert path("plain") == "/t/plain"
    assert path("plai") == "/t/plain"
    assert path("100%") == "/t/100%25%20%E2%80%AE%20%F0%9F%98%80"
    assert path("other") == "/"
    assert path("runs/a") == path("a") == "/r/runs%2Fa"
    assert path("runs") == "/r"
    assert path("one.jsonl") == path("survey.json") == "/t/in%20a%20file"


def test_a_file_is_opened_without_a_store(here: Path) -> None:
    save(synthetic_trace(2, 6, trace_id="x"), here / "one.jsonl")
    collection = _opened("one.jsonl", None, Path("runs")).collection
    assert collection.store is None
    assert collection.get("x").trace_id == "x"


def test_a_foreign_log_is_opened_too(here: Path) -> None:
    def span(name: str, id: str, parent: str, operation: str) -> dict[str, Any]:
        times = {"startTimeUnixNano": "100000000000", "endTimeUnixNano": "109000000000"}
        attributes = [{"key": "gen_ai.operation.name", "value": {"stringValue": operation}}]
        return {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": id, "parentSpanId": parent, "name": name, "attributes": attributes, **times}

    spans = [span("lead", "eee19b7ec3c1b171", "", "invoke_agent"), span("m", "eee19b7ec3c1b172", "eee19b7ec3c1b171", "chat")]
    (here / "spans.jsonl").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}) + "\n")
    opened = _opened("spans.jsonl", None, Path("runs"))
    assert opened.path == "/t/5b8efff798038103d269b633813fc60c"


def test_what_is_not_there_says_what_would_work(here: Path) -> None:
    with pytest.raises(NotFound, match="counterpoint import"):
        _opened("nothing", None, Path("runs"))
    with pytest.raises(NotFound):
        _opened("nothing.json", None, Path("runs"))
    filled(here / "traces")
    with pytest.raises(NotFound, match="did you mean 'plain'"):
        _opened("plaim", None, Path("runs"))
    (here / "text.json").write_text("hello")
    with pytest.raises(InputError):
        _opened("text.json", None, Path("runs"))
    (here / "spans.jsonl").write_text('{"resourceSpans": [{"scopeSpans": [{"spans": []}]}]}\n')
    with pytest.raises(InputError):
        _opened("spans.jsonl", None, Path("runs"))
    (here / "empty").mkdir()
    with pytest.raises(InputError):
        _opened("empty", None, Path("runs"))


def test_another_address_needs_a_token(run: Run, here: Path) -> None:
    assert run("view", "--host", "0.0.0.0", "--no-open")[0] == 5
    (here / "token").write_text("short")
    code, _, err = run("view", "--host", "0.0.0.0", "--token-file", "token", "--no-open")
    assert code == 2
    assert "16 characters" in err


def test_a_port_that_is_taken_can_be_tried_again(run: Run, here: Path) -> None:
    from counterpoint.app import http_server

    with http_server.listening_socket("127.0.0.1", 0) as sock:
        assert run("view", "--port", sock.getsockname()[1], "--no-open")[0] == 6


def test_without_the_extra_it_says_what_to_install(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("counterpoint.app.viewer.server", "counterpoint.app.http_server"))]:
        monkeypatch.delitem(sys.modules, name)
    import counterpoint.app

    monkeypatch.delattr(counterpoint.app, "http_server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, err = run("view", "--no-open")
    assert code == 2
    assert install("view") in err


def test_help_has_two_examples_and_the_codes(run: Run) -> None:
    code, out, _ = run("view", "--help")
    assert code == 0
    assert len([line for line in out.splitlines() if line.strip().startswith("counterpoint view")]) == 2
    assert "Exit codes" in out
