"""Preferences in numbers by hand: which rows a unit is, what is summed, which pairs are learned, and what may not move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.learner import TYPES
from counterpoint.lab.train.losses.dpo import Options, _Sums, task_pairs, unit_rows
from counterpoint.lab.train.objectives import dpo_loss
from counterpoint.lab.train.rollouts import TracedRollout
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from lab.train.quick import TINY

TABLE = {"brief": "item", "point": "item", "size": "spawn", "talk": "rule"}
LOG2 = float(np.log(2))


def begun(**options: Any) -> tuple[Training, TracedRollout]:
    change = {"regime": "A", "credit": {"convention": "dr_grpo"}}
    settings = {"preset": "grpo", "world": "wide_verify", "set": TINY, "updates": 4, "budget_calls": 0, "change": change}
    training = Training(settings_of(settings))
    training.loss = registry.get("loss", "dpo")
    training.loss_options = training.loss.resolved(options)
    training.module = training.loss.module()  # type: ignore[misc]
    job = training.job(0, 0, training.weights())
    return training, play(job.payload, job.weights)


def learned(training: Training, played: TracedRollout) -> dict[str, Any]:
    """What one update of the loss says."""
    return dict(training.loss.learn(training, training.loss_options, played.rollout, played.traces))


@pytest.fixture(scope="module")
def played() -> TracedRollout:
    return begun()[1]


def test_the_loss_by_hand() -> None:
    """-log sigmoid(0.5 ((1 - 3) - (2 - 7))) = log(1 + e^-1.5)."""
    got = dpo_loss(*(torch.tensor([float(x)]) for x in (1, 3, 2, 7)), beta=0.5)
    assert got.tolist() == pytest.approx([float(np.log1p(np.exp(-1.5)))])


def test_pairs_of_three_and_of_ties() -> None:
    task = np.zeros(3, int)
    assert task_pairs(np.array([2.0, 9.0, 5.0]), task) == [(1, 0)]  # the one in the middle has no partner
    assert task_pairs(np.array([1.0, 1.0, 1.0]), task) == []
    assert task_pairs(np.array([1.0, 2.0, 1.0, 2.0]), np.array([4, 4, 3, 3])) == [(3, 2), (1, 0)]
    assert task_pairs(np.array([0.0, 3.0, 3.0, 1.0]), np.zeros(4, int)) == [(1, 0), (2, 3)]


@pytest.mark.parametrize(("options", "said"), [({"pairs": "tasks"}, "pairs is 'tasks'.*'task'"), ({"skips": ("itm",)}, "skips names 'itm'.*'item'")])
def test_what_an_option_does_not_take(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Options(**options)


def test_a_whole_episode_is_all_its_rows_and_a_round_those_of_the_round(played: TracedRollout) -> None:
    out = played.rollout
    types = [n for n in ("item", "stop", "spawn", "size", "rule", "brief", "point") if TABLE.get(n, n) in out.tables]
    every = unit_rows(out, (1, None, None), played.traces, types)
    now = int(out.tables["stop"]["round"][out.tables["stop"]["ep"] == 1][0])
    some = unit_rows(out, (1, now, None), played.traces, types)
    for name in types:
        t = out.tables[TABLE.get(name, name)]
        assert every.get(name, np.zeros(0)).tolist() == np.flatnonzero(t["ep"] == 1).tolist()
        assert some.get(name, np.zeros(0)).tolist() == np.flatnonzero((t["ep"] == 1) & (t["round"] == now)).tolist()
    assert unit_rows(out, (10_000, None, None), played.traces, types) == {}


def test_an_events_rows_are_of_the_decisions_it_stands_for(played: TracedRollout) -> None:
    out, trace = played.rollout, played.traces[0]
    types = [n for n in ("item", "stop", "spawn", "size", "rule", "talk", "brief", "point") if TABLE.get(n, n) in out.tables]
    of = {"stop": {"stop"}, "spawn": {"spawn", "size"}, "delegate": {"item", "point"}, "aggregate": {"rule"}, "communicate": {"brief", "talk"}}
    kinds = set()
    known = [n for n in types if n != "talk"]
    for event in trace.events:
        sub = (event.extra or {}).get("sub_decision")
        if event.type == "orchestrator_decision" and sub in of:
            found = unit_rows(out, (0, event.turn, event.id), played.traces, known)
            assert set(found) <= of[sub], (event.id, sub)
            whole = unit_rows(out, (0, event.turn, None), played.traces, known)
            assert {n: r.tolist() for n, r in found.items()} == {n: whole[n].tolist() for n in of[sub] & set(whole)}
            kinds.add(sub)
        if event.type == "aggregate" and "rule" in out.tables:
            assert set(unit_rows(out, (0, event.turn, event.id), played.traces, known)) <= {"rule"}
            kinds.add("merged")
    assert {"stop", "spawn"} <= kinds


def test_a_brief_is_one_call_of_one_item_to_one_agent(played: TracedRollout) -> None:
    out, seen = played.rollout, 0
    slots = {e.to: e.extra["slot"] for e in played.traces[0].events if e.type == "spawn" and e.extra}
    for event in played.traces[0].events:
        if event.type != "message" or event.to not in slots:
            continue
        rows = unit_rows(out, (0, event.turn, event.id), played.traces, ["item", "brief", "stop"])
        t = out.tables["item"]
        assert set(rows) == {"item", "brief"}
        assert [t["agent"][r] for r in rows["item"]] == [slots[event.to]]
        assert t["round"][rows["item"][0]] == event.turn
        seen += 1
    assert seen


def test_sums_are_over_a_units_own_rows_that_count(played: TracedRollout) -> None:
    out = played.rollout
    stop, rule = (len(out.tables[n]["ep"]) for n in ("stop", "rule"))
    counted = {"stop": np.ones(stop, np.bool_), "rule": np.arange(rule) % 2 == 0}
    units = [(0, None, None), (1, None, None)]
    sums = _Sums(out, units, played.traces, counted)
    logp = {"stop": torch.arange(stop, dtype=torch.float32), "rule": torch.ones(rule, 2) * torch.tensor([1.0, 10.0])}
    got = sums(logp).tolist()
    for k in (0, 1):
        own = np.flatnonzero(out.tables["stop"]["ep"] == k).sum()
        pairs = ((out.tables["rule"]["ep"] == k) & counted["rule"]).sum()
        assert got[k] == pytest.approx(own + 11.0 * pairs)


def test_at_the_reference_the_loss_is_log_two_and_steps_go_below_it() -> None:
    """At the reference the two log ratios are equal, whatever the pair."""
    training, played = begun()
    for group in training.policy.param_groups:
        group["lr"] = 0.0
    row = learned(training, played)
    value = np.array([sum(r.value for r in training.credit.rows if r.trace == k) for k in range(len(played.traces))])  # type: ignore[union-attr]
    assert row["loss"] == pytest.approx(LOG2, abs=1e-6)
    assert row["pairs"] == len(task_pairs(value, played.rollout.seeds)) > 0
    training, played = begun()
    assert learned(training, played)["loss"] < LOG2 - 1e-4


def test_at_most_so_many_pairs_and_the_same_ones_by_the_same_seed() -> None:
    ends = []
    for _ in range(2):
        training, played = begun(most=2)
        row = learned(training, played)
        assert row["pairs"] == 2
        ends.append((row["loss"], {k: v.tolist() for k, v in training.weights().items()}))
    assert ends[0] == ends[1]


def test_a_batch_without_pairs_changes_nothing() -> None:
    training, played = begun()
    played.rollout.seeds[:] = np.arange(len(played.rollout.seeds))  # no two of one task
    before = [p.detach().clone() for p in training.net.policy_parameters()]
    row = learned(training, played)
    assert (row["loss"], row["pairs"]) == (0.0, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(before, training.net.policy_parameters(), strict=True))


def test_what_is_skipped_is_not_moved_by_preferences() -> None:
    skips = tuple(name for name in TYPES if name != "stop")
    training, played = begun(skips=skips)
    before = {k: v.copy() for k, v in training.weights().items()}
    learned(training, played)
    after = training.weights()
    assert (after["stop.bias"] != before["stop.bias"]).any()
    for name in ("purpose.weight", "brief.weight", "gate.weight", "size.weight", "rule.weight"):
        assert (after[name] == before[name]).all(), name


def test_first_it_imitates_and_holds_no_reference_yet() -> None:
    training, played = begun(first=0.5)
    row = learned(training, played)
    assert "pairs" not in row
    assert training.credit is not None
    assert training.module.held == {}  # type: ignore[union-attr]
    training.update = 2  # half of four updates are made
    assert learned(training, played)["pairs"] > 0
    assert training.module.held  # type: ignore[union-attr]


def test_credit_that_reads_no_traces_has_no_preferences() -> None:
    training, played = begun()
    training.advantages = lambda out, traces: ({}, {})  # type: ignore[method-assign]
    training.credit = None
    with pytest.raises(InputError, match="preferences are of traces"):
        training.loss.learn(training, training.loss_options, played.rollout, played.traces)
