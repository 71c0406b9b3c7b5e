"""`counterpoint audit` and `counterpoint top` as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audits.made import Story, fan_out
from counterpoint import registry
from counterpoint.audits.records import DEFINITIONS, HACKS
from counterpoint.trace import Trace, encode
from counterpoint.trace.lines import encode_lines
from counterpoint.trace.quantities import PLACEHOLDER

Run = Callable[..., tuple[int, str, str]]


def _file(folder: Path, trace: Trace, name: str = "run.trace.json") -> Path:
    path = folder / name
    path.write_bytes(encode(trace))
    return path


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return _file(tmp_path, fan_out(3).trace(costs={"tokens": 1000, "wall_clock_s": 11}))


@pytest.fixture
def serial(tmp_path: Path) -> Path:
    return _file(
        tmp_path, fan_out(4, serial=True).trace(trace_id="slow", costs={"tokens": 0, "wall_clock_s": 0}), "slow.trace.json"
    )


@pytest.mark.parametrize("name", ["audit", "top"])
def test_help_is_short_and_has_two_examples(run: Run, name: str) -> None:
    assert 10 < len(registry.summary("command", name)) < 70
    code, out, _ = run(name, "--help")
    assert code == 0
    assert "--json" in out
    assert len([line for line in out.splitlines() if line.strip().startswith(f"counterpoint {name} ")]) >= 2


def test_audit_prints_every_measure_and_hack(run: Run, clean: Path) -> None:
    code, out, _ = run("audit", clean, "--full")
    assert code == 0
    assert all(name in out for name in (*DEFINITIONS, *HACKS))
    assert "0 found, 5 clear, 0 missing" in out
    assert "24 of 24 work events carry dur" in out


def test_audit_ends_with_4_when_a_hack_is_found(run: Run, serial: Path) -> None:
    code, out, _ = run("audit", serial)
    assert code == 4
    assert "FOUND   pseudo_parallelism (R7, medium)" in out
    assert "score   0.75, threshold 0.5" in out
    assert "events  e3 e4 e5" in out
    assert run("audit", serial, "--only", "E2")[0] == 0


def test_audit_begins_with_a_verdict_and_three_sentences(run: Run, clean: Path, serial: Path) -> None:
    code, out, _ = run("audit", clean)
    lines = out.splitlines()
    assert (code, lines[1]) == (0, "VERDICT  nothing wrong was found")
    assert lines[2].strip() == "The task's success is 1; 4 agents took 27 events for 1 k tokens, 11 s."
    assert "of the tokens went into coordination" in " ".join(out.split())
    assert "Nothing failed." in out
    assert "rests on" not in out
    code, out, _ = run("audit", serial)
    assert (code, out.splitlines()[1]) == (4, "VERDICT  look at this: pseudo parallelism (medium)")
    told = json.loads(run("audit", serial, "--json")[1])["verdict"]
    assert (told["level"], len(told["sentences"])) == ("look", 3)


def test_the_verdict_says_for_how_much_of_the_time_any_agent_worked(run: Run, tmp_path: Path) -> None:
    """Two agents who work at the same time for two of ten seconds are at work for a fifth of the time, not for two fifths."""
    story = Story(topology="centralized")
    story.add("spawn", "lead", to="a", t=0, dur=0)
    story.add("spawn", "lead", to="b", t=0, dur=0)
    story.add("tool_call", "a", t=1, dur=2, tool="search")
    story.add("tool_call", "b", t=1, dur=2, tool="search")
    story.add("orchestrator_decision", "lead", t=10, dur=0)
    told = json.loads(run("audit", _file(tmp_path, story.trace()), "--json")[1])["verdict"]
    assert told["sentences"][1].startswith("Some agent was at work 20 % of the time")
    story.add("tool_call", "lead", t=2, tool="search")  # nobody says how long it took
    told = json.loads(run("audit", _file(tmp_path, story.trace()), "--json")[1])["verdict"]
    assert told["sentences"][1].startswith("Some agent was at work at least 20 % of the time")


def test_a_score_past_the_bar_that_is_clear_says_why(run: Run, tmp_path: Path) -> None:
    story = Story()
    for k in range(4):
        said = story.add("message", "a", to="b", text=f"finding number {k} about gauge {k * 7} at place {k * 13}")
        if k == 2:
            story.add("orchestrator_decision", "b", reads=said)
    out = run("audit", _file(tmp_path, story.trace()), "--full")[1]
    line = next(line for line in out.splitlines() if "communication_padding" in line)
    assert line.split()[2:6] == ["0.5", ">=", "0.3", "clear"]
    assert "2 unread; fewer than 3 are let pass" in line


def test_audit_json_names_the_events(run: Run, serial: Path) -> None:
    code, out, _ = run("audit", serial, "--json")
    found: dict[str, Any] = json.loads(out)
    assert (code, found["trace_id"], found["found"]) == (4, "slow", 1)
    assert [m["name"] for m in found["measures"]] == list(DEFINITIONS)
    by_name = {m["name"]: m for m in found["measures"]}
    assert by_name["critical_steps"]["events"]
    assert by_name["tool_calls"]["event_count"] == 12
    first = found["findings"][0]
    assert (first["hack"], first["status"], first["events"]) == ("pseudo_parallelism", "found", ["e3", "e4", "e5"])


def test_audit_only_and_prices(run: Run, clean: Path) -> None:
    _, out, _ = run("audit", clean, "--only", "rollout-cost", "--set", "price_token=2", "--set", "price_tool=0.5", "--json")
    (cost,) = json.loads(out)["measures"]
    assert cost["value"] == pytest.approx(1000 * 2e-6 + 9 * 0.5)
    code, _, err = run("audit", clean, "--only", "hack")
    assert code == 2
    assert "did you mean 'hacks'" in err


def test_audit_summary_of_several(run: Run, clean: Path, serial: Path) -> None:
    code, out, _ = run("audit", clean, serial, "--summary", "--json")
    found = json.loads(out)
    assert (code, found["traces"]) == (4, 2)
    assert [s["name"] for s in found["summary"]] == list(DEFINITIONS)
    assert found["hacks"][0]["traces"] == ["slow"]
    code, out, _ = run("audit", clean, serial, "--summary")
    assert "2 traces" in out
    assert "verifiers over the batch: missing" in out


def test_two_traces_are_two_objects(run: Run, clean: Path, serial: Path) -> None:
    assert len(run("audit", clean, serial, "--json")[1].splitlines()) == 2


def test_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    assert run("audit", tmp_path / "no.json")[0] == 3
    assert run("top", tmp_path / "no.json", "--json")[0] == 3


def test_text_of_a_trace_cannot_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    story = fan_out(4, serial=True)
    story.add("tool_call", "\x1b[2Jevil", t=3, tokens_in=5)
    path = _file(tmp_path, story.trace(costs={"tokens": 5, "wall_clock_s": 1}))
    for command in ("audit", "top"):
        assert "\x1b" not in run(command, path)[1]


def test_top_is_a_tree_with_folded_siblings(run: Run, clean: Path) -> None:
    code, out, _ = run("top", clean)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["agent", "own", "total", "cost", "busy", "path%", "events", "calls", "errors"]
    assert lines[1].split() == ["lead", "86", "491", "-", "4", "s", "36", "6", "0", "0"]
    assert lines[2].split()[:5] == ["└", "w", "(x3)", "405", "405"]
    assert lines[3] == "accounted 491 of 1 k tokens (49 %); 509 have no usage record"
    unfolded = run("top", clean, "--full")[1].splitlines()
    assert [line.split()[1] for line in unfolded[2:5]] == ["w0", "w1", "w2"]


def test_top_says_at_least_where_calls_state_placeholders(run: Run, tmp_path: Path) -> None:
    about = {"import": {"lacks": {PLACEHOLDER: 1}}}
    path = tmp_path / "run.jsonl"
    path.write_bytes(encode_lines(fan_out(3).trace(meta=about)))
    assert "accounted 491 of at least 491 tokens (1 model call with a placeholder for the output)" in run("top", path)[1]


def test_top_limit_says_what_it_cut(run: Run, clean: Path) -> None:
    out = run("top", clean, "--full", "--rows", 2)[1]
    assert "… 2 more lines (--rows)" in out
    assert "270" in out


def test_top_by_and_group(run: Run, clean: Path) -> None:
    found = json.loads(run("top", clean, "--group", "tool", "--sort", "events", "--json")[1])
    assert (found["group"], found["by"], found["path"]) == ("tool", "events", "time")
    assert {r["name"]: r["calls"] for r in found["rows"]} == {"search": 9, None: 0}
    assert found["coverage"] == {"accounted": 491, "total": 1000, "share": 0.491, "no_record": 0, "missing": 0, "placeholders": 0}
    role = run("top", clean, "--group", "role")[1]
    assert "worker" in role
    assert run("top", clean, "--sort", "colour")[0] == 2


def test_top_of_lists_the_events_behind_a_line(run: Run, clean: Path) -> None:
    out = run("top", clean, "--events-of", "lead")[1]
    assert out.splitlines()[1].split()[:3] == ["e26", "8", "aggregate"]
    assert "6 of 6 events, the largest by tokens first" in out
    assert json.loads(run("top", clean, "--events-of", "lead", "--json")[1])["events"][0] == "e1"
    assert run("top", clean, "--events-of", "leed")[0] == 3


def test_top_without_tokens_sorts_by_what_there_is(run: Run, tmp_path: Path) -> None:
    bare = Story()
    bare.add("message", "a")
    bare.add("message", "b", t=3)
    bare.add("message", "b", t=4)
    out = run("top", _file(tmp_path, bare.trace(costs={"tokens": 0, "wall_clock_s": 0})))[1]
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["b", "a"]
    assert out.splitlines()[-1] == "tokens: none recorded"
