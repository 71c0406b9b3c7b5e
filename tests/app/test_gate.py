"""The gate: limits, what is not measured, a base, issues that are new, the files, and how often it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree as xml

import numpy as np
import pytest

import counterpoint as cpt
from counterpoint.app.api.gate import Gate, gate
from counterpoint.app.api.issues import decide
from counterpoint.errors import InputError, NotFound

Run = Callable[..., tuple[int, str, str]]


def made(
    name: str, *, task: str | None = None, score: float | None = 1.0, cost: float | None = 0.5, errors: Sequence[str] = (),
    project: str = "new", began: float = 1e9,
) -> cpt.Trace:  # fmt: skip
    """A run with one model call, and calls that fail in these ways."""
    events = [cpt.Event(id="s", t=0, type="orchestrator_decision", agent="lead", tokens_in=10, tokens_out=1, cost_usd=cost)]
    edges, contents = [], {}
    for k, error in enumerate(errors, 1):
        contents[f"c{k}"] = f"try {k}"
        events.append(cpt.Event(id=f"c{k}", t=k, type="tool_call", agent="lead", tool="Bash", content_ref=f"c{k}"))
        events.append(cpt.Event(id=f"r{k}", t=k, type="tool_result", agent="lead", tool="Bash", ok=False, error=error))
        edges.append(cpt.Edge(f"c{k}", f"r{k}", "tool_dependency"))
    rewards = {} if score is None else {"team": score}
    meta = {"project": project, "began": began}
    return cpt.Trace(trace_id=name, task_id=task or name, events=events, edges=edges, contents=contents, rewards=rewards, meta=meta)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keep(*traces: cpt.Trace, store: str = "traces") -> None:
    with cpt.Store(store) as opened:
        opened.add_many(traces)


def states(found: Gate) -> dict[str, bool | None]:
    return {check.name: check.ok for check in found.checks}


@pytest.mark.usefixtures("place")
def test_limits_hold_or_are_broken() -> None:
    keep(made("a", score=1.0, cost=2.0, errors=["x", "y"]), made("b", score=0.5, cost=1.0, errors=["x"]))
    assert states(gate(max_cost=3.0, max_failures=3, min_score=0.75)) == {"cost": True, "failures": True, "score": True}
    broken = gate(max_cost=2.99, max_failures=2, min_score=0.76)
    assert states(broken) == {"cost": False, "failures": False, "score": False}
    assert [check.value for check in broken.checks] == [3.0, 3, 0.75]
    assert [check.runs[0] for check in broken.checks] == ["a", "a", "b"]  # those that weigh most
    assert not broken.passed


@pytest.mark.usefixtures("place")
def test_what_is_not_measured_does_not_pass() -> None:
    keep(made("a", score=None, cost=None), made("b", score=1.0, cost=1.0))
    found = gate(max_cost=5.0, min_score=0.5)
    assert states(found) == {"cost": None, "score": None}
    assert all(check.runs == ("a",) for check in found.checks)
    assert states(gate(max_cost=0.5)) == {"cost": False}  # it is over the limit, whatever the rest cost
    (cost,) = gate(max_cost=5.0).checks
    assert "1 run with tokens that no price or count covers" in cost.words
    keep(cpt.Trace(trace_id="d", task_id="d", events=[cpt.Event(id="m", t=0, type="message", agent="lead")], edges=[]), store="bare")
    assert "1 run in which no model call is recorded" in gate(max_cost=5.0, store="bare").checks[0].words
    keep(made("c", score=None, cost=1.0), store="other")
    assert states(gate(min_score=0.5, store="other")) == {"score": None}


@pytest.mark.usefixtures("place")
def test_shared_tasks_are_compared_task_by_task() -> None:
    worse = [made(f"n{k}", task=f"t{k}", score=k / 10, cost=1.0) for k in range(7)]
    base = [made(f"b{k}", task=f"t{k}", score=k / 10 + 0.3, cost=1.0, project="old") for k in range(7)]
    keep(*worse, *base)
    found = gate("project:new", against="project:old")
    score, cost, failures = found.checks
    assert (score.ok, score.diff, score.p) == (False, pytest.approx(-0.3), 1 / 128)
    assert (cost.ok, cost.diff, cost.p) == (True, 0.0, 1.0)
    assert failures.ok is True
    assert "7 shared tasks" in score.words
    assert gate("project:old", against="project:new").passed  # it is better


@pytest.mark.usefixtures("place")
def test_tasks_of_one_side_are_left_out_and_said_and_without_shared_tasks_sets_are_compared() -> None:
    keep(*[made(f"n{k}", task=f"t{k}") for k in range(4)], *[made(f"b{k}", task=f"t{k}", project="old") for k in range(2, 9)])
    score = gate("project:new", against="project:old").checks[0]
    assert "2 shared tasks (7 of one side alone left out)" in score.words
    assert "too few to find a difference, however large" in score.words  # 1/4 is the least p of two pairs
    keep(*[made(f"n{k}", score=0.0) for k in range(5)], *[made(f"b{k}", score=1.0, project="old") for k in range(5)], store="apart")
    (score, *_) = gate("project:new", against="project:old", store="apart").checks
    assert (score.ok, score.p) == (False, pytest.approx(1 / 252))
    assert "5 against 5 tasks, none shared" in score.words


@pytest.mark.usefixtures("place")
def test_runs_that_lack_a_score_more_often_than_the_base_are_not_measured() -> None:
    base = [made(f"b{k}", project="old", score=1.0) for k in range(20)]
    crashed = [made(f"n{k}", score=None if k < 3 else 1.0) for k in range(5)]  # C(5, 3) / C(25, 3) = 0.0043
    once = [made(f"o{k}", project="once", score=None if k == 0 else 1.0) for k in range(5)]  # 5 / 25
    keep(*base, *crashed, *once)
    score = gate("project:new", against="project:old").checks[0]
    assert score.ok is None
    assert "not all known of 3 runs here and 0 of the base, more than in the base" in score.words
    score = gate("project:once", against="project:old").checks[0]
    assert score.ok is True
    assert "too few" not in score.words  # 1 / C(25, 5)
    assert "not all known of 1 run here" in score.words


@pytest.mark.usefixtures("place")
def test_a_base_is_a_query_a_store_or_a_file() -> None:
    keep(made("a"), made("b"))
    keep(made("c", project="old"), made("d", project="old"), store="before")
    cpt.save(made("e"), "base.jsonl")
    assert gate(against="before").base_runs == 2
    assert gate(against="./base.jsonl").base_runs == 1
    keep(made("f", project="old"))
    assert gate("project:new", against="project:old").base_runs == 1
    with pytest.raises(InputError, match="2 runs on both sides"):
        gate("project:new", against="project:new")


@pytest.mark.usefixtures("place")
def test_an_issue_is_new_where_chance_would_hardly_have_put_it_there() -> None:
    base = [made(f"b{k}", project="old", errors=["old fault"] if k % 4 == 0 else []) for k in range(40)]
    new = [made(f"n{k}", errors=["old fault", "shiny fault"] if k < 4 else []) for k in range(8)]
    keep(*base, *new)
    found = gate("project:new", against="project:old", no_new_issues=True)
    check = next(c for c in found.checks if c.name == "new issues")
    assert (check.ok, check.value) == (False, 1.0)  # C(8, 4) / C(48, 4) = 0.00036
    assert "shiny fault (4 runs)" in check.words
    assert "old fault" not in check.words
    keep(made("once", project="late", errors=["rare fault"]), *[made(f"l{k}", project="late") for k in range(7)])
    late = next(c for c in gate("project:late", against="project:old", no_new_issues=True).checks if c.name == "new issues")
    assert late.ok is True  # one run of 48: 8 / 48
    assert "may be chance: " in late.words


@pytest.mark.usefixtures("place")
def test_an_issue_that_came_back_after_it_was_resolved_breaks_the_gate() -> None:
    keep(made("b", project="old", errors=["fault"]))
    (issue,) = cpt.issues()
    decide(issue.id, "resolved")
    keep(made("n", errors=["fault"], began=4e9))
    check = next(c for c in gate("project:new", against="project:old", no_new_issues=True).checks if c.name == "new issues")
    assert check.ok is False
    assert "came back" in check.words


def test_the_command_ends_with_4_and_writes_its_files_whole(place: Path, run: Run) -> None:
    keep(made("a|b <script>", score=0.2), made("c", score=0.4))
    code, out, _ = run("gate", "--min-score", "0.9", "--max-cost", "5", "-o", "gate.md", "-o", "junit.xml")
    assert code == 4
    assert "broken: score" in out
    suite = xml.parse(place / "junit.xml").getroot()
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("2", "1")
    assert [case.find("failure") is None for case in suite] == [True, False]
    told = (place / "gate.md").read_text()
    assert "### Counterpoint gate fails" in told
    assert "- score: `a|b <script>`, `c`" in told  # as it is, where nothing is markup
    assert run("gate", "--min-score", "0.2", "-o", "gate.md")[0] == 0
    assert "gate passes" in (place / "gate.md").read_text()


def test_a_summary_says_what_failed_and_no_markup_of_it(place: Path, run: Run) -> None:
    """The words of a failed call are somebody else's: no column, tag, link or call of a person in the table."""
    faults = ["@octocat [here](http://x.test) | <img src=x> `code` **now**"]
    keep(*[made(f"new_{k}", errors=faults) for k in range(5)], *[made(f"b{k}", project="old") for k in range(20)])
    assert run("gate", "--query", "project:new", "--against", "project:old", "--no-new-issues", "-o", "gate.md")[0] == 4
    lines = (place / "gate.md").read_text().splitlines()
    (line,) = [one for one in lines if "new issues |" in one]
    assert len(line.replace("\\|", "").split("|")) == 5
    assert "<img" not in line
    assert "\\[here\\](" in line
    assert "`" not in line
    assert "@octocat" not in line
    assert any("`new_0`" in one for one in lines)


@pytest.mark.usefixtures("place")
def test_errors_are_one_line(run: Run) -> None:
    keep(made("a"))
    for words, code, what in (
        ([], 2, "a gate needs something"),
        (["--no-new-issues"], 2, "told by a base"),
        (["--max-cost", "nan"], 2, "is no limit"),
        (["--min-score", "1", "-o", "x.pdf"], 2, "no form for x.pdf"),
        (["--query", "project:nowhere", "--min-score", "1"], 3, "no run matches"),
        (["--min-score", "1", "--against", "project:nowhere"], 3, "no trace matches"),
        (["--min-score", "1", "--store", "nowhere"], 3, "there is no store here"),
    ):
        ended, out, err = run("gate", *words)
        assert (ended, out) == (code, ""), (words, err)
        assert what in err
    with pytest.raises(NotFound):
        gate("project:nowhere", min_score=1.0)


@pytest.mark.parametrize("shares", [True, False])
def test_splits_of_equal_runs_break_it_in_at_most_one_of_twenty(tmp_path: Path, shares: bool) -> None:
    """100 splits of runs that differ in nothing: score, heavy-tailed cost, failures and issues, all asked for at once."""
    alarms = 0
    for population in range(4):
        rng = np.random.default_rng([population, shares])
        with cpt.Store(tmp_path / str(population)) as store:
            for k in range(16):
                faults = [f"fault {'abcdefgh'[int(rng.integers(8))]}x" for _ in range(int(rng.poisson(0.7)))]
                score, cost = float(rng.random() < 0.6), float(rng.lognormal(0, 1.5))
                store.add(made(f"r{k}", task=f"t{k // 2 if shares else k}", score=score, cost=cost, errors=faults))
            for split in range(25):
                if shares:  # one run of each task on each side
                    mine = [2 * task + int(rng.integers(2)) for task in range(8)]
                else:
                    mine = rng.permutation(16)[:8].tolist()
                cpt.dataset(f"a{split}", [f"r{k}" for k in mine], store=store)
                cpt.dataset(f"b{split}", [f"r{k}" for k in range(16) if k not in mine], store=store)
                alarms += not gate(f"in:a{split}", against=f"in:b{split}", no_new_issues=True, store=store).passed
    assert alarms <= 5
