"""Invented runs: valid at every size, shaped as the survey says, and the same bytes everywhere."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from counterpoint.errors import InputError
from counterpoint.trace import Trace, content_ref, encode, problems
from counterpoint.trace.synthetic import SHAPES, SIZES, synthetic_trace
from counterpoint.trace.synthetic.script import Dice, shares
from survey import REFERENCE, WHY_SKIPPED, validator


def _number(name: str) -> int:
    assert name[0] == "e"
    return int(name[1:])


def _assert_sound(trace: Trace) -> None:
    """What holds for every invented run."""
    assert problems(trace) == []
    times = [e.t for e in trace.events]
    assert [e.id for e in trace.events] == [f"e{i}" for i in range(1, len(times) + 1)]
    assert times == sorted(times)
    ends = [(_number(e.src), _number(e.dst)) for e in trace.edges]
    assert all(src < dst for src, dst in ends)
    assert [dst for _, dst in ends] == sorted(dst for _, dst in ends)
    assert len(set(trace.edges)) == len(trace.edges)
    assert trace.graph.is_ordered
    assert trace.graph.by is None
    assert trace.graph.roots().tolist() == [0]
    # Nobody reads what is not over yet.
    for src, dst in ends:
        before, after = trace.events[src - 1], trace.events[dst - 1]
        assert before.t + (before.dur or 0) <= after.t + 1e-9, (before.id, after.id)
    assert trace.events[-1].decision == "stop"
    assert trace.events[-1].reward == {"team": trace.rewards["team"]}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SHAPES), st.integers(2, 30), st.integers(0, 60), st.integers(0, 2**70), st.booleans())
def test_sound_for_any_size_and_seed(shape: str, agents: int, more: int, seed: int, contents: bool) -> None:
    trace = synthetic_trace(agents, agents + more, shape, seed, contents=contents)
    _assert_sound(trace)
    assert sum(e.type == "spawn" for e in trace.events) == sum(e.type == "despawn" for e in trace.events) == agents
    steps = "message" if shape == "debate" else "tool_call"
    assert trace.costs["messages" if shape == "debate" else "tool_calls"] == agents + more == Counter(
        e.type for e in trace.events
    )[steps]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", ["small", "k25", "k26"])
def test_sound_at_published_sizes(shape: str, size: str) -> None:
    trace = synthetic_trace(*SIZES[size], shape, seed=3)
    _assert_sound(trace)
    if size != "k26":
        validator.validate(_some_of(json.loads(encode(trace))))


def _some_of(document: dict[str, Any]) -> dict[str, Any]:
    """A trace with the first, the last and, drawn anew in every run, 200 others of its events and of its edges."""
    drawn = {}
    for name in ("events", "edges"):
        rows = document[name]
        places = {0, len(rows) - 1, *random.sample(range(len(rows)), min(200, len(rows)))}
        drawn[name] = [rows[i] for i in sorted(places)]
    return document | drawn


@pytest.mark.parametrize(("shape", "agents"), [("harness", 0), ("centralized", 1), ("swarm", 1), ("hierarchical", 1), ("debate", 2)])
def test_sound_for_the_fewest_agents(shape: str, agents: int) -> None:
    for steps in (max(agents, 1), 7):
        _assert_sound(synthetic_trace(agents, steps, shape))


@pytest.mark.shared
@pytest.mark.skipif(not REFERENCE.exists(), reason=WHY_SKIPPED)
@pytest.mark.parametrize("shape", SHAPES)
def test_passes_the_surveys_own_schema(shape: str) -> None:
    schema = json.loads((REFERENCE / "trace_schema.json").read_text())
    Draft202012Validator(schema).validate(json.loads(encode(synthetic_trace(12, 90, shape, contents=True))))


@pytest.mark.parametrize(("size", "events", "waves"), [("small", 50, 1), ("k25", 3400, 5), ("k26", 9100, 8), ("x10", 44000, 16)])
def test_sizes_are_those_of_the_baselines(size: str, events: int, waves: int) -> None:
    trace = synthetic_trace(*SIZES[size])
    assert len(trace.events) == trace.graph.n == pytest.approx(events, rel=0.2 if size == "small" else 0.03)
    assert sum(e.type == "aggregate" for e in trace.events) == pytest.approx(waves, abs=1)
    assert len(trace.edges) == pytest.approx(1.05 * len(trace.events), rel=0.06)


def test_the_same_bytes_in_another_process() -> None:
    program = (
        "import hashlib; from counterpoint.trace.synthetic import SHAPES, synthetic_trace; from counterpoint.trace.lines import encode_lines;"
        "print([hashlib.sha256(encode_lines(synthetic_trace(7, 60, s, 5, contents=True))).hexdigest() for s in SHAPES])"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed}
        digests.add(subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True, text=True).stdout)
    assert len(digests) == 1


def test_another_seed_is_another_run() -> None:
    assert len({hashlib.sha256(encode(synthetic_trace(5, 40, seed=s))).digest() for s in range(20)}) == 20


def test_draws_are_raw_words_of_pcg64() -> None:
    assert [Dice(0, 0).word() for _ in range(2)] == [int(np.random.PCG64([0, 0]).random_raw())] * 2
    dice, bits = Dice(4, 1), np.random.PCG64([4, 1])
    assert [dice.word() for _ in range(5000)] == bits.random_raw(5000).tolist()


@given(st.integers(1, 50), st.integers(0, 500), st.booleans())
def test_shares_add_up_and_leave_nobody_out(n: int, more: int, heavy: bool) -> None:
    portions = shares(Dice(1, 2), n + more, n, is_heavy=heavy)
    assert sum(portions) == n + more
    assert min(portions) >= 1


def test_work_is_heavy_tailed_and_a_swarm_is_not() -> None:
    calls = {}
    for shape in ("centralized", "swarm"):
        per_agent = Counter(e.agent for e in synthetic_trace(300, 6000, shape).events if e.type == "tool_call")
        calls[shape] = max(per_agent.values()) / 20
    assert 3 < calls["centralized"] < 8
    assert calls["swarm"] < 1.5


def test_texts_are_behind_their_references_and_change_nothing_else() -> None:
    for shape in SHAPES:
        bare, told = (synthetic_trace(6, 50, shape, contents=c) for c in (False, True))
        assert not bare.contents
        refs = [e.content_ref for e in told.events if e.content_ref]
        assert set(refs) == set(told.contents)
        assert all(content_ref(text) == ref for ref, text in told.contents.items())
        assert [(e.id, e.t, e.dur, e.agent, e.tokens_in) for e in bare.events] == [
            (e.id, e.t, e.dur, e.agent, e.tokens_in) for e in told.events
        ]
        assert bare.edges == told.edges
        assert all(len(e.content_ref or "") in (0, 71) for e in bare.events)


def test_what_a_realistic_run_has() -> None:
    for shape in SHAPES:
        trace = synthetic_trace(40, 600, shape)
        kinds, decisions = {e.type for e in trace.events}, {e.decision for e in trace.events}
        wanted = {"orchestrator_decision", "spawn", "despawn", "message", "tool_call", "tool_result", "return", "aggregate"}
        assert wanted <= kinds, shape
        assert {"spawn", "stop", "noop"} <= decisions
        assert sum(e.type == "safety_event" for e in trace.events) == 1
        assert sum(e.type == "safety_flow" for e in trace.edges) == 2
        results = [e for e in trace.events if e.type == "tool_result"]
        failed = [e for e in results if not e.ok]
        assert 0 < len(failed) < 0.1 * len(results)
        assert all(e.error for e in failed)
        assert {e.source for e in results if e.trusted is False} == {"tool"}
        chosen = [e for e in trace.events if e.type == "orchestrator_decision"]
        assert all(e.decision in (e.options or ()) and (e.logp or 0) < 0 and e.policy and e.key for e in chosen)
        assert {"team", "tool", "orchestration"} <= trace.rewards.keys()
        assert trace.metrics is not None
        assert trace.metrics["task_success"] in (0, 1)


def test_failed_calls_are_tried_again_with_the_same_tool() -> None:
    retries = [e for e in synthetic_trace(40, 600).events if e.type == "tool_call" and (e.key or "").endswith("/1")]
    assert retries
    first = {e.key for e in synthetic_trace(40, 600).events if e.type == "tool_call"}
    assert all(f"{(e.key or '').removesuffix('/1')}/0" in first for e in retries)


def _alive_at_once(trace: Trace, role: str | None = None) -> int:
    spans: dict[str, tuple[float, float]] = {}
    for e in trace.events:
        if e.type in ("tool_call", "message") and (role is None or e.role == role):
            start, end = spans.get(e.agent, (e.t, e.t))
            spans[e.agent] = (min(start, e.t), max(end, e.t + (e.dur or 0)))
    steps = sorted([(s, 1) for s, _ in spans.values()] + [(e, -1) for _, e in spans.values()])
    return max(np.cumsum([step for _, step in steps]).tolist())


def test_centralized_waves_run_in_parallel_and_one_after_another() -> None:
    trace = synthetic_trace(100, 1500)
    assert 15 <= _alive_at_once(trace) <= 22
    assert {e.agent for e in trace.events if e.type == "spawn"} == {"orchestrator"}


def test_swarm_is_everybody_at_once_with_messages_among_peers() -> None:
    trace = synthetic_trace(60, 900, "swarm")
    assert _alive_at_once(trace, "peer") == 60
    messages = [e for e in trace.events if e.type == "message"]
    assert all((e.to or "").startswith("peer-") and e.to != e.agent for e in messages)
    read = {e.src for e in trace.edges if e.type == "message"}
    assert 0 < len(read & {e.id for e in messages}) < len(messages)


def test_hierarchical_has_levels_and_returns_go_up_one() -> None:
    for agents, levels in ((100, 3), (3, 2)):
        trace = synthetic_trace(agents, 9 * agents, "hierarchical")
        parent = {e.to: e.agent for e in trace.events if e.type == "spawn"}
        depth: dict[str | None, int] = {}
        for child, above in parent.items():  # a parent is spawned before its children
            depth[child] = 1 + depth.get(above, 0)
        assert max(depth.values()) == levels
        assert all(parent[e.agent] == e.to for e in trace.events if e.type == "return")


def test_critics_judge_every_draft_before_it_returns() -> None:
    trace = synthetic_trace(20, 300, "planner_executor_critic")
    verdicts = [e for e in trace.events if e.role == "critic" and e.type == "message"]
    drafts = [e for e in trace.events if e.role == "executor" and e.type == "message"]
    assert len(verdicts) == len(drafts)
    last = {e.to: e.ok for e in verdicts}
    assert set(last.values()) == {True}
    assert any(e.ok is False for e in verdicts)
    assert {e.reward["verdict"] for e in verdicts if e.reward} == {0.0, 1.0}


def test_debaters_answer_each_other_and_the_resolver_decides() -> None:
    trace = synthetic_trace(4, 20, "debate")
    said = [e for e in trace.events if e.type == "message"]
    assert Counter(e.agent for e in said) == {f"debater-{i}": 5 for i in range(1, 5)}
    heard = Counter(e.dst for e in trace.edges if e.type == "message")
    assert {heard[e.id] for e in said if e.turn and e.turn > 1} == {3}
    assert trace.events[-1].agent == "resolver"


def test_harness_is_one_model_a_person_and_few_helpers() -> None:
    alone = synthetic_trace(0, 100, "harness")
    assert set(alone.agents) == {"user", "model"}
    assert alone.events[0].type == "human_intervention"
    helped = synthetic_trace(4, 100, "harness")
    assert {e.to for e in helped.events if e.type == "spawn"} == {f"helper-{i}" for i in range(1, 5)}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((3, 19, "centralised"), "did you mean 'centralized'"),
        ((3, 19, "mixed"), "known: "),
        ((0, 19), "1 to 1,000,000 agents"),
        ((1, 19, "debate"), "2 to"),
        ((5, 4), "5 agents take 5 to"),
        ((1, 10**8), "10,000,000 steps"),
        ((-1, 5), "agents is a whole number"),
        ((3, 19.0), "steps is a whole number"),
        ((3, 19, "swarm", -1), "seed is a whole number"),
        ((True, 19), "agents is a whole number"),
    ],
)
def test_nonsense_is_refused(arguments: tuple[object, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        synthetic_trace(*arguments)  # type: ignore[arg-type]


def test_ids_can_be_given() -> None:
    trace = synthetic_trace(2, 4, trace_id="mine", task_id="shared")
    assert (trace.trace_id, trace.task_id) == ("mine", "shared")
