"""MAST: the conversation, and each failure mode as a number under its own name."""

from __future__ import annotations

import json
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.formats.mast import mast
from counterpoint.trace import Trace

PATH = logs.SAMPLES / "mast" / "7a1c_human.json"


def read(**run: Any) -> Trace:
    base = {"instance_id": "i", "problem_statement": "p", "trajectory": [{"content": ["x"], "role": "user", "name": "A"}], "note": {}}
    (trace,) = logs.imported("mast", {"i_human.json": json.dumps({**base, **run}).encode()})
    return trace


def test_the_sample() -> None:
    (trace,) = logs.imported("mast", logs.files_of(logs.SAMPLES / "mast"))
    assert (trace.trace_id, trace.task_id, trace.rewards) == ("mast/7a1c", "7a1c", {"team": 0.0})
    assert [(e.id, e.type, e.agent, trace.text(e)) for e in trace.events] == [
        ("task", "human_intervention", "user", "A box holds 12 eggs.\nHow many eggs are in 3 boxes?"),
        ("s0", "message", "mathproxyagent", "Let us solve a problem.\nHow many eggs are in 3 boxes of 12?"),
        ("s1", "message", "assistant", "12 + 3 = 15"),
        ("s2", "message", "mathproxyagent", "Go on until the query is solved."),
        ("s3", "message", "assistant", "\\boxed{15}"),
    ]
    assert {(e.src, e.type) for e in trace.edges if e.dst == "s3"} == {("s2", "message"), ("s1", "causal")}
    assert trace.metrics == {
        "failure: No attempt to verify outcome": 1.0,
        "failure: Step repetition": 0.0,
        "failure: Trajectory restart": 0.0,
    }
    assert trace.meta["import"]["lacks"]["a yes or no to some failure modes"] == 1
    assert trace.meta["labels"]["note"] == ["adds where it should multiply"]
    assert trace.meta["labels"]["other_data"]["answer"] == "36"


def test_answers_of_any_case() -> None:
    trace = read(note={"options": {"a": " Yes", "b": "NO", "c": True, "d": None, "e": 7}})
    assert trace.metrics == {"failure: a": 1.0, "failure: b": 0.0, "failure: c": 1.0}


def test_what_is_not_labelled_is_absent() -> None:
    trace = read(note=None, other_data={"correct": "yes"})
    assert (trace.metrics, trace.rewards, trace.meta["labels"]) == (None, {}, {"other_data": {"correct": "yes"}})


def test_a_speaker_without_a_name_goes_by_its_role() -> None:
    trace = read(trajectory=[{"content": "x", "role": "Planner"}, {"content": None}, 5])
    assert [e.agent for e in trace.events] == ["user", "Planner", "unnamed", "unnamed"]


def test_more_turns_keep_the_ids() -> None:
    whole = json.loads(PATH.read_bytes())
    full = [e.id for e in read(**whole).events]
    for n in range(1, len(whole["trajectory"])):
        part = [e.id for e in read(**{**whole, "trajectory": whole["trajectory"][:n]}).events]
        assert part == full[: n + 1]


@pytest.mark.parametrize("head", [b"", b"{", b'{"a":1}', b'{"instance_id": 1}', b'{"x": {"instance_id": 1, "problem_statement": 2, "trajectory": []}}'])
def test_other_files_are_not_taken(head: bytes) -> None:
    assert mast.sniff(head) is False
    assert mast.read is not None
    with pytest.raises(InputError):
        list(mast.read(head))


def test_a_run_without_a_trajectory_is_refused() -> None:
    assert mast.read is not None
    with pytest.raises(InputError, match="holds no session"):
        list(mast.read(b'{"instance_id": "i", "problem_statement": "p", "trajectory": null}'))
