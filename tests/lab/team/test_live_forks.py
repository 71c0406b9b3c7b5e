"""Forks of live teams: exact where nothing changed, only what changed asked again, and credit that runs on them unchanged."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from counterpoint import (
    CounterpointError,
    Delete,
    Event,
    Force,
    InputError,
    Insert,
    NotFound,
    NotIdentified,
    Refused,
    Substitute,
    Trace,
    problems,
    registry,
)
from counterpoint.app.forks import can_fork
from counterpoint.audits.blast import blast_radius
from counterpoint.audits.diff import diff, fingerprint
from counterpoint.lab.lm.model import Call, Completion
from counterpoint.lab.lm.models.fake import Fake
from counterpoint.lab.tasks.task import task
from counterpoint.lab.team.live_replay import BADGES, LiveReplay
from counterpoint.lab.team.state import Limits
from counterpoint.trace.model_calls import prompt_of
from counterpoint.trace.replay import Fork, ManyReplay
from team_help import TOPOLOGIES, Says, record


@pytest.fixture(scope="module", params=TOPOLOGIES)
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return record(tmp_path_factory.mktemp("team"), topology=request.param, seed=1)


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return record(tmp_path_factory.mktemp("star"), seed=1)


def _hashes(trace: Trace) -> dict[str | None, object]:
    return {e.key: fingerprint(e) for e in trace.events}


def _first(trace: Trace, kind: str, n: int = 0) -> Event:
    return [e for e in trace.events if e.type == kind and e.agent != "user"][n]


def test_keys_are_unique(trace: Trace) -> None:
    keys = [e.key for e in trace.events]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_f1_an_empty_fork_is_the_trace_again_and_asks_nobody(trace: Trace) -> None:
    def nobody(call: object) -> str:
        raise AssertionError("the recording answers everything")

    model = Says(nobody)  # type: ignore[arg-type]
    model.name, model.version = trace.meta["model"]["name"], trace.meta["model"]["version"]
    fork = LiveReplay(model=model).fork(trace, trace.events[-1].id)
    assert diff(trace, fork).is_same
    assert [(e.id, e.t, e.dur) for e in fork.events] == [(e.id, e.t, e.dur) for e in trace.events]
    assert sorted(map(str, fork.edges)) == sorted(map(str, trace.edges))
    assert fork.rewards == trace.rewards
    assert fork.meta["fork"]["calls"]["re-run"] == 0


@given(data=st.data())
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reusing_the_recording_gives_what_asking_everything_again_gives(trace: Trace, data: st.DataObject) -> None:
    event = data.draw(st.sampled_from([e for e in trace.events if e.key != "user|question"]))
    dos = [Delete()] if event.type in ("orchestrator_decision", "spawn") else [Delete(), Substitute("nothing of interest")]
    do = data.draw(st.sampled_from(dos))
    seed = data.draw(st.none() | st.integers(0, 99))
    fast, full = LiveReplay().fork(trace, event.id, do, seed), LiveReplay(is_full=True).fork(trace, event.id, do, seed)
    assert _hashes(fast) == _hashes(full)
    assert fast.rewards == full.rewards
    assert [str(p) for p in problems(fast) if p.severity == "error"] == []
    place = trace.index[event.id]
    if "|passed|" not in str(event.key):
        assert [e.id for e in fast.events[:place]] == [e.id for e in trace.events[:place]]
    assert {(e.extra or {})["badge"] for e in fast.events} <= set(BADGES)


def test_only_what_an_edit_reaches_is_asked_again(tmp_path: Path) -> None:
    """The issue's number: a run of over 1,000 events, one message edited."""
    trace = record(tmp_path, seed=2, config={"documents": 400, "rows": 60, "parts": 60}, limits=Limits(width=8, steps=30, turns=200), options={"explore": 0.0})
    assert len(trace.events) >= 1000
    returns = [e for e in trace.events if e.type == "return"]
    at = returns[len(returns) // 2]
    do = Substitute("nothing found")
    fork = LiveReplay().fork(trace, at.id, do)
    full = LiveReplay(is_full=True).fork(trace, at.id, do)
    assert _hashes(fork) == _hashes(full)
    calls = fork.meta["fork"]["calls"]
    assert calls["re-run"] < 0.4 * (calls["re-run"] + calls["recorded"])
    blast = blast_radius(trace, fork, at.id)
    assert blast.is_exact
    assert not bool((blast.reran & ~blast.closure).any())


def test_f2_a_message_that_nobody_reads_changes_nothing_else(star: Trace) -> None:
    last = [e for e in star.events if e.type == "return"][-1]
    fork = LiveReplay().fork(star, last.id, Insert("hello", {"to": last.agent}))  # it never acts again
    found = diff(star, fork)
    assert (len(found.new), found.changed, found.gone) == (1, (), ())
    heard = LiveReplay().fork(star, last.id, Insert("hello", {"to": "lead"}))
    assert any("hello" in part for e in heard.events if e.agent == "lead" for part in prompt_of(heard, e))
    with pytest.raises(InputError, match="no agent 'nobody'"):
        LiveReplay().fork(star, last.id, Insert("hello", {"to": "nobody"}))


def test_a_deleted_return_is_never_heard(star: Trace) -> None:
    told = [part for e in star.events if e.agent == "lead" for part in prompt_of(star, e)]
    gone = next(e for e in star.events if e.type == "return" and any(f"{e.agent} returned:\n{star.text(e)}" == part for part in told))
    fork = LiveReplay().fork(star, gone.id, Delete())
    assert gone.key not in {e.key for e in fork.events}
    heard = [{e.src for e in t.edges if e.type == "aggregate" and t.events[t.index[e.dst]].type == "aggregate"} for t in (star, fork)]
    assert len(heard[1]) == len(heard[0]) - 1
    said = f"{gone.agent} returned:\n{star.text(gone)}"
    assert not any(said == part for e in fork.events if e.agent == "lead" for part in prompt_of(fork, e))


def test_a_substituted_result_is_what_the_agent_reads(star: Trace) -> None:
    result = _first(star, "tool_result", 3)
    fork = LiveReplay().fork(star, result.id, Substitute("CANARY in place of the result"))
    twin = next(e for e in fork.events if e.key == result.key)
    assert fork.text(twin) == "CANARY in place of the result"
    assert (twin.extra or {})["edited"] is True
    after = [e for e in fork.events if e.agent == twin.agent and e.key != twin.key and fork.index[e.id] > fork.index[twin.id]]
    assert any("CANARY" in part for e in after for part in prompt_of(fork, e))


def test_a_redraw_is_another_sample_of_the_same_call(star: Trace) -> None:
    event = _first(star, "return", 1)
    draws = [LiveReplay().fork(star, event.id, Substitute(draw=i)) for i in (1, 2, 3, 1)]
    assert _hashes(draws[0]) == _hashes(draws[3])
    seeds = {next((e.extra or {})["call"]["seed"] for e in f.events if e.key == event.key) for f in draws}
    assert len(seeds) == 3


def test_decisions_can_be_forced(star: Trace) -> None:
    spawns = [e for e in star.events if e.decision == "spawn"]
    none = LiveReplay().fork(star, spawns[1].id, Force({"spawn": 0}))
    assert next(e for e in none.events if e.key == spawns[1].key).decision == "noop"
    passed = next(e for e in star.events if str(e.key).endswith("|passed|stop") and star.index[e.id] > 40)
    early = LiveReplay().fork(star, passed.id, Force({"stop": True}))
    assert len(early.events) < len(star.events)
    assert next(e for e in early.events if e.key == str(passed.key).split("|passed|")[0]).decision == "stop"
    with pytest.raises(InputError, match="was not legal there"):
        LiveReplay().fork(star, spawns[0].id, Force({"act": "DELEGATE lead.9: s1"}))
    with pytest.raises(InputError, match="forces nothing here"):
        LiveReplay().fork(star, spawns[0].id, Force({"fly": 1}))


def test_forks_of_forks_keep_both_edits(star: Trace) -> None:
    a, b = _first(star, "return", 0), _first(star, "return", 4)
    one = LiveReplay().fork(star, a.id, Substitute("first edit"))
    again = next(e for e in one.events if e.key == b.key)
    two = LiveReplay().fork(one, again.id, Substitute("second edit"), seed=7)
    texts = {two.text(e) for e in two.events}
    assert {"first edit", "second edit"} <= texts
    assert two.meta["parent"] == one.trace_id
    assert len(two.meta["edits"]) == 2
    assert diff(two, LiveReplay().fork(two, two.events[-1].id)).is_same


def test_fresh_noise_begins_at_the_event(star: Trace) -> None:
    event = star.events[60]
    forks = [LiveReplay().fork(star, event.id, None, s) for s in (1, 2, 1)]
    assert _hashes(forks[0]) == _hashes(forks[2]) != _hashes(forks[1])
    for fork in forks:
        assert [fingerprint(e) for e in fork.events[:60]] == [fingerprint(e) for e in star.events[:60]]


@pytest.mark.parametrize("method", ["message_delete", "message_substitute", "spawn", "difference", "shapley", "cone"])
def test_credit_by_forks_runs_on_live_teams_unchanged(method: str, star: Trace) -> None:
    mechanism = registry.get("mechanism", method)
    options = {"replay": LiveReplay()} if "replay" in mechanism.options else {}
    if method in ("message_delete", "message_substitute"):
        options["ids"] = [e.id for e in star.events if e.type == "return"][:3]
    credit = mechanism([star], **options)
    assert credit.rows
    assert all(np.isfinite(row.value) for row in credit.rows)


def test_many_forks_at_once_are_each_alone(star: Trace) -> None:
    replay = LiveReplay()
    assert isinstance(replay, ManyReplay)
    asked = [Fork(_first(star, "return", i).id, Delete(), s) for i in range(3) for s in (None, 5)]
    assert replay.returns(star, asked).tolist() == [replay.fork(star, *f).rewards["team"] for f in asked]


def test_who_cannot_be_forked_says_so(star: Trace, tmp_path: Path) -> None:
    from msgspec.structs import replace

    with pytest.raises(NotFound, match="no event 'e9999'"):
        LiveReplay().fork(star, "e9999", Delete())
    with pytest.raises(NotIdentified, match="not a recording of a live team"):
        LiveReplay().fork(replace(star, meta={}), "e3", Delete())
    with pytest.raises(InputError, match="harness is not the one that recorded this"):
        LiveReplay().fork(replace(star, meta=star.meta | {"harness": {"hash": "sha256:0"}}), "e3", Delete())
    asked = replace(star, meta=star.meta | {"team": star.meta["team"] | {"model": "openai:x", "options": {"base_url": "http://127.0.0.1:9/v1"}}})
    with pytest.raises(NotIdentified, match="asked only where you name them"):
        LiveReplay().fork(asked, _first(star, "return").id, Substitute("x"))
    wrong = replace(star, contents=dict.fromkeys(star.contents, "tampered"))
    with pytest.raises(NotIdentified, match="does not come out as it was recorded"):
        LiveReplay().fork(wrong, star.events[-1].id, Delete())


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_run_in_real_time_forks_as_exactly(topology: str, tmp_path: Path) -> None:
    """Answers that come back in any order: the program does not depend on it, and what was kept keeps its time."""
    fake = Fake(task=task("ledger_hunt"), skill=0.9)

    class Late(Says):
        is_instant = False

        async def complete(self, call: Call) -> Completion:
            await asyncio.sleep(call.seed % 7 / 2000)
            return await fake.complete(call)

    model = Late(lambda call: "")
    trace = record(tmp_path, topology=topology, using=model, seed=3)
    fork = LiveReplay(model=model).fork(trace, trace.events[-1].id)
    assert diff(trace, fork).is_same
    assert [(e.id, e.t, e.dur) for e in fork.events] == [(e.id, e.t, e.dur) for e in trace.events]
    at = _first(trace, "tool_result", 2)
    edited = LiveReplay(model=model).fork(trace, at.id, Substitute("nothing"))
    assert [str(p) for p in problems(edited) if p.severity == "error"] == []
    place = trace.index[at.id]
    assert [(e.id, e.t, e.dur) for e in edited.events[:place]] == [(e.id, e.t, e.dur) for e in trace.events[:place]]
    assert _hashes(edited) == _hashes(LiveReplay(model=model, is_full=True).fork(trace, at.id, Substitute("nothing")))


@pytest.mark.parametrize("field", ["task", "topology", "tools"])
def test_code_that_a_trace_names_is_imported_with_consent_only(field: str, star: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from msgspec.structs import replace

    (tmp_path / "strangers.py").write_text(f"open({str(tmp_path / 'touched')!r}, 'w')\nthing = None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    named = {"strangers:thing": {}} if field == "tools" else "strangers:thing"
    trace = replace(star, meta=star.meta | {"team": star.meta["team"] | {field: named}})
    with pytest.raises(Refused, match="--allow strangers:thing"):
        LiveReplay().fork(trace, star.events[-1].id, Delete())
    assert not can_fork(trace)
    assert not (tmp_path / "touched").exists()
    with pytest.raises(CounterpointError):
        LiveReplay(allow=["strangers:thing"]).fork(trace, star.events[-1].id, Delete())
    assert (tmp_path / "touched").exists()
    sys.modules.pop("strangers")


def test_who_was_too_late_for_a_full_team_is_so_again(tmp_path: Path) -> None:
    """Leads that spawn at once race for the last places; the recording decides, not the speed of the replay."""
    fake = Fake(task=task("ledger_hunt"), skill=0.9)

    class Late(Says):
        is_instant = False

        async def complete(self, call: Call) -> Completion:
            await asyncio.sleep(call.seed % 13 / 1000)
            return await fake.complete(call)

    model = Late(lambda call: "")
    limits = Limits(width=3, depth=2, agents=7, steps=20)
    trace = record(tmp_path, topology="hierarchical", using=model, seed=5, limits=limits)
    assert any(e.error == "limit" for e in trace.events)
    assert diff(trace, LiveReplay(model=model).fork(trace, trace.events[-1].id)).is_same
