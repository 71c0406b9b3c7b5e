"""`counterpoint fork` of a logged session as a user meets it: what is printed before, what is asked, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chat_endpoint_help import ChatEndpoint
from counterpoint.app.load_save import load
from counterpoint.trace.conversation import Conversation
from log_chats_help import sample
from logs import SAMPLES

Run = Callable[..., tuple[int, str, str]]
SESSION = "0a000000-0000-4000-8000-00000000000a"
FETCH = ("WebFetch", '{"prompt": "How to add an index", "url": "https://example.org/indexes"}')


@pytest.fixture
def store(run: Run, tmp_path: Path) -> Path:
    code, _, err = run("import", SAMPLES / "claude_code", "--store", tmp_path / "s")
    assert code in (0, 1), err
    return tmp_path / "s"


@pytest.fixture
def endpoint() -> Iterator[ChatEndpoint]:
    answers = iter([("Let me read.", [FETCH]), ("Not without you.", [])])
    with ChatEndpoint(lambda asked: next(answers)) as served:
        yield served


def test_a_dry_run_prints_what_the_model_reads_and_asks_nothing(run: Run, store: Path) -> None:
    code, out, _ = run("fork", SESSION, "--at", "msg_a2", "--dry-run", "--store", store, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["messages"] == Conversation(sample("claude_code", "0a"), "main").prompt(1)
    assert [f["function"]["name"] for f in told["tools"]] == ["Agent", "Bash", "WebFetch"]
    assert (told["agent"], told["answer"]) == ("main", None)
    code, out, _ = run("fork", SESSION, "--at", "toolu_a4:result", "--substitute", "No rights.", "--dry-run", "--store", store)
    assert code == 0
    assert "[tool] of toolu_a4\nNo rights." in out
    assert "note   the trace has no system prompt" in out


def test_a_fork_says_its_price_before_and_stands_beside_its_parent(run: Run, store: Path, endpoint: ChatEndpoint) -> None:
    model = ("--model", "openai:x", "--base-url", endpoint.url, "--store", store)
    code, out, err = run("fork", SESSION, "--at", "msg_a2", *model)
    assert (code, out, endpoint.requests) == (5, "", [])
    assert "openai:x is asked up to 20 times, for up to" in err
    assert "--cap tokens=" in err
    code, out, err = run("fork", SESSION, "--at", "msg_a2", *model, "--cap", "calls=3", "--cap", "tokens=50000")
    assert code == 0, err
    assert "asked up to 3 times" in err
    assert "parts  at msg_a2 (changed): 'Both are true. First the index; let me read how others do it.' -> 'Let me read.'" in out
    assert "tools  answered by recording 1" in out
    kept = next(line.split()[1] for line in out.splitlines() if line.startswith("kept"))
    assert load(kept, store=store).meta["forked_from"] == SESSION
    code, out, _ = run("compare", "traces", SESSION, kept, "--store", store)
    assert code in (0, 1)
    assert "Let me read." in out
    code, out, _ = run("show", kept, "--store", store)
    assert code == 0


def test_json_has_the_first_divergence(run: Run, store: Path, endpoint: ChatEndpoint, tmp_path: Path) -> None:
    model = ("--model", "openai:x", "--base-url", endpoint.url, "--store", store, "--yes", "--json")
    code, out, _ = run("fork", SESSION, "--at", "msg_a2", "--message", "Be brief.", *model, "-o", tmp_path / "f.jsonl")
    told = json.loads(out)
    assert code == 0
    assert told["first"]["event"]["a"] == "msg_a2"
    assert (told["first"]["text_b"], told["badges"]["re-run"]) == ("Let me read.", 3)  # the message and two answers
    assert told["live"]["ended"] == "the agent called nothing more"
    assert endpoint.requests[0]["messages"][-1] == {"role": "user", "content": "Be brief."}
    assert load(tmp_path / "f.jsonl").trace_id == told["fork"]


def test_what_does_not_go_together_is_one_clear_error(run: Run, store: Path, tmp_path: Path) -> None:
    at = ("fork", SESSION, "--at", "msg_a2", "--store", store)
    for more, code, said in (
        ((), 5, "--model openai:NAME or anthropic:NAME"),
        (("--message", "a", "--do", "delete"), 2, "one edit at a time"),
        (("--model", "fake"), 2, "no logged session"),
        (("--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1", "--cap", "trials=3"), 2, "no limit named 'trials'"),
        (("--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1", "--yes", "--tools", "bash"), 3, "no tool named 'bash'"),
        (("--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1", "--yes", "-n", "4", "--do", "delete"), 2, "no score"),
    ):
        found, _, err = run(*at, *more)
        assert (found, said in err) == (code, True), err
    code, _, err = run("fork", SESSION, "--at", "nothing", "--dry-run", "--store", store)
    assert (code, "no event 'nothing'" in err) == (3, True)
    code, _, err = run("fork", SESSION, "--at", "toolu_a5:safety", "--dry-run", "--store", store)
    assert (code, "is no decision" in err) == (2, True)
