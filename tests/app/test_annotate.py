"""Notes, labels, scores and collections, as people use them: commands, Python, files, the query language."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import counterpoint as cpt
from counterpoint.app.cli import cli
from counterpoint.errors import CounterpointError, InputError, NotFound


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTERPOINT_AUTHOR", "ann")
    events = [cpt.Event(id=f"e{k}", t=k, type="message", agent="lead", tokens_out=5) for k in range(3)]
    with cpt.Store("traces") as store:
        store.add_many(
            cpt.Trace(trace_id=f"run-{k}", task_id="q", events=events, rewards={"team": k / 4}) for k in range(4)
        )
    return tmp_path


def told(*args: str) -> list[dict[str, object]]:
    done = CliRunner().invoke(cli, [*args, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def ids(*args: str) -> list[object]:
    return [row["id"] for row in told("ls", *args)]


@pytest.mark.usefixtures("place")
def test_annotations_are_added_listed_found_and_taken_back() -> None:
    (first,) = told("notes", "add", "run-1", "--label", "verdict=wrong", "--note", "no tests")
    assert (first["trace_id"], first["label"], first["text"], first["by"]) == ("run-1", "wrong", "no tests", "ann")
    told("notes", "add", "run-1", "e2", "--score", "helpful=2", "--author", "bob")
    assert len(told("notes", "add", "reward>=0.5", "--label", "good")) == 2
    assert [(a["name"], a.get("event")) for a in told("notes", "ls", "run-1")] == [("verdict", None), ("helpful", "e2")]
    assert ids("label:verdict=wrong") == ["run-1"]
    assert ids("notes>1") == ids("note:TESTS") == ids("score>1") == ids("score:helpful=2") == ["run-1"]
    assert ids("annotated") == ["run-1", "run-2", "run-3"]
    shown = CliRunner().invoke(cli, ["show", "run-1"], catch_exceptions=False).stdout
    assert re.search(r"notes    verdict=wrong by ann, 20\d\d-\d\d-\d\d \d\d:\d\d: no tests  1 note on events", shown)
    assert "note         helpful=2 by bob" in CliRunner().invoke(cli, ["show", "run-1", "e2"], catch_exceptions=False).stdout
    assert [a["by"] for a in told("show", "run-1", "e2")[0]["annotations"]] == ["bob"]  # type: ignore[union-attr, index]
    told("notes", "remove", str(first["id"]))
    assert ids("label:wrong") == []
    table = cpt.notes().to_arrow()
    assert table.column("name").to_pylist() == ["helpful", "label", "label"]
    assert "annotations by 2 people" in cpt.notes()._repr_html_()


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("run-9", "--note", "x"), NotFound),
        (("run-1", "e9", "--note", "x"), NotFound),
        (("run-1", "--score", "helpful"), InputError),
        (("run-1",), InputError),
        (("reward>0", "e1", "--note", "x"), InputError),
    ],
)
def test_what_is_no_annotation_is_an_error(args: tuple[str, ...], error: type[CounterpointError]) -> None:
    with pytest.raises(error):
        CliRunner().invoke(cli, ["notes", "add", *args], catch_exceptions=False)


@pytest.mark.usefixtures("place")
def test_only_an_annotation_that_is_there_can_be_removed() -> None:
    with pytest.raises(NotFound):
        CliRunner().invoke(cli, ["notes", "remove", "zz"], catch_exceptions=False)


@pytest.mark.usefixtures("place")
def test_a_collection_is_a_query_or_a_list_and_stands_wherever_a_query_does() -> None:
    told("notes", "dataset", "save", "low", "reward<0.5")
    told("notes", "dataset", "add", "now", "in:low")
    with cpt.Store("traces") as store:
        store.add(cpt.Trace(trace_id="run-9", task_id="q", events=store.get("run-1").events, rewards={"team": 0.0}))
    assert [(d["name"], d["count"]) for d in told("notes", "dataset", "ls")] == [("low", 3), ("now", 2)]
    assert told("notes", "dataset", "list") == told("notes", "dataset", "ls")
    told("notes", "dataset", "add", "now", "run-9", "run-3")
    told("notes", "dataset", "remove", "now", "in:low")
    assert told("notes", "dataset", "show", "now")[0]["traces"] == ["run-3"]
    assert ids("in:low", "in!=now") == ["run-0", "run-1", "run-9"]
    assert cpt.dataset("both", "in:low in!=now").query == "in:low in!=now"
    assert len(cpt.audit("in:both", only="scale").traces) == 3
    assert len(told("blame", "in:low")) == 9
    told("export", "in:low", "--to", "jsonl", "-o", "out/")
    assert len(list(Path("out").iterdir())) == 3
    CliRunner().invoke(cli, ["store", "rm", "in:now", "--yes"], catch_exceptions=False)
    assert told("notes", "dataset", "show", "now")[0]["traces"] == []


@pytest.mark.usefixtures("place")
def test_a_collection_that_cannot_be_is_refused() -> None:
    save: Callable[..., object] = lambda *args: CliRunner().invoke(cli, ["notes", "dataset", *args], catch_exceptions=False)  # noqa: E731
    save("save", "a", "reward>0")
    save("save", "b", "in:a")
    for args, error in (
        (("save", "a", "in:b"), InputError),  # of itself
        (("save", "x", "in:nobody"), NotFound),
        (("save", "x", "colour:red"), InputError),
        (("save", "x y", "reward>0"), InputError),
        (("save", "x", "run"), InputError),  # begins several
        (("add", "a", "run-1"), InputError),  # a query takes none
        (("remove", "nobody", "run-1"), NotFound),
        (("drop", "a"), InputError),  # b is made of it
        (("show", "nobody"), NotFound),
    ):
        with pytest.raises(error):
            save(*args)
    with pytest.raises(NotFound):
        cpt.audit("in:nobody")


@pytest.mark.usefixtures("place")
def test_what_is_said_leaves_and_comes_back_with_a_trace() -> None:
    cpt.annotate("run-1", "e1", note="mail ann@example.org", by="bob")
    told("export", "run-1", "--to", "jsonl", "-o", "one.jsonl")
    (account,) = told("import", "one.jsonl", "--store", "other")
    assert account["traces"] == 1
    (said,) = cpt.notes(store="other")
    assert (said.event, said.by) == ("e1", "bob")
    assert "example.org" not in str(said.text)  # masked, as everything else
    assert cpt.notes(cpt.load("one.jsonl")).rows == (said,)
    (again,) = told("import", "one.jsonl", "--store", "other")
    assert again["sources"] == {"counterpoint": {"sessions": 1, "traces": 1, "agents": 1, "events": 3, "unchanged": 1}}


@pytest.mark.usefixtures("place")
def test_two_collections_are_compared_with_intervals() -> None:
    with cpt.Store("traces") as store:
        events = store.get("run-1").events
        store.add_many(
            cpt.Trace(trace_id=f"{side}-{k}", task_id=f"task-{k}", events=events, rewards={"team": float(k + 10 * (side == "b"))})
            for side in "ab" for k in range(5)
        )  # fmt: skip
        store.add(cpt.Trace(trace_id="b-none", task_id="task-0", events=events))
    (found,) = told("compare", "traces", "id:a-", "id:b-")
    reward = {row["label"]: row for row in found["rows"] if row["figure"] == "reward"}  # type: ignore[index, union-attr]
    assert (reward["id:a-"]["mean"], reward["id:b-"]["mean"]) == (2.0, 12.0)
    assert reward["id:b-"]["traces"] == 5  # the trace without a reward is not a zero
    assert [reward["id:b-"][key] for key in ("diff", "diff_low", "diff_high", "tasks")] == [10.0, 10.0, 10.0, 5]
    with pytest.raises(InputError):
        CliRunner().invoke(cli, ["compare", "traces", "id:a-"], catch_exceptions=False)


@pytest.mark.usefixtures("place")
def test_a_store_and_an_answer_show_themselves_in_a_notebook() -> None:
    with cpt.Store("traces") as store:
        assert "4 traces" in store._repr_html_()
        assert "e+09" not in store._repr_html_()  # a date is written as one
        table = store.table().to_arrow()
        assert table.column("id").to_pylist() == ["run-3", "run-2", "run-1", "run-0"]
        assert "<svg" in store.sql("select trace_id, team_reward from traces")._repr_html_()
        assert "<svg" not in store.sql("select trace_id, team_reward, tokens from traces")._repr_html_()


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("show run", ["run-3", "run-2", "run-1", "run-0"]),
        ("ls in:", ["in:low"]),
        ("notes dataset drop ", ["low"]),
        ("credit x --mechanism shap", ["shapley", "shapley_q"]),
        ("credit x --mechanism uniform,shap", ["uniform,shapley", "uniform,shapley_q"]),
        ("notes s", ["score"]),
        ("compare presets shap", ["shapley_q"]),
        ("train net --world W", ["W1", "W2"]),
        ("notes add --store nowhere ", []),
    ],
)
def test_tab_offers_what_a_parameter_takes(line: str, offered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import BashComplete

    cpt.dataset("low", "reward<0.5")
    monkeypatch.setenv("_COUNTERPOINT_COMPLETE", "bash_complete")
    words = line.split(" ")
    found = BashComplete(cli, {}, "counterpoint", "_COUNTERPOINT_COMPLETE").get_completions(words[:-1], words[-1])
    assert sorted(item.value for item in found) == sorted(offered)
