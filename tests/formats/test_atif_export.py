"""Traces as ATIF: what stands where, judged by the `atif` package where it is installed, and back again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import counterpoint
import logs
from counterpoint import registry
from counterpoint.app.cli.export import export
from counterpoint.formats.importing.values import count
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Edge, Event, Trace, decode, problems
from counterpoint.trace.synthetic import SHAPES
from survey import documents

ATIF: Any = registry.get("format", "atif")


def written(trace: Trace, version: str = "1.8") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ATIF.writes_too[version](trace))
    return document


def again(trace: Trace) -> Trace:
    (found,) = ATIF.read(ATIF.write(trace))
    assert [str(p) for p in problems(found) if p.severity == "error"] == []
    return found  # type: ignore[no-any-return]


def validate(document: dict[str, Any]) -> None:
    atif = pytest.importorskip("atif", reason="the package with the models of ATIF is not installed")
    atif.Trajectory.model_validate(document)


def order(trace: Trace) -> dict[str, list[tuple[str, ...]]]:
    """What each agent did in order, as far as ATIF says it: calls, results by text, agents made."""
    answers = {e.src: e.dst for e in trace.edges if e.type == "tool_dependency"}
    events = {e.id: e for e in trace.events}
    out: dict[str, list[tuple[str, ...]]] = {agent: [] for agent in trace.members}
    for event in trace.events:
        if event.agent not in out:
            continue
        if event.type == "tool_call":
            answer = events.get(answers.get(event.id, ""))
            out[event.agent].append(("call", event.tool or "tool", (answer and trace.text(answer)) or ""))
        elif event.type == "spawn" and event.to:
            out[event.agent].append(("spawn", event.to))
    return out


def spent(trace: Trace) -> dict[str, tuple[int, int, float]]:
    sums = dict.fromkeys(trace.members, (0, 0, 0.0))
    for e in trace.events:
        if e.agent in sums:
            into, out, cost = sums[e.agent]
            more = count(e.tokens_in) or 0, count(e.tokens_out) or 0, float(e.cost_usd or 0)
            sums[e.agent] = into + more[0], out + more[1], round(cost + more[2], 6)
    return sums


@pytest.fixture
def pair() -> Trace:
    """A lead asks a scout, whose tool fails, and answers; a third agent is made by nobody."""
    note = {"token_ids": [7, 8], "logps": [-0.5, -0.25], "prompt_ids": [1, 2, 3]}
    texts = {
        "q": "Where is it?",
        "go": "Look north.",
        "args": '{"at":"north"}',
        "fog": "fog",
        "gone": "Not there.",
        "end": "Nowhere.",
    }
    event = dict[str, Any]
    rows: list[event] = [
        {"id": "h", "t": 0.0, "type": "human_intervention", "agent": "user", "role": "user", "to": "lead", "content_ref": "q"},
        {"id": "d", "t": 1.0, "dur": 0.5, "type": "orchestrator_decision", "agent": "lead", "decision": "spawn", "model": "m",
         "tokens_in": 90, "tokens_out": 8, "cost_usd": 0.5, "extra": {"tokens_cache_read": 60, "tokens_reasoning": 5, "call": note}},
        {"id": "s", "t": 1.5, "type": "spawn", "agent": "lead", "to": "scout", "role": "finder", "content_ref": "go"},
        {"id": "c", "t": 2.0, "type": "tool_call", "agent": "scout", "tool": "look", "content_ref": "args", "tokens_in": 20, "tokens_out": 3},
        {"id": "r", "t": 3.0, "type": "tool_result", "agent": "scout", "tool": "look", "content_ref": "fog", "ok": False, "error": "Fog: 1"},
        {"id": "b", "t": 4.0, "type": "return", "agent": "scout", "from_": "scout", "to": "lead", "content_ref": "gone", "tokens_in": 30, "tokens_out": 4},
        {"id": "a", "t": 5.0, "type": "orchestrator_decision", "agent": "lead", "decision": "stop", "content_ref": "end", "tokens_in": 99, "tokens_out": 2},
        {"id": "x", "t": 5.0, "type": "message", "agent": "idler", "content_ref": "q", "extra": {"aloud": True}},
    ]  # fmt: skip
    pairs = [("h", "d", "message"), ("d", "s", "causal"), ("s", "c", "spawn"), ("c", "r", "tool_dependency"), ("r", "b", "causal"),
             ("b", "a", "return"), ("d", "a", "causal")]  # fmt: skip
    edges = [Edge(*p) for p in pairs]  # type: ignore[arg-type]
    meta = {"began": 1_700_000_000.0}
    return Trace(trace_id="t1", task_id="find", system="us", topology="centralized", events=[Event(**r) for r in rows],
                 edges=edges, rewards={"team": 1}, contents=texts, meta=meta)  # fmt: skip


@pytest.mark.parametrize("version", ["1.7", "1.8"])
def test_what_stands_where(pair: Trace, version: str) -> None:
    found = written(pair, version)
    validate(found)
    assert (found["schema_version"], found["session_id"], found["trajectory_id"]) == (f"ATIF-v{version}", "t1", "t1")
    assert found["final_metrics"] == {
        "total_prompt_tokens": 189, "total_completion_tokens": 10, "total_cached_tokens": 60, "total_cost_usd": 0.5, "total_steps": 3,
    }  # fmt: skip
    asked, decided, answered = found["steps"]
    assert (asked["source"], asked["message"], asked["timestamp"]) == ("user", "Where is it?", "2023-11-14T22:13:20Z")
    assert decided["metrics"] == {
        "prompt_tokens": 90, "completion_tokens": 8, "cached_tokens": 60, "cost_usd": 0.5, "prompt_token_ids": [1, 2, 3],
        "completion_token_ids": [7, 8], "logprobs": [-0.5, -0.25], "extra": {"reasoning_tokens": 5},
    }  # fmt: skip
    assert decided["timestamp"] == "2023-11-14T22:13:21.500000Z"  # when the step was over
    assert decided["tool_calls"] == [{"tool_call_id": "s", "function_name": "spawn", "arguments": {"prompt": "Look north."}}]
    assert decided["observation"]["results"] == [
        {
            "source_call_id": "s",
            "content": "Not there.",
            "subagent_trajectory_ref": [{"trajectory_id": "t1/scout", "session_id": "t1"}],
        }
    ]
    assert answered["message"] == "Nowhere."
    scout, idler = found["subagent_trajectories"]
    assert (scout["trajectory_id"], scout["agent"]["name"], idler["trajectory_id"]) == ("t1/scout", "finder", "t1/idler")
    told, called, returned = scout["steps"]
    assert (told["source"], told["message"]) == ("user", "Look north.")
    assert called["tool_calls"] == [{"tool_call_id": "c", "function_name": "look", "arguments": {"at": "north"}}]
    failed = {"source_call_id": "c", "content": "fog", "extra": {"is_error": True, "error": "Fog: 1"}}
    assert called["observation"]["results"] == [failed]
    assert returned["message"] == "Not there."
    assert found["notes"].endswith("1 spawned by nobody, so that no step refers to them.")


def test_what_comes_back(pair: Trace) -> None:
    found = again(pair)
    assert (found.trace_id, found.task_id, found.system, found.topology, found.rewards) == (
        "t1",
        "find",
        "us",
        "centralized",
        {"team": 1},
    )
    assert found.agents == ["user", "lead", "scout", "idler"]
    assert (order(found), spent(found)) == (order(pair), spent(pair))
    decided = next(e for e in found.events if e.decision == "spawn")
    assert decided.extra is not None
    assert decided.extra["call"] == {"prompt_ids": [1, 2, 3], "token_ids": [7, 8], "logps": [-0.5, -0.25]}
    assert decided.extra["tokens_reasoning"] == 5
    assert decided.logp == -0.75
    failed = next(e for e in found.events if e.type == "tool_result")
    assert (failed.ok, failed.error) == (False, "Fog: 1")
    kinds = {e.type for e in found.edges}
    assert {"spawn", "return", "tool_dependency"} <= kinds
    assert found.meta["import"]["links"] == {"exact": {"trajectory_id": 1}, "unlinked": 1}


def test_words_of_a_person_that_two_agents_read_were_said_once() -> None:
    said = Event(id="h", t=0.0, type="human_intervention", agent="user", role="user", content_ref="q")
    did = [Event(id=agent, t=k, type="message", agent=agent, content_ref="a") for k, agent in enumerate(("ann", "ben"), 1)]
    edges = [Edge("h", "ann", "message"), Edge("h", "ben", "message")]
    found = again(Trace(trace_id="t", task_id="t", events=[said, *did], edges=edges, contents={"q": "Where?", "a": "Here."}))
    (asked,) = [e for e in found.events if e.type == "human_intervention"]
    assert {e.agent for e in found.events if Edge(asked.id, e.id, "message") in found.edges} == {"ann", "ben"}


def test_what_was_read_from_a_peer_is_an_edge_again() -> None:
    texts = {"hi": "I have the key.", "ok": "Then open it."}
    said = Event(id="m", t=0.0, type="message", agent="ann", to="ben", source="peer", content_ref="hi")
    did = Event(id="n", t=1.0, type="message", agent="ben", content_ref="ok", extra={"aloud": True})
    trace = Trace(trace_id="t", task_id="t", events=[said, did], edges=[Edge("m", "n", "message")], contents=texts)
    inner = written(trace)["subagent_trajectories"][0]
    assert [(s["source"], s["message"]) for s in inner["steps"]] == [("user", "I have the key."), ("agent", "Then open it.")]
    found = again(trace)
    assert [(e.agent, found.text(e)) for e in found.events] == [("ann", "I have the key."), ("ben", "Then open it.")]
    assert [e.type for e in found.edges] == ["message"]


def test_what_nobody_knows_is_absent(pair: Trace) -> None:
    bare = replace(pair, meta={}, contents={}, events=[replace(e, model=None, tokens_in=None) for e in pair.events])
    found = written(bare)
    validate(found)
    assert not any("timestamp" in step for step in found["steps"])
    assert "total_prompt_tokens" not in found["final_metrics"]
    assert "texts that are absent" in found["notes"]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(0, 40), st.sampled_from(sorted(SHAPES)), st.integers(0, 5), st.booleans())
def test_a_team_comes_back(agents: int, steps: int, shape: str, seed: int, has_texts: bool) -> None:
    try:
        trace = synthetic_trace(agents, steps, shape, seed=seed, contents=has_texts)
    except counterpoint.InputError:
        return
    found = again(trace)
    assert (order(found), spent(found), found.task_id) == (order(trace), spent(trace), trace.task_id)
    once_more = again(found)
    assert (order(once_more), spent(once_more)) == (order(found), spent(found))


@settings(max_examples=80, deadline=None)
@given(documents())
def test_any_trace_is_a_document(document: dict[str, Any]) -> None:
    trace = decode(json.dumps(document).encode())
    try:
        found = written(trace)
    except counterpoint.InputError:  # half of a surrogate pair
        return
    validate(found)
    assert ATIF.write(trace) == ATIF.write(trace)


@pytest.mark.parametrize("name", sorted(path.name for path in logs.SAMPLES.iterdir() if path.is_dir()))
def test_the_logs_of_others_become_trajectories_and_come_back(name: str) -> None:
    for trace in logs.imported(name, logs.files_of(logs.SAMPLES / name)):
        validate(written(trace))
        found = again(trace)
        assert found.members == trace.members
        assert spent(found) == spent(trace)
        assert found.costs.get("cost_usd") == pytest.approx(trace.costs.get("cost_usd"))
        assert (found.tokens, *map(found.meta.get, ("title", "project"))) == (trace.tokens, *map(trace.meta.get, ("title", "project")))
        assert {agent: sorted(did) for agent, did in order(found).items()} == {a: sorted(did) for a, did in order(trace).items()}


def test_the_command_writes_either_version(pair: Trace, tmp_path: Path) -> None:
    counterpoint.save(pair, tmp_path / "run.jsonl")
    for target, version in {"atif": "1.8", "atif-1.7": "1.7", "atif-1.8": "1.8"}.items():
        out = tmp_path / f"{target}.json"
        done = CliRunner().invoke(export, [str(tmp_path / "run.jsonl"), "--to", target, "-o", str(out)])
        assert done.exit_code == 0, done.output
        assert json.loads(out.read_text())["schema_version"] == f"ATIF-v{version}"
    refused = CliRunner().invoke(export, [str(tmp_path / "run.jsonl"), "--to", "atif-1.6", "-o", str(tmp_path / "no.json")])
    assert refused.exit_code != 0
    assert "atif-1.8" in str(refused.exception)
