"""`counterpoint notes score`: a person's verdict, and what the log suggests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import counterpoint as cpt
from counterpoint.app.cli import main
from counterpoint.trace.outcome import outcomes


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in args])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out + said.err


@pytest.fixture
def log() -> cpt.Trace:
    events = [
        cpt.Event(id="a", t=0, type="human_intervention", agent="user", content_ref="1"),
        cpt.Event(id="b", t=1, type="tool_result", agent="main", content_ref="2"),
        cpt.Event(id="c", t=2, type="message", agent="main"),
    ]
    return cpt.Trace(trace_id="log", task_id="q", events=events, contents={"1": "do it", "2": "=== 3 passed in 1s ==="})


def test_an_outcome_is_kept_with_author_and_time_and_seen_everywhere(
    log: cpt.Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "s"
    with cpt.Store(store) as opened:
        opened.add(log)
    code, said = run(capsys, "notes", "score", "log", "--store", store)
    assert (code, "proposals from the log" in said, "3 passed" in said) == (0, True, True)
    assert cpt.load("log", store=store).rewards == {}
    code, said = run(capsys, "notes", "score", "log", "team=0.5", "style=2", "--author", "ann", "--note", "it is late", "--store", store)
    assert (code, "team 0.5" in said, "it is late" in said) == (0, True, True)
    code, said = run(capsys, "notes", "score", "log", "--accept", "1", "--author", "bob", "--store", store, "--json")
    told = json.loads(said)
    assert told["rewards"] == {"team": 1, "style": 2}
    assert [(o["by"], o["value"]) for o in told["outcomes"]] == [("ann", 0.5), ("ann", 2), ("bob", 1)]
    assert told["outcomes"][2]["basis"] == "tests b: === 3 passed in 1s ==="
    assert told["proposals"] == []
    assert json.loads(run(capsys, "ls", "--store", store, "--json")[1])["team_reward"] == 1
    assert "outcome  team 1 by bob: tests b" in run(capsys, "show", "log", "--store", store)[1]
    assert "style 2 by ann: it is late" in run(capsys, "credit", "log", "--mechanism", "uniform", "--store", store)[1]
    run(capsys, "export", "log", "--to", "jsonl", "-o", tmp_path / "out.jsonl", "--store", store)
    assert [o.by for o in outcomes(cpt.load(tmp_path / "out.jsonl"))] == ["ann", "ann", "bob"]


def test_a_file_of_lines_is_scored_in_place_and_others_are_not(
    log: cpt.Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cpt.save(log, tmp_path / "log.jsonl")
    assert run(capsys, "notes", "score", path, "down", "--author", "ann", "--store", tmp_path / "none")[0] == 0
    assert cpt.load(path).rewards == {"team": 0}
    survey = cpt.save(log, tmp_path / "log.trace.json")
    code, said = run(capsys, "notes", "score", survey, "up", "--store", tmp_path / "none")
    assert (code, "cannot record who scored the trace" in said) == (2, True)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["log", "team"], 2, "is not a score"),
        (["log", "team=nan"], 2, "is not an outcome"),
        (["log", "--note", "x"], 2, "need a score"),
        (["log", "--accept", "4"], 3, "suggests 1 outcome"),
        (["other", "team=1"], 3, "no trace 'other'"),
        (["log", "team=1", "--author", " "], 2, "needs an author"),
    ],
)
def test_what_does_not_work_says_so(
    log: cpt.Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], code: int, words: str
) -> None:
    with cpt.Store(tmp_path / "s") as opened:
        opened.add(log)
    found, said = run(capsys, "notes", "score", *args, "--store", tmp_path / "s")
    assert (found, words in said) == (code, True), said
