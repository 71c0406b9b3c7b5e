"""Presets of policy-gradient, value, imitation and preference methods: the number by which each is recognised, through its own
mechanism or loss with the preset's options; and a few updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from counterpoint import registry
from counterpoint.credits.advantages import td_lambda
from counterpoint.credits.mechanisms.agent_lightning import token_divisors
from counterpoint.credits.mechanisms.coma import counterfactual_advantages
from counterpoint.credits.mechanisms.shapley_q import sampled_marginals
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.losses.anchor_tb import end_flow, span_loss
from counterpoint.lab.train.losses.dpo import dpo_loss
from counterpoint.lab.train.losses.joint_critic import ACTS, JointCritic, targets
from counterpoint.lab.train.losses.td import Beats, Mixer, beats_of
from counterpoint.lab.train.preset import named_preset
from counterpoint.lab.train.settings import Settings
from counterpoint.lab.train.surrogates import joined_loss, unit_codes
from counterpoint.lab.train.training import Training
from counterpoint.rewards.paying import pay
from counterpoint.trace import Event, Trace
from counterpoint.trace.rows import Credit
from lab.train.quick import TINY

near = lambda x: pytest.approx(x, abs=1e-5)  # noqa: E731
t = torch.tensor


def trace(name: str, reward: float, *steps: Mapping[str, Any], task: str = "q") -> Trace:
    """One message after another, each with words of its own unless it says others."""
    about = {"type": "message", "agent": "a", "role": "worker"}
    events = [Event(**{"id": f"e{i}", "t": i, "turn": i, "content_ref": f"{name} {i}", **about, **s}) for i, s in enumerate(steps)]
    return Trace(trace_id=name, task_id=task, events=events, rewards={"team": reward})


def credited(name: str, traces: Sequence[Trace], **more: Any) -> Credit:
    preset = named_preset(name)
    return registry.get("mechanism", preset.credit_name)(traces, **{**preset.credit[preset.credit_name], **more})  # type: ignore[no-any-return]


def loss_options(name: str) -> Any:
    preset = named_preset(name)
    return registry.get("loss", preset.loss_name).resolved(preset.loss[preset.loss_name])


def steps(values: Sequence[float], rewards: Sequence[float] = ()) -> tuple[Trace, dict[str, Any]]:
    paid = [{"reward": {"team": r}} for r in rewards] or [{}] * len(values)
    return trace("one", 1.0, *paid), {"value": lambda _: list(values)}


def _ppo() -> None:
    one, critic = steps([0.2, 0.4, 0.6])
    assert list(credited("ppo", [one], **critic, preset="plain").of(0).values()) == near([0.751, 0.58, 0.4])
    assert list(credited("ppo", [one], **critic).of(0).values()) == near([0.991344, 0.017092, -1.008436])


def _ippo() -> None:
    steps_ = [{"agent": w, "turn": i} for i in (0, 1) for w in ("a", "b")]
    one = trace("one", 1.0, *steps_)
    told = credited("ippo", [one], value=lambda _: [0.3, 0.5, 0.6, 0.8], normalise=None).of(0)
    assert [told["a#0"], told["a#1"]] == near([0.6702, 0.4])  # b's steps are in another chain


def _marft() -> None:
    one = trace("one", 1.0, *({"agent": w, "turn": 0} for w in "abc"))
    told = credited("marft", [one], value=lambda _: [0.3, 0.5, 0.6], gamma=0.99, lam=0.95, normalise=False)
    assert list(told.of(0).values()) == near([0.637223, 0.4702, 0.4])


def _collm_maac() -> None:
    one, critic = steps([0.5, 0.6, 0.7], [0.1, 0.2, 1.0])
    assert list(credited("collm_maac", [one], **critic, preset="plain", lam=0.0).of(0).values()) == near([0.2, 0.3, 0.3])
    three = [trace(f"t{i}", r, {}) for i, r in enumerate((0.7, 0.8, 0.4))]
    told = credited("collm_maac", three, value=lambda _: [0.5])
    assert [told.of(i)["a#0"] for i in range(3)] == near([0.392232, 0.980581, -1.372813])


def _vdn() -> None:
    mixer, options = Mixer(), loss_options("vdn")
    for p in mixer.level.parameters():
        torch.nn.init.zeros_(p)
    q = t([[1.0, 0.5, -0.2, 0.0, 0.0]], requires_grad=True)
    total = mixer(q, torch.zeros(1, mixer.first.numel()), mix=options.mix)
    total.sum().backward()
    assert float(total.detach()) == near(1.3)
    assert q.grad.tolist() == [[1.0] * 5]  # type: ignore[union-attr]


def _maddpg() -> None:
    run = begun("maddpg")
    job = run.job(0, 0, run.weights())
    out, critic = play(job.payload, job.weights).rollout, JointCritic()
    beats, critic.unit = beats_of(out), t(1.0)
    out.values = out.value_TE[0] + out.config.items * np.where(np.arange(len(out.values)) % 2, 1.0, -1.0)  # their spread is 1
    flat = Beats(beats.ep, beats.round, beats.x, beats.seen, np.full(len(beats.ep), 0.5 * out.config.items), beats.last)
    with torch.no_grad():
        critic.target[-1].bias.fill_(2.0)  # type: ignore[union-attr,operator]
    acts = torch.zeros(len(beats.ep), ACTS)
    y = targets(critic, out, flat, acts, acts, loss_options("maddpg")).numpy()
    assert y[~beats.last] == near(np.full_like(y[~beats.last], 2.4))
    with torch.no_grad():
        for now, then in zip(critic.net.parameters(), critic.target.parameters(), strict=True):
            now.fill_(2.0)
            then.fill_(1.0)
    critic.follow(loss_options("maddpg").polyak)
    assert all(torch.allclose(p, t(1.01)) for p in critic.target.parameters())


def _coma() -> None:
    assert counterfactual_advantages([1.0, 0.4, -0.2], [0.5, 0.3, 0.2])[0] == near(0.42)
    o = loss_options("coma")
    assert td_lambda([0, 1], [0.6, 0.0], gamma=o.gamma, lam=o.lam, done=[0, 1]) == near([0.9108, 1.0])


def _shapley_q() -> None:
    v = {(): 0.0, (0,): 0.2, (1,): 0.0, (2,): 0.0, (0, 1): 0.6, (0, 2): 0.2, (1, 2): 0.0, (0, 1, 2): 1.0}
    phi = sampled_marginals(lambda s, i: v[tuple(sorted((*s, i)))] - v[tuple(sorted(s))], [(0, 1, 2), (2, 1, 0)])
    assert [phi[i] for i in range(3)] == near([0.6, 0.2, 0.2])


def _tree(leaves: Sequence[float], fans: Sequence[int]) -> list[Trace]:
    """Rollouts of a tree with these leaves: a step per level, the words of a step being its branch."""
    out = []
    for i, leaf in enumerate(leaves):
        below, words = len(leaves), []
        for fan in fans:
            below //= fan
            words.append({"content_ref": f"branch {i // below}", "agent": f"role {len(words)}"})
        out.append(trace(f"t{i}", leaf, *words))
    return out


def _malt() -> None:
    traces = _tree([1, 0, 1, 1, 0, 0, 1, 0], (2, 2, 2))
    told = credited("malt", traces, leaf="reward")
    assert [told.of(i)["role 0#0"] for i in (0, 4)] == [0.75, 0.25]
    assert [told.of(i)["role 1#1"] for i in (0, 2, 4, 6)] == [0.5, 1.0, 0.0, 0.5]
    pairs = {(a.split()[0], b.split()[0], a.split()[-1]) for a, b in told.notes["pairs"]}
    assert ("t0", "t4", "0#0") in pairs
    assert ("t2", "t0", "1#1") in pairs
    assert len(pairs) == 4  # and one of refiners under each verifier whose refinements differ
    assert _preferred("malt", -10, -12, -11, -10) == near(0.554355)


def _preferred(name: str, *logps: float) -> float:
    return float(dpo_loss(*(t(float(x)) for x in logps), loss_options(name).beta))


def _owl() -> None:
    assert _preferred("owl", -20, -22, -25, -22) == near(0.474077)


def _sirius() -> None:
    preset, run = named_preset("sirius"), begun("sirius")
    assert preset.loss_name == "sft"
    told = credited("sirius", [trace(f"t{i}", r, {}) for i, r in enumerate((1.0, 0.0, 0.0, 1.0))])
    assert [told.of(i)[""] > loss_options("sirius").above for i in range(4)] == [True, False, False, True]
    assert run.preset.credit_name == "group_relative"


def _multiagent_ft() -> None:
    """Rewards that are all changed change nothing: the truth is not read."""
    ends = []
    for sign in (1.0, -3.0):
        run = begun("multiagent_ft")
        job = run.job(0, 0, run.weights())
        played = play(job.payload, job.weights)
        played.traces[:] = [msgspec.structs.replace(x, rewards={k: sign * r for k, r in x.rewards.items()}) for x in played.traces]
        run.learn([played])
        ends.append(run.weights())
    assert all((ends[0][k] == ends[1][k]).all() for k in ends[0])
    votes = [{"agent": a, "task": "vote 1", "extra": {"claim": c}} for a, c in (("a", 1), ("b", 1), ("c", 0))]
    assert list(credited("multiagent_ft", [trace("t", 0.0, *votes)]).of(0).values()) == [1, 1, 0]


def _rema() -> None:
    told = credited("rema", [trace(f"t{i}", r, {}, {}) for i, r in enumerate((1.0, 0.0, 0.0, 1.0))])
    assert [told.of(i)["a#1"] for i in range(4)] == near([0.866024, -0.866024, -0.866024, 0.866024])
    zero, o = np.zeros(4, np.int64), loss_options("rema")
    unit = unit_codes(zero, np.array([0, 0, 1, 1]), 0, o.level)
    assert float(joined_loss(t([0.1, 0.3, -0.2, 0.2]), torch.ones(4), zero, unit, o)) == near(-1.1)


def _marti_mars2() -> None:
    scores, words = [[0.2, 0.8], [0.2, 0.4], [0.6, 1.0]], [[0, 1], [0, 2], [3, 4]]
    traces = [trace(f"t{i}", 0.0, *({"reward": {"R2": r}, "content_ref": f"node {n}"} for r, n in zip(s, w, strict=True)))
              for i, (s, w) in enumerate(zip(scores, words, strict=True))]  # fmt: skip
    told = credited("marti_mars2", traces, **named_preset("marti_mars2").as_released["credit"])
    got = [told.of(0)["a#0"], told.of(2)["a#0"], told.of(0)["a#1"], told.of(1)["a#1"], told.of(2)["a#1"]]
    assert got == near([-1.264911, 0.0, 0.632456, -0.632456, 1.264911])
    zero = np.zeros(3, np.int64)
    assert float(-joined_loss(t([0.2, -0.1, 0.05]), torch.ones(3), zero, zero, loss_options("marti_mars2"))) == near(1.051271)


def _kimi_parl() -> None:
    log_ratio, zero = t([0.1, -0.05, 0.9, 0.0, -0.1]), np.zeros(5, np.int64)
    told = credited("kimi_parl", [trace("t0", 1.0, {"role": "orchestrator"}), trace("t1", 0.0, {"role": "orchestrator"})])
    advantage = t([told.of(0)["a"]] * 2 + [told.of(1)["a"]] * 3)
    assert float(-joined_loss(log_ratio, advantage, zero, zero, loss_options("kimi_parl"))) == near(-0.201494)


def _evosteer() -> None:
    ratio = t([0.1, -0.2], requires_grad=True)
    end = torch.from_numpy(end_flow(np.ones(1), loss_options("evosteer").beta).astype(np.float32))
    loss = span_loss(t([1.0, 1.2]), ratio, end, np.zeros(2, np.int64))
    loss.backward()
    assert float(loss.detach()) == near(0.74)
    assert ratio.grad.tolist() == near([-0.8, -1.4])  # type: ignore[union-attr]


def _dec_pomdp() -> None:
    """The same as a preset with the spawns masked: all other decisions get what they would get."""
    found = []
    for fixed in (True, False):
        run = begun("dec_pomdp")
        run.preset = run.preset.changed({"fixed_team": fixed})
        job = run.job(0, 0, run.weights())
        played = play(job.payload, job.weights)
        found.append(run.advantages(played.rollout, played.traces)[0])
    assert set(found[1]) - set(found[0]) == {"spawn"}
    assert all((found[0][name] == found[1][name]).all() for name in found[0])
    spawn = played.rollout.tables["spawn"]
    assert spawn["choice"][spawn["round"] == 0].mean() > 0.9


def _magrpo() -> None:
    told = credited("magrpo", [trace(f"t{i}", r, {}, {"agent": "b"}) for i, r in enumerate((0.2, 0.6, 1.0, 0.2))])
    assert [told.of(i) for i in range(4)] == [near({"a": a, "b": a}) for a in (-0.3, 0.1, 0.5, -0.3)]


def _c3_replay() -> None:
    traces = _tree([1, 1, 0, 1, 0, 0, 1, 0], (2, 4))
    plain = credited("c3_replay", traces, normalise=False)
    assert [plain.of(i)["role 0#0"] for i in (0, 4)] == near([0.5, -0.5])
    assert [plain.of(i)["role 1#1"] for i in range(4)] == near([0.333333, 0.333333, -1.0, 0.333333])
    assert credited("c3_replay", traces).of(2)["role 1#1"] == near(-1.732051)


def _agent_lightning() -> None:
    told = credited("agent_lightning", [trace("t0", 1.0, {}, {}), trace("t1", 0.0, {})])
    assert [told.of(0)["a#0"], told.of(0)["a#1"], told.of(1)["a#0"]] == near([0.707106, 0.707106, -0.707106])
    assert token_divisors([0, 0, 1], [10, 30, 20]).tolist() == [120, 120, 60]
    ep, zero = np.array([0, 0, 1]), torch.zeros(3)
    loss = joined_loss(zero, t([1.0, 1.0, -1.0]), ep, ep, loss_options("agent_lightning"))
    assert float(loss) == near(0.0)  # a rollout of two transitions weighs as much as one of one


def _difference_rewards() -> None:
    one = trace("t", 1.0, {"agent": "a"}, {"agent": "b"}, {"agent": "c"})
    told = credited("difference_rewards", [one], counterfactual=lambda _, who: {"a": 0.4, "b": 1.0, "c": 0.7}[who], also=())
    assert list(told.of(0).values()) == near([0.6, 0.0, 0.3])


def _depart() -> None:
    preset = named_preset("depart")
    dense = [{"role": "orchestrator", "reward": {"R3": r}} for r in (0.5, 1.0)] + [{"reward": {"R2": r}} for r in (1.0, 0.0, 1.0)]
    one = trace("t", 1.0, *dense)
    paid = pay(preset.reward, [one], tasks=np.zeros(1), reader=preset.credit_name)
    assert paid.signals is not None
    assert dict(zip(paid.signals.unit_ids, paid.signals.values.tolist(), strict=True)) == near({"orchestrator": 1.375, "worker": 1.333333})
    assert preset.learning(0) != preset.learning(preset.alternate)


def _ccpo() -> None:
    """Without a, one of four is right: the mean of those verdicts is -0.5; without b, three: 0.5. The lead has no bonus."""
    right, without = [1, 1, 0, 0], {"a": [0, 1, 0, 0], "b": [1, 1, 1, 0], "lead": [0, 0, 0, 0]}
    lead = {"agent": "lead", "role": "orchestrator", "type": "orchestrator_decision"}
    traces = [trace(f"t{i}", float(r), lead, {}, {"agent": "b"}) for i, r in enumerate(right)]

    def worth(one: Trace, names: Any) -> float:
        i, gone = int(one.trace_id[1:]), {"lead", "a", "b"} - set(names)
        return float(without[gone.pop()][i] if gone else right[i])

    told = credited("ccpo", traces, give="reward", worth=worth)
    assert [told.of(i)["lead"] for i in range(4)] == [1.0, 1.0, -1.0, -1.0]
    assert [told.of(i)["a"] for i in range(4)] == near([1.2, 1.2, -1.0, -1.0])  # helped, also where that rollout needed nobody
    assert [told.of(i)["b"] for i in range(4)] == near([1.0, 1.0, -1.2, -1.2])  # hurt
    assert [credited("ccpo", traces, worth=worth).of(i)["a"] for i in range(4)] == near([1.1, 1.1, -1.1, -1.1])


CASES: Mapping[str, Callable[[], None]] = {
    f.__name__[1:]: f
    for f in (_ppo, _ippo, _marft, _collm_maac, _vdn, _maddpg, _coma, _shapley_q, _malt, _owl, _sirius, _multiagent_ft, _rema, _marti_mars2,
              _kimi_parl, _evosteer, _dec_pomdp, _magrpo, _c3_replay, _agent_lightning, _difference_rewards, _depart, _ccpo)
}  # fmt: skip


def begun(name: str) -> Training:
    return Training(Settings(preset=name, world="wide_verify", set=TINY, updates=8, episodes=max(4, named_preset(name).group)))


@pytest.mark.parametrize("name", CASES)
def test_it_has_its_papers_number_and_runs(name: str) -> None:
    CASES[name]()
    run = begun(name)
    before = run.weights()
    for _ in range(7 if name in ("maddpg", "shapley_q", "vdn") else 2):  # which wait for a critic, or a level
        job = run.job(run.update, run.update, run.weights())
        row = run.learn([play(job.payload, job.weights)])
    assert np.isfinite(row["loss"])
    assert any((w != before[k]).any() for k, w in run.weights().items() if k.startswith(("purpose", "for_", "brief", "query", "pair", "worker.")))
