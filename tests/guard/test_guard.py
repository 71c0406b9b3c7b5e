"""`counterpoint guard`: recorded sessions fed through the hook's contract, as they grow."""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint.errors import InputError
from counterpoint.guard import advice, hook, quick_json
from counterpoint.guard.advice import rounds_of, would_stop
from counterpoint.guard.claude_code import ClaudeCodeReader
from counterpoint.guard.limits import MARK, GuardCall, Tally, limit_option, limits_of, refusal
from counterpoint.guard.reader import SessionReader, seconds
from counterpoint.guard.replay import replay
from counterpoint.guard.settings import install, installed, uninstall
from counterpoint.guard.state import GuardState, state_path
from counterpoint.lab.train.stopping.sessions import learn, stretches
from logs import REAL, SAMPLES

SHOP = SAMPLES / "claude_code" / "projects" / "-repo-shop" / "0a000000-0000-4000-8000-00000000000a.jsonl"
CODEX = SAMPLES / "codex" / "v2" / "sessions" / "2026" / "07" / "01"
REAL_LOGS = [pytest.mark.shared, pytest.mark.skipif(not REAL.is_dir(), reason="the reference logs are not here")]
PROGRAM = Path(hook.__file__).with_name("__main__.py")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COUNTERPOINT_GUARD", str(tmp_path / "guard"))
    return tmp_path / "guard"


def read(path: Path) -> SessionReader:
    return hook.reader_of(GuardState(), str(path), str(path), to_end=True)


def call(path: Path, tool: str = "Bash", given: Any = None, **more: Any) -> dict[str, Any]:
    fields = {"session_id": path.stem, "transcript_path": str(path), "hook_event_name": "PreToolUse", "cwd": "/"}
    return fields | {"tool_name": tool, "tool_input": given or {"command": "ls"}, "tool_use_id": "toolu_x"} | more


def denied(said: dict[str, Any]) -> str:
    assert said["hookSpecificOutput"]["permissionDecision"] == "deny"
    return str(said["hookSpecificOutput"]["permissionDecisionReason"])


def denial(said: dict[str, Any]) -> bool:
    return "permissionDecision" in said.get("hookSpecificOutput", {})


def process(given: Any, *options: str) -> subprocess.CompletedProcess[bytes]:
    data = given if isinstance(given, bytes) else json.dumps(given).encode()
    return subprocess.run([sys.executable, "-S", str(PROGRAM), *options], input=data, capture_output=True, check=False)


def record(kind: str, k: int, content: Any, at: str = "", **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    at = at or f"2026-01-01T10:{k // 60:02}:{k % 60:02}.000Z"
    return {"type": kind, "uuid": f"u-{k:012}", "sessionId": "s", "timestamp": at, "message": message, **more}


def tool_use(k: int, name: str, given: Any, call: str) -> dict[str, Any]:
    about = {"id": f"msg_{k:012}", "model": "claude-sonnet-4-5", "usage": {"input_tokens": 100, "output_tokens": 10}}
    return record("assistant", k, [{"type": "tool_use", "id": call, "name": name, "input": given}], message=about)


def result(k: int, call: str, text: str, *, failed: bool = False, **made: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": failed}
    return record("user", k, [block], **({"toolUseResult": made} if made else {}))


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


# -- counting --------------------------------------------------------------------------------------------------------------


def _sessions() -> Iterator[Any]:
    for folder in (SAMPLES / "claude_code", SAMPLES / "codex" / "v1", CODEX):
        yield pytest.param(folder, id=str(folder.relative_to(SAMPLES)))
    for name in ("claude_code", "codex/tree_v2_0.144.0-alpha.4_B"):
        yield pytest.param(REAL / name, id=f"real {name}", marks=REAL_LOGS)


@pytest.mark.parametrize("folder", list(_sessions()))
def test_it_counts_what_the_importer_counts(folder: Path) -> None:
    seen = 0
    for trace in counterpoint.read_logs(folder):
        if trace.meta.get("resumed_from"):
            continue  # the hook sees a whole file, with what it copied
        path = next(iter(folder.rglob(f"*{trace.trace_id}.jsonl")), None)
        if path is None or trace.tokens is None:
            continue
        reader = read(path)
        price = hook.ModelPrices(reader.state, None, at=reader.tally.last_at)
        counts = reader.tally.counts("session", None, price)
        assert counts["tokens"] == trace.tokens, trace.trace_id
        if trace.cost_usd is not None:
            assert counts["dollars"] == pytest.approx(trace.cost_usd), trace.trace_id
        spawned = {e.to for e in trace.events if e.type == "spawn" and e.to} & set(trace.members)
        assert len(reader.tally.agents) == len(spawned), trace.trace_id
        seen += 1
    assert seen


@pytest.mark.parametrize("path", [SHOP, *sorted(CODEX.glob("*-000000000000.jsonl"))], ids=["claude_code", "codex"])
def test_reading_as_it_grows_is_reading_at_once(path: Path, tmp_path: Path) -> None:
    whole = read(path).tally.as_dict()
    copy = tmp_path / "x" / path.name
    files = {p: p.read_bytes() for p in path.parent.rglob("*.jsonl") if p.is_file()}
    state = state_path("grows")
    Path(state).parent.mkdir()
    for share in (0.0, 0.13, 0.5, 0.51, 0.52, 0.77, 1.0):  # most of these cut a line
        for p, data in files.items():
            at = copy.parent / p.relative_to(path.parent)
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(data[: int(len(data) * share)])
            sidecar = p.with_name(f"{p.stem}.meta.json")
            if sidecar.exists():
                shutil.copy(sidecar, at.parent)
        kept = GuardState(state)
        reader = hook.reader_of(kept, "grows", str(copy))
        kept.save()
    assert reader.tally.counts("session", 0) | {"minutes": 0} == Tally.of(whole).counts("session", 0) | {"minutes": 0}
    assert reader.tally.models == whole["models"]
    assert kept.unread == sum(not _is_whole(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n"))


def _is_whole(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def test_a_file_that_was_cut_or_written_anew_is_not_counted_twice(tmp_path: Path) -> None:
    first = [record("user", 0, "hi"), tool_use(1, "Bash", {"command": "a"}, "c1"), result(2, "c1", "no", failed=True)]
    path, state = write(tmp_path / "s.jsonl", *first), GuardState()
    hook.reader_of(state, "s", str(path))
    before = state.tally.as_dict() | {}
    path.write_text(path.read_text()[:40])
    hook.reader_of(state, "s", str(path))
    write(path, record("user", 9, "a summary", isMeta=True), *first)
    hook.reader_of(state, "s", str(path))
    assert state.tally.as_dict() == before | {"last_at": seconds("2026-01-01T10:00:09Z")}
    assert state.tally.repeats
    assert state.tally.calls == [1, 1]


@pytest.mark.parametrize("path", [SHOP, *sorted(CODEX.glob("*-000000000000.jsonl"))], ids=["claude_code", "codex"])
def test_strange_records_are_passed_over(path: Path, tmp_path: Path) -> None:
    strange: list[Any] = [
        None,
        0,
        -1.5,
        True,
        "x",
        "2026-13-45T99:99:99Z",
        [],
        [[]],
        {},
        {"type": []},
        {"type": "tool_use", "id": 3},
        1e400,
    ]
    rng = random.Random(0)

    def changed(value: Any) -> Any:
        if rng.random() < 0.08:
            return rng.choice(strange)
        if isinstance(value, dict):
            return {name: changed(inner) for name, inner in value.items()}
        return [changed(inner) for inner in value] if isinstance(value, list) else value

    records = [json.loads(line) for line in path.read_text().splitlines() if _is_whole(line)]
    for turn in range(20):
        copy = write(tmp_path / f"{turn}-{path.name}", *(changed(record) for record in records))
        reader = read(copy)
        hook.decide(reader, limits_of({}), call(copy, given=changed({"a": [1]})), 0.0)
        assert json.dumps(reader.tally.as_dict())


def test_a_message_in_several_records_counts_once_with_its_largest_usage(tmp_path: Path) -> None:
    parts = [tool_use(1, "Read", {"n": n}, f"c{n}") for n in range(3)]
    for n, part in enumerate(parts):
        part["uuid"] = f"part-{n:012}"
        part["message"]["usage"] = {"input_tokens": 5, "output_tokens": [1, 8, 8][n], "cache_read_input_tokens": 100}
    state = read(write(tmp_path / "s.jsonl", *parts)).state
    assert state.tally.counts("session", None)["tokens"] == 113
    assert state.tally.calls[0] == 3


def test_what_is_counted_since_a_person_spoke(tmp_path: Path) -> None:
    talk = [record("user", 0, "go"), tool_use(60, "Bash", {}, "c1"), result(120, "c1", "x", failed=True)]
    talk += [record("user", 1200, "again"), tool_use(1260, "Bash", {}, "c2"), record("user", 1300, "<system-reminder>no")]
    tally = read(write(tmp_path / "s.jsonl", *talk)).tally
    now = seconds("2026-01-01T10:22:00Z")
    assert tally.counts("prompt", now) == {"agents": 0, "calls": 1, "tokens": 110, "dollars": 0.0, "minutes": 2.0}
    assert tally.counts("session", now)["minutes"] == 4.0  # without the 18 minutes in which nobody worked
    assert tally.repeats == {}
    assert tally.rows == {}


def test_times() -> None:
    assert seconds("2024-02-29T23:59:59.500Z") == 1709251199.5
    assert seconds("2026-03-01T00:00:00+01:00") == seconds("2026-02-28T23:00:00Z")
    assert seconds("yesterday, at around noon") is seconds(5) is None


def test_quick_json_is_json(tmp_path: Path) -> None:
    for value in ({"a": [1, -2.5, None, True, "é\n\u2028\ud800"]}, [], "x", 10**30):
        assert quick_json.loads(json.dumps(value)) == value
        assert quick_json.dumps(value) == json.dumps(value, separators=(",", ":"))
    assert quick_json.dumps({"b": 1, "a": 2}, sort_keys=True) == '{"a":2,"b":1}'
    for wrong in (b"", b"{", b"{} x", b'{"a":}', b"\xff"):
        with pytest.raises(ValueError):
            quick_json.loads(wrong)


# -- the contract ------------------------------------------------------------------------------------------------------------


def test_a_call_within_the_limits_goes_on_in_silence() -> None:
    done = process(call(SHOP), "--cap", "agents=50")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_refusal_is_an_object_or_an_exit_code() -> None:
    done = process(call(SHOP, "Task", {"prompt": "more"}), "--cap", "agents=1")
    assert done.returncode == 0
    why = denied(json.loads(done.stdout))
    assert why.startswith(MARK)
    assert "limit agents = 1 sub-agents" in why
    assert "do the rest yourself" in why
    again = process(call(SHOP, "Task", {"prompt": "more"}), "--cap", "agents=1", "--answer", "exit")
    assert (again.returncode, again.stdout) == (2, b"")
    assert again.stderr.decode().startswith(MARK)
    assert process(call(SHOP), "--cap", "agents=1").stdout == b""  # other calls may go on


@pytest.mark.parametrize(
    ("source", "most"),
    [
        pytest.param(SHOP, 1, id="sample"),
        pytest.param(REAL / "claude_code" / "oh-my-posh" / "22_523a93a015_0_full.jsonl", 10, id="real", marks=REAL_LOGS),
    ],
)
def test_recorded_sessions_are_refused_when_the_count_is_reached(source: Path, most: int, tmp_path: Path) -> None:
    """Each record is written, then each of its calls asks: what is refused is what the replay of the whole says."""
    path, refused, options = tmp_path / source.name, [], {"--cap": [f"agents={most}"]}
    for line in source.read_text().splitlines(keepends=True):
        with path.open("a") as out:
            out.write(line)
        entry = json.loads(line) if _is_whole(line) else {}
        content = entry.get("message", {}).get("content", []) if entry.get("type") == "assistant" else []
        for block in content:
            if block["type"] == "tool_use":
                given = call(path, block["name"], block["input"], tool_use_id=block["id"])
                said = hook.answer(given, options, now=seconds(entry["timestamp"]))
                refused += [block["name"]] if denial(said) else []
    found = replay(ClaudeCodeReader(GuardState()), str(path), limits_of(limit_option(options["--cap"]))).fired
    assert refused
    assert set(refused) <= {"Task", "Agent"}
    assert len(refused) == found["agents"].calls


def test_hooks_at_once_let_no_more_through_than_the_limit(tmp_path: Path) -> None:
    calls = [tool_use(1, "Agent", {"prompt": f"part {n}"}, f"toolu_{n:012}") for n in range(6)]
    for n, one in enumerate(calls):
        one["uuid"] = f"spawn-{n:012}"
    path = write(tmp_path / "s.jsonl", record("user", 0, "go"), *calls)
    command = [sys.executable, "-S", str(PROGRAM), "--cap", "agents=2"]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, stdin=pipe, stdout=pipe) for _ in calls]
    said = []
    for n, one in enumerate(running):
        given = call(path, "Agent", {"prompt": f"part {n}"}, tool_use_id=f"toolu_{n:012}")
        assert one.stdin is not None
        one.stdin.write(json.dumps(given).encode())
        one.stdin.close()
    for one in running:
        assert one.stdout is not None
        said.append(one.stdout.read())
        assert one.wait() == 0
        one.stdout.close()
    assert sum(not text for text in said) == 2
    again = said.index(b"")
    given = call(path, "Agent", {"prompt": f"part {again}"}, tool_use_id=f"toolu_{again:012}")
    assert hook.answer(given, {"--cap": ["agents=2"]}) == {}  # what was let through is let through


def test_a_spawn_that_failed_does_not_count_and_one_that_began_counts_once(tmp_path: Path) -> None:
    path, options = tmp_path / "s.jsonl", {"--cap": ["agents=1"]}
    talk = [record("user", 0, "go"), tool_use(1, "Agent", {"prompt": "a"}, "toolu_a")]
    assert hook.answer(call(write(path, *talk), "Agent", {"prompt": "a"}, tool_use_id="toolu_a"), options) == {}
    talk += [result(2, "toolu_a", "no such agent type", failed=True), tool_use(3, "Agent", {"prompt": "b"}, "toolu_b")]
    assert hook.answer(call(write(path, *talk), "Agent", {"prompt": "b"}, tool_use_id="toolu_b"), options) == {}
    folder = tmp_path / "s" / "subagents"
    folder.mkdir(parents=True)
    write(folder / "agent-abc.jsonl", record("user", 4, "b", isSidechain=True, agentId="abc"))
    talk += [result(5, "toolu_b", "done", agentId="abc"), tool_use(6, "Agent", {"prompt": "c"}, "toolu_c")]
    denied(hook.answer(call(write(path, *talk), "Agent", {"prompt": "c"}, tool_use_id="toolu_c"), options))
    assert GuardState(state_path("s")).tally.agents == {"abc": [1, pytest.approx(seconds("2026-01-01T10:00:04Z"), abs=1e12)]}


def test_a_workflow_is_refused_like_a_spawn_and_counted_by_its_agents(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", record("user", 0, "go"))
    assert hook.answer(call(path, "Workflow", {"script": "x"}), {"--cap": ["agents=1"]}) == {}
    folder = tmp_path / "s" / "subagents" / "workflows" / "wf_1"
    folder.mkdir(parents=True)
    for name in ("a1", "a2"):
        write(folder / f"agent-{name}.jsonl", record("user", 4, name, isSidechain=True, agentId=name))
    why = denied(hook.answer(call(path, "Workflow", {"script": "x"}), {"--cap": ["agents=1"]}))
    assert "2 sub-agents have been started" in why


def test_depth_is_that_of_who_asks(tmp_path: Path) -> None:
    talk = [record("user", 0, "go"), tool_use(1, "Agent", {"prompt": "a"}, "toolu_a"), result(2, "toolu_a", "ok", agentId="abc")]
    path, options = write(tmp_path / "s.jsonl", *talk), {"--cap": ["depth=1"]}
    assert hook.answer(call(path, "Agent", {"prompt": "b"}, tool_use_id="t1"), options) == {}
    why = denied(hook.answer(call(path, "Agent", {"prompt": "b"}, tool_use_id="t2", agent_id="abc"), options))
    assert "2 spawns below the main agent" in why
    assert "yourself" in why


def test_failures_are_told_apart(tmp_path: Path) -> None:
    talk = [record("user", 0, "go")]
    for n in range(3):
        talk += [tool_use(2 * n + 1, "Bash", {"command": "make"}, f"c{n}"), result(2 * n + 2, f"c{n}", "Error", failed=True)]
    path = write(tmp_path / "s.jsonl", *talk)
    limits = {"--cap": ["repeats=3", "failures=9"]}
    assert "failed 3 times with the same input" in denied(hook.answer(call(path, given={"command": "make"}), limits))
    edited = [tool_use(8, "Edit", {"file": "a"}, "e1"), result(9, "e1", "ok")]
    other = write(tmp_path / "edited.jsonl", *talk, *edited)
    assert hook.answer(call(other, given={"command": "make"}), limits) == {}  # what failed may work now
    assert hook.answer(call(path, given={"command": "make -n"}), limits) == {}
    why = denied(hook.answer(call(path, given={"command": "ls"}), {"--cap": ["failures=3"]}))
    assert "your last 3 tool calls all failed" in why
    assert "answer the user now" in why
    assert hook.answer(call(path, "AskUserQuestion"), {"--cap": ["failures=3"]}) == {}
    # Our own refusals, and a person's, are no failures of the tool.
    talk += [tool_use(20, "Bash", {"command": "x"}, "c8"), result(21, "c8", f"{MARK} refused", failed=True)]
    talk += [tool_use(22, "Bash", {"command": "x"}, "c9"), result(23, "c9", "The user doesn't want to proceed", failed=True)]
    assert read(write(path, *talk)).tally.rows == {"main": 3}


def test_tokens_dollars_and_minutes(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", record("user", 0, "go"), tool_use(60, "Bash", {}, "c1"))
    now = seconds("2026-01-01T10:41:00Z")
    for limit, words in (
        ("tokens=110", "110 tokens"),
        ("prompt.minutes=40", "41 minutes have passed"),
        ("dollars=0.0001", "$0.00"),
    ):
        why = denied(hook.answer(call(path), {"--cap": [limit]}, now=now))
        assert words in why
        assert "answer the user now" in why
        assert "return now what you have" in denied(hook.answer(call(path, agent_id="abc"), {"--cap": [limit]}, now=now))


def test_a_model_without_a_price_is_told_to_the_person_once(tmp_path: Path) -> None:
    talk = [record("user", 0, "go"), tool_use(1, "Bash", {}, "c1")]
    talk[1]["message"]["model"] = "a-model-of-nobody"
    path, options = write(tmp_path / "s.jsonl", *talk), {"--cap": ["dollars=1"]}
    assert "a-model-of-nobody has no price" in hook.answer(call(path), options)["systemMessage"]
    assert hook.answer(call(path), options) == {}
    prices = tmp_path / "prices.toml"
    prices.write_text('["a-model-of-nobody"]\ninput = 20000\noutput = 1.0\n')
    assert "$2.00" in denied(hook.answer(call(path), options | {"--prices": [str(prices)]}))


def test_a_warning_comes_once_before_the_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", record("user", 0, "go"), tool_use(1, "Bash", {}, "c1"))
    said = hook.answer(call(path), {"--cap": ["tokens=130"]})
    assert "110 tokens have been used" in said["hookSpecificOutput"]["additionalContext"] == said["systemMessage"]
    assert hook.answer(call(path), {"--cap": ["tokens=130"]}) == {}


def test_codex_calls_come_from_the_root_or_from_a_sub_agent(tmp_path: Path) -> None:
    root, child = sorted(CODEX.glob("*"))[0], sorted(CODEX.glob("*"))[1]
    session, agent = root.stem[-36:], child.stem[-36:]
    for transcript, more in ((root, {}), (child, {"agent_id": agent, "agent_type": "worker"})):
        given = call(transcript, "spawn_agent", {"message": "x"}, turn_id="t", model="gpt-5", **more) | {"session_id": session}
        assert "sub-agents" in denied(hook.answer(given, {"--cap": ["agents=1"]}))
    assert len(GuardState(state_path(session)).files) == 3


# -- it never blocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [b"", b"not json", b"[]", b'{"hook_event_name": "PreToolUse"}', b'{"hook_event_name": "Stop"}', b'{"session_id": 3}'],
)
def test_what_it_cannot_read_goes_on(given: bytes, home: Path) -> None:
    done = process(given, "--cap", "calls=0")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_broken_session_state_or_limit_goes_on_and_is_logged(tmp_path: Path, home: Path) -> None:
    for given in (call(tmp_path / "nothing.jsonl"), call(tmp_path)):
        assert process(given, "--cap", "agents=1").stdout == b""
    assert process(call(SHOP), "--nonsense", "1").returncode == 0
    assert "unknown option" in (home / "guard.log").read_text()
    (home / f"{SHOP.stem}.json").write_text('{"version": 1}')
    assert denied(json.loads(process(call(SHOP, "Task"), "--cap", "agents=1").stdout))
    limits = tmp_path / "guard.toml"
    limits.write_text("[session]\nagents = 1\n")
    assert denied(json.loads(process(call(SHOP, "Task"), "--limits", str(limits)).stdout))
    limits.write_text("[session]\nagents = ")  # half of an edit: what was read before holds
    said = json.loads(process(call(SHOP), "--limits", str(limits)).stdout)
    assert "those that were read before hold" in said["systemMessage"]
    assert denied(json.loads(process(call(SHOP, "Task"), "--limits", str(limits)).stdout))
    assert process(call(SHOP), "--limits", str(limits)).stdout == b""  # told once
    said = json.loads(process(call(SHOP) | {"session_id": "new"}, "--limits", str(tmp_path / "none.toml")).stdout)
    assert "nothing is refused" in said["systemMessage"]
    assert denied(json.loads(process(call(SHOP), "--cap", "calls=0", "--cap", "dollars=1", "--prices", "/none.toml").stdout))
    shutil.rmtree(home)
    home.write_text("a file where the folder should be")
    assert process(call(SHOP, "Task"), "--cap", "agents=0").stdout == b""


def test_the_hook_loads_next_to_nothing() -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(counterpoint.__file__).parents[1])!r}); import counterpoint.guard.hook as h"
    code += "; import counterpoint.guard.claude_code; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-S", "-E", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"json", "re", "typing", "dataclasses", "enum", "datetime", "tomllib", "click", "msgspec", "counterpoint.errors"}
    assert not heavy & set(out)


# -- limits -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"sesion": {}}, "did you mean 'session'"),
        ({"session": {"agent": 3}}, "did you mean 'agents'"),
        ({"session": {"agents": "many"}}, "session.agents is 'many'"),
        ({"prompt": {"depth": 1}}, "no limit named 'depth' in [prompt]"),
        ({"session": 5}, "not a table"),
        ({"warn_at": 3}, "warn_at is 3"),
        ({"advice": {"rule": 3}}, "advice.rule is 3"),
        ({"advice": {"quiet_minutes": 0}}, "more than 0"),
        ({"allow": "Bash"}, "a list of names"),
        ({"session": {"agents": float("nan")}}, "session.agents is nan"),
    ],
)
def test_wrong_limits_are_one_clear_error(table: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as found:
        limits_of(table)
    assert words in str(found.value)


def test_limits_of_options_and_defaults() -> None:
    assert limit_option(["agents=1_000", "prompt.minutes=2.5", "tokens=2e6"]) == {
        "session": {"agents": 1000, "tokens": 2_000_000},
        "prompt": {"minutes": 2.5},
    }
    for wrong in ("agents", "agents=x", "agnets=3", "day.agents=3", "agents=-1"):
        with pytest.raises(InputError):
            limit_option([wrong])
    assert limits_of({}).session["agents"] == 100
    assert limits_of({"session": {"tokens": 5}}).session == {"tokens": 5}
    spawn = GuardCall("main", "Agent", "k", is_spawn=True)
    tally = Tally()
    assert refusal(limits_of({}), tally, spawn, 0.0) is None
    for n in range(50):
        tally.on_agent(f"a{n}", 1, None)
    assert refusal(limits_of({}), tally, spawn, 0.0)[0] == "prompt.agents"  # type: ignore[index]


# -- settings -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [
        None,
        "{}",
        '{"model": "x",\n\t"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}]}}',
        '{\n    "hooks": {"Stop": []},\n    "permissions": {"deny": ["é"]}\n}',
    ],
)
def test_installing_and_taking_out_again_leaves_every_byte(before: str | None, tmp_path: Path) -> None:
    path = tmp_path / ".claude" / "settings.json"
    if before is not None:
        path.parent.mkdir()
        path.write_text(before)
    assert install(path, "python -m counterpoint.guard --cap agents=1")
    assert install(path, "python -m counterpoint.guard --cap agents=2")
    assert not install(path, "python -m counterpoint.guard --cap agents=2")
    assert installed(path) == ["python -m counterpoint.guard --cap agents=2"]
    now = json.loads(path.read_text())
    hooks = now.pop("hooks")
    were = json.loads(before or "{}")
    theirs = were.pop("hooks", {})
    assert now == were
    assert {**hooks, "PreToolUse": hooks["PreToolUse"][:-1]} == {"PreToolUse": [], **theirs}
    assert uninstall(path)
    assert not uninstall(path)
    assert (path.read_text() if path.exists() else None) == before
    assert path.parent.exists() == (before is not None)


def test_what_others_changed_in_between_stays(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"model": "x"}')
    install(path, "python -m counterpoint.guard")
    table = json.loads(path.read_text())
    table["hooks"]["PreToolUse"][0]["hooks"].append({"type": "command", "command": "theirs"})
    path.write_text(json.dumps(table | {"theme": "dark"}))
    assert uninstall(path)
    theirs = {"PreToolUse": [{"hooks": [{"type": "command", "command": "theirs"}]}]}
    assert json.loads(path.read_text()) == {"model": "x", "hooks": theirs, "theme": "dark"}


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}', '{"a": 1, "a": 2}'])
def test_settings_that_are_none_are_refused_and_not_touched(text: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"nothing was changed|not a list"):
        install(path, "x")
    assert path.read_text() == text


# -- advice --------------------------------------------------------------------------------------------------------------------


def test_quiet_work_is_a_warning(tmp_path: Path) -> None:
    talk = [record("user", 0, "go"), tool_use(1, "Edit", {"file": "a"}, "c1"), result(60, "c1", "ok")]
    path, limits = write(tmp_path / "s.jsonl", *talk), tmp_path / "guard.toml"
    limits.write_text("[session]\nagents = 5\n[advice]\nquiet_minutes = 40\n")
    options = {"--limits": [str(limits)]}
    assert hook.answer(call(path), options, now=seconds("2026-01-01T10:40:30Z")) == {}
    said = hook.answer(call(path), options, now=seconds("2026-01-01T10:41:30Z"))
    assert "nothing has been changed or completed for 40 minutes" in said["hookSpecificOutput"]["additionalContext"]
    assert "permissionDecision" not in said["hookSpecificOutput"]
    assert hook.answer(call(path), options, now=seconds("2026-01-01T10:45:00Z")) == {}


@functools.cache
def stalled() -> Any:
    """A rule from forty stretches of work whose gains came early."""
    work = [(0.0, 60.0 * (20 + n % 5), [60.0 * k for k in range(3 + n % 7)]) for n in range(40)]
    return learn(work, minutes=1.0, cost=0.02)


def test_a_rule_learned_from_sessions_that_stalled_stops_when_one_stalls(tmp_path: Path) -> None:
    rule = stalled()
    known = rounds_of([0.0, 60.0, 120.0], 0.0, 60.0 * 18, 60.0)
    assert known[:4] == [1, 2, 3, 3]
    assert would_stop(rule, known, 1.0)
    assert not would_stop(rule, [1], 1.0)
    with pytest.raises(PermissionError, match=r"rounds of 1\.0 minutes"):
        would_stop(rule, known, 5.0)
    with pytest.raises(InputError, match="12 stretches"):
        learn([(0.0, 1200.0, [0.0])] * 3, minutes=1.0, cost=0.02)
    talk = [record("user", 0, "go"), tool_use(1, "Write", {}, "c1"), result(60, "c1", "ok"), record("user", 600, "more")]
    path = write(tmp_path / "s.jsonl", *talk, tool_use(610, "Bash", {}, "c2"))
    begin = seconds("2026-01-01T10:00:00Z") or 0.0
    assert stretches(type(read(path))(GuardState()), str(path)) == [
        (begin, begin + 60, [begin + 60]),
        (begin + 600, begin + 610, []),
    ]


def test_a_rule_is_asked_once_a_round_and_its_answer_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def start(words: list[str]) -> None:
        asked.append(words)
        advice.main(*words[3:])

    monkeypatch.setattr(advice, "_start", start)
    stalled().save(tmp_path / "stop.npz")
    limits = tmp_path / "guard.toml"
    limits.write_text('[session]\nagents = 5\n[advice]\nrule = "stop.npz"\nround_minutes = 1\n')
    talk = [record("user", 0, "go"), tool_use(1, "Write", {}, "c1"), result(30, "c1", "ok")]
    path, options, said = write(tmp_path / "s.jsonl", *talk), {"--limits": [str(limits)]}, []
    for second in (40, 50, 90, 95, 20 * 60, 20 * 60 + 1, 25 * 60):
        said.append(hook.answer(call(path), options, now=(seconds("2026-01-01T10:00:00Z") or 0) + second))
    assert len(asked) == 2  # in the first round nothing is known, and once it was told nobody asks again
    assert [bool(one) for one in said] == [False] * 4 + [True] + [False] * 2
    assert "a stop rule learned from 40 runs would stop here" in said[4]["systemMessage"]
    (tmp_path / "stop.npz").write_bytes(b"no rule")
    advice.main(*asked[0][3:])
    assert "no advice" in (Path(state_path("s")).parent / "guard.log").read_text()


# -- commands ------------------------------------------------------------------------------------------------------------------


def test_check_replay_and_status(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(SAMPLES / "claude_code"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    code, out, _ = run("guard", "check", SHOP.stem, "--json")
    assert code == 0
    assert {row["limit"]: row["used"] for row in json.loads(out)["counts"]}["agents"] == len(read(SHOP).tally.agents)
    assert run("guard", "check", SHOP, "--cap", "agents=1")[0] == 4
    code, out, _ = run("guard", "replay", SHOP, "--cap", "agents=1", "--json")
    assert code == 0
    assert [row["limit"] for row in json.loads(out)["fired"]] == ["agents"]
    assert "No limit" in run("guard", "replay", SHOP)[1]
    for wrong in (["check", "no-such-id"], ["check", str(tmp_path)], ["uninstall"]):
        assert run("guard", *wrong)[0] == 3
    (tmp_path / "x.jsonl").write_text("{}\n")
    assert run("guard", "check", "x.jsonl")[0] == 2
    assert run("guard", "install", "--cap", "agnets=1")[0] == 2
    assert run("guard", "install", "--client", "codex", "--cap", "agents=1")[0] == 0
    hook.answer(call(SHOP, "Task"), {"--cap": ["agents=0"]})
    code, out, _ = run("guard", "status", "--json")
    told = json.loads(out)
    assert list(told["installed"]) == [str(tmp_path / ".codex" / "hooks.json")]
    assert [(row["session"], row["refused"], row["last_refusal"]) for row in told["sessions"]] == [(SHOP.stem, 1, "agents")]
    assert run("guard", "uninstall", "--client", "codex")[0] == 0
    assert not os.path.exists(tmp_path / ".codex")


def test_the_printed_limits_file_can_be_read(run: Any, tmp_path: Path) -> None:
    (tmp_path / "guard.toml").write_text(run("guard", "limits")[1])
    assert hook.read_limits(GuardState(), {"--limits": [str(tmp_path / "guard.toml")]}).as_dict() == limits_of({}).as_dict()
