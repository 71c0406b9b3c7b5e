"""A coding session as people meet it: the same account of each agent's work in every command, and nobody paid or blamed by a guess."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.app.api.report import report
from counterpoint.app.cli import main
from counterpoint.app.viewer.credit_tab import work as page_work
from counterpoint.app.viewer.overview import overview
from counterpoint.app.viewer.panels.blame import blame as blame_panel
from counterpoint.audits.measures import measures
from counterpoint.store import Store
from counterpoint.trace import Edge, Event, Trace


def coding(**fields: object) -> Trace:
    """A lead hands a job to two agents: one writes a file and is heard, the other only fails."""
    said = {
        "job": "write the parser", "parser": json.dumps({"file_path": "/r/parse.py", "content": "def parse(x):\n    return x\n"}),
        "committed": json.dumps({"command": "git commit -am parser"}), "26 files": "26 files changed, 310 insertions(+)",
        "missing": json.dumps({"command": "cat missing"}), "back": "parse.py has def parse now", "nothing": "I did not get there",
        "end": "Done: parse.py has def parse now, 26 files changed, 310 insertions(+)",
    }  # fmt: skip
    events = [
        Event(id="s1", t=0, type="spawn", agent="main", to="writer", role="writer", content_ref="job"),
        Event(id="s2", t=0, type="spawn", agent="main", to="other", role="other", content_ref="job"),
        Event(id="w1", t=1, type="tool_call", agent="writer", tool="Write", content_ref="parser", tokens_out=400, cost_usd=0.2),
        Event(id="w2", t=2, type="tool_result", agent="writer", tool="Write"),
        Event(id="w3", t=3, type="return", agent="writer", to="main", content_ref="back"),
        *(Event(id=f"o{k}", t=k, type="tool_call", agent="other", tool="Bash", content_ref="missing") for k in range(1, 41)),
        *(Event(id=f"r{k}", t=k + 0.5, type="tool_result", agent="other", tool="Bash", error="no such file: missing") for k in range(1, 41)),
        Event(id="o99", t=50, type="return", agent="other", to="main", content_ref="nothing"),
        Event(id="m1", t=51, type="tool_call", agent="main", tool="Bash", content_ref="committed"),
        Event(id="m2", t=52, type="tool_result", agent="main", tool="Bash", content_ref="26 files"),
        Event(id="m3", t=53, type="orchestrator_decision", decision="stop", agent="main", content_ref="end"),
    ]  # fmt: skip
    pairs = [("s1", "w1", "spawn"), ("s2", "o1", "spawn"), ("w1", "w2", "causal"), ("w2", "w3", "causal"), ("w3", "m1", "return"),
             *((f"o{k}", f"r{k}", "causal") for k in range(1, 41)), ("o99", "m1", "temporal"), ("m1", "m2", "causal"),
             ("m2", "m3", "causal")]  # fmt: skip
    edges = [Edge(a, b, kind) for a, b, kind in pairs]  # type: ignore[arg-type]
    return Trace(trace_id="coding", task_id="parser", events=events, edges=edges, contents=said, **fields)  # type: ignore[arg-type]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "160")
    with Store(tmp_path / "s") as store:
        store.add(coding())
    return str(tmp_path / "s")


Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], place: str) -> Run:
    def say(*words: str, ends: int = 0) -> str:
        with pytest.raises(SystemExit) as done:
            main([*words, "--store", place])
        out = capsys.readouterr()
        assert done.value.code == ends, out
        return out.out + (out.err if ends else "")

    return say


def test_a_run_scored_0_pays_nobody_anywhere(run: Run, place: str) -> None:
    run("notes", "score", "coding", "down", "--author", "ann")
    shown, told = run("show", "coding"), run("credit", "coding")
    for text in (shown, told):
        assert "+0." not in text
        assert "credit: " not in text
    assert "work     2 lines written, 2 there at the end in 1 file" in shown
    (found,) = [json.loads(line) for line in run("credit", "coding", "--json").splitlines()]
    assert (found["method"], found["rows"]) == (None, [])
    scored = cpt.load("coding", store=place)
    assert not [fact for fact in overview(scored).facts if fact.text.startswith("credit")]
    assert cpt.credit(scored).rows == ()


def test_one_account_of_the_work_everywhere(run: Run, place: str) -> None:
    trace = coding()
    found = json.loads(run("credit", "coding", "--json"))["work"]["coding"]
    became = {row["agent"]: row["became"] for row in found["agents"]}
    assert became["writer"].startswith("2 lines in 1 file, all there at the end; its return was used")
    assert "40 commands (40 failed)" in became["other"]
    assert {row.name: row.became for row in page_work(trace).rows} == became
    table = cpt.credit(trace).to_arrow().to_pylist()
    assert {row["agent"]: row["became"] for row in table} == became
    assert found["headline"] == page_work(trace).headline
    for words in found["headline"].split(" · "):
        assert words in " ".join(run("show", "coding").split())


def test_useful_work_is_one_number_everywhere(run: Run, place: str) -> None:
    trace = coding()
    (stated,) = [m.value for m in measures(trace) if m.name == "useful_agent_utilisation"]
    assert stated == pytest.approx(2 / 43)  # writer's call and return, of these and other's 40 calls and its return
    assert report(trace).useful == stated
    assert json.loads(run("credit", "coding", "--json"))["work"]["coding"]["useful"] == stated
    for command, ends in (("audit", 4), ("report", 0)):  # the audit finds an agent that never got anywhere
        assert "at most 4.7 %" in " ".join(run(command, "coding", ends=ends).split())


def test_no_step_is_named_below_a_measured_chance(run: Run, place: str) -> None:
    assert "nothing says that this run failed" in run("blame", "coding", ends=5)
    assert blame_panel.answer(coding()).suspects == []  # type: ignore[attr-defined]
    run("notes", "score", "coding", "down")
    text = run("blame", "coding")
    assert "no step stands out" in text
    assert "40 failures in it" in text
    assert "no such file: missing" in text
    told = blame_panel.answer(replace(coding(rewards={"team": 0.0}), trace_id="failed"))
    assert (told.suspects, told.failed_count, told.sure) == ([], 40, "no step stands out")  # type: ignore[attr-defined]
    assert json.loads(run("blame", "coding", "--json").splitlines()[0])["stands_out"] is False
    assert "step " in run("blame", "coding", "--all")
