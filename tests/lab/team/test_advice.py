"""Advice: changes that are tried by worlds and live teams, estimated from runs, refused, and applied."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.app.api.advise import advise_orders
from counterpoint.errors import InputError, NotFound, NotIdentified, Refused
from counterpoint.lab.team.live_trials import KeptOpen, LiveTrials
from counterpoint.lab.team.session import Spec, make_model, record_team
from counterpoint.lab.team.state import Limits
from counterpoint.lab.worlds.teamworld.policies import named
from counterpoint.lab.worlds.teamworld.policies.standing import Standing
from counterpoint.store import Store
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.line_records import OPEN_EVENTS, UNFINISHED


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    spec = Spec(task="split_evidence", config={"claims": 4, "independents": 2, "clones": 1}, topology="debate", model="fake:0.7",
                seed=5, limits=Limits(width=3, rounds=1))  # fmt: skip
    with Store(tmp_path_factory.mktemp("panel")) as store:
        return asyncio.run(record_team(spec, store, trace_id="panel"))


def test_a_habit_is_found_tried_and_applied_in_a_world() -> None:
    world = cpt.world("W1", vote_items=8)
    trace = world.run("spawn_all", [1], log=True).trace(0)
    found = cpt.advise(trace, scope="task", kinds=["width"], budget=40)
    assert found.first is not None
    assert (found.first.change.habit, found.first.verdict, found.source) == ({"width": 0.5}, "helps", "forks")
    assert "the best of 2 changes" in found.certificates["task"]
    again = cpt.advise(trace, scope="task", kinds=["width"], budget=40)
    assert [r.gain for r in again.rows] == [r.gain for r in found.rows]
    assert set(found.to_arrow().column_names) >= {"for", "kind", "change", "gain", "low", "high", "verdict"}


def test_a_policy_with_no_habit_is_the_policy_and_each_habit_does_what_it_says() -> None:
    world = cpt.world("W1", vote_items=6)
    base = named("reference", world.config)
    seeds = range(4)
    plain = world.run(base, seeds)
    assert (world.run(Standing(base, {}), seeds).values == plain.values).all()
    assert (world.run(Standing(base, {"width": 2.0}), seeds).columns["agents"] > plain.columns["agents"]).all()
    assert (world.run(Standing(base, {"stop": True}, first=2), seeds).columns["rounds"] <= 2).all()
    late = world.run(Standing(base, {"rule": "first", "brief": 1, "family": "other"}, first=10_000), seeds)
    assert (late.values == plain.values).all()
    with pytest.raises(InputError, match="no habit 'widht'"):
        Standing(base, {"widht": 2})


def test_changes_of_one_run_are_forks_of_it(panel: Trace) -> None:
    trials = LiveTrials(panel)
    assert {c.kind for c in trials.changes} >= {"message", "width", "merge", "rounds", "topology"}
    drop = next(c for c in trials.changes if c.says.startswith("drop"))
    gains = trials.gains(drop, 0, 2)
    assert gains == trials.gains(drop, 0, 2)
    fork = trials.apply(drop)
    assert (fork.meta["parent"], len(fork.events) < len(panel.events)) == ("panel", True)
    wide = next(c for c in trials.changes if c.habit == {"width": 6})
    assert sum(e.type == "spawn" for e in trials.apply(wide).events) == 6
    vote = next(c for c in trials.changes if c.habit == {"merge": "vote"})
    rules = {(e.extra or {}).get("rule") for e in trials.apply(vote).events if e.type == "aggregate"}
    assert rules == {"vote"}
    assert trials.play(None, panel.meta["seed"]).rewards == panel.rewards
    held = make_model("fake:0.7", trials.spec.make_task())
    given = LiveTrials(panel, make=lambda: KeptOpen(held))
    assert given.play(None, panel.meta["seed"]).rewards == panel.rewards


def test_another_model_for_a_role_and_a_message_can_be_tried(panel: Trace) -> None:
    found = cpt.advise(panel, kinds=["model", "message"], models={"debater": "fake:1"}, say=["look twice"], budget=400, scope="all")
    assert {"fake:1 for every debater", "tell the lead: look twice"} <= {r.change.says for r in found.rows}


def test_what_costs_money_is_said_first(panel: Trace) -> None:
    paid = replace(panel, meta={**panel.meta, "team": {**panel.meta["team"], "model": "openai:big"}})
    with pytest.raises(Refused, match=r"(?s)up to [\d,]+ tokens.*no model is named and no budget.*--model openai:NAME.*--cap tokens=\d"):
        cpt.advise(paid)  # all that it needs, at once
    with pytest.raises(Refused, match=r"up to [\d,]+ tokens"):
        cpt.advise(paid, model="fake:0.7", kinds=["merge"])
    trials = LiveTrials(panel, budget_tokens=1)
    change = trials.changes[0]
    assert len(trials.gains(change, 0, 2)) == 2
    assert trials.gains(change, 2, 2) == []  # spent


def logged(n: int, is_sent: bool, reward: float) -> Trace:
    events = [
        Event(id="d", t=0.0, type="orchestrator_decision", agent="lead", decision="delegate", key="lead|d", turn=0),
        Event(id="x", t=0.5, type="tool_call", agent="lead", key="lead|x", turn=0),
    ]
    if is_sent:
        events.append(Event(id="m", t=1.0, type="message", agent="lead", to="w", key="lead|m", turn=0))
    edges = [Edge("d", "m", "causal")] if is_sent else []
    return Trace(trace_id=f"r{n}", task_id="t", events=events, edges=edges, rewards={"team": reward})


def test_runs_of_the_task_say_what_a_log_cannot(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    runs = [logged(n, n % 2 == 0, (0.0 if n % 2 == 0 else 1.0) + 0.1 * float(rng.standard_normal())) for n in range(80)]
    found = cpt.advise(runs)
    assert (found.source, found.rows[0].change.says, found.rows[0].verdict) == ("runs", "do not send m (lead to w)", "helps")
    assert found.rows[0].gain == pytest.approx(1.0, abs=0.1)
    with Store(tmp_path / "s") as store:
        store.add_many(runs)
        alone = cpt.advise("r0", store=store)
    assert alone.rows[0].gain == pytest.approx(found.rows[0].gain)


def test_refusals() -> None:
    world = cpt.world("W1", vote_items=4)
    trace = world.run("reference", [0], log=True).trace(0)
    log = logged(0, True, 1.0)
    with pytest.raises(NotIdentified, match="no other run of its task"):
        cpt.advise(log)
    with pytest.raises(NotIdentified, match="10 runs of the task cannot say"):
        cpt.advise([logged(n, n % 2 == 0, 1.0) for n in range(10)])
    with pytest.raises(NotIdentified, match="one step"):
        cpt.advise(replace(log, events=log.events[:1], edges=[]))
    with pytest.raises(NotIdentified, match="no outcome"):
        cpt.advise(replace(log, rewards={}))
    with pytest.raises(NotFound, match="no event 'e999'"):
        cpt.advise(trace, at=["e999"])
    with pytest.raises(InputError, match="no kind of change 'merg'"):
        cpt.advise(trace, kinds=["merg"])
    with pytest.raises(InputError, match="trials each"):
        cpt.advise(trace, budget=8)
    with pytest.raises(NotIdentified, match="offers no change to try"):
        cpt.advise(trace, kinds=["topology"])
    with pytest.raises(InputError, match="sure is 2"):
        cpt.advise(trace, sure=2)


def test_a_team_at_its_optimum_is_told_so() -> None:
    trace = cpt.world("W2").run("oracle", [0], log=True).trace(0)
    found = cpt.advise(trace, scope="task", kinds=["width", "stop"], budget=160)
    assert found.first is None or found.first.verdict != "helps"
    said = found.certificates["task"]
    assert "nothing here helps" in said or "none is worth more than" in said or "may be chance" in said
    assert all(math.isfinite(r.gain) for r in found.rows)


def test_orders_to_a_running_team(panel: Trace) -> None:
    kept = {e.id for e in panel.events[:8]}
    so_far = replace(
        panel,
        events=panel.events[:8],
        edges=[e for e in panel.edges if {e.src, e.dst} <= kept],
        meta={k: v for k, v in panel.meta.items() if k not in ("ended", "answer")} | {UNFINISHED: True, OPEN_EVENTS: []},
        rewards={},
    )
    found, best = advise_orders(so_far, say=["hurry"], budget=24)
    assert (best is None) is (found.first is None)
    gains = {r.change.says: r.gain for r in found.rows}
    assert gains["stop the team"] == pytest.approx(-float(panel.rewards["team"]), abs=1.0)
    assert gains["stop the team"] < 0  # nothing is merged yet
    assert "message the team: hurry" in gains
    with pytest.raises(NotIdentified, match="is over"):
        advise_orders(panel)
    with pytest.raises(NotIdentified, match="nothing says how"):
        advise_orders(logged(0, True, 1.0))
