"""`counterpoint export --to rl`: rows that a trainer reads with nothing of ours, and what could not become one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterpoint import Store, Trace
from counterpoint.app.api.credit import rows as rows_of
from counterpoint.app.load_save import save
from counterpoint.lab.tasks.task import task
from counterpoint.lab.team.session import make_model
from counterpoint.trace.model_calls import model_call, prompt_of
from team_help import WithIds, record

Ends = Callable[..., tuple[int, str, str]]
DIALS = {"documents": 8, "rows": 2, "parts": 2, "firms": 6}
COLUMNS = ["trace_id", "event_id", "agent", "role", "model", "policy", "version", "group", "level", "advantage", "share",
           "prompt_ids", "completion_ids", "completion_mask", "logps", "token_advantages"]  # fmt: skip


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs of a task, with token ids, and one without."""
    folder = tmp_path_factory.mktemp("rl") / "live"
    for skill in ("0.5", "1"):
        model = make_model(f"fake:{skill}", task("ledger_hunt").replace(**DIALS))
        record(folder, using=WithIds(model), config=DIALS, model=f"fake:{skill}", trace_id=f"hunt-{skill}")
    record(folder, config=DIALS, model="fake:0.5", trace_id="bare")
    return folder


@pytest.fixture
def export(ends_of: Callable[[str], Ends], live: Path) -> Ends:
    run = ends_of("export")
    return lambda *arguments: run(*arguments, "--to", "rl", "--store", live)


def _plain(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_plain_reader_finds_what_each_call_read_wrote_and_earned(export: Ends, live: Path, tmp_path: Path) -> None:
    code, out, err = export("hunt-0.5", "hunt-1", "-o", "rows.jsonl")
    assert (code, err) == (0, "")
    found = _plain(tmp_path / "rows.jsonl")
    assert f"rows.jsonl  {len(found)} rows" in out
    with Store(live) as store:
        traces = [store.get("hunt-0.5"), store.get("hunt-1")]
    calls = [(t, e) for t in traces for e in t.events if model_call(e)]
    assert [(r["trace_id"], r["event_id"]) for r in found] == [(t.trace_id, e.id) for t, e in calls]
    for row, (trace, event) in zip(found, calls, strict=True):
        assert list(row) == COLUMNS
        assert bytes(row["completion_ids"]).decode() == trace.contents[(model_call(event) or {})["completion"]] + "\n"
        assert prompt_of(trace, event)[-1].encode() in bytes(row["prompt_ids"])
        n = len(row["completion_ids"])
        assert row["completion_mask"] == [1] * n
        assert row["logps"] == [-0.25] * n
        assert row["token_advantages"] == [row["advantage"]] * n
        assert (row["agent"], row["role"], row["model"], row["version"]) == (event.agent, event.role, event.model, event.policy)
        assert row["policy"] == event.model
        assert row["group"] == trace.task_id
    worse, better = ({r["advantage"] for r in found if r["trace_id"] == name} for name in ("hunt-0.5", "hunt-1"))
    assert worse == {-a for a in better}
    assert min(better) > 0


def test_parquet_and_json_lines_hold_the_same(export: Ends, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    for name in ("rows.jsonl", "rows.parquet"):
        assert export("hunt-0.5", "-o", name, "--mechanism", "ledger")[0] == 0
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == _plain(tmp_path / "rows.jsonl")


def test_the_report_says_what_found_no_call_and_how_much(export: Ends, live: Path) -> None:
    code, out, _ = export("hunt-0.5", "-o", "rows.jsonl", "--mechanism", "ledger", "--json")
    told = json.loads(out)["credit"]
    rows = rows_of("hunt-0.5", "ledger", store=live)
    assert code == 0
    assert told["method"] == "ledger"
    assert told["additive"]
    lost = sum(u["value"] for u in told["unplaced"])
    given, carried = told["given"]["event"], told["carried"]["event"]
    assert given == pytest.approx(carried + told["replaced"]["event"] + lost, abs=1e-9)
    assert len(told["unplaced"]) == len(rows.placement.unplaced) > 0
    code, out, _ = export("hunt-0.5", "-o", "-", "--mechanism", "ledger")
    assert (code, len(out.splitlines())) == (0, len(rows.rows))  # the report goes to the other stream


def test_a_query_options_and_what_is_left_out(export: Ends, tmp_path: Path) -> None:
    code, out, _ = export("finished", "-o", "rows.jsonl", "--mechanism", "group-relative", "--set", "convention=rloo", "--dry-run")
    assert code == 0
    assert "would write rows.jsonl" in out
    assert "calls without token ids" in out
    assert not (tmp_path / "rows.jsonl").exists()
    code, out, _ = export("hunt-1", "-o", "some.jsonl", "--mechanism", "tool_call")
    assert code == 0
    assert "calls without an advantage" in out
    assert {row["level"] for row in _plain(tmp_path / "some.jsonl")} == {"event"}


def test_a_call_that_read_a_secret_stays_at_home_unless_it_is_asked_for(export: Ends, live: Path, tmp_path: Path) -> None:
    with Store(live) as store:
        trace = store.get("hunt-1")
    told = [e for e in trace.events if e.type == "tool_result"][1]
    key = {told.content_ref: "sk-proj-" + "a1B2c3D4e5F6g7H8" * 2}
    save(replace(trace, contents=trace.contents | key), tmp_path / "secret.jsonl")
    _, out, _ = export("secret.jsonl", "--mechanism", "uniform", "-o", "rows.jsonl")
    assert "calls that read or wrote a secret" in out
    export("secret.jsonl", "--mechanism", "uniform", "-o", "all.jsonl", "--mask", "off")
    assert len(_plain(tmp_path / "rows.jsonl")) < len(_plain(tmp_path / "all.jsonl"))


def test_names_that_are_secrets_leave_as_labels_and_the_report_says_where(
    export: Ends, ends_of: Callable[[str], Ends], live: Path, tmp_path: Path
) -> None:
    with Store(live) as store:
        traces = [store.get("hunt-0.5"), store.get("hunt-1")]

    def named(event: Any, last: str) -> Any:
        who = {"agent": f"{event.agent}.ann@corp.io", "role": "bob@corp.io", "model": "eve@corp.io"}
        return replace(event, id="zed@corp.io" if event.id == last else event.id, **who)

    for i, trace in enumerate(traces):
        last = [e.id for e in trace.events if model_call(e)][-1]  # no later prompt is made of it
        events, edges = [named(e, last) for e in trace.events], [e for e in trace.edges if last not in (e.src, e.dst)]
        told = replace(trace, events=events, edges=edges, task_id="joe@corp.io", trace_id=f"r{i}@corp.io")
        save(told, tmp_path / f"named{i}.jsonl")
    names = ["named0.jsonl", "named1.jsonl"]
    code, out, err = export(*names, "-o", "rows.jsonl", "--mechanism", "group_relative", "--full", "--mask", "off")
    assert (code, "nothing was masked" in out) == (0, True), err
    bare = _plain(tmp_path / "rows.jsonl")
    assert any("@corp.io" in row["agent"] for row in bare)
    code, out, _ = export(*names, "-o", "masked.jsonl", "--mechanism", "group_relative", "--full")
    assert code == 0
    assert {"event.agent", "event.role", "event.model", "task_id", "trace_id"} <= set(out.split())
    assert "@corp.io" not in (tmp_path / "masked.jsonl").read_text()
    kept = ("advantage", "prompt_ids", "completion_ids", "logps")
    assert [[r[k] for k in kept] for r in _plain(tmp_path / "masked.jsonl")] == [[r[k] for k in kept] for r in bare]
    for target in ("trl", "skyrl", "kto"):
        code, out, err = ends_of("export")(*names, "--to", target, "--mechanism", "group_relative", "-o", f"{target}/", "--json", "--full")
        assert code == 0, err
        assert json.loads(out)["masked"]["email"] > 0
        assert json.loads(out)["report"]
        assert "@corp.io" not in out
        assert not [f for f in (tmp_path / target).rglob("*") if f.is_file() and b"@corp.io" in f.read_bytes()]


def test_two_runs_that_share_an_id_are_not_one_episode(ends_of: Callable[[str], Ends], live: Path, tmp_path: Path) -> None:
    with Store(live) as store:
        save(replace(store.get("hunt-1"), trace_id="run"), tmp_path / "one.jsonl")
        save(replace(store.get("hunt-0.5"), trace_id="run"), tmp_path / "two.jsonl")
    for target in ("rl", "rllm", "verifiers"):
        code, _, err = ends_of("export")("one.jsonl", "two.jsonl", "--to", target, "--mechanism", "uniform", "-o", "rows.jsonl")
        assert (code, "two different traces have the same id" in err) == (2, True)
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["-o", "rows.jsonl"], 2, "no trace was named"),
        (["hunt-1"], 2, "no output was named"),
        (["hunt-1", "-o", "rows.csv"], 2, "rows are not written as .csv"),
        (["hunt-1", "-o", "rows.jsonl", "--mechanism", "nobody"], 3, "nobody"),
        (["hunt-1", "-o", "rows.jsonl", "--set", "x"], 2, "not NAME=VALUE"),
        (["hunt-1", "-o", "rows.jsonl", "--set", "x=1"], 2, "no option 'x'"),
        (["hunt-1", "-o", "rows.jsonl"], 5, "not identified"),
        (["hunt-1", "-o", "rows.jsonl", "--mechanism", "gae"], 5, "needs a critic"),
        (["bare", "-o", "rows.jsonl", "--mechanism", "uniform"], 2, "no model call can be learned from"),
        (["nothing", "-o", "rows.jsonl"], 3, "nothing"),
    ],
)
def test_what_cannot_be_is_one_clear_error(export: Ends, tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    ended, _, err = export(*arguments)
    assert (ended, said in err) == (code, True), err
    assert not list(tmp_path.glob("rows*"))


def test_its_options_belong_to_it(ends_of: Callable[[str], Ends], live: Path) -> None:
    run = ends_of("export")
    assert "add --to rl" in run("hunt-1", "-o", "x.json", "--mechanism", "uniform", "--store", live)[2]
    assert "rl: one .jsonl or .parquet file" in run("--list")[1]


def test_lengths_that_do_not_fit_are_refused(ends_of: Callable[[str], Ends], live: Path, tmp_path: Path) -> None:
    with Store(live) as store:
        trace: Trace = store.get("hunt-1")

    def short(event: Any) -> Any:
        note = model_call(event)
        return event if note is None else replace(event, extra={**event.extra, "call": {**note, "logps": note["logps"][1:]}})

    save(replace(trace, events=[short(e) for e in trace.events]), tmp_path / "short.jsonl")
    code, _, err = ends_of("export")("short.jsonl", "--to", "rl", "--mechanism", "uniform", "-o", "rows.jsonl")
    assert code == 2
    assert "logps for" in err
