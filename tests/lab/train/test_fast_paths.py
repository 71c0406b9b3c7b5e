"""The arithmetic on rollout rows is that of the credit mechanism it stands for, on traces of the same episodes."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch

from counterpoint.credits.groups import group_advantages
from counterpoint.credits.mechanisms import qmix as mechanism
from counterpoint.credits.mechanisms.qmix import qmix
from counterpoint.credits.mechanisms.stop import stop
from counterpoint.credits.mechanisms.task_returns import Step, task_returns
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.losses.td import HEADS, Mixer, beats_of, utilities
from counterpoint.lab.train.returns import _of_group, _would_leave, alternatives, lesson, measure, row_advantages, scored_rows
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from counterpoint.trace import Trace

MIXED = {
    "vote_items": 5, "pool_items": 1, "draft_items": 1, "chain_items": 2, "node_modules": 1, "node_module_size": 3, "max_agents": 5,
    "max_rounds": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def played() -> tuple[Training, Rollout, list[Trace]]:
    """Episodes of the flagship preset, with traces, after critics have been fitted to them."""
    training = Training(settings_of({"preset": "counterpoint", "world": "mixture", "set": MIXED, "updates": 9, "episodes": 8}))
    job = training.job(0, 0, training.weights())
    found = play({**job.payload, "log": True}, job.weights)
    training.fit_critics(found.rollout, steps=8)
    return training, found.rollout, found.traces


def test_item_rows_are_the_returns_along_each_task(played: tuple[Training, Rollout, list[Trace]]) -> None:
    training, out, traces = played
    net, t = training.net, out.tables["item"]
    rows = lesson(net, out, lam=0.9)
    assert rows is not None
    unit = net.scale.numpy()[t["x"][:, :5].argmax(axis=1)].astype(np.float64)
    with torch.no_grad():
        known = net.item_value(torch.from_numpy(scored_rows(t, unit))).squeeze(-1).numpy().astype(np.float64)
        level = net.judge_items(torch.from_numpy(t["x"]))[4].numpy().astype(np.float64)
        chosen = alternatives(net, t)[1].numpy()[np.arange(len(level)), t["choice"]].astype(np.float64)
    leaves = _would_leave(net, t)
    assert (leaves > 0).any()
    names, place = _events(traces, t)

    def steps(trace: Trace) -> list[Step]:
        own = [r for r in t["order"].tolist() if t["ep"][r] == place[trace.trace_id]]
        return [
            Step(names[r], str(t["item"][r]), t["reward"][r] / unit[r], known[r], leaves[r], chosen[r] - level[r]) for r in own
        ]

    called = np.flatnonzero(t["agent"] >= 0)
    for left, want in ((False, rows.advantage), (True, rows.left)):
        found = task_returns(traces, steps=steps, lam=0.9, left=left)
        amount = {(r.trace, r.unit_id): r.value for r in found.rows}
        assert len(found.rows) == len(called) > 50
        assert found.notes["steps_without_event"] == len(t["ep"]) - len(called)
        assert [amount[int(t["ep"][r]), names[r]] for r in called.tolist()] == pytest.approx(want[called].tolist(), abs=1e-9)


def _events(traces: list[Trace], t: dict[str, np.ndarray]) -> tuple[dict[int, str], dict[str, int]]:
    """The brief (or own call) behind each row with a call, and the place of each trace; rows that called nobody have no event."""
    names: dict[int, str] = dict.fromkeys(range(len(t["ep"])), "")
    found: dict[tuple[int, int, int, str], str] = {}
    for ep, trace in enumerate(traces):
        slots = {e.to: e.extra["slot"] for e in trace.events if e.type == "spawn" and e.extra}
        for e in trace.events:
            if e.type == "tool_call":
                slot = slots.get(e.agent, 0)
                found[ep, int(e.turn or 0), slot, str(e.task).split()[1]] = e.id
    for row in np.flatnonzero(t["agent"] >= 0).tolist():
        names[row] = found[int(t["ep"][row]), int(t["round"][row]), int(t["agent"][row]), str(t["item"][row])]
    return names, {trace.trace_id: ep for ep, trace in enumerate(traces)}


def test_stops_are_those_of_the_stop_mechanism(played: tuple[Training, Rollout, list[Trace]]) -> None:
    """All stop times with their chances; in points, where the rows divide by the open items and by a running scale."""
    training, out, traces = played
    t = out.tables["stop"]
    rows = lesson(training.net, out)
    assert rows is not None
    fast = row_advantages(training.net, out, rows)["stop"] * float(training.net.team_scale) * (1.0 + t["open"])
    usable = [ep for ep, trace in enumerate(traces) if _is_told_whole(t, ep, trace)]
    assert len(usable) >= 2
    found = stop([msgspec.structs.replace(traces[ep], meta={**traces[ep].meta, "forced": True}) for ep in usable])
    turns = [{e.id: e.turn for e in traces[ep].events} for ep in usable]
    credit = {(usable[r.trace], turns[r.trace][r.unit_id]): r.value for r in found.rows}
    assert len(credit) > 8
    rows_of = {(int(t["ep"][r]), int(t["round"][r])): r for r in range(len(t["ep"]))}
    assert list(credit.values()) == pytest.approx([fast[rows_of[key]] for key in credit], abs=1e-6)  # type: ignore[index]


def _is_told_whole(t: dict[str, np.ndarray], ep: int, trace: Trace) -> bool:
    """A stop that was only meant is in no trace, and a round without a draft has no payoff of its own there."""
    drafts = sorted(e.turn or 0 for e in trace.events if e.type == "aggregate")
    last = int(t["round"][t["ep"] == ep].max(initial=-1))
    return not t["choice"][t["ep"] == ep].any() and last > 2 and drafts[:1] in ([0], [1]) and drafts == list(range(drafts[0], last + 1))


def test_spawns_are_compared_with_the_others_of_their_task(played: tuple[Training, Rollout, list[Trace]]) -> None:
    _, out, _ = played
    t = out.tables["spawn"]
    first = np.flatnonzero((t["round"] == 0) & (t["role"] == 0))
    values = np.random.default_rng(0).normal(size=len(out.values))
    rows = np.where(t["round"] == 0, values[t["ep"]], 0.0)
    fast = (rows - _of_group(out, rows))[first]
    group = np.unique(out.seeds, return_inverse=True)[1][t["ep"][first]]
    slow = [values[e] - values[[o for o in t["ep"][first] if group[o] == group[e] and o != e]].mean() for e in t["ep"][first]]
    assert fast.tolist() == pytest.approx(slow)
    loo = group_advantages(values[t["ep"][first]], group, "rloo")
    assert fast.tolist() == pytest.approx(loo.tolist())


def test_the_mix_of_a_round_is_that_of_the_qmix_mechanism() -> None:
    training = Training(settings_of({"preset": "qmix", "world": "wide_verify", "set": {"vote_items": 4, "max_rounds": 5}, "updates": 3}))
    job = training.job(0, 0, training.weights())
    found = play({**job.payload, "log": True}, job.weights)
    out, mixer, net = found.rollout, training.module, training.net
    assert isinstance(mixer, Mixer)
    measure(net, out)
    beats = beats_of(out)
    with torch.no_grad():
        chosen, _ = utilities(net, out, beats, 0.7)
        total = mixer(chosen, mixer.states(beats)).numpy()
        weights = [w.numpy().astype(np.float64) for w in mixer.weights(mixer.states(beats))]
    place = {t.trace_id: ep for ep, t in enumerate(found.traces)}
    events = [{e.key: e.id for e in t.events} for t in found.traces]
    # a round in which the team stops has one decision and no mix of five
    whole = [b for b in range(len(beats.ep)) if f"orchestrator|aggregate|{beats.round[b]}" in events[beats.ep[b]]]
    assert len(whole) > 60

    def q(trace: Trace) -> dict[str, float]:
        ep = place[trace.trace_id]
        mine = [(b, i) for b in whole if beats.ep[b] == ep for i in range(len(HEADS))]
        return {events[ep][f"orchestrator|{HEADS[i]}|{beats.round[b]}"]: float(chosen[b, i]) for b, i in mine}

    def mixers(trace: Trace) -> dict[int, mechanism.MixWeights]:
        mine = [b for b in whole if beats.ep[b] == place[trace.trace_id]]
        return {int(beats.round[b]): mechanism.MixWeights(*(w[b] for w in weights[:3]), float(weights[3][b])) for b in mine}

    credit = qmix(found.traces, q=q, mixer=mixers, by="decision")
    assert credit.notes["q_tot"] == pytest.approx([float(total[b]) for b in whole], abs=1e-5)
    inputs = chosen.clone().requires_grad_()
    mixer(inputs, mixer.states(beats)).sum().backward()
    assert inputs.grad is not None
    for b, slope in zip(whole, credit.notes["gradient"], strict=True):
        assert list(slope.values()) == pytest.approx(inputs.grad[b].tolist(), abs=1e-5)
    without = chosen.clone()
    without[:, 2] = 0.0  # delegation at its default
    with torch.no_grad():
        loses = total - mixer(without, mixer.states(beats)).numpy()
    rows = {(r.trace, r.unit_id): r.value for r in credit.rows}
    for b in whole:
        name = events[beats.ep[b]][f"orchestrator|delegate|{beats.round[b]}"]
        assert rows[int(beats.ep[b]), name] == pytest.approx(float(loses[b]), abs=1e-5)


