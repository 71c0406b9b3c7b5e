"""`counterpoint import`: finds, reads, stores, tells; twice is once; bad input is named and costs nothing else."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from counterpoint import InputError, Store, registry, save
from counterpoint.app.cli.import_ import summary
from counterpoint.app.discover import LogFiles, find, importer, importers, read_logs
from counterpoint.app.import_account import Account, Outcome
from counterpoint.app.import_logs import import_sessions, sessions_under, span
from counterpoint.formats.importing import files
from counterpoint.trace import Event, Trace
from counterpoint.trace.check import problems
from counterpoint.trace.quantities import PLACEHOLDER, uncounted
from logs import REAL, SAMPLES, real
from warm_help import programs

CLAUDE = SAMPLES / "claude_code"
CPT = (sys.executable, "-u", "-c", "from counterpoint.app.cli import main; main()")
SHOP = "0a000000-0000-4000-8000-00000000000a"


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cpt() -> Run:
    """The command in a process of its own, forked from one that has imported the package."""

    def run(*args: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
        command = [f"{programs()}/counterpoint", *map(str, args)]
        return subprocess.run(command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=600)

    return run


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_imports_once_and_says_what_it_found(cpt: Run, tmp_path: Path) -> None:
    done = cpt("import", CLAUDE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "6 sessions" in done.stdout
    assert "links    exact 7 · inferred 1 (1 same prompt) · unlinked 0" in done.stdout
    assert f"{SHOP}.jsonl:7: is not JSON" in done.stdout
    assert "1 record of kinds we do not know (1 hologram)" in done.stdout
    assert "secrets" in done.stdout
    with Store(tmp_path / "traces", create=False) as store:
        assert len(store) == 7
        assert store.get(SHOP).meta["import"]["format"] == "claude_code"
        before = {name: store.get(name) for name in store.ids()}
    again = told(cpt("import", CLAUDE, "--json", cwd=tmp_path))
    assert again["sources"]["claude_code"]["unchanged"] == 6
    forced = told(cpt("import", CLAUDE, "--json", "--reread", cwd=tmp_path))
    assert forced["sources"]["claude_code"]["sessions"] == 6
    with Store(tmp_path / "traces", create=False) as store:
        assert {name: store.get(name) for name in store.ids()} == before


def test_a_session_that_grew_is_updated_not_doubled(cpt: Run, tmp_path: Path) -> None:
    source = CLAUDE / "projects" / "-repo-shop" / f"{SHOP}.jsonl"
    lines = source.read_bytes().splitlines(keepends=True)
    log = tmp_path / "logs" / source.name
    log.parent.mkdir()
    log.write_bytes(b"".join(lines[:8]))
    told(cpt("import", "logs", "--json", cwd=tmp_path))
    with Store(tmp_path / "traces", create=False) as store:
        few = len(store.get(SHOP).events)
    log.write_bytes(b"".join(lines))
    account = told(cpt("import", "logs", "--json", cwd=tmp_path))
    assert account["sources"]["claude_code"]["updated"] == 1
    with Store(tmp_path / "traces", create=False) as store:
        assert store.ids() == [SHOP]
        assert len(store.get(SHOP).events) > few


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_session_of_which_less_is_left_stays_as_it_is_stored(jobs: str, cpt: Run, tmp_path: Path) -> None:
    """A file that was cut off, and transcripts of sub-agents that were deleted: the store may be the only copy."""
    shutil.copytree(CLAUDE / "projects" / "-repo-shop", tmp_path / "logs")
    told(cpt("import", "logs", "--json", cwd=tmp_path))
    with Store(tmp_path / "traces", create=False) as store:
        before = store.get(SHOP)
    for folder in (tmp_path / "logs").rglob("subagents"):
        shutil.rmtree(folder)
    log = tmp_path / "logs" / f"{SHOP}.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:8]))
    done = cpt("import", "logs", "--workers", jobs, cwd=tmp_path)
    assert "kept     1 session: the stored copy is longer" in done.stdout
    again = told(cpt("import", "logs", "--reread", "--json", "--workers", jobs, cwd=tmp_path))
    assert again["sources"]["claude_code"]["kept"] == 1
    with Store(tmp_path / "traces", create=False) as store:
        assert store.get(SHOP) == before
    assert cpt("store", "rm", SHOP, "--yes", cwd=tmp_path).returncode == 0
    assert cpt("store", "rm", "--restore", SHOP, cwd=tmp_path).returncode == 0
    told(cpt("import", "logs", "--json", "--workers", jobs, cwd=tmp_path))
    with Store(tmp_path / "traces", create=False) as store:
        assert 0 < len(store.get(SHOP).events) < len(before.events)


def test_dry_run_stores_nothing(cpt: Run, tmp_path: Path) -> None:
    done = cpt("import", CLAUDE, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0
    assert "nothing was stored" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_strict_ends_at_the_first_broken_record(cpt: Run, tmp_path: Path) -> None:
    done = cpt("import", CLAUDE, "--strict", "--store", tmp_path / "s", cwd=tmp_path)
    assert done.returncode == 2
    assert f"{SHOP}.jsonl:7" in done.stderr
    assert "without --strict" in done.stderr
    with Store(tmp_path / "s", create=False) as store:
        assert SHOP not in store


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["nowhere"], 3, "no such file or folder"),
        (["words.txt"], 2, "holds no log of a known format"),
        (["empty.jsonl"], 2, "is empty"),
        ([CLAUDE, "--format", "claud"], 3, "claude_code"),
        ([CLAUDE, "--newest", "soon"], 2, "not a span"),
        ([CLAUDE, "--project", "atlantis"], 3, "--project atlantis"),
        ([CLAUDE, "--prices", "bad.toml"], 2, "not valid TOML"),
        ([CLAUDE, "--newest", "0"], 2, "at least one session"),
        ([], 3, "name a file or folder"),
    ],
)
def test_bad_input_gets_one_clear_error(cpt: Run, tmp_path: Path, args: list[object], code: int, says: str) -> None:
    (tmp_path / "words.txt").write_text("just words\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "bad.toml").write_text("= 3")
    away = {name: str(tmp_path / "home") for name in ("HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "KIMI_CODE_HOME")}
    done = cpt("import", *args, cwd=tmp_path, **away)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "traces").exists()


def test_without_a_path_it_finds_the_homes_and_only_reads(cpt: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(CLAUDE / "projects", home / ".claude" / "projects")
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in home.rglob("*") if p.is_file()}
    gone = dict.fromkeys(("CLAUDE_CONFIG_DIR", "CODEX_HOME", "KIMI_CODE_HOME"), "")
    done = cpt("import", "--json", cwd=tmp_path, HOME=str(home), **gone)
    assert told(done)["sources"]["claude_code"]["sessions"] == 6
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in home.rglob("*") if p.is_file()} == before


def test_last_project_and_limit_choose_sessions(tmp_path: Path) -> None:
    logs = tmp_path / "projects"
    shutil.copytree(CLAUDE / "projects", logs)
    old = time.time() - 30 * 86400
    for path in logs.rglob("*"):
        if path.is_file() and "-repo-shop" not in path.as_posix():
            os.utime(path, (old, old))
    assert len(sessions_under([logs]).sessions) == 6
    assert [s.key for _, s in sessions_under([logs], since=time.time() - span("7d")).sessions] == [SHOP]
    assert [s.key for _, s in sessions_under([logs], project="/repo/shop").sessions][-1] == SHOP
    assert len(sessions_under([logs], project="-repo-docs").sessions) == 1
    assert [s.key for _, s in sessions_under([logs], limit=1).sessions] == [SHOP]


def test_a_price_file_wins(cpt: Run, tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('["own-model-1"]\ninput = 1.0\noutput = 2.0\n')
    told(cpt("import", CLAUDE, "--prices", "prices.toml", "--json", cwd=tmp_path))
    with Store(tmp_path / "traces", create=False) as store:
        event = next(e for e in store.get(SHOP).events if e.id == "msg_c2")
    assert event.cost_usd == pytest.approx((5 + 950 + 40 + 2 * 15) / 1e6)


def test_the_summary_has_both_numbers_where_a_session_gives_more_traces_than_one() -> None:
    account = Account()
    for k, traces in enumerate((["a"], ["b", "c"])):
        account.add(Outcome("inspect", f"s{k}", "added", traces=traces))
    assert "inspect  2 sessions, 3 traces" in summary(account, LogFiles())


def test_the_summary_says_that_placeholders_make_the_total_a_least() -> None:
    account = Account()
    outcome = Outcome("claude_code", "s", "added", traces=["a"], tokens=1200)
    account.add(outcome)
    assert "tokens   1,200 accounted" in summary(account, LogFiles())
    outcome.report.lacks[PLACEHOLDER] += 1
    account.add(outcome)
    assert "tokens   at least 2,400 accounted · 1 model call with a placeholder for the output" in summary(account, LogFiles())
    assert "missing" not in summary(account, LogFiles())
    assert account.as_dict()["tokens"]["model_calls_with_placeholder_output"] == 1


def test_list_names_every_source(cpt: Run, tmp_path: Path) -> None:
    done = cpt("import", "--format", "list", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[::2]] == sorted(importers())
    pi = f"versions {importers()['pi'].versions} · exact: {importers()['pi'].exact} · lost: {importers()['pi'].lost}"
    assert [line.strip() for line in lines[1::2]][sorted(importers()).index("pi")] == pi
    told = [json.loads(line) for line in cpt("import", "--format", "list", "--json", cwd=tmp_path).stdout.splitlines()]
    assert {one["format"]: (one["versions"], one["exact"], one["lost"]) for one in told} == {
        name: (one.versions, one.exact, one.lost) for name, one in importers().items()
    }


# -- hostile trees -----------------------------------------------------------------------------------------------------


def test_loops_of_links_unreadable_and_odd_files_are_named(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(CLAUDE / "projects" / "-repo-old", logs / "a")
    (logs / "a" / "back").symlink_to(logs)
    (logs / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(logs / "pipe")
    (logs / "noise.jsonl").write_bytes(os.urandom(4096))
    found = find([logs, logs])
    assert len(found.sessions) == 2
    why = {Path(s.name).name: s.why for s in found.skipped}
    assert set(why) == {"dangling", "pipe", "noise.jsonl"}
    assert "not a plain file" in why["pipe"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text("{}")
    log.chmod(0)
    assert find([log]).skipped[0].why == "permission denied"


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: zstandard.ZstdCompressor().compress(data)], ids=["gzip", "zstd"])
def test_packed_files_are_unpacked_whatever_their_name(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    data = (CLAUDE / "projects" / "-repo-old" / "0b000000-0000-4000-8000-00000000000b.jsonl").read_bytes()
    (tmp_path / "session.log").write_bytes(pack(data))
    (trace,) = read_logs(tmp_path / "session.log")
    assert len(trace.events) == 7
    (tmp_path / "torn.log").write_bytes(pack(data * 300)[:-40])
    (torn,) = read_logs(tmp_path / "torn.log")
    assert torn.events


def test_a_bomb_and_a_huge_record_stay_within_their_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_UNPACKED", 1 << 20)
    monkeypatch.setattr(files.bounded, "__defaults__", (1 << 20,))
    data = (CLAUDE / "projects" / "-repo-old" / "0b000000-0000-4000-8000-00000000000b.jsonl").read_bytes()
    (tmp_path / "bomb.jsonl").write_bytes(gzip.compress(data + b" " * (64 << 20)))
    (trace,) = read_logs(tmp_path / "bomb.jsonl")
    assert "more than the limit" in trace.meta["import"]["session"]["broken_first"][0]["what"]
    monkeypatch.setattr(files, "MAX_LINE", 1 << 16)
    lines = data.splitlines(keepends=True)
    lines.insert(3, b'{"type":"user","text":"' + b"x" * (1 << 18) + b'"}\n')
    (tmp_path / "long.jsonl").write_bytes(b"".join(lines))
    (long,) = read_logs(tmp_path / "long.jsonl")
    assert long.meta["import"]["session"]["broken_first"][0] == {
        "file": "long.jsonl", "line": 4, "what": "a record beyond the size limit"
    }  # fmt: skip
    assert len(long.events) == 7


def test_a_record_of_fifty_megabytes_is_read(tmp_path: Path) -> None:
    big = {"type": "user", "sessionId": "s", "uuid": "u", "timestamp": "2026-01-01T00:00:00Z", "message": {"content": "x" * (50 << 20)}}
    (tmp_path / "big.jsonl").write_text(json.dumps(big) + "\n")
    (trace,) = read_logs(tmp_path / "big.jsonl")
    assert len(trace.text(trace.events[0]) or "") == 50 << 20


def test_a_defect_in_one_session_does_not_cost_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find([CLAUDE])
    broken = found.sessions[2][1]
    monkeypatch.setattr(type(broken), "draft", _defect(broken.key, type(broken).draft))
    with Store(tmp_path / "s") as store:
        outcomes = list(import_sessions(found.sessions, store))
        assert [o.status for o in outcomes].count("failed") == 1
        assert "defect: ZeroDivisionError" in str(next(o.error for o in outcomes if o.status == "failed"))
        assert len(store) >= 5


def _defect(key: str, real_draft: Callable[..., Any]) -> Callable[..., Any]:
    def draft(self: Any, *args: Any, **more: Any) -> Any:
        if self.key == key:
            raise ZeroDivisionError
        return real_draft(self, *args, **more)

    return draft


@pytest.mark.shared
def test_every_real_file_is_imported_without_a_crash_or_an_error() -> None:
    found = find([real()])
    claimed: dict[str, int] = {}
    for name, session in found.sessions:
        for trace in importers()[name].read_session(session):
            claimed[name] = claimed.get(name, 0) + 1
            assert [str(p) for p in problems(trace) if p.severity == "error"] == [], (name, session.key)
    skipped = {Path(s.name).relative_to(REAL).as_posix() for s in found.skipped}
    # A workflow's script, a table of sources, a schema, a set of questions and a state file broken on purpose are no logs.
    no_logs = (".csv", ".js", ".proto", "spec/gen-ai-output-messages.json", "spec/gen-ai-tool-definitions.json")
    no_logs += ("eval_set_helm.json", "evalset_k8s_2026-02-20.json", "broken-state-json/state.json")
    # Under more/ lie logs of systems that no importer is for.
    assert [name for name in skipped if not name.endswith(no_logs) and not name.startswith("more/")] == []
    assert len(claimed) >= 10


# -- identity ----------------------------------------------------------------------------------------------------------


def stored(folder: Path) -> set[str]:
    with Store(folder, create=False) as store:
        return set(store.ids())


def put_in(folder: Path, *paths: str | Path, **options: Any) -> list[str]:
    """Import some paths; the status of each session."""
    with Store(folder) as store:
        return [o.status for o in import_sessions(sessions_under(paths).sessions, store, **options)]


@pytest.mark.parametrize("name", ["who_and_when", "inspect", "autogen", "marble", "verifiers", "claude_code", "codex", "otel", "agentdojo", "mast", "atif"])
def test_the_same_source_is_the_same_trace_wherever_it_lies(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed relative, typed absolute, moved, or in a zip archive."""
    monkeypatch.chdir(SAMPLES)
    put_in(tmp_path / "s", name)
    first = stored(tmp_path / "s")
    with Store(tmp_path / "s", create=False) as store:
        before = {one: store.version(one) for one in first}
    shutil.copytree(SAMPLES / name, tmp_path / "elsewhere" / name)
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", SAMPLES / name)
    for path in (SAMPLES / name, tmp_path / "elsewhere", packed):
        assert set(put_in(tmp_path / "s", path, is_again=True)) <= {"unchanged", "empty"}, path
    with Store(tmp_path / "s", create=False) as store:
        assert {one: store.version(one) for one in store.ids()} == before


def run_of_team(k: int) -> dict[str, Any]:
    turns = [("user", "Plan a trip."), ("MagenticOneOrchestrator", f"Plan {k}."), ("WebSurfer", f"Page {k}.")]
    return {"question": "Plan a trip.", "question_ID": "same", "ground_truth": "x", "mistake_agent": "WebSurfer", "mistake_step": "1",
            "history": [{"role": who, "content": text} for who, text in turns]}  # fmt: skip


def test_runs_of_one_name_keep_apart_and_nothing_is_lost(tmp_path: Path) -> None:
    for k in range(5):
        (tmp_path / "logs" / f"run{k}").mkdir(parents=True)
        blocks = [("user", "Plan a trip."), ("MagenticOneOrchestrator", f"Plan {k}."), ("WebSurfer", f"Page {k}.")]
        console = "".join(f"---------- {who} ----------\n{text}\n" for who, text in blocks)
        (tmp_path / "logs" / f"run{k}" / "console_log.txt").write_text(console)
        (tmp_path / "logs" / f"run{k}" / "run.json").write_text(json.dumps(run_of_team(k)))
    (tmp_path / "logs" / "lines.jsonl").write_text("".join(json.dumps(run_of_team(k)) + "\n" for k in (0, 7)))
    statuses = put_in(tmp_path / "s", tmp_path / "logs")
    assert set(statuses) <= {"added", "unchanged"}
    names = stored(tmp_path / "s")
    assert len(names) == 5 + 6  # the first of the lines is a run that is there already
    assert sum(name.startswith("hand-crafted/same") for name in names) + sum(name.startswith("algorithm-generated/same") for name in names) == 6
    assert set(put_in(tmp_path / "s", tmp_path / "logs", is_again=True)) <= {"unchanged", "updated"}  # a file's name may be another
    assert stored(tmp_path / "s") == names


def test_a_log_without_an_id_that_grows_stays_one_trace(tmp_path: Path) -> None:
    log = tmp_path / "console_log.txt"
    log.write_text("---------- user ----------\nPlan a trip.\n---------- MagenticOneOrchestrator ----------\nGo.\n")
    put_in(tmp_path / "s", log)
    before = stored(tmp_path / "s")
    with log.open("a") as file:
        file.write("---------- WebSurfer ----------\nA page.\n")
    assert put_in(tmp_path / "s", log) == ["updated"]
    assert stored(tmp_path / "s") == before
    log.write_text("---------- user ----------\nAnother.\n---------- MagenticOneOrchestrator ----------\nGo.\n---------- WebSurfer ----------\nB.\n")
    put_in(tmp_path / "s", log)
    assert len(stored(tmp_path / "s")) == 2


def test_exit_0_only_where_something_is_stored(cpt: Run, tmp_path: Path) -> None:
    empty = {"type": "queue-operation", "operation": "enqueue", "sessionId": SHOP, "timestamp": "2026-01-01T00:00:00Z"}
    (tmp_path / f"{SHOP}.jsonl").write_text(json.dumps(empty) + "\n")
    done = cpt("import", f"{SHOP}.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "no trace" in done.stderr
    (tmp_path / "run.json").write_text(json.dumps(run_of_team(1)))
    for _ in range(2):
        assert cpt("import", ".", cwd=tmp_path).returncode == 0


# -- odd files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read_as_it_was_meant(coding: str, tmp_path: Path) -> None:
    text = json.dumps(run_of_team(3), ensure_ascii=False).replace("Plan a trip.", "Plane eine Reise nach Köln.")
    (tmp_path / "plain.json").write_text(text, encoding="utf-8")
    (tmp_path / "wide.json").write_bytes(text.encode(coding))
    (plain,), (wide,) = read_logs(tmp_path / "plain.json"), read_logs(tmp_path / "wide.json")
    assert wide == plain
    (tmp_path / "wide.json.gz").write_bytes(gzip.compress(text.encode(coding)))
    assert next(iter(read_logs(tmp_path / "wide.json.gz"))) == plain


def test_what_tells_a_source_may_stand_far_into_the_file(tmp_path: Path) -> None:
    run = run_of_team(3)
    run["history"][0]["content"] = "x" * 200_000
    late = {"history": run.pop("history"), **run}
    (tmp_path / "late.json").write_text(json.dumps(late))
    assert [name for name, _ in find([tmp_path]).sessions] == ["who_and_when"]
    first = {"type": "summary", "summary": "s", "leafUuid": "l"}
    long = {"type": "user", "uuid": "u", "sessionId": SHOP, "timestamp": "2026-01-01T00:00:00Z", "message": {"content": "x" * 200_000}}
    (tmp_path / "late.json").write_text(json.dumps(first) + "\n" + json.dumps(long) + "\n")
    assert [name for name, _ in find([tmp_path]).sessions] == ["claude_code"]


def test_a_refused_file_says_what_it_is_nearest_to(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"history": [], "question": "q", "answer": 3}))
    (tmp_path / "b.json").write_text(json.dumps({"colour": 1, "size": 2}))
    (tmp_path / "c.txt").write_text("just words")
    why = {Path(s.name).name: s.why for s in find([tmp_path]).skipped}
    assert why == {
        "a.json": "comes from no source we know; nearest is who_and_when: it has history, question, and lacks ground_truth, mistake_agent, mistake_step",
        "b.json": "comes from no source we know: JSON with colour, size",
        "c.txt": "comes from no source we know: it is not JSON",
    }


@pytest.mark.parametrize("odd", ["null", "[1, 2, 3]", "42", '"words"', "just words"])
@pytest.mark.parametrize(
    "log",
    [
        SAMPLES / "claude_code" / "projects" / "-repo-old" / "0b000000-0000-4000-8000-00000000000b.jsonl",
        SAMPLES / "codex" / "exec" / "run.jsonl",
        next((SAMPLES / "codex" / "v1").rglob("rollout-*.jsonl")),
    ],
)
def test_a_first_line_that_is_no_record_costs_only_itself(odd: str, log: Path, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(odd + "\n" + log.read_text())
    ((name, session),) = find([tmp_path]).sessions
    (trace,) = importer(name).read_session(session)
    (whole,) = read_logs(log)
    assert (trace.trace_id, len(trace.events)) == (whole.trace_id, len(whole.events))
    assert [(row["line"], session.report.broken_count) for row in session.report.broken] == [(1, 1)]


def test_what_we_wrote_is_nobody_s_log_whatever_its_texts_quote(tmp_path: Path) -> None:
    quoted = '{"resourceSpans":[{"name":"openinference.instrumentation.langchain","openinference.span.kind":"LLM"}]}'
    trace = Trace(trace_id="t", task_id="t", events=[Event(id="e", t=0, type="message", agent="a")], meta={"about": quoted})
    save(trace, tmp_path / "ours.jsonl")
    (tmp_path / "ours.otlp.json").write_bytes(registry.get("format", "otlp").write(trace))
    found = find([tmp_path])
    assert found.sessions == []
    assert {s.why for s in found.skipped} == {"is a trace that we wrote: `counterpoint import` takes it back, `counterpoint.load` reads it"}
    with pytest.raises(InputError, match=r"counterpoint\.load"):
        list(read_logs(tmp_path / "ours.jsonl"))


def test_a_refused_file_is_told_the_truth(tmp_path: Path) -> None:
    spans = (SAMPLES / "otel" / "claude_code.jsonl").read_text()
    claude = SAMPLES / "claude_code" / "projects" / "-repo-old" / "0b000000-0000-4000-8000-00000000000b.jsonl"
    for name, text in {"a": "null", "b": "null\n" + spans, "c": "{}\n" + claude.read_text(), "d": "x\ny\n" + spans}.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
    why = {Path(s.name).stem: s.why for s in find([tmp_path]).skipped}
    assert why == {
        "a": "comes from no source we know: JSON without an object in it",
        "b": "looks like otel from line 2 on, but line 1 is no record of it: take the beginning out",
        "c": "comes from no source we know; nearest is claude_code: it has sessionId, uuid, parentUuid, type, "
        "but not where claude_code has them (--format claude_code reads it as such)",
        "d": "looks like otel from line 3 on, but lines 1 to 2 are no records of it: take the beginning out",
    }


def test_an_archive_that_is_broken_locked_or_nested_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04" + b"\0" * 100)
    inner = shutil.make_archive(str(tmp_path / "inner"), "zip", SAMPLES / "mast")
    (tmp_path / "in").mkdir()
    shutil.move(inner, tmp_path / "in" / "inner.zip")
    shutil.make_archive(str(tmp_path / "outer"), "zip", tmp_path / "in")
    shutil.rmtree(tmp_path / "in")
    found = find([tmp_path])
    assert found.sessions == []
    why = {Path(s.name).name: s.why for s in found.skipped}
    assert "cannot be read" in why["broken.zip"]
    assert "not JSON" in why["inner.zip"]


def test_totals_that_are_not_all_have_a_plus(cpt: Run, tmp_path: Path) -> None:
    told(cpt("import", CLAUDE, "--json", cwd=tmp_path))
    with Store(tmp_path / "traces", create=False) as store:
        rows = {row.id: row for row in store.rows()}
        for name, row in rows.items():
            assert row.uncounted == uncounted(store.get(name).meta)
    least = [row for row in rows.values() if row.uncounted and row.tokens]
    assert least
    assert len(least) < len(rows)
    listed = {row["id"]: row["uncounted"] for row in map(json.loads, cpt("ls", "--json", cwd=tmp_path).stdout.splitlines())}
    assert listed == {name: row.uncounted for name, row in rows.items()}
    lines = cpt("ls", cwd=tmp_path).stdout.splitlines()[1:]
    assert sum("+ " in line for line in lines) == sum(bool(row.tokens and (row.uncounted or row.unpriced)) for row in rows.values())
    many = sum(row.uncounted for row in rows.values())
    assert f"{many:,} agents or model calls have no true count" in " ".join(cpt("report", cwd=tmp_path).stdout.split())
    assert f"at least that: {many:,} agents or model calls" in cpt("top", "--group", "project", cwd=tmp_path).stdout
