"""The claim `own-team`: its mails, its demonstrator, its scorer, and its rows from runs that are there."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if not all(map(find_spec, ("torch", "langchain_openai", "langgraph"))):
    pytest.skip("needs the llm extra, langgraph and langchain-openai", allow_module_level=True)

import torch
from langchain_core.messages import HumanMessage, SystemMessage
from tests.lab.bench.test_language_claims import finished

from counterpoint.errors import Refused
from counterpoint.lab.bench.claims import own_team
from counterpoint.lab.bench.own_team.desk import CHECKER, READER, ROUTER, score
from counterpoint.lab.bench.own_team.mails import ERRS, MISTAKES, Rules, mails, write_cases
from counterpoint.lab.bench.own_team.recordings import record_desk
from counterpoint.lab.tasks.cases import read_lines
from counterpoint.lab.train.folder import RunFolder
from counterpoint.store import Store
from counterpoint.trace.model_calls import chat_of


def test_the_score_by_hand() -> None:
    case = {"answer": "sales | two | lamp | Oslo"}
    assert score("sales | two | lamp | Oslo", case) == 1.0
    assert score("Here it is:\n SALES|two |chair| oslo\n", case) == 0.75
    assert score("sales | two | lamp", case) == 0.0  # three fields are no line
    assert score("", case) == 0.0


def test_a_mail_names_what_is_meant_and_what_is_not() -> None:
    drawn = list(mails(3, 300))
    assert drawn == list(mails(3, 300))
    assert len({one["question"] for one in drawn}) == 300
    assert {one["question"] for one in drawn} != {one["question"] for one in mails(4, 300)}
    for one in drawn:
        _, number, thing, city = one["answer"].split(" | ")
        assert number in one["question"].lower()
        assert f"{thing}s" in one["question"]
        assert city in one["question"]
    departments = Counter(one["answer"].split(" | ")[0] for one in drawn)
    assert set(departments) == {"sales", "depot", "repair"}
    assert min(departments.values()) > 60


def test_cases_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_cases(tmp_path / "deep" / "cases.jsonl", 3, 5)
    lines = read_lines(tmp_path / "deep" / "cases.jsonl", has_scorer=True)
    assert [{k: v for k, v in line.items() if k != "id"} for line in lines.values()] == list(mails(3, 5))


def test_the_demonstrator_errs_as_it_says() -> None:
    """Counted over 1,500 mails: by chance in a fifth of the fields (a wrong draw may be right), and in one thing mostly."""
    right = {"two": 0, "three": 0}
    broken = returned = 0
    drawn = list(mails(8, 1500))
    for k, case in enumerate(drawn):
        rules = Rules(case, k)
        line = rules.answer([SystemMessage(READER), HumanMessage(case["question"])]).split(" | ")
        want, number = case["answer"].split(" | ")[:2]
        right["two"] += line[1] == number
        if want == "repair":
            broken += 1
            returned += line[0] == "return"
        routed = rules.answer([SystemMessage(ROUTER), HumanMessage(f"broken | {number} | vase | Riga")]).split(" | ")
        right["three"] += routed[0] == "repair"
    assert right["two"] / 1500 == pytest.approx(1 - ERRS * 7 / 8, abs=0.04)
    assert right["three"] / 1500 == pytest.approx(1 - ERRS * 2 / 3, abs=0.04)  # the router has the line, and makes no such mistake
    assert returned / broken == pytest.approx(MISTAKES * (1 - ERRS) + ERRS / 3, abs=0.06)


def test_recordings_of_the_desk_can_be_imitated(tmp_path: Path) -> None:
    record_desk(tmp_path / "shown", 5, 3)
    with Store(tmp_path / "shown", read_only=True) as store:
        traces = [store.get(name) for name in store.ids()]
    assert len(traces) == 3
    for trace in traces:
        told = [chat_of(trace, event) for event in trace.events if (event.extra or {}).get("call")]
        asked = [one.prompt[0][1] for one in told if one is not None]
        assert asked == [READER, CHECKER, ROUTER]
        assert 0 <= trace.rewards["team"] <= 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_it_is_refused_before_anything_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("COUNTERPOINT_LM_SCALE", raising=False)
    with pytest.raises(Refused, match="needs a GPU"):
        next(own_team.own_team(seed=0, seeds=1))
    assert not (tmp_path / "runs").exists()


def test_rows_come_from_the_runs_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path / "runs"))
    rng, folder = np.random.default_rng(2), tmp_path / "runs" / "claims" / "own-team"
    told = {"seconds": {"imitate": 1.0, "learn": 60.0}, "greedy": [0.5] * 6}
    for s in range(2):
        values = (0.5 + 0.1 * rng.random(6)).tolist()
        finished(folder / f"start-4-{s}", [0.5], values, [0.0] * 6, **told)
        for name, more in (("learn", 0.4), ("more", 0.1)):
            finished(folder / f"{name}-4-{s}-0", [0.5], [v + more for v in values], [1.0] * 6, **told)
    for start in folder.glob("start-*"):
        with RunFolder.open(start, write=True) as run:
            run.change(demonstrators={"reward": 0.6})
            run.append_metrics({"update": 2, "phase": "imitate", "steps": 10, "seconds": 2.0, "episodes": 2, "forks": 0, "calls": 2, "decisions": 2})
    rows = {row.name: row for row in own_team.own_team(seed=4, seeds=2)}
    assert rows["reinforcement over imitation, sampled"].value == pytest.approx(0.4)
    assert rows["reinforcement over as long imitation, sampled"].value == pytest.approx(0.3)
    assert rows["reinforcement over as long imitation, sampled"].ok
    assert rows["steps that imitation makes in them"].value == 300  # 60 s at 0.2 s each
    assert rows["demonstrator"].value == pytest.approx(0.6)
    assert rows["reinforcement over imitation, greedy"].value == 0.0
