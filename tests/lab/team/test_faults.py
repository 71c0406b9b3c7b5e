"""What goes wrong inside a team becomes an event: malformed answers, failing models, endless spawning, spent budgets, fences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint import Delete, Substitute, Trace, problems
from counterpoint.lab.lm.budget import Budget
from counterpoint.lab.lm.model import Call, Completion, ModelFailed
from counterpoint.lab.lm.models.fake import Fake
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec
from counterpoint.lab.team.state import Limits
from team_help import TOPOLOGIES, Says, record, sends

SMALL = Limits(width=2, steps=4, turns=6)


def _sound(trace: Trace) -> None:
    assert [str(p) for p in problems(trace) if p.severity == "error"] == []
    assert "open_events" not in trace.meta


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_babble_becomes_events_with_repairs_and_refusals(topology: str, tmp_path: Path) -> None:
    trace = record(tmp_path, topology=topology, model="fake:0.9", options={"babble": 0.4}, seed=3)
    _sound(trace)
    bad = [e for e in trace.events if e.ok is False and str(e.error).startswith("malformed")]
    assert bad
    repaired = [e for e in trace.events if "|repair " in str(e.key)]
    assert repaired
    assert diff_is_same(trace)


def diff_is_same(trace: Trace) -> bool:
    from counterpoint.audits.diff import diff

    return diff(trace, LiveReplay().fork(trace, trace.events[-1].id)).is_same


@given(st.lists(st.text(max_size=30), min_size=1, max_size=8), st.sampled_from(TOPOLOGIES))
@settings(max_examples=20, deadline=None)
def test_no_answer_crashes_a_team(tmp_path_factory: pytest.TempPathFactory, answers: list[str], topology: str) -> None:
    trace = record(
        tmp_path_factory.mktemp("any"), topology=topology, limits=SMALL, using=Says(lambda call: answers[call.seed % len(answers)])
    )
    _sound(trace)


@given(st.integers(0, 10_000), st.sampled_from(TOPOLOGIES))
@settings(max_examples=20, deadline=None)
def test_no_legal_play_crashes_a_team(tmp_path_factory: pytest.TempPathFactory, seed: int, topology: str) -> None:
    """A model that takes any legal start and writes anything after it."""

    def any_start(call: Call) -> str:
        start = call.starts[call.seed % len(call.starts)]
        return start if start.endswith("\n") else start + ["", "s1", "{", "C-1|x|2", "a b c"][call.seed // 7 % 5]

    trace = record(tmp_path_factory.mktemp("any"), topology=topology, seed=seed, limits=SMALL, using=Says(any_start))
    _sound(trace)
    assert diff_is_same(trace)


def test_who_spawns_without_end_is_stopped_by_limits(tmp_path: Path) -> None:
    def spawns(call: Call) -> str:
        return next((s for s in call.starts if s.startswith("SPAWN")), call.starts[0])

    trace = record(
        tmp_path, topology="hierarchical", limits=Limits(width=1000, agents=12, turns=40), using=Says(spawns), config={"parts": 9}
    )
    _sound(trace)
    assert sum(e.type == "spawn" for e in trace.events) == 11
    assert any(e.type == "safety_event" and e.error == "limit" for e in trace.events)
    assert trace.events[-1].decision == "stop"
    assert all(o.startswith("STOP") for o in trace.events[-1].options or ())


def test_a_model_that_is_down_ends_the_run_and_the_trace_says_so(tmp_path: Path) -> None:
    def down(call: Call) -> str:
        raise ModelFailed("down", "the endpoint does not answer")

    trace = record(tmp_path, using=Says(down))
    _sound(trace)
    assert trace.meta["ended"] == "failed"
    assert "does not answer" in trace.meta["why"]
    assert [e.error for e in trace.events if e.ok is False][:2] == ["model: down", "model: down"]
    assert trace.rewards == {"team": 0.0}


def test_a_worker_whose_model_fails_returns_nothing_and_the_others_go_on(tmp_path: Path) -> None:
    fake = Fake(task=Spec(task="ledger_hunt").make_task(), skill=1.0, explore=0.0)

    class Partly(Says):
        async def complete(self, call: Call) -> Completion:
            if call.view is not None and call.view.agent == "lead.1":
                raise ModelFailed("server", "500")
            return await fake.complete(call)

    trace = record(tmp_path, using=Partly(lambda call: ""))
    _sound(trace)
    failed = [e for e in trace.events if e.type == "return" and e.ok is False]
    assert {e.agent for e in failed} == {"lead.1"}
    assert 0 < trace.rewards["team"] < 1


def test_a_spent_budget_stops_the_team_with_what_it_has(tmp_path: Path) -> None:
    trace = record(tmp_path, budget=Budget(tokens=60_000), seed=1)
    whole = record(tmp_path / "b", seed=1)
    _sound(trace)
    assert trace.costs["tokens"] < 60_000 < whole.costs["tokens"] + 40_000
    assert trace.meta["ended"] in ("budget", "stopped")
    tiny = record(tmp_path / "c", budget=Budget(tokens=10), seed=1)
    _sound(tiny)
    assert tiny.meta["ended"] == "budget"
    assert tiny.costs["tokens"] == 0


# -- fences ----------------------------------------------------------------------------------------------------------------


def _outbox(tmp_path: Path) -> tuple[Trace, Path, Says]:
    path, model = tmp_path / "outbox.jsonl", Says(sends)
    trace = record(tmp_path / "store", using=model, tools={"outbox": {"path": str(path)}}, limits=Limits(width=1, steps=4))
    return trace, path, model


def test_a_fence_is_never_crossed_silently(tmp_path: Path) -> None:
    trace, path, model = _outbox(tmp_path)
    assert len(path.read_text().splitlines()) == 1
    sent = next(e for e in trace.events if e.type == "message" and str(e.to).startswith("lead."))

    same = LiveReplay(model=model).fork(trace, trace.events[-1].id, Substitute("other words"))
    assert len(path.read_text().splitlines()) == 1, "an unchanged call is answered by the recording"
    assert same.meta["fork"]["held"] == []

    held = LiveReplay(model=model).fork(trace, sent.id, Substitute("something else entirely"))
    assert len(path.read_text().splitlines()) == 1, "a changed call needs consent"
    assert len(held.meta["fork"]["held"]) == 1
    result = next(e for e in held.events if e.type == "tool_result")
    assert (result.error, (result.extra or {})["badge"]) == ("held", "simulated")
    assert any(e.type == "safety_event" and e.error == "held" for e in held.events)

    LiveReplay(model=model, allow=["outbox"]).fork(trace, sent.id, Substitute("something else entirely"))
    lines = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    assert lines[1:] == ["dear world, something else entir"]


def test_what_is_deleted_before_a_fence_is_not_sent_again(tmp_path: Path) -> None:
    trace, path, model = _outbox(tmp_path)
    call = next(e for e in trace.events if e.type == "tool_call")
    fork = LiveReplay(model=model).fork(trace, call.id, Delete())
    assert not any(e.type == "tool_result" and e.tool == "outbox" and e.key == f"{call.key}|result" for e in fork.events)
    assert len(path.read_text().splitlines()) == 1
