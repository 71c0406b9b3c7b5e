"""From names to advantages: rewards with weights, credit by the most specific unit, and rows that nothing covers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from counterpoint import registry
from counterpoint.credits.mechanism import Mechanism
from counterpoint.errors import InputError, NotFound, NotIdentified
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.preset import Preset, named_preset
from counterpoint.lab.train.returns import team_scale
from counterpoint.lab.train.rollouts import TracedRollout
from counterpoint.lab.train.row_credit import advantages, assigned, check, needs_critic, prefix_values
from counterpoint.rewards.schedules import weight_at
from counterpoint.trace import Trace, encode
from counterpoint.trace.rows import Credit, CreditRow

PLAIN: dict[str, Any] = {"source": "a test", "grade": "M", "departures": "none", "loss": {"clip": {}}}


@pytest.fixture(scope="module")
def net() -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return Network()


@pytest.fixture(scope="module")
def played(net: Network) -> TracedRollout:
    """Two tasks, four episodes each, on a small W1 whose workers decide too."""
    weights = {k: v.numpy() for k, v in net.state_dict().items()}
    payload = {
        "world": "W1", "set": {"vote_items": 5, "max_votes": 3, "max_rounds": 8}, "seeds": np.repeat([5, 6], 4), "salts": np.arange(8),
        "apart": False, "log": True, "goes_on": False, "name": "test", "workers": True,
    }  # fmt: skip
    return play(payload, weights)


def _laboratory(monkeypatch: pytest.MonkeyPatch, run: Any, **options: Any) -> Preset:
    """A preset with a mechanism from outside the package."""
    module = ModuleType("my_lab")
    module.mine = Mechanism(  # type: ignore[attr-defined]
        unit="agent", estimand="e", assumptions="a", cost="none", additive=False, source="a test", run=run
    )
    monkeypatch.setitem(sys.modules, "my_lab", module)
    return Preset(credit={"my_lab:mine": {}}, **{**PLAIN, **options})


def _credit(traces: Sequence[Trace], rows: list[CreditRow], **more: Any) -> Credit:
    return Credit("mine", "e", False, tuple(t.trace_id for t in traces), tuple(rows), **more)


# -- GRPO by hand


def test_every_row_of_grpo_gets_its_episodes_group_relative_number(net: Network, played: TracedRollout) -> None:
    out = played.rollout
    found = assigned(named_preset("grpo"), out, played.traces, net, progress=0.0)
    by_hand = np.concatenate([(r - r.mean()) / (r.std(ddof=1) + 1e-6) for r in (out.values[:4], out.values[4:])])
    for name in ("stop", "spawn", "talk", "rule", "worker", "item"):
        assert found.advantages[name] == pytest.approx(by_hand[out.tables[name]["ep"]])
    called = out.tables["item"]["agent"] >= 0
    for name in ("brief", "point"):
        assert found.advantages[name][called] == pytest.approx(by_hand[out.tables["item"]["ep"][called]])
        assert not found.advantages[name][~called].any()
    assert found.uncovered == {}


def test_the_traces_given_stay_as_they_were(net: Network, played: TracedRollout) -> None:
    before = [encode(t) for t in played.traces]
    for name in ("kimi_parl", "m_grpo"):
        advantages(named_preset(name), played.rollout, played.traces, net, progress=0.3)
    assert [encode(t) for t in played.traces] == before


PARTLY = {"at_grpo", "c3_replay", "difference_rewards", "marti_mars2", "multiagent_ft"}
"""Credit of forks, of trees that these rollouts are not, or of workers alone: what it does not cover is left alone."""


@pytest.mark.parametrize("name", [n for n in registry.ids("preset") if named_preset(n).uses_traces and not named_preset(n).world])
def test_every_preset_judged_on_traces_covers_its_rows(net: Network, played: TracedRollout, name: str) -> None:
    preset = named_preset(name)
    found = assigned(preset, played.rollout, played.traces, net, progress=0.5)
    judged = {k: v for k, v in found.advantages.items() if k != "worker" or preset.regime != "A"}  # A: workers do not learn
    for kind, amounts in judged.items():
        table = {"brief": "item", "point": "item"}.get(kind, kind)
        assert amounts.shape == played.rollout.tables[table]["ep"].shape
        assert np.isfinite(amounts).all()
        # what learns from pairs of steps may leave heads alone
        assert amounts.any() or preset.loss_name == "dpo" or name in PARTLY, kind
    if name in PARTLY:
        return
    lacking = sum(found.uncovered.get(k, 0) for k in judged) / sum(len(a) for a in judged.values())
    assert lacking < 0.35, found.uncovered


# -- who covers whom


def test_the_most_specific_unit_wins(net: Network, played: TracedRollout, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(traces: Sequence[Trace]) -> Credit:
        rows = []
        for i, t in enumerate(traces):
            rows += [CreditRow(i, "team", "", 1.0), CreditRow(i, "agent", "orchestrator", 2.0), CreditRow(i, "agent", "a0", 3.0)]
            rows += [
                CreditRow(i, "orchestrator", e.id, 4.0) for e in t.events if e.key and e.key.startswith("orchestrator|stop|")
            ]
            rows += [CreditRow(i, "message", e.id, 5.0) for e in t.events if e.type == "message"]
        return _credit(traces, rows)

    out = played.rollout
    found = assigned(_laboratory(monkeypatch, run), out, played.traces, net, progress=0.0)
    assert set(found.advantages["stop"]) == {4.0}
    assert set(found.advantages["spawn"]) == {2.0}
    item = out.tables["item"]
    assert set(found.advantages["item"][item["agent"] >= 0]) == {5.0}
    assert set(found.advantages["item"][item["agent"] < 0]) <= {2.0}
    assert set(found.advantages["worker"][out.tables["worker"]["agent"] == 1]) == {3.0}
    assert set(found.advantages["worker"][out.tables["worker"]["agent"] > 1]) <= {1.0}
    found = assigned(_laboratory(monkeypatch, run, delegate="agent"), out, played.traces, net, progress=0.0)
    assert set(found.advantages["point"][item["agent"] == 1]) == {3.0}
    assert set(found.advantages["point"][item["agent"] > 1]) == {5.0}


def test_a_turn_covers_its_round_and_what_is_refused_stays_without(
    net: Network, played: TracedRollout, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def run(traces: Sequence[Trace]) -> Credit:
        rows = [CreditRow(i, "turn", "orchestrator#0", 7.0) for i in range(len(traces))]
        rows += [CreditRow(i, "agent", "orchestrator", 1.0) for i in range(len(traces))]
        return _credit(traces, rows, unidentified={(i, "a0"): "nobody to compare with" for i in range(len(traces))})

    out = played.rollout
    found = assigned(_laboratory(monkeypatch, run, delegate="agent"), out, played.traces, net, progress=0.0)
    spawn = out.tables["spawn"]
    assert set(found.advantages["spawn"][spawn["round"] == 0]) == {7.0}
    agent = out.tables["item"]["agent"]
    assert not found.advantages["point"][agent == 1].any()
    assert set(found.advantages["point"][agent > 1]) <= {1.0, 7.0}
    assert found.uncovered["point"] == (agent == 1).sum() > 0


def test_rows_that_nothing_covers_get_zero_and_are_counted(net: Network, played: TracedRollout, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = _laboratory(monkeypatch, lambda traces: _credit(traces, [CreditRow(0, "team", "", 1.0)]))
    found = assigned(preset, played.rollout, played.traces, net, progress=0.0)
    ep = played.rollout.tables["stop"]["ep"]
    assert np.array_equal(found.advantages["stop"], (ep == 0).astype(float))
    assert found.uncovered["stop"] == (ep > 0).sum()


def test_a_trace_that_a_mechanism_refuses_by_name_is_left_out(
    net: Network, played: TracedRollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(traces: Sequence[Trace]) -> Credit:
        if any(t.trace_id == played.traces[2].trace_id for t in traces):
            raise NotIdentified("no votes", "votes", where=played.traces[2].trace_id)
        return _credit(traces, [CreditRow(i, "team", "", float(t.trace_id[-1])) for i, t in enumerate(traces)])

    found = assigned(_laboratory(monkeypatch, run), played.rollout, played.traces, net, progress=0.0)
    ep = played.rollout.tables["stop"]["ep"]
    assert np.array_equal(found.advantages["stop"], np.where(ep == 2, 0.0, ep))
    assert found.uncovered["stop"] == (ep == 2).sum()


def test_what_cannot_be_judged_stops_the_run_unless_nobody_was_called_or_asked(
    net: Network, played: TracedRollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(traces: Sequence[Trace]) -> Credit:
        raise NotIdentified("no event carries a reward", "score them")

    preset, out = _laboratory(monkeypatch, run), played.rollout
    with pytest.raises(NotIdentified, match="no event"):
        assigned(preset, out, played.traces, net, progress=0.0)
    idle = dataclasses.replace(out, columns={**out.columns, "calls": np.zeros_like(out.columns["calls"])})
    found = assigned(preset, idle, played.traces, net, progress=0.0)
    assert found.uncovered["stop"] == len(out.tables["stop"]["ep"])
    assert not any(rows.any() for rows in found.advantages.values())
    assert out.config.vote_items
    unasked = [
        msgspec.structs.replace(t, events=[e for e in t.events if not (e.type == "return" and (e.task or "").startswith("vote "))])
        for t in played.traces
    ]
    assert len(unasked[0].events) < len(played.traces[0].events)
    assert not any(rows.any() for rows in assigned(preset, out, unasked, net, progress=0.0).advantages.values())


# -- rewards


def test_weights_fall_in_a_straight_line() -> None:
    assert weight_at(0.3, 0.9) == 0.3
    assert [weight_at({"from": 0.2, "to": 0.0}, p) for p in (0.0, 0.5, 1.0, 2.0)] == pytest.approx([0.2, 0.1, 0.0, 0.0])
    for wrong in ("much", True, {"from": 1.0}, None):
        with pytest.raises(InputError, match="weight"):
            weight_at(wrong, 0.0)


def test_parl_adds_its_terms_and_then_leaves_them(net: Network, played: TracedRollout, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(traces: Sequence[Trace]) -> Credit:
        return _credit(traces, [CreditRow(i, "team", "", t.rewards["team"]) for i, t in enumerate(traces)])

    preset = _laboratory(monkeypatch, run, reward=named_preset("kimi_parl").reward)
    out, rewards = played.rollout, registry.get("reward", "orchestration")
    extra = np.array([sum(s.value for s in rewards(t, parts=("parallel", "finish"))) for t in played.traces])
    assert extra.max() > 1
    for progress, weight in ((0.0, 0.2), (0.5, 0.1), (1.0, 0.0)):
        found = advantages(preset, out, played.traces, net, progress=progress)["spawn"]
        assert found == pytest.approx((out.values + weight * extra)[out.tables["spawn"]["ep"]])


def test_a_gain_is_what_is_above_doing_nothing(net: Network, played: TracedRollout, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(traces: Sequence[Trace]) -> Credit:
        return _credit(traces, [CreditRow(i, "team", "", t.rewards["team"]) for i, t in enumerate(traces)])

    preset = _laboratory(monkeypatch, run, reward={"team_outcome": {"gain": True, "weight": 2.0}})
    check(preset)
    out = played.rollout
    found = advantages(preset, out, played.traces, net, progress=0.0)["spawn"]
    assert out.value_TE[0].any()
    assert found == pytest.approx(2 * (out.values - out.value_TE[0])[out.tables["spawn"]["ep"]])


def test_what_agents_are_paid_comes_on_top_of_the_teams(net: Network, played: TracedRollout) -> None:
    preset = named_preset("m_grpo")
    credit = assigned(preset, played.rollout, played.traces, net, progress=0.0).credit
    right = [
        np.mean([e.reward["R2"] for e in t.events if e.type == "return" and e.agent == "a0"] or [np.nan]) for t in played.traces
    ]
    values = 0.4 * played.rollout.values + 0.5 * np.array(right)
    pairs = [(i, credit.of(i, "agent")["a0"]) for i in range(4) if "a0" in credit.of(i, "agent") and np.isfinite(values[i])]
    assert len(pairs) >= 2
    order = sorted(pairs, key=lambda p: p[1])
    assert [i for i, _ in order] == sorted([i for i, _ in pairs], key=lambda i: values[i])


def test_a_reward_that_the_mechanism_cannot_read_is_refused(net: Network, played: TracedRollout) -> None:
    preset = Preset(credit={"group_relative": {}}, reward={"team_outcome": {}, "individual": {}}, **PLAIN)
    with pytest.raises(InputError, match="individual pays a agent, which mechanism group_relative does not read"):
        advantages(preset, played.rollout, played.traces, net, progress=0.0)


def test_the_critic_of_a_prefix_starts_from_what_is_there(net: Network, played: TracedRollout) -> None:
    out = played.rollout
    values, stop = prefix_values(net, out), out.tables["stop"]
    with torch.no_grad():
        going = net.judge_teams(torch.from_numpy(stop["x"]))[0].numpy() * float(net.team_scale) * team_scale(stop)
    assert values[stop["round"], stop["ep"]] == pytest.approx(out.value_TE[stop["round"], stop["ep"]] + going, abs=1e-5)
    assert set(values[0]) == {out.values.mean()}
    assert needs_critic(named_preset("mappo"))
    assert not needs_critic(named_preset("grpo"))


# -- names


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"credit": {"group_relativ": {}}}, "did you mean 'group_relative'"),
        ({"credit": {"group_relative": {"conventoin": "grpo"}}}, "did you mean 'convention'"),
        ({"reward": {"team_outcom": {}}}, "did you mean 'team_outcome'"),
        ({"reward": {"team_outcome": {"chanel": "R1"}}}, "did you mean 'channel'"),
        ({"reward": {"team_outcome": {"weight": "big"}}}, "the weight of team_outcome"),
        ({"loss": {"clip": {"clipp": 0.2}}}, "did you mean 'clip'"),
        ({"loss": {"td": {"gama": 0.2}}}, "did you mean 'gamma'"),
    ],
)
def test_a_wrong_name_is_one_clear_error_before_anything_is_played(changes: dict[str, Any], says: str) -> None:
    preset = dataclasses.replace(named_preset("grpo"), **changes)
    with pytest.raises((InputError, NotFound), match=says):
        check(preset)


def test_traces_must_be_those_of_the_rollout(net: Network, played: TracedRollout) -> None:
    with pytest.raises(InputError, match="3 traces for 8 episodes"):
        advantages(named_preset("grpo"), played.rollout, played.traces[:3], net, progress=0.0)
