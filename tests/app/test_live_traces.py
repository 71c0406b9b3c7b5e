"""What the other commands make of a live team's trace: exports, checks, events with their calls and prompts; hostile ones too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import counterpoint
from counterpoint import Event, Store, Trace
from counterpoint.trace.model_calls import prompt_of
from ends_help import Ends


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from team_help import record

    path = tmp_path_factory.mktemp("live")
    record(path, trace_id="team", seed=2, topology="planner_executor_critic")
    return path


def _trace(stored: Path) -> Trace:
    with Store(stored, read_only=True) as store:
        return store.get("team")


def test_exports_hold_and_are_read_again(stored: Path, run: Ends, tmp_path: Path) -> None:
    trace = _trace(stored)
    for target, name in (("survey", "t.trace.json"), ("jsonl", "t.jsonl"), ("otlp", "t.otlp.json")):
        assert run("export", "team", "--to", target, "-o", tmp_path / name, "--store", stored)[0] == 0
        again = counterpoint.load(tmp_path / name)
        assert [e.id for e in again.events] == [e.id for e in trace.events]
        assert len(again.edges) == len(trace.edges)
    for name in ("t.trace.json", "t.jsonl"):
        assert run("store", "check", tmp_path / name)[0] == 0
    assert counterpoint.load(tmp_path / "t.jsonl").meta["team"] == trace.meta["team"], "a file of it can be forked"


def test_chat_rows_are_the_agents_and_not_the_user(stored: Path, run: Ends, tmp_path: Path) -> None:
    assert run("export", "team", "--to", "sft", "-o", tmp_path / "rows.jsonl", "--store", stored)[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row["agent"] for row in rows} == set(_trace(stored).agents) - {"user"}
    assert all(row["messages"][-1]["role"] == "assistant" for row in rows)
    lead = next(row for row in rows if row["agent"] == "lead")
    assert lead["messages"][0]["role"] == "user"
    assert "The work can be split" in lead["messages"][0]["content"]


def test_an_event_shows_its_call_and_its_prompt(stored: Path, run: Ends) -> None:
    trace = _trace(stored)
    event = next(e for e in trace.events if e.type == "return")
    code, out, _ = run("show", "team", event.id, "--prompt", "--store", stored)
    assert code == 0
    asked = prompt_of(trace, event)
    assert f"prompt of {len(asked)} messages" in out
    assert f"-- asked, message {len(asked)} of {len(asked)}\nLegal now:" in out
    assert "'address'" not in out, "no Python in the text"
    told = json.loads(run("show", "team", event.id, "--prompt", "--json", "--store", stored)[1])
    assert told["prompt"] == asked
    assert told["event"]["call"]["address"].startswith("call:")
    result = next(e for e in trace.events if e.type == "tool_result")
    assert "call         tool:" in run("show", "team", result.id, "--store", stored)[1]
    assert run("audit", "team", "--taint", "--store", stored)[0] in (0, 4)


@pytest.mark.parametrize(
    "call",
    ["x", 5, {"prompt": 3}, {"prompt": {"more": "abc"}}, {"prompt": {"more": [1, None], "first": "2", "of": 7}}, {"logps": 3, "told": [1]},
     {"address": None, "finish": {}, "attempts": [], "prompt": {"more": [], "first": 3, "of": "k"}}],
)  # fmt: skip
def test_a_call_that_somebody_made_up_is_shown_and_followed_no_further(call: object, run: Ends, tmp_path: Path) -> None:
    event = Event(id="e1", t=0.0, type="message", agent="a", key="k", extra={"call": call})
    trace = Trace(trace_id="odd", task_id="t", events=[event], edges=[])
    counterpoint.save(trace, tmp_path / "odd.jsonl")
    code, out, err = run("show", tmp_path / "odd.jsonl", "e1", "--prompt")
    assert (code, err) == (0, "")
    assert "\ncall " in out
    assert isinstance(prompt_of(replace(trace, trace_id="x"), event), list)


def test_our_own_otlp_export_can_be_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from counterpoint import Store
    from counterpoint.app.cli import main
    from team_help import record

    trace = record(tmp_path / "a", task="pointer_chase", trace_id="mine")
    file = tmp_path / "mine.json"
    for args in (
        ["export", "mine", "--to", "otlp", "-o", file, "--store", tmp_path / "a"],
        ["import", file, "--format", "otel", "--store", tmp_path / "b"],
    ):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in args])
        assert not ended.value.code, capsys.readouterr()
    with Store(tmp_path / "b", read_only=True) as store:
        assert [e.id for e in store.get("mine").events] == [e.id for e in trace.events]
