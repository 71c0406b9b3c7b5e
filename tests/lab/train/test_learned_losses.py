"""Imitation, preferences, flows and joint critics: the sheet's numbers through the losses, and what each may not read."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from counterpoint import registry
from counterpoint.credits.advantages import td_lambda
from counterpoint.credits.mechanisms.coma import counterfactual_advantages
from counterpoint.credits.mechanisms.shapley_q import sampled_marginals, shapley_q
from counterpoint.errors import InputError
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.learner import LossRows
from counterpoint.lab.train.losses.anchor_tb import end_flow, span_loss
from counterpoint.lab.train.losses.dpo import noted_pairs, task_pairs, unit_rows
from counterpoint.lab.train.losses.joint_critic import ACTS, Acts, JointCritic, Options, _marginals, coma_advantages, targets
from counterpoint.lab.train.losses.sft import imitation_loss, row_weights
from counterpoint.lab.train.losses.td import Beats, beats_of
from counterpoint.lab.train.objectives import dpo_loss
from counterpoint.lab.train.rollouts import TracedRollout
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from counterpoint.trace.example import rollouts
from credits.vectors import TOLERANCE
from lab.train.quick import TINY

t = torch.tensor
close = lambda x: pytest.approx(x, abs=TOLERANCE)  # noqa: E731


def begun(change: dict[str, Any], preset: str = "grpo") -> tuple[Training, TracedRollout]:
    settings = {"preset": preset, "world": "wide_verify", "set": TINY, "updates": 4, "budget_calls": 0, "change": change}
    training = Training(settings_of(settings))
    job = training.job(0, 0, training.weights())
    return training, play(job.payload, job.weights)


# -- sft


def test_what_failed_has_no_weight() -> None:
    """SiriuS: a trace that failed and was not repaired does not count."""
    rows = {"stop": LossRows(np.arange(3), np.zeros(3), np.array([0.5, -0.5, 0.1]), np.ones(3))}
    assert row_weights(rows, 0.0)["stop"].tolist() == [1, 0, 1]
    assert row_weights(rows, 0.2, "credit")["stop"] == pytest.approx([0.3, 0, 0])
    assert row_weights(rows, 0.5) == {}
    logp = {"stop": t([-1.0, -5.0, -3.0], requires_grad=True)}
    loss = imitation_loss(logp, rows, row_weights(rows, 0.0))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(2.0)
    assert logp["stop"].grad.tolist() == [-0.5, 0.0, -0.5]  # type: ignore[union-attr]


# -- dpo


@pytest.mark.parametrize(("logps", "loss"), [((-10, -12, -11, -10), 0.554355), ((-20, -22, -25, -22), 0.474077)])  # MALT, OWL
def test_dpo_in_the_sheets_numbers(logps: tuple[float, ...], loss: float) -> None:
    better, better_ref, worse, worse_ref = (t([float(x)]) for x in logps)
    got = dpo_loss(better, better_ref, worse, worse_ref, 0.1).numpy()
    assert got == close([loss])


def test_pairs_of_a_task_go_from_the_ends_inwards() -> None:
    value, task = np.array([1.0, 3.0, 2.0, 0.0, 5.0, 5.0]), np.array([7, 7, 7, 7, 8, 8])
    assert task_pairs(value, task) == [(1, 3), (2, 0)]  # of task 8 nobody is better


def test_preferences_move_the_better_up_and_the_worse_down() -> None:
    training, played = begun({"regime": "A", "credit": {"convention": "dr_grpo"}})
    training.loss = registry.get("loss", "dpo")
    training.loss_options = training.loss.resolved({})
    training.module = training.loss.module()  # type: ignore[misc]
    before = training.weights()
    row = training.learn([played])
    assert row["loss"] < float(np.log(2))  # at the reference every pair has log 2
    held = training.module.network(training.net).state_dict()  # type: ignore[union-attr]
    assert all((held[k].numpy() == before[k]).all() for k in ("purpose.weight", "stop.weight"))


def test_pairs_that_a_mechanism_notes_are_turns_or_events() -> None:
    change = {"tree": [2, 2, 2], "regime": "A"}
    _training, played = begun(change)
    malt = registry.get("mechanism", "malt")
    turns = malt(played.traces, by="turn", leaf="better")
    pairs = noted_pairs(turns, played.traces)
    assert pairs
    for (a, now, event), (b, then, other) in pairs:
        assert (now, event) == (then, other)
        assert played.traces[a].task_id == played.traces[b].task_id
    out = played.rollout
    types = ("item", "stop", "spawn", "brief", "point", "rule", "talk")
    ep, now, _ = pairs[0][0]
    found = unit_rows(out, (ep, now, None), played.traces, [n for n in types if n in out.tables or n in ("brief", "point")])
    for name, rows in found.items():
        table = out.tables["item" if name in ("brief", "point") else name]
        assert set(table["ep"][rows]) == {ep}
        assert set(table["round"][rows]) == {now}
    brief = next(e for e in played.traces[0].events if e.type == "message")
    one = unit_rows(out, (0, brief.turn, brief.id), played.traces, types[:4])
    assert all(len(rows) == 1 for rows in one.values())
    assert set(one) == {"item", "brief"}
    plain = registry.get("mechanism", "group_relative")(rollouts())
    with pytest.raises(InputError, match="notes no pairs"):
        noted_pairs(plain, rollouts())


# -- anchor_tb


def test_flows_in_the_sheets_numbers() -> None:
    flow, ratio = t([1.0, 1.2]), t([0.1, -0.2], requires_grad=True)
    end = torch.from_numpy(end_flow(np.array([1.0]), 2.0).astype(np.float32))
    assert float(end) == pytest.approx(2.0)
    loss = span_loss(flow, ratio, end, np.array([0, 0]))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.74, abs=1e-6)
    assert ratio.grad.tolist() == pytest.approx([-0.8, -1.4], abs=1e-5)  # type: ignore[union-attr]


def test_spans_of_one_episode_do_not_reach_into_the_next() -> None:
    rng = np.random.default_rng(1)
    flow, ratio = rng.normal(size=5), rng.normal(size=5)
    end = rng.normal(size=2)

    def by_hand(f: np.ndarray, r: np.ndarray, e: float) -> float:
        states, steps = [*f, e], list(r)
        spans = [(i, j) for i in range(len(states)) for j in range(i + 1, len(states))]
        return float(np.mean([(states[i] + sum(steps[i:j]) - states[j]) ** 2 for i, j in spans]))

    got = span_loss(*(torch.from_numpy(x.astype(np.float32)) for x in (flow, ratio, end)), np.array([3, 3, 3, 9, 9]))
    assert float(got) == pytest.approx((by_hand(flow[:3], ratio[:3], end[0]) + by_hand(flow[3:], ratio[3:], end[1])) / 2, rel=1e-5)


# -- joint critics


def test_maddpgs_target_and_polyak() -> None:
    """r 0.5, gamma 0.95, the target's Q of the next state 2: y = 2.4; a target of 1 and a network of 2: 1.01."""
    _training, played = begun({"regime": "A"})
    out, critic = played.rollout, JointCritic()
    beats = beats_of(out)
    unit = float(out.config.items)
    with torch.no_grad():
        critic.target[-1].bias.fill_(2.0)  # type: ignore[union-attr,operator]
    flat = Beats(beats.ep, beats.round, beats.x, beats.seen, np.full(len(beats.ep), 0.5 * unit), beats.last)
    spread = max(float(((out.values - out.value_TE[0]) / out.config.items).std()), 1e-3)
    acts = torch.zeros(len(beats.ep), ACTS)
    y = targets(critic, out, flat, acts, acts, Options()).numpy()
    assert y[~beats.last] == pytest.approx(0.5 / spread + 0.95 * 2.0)  # in units of the returns' spread
    assert y[beats.last] == pytest.approx(0.5 / spread)
    with torch.no_grad():
        for p, q in zip(critic.net.parameters(), critic.target.parameters(), strict=True):
            p.fill_(2.0)
            q.fill_(1.0)
    critic.follow(0.01)
    assert all(torch.allclose(p, t(1.01)) for p in critic.target.parameters())


def test_comas_numbers() -> None:
    got = counterfactual_advantages([1.0, 0.4, -0.2], [0.5, 0.3, 0.2])
    assert got[0] == pytest.approx(0.42)
    assert td_lambda([0, 1], [0.6, 0.0], gamma=0.99, lam=0.8, done=[0, 1]) == pytest.approx([0.9108, 1.0])


def test_comas_advantages_are_those_of_the_mechanism_on_traces() -> None:
    """The stop decisions of the first episode, judged by `coma` from Q and pi of both alternatives."""
    training, played = begun({"regime": "A"})
    out, critic = played.rollout, JointCritic()
    torch.manual_seed(0)
    for p in critic.net.parameters():
        torch.nn.init.normal_(p, std=0.2)
    beats = beats_of(out)
    found = coma_advantages(training.net, critic, out, beats)
    stop = out.tables["stop"]
    rows = np.flatnonzero(stop["ep"] == 0)
    with torch.no_grad():
        taken = Acts(out, beats).matrix(training.net, relaxed=False)
        at = beats.place({"ep": stop["ep"][rows], "round": stop["round"][rows]}, len(out.value_TE))
        x, q = critic.states(beats), []
        for option in (1.0, 0.0):  # the options of the event: stop, continue
            other = taken[at].clone()
            other[:, 0] = option
            q.append(critic.values(x[at], other)[:, 0].numpy())
        chance = torch.sigmoid(training.net.teams(torch.from_numpy(stop["x"][rows]))[0]).numpy().astype(np.float64)
    trace = played.traces[0]
    events = {e.turn: e.id for e in trace.events if (e.extra or {}).get("sub_decision") == "stop"}
    mechanism = registry.get("mechanism", "coma")
    told = mechanism(
        [trace],
        q=lambda _: {events[int(now)]: [q[0][i], q[1][i]] for i, now in enumerate(stop["round"][rows])},
        pi=lambda _: {events[int(now)]: [chance[i], 1 - chance[i]] for i, now in enumerate(stop["round"][rows])},
    )
    by_event = {r.unit_id: r.value for r in told.rows}
    assert [by_event[events[int(now)]] for now in stop["round"][rows]] == pytest.approx(found["stop"][rows].tolist(), abs=1e-5)


def test_shapley_q_in_the_sheets_numbers() -> None:
    v = {(): 0.0, (0,): 0.2, (1,): 0.0, (2,): 0.0, (0, 1): 0.6, (0, 2): 0.2, (1, 2): 0.0, (0, 1, 2): 1.0}
    marginal = lambda before, who: v[tuple(sorted((*before, who)))] - v[tuple(sorted(before))]  # noqa: E731
    two = sampled_marginals(marginal, [(0, 1, 2), (2, 1, 0)])
    assert [two[i] for i in range(3)] == pytest.approx([0.6, 0.2, 0.2])
    every = sampled_marginals(marginal, [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
    assert [every[i] for i in range(3)] == close([0.533333, 0.333333, 0.133333])
    with pytest.raises(InputError, match="no orders"):
        sampled_marginals(marginal, [])


def test_the_critics_marginals_are_the_mechanisms() -> None:
    """phi of one round by the loss, and by `shapley_q` on a trace whose agents stand for the five sub-decisions' acts."""
    critic = JointCritic()
    torch.manual_seed(1)
    for p in critic.net.parameters():
        torch.nn.init.normal_(p, std=0.2)
    x, acts = torch.randn(1, critic.first.numel()), torch.randn(1, ACTS)
    orders = np.array([[0, 1, 2, 3, 4], [4, 2, 0, 1, 3]])

    def psi(before: tuple[int, ...], who: int) -> float:
        present = torch.zeros(1, 5)
        present[0, [*before, who]] = 1
        return float(critic.values(x, acts, present)[0, who].detach())

    phi = sampled_marginals(psi, orders.tolist())
    with torch.no_grad():
        assert _marginals(critic, x, acts, orders)[0].tolist() == pytest.approx([phi[i] for i in range(5)], abs=1e-6)
    trace = rollouts()[0]
    told = shapley_q([trace], marginal=lambda _: lambda before, who: float(len(before)), orders=400)
    assert [r.value for r in told.rows] == pytest.approx([1.5] * 4, abs=0.2)  # the mean place among four


# -- what agreement may not read


def test_agreement_never_reads_the_truth() -> None:
    """With every reward of every trace changed, the same is learned."""
    agreement = registry.get("mechanism", "agreement")
    ends = []
    for sign in (1.0, -7.0):
        training, played = begun({"regime": "C", "delegate": "agent"}, "dr_mas")
        lied = [msgspec.structs.replace(x, rewards={k: sign * v for k, v in x.rewards.items()}) for x in played.traces]
        training.preset = training.preset.changed({})
        credit = agreement(lied)
        ends.append([(r.trace, r.unit_id, r.value) for r in credit.rows])
    assert ends[0] == ends[1]
    assert {v for _, _, v in ends[0]} == {0.0, 1.0}


def test_agreement_by_hand() -> None:
    agreement = registry.get("mechanism", "agreement")
    trace = rollouts()[1]  # claims 1, 0, 1 on item 1 and 0, 1, 0 on item 2
    got = {(trace.events[trace.index[r.unit_id]].agent, trace.events[trace.index[r.unit_id]].task): r.value for r in agreement([trace]).rows}
    tasks = sorted({task for _, task in got})
    assert [[got[w, task] for w in ("w1", "w2", "w3")] for task in tasks] == [[1, 0, 1], [1, 0, 1]]
