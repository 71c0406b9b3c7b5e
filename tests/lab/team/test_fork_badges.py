"""What became of each event of a fork: reused, recorded, re-run or simulated; when it happens, under which id, and what is checked."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from counterpoint import Delete, Event, Force, InputError, Insert, NotFound, NotIdentified, Refused, Substitute, Trace
from counterpoint.app.forks import badges, counts, edit, effect_of, named_model, replay_for
from counterpoint.audits.diff import diff, fingerprint
from counterpoint.lab.lm.models.fake import Fake
from counterpoint.lab.team import live_replay as live
from counterpoint.lab.team import session
from counterpoint.lab.team.edits import PASSED
from counterpoint.lab.team.live_replay import BADGES, LiveReplay
from counterpoint.lab.team.state import Limits
from counterpoint.recorder.recorder import MemorySink, timed
from counterpoint.trace import Edge
from counterpoint.trace.replay import Fork
from team_help import Says, record, sends


def badge_of(event: Event) -> str:
    return str((event.extra or {})["badge"])


# -- a recorded team ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return record(tmp_path_factory.mktemp("small"), seed=1, limits=Limits(width=2, steps=12))


ASKED = ("orchestrator_decision", "message", "tool_call", "aggregate", "return")


def test_a_fork_that_changes_nothing_reuses_everything(small: Trace) -> None:
    fork = LiveReplay().fork(small, small.events[-1].id)
    assert Counter(map(badge_of, fork.events)) == {"reused": len(small.events)}
    assert fork.trace_id == f"{small.trace_id}~again"
    assert fork.meta["edits"] == []
    # a model of somebody's own is not asked here, so that nobody has to allow it
    named = replace(small, meta=small.meta | {"team": small.meta["team"] | {"model": "lab.models:ours"}})
    assert LiveReplay().fork(named, small.events[-1].id).rewards == small.rewards


def test_before_the_edit_all_is_reused_and_after_it_each_badge_tells_the_truth(small: Trace) -> None:
    returns = [e for e in small.events if e.type == "return"]
    at = returns[len(returns) // 2]
    place = small.index[at.id]
    fork = LiveReplay().fork(small, at.id, Substitute("nothing of interest"))
    was = {e.key: fingerprint(e) for e in small.events}
    assert [badge_of(e) for e in fork.events[:place]] == ["reused"] * place
    assert [e.id for e in fork.events] == [f"e{i + 1}" for i in range(len(fork.events))]
    after = fork.events[place:]
    assert {badge_of(e) for e in after} == {"recorded", "re-run"}
    for event in after:
        if badge_of(event) == "recorded":
            assert was.get(event.key) == fingerprint(event)
        elif event.key in was and was[event.key] == fingerprint(event):
            assert event.type in ASKED  # said the same again, but it was asked
    twin = next(e for e in fork.events if e.key == at.key)
    assert (badge_of(twin), fork.text(twin)) == ("re-run", "nothing of interest")
    calls = fork.meta["fork"]["calls"]
    assert calls["re-run"] > 0 < calls["recorded"]
    asked = [e for e in fork.events if "seed" in (e.extra or {}).get("call", {}) and not (e.extra or {}).get("edited")]
    assert sum(badge_of(e) == "re-run" for e in asked) == calls["re-run"]  # each that was asked again says so
    assert len(asked) + 1 == calls["re-run"] + calls["recorded"]  # and the edited one, whose own words were recorded
    results = [e for e in after if e.type == "tool_result"]
    assert {badge_of(e) for e in results if e.key in was} == {"recorded"}
    again = LiveReplay(is_full=True).fork(small, at.id, Substitute("nothing of interest"))
    assert again.meta["fork"]["calls"]["recorded"] == 0
    assert again.meta["fork"]["calls"]["re-run"] == calls["re-run"] + calls["recorded"]
    assert {badge_of(e) for e in again.events[:place]} == {"reused"}
    # the last that was recorded is before the first that had to be asked, or beside it: no agent is asked before it hears
    told = counts(diff(small, fork), None, fork)
    assert told == {**{b: sum(badge_of(e) == b for e in fork.events) for b in BADGES}, "gone": len(diff(small, fork).gone)}
    assert badges(small, fork, at.id) == {e.id: badge_of(e) for e in fork.events}


def test_fresh_noise_asks_again_and_the_recorded_noise_does_not(small: Trace) -> None:
    place = len(small.events) // 2
    fresh = LiveReplay().fork(small, small.events[place].id, None, 5)
    assert [badge_of(e) for e in fresh.events[:place]] == ["reused"] * place
    assert "re-run" in {badge_of(e) for e in fresh.events[place:]}
    assert fresh.meta["edits"][-1]["count"] == place
    assert fresh.meta["fork"]["calls"]["re-run"] > 0


def test_a_fork_of_a_fork_begins_where_its_own_edit_is(small: Trace) -> None:
    returns = [e for e in small.events if e.type == "return"]
    one = LiveReplay().fork(small, returns[0].id, Substitute("first"))
    later = next(e for e in reversed(one.events) if e.type == "return")
    two = LiveReplay().fork(one, later.id, Substitute("second"))
    place = one.index[later.id]
    assert [badge_of(e) for e in two.events[:place]] == ["reused"] * place
    assert badge_of(two.events[place]) == "re-run"
    tags = [note["id"].removeprefix("fork-") for note in two.meta["edits"]]
    assert two.trace_id == f"{small.trace_id}~{'~'.join(tags)}"
    assert len(tags) == 2
    assert two.meta["parent"] == one.trace_id
    assert one.meta["parent"] == small.trace_id
    assert (one.meta["edits"][0]["at"], one.meta["edits"][0]["count"]) == (returns[0].id, small.index[returns[0].id])


def test_what_is_held_back_is_simulated(tmp_path: Path) -> None:
    model = Says(sends)
    tools = {"outbox": {"path": str(tmp_path / "outbox.jsonl")}}
    trace = record(tmp_path / "store", using=model, tools=tools, limits=Limits(width=1, steps=4))
    sent = next(e for e in trace.events if e.type == "message" and str(e.to).startswith("lead."))
    held = LiveReplay(model=model).fork(trace, sent.id, Substitute("something else entirely"))
    told = {e.type: badge_of(e) for e in held.events if e.tool == "outbox"}
    assert told == {"tool_call": "re-run", "tool_result": "simulated", "safety_event": "re-run"}
    assert held.meta["fork"]["held"] == [next(e.key for e in held.events if e.type == "tool_result")]
    assert counts(diff(trace, held), None, held)["simulated"] == 1
    allowed = LiveReplay(model=model, allow=["outbox"]).fork(trace, sent.id, Substitute("something else entirely"))
    assert {badge_of(e) for e in allowed.events if e.type == "tool_result"} == {"re-run"}
    assert allowed.meta["fork"]["held"] == []


# -- the parts of a fork, by hand ---------------------------------------------------------------------------------------


def event(n: int, key: str, text: str | None = None, **fields: Any) -> Event:
    return Event(**{"id": f"x{n}", "t": float(n), "type": "message", "agent": "a", "key": key, "content_ref": text, **fields})


def test_the_badge_of_one_event() -> None:
    team = SimpleNamespace(
        badges={"asked": "re-run", "again": "recorded", "odd": "recorded", "held": "simulated", "kept": "re-run"}
    )
    before = {
        "again": fingerprint(event(0, "again", "s")),
        "odd": fingerprint(event(0, "odd", "s")),
        "silent": fingerprint(event(0, "silent", "s")),
    }
    badge = lambda key, text="s", **more: live._badged(event(0, key, text, **more), {"kept": 0}, before, team, {"x7": "e1"})  # type: ignore[arg-type]  # noqa: E731
    assert badge_of(badge("kept")) == "reused"  # whatever the team did to get it
    assert badge_of(badge("asked")) == "re-run"
    assert badge_of(badge("held")) == "simulated"
    assert badge_of(badge("again")) == "recorded"
    assert badge_of(badge("odd", "other")) == "re-run"  # answered by the recording, and yet not the same
    assert badge_of(badge("silent")) == "recorded"  # nobody was asked, and it is the same to the letter
    assert badge_of(badge("silent", "other")) == "re-run"
    assert badge_of(badge("new")) == "re-run"
    full = badge("again", extra={"of": "x7", "call": 1})
    assert full.extra == {"of": "e1", "call": 1, "badge": "recorded"}
    assert (badge("again", extra={"of": "x8"}).extra or {})["of"] == "x8"


def test_the_words_are_these_four() -> None:
    assert BADGES == ("reused", "recorded", "re-run", "simulated")


def test_a_fork_is_put_together_in_the_recorded_order_and_under_its_ids() -> None:
    old = Trace(
        trace_id="run~1",
        task_id="q",
        events=[event(0, "k0", "a"), event(1, "k1", "b"), event(2, "k2", "c")],
        meta={"root": "origin"},
    )
    sink = MemorySink()
    # it came out in another order, and with one more
    for made in (
        event(1, "k1", "b", t=0.0),
        event(0, "k0", "a", t=0.0),
        event(5, "k9", "z", dur=2.0, t=0.0),
        event(4, "k2", "c", t=0.0),
    ):
        sink.event(replace(made, id=f"s{made.id}"))
    sink.edge("sx5", "sx4", "message")
    sink.edge("sx1", "sx4", "message")
    sink.edge("sx0", "sx1", "causal")
    sink.contents["r"] = "words"
    team = SimpleNamespace(badges={})
    fork = live._assembled(old, sink, team, [{"id": "fork-aa"}, {"id": "fork-bb"}], 2)  # type: ignore[arg-type]
    assert [(e.id, e.key, badge_of(e)) for e in fork.events] == [
        ("e1", "k0", "reused"),
        ("e2", "k1", "reused"),
        ("e3", "k9", "re-run"),
        ("e4", "k2", "recorded"),
    ]
    assert fork.edges == [Edge("e1", "e2", "causal"), Edge("e2", "e4", "message"), Edge("e3", "e4", "message")]
    assert [e.t for e in fork.events] == [0.0, 1.0, 1.0, 3.0]
    assert fork.trace_id == "origin~aa~bb"
    assert fork.contents == {"r": "words"}
    sink.edges.clear()
    plain = live._assembled(replace(old, meta={}), sink, team, [], 0)  # type: ignore[arg-type]
    assert plain.trace_id == "run~again"
    assert {badge_of(e) for e in plain.events} == {"recorded", "re-run"}


def test_when_things_happen_in_a_fork() -> None:
    kept = [event(0, "k0", t=5.0, dur=1.0), event(1, "k1", t=2.0, agent="b")]
    made = [
        event(0, "k0", t=0.0),
        event(1, "k1", t=0.0, agent="b", dur=9.0),
        event(2, "k2", t=99.0, dur=3.0),
        event(3, "k3", t=99.0, agent="b", dur=0.5),
        event(4, "k4", t=99.0, agent="c"),
        event(5, "k5", t=99.0, agent="c"),
    ]
    edges = [Edge("x2", "x3", "message"), Edge("x0", "x3", "message"), Edge("x3", "x5", "message")]
    out = timed(made, edges, kept)
    assert [(e.t, e.dur) for e in out] == [(5.0, 1.0), (2.0, None), (6.0, 3.0), (9.0, 0.5), (0.0, None), (9.5, None)]
    assert timed([], [], []) == []
    third = timed([event(0, "k", dur=1 / 3), event(1, "l")], [], [])
    assert [e.t for e in third] == [0.0, 0.333333]


def test_what_came_before_must_come_out_as_it_was() -> None:
    old = Trace(trace_id="t", task_id="q", events=[event(0, "k0", "a"), event(1, "k1", "b"), event(2, "k2", "c")])
    same = replace(old, events=[*old.events[:2], event(2, "k2", "other")])
    live._compare(old, same, 2, Fork("x2"))
    live._compare(old, replace(old, events=old.events[:2]), 2, Fork("x2"))
    with pytest.raises(NotIdentified, match=r"event x2 \(k2\) does not come out as it was recorded, but as message") as error:
        live._compare(old, same, 3, Fork("x2"))
    assert error.value.where == "t"
    moved = replace(old, events=[old.events[1], old.events[0]])
    with pytest.raises(NotIdentified, match=r"event x0 \(k0\) does not come out as it was recorded, but as k1"):
        live._compare(old, moved, 2, Fork("x2"))
    with pytest.raises(NotIdentified, match="the run ends before the event that is forked") as error:
        live._compare(old, replace(old, events=old.events[:1]), 2, Fork("x2"))
    assert error.value.where == "t"


def test_what_a_fork_says_of_itself() -> None:
    old = Trace(
        trace_id="t~1",
        task_id="q",
        events=[],
        meta={
            "team": {"seed": 1},
            "ended": "stop",
            "answer": "old",
            "why": "x",
            "steered": True,
            "edits": [],
            "fork": {},
            "parent": "p",
            "root": "r",
        },
    )
    team = SimpleNamespace(calls={"recorded": 2, "re-run": 1}, held=["k"])
    told = live._meta(old, [{"id": "fork-1"}], team, {"ended": "limit", "answer": "new"})  # type: ignore[arg-type]
    assert told == {
        "team": {"seed": 1},
        "root": "r",
        "ended": "limit",
        "answer": "new",
        "edits": [{"id": "fork-1"}],
        "parent": "t~1",
        "fork": {"calls": {"recorded": 2, "re-run": 1}, "held": ["k"]},
    }


# -- who is asked -------------------------------------------------------------------------------------------------------


def test_models_that_a_trace_may_name(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(live, "make_model", lambda name, task, **options: made.append((name, options)))
    spec = lambda name: SimpleNamespace(model=name, options={"x": 1})  # noqa: E731
    for name in ("fake:0.9", "local:tiny", "local:Tiny-1.5_b"):
        live._model_of(spec(name), None)  # type: ignore[arg-type]
    assert made == [("fake:0.9", {"x": 1}), ("local:tiny", {"x": 1}), ("local:Tiny-1.5_b", {"x": 1})]
    for name in ("openai:gpt", "local:../up", "local:/etc", "local:", "my.lab:model"):
        with pytest.raises(NotIdentified, match="models are asked only where you name them") as error:
            live._model_of(spec(name), None)  # type: ignore[arg-type]
        assert ("--base-url URL" in str(error.value)) == name.startswith("openai")
    assert len(made) == 3


def test_a_model_is_made_when_it_is_needed_and_only_as_it_was() -> None:
    model, made = Says(lambda call: "hello"), []

    def make() -> Says:
        made.append(model)
        return model

    trace = Trace(trace_id="t", task_id="q", events=[], meta={"model": {"name": "says", "version": "1"}})
    lazy = live._Lazy(trace, make)
    assert (lazy.name, lazy.version, made) == ("says", "1", [])
    asyncio.run(lazy.close())
    call: Any = SimpleNamespace()
    assert asyncio.run(lazy.complete(call)).text == "hello"
    assert asyncio.run(lazy.complete(call)).text == "hello"
    assert len(made) == 1
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    model.close = close  # type: ignore[method-assign]
    asyncio.run(lazy.close())
    assert closed == [True]
    other = live._Lazy(replace(trace, meta={"model": {"name": "says", "version": "2"}}), make)
    with pytest.raises(NotIdentified, match="the model has changed: 1; use the model that recorded it: says 2"):
        asyncio.run(other.complete(call))
    bare = live._Lazy(replace(trace, meta={}), make)
    assert (bare.name, bare.version) == ("", "")


def test_the_answer_of_a_loop_comes_out_of_any_thread() -> None:
    async def good() -> int:
        return 7

    async def bad() -> int:
        raise InputError("no")

    assert live._in_loop(good) == 7
    with pytest.raises(InputError, match="no"):
        live._in_loop(bad)

    async def inside() -> int:
        return live._in_loop(good)

    async def inside_bad() -> int:
        return live._in_loop(bad)

    async def where() -> str:
        return threading.current_thread().name

    async def inside_where() -> str:
        return live._in_loop(where)

    assert live._in_loop(where) == threading.current_thread().name  # a thread of its own only where a loop runs already
    assert asyncio.run(inside_where()) == "counterpoint-fork"
    assert asyncio.run(inside()) == 7
    with pytest.raises(InputError, match="no"):
        asyncio.run(inside_bad())


# -- what is asked ------------------------------------------------------------------------------------------------------


def test_forks_that_make_no_sense_are_refused(small: Trace) -> None:
    replay, question = LiveReplay(), next(e for e in small.events if e.key == "user|question")
    with pytest.raises(NotFound, match="no event 'zz'; one of e1 to") as missing:
        replay.fork(small, "zz")
    assert missing.value.where == small.trace_id
    assert f"e1 to {small.events[-1].id}" in str(missing.value)
    with pytest.raises(InputError, match="a team without a question does nothing") as error:
        replay.fork(small, question.id, Delete())
    assert error.value.where == question.id
    keyless = replace(small, events=[replace(e, key=None) if e.id == question.id else e for e in small.events])
    with pytest.raises(InputError, match="has no stable key") as error:
        replay.fork(keyless, question.id, Substitute("x"))
    assert error.value.where == small.trace_id
    with pytest.raises(InputError, match="there is no agent 'leed' to hear a message; did you mean 'lead'"):
        replay.fork(small, small.events[-1].id, Insert("x", {"to": "leed"}))
    heard = replay.fork(small, small.events[len(small.events) // 2].id, Insert("hello there"))  # to the lead unless told
    assert next(e for e in heard.events if heard.text(e) == "hello there").to == "lead"
    asked = replay.fork(small, question.id, Substitute("another question"))
    assert next(e for e in asked.events if e.key == "user|question")
    assert badge_of(asked.events[0]) == "re-run"
    assert asked.meta["edits"][0]["count"] == 0


def test_what_was_passed_over_is_decided_where_the_decision_is(small: Trace) -> None:
    passed = next(e for e in reversed(small.events) if PASSED in str(e.key) and str(e.key).endswith("stop"))
    decision = next(i for i, e in enumerate(small.events) if e.key == str(passed.key).split(PASSED)[0])
    fork = LiveReplay().fork(small, passed.id, Force({"stop": True}))
    assert fork.meta["edits"][0]["count"] == decision
    assert fork.meta["edits"][0]["at"] == passed.id
    assert [badge_of(e) for e in fork.events[:decision]] == ["reused"] * decision
    assert badge_of(fork.events[decision]) == "re-run"


def test_many_forks_and_their_returns(small: Trace) -> None:
    returns = [e.id for e in small.events if e.type == "return"]
    asked = [Fork(returns[0], Delete()), Fork(returns[-1], Delete(), 3), Fork(small.events[-1].id)]
    found = LiveReplay().forks(small, asked)
    assert [f.meta["edits"][-1]["at"] if f.meta["edits"] else None for f in found] == [returns[0], returns[-1], None]
    assert LiveReplay().returns(small, asked).tolist() == [f.rewards["team"] for f in found]
    assert found[2].rewards == small.rewards
    assert found[2].costs == small.costs


def test_a_given_model_is_not_closed(small: Trace) -> None:
    from counterpoint.lab.tasks.task import task

    fake = Fake(task=task("ledger_hunt"), skill=0.95)
    closed: list[bool] = []

    class Kept:
        is_instant = True
        name, version = small.meta["model"]["name"], small.meta["model"]["version"]

        async def complete(self, call: Any) -> Any:
            return await fake.complete(call)

        async def close(self) -> None:
            closed.append(True)

    at = next(e for e in small.events if e.type == "return")
    LiveReplay(model=Kept()).fork(small, at.id, Substitute("nothing"))
    assert closed == []


def test_a_model_that_the_fork_made_is_closed(small: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    class Closes(Fake):
        async def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(live, "_model_of", lambda spec, task: Closes(task=task, skill=0.95))
    at = next(e for e in small.events if e.type == "return")
    LiveReplay().fork(small, at.id, Substitute("nothing"))
    assert closed == [True]


# -- simulated worlds, and the command line -----------------------------------------------------------------------------


def test_badges_of_a_simulated_fork() -> None:
    import counterpoint as cpt
    from counterpoint.audits.blast import blast_radius
    from counterpoint.audits.diff import aligned

    world = cpt.world("W1", vote_items=6)
    trace = world.run("reference", [3], log=True).trace(0)
    first = next(e for e in trace.events if e.decision == "spawn")
    fork = world.fork(trace, first.id, Force({"spawn": 3}))
    blast = blast_radius(trace, fork, first.id)
    told = badges(trace, fork, first.id)
    again = dict(zip(aligned(trace.events), blast.reran.tolist(), strict=True))
    for key, e in zip(aligned(fork.events), fork.events, strict=True):
        assert told[e.id] == ("simulated" if key not in again else "re-run" if again[key] else "reused")
    assert set(told.values()) == {"reused", "re-run", "simulated"}
    found = diff(trace, fork)
    plain = counts(found, None, fork)
    assert plain == {"reused": found.same, "re-run": len(found.changed), "new": len(found.new), "gone": len(found.gone)}
    reached = counts(found, blast, fork)
    assert reached["reused"] == int((~blast.reran).sum())
    assert reached["re-run"] == int(blast.reran.sum()) - len(found.gone)
    assert reached["reused"] + reached["re-run"] + reached["new"] == len(fork.events)


def test_edits_as_they_are_asked_for() -> None:
    assert edit("delete", None, None) == Delete()
    assert edit("redraw", None, None) == Substitute()
    assert edit("edit", "words", None) == Substitute("words")
    assert edit(None, "plain words", None) == Substitute("plain words")
    assert edit(None, '{"a": 1}', None) == Substitute({"a": 1})
    assert edit(None, "", None) == Substitute("")
    assert edit(None, None, '{"spawn": 2}') == Force({"spawn": 2})
    for wrong in ((None, None, None), ("delete", "x", None), ("delete", None, "{}"), (None, "x", "{}"), ("delete", "x", "{}")):
        with pytest.raises(InputError, match="one edit at a time"):
            edit(*wrong)
    for text in ("[1]", "nonsense"):
        with pytest.raises(InputError, match="no JSON object") as error:
            edit(None, None, text)
        assert error.value.where == "--decide"


def test_who_can_follow_an_edit(small: Trace) -> None:
    assert isinstance(replay_for(small), LiveReplay)
    bare = Trace(trace_id="bare", task_id="q", events=[])
    with pytest.raises(NotIdentified, match="nothing says how this team would have continued") as error:
        replay_for(bare)
    assert error.value.where == "bare"
    with pytest.raises(NotIdentified, match="its world 'Atlantis' is not here"):
        replay_for(replace(bare, meta={"world": "Atlantis"}))


def test_a_stopping_world_cannot_fork_for_the_command_line() -> None:
    with pytest.raises(NotIdentified, match="the world S1 cannot fork; fork a trace of a TeamWorld") as error:
        replay_for(Trace(trace_id="s", task_id="q", events=[], meta={"world": "S1"}))
    assert error.value.where == "s"


def test_the_model_that_was_named_for_changed_calls(small: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(session, "make_model", lambda name, task, **options: made.append((name, options)))
    asked = {"model_name": "openai:x", "base_url": "http://127.0.0.1:9", "key_env": None, "allow": ()}
    assert named_model(small, asked | {"model_name": None}) is None
    assert made == []
    named_model(small, asked)
    named_model(small, asked | {"base_url": None, "key_env": "KEY"})
    assert made == [("openai:x", {"base_url": "http://127.0.0.1:9"}), ("openai:x", {"key_env": "KEY"})]
    meta = lambda **more: replace(small, meta=small.meta | {"team": small.meta["team"] | more})  # noqa: E731
    named_model(meta(model="lab.models:ours"), asked)  # the trace's own model is not asked, so it needs no consent
    with pytest.raises(Refused, match=r"lab\.tools:ours") as error:
        named_model(meta(tools={"lab.tools:ours": {}}), asked)
    assert error.value.where == small.trace_id
    made.clear()
    logged = Trace(trace_id="t", task_id="q", events=[])  # a logged session: the endpoint goes on, without a task of ours
    named_model(logged, asked)
    assert made == [("openai:x", {"base_url": "http://127.0.0.1:9"})]
    with pytest.raises(InputError, match="no logged session"):
        named_model(logged, asked | {"model_name": "fake:1"})


def test_an_effect_is_paired_on_one_fresh_noise() -> None:
    asked: list[Fork] = []

    class Counts:
        def fork(self, *rest: Any) -> Trace:
            raise AssertionError

        def returns(self, trace: Trace, forks: list[Fork]) -> Any:
            import numpy as np

            asked.extend(forks)
            return np.array([f.seed + (3.0 if f.do is not None else 1.0) for f in forks])

    told = effect_of(Counts(), Trace(trace_id="t", task_id="q", events=[]), "e1", Delete(), 4, 3)
    assert asked == [Fork("e1", Delete(), s) for s in (4, 5, 6)] + [Fork("e1", None, s) for s in (4, 5, 6)]
    assert told == {"mean": 2.0, "low": 2.0, "high": 2.0, "samples": 3, "seed": 4}
