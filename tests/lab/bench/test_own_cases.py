"""Cases of one's own: read line by line, scored whatever the scorer does, and played again only where something changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from counterpoint.app.cli import main
from counterpoint.app.viewer.collection import Collection
from counterpoint.errors import InputError, NotFound
from counterpoint.lab.app.bench_page import boards, sections
from counterpoint.lab.app.cli.bench import bench
from counterpoint.lab.app.pages.bench import bench as bench_page
from counterpoint.lab.bench.scorecard.card import card_of, contrast
from counterpoint.lab.bench.scorecard.own_cases import read_cases
from counterpoint.lab.bench.scorecard.rows import BenchFolder
from counterpoint.lab.bench.scorecard.scorer import Scorer, ScorerError
from counterpoint.store import Store

TEAM = '''
"""A team that multiplies, and one that breaks as the question says."""
import os
import time


def team(question: str) -> str:
    return str(eval(question))


def breaks(job):
    assert "answer" not in job.case
    if job.question == "raise":
        raise RuntimeError("no idea")
    if job.question == "hang":
        time.sleep(1000)
    if job.question == "exit":
        os._exit(9)
    return job.case["hint"] if job.question != "nothing" else None


def alone():
    return "42"


async def recorded(job):
    with job.recording.acting("reader", role="worker"), job.recording.tool_call("eval", job.question) as doing:
        doing.result(answer := str(eval(job.question)))
    return answer


not_callable = 3
'''
SCORER = '''
import os
import time


def score(answer, case):
    how = case.get("how")
    if how == "raise":
        raise ValueError("bad scorer")
    if how == "hang":
        time.sleep(1000)
    if how == "exit":
        os._exit(4)
    return {"nan": float("nan"), "seven": 7, "none": None, "text": "0.5", "yes": True}.get(how, 0.25)


async def late(answer, case):
    return answer == case["answer"]["exactly"]
'''
LINES = [{"question": "6*7", "answer": "42"}, {"id": "eight", "question": "6*8", "answer": 48}, {"question": "6*9", "answer": "55"}]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a team, a scorer and cases; its modules do not outlive the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_team.py").write_text(TEAM)
    (tmp_path / "own_scorer.py").write_text(SCORER)
    _write(tmp_path / "mine.jsonl", LINES)
    return tmp_path


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _run(*args: str, team: str = "own_team.py:team") -> Result:
    return CliRunner().invoke(bench, ["run", "--tasks", "mine.jsonl", "--team", team, *args])


def _rows(folder: str = "bench/own_team.py-team-mine.jsonl") -> list[tuple[str, str, float, str]]:
    return [(r.cell, r.status, r.value, r.why) for r in BenchFolder(Path(folder)).rows()]


def test_cases_are_scored_and_a_missed_target_is_exit_code_4(here: Path) -> None:
    done = _run("--fail-under", "0.8")
    assert done.exit_code == 4
    assert "score 0.667 over 3 runs: less than 0.8" in done.output
    assert _rows() == [("6-7", "played", 1, ""), ("eight", "played", 1, ""), ("6-9", "played", 0, "answered '54', not '55'")]
    again = _run("--fail-under", "0.6", "--json")
    assert again.exit_code == 0
    told = [json.loads(line) for line in again.output.splitlines() if line.startswith("{")]
    assert (told[0]["event"], told[0]["rows"]) == ("reused", 3)
    assert told[-1] == {"event": "target", "score": pytest.approx(2 / 3), "runs": 3, "fail_under": 0.6, "missed": False}
    assert _run("6-9", "--fail-under", "0.5").exit_code == 4  # of the one case that was asked for
    assert _run("6-7", "eight", "--fail-under", "1").exit_code == 0
    assert len(BenchFolder(Path("bench/own_team.py-team-mine.jsonl")).every_row()) == 3


def test_a_missed_target_ends_the_real_command_with_4(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "run", "--tasks", "mine.jsonl", "eight", "--team", "own_team.py:team", "--fail-under", "1"])
    assert end.value.code == 0
    with pytest.raises(SystemExit) as end:
        main(["bench", "run", "--tasks", "mine.jsonl", "6-9", "--team", "own_team.py:team", "--fail-under", "1"])
    assert end.value.code == 4


def test_only_what_changed_is_played_again(here: Path) -> None:
    _run()
    _write(here / "mine.jsonl", [{"question": "1+1", "answer": "2"}, *LINES[:2], LINES[2] | {"answer": "54"}])
    done = _run("--fail-under", "1")
    assert "2 rows reused, code unchanged" in done.output
    assert "1 run of other code, or of a case that has changed, not counted: played again" in done.output
    assert sorted(row[0] for row in _rows()) == ["1-1", "6-7", "6-9", "eight"]  # a line that came in changed no other's id
    folder = BenchFolder(Path("bench/own_team.py-team-mine.jsonl"))
    assert len(folder.every_row()) == 5
    _write(here / "mine.jsonl", LINES[:1])
    assert "score 1.000 over 1 run: at least 1" in _run("--fail-under", "1").output
    assert [row[0] for row in _rows()] == ["6-7"]  # cases that are gone do not count
    (here / "own_team.py").write_text(TEAM.replace("str(eval(question))", "'wrong'"))
    done = _run("--fail-under", "1")
    assert done.exit_code == 4
    assert _rows() == [("6-7", "played", 0, "answered 'wrong', not '42'")]


def test_two_versions_are_compared_by_the_cases_that_are_the_same(here: Path) -> None:
    _run("-o", "bench/v1")
    (here / "own_team.py").write_text(TEAM.replace("str(eval(question))", "str(54 if '9' in question else 0)"))
    _write(here / "mine.jsonl", [LINES[0], LINES[1], LINES[2] | {"answer": "54"}])
    _run("-o", "bench/v2")
    (told,) = (c for c in contrast(Path("bench/v1"), Path("bench/v2")) if c.measure == "share")
    assert (told.first.mean, told.second.mean, told.first.runs) == (1.0, 0.0, 2)  # the third is another case now
    done = CliRunner().invoke(bench, ["compare", "bench/v1", "bench/v2"])
    assert "own_team.py:team (v1)" in done.output
    collection = Collection(None, folders=[here / "bench"])
    names = sorted(result.id for result in bench_page(collection).results)
    assert "own_team.py:team (v1)" in bench_page(collection, *names).tables[0].head


def test_what_a_team_breaks_costs_one_case(here: Path) -> None:
    hows = ("raise", "hang", "exit", "nothing", "fine")
    _write(here / "mine.jsonl", [{"id": how, "question": how, "answer": "yes", "hint": "yes"} for how in hows])
    done = _run("hang", "--cap", "seconds=1", team="own_team.py:breaks")
    assert done.exit_code == 0, done.output
    done = _run("raise", "exit", "nothing", "fine", team="own_team.py:breaks")
    assert done.exit_code == 0, done.output
    rows = {row[0]: row[1:] for row in _rows("bench/own_team.py-breaks-mine.jsonl")}
    assert rows["fine"] == ("played", 1, "")
    assert rows["raise"][:2] == ("crashed", 0)
    assert rows["raise"][2].startswith("RuntimeError: no idea at own_team.py:")
    assert rows["hang"][:2] == ("hung", 0)
    assert rows["exit"] == ("crashed", 0, "its process ended with code 9")
    assert rows["nothing"] == ("crashed", 0, "it returned None, which is no answer")
    card = card_of(Path("bench/own_team.py-breaks-mine.jsonl"))
    assert card.broken == {"crashed": 3, "hung": 1}


def test_what_a_scorer_breaks_costs_one_case(here: Path) -> None:
    hows = ("raise", "nan", "seven", "none", "text", "exit", "yes", "quarter")
    _write(here / "mine.jsonl", [{"id": how, "question": "6*7", "how": how} for how in hows])
    done = _run("--reward", "own_scorer.py:score")
    assert done.exit_code == 0, done.output
    rows = {row[0]: row[1:] for row in _rows()}
    named = "the scorer own_scorer.py:score"
    assert rows["raise"][:2] == ("not scored", 0)
    assert rows["raise"][2].startswith(f"{named}: ValueError: bad scorer at own_scorer.py:")
    assert rows["nan"] == ("not scored", 0, f"{named} gave nan, not a number from 0 to 1")
    assert rows["seven"] == ("not scored", 0, f"{named} gave 7, not a number from 0 to 1")
    assert rows["none"] == ("not scored", 0, f"{named}: gave None, not a number")
    assert rows["text"] == ("not scored", 0, f"{named}: gave '0.5', not a number")
    assert rows["exit"] == ("not scored", 0, f"the process of {named} ended with code 4")
    assert rows["yes"] == ("played", 1, "")
    assert rows["quarter"] == ("played", 0.25, "answered '42', which scores 0.25")
    (here / "own_scorer.py").write_text(SCORER.replace("0.25", "0.75"))
    _run("--reward", "own_scorer.py:score", "quarter")
    assert _rows() == [("quarter", "played", 0.75, "answered '42', which scores 0.75")]  # another scorer: other rows


def test_a_scorer_may_be_late_and_sees_the_whole_line(here: Path) -> None:
    scorer = Scorer.named("own_scorer.py:late")
    case = {"question": "6*7", "answer": {"exactly": "42"}}
    assert [scorer.score(answer, case, seconds=600) for answer in ("42", "43")] == [1.0, 0.0]
    with pytest.raises(ScorerError, match="KeyError"):
        scorer.score("42", {"answer": {}}, seconds=600)
    scorer.close()
    scorer.close()  # twice is once


def test_a_scorer_that_hangs_is_ended_and_asked_afresh(here: Path) -> None:
    scorer = Scorer.named("own_scorer.py:score")
    with pytest.raises(ScorerError, match=r"did not come to an end in 1 s") as raised:
        scorer.score("42", {"how": "hang"}, seconds=1)
    assert raised.value.status == "hung"
    assert scorer.score("42", {"how": "yes"}, seconds=600) == 1.0
    scorer.close()


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (b'{"question": "a", "answer": "b"}\n\n{"question": \n', r"mine.jsonl:3: is not a JSON object"),
        (b'{"question": "a", "answer": "b"}\n[1]\n', r"mine.jsonl:2: is not a JSON object"),
        (b'{"question": "\xff", "answer": "b"}\n', r"mine.jsonl:1: is not a JSON object"),
        (b'{"answer": "b"}\n', r"mine.jsonl:1: has no question"),
        (b'{"question": 3, "answer": "b"}\n', r"mine.jsonl:1: question is 3, not a text"),
        (b'{"question": "a"}\n', r"mine.jsonl:1: has no answer to compare with; .*--reward"),
        (b'{"question": "a", "answer": ["b"]}\n', r"mine.jsonl:1: answer is a list"),
        (b'{"question": "a", "answer": true}\n', r"mine.jsonl:1: answer is a bool"),
        (b'{"id": "x", "question": "a", "answer": "b"}\n' * 2, r"mine.jsonl:2: there is a case 'x' above"),
        (b'{"id": "x\\ny", "question": "a", "answer": "b"}\n', r"mine.jsonl:1: id is"),
        (b"\n\n", "holds no case"),
    ],
)
def test_a_broken_line_is_named_before_anything_is_played(here: Path, lines: bytes, error: str) -> None:
    (here / "mine.jsonl").write_bytes(lines)
    with pytest.raises(InputError, match=error):
        read_cases(Path("mine.jsonl"))
    done = _run()
    assert isinstance(done.exception, InputError)
    assert not (here / "bench").exists()


def test_ids_are_those_of_the_lines_or_the_words_of_the_question(here: Path) -> None:
    lines: list[dict[str, Any]] = [{"question": "What is it?"}, {"question": "What is it?!"}, {"question": "?"}, {"question": "x", "id": 7}]
    _write(here / "mine.jsonl", [line | {"answer": "a"} for line in lines])
    data = (here / "mine.jsonl").read_bytes()
    (here / "mine.jsonl").write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))  # as an editor on Windows writes it
    assert [c.id for c in read_cases(Path("mine.jsonl"))] == ["what-is-it", "what-is-it-2", "case", "7"]


def test_wrong_names_are_one_clear_error(here: Path) -> None:
    for args, error, words in (
        (["--tasks", "none.jsonl", "--team", "own_team.py:team"], NotFound, "none.jsonl: no such file"),
        (["--tasks", "mine.jsonl", "--team", "nobody.py:team"], NotFound, "nobody.py: no such file"),
        (["--tasks", "mine.jsonl", "--team", "own_team.py:not_callable"], InputError, "is not a function"),
        (["--tasks", "mine.jsonl", "--team", "own_team.py:alone"], InputError, "takes other arguments than a job"),
        (["--tasks", "mine.jsonl", "--team", "own_team.py:team", "--reward", "own_team.py:team"], InputError, "an answer and a case"),
        (["--tasks", "mine.jsonl", "--team", "own_team.py:team", "--reward", "none.py:score"], NotFound, "none.py: no such file"),
        (["--tasks", "mine.jsonl", "--team", "own_team.py:teem"], InputError, "did you mean 'team'"),
        (["--tasks", "mine.jsonl", "--team", "policy:reference"], InputError, "plays none of these cells"),
        (["--tasks", "mine.jsonl", "--team", "own_team.py:team", "--reward", "own_team.py:not_callable"], InputError, "not a function"),
        (["--tasks", "mine.jsonl", "--team", "own_team.py:team", "--reward", "score"], InputError, "names no function"),
        (["--tasks", "mine.jsonl", "egiht", "--team", "own_team.py:team"], InputError, "did you mean 'eight'"),
        (["short", "--team", "own_team.py:team", "--reward", "own_scorer.py:score"], InputError, "--tasks FILE.jsonl"),
        (["--team", "own_team.py:team"], InputError, "nothing to play is named"),
    ):
        done = CliRunner().invoke(bench, ["run", *args])
        assert isinstance(done.exception, error), args
        assert words in str(done.exception)
    (here / "own_team.py").write_text("def team(:\n")
    done = _run()
    assert isinstance(done.exception, InputError)
    assert "own_team.py:1: it cannot be loaded: SyntaxError" in str(done.exception)


def test_the_page_and_the_leaderboard_have_a_score_of_your_cases(here: Path) -> None:
    _run()
    card = card_of(Path("bench/own_team.py-team-mine.jsonl"))
    first, by_case, remarks = sections(card)
    assert first.head == ("family", "measure", "your cases")
    assert first.rows[0] == ("E1", "score", "67 % [0 %, 100 %]")
    assert by_case.head[:2] == ("case", "score")
    assert remarks.rows == [("6-9 seed 0: answered '54', not '55'",)]
    ((board, _),) = boards([(Path("bench/x"), card)])
    assert board.head[2] == "your cases"
    _run(team="own_team.py:recorded")
    with Store(here / "bench" / "own_team.py-recorded-mine.jsonl" / "store", create=False) as store:
        assert sorted(store.ids()) == ["6-7-0", "6-9-0", "eight-0"]
        trace = store.get("6-9-0")
    assert (trace.rewards, [e.type for e in trace.events if e.tool == "eval"]) == ({"team": 0.0}, ["tool_call", "tool_result"])
    assert {r.measures["sub_agents"] for r in BenchFolder(Path("bench/own_team.py-recorded-mine.jsonl")).rows()} == {1}
    done = CliRunner().invoke(bench, ["leaderboard", "bench"])
    assert done.exit_code == 0
    assert done.output.count("Suite ") == 1  # two teams, the same cases
