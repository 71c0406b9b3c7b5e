"""The board of a store: what recurs, decisions and regressions, cost jumps, what is remembered, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import counterpoint as cpt
from counterpoint.app.api.issues import decide, issues
from counterpoint.app.cli import cli
from counterpoint.errors import InputError, NotFound
from counterpoint.store.annotations import AnnotationFile

DAY = 86400.0


def made(name: str, errors: Sequence[str], *, began: float, project: str = "shop", cost: float = 0.1) -> cpt.Trace:
    """A run that fails in these ways, and works in none."""
    events, edges, contents = [], [], {}
    events.append(cpt.Event(id="s", t=0, type="orchestrator_decision", agent="lead", tokens_in=10, tokens_out=1, cost_usd=cost))
    for k, error in enumerate(errors, 1):
        contents[f"c{k}"] = f"try {k}"
        events.append(cpt.Event(id=f"c{k}", t=k, type="tool_call", agent="lead", tool="Bash", content_ref=f"c{k}"))
        events.append(cpt.Event(id=f"r{k}", t=k, type="tool_result", agent="lead", tool="Bash", ok=False, error=error))
        edges.append(cpt.Edge(f"c{k}", f"r{k}", "tool_dependency"))
    meta = {"began": began, "project": project, "title": f"task {name}"}
    return cpt.Trace(trace_id=name, task_id=name, events=events, edges=edges, contents=contents, meta=meta)


def told(*args: str) -> list[dict[str, object]]:
    done = CliRunner().invoke(cli, [*args, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTERPOINT_AUTHOR", "ann")
    with cpt.Store("traces") as store:
        store.add(made("a", ["No such file or directory", "No such file or directory"], began=1e9))
        store.add(made("b", ["/x/y: No such file or directory", "it rained"], began=1e9 + DAY, project="till"))
        store.add(made("c", [], began=1e9 + 2 * DAY))
    return tmp_path


@pytest.mark.usefixtures("place")
def test_each_cause_is_one_issue_with_its_runs() -> None:
    board = cpt.issues()
    assert (board.runs, [one.name for one in board]) == (3, ["Bash: a path that is not there", "Bash: it rained"])
    path, rain = board
    assert (path.runs, path.count, path.open, path.projects) == (2, 3, 3, {"shop": 1, "till": 1})
    assert path.first == pytest.approx(1e9 + 1)
    assert path.last == pytest.approx(1e9 + DAY + 1)
    assert [e.trace_id for e in path.examples] == ["b", "a"]  # the newest first
    assert (path.tokens, path.cost_usd) == (22, pytest.approx(0.2))
    assert rain.is_rare
    assert not path.is_rare
    assert sum(path.trend) == 2
    assert [row["name"] for row in told("issues")] == [path.name]
    assert len(told("issues", "--full")) == 2
    assert cpt.issues("project:till").one(path.id).runs == 1
    assert board.to_arrow().column("id").to_pylist() == [path.id, rain.id]


@pytest.mark.usefixtures("place")
def test_a_new_run_neither_renames_nor_splits_and_a_resolved_issue_that_comes_back_is_a_regression() -> None:
    first = {one.id: one.name for one in issues()}
    name = next(one.id for one in issues() if one.runs == 2)
    (done,) = told("issues", name[:5], "--mark", "resolved", "--note", "asks first")
    assert (done["state"], done["decided"]["by"], done["decided"]["note"]) == ("resolved", "ann", "asks first")  # type: ignore[index]
    assert told("issues") == []
    with cpt.Store("traces") as store:
        store.add(made("d", ["cannot access 'q': No such file or directory"], began=1e9 + 3 * DAY))
    assert issues().one(name).state == "resolved"  # it was at work before somebody decided
    with cpt.Store("traces") as store:
        store.add(made("e", ["cat: z: No such file or directory"], began=4e9))
    after = issues()
    assert after.one(name).state == "regressed"
    assert next(iter(after)).id == name
    assert first.items() <= {one.id: one.name for one in after}.items()
    told("issues", name, "--mark", "ignored")
    assert issues().one(name).state == "ignored"
    told("issues", name, "--mark", "open")
    assert issues().one(name).state == "open"


def test_decisions_survive_a_rewrite_and_a_repair(place: Path) -> None:
    name = next(iter(issues())).id
    for state in ("resolved", "open", "ignored"):
        decide(name, state, note=state)
    with cpt.Store("traces") as store:
        store.compact()
    assert AnnotationFile(place / "traces").refresh().issues[name].state == "ignored"
    file = place / "traces" / "annotations.jsonl"
    file.write_bytes(file.read_bytes() + b"torn")
    assert issues().one(name).state == "ignored"


def test_what_runs_showed_is_remembered_and_a_damaged_memory_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = issues()
    looked: list[str] = []
    real = cpt.Store.get
    monkeypatch.setattr(cpt.Store, "get", lambda store, name: looked.append(name) or real(store, name))
    assert issues() == board
    assert looked == []
    with cpt.Store("traces") as store:
        store.add(made("d", ["it rained"], began=1e9 + 3 * DAY))
    assert len(issues()) == 2
    assert looked == ["d"]
    memory = place / "traces" / "issues.cache"
    memory.write_bytes(memory.read_bytes()[:-3])
    assert len(issues()) == 2
    assert sorted(looked) == ["a", "b", "c", "d", "d"]
    assert cpt.issues(remember=False) == issues()


def test_a_run_that_costs_far_more_than_those_before_it(tmp_path: Path) -> None:
    with cpt.Store(tmp_path / "s") as store:
        for k, cost in enumerate([1.0, 1.1, 0.9, 1.0]):
            store.add(made(f"r{k}", [], began=1e9 + k * DAY, cost=cost))
        store.add(made("early", [], began=1e9 + 4 * DAY, cost=9.0))  # four runs before it are too few
        store.add(made("other", [], began=1e9 + 5 * DAY, cost=9.0, project="till"))
        store.add(made("near", [], began=1e9 + 6 * DAY, cost=2.9))
        assert [one.kind for one in issues(store=store)] == []
        store.add(made("far", [], began=1e9 + 7 * DAY, cost=9.0))
        (jump,) = issues(store=store)
    assert (jump.kind, [e.trace_id for e in jump.examples], jump.cost_usd) == ("cost_jump", ["far"], 9.0)
    assert jump.examples[0].event == "s"
    assert jump.examples[0].words == "$9.00; the 6 runs before it had a median of $1.05"


@pytest.mark.usefixtures("place")
def test_errors_are_one_line(tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    for words, code, what in (
        (["issues", "00000000"], 3, "no issue '00000000'"),
        (["issues", "--mark", "open"], 2, "a decision needs an issue and --mark"),
        (["issues", "project:nowhere"], 3, "no run matches 'project:nowhere'"),
        (["issues", "--store", "nowhere"], 3, "there are no traces yet"),
    ):
        ended, out, err = run(*words)
        assert (ended, out) == (code, ""), words
        assert what in err
    with pytest.raises(InputError, match="cannot be 'done'"):
        decide("x", "done")
    with pytest.raises(NotFound, match="there is no store"):
        decide("x", "open", store=tmp_path / "none")


@pytest.mark.usefixtures("place")
def test_secrets_in_what_runs_say_are_masked() -> None:
    key = "sk-ant-api03-" + "a1B2" * 20
    with cpt.Store("traces") as store:
        store.add_many([made("k1", [f"bad key {key}"], began=1e9), made("k2", [f"bad key {key}"], began=1e9)])
    printed = CliRunner().invoke(cli, ["issues", "--full", "--json"], catch_exceptions=False).output
    assert "bad key" in printed
    assert key not in printed


ERRORS = ["No such file or directory", "Exit code 3", "boom 7 in /a/b", "user rejected the call", "Channel x9 not found", "timed out"]


@settings(max_examples=25, deadline=None)
@given(runs=st.lists(st.lists(st.sampled_from(ERRORS), max_size=3), min_size=1, max_size=8), cut=st.integers(0, 8), swap=st.booleans())
def test_more_runs_and_merged_stores_rename_nothing(runs: list[list[str]], cut: int, swap: bool) -> None:
    """The board of a part of the runs has the ids and names of the board of all, in whatever order and from however many stores."""
    traces = [made(f"r{k}", errors, began=1e9 + k * DAY) for k, errors in enumerate(runs)]
    with TemporaryDirectory() as folder:
        parts = [traces[:cut], traces[cut:]]
        names: list[dict[str, str]] = []
        for k, part in enumerate(parts):
            with cpt.Store(Path(folder) / f"part{k}") as store:
                store.add_many(part)
                names.append({one.id: one.name for one in issues(store=store)})
        with cpt.Store(Path(folder) / "all") as store:
            for k in (1, 0) if swap else (0, 1):  # as `counterpoint store push` and `import` bring one store into another
                with cpt.Store(Path(folder) / f"part{k}", create=False, read_only=True) as part_store:
                    store.add_many(part_store.get(name) for name in part_store.ids())
                issues(store=store)
            whole = issues(store=store)
    assert {one.id: one.name for one in whole} == names[0] | names[1]
    assert sum(one.count for one in whole) == sum(map(len, runs))


_WRITER = """
import sys
from counterpoint.app.api.issues import decide
key, who, times = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
for k in range(int(times)):
    decide(key if k % 2 else who, "resolved", note=f"{who}-{k}", by=who, store="traces")
    print(k, flush=True)
"""


def _writer(place: Path, who: str, times: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, "shared", who, str(times)]
    process = subprocess.Popen(command, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_that_decide_at_once_lose_nothing(place: Path) -> None:
    writers = [_writer(place, who, 40) for who in ("ann", "bob")]
    for one in writers:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in writers:
        one.communicate(timeout=120)
        assert one.returncode == 0
    told = AnnotationFile(place / "traces").refresh().issues
    assert (told["ann"].note, told["bob"].note) == ("ann-38", "bob-38")  # each its own last one
    assert told["shared"].note in ("ann-39", "bob-39")
    text = (place / "traces" / "annotations.jsonl").read_text()
    assert [text.count(f'"{who}-{k}"') for who in ("ann", "bob") for k in range(40)] == [1] * 80


def test_a_killed_decision_is_there_whole_or_not_at_all(place: Path) -> None:
    process = _writer(place, "ann", 100_000)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    for _ in range(12):
        said = process.stdout.readline()
    process.kill()
    said = [said, *process.stdout.readlines()][-1]
    process.wait(20)
    last = max(int(one.note.rsplit("-")[1]) for one in AnnotationFile(place / "traces").refresh().issues.values() if one.note)
    assert last in (int(said), int(said) + 1)  # what was acknowledged, and perhaps one that nobody heard of
    decide("after", "open", store="traces")
    assert AnnotationFile(place / "traces").refresh().issues["after"].state == "open"
    assert len(issues()) == 2
