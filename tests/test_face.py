"""The functions of the face: their examples run, they take what the commands take, and say what the commands say."""

from __future__ import annotations

import doctest
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.app.api import audit, blame, credit, fork, inputs, top
from counterpoint.app.cli import main
from counterpoint.lab.app.api import compare, train
from counterpoint.lab.bench.expert_chat import broken_chats

FUNCTIONS = [audit.audit, blame.blame, compare.compare, credit.credit, credit.reward, fork.diff, fork.fork, top.top, train.train]
OTHERS = [cpt.Graph, cpt.Store, cpt.Trace, cpt.annotate, cpt.dataset, cpt.judge, cpt.load, cpt.notes, cpt.problems, cpt.read_logs,
          cpt.save, cpt.world]  # fmt: skip


@pytest.fixture(scope="module")
def traces() -> list[cpt.Trace]:
    world = cpt.world("W1", vote_items=8)
    return [world.run("reference", [seed], log=True).trace(0) for seed in (0, 1)]


@pytest.fixture
def store(traces: list[cpt.Trace], tmp_path: Path) -> Path:
    with cpt.Store(tmp_path / "store") as opened:
        opened.add_many(traces)
    return tmp_path / "store"


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What a command prints with --json."""
    with pytest.raises(SystemExit):
        main([*map(str, arguments), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[0])
    return {name: value for name, value in found.items() if name != "schema"}


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("function", [*FUNCTIONS, *OTHERS], ids=lambda f: f.__name__)
def test_the_example_of_each_function_runs(function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = doctest.DocTestFinder(recurse=False).find(function, function.__name__, globs={})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_traces_are_named_in_every_way(traces: list[cpt.Trace], store: Path, tmp_path: Path) -> None:
    file = cpt.save(traces[0], tmp_path / "one.jsonl")
    names = [trace.trace_id for trace in traces]
    with cpt.Store(store, read_only=True, create=False) as opened:
        sources: list[tuple[Any, list[str]]] = [
            (traces[0], names[:1]),
            (traces, names),
            (iter(traces), names),
            (file, names[:1]),
            (str(file), names[:1]),
            ([file, names[1]], names),
            (names[0], names[:1]),
            (f"id:{names[1]}", names[1:]),
            ("finished events>0", names),
            (opened, names),
            (opened.batch(names), names),
            (opened.sql("select trace_id from traces order by trace_id"), sorted(names)),
        ]
        for source, expected in sources:
            assert [trace.trace_id for trace in inputs.many_traces(source, store)] == expected
        assert [trace.trace_id for trace in inputs.many_traces("finished", opened)] == names
        with pytest.raises(cpt.InputError, match="no column trace_id"):
            inputs.many_traces(opened.sql("select task_id from traces"), store)


def test_what_names_no_trace_is_an_error(store: Path, tmp_path: Path) -> None:
    for source, error in [([], cpt.InputError), (5, cpt.InputError), ("nobody", cpt.NotFound), ("reward<-99", cpt.NotFound)]:
        with pytest.raises(error):
            cpt.credit(source, store=store)
    with pytest.raises(cpt.NotFound, match="no store at"):
        cpt.audit("nobody", store=tmp_path / "none")
    with pytest.raises(cpt.InputError, match="2 traces where one is needed"), cpt.Store(store) as opened:
        cpt.top("finished", store=opened)


def test_credit_is_what_the_command_prints(traces: list[cpt.Trace], store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = traces[0].trace_id
    told = printed(capsys, "credit", name, "--store", store, "--mechanism", "message_delete", "--set", "k=2")
    found = cpt.credit(name, "message-delete", store=store, k=2)
    assert [row["value"] for row in told["rows"]] == found.to_arrow().column("value").to_pylist()
    again = cpt.credit(traces[0], "message_delete", k=2, replay=cpt.world("W1", vote_items=8))
    assert again.rows == found.rows
    with pytest.raises(cpt.InputError, match="no option"):
        cpt.credit(traces[0], "ledger", no_such_option=1)


def test_a_reward_is_a_table(traces: list[cpt.Trace]) -> None:
    paid = cpt.reward(traces, "team-outcome").to_arrow().to_pylist()
    assert [row["value"] for row in paid] == [trace.rewards["team"] for trace in traces]
    with pytest.raises(cpt.NotFound, match="did you mean 'tool_use'"):
        cpt.reward(traces, "tool_used")


def test_audit_is_what_the_command_prints(traces: list[cpt.Trace], store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [trace.trace_id for trace in traces]
    found = cpt.audit(names, store=store, price_token=2.0)
    told = printed(capsys, "audit", names[0], "--store", store, "--set", "price_token=2")
    assert told.pop("verdict")["level"] == "look", "which Python says in words with `audit.verdict.verdict`"
    assert told == plain(found.traces[0].as_dict())
    batch = printed(capsys, "audit", *names, "--store", store, "--set", "price_token=2", "--summary")
    assert batch == plain(found.summary().as_dict())
    assert found.values("events") == {trace.trace_id: len(trace.events) for trace in traces}
    rows = found.to_arrow().to_pylist()
    assert len(rows) == found.row_count()
    assert {row["trace_id"] for row in rows} == set(names)
    assert {row["name"] for row in cpt.audit(traces, only="hacks").to_arrow().to_pylist()} == set(audit.HACKS)
    assert found.summary().to_arrow().num_rows == len(audit.DEFINITIONS)


def test_taint_is_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attacked = cpt.world("W1", vote_items=12, attack="AV5", attack_rate=0.3).run("reference", [0], log=True).trace(0)
    told = printed(capsys, "audit", cpt.save(attacked, tmp_path / "attacked.jsonl"), "--taint")
    found = cpt.audit(attacked, only="scale").taint()
    rows = found.to_arrow().to_pylist()
    assert [(row["event"], row["status"], row["path"]) for row in rows] == [(s["event"], s["status"], s["path"]) for s in told["sinks"]]
    assert len(found.violations) == told["counts"]["violation"] > 0
    assert "violations" in found._repr_html_().partition("<table>")[0]


def test_blame_is_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [next(broken_chats(range(9), shapes=[shape])) for shape in ("panel", "led")]
    found = cpt.blame(runs[0], limit=3)
    told = printed(capsys, "blame", cpt.save(runs[0], tmp_path / "one.jsonl"), "--rows", 3)
    assert told == plain(next(found.as_dicts()))
    row = found.to_arrow().to_pylist()[0]
    assert all(row[name] == told[name] for name in ("agent", "step", "score", "event"))
    won = replace(runs[1], rewards={"team": 1.0})
    both = cpt.blame([*runs, won])
    assert [(name, error.what[:17]) for name, error in both.refused] == [(won.trace_id, "the run succeeded")]
    assert [one.stands_out for one in both.runs] == [True, False], "no step of a led team is named"
    assert sum(cause.runs for cause in both.causes()) == 1
    with pytest.raises(cpt.InputError, match="one trace"):
        cpt.blame(runs, replay=True)


def test_top_is_what_the_command_prints(traces: list[cpt.Trace], store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = traces[0].trace_id
    told = printed(capsys, "top", name, "--store", store, "--group", "tool", "--rows", 2)
    found = cpt.top(name, store=store, group="tool", limit=2)
    assert told == plain(found.as_dict())
    assert found.to_arrow().column("events").to_pylist() == [row["events"] for row in told["rows"]]
    row = next(row for row in found.rows if row.name is not None)
    told = printed(capsys, "top", name, "--store", store, "--group", "tool", "--events-of", row.name)
    assert told["events"] == [event.id for event in found.events(str(row.name))]
    assert len(told["events"]) == row.events
    with pytest.raises(cpt.NotFound, match="no tool named"):
        found.events("nobody")
    with pytest.raises(cpt.InputError, match="cannot sort by"):
        cpt.top(traces[0], by="token")


def test_a_fork_is_what_the_command_makes(traces: list[cpt.Trace], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = cpt.save(traces[0], tmp_path / "one.jsonl")
    at = next(event.id for event in traces[0].events if event.type == "message")
    told = printed(capsys, "fork", file, "--at", at, "--do", "delete", "--samples", 3)
    found = cpt.fork(file, at, cpt.Delete(), samples=3)
    assert (told["fork"], told["badges"], told["effect"]) == (found.trace.trace_id, found.counts, plain(found.effect))
    marks = found.to_arrow().column("badge").to_pylist()
    assert marks.count("reused") == found.counts["reused"]
    parted = cpt.diff(traces[0], found.trace)
    assert parted == found.diff
    assert parted.to_arrow().num_rows == parted.row_count() > 0
    with pytest.raises(cpt.InputError, match="compare an edit with none"):
        cpt.fork(traces[0], at, samples=3)


def test_every_result_has_a_picture(traces: list[cpt.Trace]) -> None:
    at = next(event.id for event in traces[0].events if event.type == "message")
    results = [cpt.credit(traces), cpt.reward(traces), cpt.audit(traces), cpt.audit(traces).summary(), cpt.top(traces[0]),
               cpt.diff(*traces), cpt.fork(traces[0], at, cpt.Delete())]  # fmt: skip
    for result in results:
        html = result._repr_html_()
        assert "<table><thead>" in html
        assert result.to_arrow().column_names == list(result.TABLE)
        assert len(html) < 60_000


SHORT: dict[str, Any] = {"updates": 1, "episodes": 16, "eval_episodes": 4, "keep_traces": 0, "set": {"vote_items": 8}}


def test_training_and_comparing_are_what_the_commands_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    grpo = cpt.train("W1", preset="grpo", seeds=1, progress=lambda kind, row: told.append(kind), **SHORT)
    assert [run.path for run in grpo] == [Path("runs/grpo-wide_verify-seed0")]
    assert told.count("end") == 1
    options = ["--cap", "updates=1", "--set", "episodes=16", "--set", "eval_episodes=4", "--set", "keep_traces=0", "--set", "vote_items=8"]
    with pytest.raises(SystemExit):
        main(["train", "net", "--preset", "grpo", "--world", "W1", "-o", "again", *options])
    capsys.readouterr()
    (again,) = cpt.train(resume="again")  # finished: it is left as it is
    assert again.evals()[-1]["values"] == grpo.run.evals()[-1]["values"]
    found = cpt.compare(grpo, {"other": again})
    assert printed(capsys, "compare", "runs", grpo.run.path, "other=again") == plain(found.as_dict())
    assert found.to_arrow().column("diff").to_pylist() == [None, 0.0]
    for result in (grpo, found):
        assert "<table><thead>" in result._repr_html_()
        assert result.to_arrow().num_rows == result.row_count() > 0
    with pytest.raises(cpt.InputError, match="seed is for a new run"):
        cpt.train(resume="again", seed=1)
    with pytest.raises(cpt.InputError, match="there is nothing to compare"):
        cpt.compare(grpo)
    with pytest.raises(cpt.InputError, match="a int is not a run"):
        cpt.compare(5)
