"""A model as a judge: verdicts with provenance, the budget, resuming, and agreement with people."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import counterpoint as cpt
from counterpoint.app.cli import cli
from counterpoint.display import moment
from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.lab.app.api.judge import plan_of, run
from counterpoint.lab.app.api.rubric import Rubric, call_for, read_rubric, things
from counterpoint.lab.lm.model import Call, Completion
from counterpoint.trace import content_ref
from endpoint_help import FaultServer

LABELS = Rubric("verdict", "Is it right?", ("right", "wrong"))
SCALE = Rubric("helpful", "How helpful?", (), (1, 5))


def trace(k: int) -> cpt.Trace:
    texts = [f"I looked at ledger {k}", "x" * 5_000, f"The answer is {k}"]
    events = [
        cpt.Event(id=f"e{i}", t=i, type="message" if i < 2 else "return", agent="lead", content_ref=content_ref(text))
        for i, text in enumerate(texts)
    ]
    contents = {content_ref(text): text for text in texts}
    return cpt.Trace(trace_id=f"run-{k}", task_id="q", events=events, contents=contents, rewards={"team": 0.125 + k})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTERPOINT_AUTHOR", "ann")
    with cpt.Store("traces") as store:
        store.add_many(trace(k) for k in range(8))
    (tmp_path / "verdict.toml").write_text('name = "verdict"\nlabels = ["right", "wrong"]\ntext = "Is it right?"\n')
    return tmp_path


def told(*args: str, code: int = 0) -> list[dict[str, Any]]:
    done = CliRunner().invoke(cli, ["notes", "judge", *args, "--json"], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("place")
def test_verdicts_are_kept_with_their_provenance_and_held_against_people() -> None:
    for k in range(8):
        cpt.annotate(f"run-{k}", label={"verdict": "right" if k % 2 else "wrong"}, by="ann")
        cpt.annotate(f"run-{k}", label={"verdict": "right" if k % 3 else "wrong"}, by="bob")
    *verdicts, end = told("finished", "--rubric", "verdict.toml", "--model", "fake:1")
    assert (end["verdicts"], end["asked"], end["left"]) == (8, 8, 0)
    first = verdicts[0]
    assert (first["by"], first["is_model"], first["name"]) == ("fake:1", True, "verdict")
    assert first["basis"]["rubric"] == end["rubric_hash"]
    assert first["basis"]["prompt"].startswith("sha256:")
    kappa = {f["name"]: f for f in end["agreement"]["figures"]}["Cohen's kappa"]
    assert end["agreement"]["things"] == 5  # where ann and bob differ, people say nothing together
    assert kappa["value"] == 1.0
    assert end["people"]["things"] == 8
    again = told("finished", "--rubric", "verdict.toml", "--model", "fake:1")[-1]
    assert (again["asked"], again["verdicts"]) == (0, 8)  # the same question is asked once
    assert told("finished", "--rubric", "verdict.toml", "--model", "fake:1", "--seed", "1")[-1]["asked"] == 8
    found = cpt.judge("run-1", model="fake:1", rubric=LABELS)
    assert found.to_arrow().column("label").to_pylist() == ["right"]


@pytest.mark.usefixtures("place")
def test_an_endpoint_is_asked_within_its_budget_only_and_goes_on_after() -> None:
    def answer(messages: list[dict[str, Any]]) -> str:
        asked = messages[-1]["content"]
        assert "0.125" not in asked  # the reward is nothing that a judge is shown
        return "**Right**: the answer is there" if "answer is 3" in asked else "Verdict: wrong - it is not"

    with FaultServer(answer) as server:
        how = ("finished", "--rubric", "verdict.toml", "--model", "openai:judge", "--base-url", server.url)
        with pytest.raises(Refused, match="8 questions"):
            told(*how)
        (plan,) = told(*how, "--dry-run")
        assert len(plan["prompts"]) == plan["questions"] == 8
        some = told(*how, "--cap", f"tokens={plan['tokens'] // 8 + 1}", "--model-set", "concurrency=1")[-1]
        assert (some["verdicts"], some["left"]) == (1, 7)
        *verdicts, end = told(*how, "--cap", f"tokens={plan['tokens']}")
        assert (end["verdicts"], end["left"]) == (8, 0)
        assert {one["trace_id"]: one["label"] for one in verdicts}["run-3"] == "right"
        assert sum(one["label"] == "wrong" for one in verdicts) == 7
        assert end["agreement"] is None


class Breaking:
    """A model that is interrupted at its third answer."""

    name, version = "local:breaking", "1"

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, call: Call) -> Completion:
        self.calls += 1
        if self.calls == 3:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        return Completion(text="2: fine" if self.calls != 2 else "I cannot say")

    async def close(self) -> None:
        pass


@pytest.mark.usefixtures("place")
def test_what_was_judged_before_an_interruption_is_kept() -> None:
    with cpt.Store("traces") as store:
        plan = plan_of(store, "finished", SCALE, Breaking())
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(run(store, plan, "finished", at_once=1))
        assert [a.score for a in store.annotations()] == [2]
        left = plan_of(store, "finished", SCALE, Breaking())
        assert (left.known, len(left.questions)) == (1, 7)


def test_a_prompt_says_what_it_leaves_out_and_shows_an_event_in_its_place() -> None:
    whole = call_for(LABELS, trace(1), None, context=300, seed=0).messages[-1].text
    assert "The answer is 1" in whole
    assert "left out" in whole
    assert len(whole) < 2_000
    by_event = Rubric("step", "Is this step needed?", ("yes", "no"), unit="event", types=("return",))
    (event,) = things(by_event, trace(1))
    assert event is not None
    asked = call_for(by_event, trace(1), event, context=4_000, seed=0).messages[-1].text
    assert asked.index("ledger 1") < asked.index("Judge this step:") < asked.index("The answer is 1")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("right: because", ("right", "because")),
        ("Verdict: WRONG.\nno tests", ("wrong", "no tests")),
        ("  **right** it is", ("right", "it is")),
        ("righteous", None),
        ("I think it is right", None),
        ("", None),
    ],
)
def test_an_answer_is_a_verdict_or_none(answer: str, verdict: tuple[str, str] | None) -> None:
    assert LABELS.read(answer) == verdict
    assert SCALE.read("4/5: good") == ("4", "5: good")
    assert SCALE.read("Score: 3") == ("3", "")
    assert SCALE.read("10") is None
    assert SCALE.read("4.5") is None


def test_a_rubric_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    for text in ('text = "x"', 'text = "x"\nlabels = ["a"]', 'text = "x"\nscale = [5, 1]', 'labels = ["a", "b"]', 'txt = "x"',
                 'text = "x"\nlabels = ["a", "b"]\nscale = [1, 2]', 'text = "x"\nscale = [1, 5]\nunit = "agent"'):  # fmt: skip
        file.write_text(text)
        with pytest.raises(InputError):
            read_rubric(file)
    plain = tmp_path / "helpful.md"
    plain.write_text("How helpful was it?")
    assert (read_rubric(plain).name, read_rubric(plain).scale) == ("helpful", (1, 5))
    for missing, error in ((("--rubric", "nowhere.toml"), NotFound), ((), InputError)):
        done = CliRunner().invoke(cli, ["notes", "judge", "x", *missing])
        assert isinstance(done.exception, (error, FileNotFoundError))


def test_the_example_is_a_rubric(tmp_path: Path) -> None:
    (tmp_path / "example.toml").write_text(CliRunner().invoke(cli, ["notes", "rubric"]).output)
    assert read_rubric(tmp_path / "example.toml").labels == ("right", "wrong")


def test_there_is_no_judge_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with cpt.Store("traces") as store:
        store.add(trace(1))
    Path("verdict.toml").write_text('name = "verdict"\nlabels = ["right", "wrong"]\ntext = "Is it right?"\n')
    done = CliRunner().invoke(cli, ["notes", "judge", "finished", "--rubric", "verdict.toml"])
    assert isinstance(done.exception, InputError)
    assert done.exception.exit_code == 2
    for word in ("openai:NAME", "local:NAME", "test double"):
        assert word in str(done.exception.fix)
    with cpt.Store("traces") as store:
        assert store.annotations() == []


def test_a_verdict_shows_its_author_and_when_wherever_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with cpt.Store("traces") as store:
        store.add(trace(1))
    found = cpt.judge("finished", model="fake:1", rubric=LABELS).rows[0]
    author, when = "fake:1, a test double", moment(found.at)
    for said in (["show", found.trace_id], ["notes", "ls", found.trace_id]):
        told = CliRunner().invoke(cli, said).output
        assert author in told
        assert when in told
    assert author in CliRunner().invoke(cli, ["ls"], env={"COLUMNS": "300"}).output
    assert found.trace_id in CliRunner().invoke(cli, ["ls", f"label:{found.label}", "--json"]).output
    CliRunner().invoke(cli, ["export", found.trace_id, "--to", "jsonl", "-o", "out.jsonl"])
    texts = "".join(path.read_text() for path in tmp_path.rglob("*.jsonl"))
    assert '"fake:1"' in texts
    assert '"is_model":true' in texts.replace(" ", "")
    real = cpt.trace.annotation.annotation(found.trace_id, by="openai:gpt-x", at=0.0, label="right", name="verdict", is_model=True)
    assert cpt.trace.annotation.one_line(real) == "verdict=right by openai:gpt-x, a model, 1970-01-01 00:00"
