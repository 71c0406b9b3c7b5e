"""ATIF trajectories: sub-agents inside and in other files, continuations, references that lead nowhere or to too many."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import logs
from counterpoint.formats.importing.files import File
from counterpoint.trace import Trace

SAMPLE = logs.SAMPLES / "atif"


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLE / name).read_text())
    return found


def read(**documents: Any) -> list[Trace]:
    """Traces of files named by keyword, with `__` for a slash."""
    files = {f"{name.replace('__', '/')}.json": json.dumps(document).encode() for name, document in documents.items()}
    return logs.imported("atif", files)


def trajectory(steps: list[Any], **fields: Any) -> dict[str, Any]:
    return {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": steps, **fields}


def says(step: int, text: str, **fields: Any) -> dict[str, Any]:
    return {"step_id": step, "source": "agent", "message": text, **fields}


def asks(step: int, *refs: dict[str, Any], content: str = "done") -> dict[str, Any]:
    """A step with one call per reference."""
    calls = [{"tool_call_id": f"c{step}.{k}", "function_name": "ask", "arguments": {"q": k}} for k in range(len(refs))]
    results = [
        {"source_call_id": c["tool_call_id"], "content": content, "subagent_trajectory_ref": [ref]}
        for c, ref in zip(calls, refs, strict=True)
    ]
    return says(step, "", tool_calls=calls, observation={"results": results})


@pytest.fixture(scope="module")
def lamp() -> Trace:
    traces = logs.imported("atif", logs.files_of(SAMPLE))
    assert [t.trace_id for t in traces] == ["solo-1", "lamp-main"]
    return traces[1]


def edges(trace: Trace) -> set[tuple[str, str, str]]:
    return {(e.src, e.dst, e.type) for e in trace.edges}


def test_events_and_agents(lamp: Trace) -> None:
    assert logs.kinds(lamp) == {
        "message": 2, "human_intervention": 1, "orchestrator_decision": 2, "tool_call": 2, "tool_result": 2, "spawn": 3, "return": 3,
        "aggregate": 1,
    }  # fmt: skip
    assert {e.to: (e.agent, e.role, lamp.text(e)) for e in lamp.events if e.type == "spawn"} == {
        "lamp-wiring": ("lamp-main", "electrician", "Check the wiring."),
        "subagents/bulb.json": ("lamp-main", "climber", "Check the bulb of lamp 7."),
        "lost/order.json": ("lamp-main", None, '{"prompt":"Order a bulb."}'),
    }
    assert (lamp.system, lamp.topology, lamp.rewards) == ("lamplighter", "centralized", {"team": 1.0})


def test_links_and_what_is_missing(lamp: Trace) -> None:
    report = lamp.meta["import"]
    assert report["links"] == {"exact": {"trajectory_id": 1, "trajectory_path": 1}, "unlinked": 1}
    assert report["unlinked_first"][0].startswith("the sub-agent lost/order.json")
    assert report["lacks"]["tokens that the trajectory counts and no step states"] == 590 - 552
    assert lamp.meta["copied_steps"] == 1


def test_tokens_and_costs(lamp: Trace) -> None:
    assert logs.tokens(lamp) == {"lamp-main": (370, 66), "lamp-wiring": (80, 11), "subagents/bulb.json": (20, 5)}
    by = {e.id: e for e in lamp.events}
    assert by["lamp-main/3"].cost_usd == 0.002
    assert by["lamp-main/3"].extra is not None
    assert by["lamp-main/3"].extra["tokens_cache_read"] == 60
    assert by["lamp-main/4"].logp == -0.75
    assert by["lamp-wiring/call_1"].tokens_in == 30  # a step that only calls has no event of its own


def test_order_and_edges(lamp: Trace) -> None:
    found, by = edges(lamp), {e.id: e for e in lamp.events}
    assert {("lamp-wiring/3", "lamp-main/4", "aggregate"), ("subagents/bulb.json/2", "lamp-main/4", "aggregate")} <= found
    assert ("lamp-wiring/2/result0", "lamp-wiring/3", "safety_flow") in found
    assert ("lamp-main/3/spawn0", "lamp-wiring/call_1", "spawn") in found
    assert ("lamp-main/4/spawn0/return", "lamp-main+1/3", "return") in found
    # the merging step began when the slower of the two was done, at second 12, and was done at 20
    assert (by["lamp-main/4"].t, by["lamp-main/4"].dur) == (12.0, 8.0)
    assert by["lamp-wiring/2/result0"].trusted is False


def test_a_trajectory_alone() -> None:
    (trace,) = read(solo=load("solo.json"))
    assert [e.type for e in trace.events] == ["human_intervention", "orchestrator_decision"]
    assert trace.meta["import"]["unknown"] == {"step of narrator": 1}
    assert trace.meta["import"]["lacks"] == {"timestamps: t counts events": 1}


def test_the_same_words_are_the_same_task() -> None:
    one, other = (
        read(x=trajectory([{"step_id": 1, "source": "user", "message": "do it"}, says(2, "ok")], session_id=s))[0] for s in "ab"
    )
    assert one.task_id == other.task_id
    assert one.trace_id != other.trace_id


def test_one_file_or_many_or_lines_say_the_same() -> None:
    documents = [load("solo.json"), trajectory([says(1, "hi")], session_id="two")]
    lines = b"\n".join(json.dumps(d).encode() for d in documents) + b'\n{"schema_version": "ATIF-v1.2", "ste'
    (session,) = logs.sessions("atif", {"all.jsonl": lines})
    found = list(logs.importer("atif").read_session(session))
    assert [t.trace_id for t in found] == ["solo-1", "two"]
    assert session.report.broken[0]["line"] == 3
    assert [t.trace_id for t in read(all=documents)] == ["solo-1", "two"]


@pytest.mark.parametrize(("version", "kind"), [("ATIF-v1.6", "exact"), ("ATIF-v1.7", "inferred")])
def test_a_session_id_is_a_reference_until_it_is_not(version: str, kind: str) -> None:
    main = trajectory([asks(1, {"session_id": "child"})], schema_version=version)
    child = trajectory([says(1, "here")], schema_version=version, session_id="child")
    (trace,) = read(main=main, other=child)
    assert trace.meta["import"]["links"] == {kind: {"session_id": 1}}
    assert [e.agent for e in trace.events if e.type == "return"] == ["child"]


def test_a_reference_that_fits_two_is_taken_for_neither() -> None:
    main = trajectory([asks(1, {"session_id": "child"})])
    children = [trajectory([says(1, text)], session_id="child") for text in ("one", "two")]
    traces = read(main=main, b=children[0], c=children[1])
    assert len(traces) == 3
    report = next(t for t in traces if t.trace_id == "s").meta["import"]
    assert report["links"] == {"unlinked": 1}


def test_trajectories_that_refer_to_each_other_end() -> None:
    one = trajectory([asks(1, {"trajectory_path": "two.json"})], session_id="one")
    two = trajectory([asks(1, {"trajectory_path": "one.json"})], session_id="two", continued_trajectory_ref="two.json")
    (trace,) = read(one=one, two=two)
    assert trace.meta["import"]["links"] == {"exact": {"trajectory_path": 1}, "unlinked": 1}


def test_a_path_is_looked_for_from_the_folder_of_the_trajectory() -> None:
    main = trajectory([asks(1, {"trajectory_path": "sub/x.json"})], session_id="main")
    right, wrong = trajectory([says(1, "right")], session_id="r"), trajectory([says(1, "wrong")], session_id="w")
    traces = read(a__main=main, a__sub__x=right, b__sub__x=wrong)
    assert sorted(t.trace_id for t in traces) == ["main", "w"]
    outside = trajectory([asks(1, {"trajectory_path": "../../etc/passwd"})], session_id="main")
    assert read(a__main=outside)[0].meta["import"]["links"] == {"unlinked": 1}


def test_embedded_agents_without_a_reference_and_deep_ones() -> None:
    inner = trajectory([says(1, "deepest")], trajectory_id="t3")
    middle = trajectory([asks(1, {"trajectory_id": "t3"})], trajectory_id="t2", subagent_trajectories=[inner])
    stray = trajectory([says(1, "nobody asked")], trajectory_id="t4")
    (trace,) = read(x=trajectory([asks(1, {"trajectory_id": "t2"})], trajectory_id="t1", subagent_trajectories=[middle, stray]))
    assert trace.topology == "hierarchical"
    assert trace.meta["import"]["links"] == {"exact": {"trajectory_id": 2}, "unlinked": 1}
    assert {e.agent for e in trace.events} == {"t1", "t2", "t3", "t4"}


def test_siblings_of_one_session_stay_apart() -> None:
    children = [trajectory([says(1, f"child {k}")], trajectory_id=f"t{k}") for k in range(2)]
    main = trajectory(
        [asks(1, {"trajectory_id": "t0"}, {"trajectory_id": "t1"})], trajectory_id="m", subagent_trajectories=children
    )
    (trace,) = read(x=main)
    assert [(e.agent, trace.text(e)) for e in trace.events if e.type == "return"] == [("t0", "child 0"), ("t1", "child 1")]


def test_a_growing_trajectory_keeps_its_ids() -> None:
    whole = load("trajectory.json")
    part = copy.deepcopy(whole)
    part["steps"] = part["steps"][:3]
    del part["continued_trajectory_ref"]
    part["subagent_trajectories"][0]["steps"].pop()
    rest = {"subagents__bulb": load("subagents/bulb.json")}
    (before,), (after,) = read(trajectory=part, **rest), read(trajectory=whole, **rest)
    assert before.trace_id == after.trace_id
    # the child's last words were not there yet: its return was the harness's, under a name of its own
    new = {e.id for e in before.events} - {e.id for e in after.events}
    assert new == {"lamp-main/3/spawn0/return"}
    assert len(before.events) > 8


@pytest.mark.parametrize(
    "steps",
    [
        [None, 3, "x", {}, {"source": "agent"}],
        [
            says(
                1,
                "x",
                tool_calls=[None, {}, {"function_name": 3}],
                observation={"results": [None, 1, {}, {"subagent_trajectory_ref": 3}]},
            )
        ],
        [says(1, "x", observation=[1], metrics=[2], timestamp="yesterday")],
        [says(1, {"text": ["a", {"b": 1}]}, metrics={"prompt_tokens": -1, "completion_tokens": "x", "logprobs": [None, "a"]})],
        [asks(1, {"trajectory_id": 3, "trajectory_path": None})],
    ],
)
def test_strange_steps_do_no_harm(steps: list[Any]) -> None:
    (trace,) = read(x=trajectory([*steps, says(99, "the end")]))
    assert trace.text(trace.events[-1]) == "the end"


@pytest.mark.parametrize(
    "head",
    [
        b'{"schema_version": "1.0", "steps": []}',
        b'{"a": {"schema_version": "ATIF-v1.7"}}',
        b'{"text": "ATIF"}',
        b'"ATIF-v1.7"',
        b"{",
    ],
)
def test_other_files_are_not_taken(head: bytes) -> None:
    assert logs.importer("atif").sniff(head) is False


def test_the_agents_fields_may_come_first() -> None:
    document = load("solo.json")
    turned = json.dumps(dict(reversed(list(document.items()))), indent=4).encode()
    assert logs.importer("atif").sniff(turned) is True


def test_grouping_reads_what_cannot_be_read_as_alone() -> None:
    files = [
        File.of(b'{"schema_version": "ATIF-v1.7", "steps": [', "a.json"),
        File.of((SAMPLE / "solo.json").read_bytes(), "b.json"),
    ]
    sessions = list(logs.importer("atif").group(files))
    assert [[f.name for f in s.files] for s in sessions] == [["a.json"], ["b.json"]]
    assert [len(list(logs.importer("atif").read_session(s))) for s in sessions] == [0, 1]
    assert sessions[0].report.broken_count == 1


def test_the_tools_that_the_agent_was_offered_are_kept() -> None:
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    about = {"name": "a", "version": "1", "tool_definitions": [tool]}
    (trace,) = read(run=trajectory([{"step_id": 1, "source": "user", "message": "Go."}, says(2, "Done.")], agent=about))
    assert trace.meta["tools"] == [tool]
