"""The joint critic in numbers by hand: acts as vectors, targets, what learns and what may not, counterfactuals by brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.losses import joint_critic as module
from counterpoint.lab.train.losses.joint_critic import ACTS, Acts, JointCritic, Options, coma_advantages, pointer, targets
from counterpoint.lab.train.losses.td import Beats, beats_of
from counterpoint.lab.train.policies.features import AGENT, PAIR
from counterpoint.lab.train.policies.network import HEADS, PURPOSES
from counterpoint.lab.train.rollouts import TracedRollout
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from lab.train.quick import TINY

STOP, SPAWN = 0, 1
DELEGATE = 3
COMMUNICATE = DELEGATE + len(PURPOSES) + AGENT + PAIR
AGGREGATE = COMMUNICATE + 6


def begun(**options: Any) -> tuple[Training, TracedRollout]:
    settings = {"preset": "grpo", "world": "wide_verify", "set": TINY, "updates": 4, "budget_calls": 0, "change": {"regime": "A"}}
    training = Training(settings_of(settings))
    training.loss = registry.get("loss", "joint_critic")
    training.loss_options = training.loss.resolved(options)
    torch.manual_seed(5)
    training.module = training.loss.module()  # type: ignore[misc]
    training.policy.add_param_group({"params": list(training.module.parameters()), "lr": 1e-2})
    job = training.job(0, 0, training.weights())
    return training, play(job.payload, job.weights)


@pytest.fixture(scope="module")
def made() -> tuple[Training, TracedRollout]:
    return begun()


def rough(seed: int = 0) -> JointCritic:
    """A critic that tells everything apart."""
    torch.manual_seed(seed)
    critic = JointCritic()
    for p in [*critic.net.parameters(), *critic.target.parameters()]:
        torch.nn.init.normal_(p, std=0.2)
    return critic


def where(beats: Beats, t: Any, rounds: int) -> np.ndarray:
    return np.array([int(np.flatnonzero((beats.ep == e) & (beats.round == r))[0]) for e, r in zip(t["ep"], t["round"], strict=True)])


def test_the_acts_stand_one_behind_the_other() -> None:
    assert HEADS == ("stop", "spawn", "delegate", "communicate", "aggregate")
    from counterpoint.lab.worlds.teamworld.config import RULES

    assert AGGREGATE + len(RULES) == ACTS
    with pytest.raises(InputError, match=r"actor is 'comma'.*'coma'"):
        Options(actor="comma")


def test_it_begins_by_knowing_nothing_and_its_target_alike() -> None:
    critic = JointCritic()
    x, acts = torch.randn(3, critic.first.numel()), torch.randn(3, ACTS)
    assert critic.values(x, acts).abs().max() == 0
    for a, b in zip(critic.net.parameters(), critic.target.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_acts_of_a_head_that_is_absent_are_not_read() -> None:
    critic = rough()
    x, acts = torch.randn(2, critic.first.numel()), torch.randn(2, ACTS)
    other = acts.clone()
    other[:, DELEGATE:COMMUNICATE] += 1.0
    present = torch.ones(2, 5)
    present[:, 2] = 0
    with torch.no_grad():
        assert torch.equal(critic.values(x, acts, present), critic.values(x, other, present))
        assert not torch.allclose(critic.values(x, acts), critic.values(x, other))
        assert not torch.allclose(critic.values(x, acts), critic.values(x, acts, present))
        assert torch.equal(critic.values(x, acts), critic.values(x, acts, torch.ones(2, 5)))
        assert not torch.allclose(critic.values(x, acts), critic.values(x, acts, target=True))


def test_where_no_features_were_recorded_a_learned_row_stands() -> None:
    critic = JointCritic()
    with torch.no_grad():
        critic.first.fill_(7.0)
    size = critic.first.numel()
    beats = Beats(np.zeros(2, int), np.arange(2), np.ones((2, size), np.float32), np.array([True, False]), np.zeros(2), np.array([False, True]))
    assert critic.states(beats).tolist() == [[1.0] * size, [7.0] * size]


def test_the_target_policy_follows_by_its_share(made: tuple[Training, TracedRollout]) -> None:
    training, _ = made
    critic, net = JointCritic(), training.net.twin()
    critic.follow_policy(net, 0.5)
    held = {k: v.clone() for k, v in critic.policy.held.items()}
    assert all(torch.equal(held[k], v) for k, v in net.state_dict().items())
    with torch.no_grad():
        for p in net.parameters():
            p.add_(1.0)
    critic.follow_policy(net, 0.25)
    for name, now in net.state_dict().items():
        assert torch.allclose(critic.policy.held[name], 0.75 * held[name] + 0.25 * now, atol=1e-6)


@pytest.mark.parametrize("relaxed", [False, True])
def test_acts_are_means_of_choices_or_of_chances(made: tuple[Training, TracedRollout], relaxed: bool) -> None:
    training, played = made
    out, beats, net = played.rollout, beats_of(played.rollout), training.net
    acts = Acts(out, beats)
    with torch.no_grad():
        got = acts.matrix(net, relaxed=relaxed).numpy()
        wanted = np.zeros_like(got)
        logits: list[torch.Tensor] = []

        def add(name: str, column: int, vectors: torch.Tensor, rows: Any = slice(None)) -> None:
            t = {"ep": out.tables[name]["ep"][rows], "round": out.tables[name]["round"][rows]}
            at = where(beats, t, len(out.value_TE))
            for beat in np.unique(at):
                wanted[beat, column : column + vectors.shape[1]] += vectors.numpy()[at == beat].mean(axis=0)

        def one_hot(scores: torch.Tensor, choice: np.ndarray) -> torch.Tensor:
            return scores.softmax(-1) if relaxed else torch.eye(scores.shape[1])[choice]

        stop, spawn, rule, item = (out.tables[n] for n in ("stop", "spawn", "rule", "item"))
        logit = net.teams(torch.from_numpy(stop["x"]))[0]
        logits.append(logit)
        add("stop", STOP, (torch.sigmoid(logit) if relaxed else torch.from_numpy(stop["choice"].astype(np.float32)))[:, None])
        gate, size = net.roles(torch.from_numpy(spawn["x"]))
        logits.append(gate)
        go = torch.sigmoid(gate) if relaxed else torch.from_numpy(spawn["choice"].astype(np.float32))
        wish = size if relaxed else torch.from_numpy(spawn["size"].astype(np.float32))
        add("spawn", SPAWN, torch.stack([go, go * wish], 1))
        _, ruled, talk = net.teams(torch.from_numpy(rule["x"]))
        logits += [ruled, talk]
        add("rule", AGGREGATE, one_hot(ruled, rule["choice"]))
        add("rule", COMMUNICATE + 4, torch.sigmoid(talk) if relaxed else torch.from_numpy(rule["talk"].astype(np.float32)))
        purpose, brief, query = net.items(torch.from_numpy(item["x"]))
        logits.append(purpose)
        add("item", DELEGATE, one_hot(purpose.masked_fill(~torch.from_numpy(item["mask"]), -1e9), item["choice"]))
        told = np.flatnonzero(item["agent"] > 0)
        logits.append(brief[told])
        add("item", COMMUNICATE, one_hot(brief[told], item["brief"][told]), told)
        candidates = out.tables["candidate"]
        chance, about = pointer(net, query, candidates, relaxed=relaxed)
        rows = np.unique(candidates["row"])
        mixed = torch.stack([(chance[:, None] * about)[torch.from_numpy(candidates["row"] == r)].sum(0) for r in rows])
        add("item", DELEGATE + len(PURPOSES), mixed, rows)
    assert got == pytest.approx(wanted, abs=1e-5)
    square = torch.cat([x.reshape(-1) for x in logits]).square().mean()
    assert float(acts.squared_logits()) == pytest.approx(float(square), rel=1e-5)


def test_a_pointers_chances_are_a_softmax_over_the_candidates_of_a_row(made: tuple[Training, TracedRollout]) -> None:
    training, played = made
    net, candidates = training.net, played.rollout.tables["candidate"]
    query = net.items(torch.from_numpy(played.rollout.tables["item"]["x"]))[2]
    with torch.no_grad():
        chance, about = pointer(net, query, candidates, relaxed=True)
        agent_x, pair_x = torch.from_numpy(candidates["agent_x"]), torch.from_numpy(candidates["pair_x"])
        score = (query[torch.from_numpy(candidates["row"])] * net.key(agent_x)).sum(-1) + net.pair(pair_x)[:, 0]
        for row in np.unique(candidates["row"]):
            own = torch.from_numpy(candidates["row"] == row)
            assert chance[own].tolist() == pytest.approx(score[own].softmax(0).tolist(), abs=1e-6)
        assert torch.equal(about, torch.cat([agent_x, pair_x], 1))
        picked, _ = pointer(net, query, candidates, relaxed=False)
    assert picked.tolist() == candidates["picked"].astype(float).tolist()


def test_the_spread_of_returns_is_a_running_mean(made: tuple[Training, TracedRollout]) -> None:
    out, critic = made[1].rollout, JointCritic()
    spread = max(float(((out.values - out.value_TE[0]) / out.config.items).std()), 1e-3)
    module._measure(critic, out)
    assert float(critic.unit) == pytest.approx(spread)
    critic.unit.fill_(3.0)
    module._measure(critic, out)
    assert float(critic.unit) == pytest.approx(0.8 * 3.0 + 0.2 * spread)


def test_a_target_is_the_reward_and_what_the_next_round_is_worth(made: tuple[Training, TracedRollout]) -> None:
    out = made[1].rollout
    beats, critic = beats_of(out), rough(1)
    torch.manual_seed(2)
    taken, ahead = torch.randn(len(beats.ep), ACTS), torch.randn(len(beats.ep), ACTS)
    unit = max(float(((out.values - out.value_TE[0]) / out.config.items).std()), 1e-3)
    reward = beats.reward / out.config.items / unit
    with torch.no_grad():
        of = {name: critic.values(critic.states(beats), acts, target=True).numpy() for name, acts in (("taken", taken), ("ahead", ahead))}
    for actor, acts in (("ascend", "ahead"), ("coma", "taken")):
        critic.unit.fill_(1.0)
        got = targets(critic, out, beats, taken, ahead, Options(actor=actor, gamma=0.9)).numpy()
        for b in range(len(beats.ep)):
            later = np.zeros(5) if beats.last[b] else of[acts][b + 1]
            assert got[b] == pytest.approx(reward[b] + 0.9 * later, abs=1e-4), (actor, b)
    critic.unit.fill_(1.0)
    got = targets(critic, out, beats, taken, ahead, Options(actor="shapley", gamma=0.9, orders=2)).numpy()
    assert got.shape == (len(beats.ep), 1)
    orders = module._orders(np.random.default_rng(0), Options(orders=2))
    with torch.no_grad():
        phi = module._marginals(critic, critic.states(beats), ahead, orders, target=True).sum(1).numpy()
    later = np.where(beats.last, 0.0, np.append(phi[1:], 0.0))
    assert got[:, 0] == pytest.approx(reward + 0.9 * later, abs=1e-4)


def test_a_first_step_of_the_critic_is_on_the_whole_target_and_its_twin_follows() -> None:
    training, played = begun(epochs=1, polyak=0.5)
    critic, out = training.module, played.rollout
    assert isinstance(critic, JointCritic)
    beats = beats_of(out)
    taken = torch.zeros(len(beats.ep), ACTS)
    y = torch.arange(len(beats.ep) * 5, dtype=torch.float32).reshape(-1, 5) / 100
    fitted = module._fit(training, training.loss_options, critic, beats, taken, y)
    assert fitted == pytest.approx(float(y.square().mean()))  # it knew nothing yet
    assert float(critic.net[-1].bias.detach().abs().max()) > 0  # type: ignore[union-attr,operator,arg-type]
    assert torch.allclose(critic.target[-1].bias, 0.5 * critic.net[-1].bias)  # type: ignore[union-attr,arg-type,operator]
    again = module._fit(training, Options(epochs=30), critic, beats, taken, y)
    assert again < fitted


def test_actors_ascend_the_critic_and_leave_it_where_it_is() -> None:
    training, played = begun(epochs=2, penalty=0.5)
    critic, out = training.module, played.rollout
    assert isinstance(critic, JointCritic)
    beats = beats_of(out)
    with torch.no_grad():
        taken = Acts(out, beats).matrix(training.net, relaxed=False)
        acts = Acts(out, beats)
        acts.matrix(training.net, relaxed=True)
        wanted = 0.5 * float(acts.squared_logits())
    held = [p.detach().clone() for p in critic.net.parameters()]
    before = {k: v.copy() for k, v in training.weights().items()}
    lost = module._ascend(training, training.loss_options, critic, out, beats, taken)
    assert lost == pytest.approx(wanted, rel=1e-5)  # a critic that knows nothing: what is left is the penalty, once
    assert all(torch.equal(a, b) for a, b in zip(held, critic.net.parameters(), strict=True))
    assert any((training.weights()[k] != v).any() for k, v in before.items())
    assert critic.policy.held


@pytest.mark.parametrize("actor", ["ascend", "shapley"])
def test_what_the_actors_descend_by_hand(actor: str) -> None:
    training, played = begun(epochs=2, penalty=0.0, actor=actor, orders=2)
    out = played.rollout
    beats, critic = beats_of(out), rough(3)
    with torch.no_grad():
        taken = Acts(out, beats).matrix(training.net, relaxed=False)
        relaxed = Acts(out, beats).matrix(training.net, relaxed=True)
        x, wanted = critic.states(beats), 0.0
        orders = module._orders(training.rng(8), training.loss_options)
        starts = [STOP, SPAWN, DELEGATE, COMMUNICATE, AGGREGATE, ACTS]
        for i in range(5):
            mine = taken.clone()
            mine[:, starts[i] : starts[i + 1]] = relaxed[:, starts[i] : starts[i + 1]]
            q = module._marginals(critic, x, mine, orders)[:, i] if actor == "shapley" else critic.values(x, mine)[:, i]
            wanted -= float(q.mean())
    lost = module._ascend(training, training.loss_options, critic, out, beats, taken)
    assert lost == pytest.approx(wanted, abs=1e-4)


def test_counterfactuals_by_brute_force(made: tuple[Training, TracedRollout]) -> None:
    """Q with another choice in one decision's place, all else as it was, against the policy's mean over the choices."""
    training, played = made
    out, net, critic = played.rollout, training.net, rough(4)
    beats = beats_of(out)
    found = coma_advantages(net, critic, out, beats)
    acts = Acts(out, beats)
    with torch.no_grad():
        taken, x = acts.matrix(net, relaxed=False), critic.states(beats)

        def q(beat: int, column: int, change: np.ndarray) -> float:
            other = taken[beat].clone()
            other[column : column + len(change)] += torch.from_numpy(change.astype(np.float32))
            return float(critic.values(x[beat][None], other[None])[0, 0])

        rule, item = out.tables["rule"], out.tables["item"]
        _, ruled, talk = net.teams(torch.from_numpy(rule["x"]))
        purpose, brief, query = net.items(torch.from_numpy(item["x"]))
        masked = purpose.masked_fill(~torch.from_numpy(item["mask"]), -1e9)

        def one_of(name: str, column: int, row: int, rows: np.ndarray, logits: torch.Tensor, choice: int) -> float:
            at, _, share = acts.rows[name]
            k = int(np.flatnonzero(rows == row)[0])
            eye, p = np.eye(len(logits)), logits.double().softmax(0).numpy()
            every = [q(int(at[k]), column, share[k] * (eye[b] - eye[choice])) for b in range(len(logits))]
            return every[choice] - float(p @ every)

        for row in range(min(4, len(rule["ep"]))):
            every = np.arange(len(rule["ep"]))
            assert found["rule"][row] == pytest.approx(one_of("rule", AGGREGATE, row, every, ruled[row], int(rule["choice"][row])), abs=1e-5)
            at, _, share = acts.rows["talk"]
            parts = []
            for k in (0, 1):
                chance, did = float(torch.sigmoid(talk[row, k])), int(rule["talk"][row, k])
                two = [q(int(at[row]), COMMUNICATE + 4 + k, np.array([share[row] * (b - did)])) for b in (0, 1)]
                parts.append(two[did] - (1 - chance) * two[0] - chance * two[1])
            assert found["talk"][row] == pytest.approx(np.mean(parts), abs=1e-5)
        told = np.flatnonzero(item["agent"] > 0)
        for row in told[:4]:
            got = one_of("brief", COMMUNICATE, row, told, brief[row], int(item["brief"][row]))
            assert found["brief"][row] == pytest.approx(got, abs=1e-5)
        assert (found["brief"][item["agent"] <= 0] == 0).all()
        for row in range(4):
            got = one_of("item", DELEGATE, row, np.arange(len(item["ep"])), masked[row], int(item["choice"][row]))
            assert found["item"][row] == pytest.approx(got, abs=1e-5)
        candidates = out.tables["candidate"]
        chance, about = pointer(net, query, candidates, relaxed=True)
        at, column, share = acts.rows["point"]
        assert column == DELEGATE + len(PURPOSES)
        for k, row in enumerate(np.unique(candidates["row"])[:4]):
            own = np.flatnonzero(candidates["row"] == row)
            picked = int(own[candidates["picked"][own]][0])
            every = [q(int(at[k]), column, share[k] * (about[c] - about[picked]).numpy()) for c in own]
            mean = float(np.dot(chance[torch.from_numpy(own)].double().numpy(), every))
            assert found["point"][row] == pytest.approx(every[int(np.flatnonzero(own == picked)[0])] - mean, abs=1e-5)
        called = set(np.unique(candidates["row"]).tolist())
        assert all(found["point"][r] == 0 for r in range(len(item["ep"])) if r not in called)


def test_while_the_critic_warms_up_actors_wait() -> None:
    training, played = begun(warm=1, epochs=2)
    before = {k: v.copy() for k, v in training.weights().items()}
    learn = lambda: training.loss.learn(training, training.loss_options, played.rollout, played.traces)  # noqa: E731
    row = learn()
    assert row["loss"] == 0.0
    assert row["critic_joint"] > 0
    assert all((training.weights()[k] == v).all() for k, v in before.items() if k.startswith(("stop.", "gate.", "rule.", "purpose.")))
    training.update = 1
    assert learn()["loss"] != 0.0
    assert any((training.weights()[k] != v).any() for k, v in before.items() if k.startswith(("stop.", "gate.", "rule.", "purpose.")))
