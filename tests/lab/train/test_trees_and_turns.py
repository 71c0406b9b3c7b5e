"""Rollouts that share their beginnings, roles that take turns, a team that is always there, and forks that the network plays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.net_replay import NetReplay
from counterpoint.lab.train.preset import Preset, named_preset
from counterpoint.lab.train.rollouts import branch_salts
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from counterpoint.trace.replay import Fork
from lab.train.quick import TINY

BASE: dict[str, Any] = {"world": "wide_verify", "set": TINY, "updates": 4, "budget_calls": 0}


def begun(preset: str, change: dict[str, Any] | None = None, **more: Any) -> Training:
    return Training(settings_of({"preset": preset, **BASE, "change": change or {}, **more}))


def one_update(training: Training) -> Any:
    job = training.job(training.update, training.update, training.weights())
    played = play(job.payload, job.weights)
    training.learn([played])
    return played


def test_salts_of_a_tree() -> None:
    salts = np.arange(1, 9)
    found = branch_salts(salts, (2, 4), np.random.default_rng(0), 1)
    part = found.shape[1] - 1
    assert found[:, 0].tolist() == [1, 1, 1, 1, 5, 5, 5, 5]
    assert found[:, part].tolist() == salts.tolist()
    assert 1 <= part <= 4
    two = np.concatenate([salts, salts + 8])
    whole = branch_salts(two, (2, 4), np.random.default_rng(3), 2)
    second = branch_salts(two[8:], (2, 4), np.random.default_rng(3), 1, first=1)  # the job that plays the second task alone
    assert (whole[8:, : second.shape[1]] == second).all()


def test_rollouts_of_a_tree_agree_until_they_part() -> None:
    training = begun("c3", {"tree": [2, 4], "credit": {"replay": True, "by": "turn"}})
    job = training.job(0, 0, training.weights())
    found = play(job.payload, job.weights)
    traces, played = found.traces, found.rollout
    salts = job.payload["salts_ET"][:8]
    part = int(np.argmax((salts[:, 1:] != salts[:, :-1]).any(axis=0))) + 1

    def said(trace: Any, before: int) -> list[Any]:
        return [(e.agent, e.type, e.content_ref) for e in trace.events if (e.turn or 0) < before]

    assert all(said(traces[0], part) == said(t, part) for t in traces[1:4])
    assert said(traces[0], 99) != said(traces[1], 99)
    assert said(traces[0], 1) != said(traces[4], 1)
    # what begins alike is paid for once: of the first four, three get the rounds before they part for nothing
    rounds = np.minimum(played.columns["rounds"][:4], part)
    assert played.extra["shared_rounds"][:4].tolist() == [0, *rounds[1:]]
    early = [sum(e.type == "tool_call" and e.agent != "orchestrator" and (e.turn or 0) < part for e in t.events) for t in traces[:4]]
    assert played.extra["shared_calls"][:4].tolist() == [0, *early[1:]]
    own = played.columns["calls"] + played.columns["rounds"] - played.extra["shared_calls"] - played.extra["shared_rounds"]
    assert (own >= 0).all()
    assert played.charged == np.maximum(own, 1).sum()
    credit = registry.get("mechanism", "c3")(traces, replay=True, by="turn")
    assert credit.notes["sibling sets"] >= 4  # at the root, and where they part
    with pytest.raises(InputError, match=r"a tree of .* has 8 ends, a group 4"):
        named_preset("grpo").changed({"tree": [2, 4], "group": 4})


def test_roles_take_turns() -> None:
    preset = named_preset("dr_mas").changed({"alternate": 2})
    own, theirs = ("item", "stop", "spawn", "talk", "rule"), ("worker", "act", "brief", "point")
    assert [preset.learning(u) for u in range(5)] == [own, own, theirs, theirs, own]
    training = begun("dr_mas", {"alternate": 1})
    for moves, rests in (("gate", "worker"), ("worker", "gate")):
        before = training.weights()
        one_update(training)
        moved = {k.split(".")[0] for k, w in training.weights().items() if (w != before[k]).any()}
        assert moves in moved
        assert rests not in moved
    with pytest.raises(InputError, match="no second learner"):
        named_preset("kimi_parl").changed({"alternate": 2})


def test_a_fixed_team_is_always_there_and_spawning_does_not_learn() -> None:
    training = begun("grpo", {"fixed_team": True})
    before = training.weights()
    played = one_update(training).rollout
    spawn = played.tables["spawn"]
    assert spawn["choice"][spawn["round"] == 0].mean() > 0.9
    after = training.weights()
    assert (before["gate.weight"] == after["gate.weight"]).all()
    assert (before["size.bias"] == after["size.bias"]).all()
    assert (before["purpose.weight"] != after["purpose.weight"]).any()


def test_the_network_plays_its_own_forks() -> None:
    training = begun("puppeteer")
    job = training.job(0, 0, training.weights())
    played = play(job.payload, job.weights)
    salts = {t.trace_id: s for t, s in zip(played.traces, played.rollout.salts, strict=True)}
    replay = NetReplay(training.net, salts)
    for i, trace in enumerate(played.traces[:4]):
        at = trace.events[0].id
        assert replay.returns(trace, [Fork(at), Fork(at)]).tolist() == pytest.approx([played.rollout.values[i]] * 2)
    assert replay.spent["forks"] == 8
    assert replay.spent["charged"] == 2 * sum(max(1, int(played.rollout.columns[c][:4].sum())) for c in ("calls", "rounds"))


def test_difference_rewards_are_of_real_forks_and_are_paid_for() -> None:
    preset = Preset(
        source="a test", grade="M", departures="none", credit={"difference": {"also": ["spawn"]}}, loss={"reinforce": {}}, group=1, episodes=4,
        delegate="agent",
    )  # fmt: skip
    training = begun("puppeteer")
    training.preset = preset
    job = training.job(0, 0, training.weights())
    played = play(job.payload, job.weights)
    advantages, _ = training.advantages(played.rollout, played.traces)
    assert training.totals["forks"] > 0
    assert training.totals["calls"] > 0
    assert training.credit is not None
    teams = {r.trace: r.value for r in training.credit.rows if r.unit == "orchestrator" and r.unit_id == "e2"}
    spawn = played.rollout.tables["spawn"]
    rows = np.flatnonzero(spawn["round"] == 0)
    got = {int(spawn["ep"][r]): advantages["spawn"][r] for r in rows if int(spawn["ep"][r]) in teams}
    assert got == pytest.approx(teams)
