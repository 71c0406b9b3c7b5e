"""Learning from recorded traces: they come out again as the rollout they were, and what a log does not cover is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import counterpoint as cpt
from counterpoint.errors import CounterpointError, InputError, NotIdentified
from counterpoint.lab.app.cli.train.log import log
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.learner import log_probs
from counterpoint.lab.train.recorded import DECISIONS, TraceLog, rebuilt
from counterpoint.lab.train.rollouts import TracedRollout
from counterpoint.lab.train.run import train_run
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.store import Store
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Trace
from counterpoint.trace.outcome import Outcome, with_outcomes
from lab.train.quick import TINY, numbers

MIXED = {
    "vote_items": 4, "pool_items": 1, "draft_items": 1, "chain_items": 1, "node_modules": 1, "node_module_size": 3, "max_agents": 4,
    "max_rounds": 6,
}  # fmt: skip
TEAM = {"vote_items": 5, "max_agents": 4, "max_rounds": 6}


def drawn(preset: str, world: str = "wide_verify", changes: dict[str, Any] | None = None) -> tuple[Training, TracedRollout]:
    training = Training(settings_of({"preset": preset, "world": world, "set": changes or TEAM, "updates": 2, "episodes": 8}))
    job = training.job(0, 0, training.weights())
    return training, play({**job.payload, "log": True, "decisions": True}, job.weights)


def stored(folder: Path, traces: list[Trace]) -> Store:
    store = Store(folder, create=True)
    store.add_many(traces)
    return store


@pytest.mark.parametrize(
    ("preset", "world", "changes"),
    [
        ("counterpoint", "mixture", MIXED),  # every kind of item, forced forks, stops not carried out
        ("c3", "wide_verify", TEAM),  # workers that decide too
    ],
)
def test_a_stored_trace_comes_out_as_the_rollout_it_was(preset: str, world: str, changes: dict[str, Any], tmp_path: Path) -> None:
    training, played = drawn(preset, world, changes)
    store = stored(tmp_path, played.traces)
    again = rebuilt([store.get(t.trace_id) for t in played.traces], training.worlds[0], training.net)
    assert again.rollout.values.tolist() == played.rollout.values.tolist()
    assert again.rollout.tables.keys() == played.rollout.tables.keys()
    for name, table in played.rollout.tables.items():
        for column, values in table.items():
            found = again.rollout.tables[name][column]
            assert np.allclose(found, values, rtol=0, atol=1e-12) if column == "chance" else np.array_equal(found, values), (name, column)


def test_the_chances_of_a_round_are_those_that_its_events_carry() -> None:
    _, played = drawn("grpo")
    for trace in played.traces[:3]:
        tables = trace.meta[DECISIONS]["tables"]
        events = {e.key: e.logp for e in trace.events if e.type == "orchestrator_decision"}
        for now, logp in zip(tables["stop"]["round"], tables["stop"]["logp"], strict=True):
            assert events[f"orchestrator|stop|{now}"] == pytest.approx(logp)
        items = tables["item"]
        for now in set(items["round"]):
            at = [i for i, r in enumerate(items["round"]) if r == now]
            total = sum(items["logp"][i] + items["point_logp"][i] for i in at)
            assert events[f"orchestrator|delegate|{now}"] == pytest.approx(total)


def test_a_changed_decision_is_noticed() -> None:
    training, played = drawn("grpo")
    played.traces[0].meta[DECISIONS]["tables"]["rule"]["round"][0] += 1
    with pytest.raises(NotIdentified, match="rule decisions are not those"):
        rebuilt(played.traces, training.worlds[0], training.net)
    _, played = drawn("grpo")
    played.traces[1].rewards["team"] += 0.5
    with pytest.raises(NotIdentified, match="played again with the recorded decisions it is worth"):
        rebuilt(played.traces, training.worlds[0], training.net)


@pytest.fixture
def world() -> TeamWorld:
    found = cpt.world("wide_verify").replace(**TEAM)
    assert isinstance(found, TeamWorld)
    return found


def test_a_hand_made_policy_is_asked_again(world: TeamWorld) -> None:
    training, _ = drawn("grpo")
    for policy in ("reference", "majority", "random", "serial"):
        runs = world.run(policy, range(100, 106), log=True)
        again = rebuilt([runs.trace(i) for i in range(6)], world, training.net)
        assert again.rollout.values == pytest.approx(runs.values)
        assert again.rollout.gap() < 1e-9
        item = again.rollout.tables["item"]
        assert (item["mask"][np.arange(len(item["choice"])), item["choice"]]).all()
        logp = log_probs(training.net, again.rollout.tables)[0]
        assert all(np.isfinite(v.detach().numpy()).all() for v in logp.values())


def test_what_cannot_be_learned_from_says_why(world: TeamWorld, tmp_path: Path) -> None:
    by_hand = [world.run("reference", range(100, 103), log=True).trace(i) for i in range(3)]
    store = stored(tmp_path / "a", by_hand)

    def log(store: Store, **how: Any) -> TraceLog:
        return TraceLog(store, store.ids(), world, **({"held_out": 0, "off_policy": True} | how))

    with pytest.raises(NotIdentified, match=r"chose with certainty.*--preset clone"):
        log(store)
    assert log(store, off_policy=False).about() == {"traces": 3, "tasks": 3, "by_hand": ["reference"], "not": {}}
    with pytest.raises(NotIdentified, match=r"tasks are held out for evaluations.*--seed 1000"):
        log(store, held_out=1000)
    with pytest.raises(NotIdentified, match="the world had other parameters"):
        TraceLog(store, store.ids(), world.replace(vote_items=7), held_out=0, off_policy=False)
    other = cpt.world("deep_chain")
    assert isinstance(other, TeamWorld)
    with pytest.raises(NotIdentified, match="of another world, or version"):
        TraceLog(store, store.ids(), other, held_out=0, off_policy=False)
    plain = stored(tmp_path / "b", [synthetic_trace(2, 8)])
    with pytest.raises(NotIdentified, match="not made by a simulator that can be played again"):
        log(plain)
    silent = synthetic_trace(2, 8)
    silent = msgspec.structs.replace(silent, events=[msgspec.structs.replace(e, logp=None) for e in silent.events])
    with pytest.raises(NotIdentified, match=r"none of \d+ decisions carries its log-probability.*record `logp`"):
        log(stored(tmp_path / "d", [silent]))
    _, played = drawn("grpo")
    for trace in played.traces:
        trace.meta[DECISIONS]["tables"].pop("rule")
    with pytest.raises(NotIdentified, match=r"no decision of type rule.*record more"):
        log(stored(tmp_path / "c", played.traces))


def test_cloning_ends_near_what_was_recorded_and_resumes_bit_by_bit(world: TeamWorld, tmp_path: Path) -> None:
    runs = world.run("reference", range(100, 112), log=True)
    stored(tmp_path / "log", [runs.trace(i) for i in range(12)]).close()
    config = {
        "preset": "clone", "world": "wide_verify", "set": TEAM, "store": str(tmp_path / "log"), "updates": 6, "eval_every": 6,
        "eval_episodes": 32, "checkpoint_every": 4, "keep_traces": 0, "episodes": 8, "change": {"loss": {"steps": 16}},
    }  # fmt: skip
    train_run(tmp_path / "whole", config)
    run = RunFolder.open(tmp_path / "whole")
    first, last = run.evals()[0], run.evals()[-1]
    assert (run.about["log"]["traces"], run.spending()["calls"]) == (12, 0)
    reference = world.run("reference", range(32)).values.mean()
    assert last["mean"] - first["mean"] > 0.5 * (reference - first["mean"])

    class Cut(Exception):
        pass

    def cut(kind: str, row: Any) -> None:
        if kind == "update" and row["update"] == 5:
            raise Cut

    with pytest.raises(Cut):
        train_run(tmp_path / "cut", config, progress=cut)
    with Store(tmp_path / "log") as store:  # what is added later is no part of the run
        store.add(world.run("random", range(300, 301), log=True).trace(0))
    train_run(tmp_path / "cut", {}, resume=True)
    assert numbers(tmp_path / "cut") == numbers(tmp_path / "whole")


def test_off_policy_updates_need_a_log_that_covers_the_policy(tmp_path: Path) -> None:
    on = {"preset": "grpo", "world": "wide_verify", "set": TEAM, "updates": 2, "eval_every": 2, "eval_episodes": 4}
    on |= {"keep_episodes": 16}
    train_run(tmp_path / "on", on | {"keep_traces": 2, "change": {"rates": {"policy": 0.2, "spawn": 0.5}}})
    made = Store(tmp_path / "on" / "store")
    assert sum(DECISIONS in made.get(i).meta for i in made.ids()) == 32
    off = {**on, "keep_episodes": 0, "store": str(tmp_path / "on" / "store"), "keep_traces": 0, "updates": 3}
    train_run(tmp_path / "off", off)
    run = RunFolder.open(tmp_path / "off")
    assert run.about["log"] == {
        "traces": 32, "tasks": 4, "by_hand": [], "not": {"their tasks are held out for evaluations": len(made.ids()) - 32},
    }  # fmt: skip
    assert all(0.1 <= row["ess"] <= 1 + 1e-9 for row in run.metrics())
    # recorded as nearly impossible, so that its weight drowns all others: what a policy far from the log looks like
    _, played = drawn("grpo")
    rows = played.traces[0].meta[DECISIONS]["tables"]["item"]
    rows["logp"] = [x - 9 for x in rows["logp"]]
    stored(tmp_path / "odd", played.traces).close()
    with pytest.raises(NotIdentified, match=r"does not cover this policy.*clone the log first"):
        train_run(tmp_path / "far", off | {"store": str(tmp_path / "odd")})
    assert RunFolder.open(tmp_path / "far").about["status"] == "failed"


def test_the_command_chooses_traces_by_the_words_of_ls(world: TeamWorld, tmp_path: Path) -> None:
    both = [world.run(p, range(100, 104), log=True) for p in ("reference", "random")]
    stored(tmp_path / "log", [r.trace(i) for r in both for i in range(4)]).close()
    ask = ["--store", str(tmp_path / "log"), "--preset", "clone", "--dry-run", "--json"]
    out = CliRunner().invoke(log, [*ask, "id:reference"], catch_exceptions=False)
    plan = json.loads(out.output)["would_train"][0]
    assert (plan["world"], plan["updates"], len(plan["ids"])) == ("wide_verify", 200, 4)
    assert {k: plan["set"][k] for k in TEAM} == TEAM
    assert all("reference" in i for i in plan["ids"])
    for wrong, says in ((["rewrd>1"], "did you mean 'reward'"), (["reward>1000k"], "none of 8 finished traces")):
        assert says in str(CliRunner().invoke(log, [*ask, *wrong]).exception)


def test_settings_of_a_log_belong_together() -> None:
    for wrong, says in (({"where": "x"}, "runs that learn from a store"), ({"store": "s"}, "needs an end"), ({"ids": [3]}, "ids is")):
        with pytest.raises(InputError, match=says):
            settings_of({"preset": "clone", "world": "W1", **wrong})
    with pytest.raises(CounterpointError, match="there is no store here"):
        train_run("unused", {"preset": "clone", "world": "W1", "set": TINY, "store": "nowhere", "updates": 1})


def test_what_a_person_said_of_an_episode_neither_stops_nor_moves_the_learner(tmp_path: Path) -> None:
    training, played = drawn("grpo")
    said = with_outcomes(played.traces[2], [Outcome(channel="team", value=1.0, by="ann", at=1.0)])
    assert said.rewards["team"] != played.traces[2].rewards["team"]
    scored = [said if i == 2 else trace for i, trace in enumerate(played.traces)]
    plain, again = (rebuilt(traces, training.worlds[0], training.net) for traces in (played.traces, scored))
    assert [t.rewards for t in again.traces] == [t.rewards for t in plain.traces]
    store = stored(tmp_path / "scored", scored)
    told = TraceLog(store, store.ids(), training.worlds[0], held_out=0, off_policy=True).about()
    assert (told["traces"], told["scored_by_people"]) == (len(scored), 1)
