"""`counterpoint store check` on everything that can be wrong with a file: one clear message, a place, a way out, an exit code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from counterpoint.app.cli import cli, main
from counterpoint.testing import synthetic_trace
from counterpoint.trace import encode

TOP: dict[str, Any] = {"trace_id": "t", "task_id": "q", "edges": [], "rewards": {}, "costs": {"tokens": 0, "wall_clock_s": 9}}


def event(name: str, t: Any = 0, **fields: Any) -> dict[str, Any]:
    return {"id": name, "t": t, "type": "message", "agent": "x"} | fields


def doc(*events: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps(TOP | {"events": list(events) or [event("a")]} | fields).encode()


def edge(src: str, dst: str) -> dict[str, str]:
    return {"src": src, "dst": dst, "type": "causal"}


def run(*arguments: str) -> tuple[int, str, str]:
    """The command as a user runs it, in this process: exit code, stdout, stderr."""
    result = CliRunner().invoke(cli, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def verdict(path: Path) -> tuple[int, dict[str, Any]]:
    code, out, _ = run("store", "check", str(path), "--json")
    return code, json.loads(out)


BAD: dict[str, tuple[bytes, int, str, str]] = {
    "empty": (b"", 2, "empty", "byte 0"),
    "blank": (b"  \n", 2, "empty", "byte 0"),
    "not JSON": (b"hello", 2, "json", "byte 0"),
    "another shape": (b"[1, 2, 3]", 4, "shape", "$"),
    "JSON of another kind": (b'{"spans": 3}', 4, "required", "$"),
    "another system's log without a run": (b'{"resourceSpans": []}', 4, "invalid", "$"),
    "truncated": (doc()[:-20], 2, "truncated", "byte"),
    "NaN": (doc(event("a", float("nan"))), 2, "non-finite", "byte"),
    "infinity": (doc(rewards={"team": float("inf")}), 2, "non-finite", "byte"),
    "beyond a double": (doc().replace(b'"t": 0', b'"t": 1e999'), 2, "non-finite", "byte"),
    "negative cost": (doc(costs={"tokens": -1, "wall_clock_s": 0}), 4, "minimum", "$.costs.tokens"),
    "negative other cost": (doc(costs={"tokens": 1, "wall_clock_s": 0, "gpu_s": -3}), 4, "negative", "$.costs.gpu_s"),
    "negative tokens": (doc(event("a", tokens_in=-4)), 4, "negative", "events[0].tokens_in"),
    "duplicate ids": (doc(event("a"), event("a")), 4, "duplicate-id", "events[1]"),
    "edge to nowhere": (doc(event("a"), edges=[edge("a", "z")]), 4, "dangling-edge", "edges[0].dst"),
    "cycle": (doc(event("a"), event("b"), edges=[edge("a", "b"), edge("b", "a")]), 4, "cycle", "events["),
    "time backwards": (doc(event("a", 5), event("b", 1), edges=[edge("a", "b")]), 4, "time-backwards", "edges[0]"),
    "Latin-1": ('{"trace_id": "café"}'.encode("latin-1"), 2, "encoding", "byte 17"),
    "UTF-16": (doc().decode().encode("utf-16"), 2, "encoding", "byte 0"),
    "nested without end": (b'{"a":' * 50_000, 2, "nesting", "$"),
    "two documents": (doc() + b"\n" + doc(), 2, "json", "line 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_get_one_clear_error(name: str, tmp_path: Path) -> None:
    data, code, kind, where = BAD[name]
    path = tmp_path / "bad.trace.json"
    path.write_bytes(data)
    got, report = verdict(path)
    first = report["errors"][0]
    assert (got, report["ok"], first["code"]) == (code, False, kind)
    assert first["where"].startswith(where)
    assert first["what"]
    assert first["hint"]
    assert path.read_bytes() == data


@pytest.mark.parametrize("name", BAD)
def test_load_refuses_what_is_not_a_trace_and_takes_what_is(name: str, tmp_path: Path) -> None:
    """Loading needs the schema only: a cycle can be loaded, and then looked at."""
    import counterpoint

    data, _, kind, _ = BAD[name]
    path = tmp_path / "bad.trace.json"
    path.write_bytes(data)
    if kind in {"negative", "duplicate-id", "dangling-edge", "cycle", "time-backwards"}:
        assert counterpoint.load(path).trace_id == "t"
    else:
        with pytest.raises(counterpoint.InputError) as caught:
            counterpoint.load(path)
        assert str(path) in str(caught.value)


def test_a_directory(tmp_path: Path) -> None:
    code, report = verdict(tmp_path)
    assert code == 2
    assert "directory" in report["errors"][0]["what"]
    assert report["errors"][0]["hint"]


def test_no_such_file(tmp_path: Path) -> None:
    code, report = verdict(tmp_path / "nowhere.json")
    assert (code, report["errors"][0]["code"]) == (3, "not-found")


def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "locked.trace.json"
    path.write_bytes(doc())
    assert verdict(path)[0] == 0  # and everything is imported that another user might not be allowed to read
    path.chmod(0)
    child = os.fork()
    if not child:
        # Root reads everything, so another user must try; in a process of its own, which ends without cleaning up after pytest.
        try:
            os.chdir(tmp_path)
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            code, out, _ = run("store", "check", path.name, "--json")
            os._exit(0 if code == 2 and "permission" in json.loads(out)["errors"][0]["what"] else 1)
        except BaseException:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_no_permission_as_the_system_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "locked.trace.json"

    def refuse(_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("counterpoint.app.file_check.opened", refuse)
    path.write_bytes(doc())
    code, report = verdict(path)
    assert (code, report["errors"][0]["code"]) == (2, "unreadable")
    assert report["errors"][0]["hint"]


def test_a_hundred_megabytes_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "long.trace.json"
    path.write_bytes(doc(system="x" * 100_000_000))
    assert verdict(path)[0] == 0
    path.write_bytes(b"y" * 100_000_000)
    code, out, _ = run("store", "check", str(path))
    assert code == 2
    assert len(out) < 1000


def test_ten_thousand_errors_are_counted_and_fifty_shown(tmp_path: Path) -> None:
    path = tmp_path / "many.trace.json"
    head, tail = doc().split(b'{"id": "a", "t": 0, "type": "message", "agent": "x"}')
    path.write_bytes(head + b",".join([b'{"id":"a","t":-1,"type":"x","agent":"b"}'] * 5_000) + tail)
    code, report = verdict(path)
    assert (code, report["error_count"], len(report["errors"]), report["events"]) == (4, 10_000, 50, 5_000)
    code, out, _ = run("store", "check", str(path), "--rows", "3")
    assert out.count("\n") == 5
    assert "9,997 more errors" in out


def test_the_object_has_the_documented_fields(tmp_path: Path) -> None:
    path = tmp_path / "good.trace.json"
    path.write_bytes(encode(synthetic_trace(3, 19, "swarm", 1)))
    code, report = verdict(path)
    assert code == 0
    assert list(report)[:8] == ["file", "ok", "format", "events", "edges", "agents", "errors", "warnings"]
    assert (report["ok"], report["format"], report["agents"], report["errors"], report["warnings"]) == (True, "survey", 4, [], [])


def test_warnings_do_not_fail_a_file(tmp_path: Path) -> None:
    path = tmp_path / "warned.trace.json"
    path.write_bytes(doc(event("a", type="tool_result", tool="grep")))
    code, report = verdict(path)
    assert (code, report["ok"], report["warnings"][0]["code"]) == (0, True, "orphan-result")


@pytest.mark.parametrize(
    ("names", "code"),
    [(["good"], 0), (["good", "invalid"], 4), (["invalid", "missing"], 3), (["missing", "unreadable", "invalid"], 2)],
)
def test_of_several_files_the_most_serious_decides(names: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(doc())
    (tmp_path / "invalid.json").write_bytes(doc(event("a"), event("a")))
    (tmp_path / "unreadable.json").write_bytes(b"{")
    got, out, _ = run("store", "check", *(str(tmp_path / f"{n}.json") for n in names), "--json")
    assert got == code
    assert len(out.splitlines()) == len(names)


def test_quiet_prints_only_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(doc())
    assert run("store", "check", "-q", str(tmp_path / "good.json")) == (0, "", "")


def test_trace_text_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "evil.json"
    path.write_bytes(doc(event("\x1b[2Jboo"), event("\x1b[2Jboo")))
    assert "\x1b" not in run("store", "check", str(path))[1]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["stoer", "x"], 2, "did you mean 'store'"),
        (["store", "chekc", "x"], 2, "did you mean 'check'"),
        (["store", "check"], 2, "Missing argument"),
        (["store", "check", "--limt", "3", "x"], 2, "No such option"),
        (["show", "no-such-trace"], 3, "no trace 'no-such-trace'"),
        (["ls"], 3, "no store here"),
    ],
)
def test_usage_errors(arguments: list[str], code: int, says: str, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COUNTERPOINT_STORE", raising=False)
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert done.value.code == code
    assert says in capsys.readouterr().err


def test_errors_are_objects_with_json(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["show", "nothing.json", "--json"])
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["exit"] == 3
    assert error["fix"]
    for typed in (["ls", "--bogus", "--json"], ["serve", "--port", "99999", "--json"], ["nothing", "--json"]):
        with pytest.raises(SystemExit) as done:
            main(typed)
        assert (done.value.code, json.loads(capsys.readouterr().out)["error"]["exit"]) == (2, 2)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    def breaks(error: BaseException) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr("counterpoint.app.cli.cli.main", fail)

    return breaks


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device", "/some/file"), 1, "no space left"),
        (PermissionError(13, "Permission denied", "/some/file"), 2, "permission denied"),
        (RuntimeError("boom"), 1, "bug in Counterpoint"),
    ],
)
def test_every_way_to_fail_has_its_exit_code(error: BaseException, code: int, says: str, broken: Any, capsys: Any) -> None:
    broken(error)
    with pytest.raises(SystemExit) as done:
        main(["store", "check", "x"])
    assert done.value.code == code
    assert says in capsys.readouterr().err


def test_a_log_of_another_tool_is_checked_as_its_importer_reads_it() -> None:
    log = Path(__file__).parents[2] / "examples" / "logs" / "codex" / "exec" / "run.jsonl"
    code, report = verdict(log)
    assert (code, report["ok"], report["format"]) == (0, True, "codex")
    assert report["events"] > 5
