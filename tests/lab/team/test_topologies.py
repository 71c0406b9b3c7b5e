"""Six topologies over every task: valid traces, the same bytes each time, every call's readings, decisions with their chances."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterpoint import Trace, problems, registry
from counterpoint.lab.lm.model import Call, Completion
from counterpoint.lab.lm.models.fake import Fake
from counterpoint.lab.tasks.leakage import leaks
from counterpoint.lab.tasks.task import task
from counterpoint.lab.team.state import Limits
from counterpoint.trace.lines import encode_lines
from counterpoint.trace.model_calls import prompt_of
from counterpoint.trace.vocabulary import TOPOLOGIES as SHAPES
from team_help import TASKS, TOPOLOGIES, Says, record


def _without_id(trace: Trace) -> bytes:
    return encode_lines(trace).replace(trace.trace_id.encode(), b"-")


def test_there_are_seven() -> None:
    assert tuple(registry.ids("topology")) == TOPOLOGIES


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("name", TASKS)
def test_every_task_in_every_topology_is_a_valid_trace(name: str, topology: str, tmp_path: Path) -> None:
    trace = record(tmp_path, task=name, topology=topology, seed=2)
    assert [str(p) for p in problems(trace) if p.severity == "error"] == []
    assert trace.topology == (topology if topology in SHAPES else "mixed")
    assert 0 <= trace.rewards["team"] <= 1
    assert trace.meta["ended"] == "stopped"
    made = task(name)
    assert not leaks(made.instance(2), trace, made)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_same_seed_gives_the_same_bytes(topology: str, tmp_path: Path) -> None:
    a, b = (record(tmp_path / x, topology=topology, seed=4, trace_id="same") for x in "ab")
    assert _without_id(a) == _without_id(b)
    assert _without_id(a) != _without_id(record(tmp_path / "c", topology=topology, seed=5, trace_id="same"))


def test_a_skilled_team_solves_every_task(tmp_path: Path) -> None:
    for name in TASKS:
        trace = record(tmp_path / name, task=name, model="fake:1", options={"explore": 0.0}, seed=1, limits=Limits(width=8, steps=20), topology="debate" if name == "split_evidence" else "centralized")
        assert trace.metrics is not None
        assert trace.metrics["task_success"] == 1, name


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_each_call_keeps_its_prompt_and_reads_what_stands_in_it(topology: str, tmp_path: Path) -> None:
    trace = record(tmp_path, topology=topology, seed=1)
    incoming: dict[str, set[str]] = {}
    for edge in trace.edges:
        incoming.setdefault(edge.dst, set()).add(edge.src)
    calls = [e for e in trace.events if (e.extra or {}).get("call", {}).get("prompt")]
    assert len(calls) > 10
    for event in calls:
        note = (event.extra or {})["call"]
        prompt = prompt_of(trace, event)
        assert prompt[0].startswith(f"You are {event.agent}, ")
        assert "Legal now:" in prompt[-1]
        assert all(prompt)
        assert note["completion"] in trace.contents
        if event.key != "lead|turn|0":
            assert incoming.get(event.id), f"{event.id} reads nothing"
    for event in trace.events:
        if event.type == "return" and event.ok is not False and event.to == "lead" and topology == "centralized":
            read_by = {e.dst for e in trace.edges if e.src == event.id}
            assert any(trace.events[trace.index[d]].agent == "lead" for d in read_by)


def test_decisions_have_options_and_chances_that_add_up(tmp_path: Path) -> None:
    trace = record(tmp_path, seed=3)
    decided = [e for e in trace.events if e.type == "orchestrator_decision" and (e.extra or {}).get("call")]
    for event in decided:
        logps = (event.extra or {})["call"]["start_logps"]
        assert sum(map(math.exp, logps)) == pytest.approx(1)
        assert event.logp in logps
        assert event.options
    passed = [e for e in trace.events if e.decision == "noop" and (e.extra or {}).get("sub_decision")]
    assert {(e.extra or {})["sub_decision"] for e in passed} == {"spawn", "stop"}
    stops = [e for e in decided if e.decision == "stop"]
    assert len(stops) == 1
    for event in passed:
        assert event.logp is not None
        assert event.logp < 0


def test_recursion_ends_at_depth_and_population(tmp_path: Path) -> None:
    trace = record(tmp_path, topology="hierarchical", limits=Limits(width=2, depth=3, steps=20), seed=1)
    depths = {name.count(".") for name in trace.agents}
    assert max(depths) == 3
    tight = record(tmp_path / "b", topology="hierarchical", limits=Limits(width=2, depth=3, agents=4, steps=20), seed=1)
    members = [a for a in tight.agents if a.startswith("lead")]
    assert len(members) <= 4
    refused = [e for e in tight.events if e.type == "safety_event" and e.error == "limit"]
    assert refused
    assert "4 agents are the limit" in (tight.text(refused[0]) or "")


def test_a_trace_is_json_that_names_no_secret_and_no_path(tmp_path: Path) -> None:
    trace = record(tmp_path, seed=1)
    assert str(tmp_path) not in json.dumps(trace.meta)


def test_the_prompt_that_is_kept_in_parts_is_the_prompt_that_was_asked(tmp_path: Path) -> None:
    fake = Fake(task=task("ledger_hunt"), skill=0.9)
    asked: list[tuple[int, list[str]]] = []

    class Noting(Says):
        async def complete(self, call: Call) -> Completion:
            asked.append((call.seed, [m.text for m in call.messages]))
            return await fake.complete(call)

    trace = record(tmp_path, using=Noting(lambda call: ""), seed=8, limits=Limits(width=3, steps=20, context=3000))
    by_seed = {(e.extra or {})["call"]["seed"]: e for e in trace.events if (e.extra or {}).get("call", {}).get("completion")}
    assert len(asked) == len(by_seed) > 20
    for seed, texts in asked:
        assert prompt_of(trace, by_seed[seed]) == texts


@pytest.mark.parametrize(("instead", "why"), [("NOOP", "no turns left"), ("gibberish", "no legal action, three times")])
def test_an_orchestrator_that_may_not_go_on_answers_with_its_draft(tmp_path: Path, instead: str, why: str) -> None:
    class NeverStops:
        """A fake that says something else in the place of its stop."""

        is_instant = True

        def __init__(self, inner: Any) -> None:
            self._inner, self.name, self.version = inner, inner.name, inner.version

        async def complete(self, call: Call) -> Completion:
            done = await self._inner.complete(call)
            return replace(done, text=instead) if done.text.startswith("STOP") else done

        async def close(self) -> None:
            """Nothing to let go of."""

    inner = Fake(task=task("ledger_hunt"), skill=1.0, explore=0.0)
    trace = record(tmp_path, using=NeverStops(inner), seed=1, limits=Limits(width=8, steps=20, turns=30))
    merged = [e for e in trace.events if e.type == "aggregate"]
    end = [e for e in trace.events if e.decision == "stop"][-1]
    assert (end.policy, end.error) == ("forced", why)
    assert trace.text(end) == trace.text(merged[-1]) != ""
    assert trace.rewards["team"] == (merged[-1].reward or {})["draft"] == 1.0
