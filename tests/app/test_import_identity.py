"""Which run a log is, in one process and in several: growth, placeholders for ids, and files that are no logs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from counterpoint import Store
from counterpoint.app.import_logs import import_in_parallel, import_sessions, sessions_under
from warm_help import programs

JOBS = (1, 2)


def put_in(folder: Path, jobs: int, *paths: Path, is_again: bool = False) -> list[str]:
    """Import some paths; the status of each session."""
    found = sessions_under(paths).sessions
    if jobs > 1:
        return [o.status for o in import_in_parallel(found, folder, jobs, is_again=is_again)]
    with Store(folder) as store:
        return [o.status for o in import_sessions(found, store, is_again=is_again)]


def stored(folder: Path) -> dict[str, int]:
    with Store(folder, create=False) as store:
        return {name: len(store.get(name).events) for name in store.ids()}


def console(*blocks: tuple[str, str]) -> str:
    return "".join(f"---------- {who} ----------\n{text}\n" for who, text in blocks)


@pytest.mark.parametrize("jobs", JOBS)
def test_a_log_without_an_id_that_grows_stays_one_trace(jobs: int, tmp_path: Path) -> None:
    logs = [tmp_path / "logs" / f"console{k}.txt" for k in range(3)]
    logs[0].parent.mkdir()
    for k, log in enumerate(logs):
        log.write_text(console(("user", f"Plan trip {k}."), ("MagenticOneOrchestrator", "Go.")))
    assert put_in(tmp_path / "s", jobs, tmp_path / "logs") == ["added"] * 3
    before = stored(tmp_path / "s")
    for log in logs[:2]:
        with log.open("a") as file:
            file.write(console(("WebSurfer", "A page.")))
    assert sorted(put_in(tmp_path / "s", jobs, tmp_path / "logs")) == ["unchanged", "updated", "updated"]
    after = stored(tmp_path / "s")
    assert after.keys() == before.keys()
    assert sorted(after[name] - before[name] for name in after) == [0, 1, 1]
    assert put_in(tmp_path / "s", 3 - jobs, tmp_path / "logs") == ["unchanged"] * 3, "what one remembers the other knows"


def trajectory(name: str, *said: str) -> dict[str, Any]:
    steps = [{"step_id": 1, "source": "user", "message": "Fix the bug."}]
    steps += [{"step_id": k + 2, "source": "agent", "message": text} for k, text in enumerate(said)]
    return {"schema_version": "ATIF-v1.2", "session_id": name, "agent": {"name": "a", "version": "1"}, "steps": steps}


@pytest.mark.parametrize("jobs", JOBS)
def test_runs_with_one_placeholder_for_an_id_do_not_replace_each_other(jobs: int, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for k in range(12):  # more than one process takes at once
        (tmp_path / "logs" / f"{k}.json").write_text(json.dumps(trajectory("session", f"I look at {k}.", f"Done {k}.")))
    assert put_in(tmp_path / "s", jobs, tmp_path / "logs") == ["added"] * 12
    names = stored(tmp_path / "s")
    assert len(names) == 12
    assert {name.partition("-")[0] for name in names} == {"session"}
    assert set(put_in(tmp_path / "s", jobs, tmp_path / "logs", is_again=True)) == {"unchanged"}
    (tmp_path / "logs" / "7.json").write_text(json.dumps(trajectory("session", "I look at 7.", "Done 7.", "And tested.")))
    assert sorted(put_in(tmp_path / "s", jobs, tmp_path / "logs")) == ["unchanged"] * 11 + ["updated"], "one that grew is itself"
    assert stored(tmp_path / "s").keys() == names.keys()
    assert sum(stored(tmp_path / "s").values()) == sum(names.values()) + 1


@pytest.mark.parametrize("name", ["00000000-0000-0000-0000-000000000000", "unknown", "run-1"])
def test_a_placeholder_may_look_like_an_id(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(trajectory(name, "One.", "Two.")))
    (tmp_path / "b.json").write_text(json.dumps(trajectory(name, "Three.", "Four.")))
    put_in(tmp_path / "s", 1, tmp_path / "a.json")
    put_in(tmp_path / "s", 1, tmp_path / "b.json")
    assert len(stored(tmp_path / "s")) == 2


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["trace_id", "task_id", "events"],
    "properties": {name: {"type": "string"} for name in ("trace_id", "task_id", "events", "instance_id", "trajectory")},
}


@pytest.mark.parametrize("lacks", [None, "$schema", "type"])
def test_a_schema_is_skipped_and_fails_nothing(lacks: str | None, tmp_path: Path) -> None:
    schema = {key: value for key, value in SCHEMA.items() if key != lacks}
    (tmp_path / "trace.schema.json").write_text(json.dumps(schema, indent=1))
    (tmp_path / "run.json").write_text(json.dumps(trajectory("5b6f0f3e-92a1-4c1e-8f57-3a2d9f4b7c10", "One.")))
    command = [f"{programs()}/counterpoint", "import", ".", "--store", "s", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    account = json.loads(done.stdout.splitlines()[-1])
    assert (account["skipped"], account["failed"], account["traces"]) == (1, [], 1)
    assert "JSON Schema" in account["skipped_first"][0]["why"]


def test_a_damaged_log_fails_and_the_others_are_stored(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(trajectory("5b6f0f3e-92a1-4c1e-8f57-3a2d9f4b7c10", "One.")))
    (tmp_path / "cut.json").write_text('{"trace_id": "t", "task_id": "t", "events": [{"id": "e", "t": ')
    command = [f"{programs()}/counterpoint", "import", ".", "--store", "s", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    account = json.loads(done.stdout.splitlines()[-1])
    assert (len(account["failed"]), account["traces"]) == (1, 1)
