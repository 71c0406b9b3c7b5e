"""One update of each loss, against the same update written out: what is fitted, by how much, with which randomness."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import counterpoint.registry as registry
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.learner import log_probs, rows_of, update
from counterpoint.lab.train.losses.soft import _teams, improve
from counterpoint.lab.train.losses.td import learn
from counterpoint.lab.train.policies.features import LATE
from counterpoint.lab.train.returns import lesson, row_advantages
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.spawn_head import fit_heads
from counterpoint.lab.train.surrogates import Steps
from counterpoint.lab.train.training import Training
from lab.train.quick import CONFIG


def two_alike(loss: str, regime: str = "A") -> tuple[Training, Training, Rollout]:
    """Two learners in the same state, a quarter of their run done, and what one of them has played."""
    pair = [Training(settings_of(CONFIG | {"budget_calls": 0, "change": {"regime": regime}}), loss=registry.get("loss", loss)) for _ in range(2)]
    for one in pair:
        one.update = 1
        one.policy.param_groups[0]["lr"] = one.policy.param_groups[1]["lr"] = 0.01
    job = pair[0].job(1, 1, pair[0].weights())
    return pair[0], pair[1], play(job.payload, job.weights).rollout


def learned(one: Training, loss: str, out: Rollout, **options: object) -> dict[str, float]:
    found = registry.get("loss", loss)
    return found.learn(one, found.resolved(options), out, [])


def assert_same(a: Training, b: Training) -> None:
    assert all(np.array_equal(v, b.weights()[k]) for k, v in a.weights().items())


def test_what_is_done_unless_asked_otherwise() -> None:
    steps = {
        "epochs": 4, "clip": 0.2, "clip_high": None, "dual": None, "entropy": 0.005, "scale": True,
        "level": "decision", "log_max": 10.0, "weigh": "type", "mask_low": None, "mask_high": None, "pull": 0.0, "kl": "k3",
        "kl_weight": 0.0, "kl_in": "loss", "kl_most": None, "veto": None,
    }  # fmt: skip
    defaults: dict[str, dict[str, object]] = {
        "clip": steps,
        "clone": {"steps": 12},
        "reinforce": {"entropy": 0.005, "steps": 1, "scale": True},
        "soft": {"tau_from": 0.3, "tau_to": 0.03, "keep": 192, "lam": 0.9, "steps": 48},
        "td": {"mix": "qmix", "gamma": 0.99, "lam": 0.0, "tau_from": 1.0, "tau_to": 0.2, "epochs": 8, "warm": 0,
               "each_step": False, "shaped": False, "drop_last": False},
    }  # fmt: skip
    assert {name: vars(registry.get("loss", name).resolved({})) for name in defaults} == defaults


@pytest.mark.parametrize("loss", ["clip", "reinforce"])
def test_policy_steps(loss: str) -> None:
    one, other, out = two_alike(loss)
    told = learned(one, loss, out, entropy=0.4, scale=False)
    epochs, parts = {"clip": (4, 3), "reinforce": (1, 1)}[loss]
    steps = Steps(epochs=epochs, entropy=0.3, scale=False)  # three quarters of the run are left
    advantages, critics = other.advantages(out, [])
    assert told == critics | update(other.net, other.policy, out.tables, advantages, 8, steps, other.rng(1), parts=parts)
    assert critics.keys() < told.keys()
    assert_same(one, other)


def test_cloning_steps() -> None:
    """The mean of -log pi over the rows that have a choice, summed over the types of decision; as many steps as asked."""
    one, other, out = two_alike("clone")
    told = learned(one, "clone", out, steps=2)
    stats = other.fit_critics(out)
    tables = {"item": "item", "brief": "item", "point": "item", "stop": "stop", "rule": "rule", "talk": "talk", "spawn": "spawn"}
    ones = {n: np.ones(len(out.tables[t]["ep"])) for n, t in tables.items() if t in out.tables}
    rows = rows_of(out.tables, ones, scale=False)
    assert rows.keys() >= {"item", "brief", "stop", "rule", "spawn"}
    for _ in range(2):
        logp = log_probs(other.net, out.tables)[0]
        loss = torch.stack([-logp[n][torch.from_numpy(r.at)].mean() for n, r in rows.items()]).sum()
        other.policy.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(other.net.policy_parameters(), 1.0)
        other.policy.step()
    assert told == stats | {"loss": float(loss.detach())}
    assert_same(one, other)


def teams_by_hand(other: Training, out: Rollout, advantage: np.ndarray) -> None:
    """Whole teams by their critic, who comes later by the linear gradient, whose logit may fall to -5; then one fit of both."""
    table, room = out.tables["spawn"], out.config.max_agents
    other.teams.add(table, advantage, out.seeds[table["ep"]])
    x, gate, size = other.teams.wanted(other.net, room, 0.25, is_sized=other.is_sized)
    late = table["round"] > 0
    if late.any():
        some = {name: column[late] for name, column in table.items()}
        other.spawning.add(other.net, some, advantage[late], spread=float(advantage.std()))
        rows = other.teams.late()
        more = other.spawning.targets(other.net, rows, room, left=0.75, least=-5.0)
        x, gate, size = (np.concatenate(pair) for pair in ((x, rows), (gate, more[0]), (size, more[1])))
    fit_heads(other.net, x, gate, size, np.where(gate > 0, 1.0, 0.01))


def test_who_comes_later_is_learned_beside_the_teams_of_the_start() -> None:
    one, other, out = two_alike("soft")
    table = out.tables["spawn"]
    late = table["ep"] >= 4  # half of the episodes, as if they had begun before
    table["round"][late] = 16
    table["x"][late, LATE] = 1
    advantage = np.random.default_rng(2).normal(size=8)[table["ep"]]
    before = one.net.gate.weight.detach().clone()
    _teams(one, out, advantage)
    teams_by_hand(other, out, advantage)
    assert not torch.equal(before, one.net.gate.weight)
    assert float(one.net.gate.weight[0, LATE].detach()) != float(before[0, LATE])
    assert_same(one, other)


@pytest.mark.parametrize("regime", ["A", "B"])
def test_soft_steps(regime: str) -> None:
    one, other, out = two_alike("soft", regime)
    assert ("worker" in out.tables) == (regime == "B")
    told = learned(one, "soft", out, steps=4, keep=8, lam=0.5, tau_from=0.16, tau_to=0.01)
    stats = other.fit_critics(out, keep=8, lam=0.5, steps=4)
    taught = lesson(other.net, out, lam=0.5)
    assert taught is not None
    tau = pytest.approx(0.08)  # a quarter of the way from 0.16 to 0.01, which is four halvings
    assert told["tau"] == tau
    stats |= improve(other.net, other.policy, out.tables, other.rng(2), tau=told["tau"], steps=2)
    found = row_advantages(other.net, out, taught)
    stats |= other.teach_workers(out, found)  # where sub-agents learn too
    assert ("worker" in found) == (regime == "B")
    table = out.tables["spawn"]
    teams_by_hand(other, out, found["spawn"])
    with torch.no_grad():
        other.net.log_scale.fill_(float(np.log(0.6 * 0.25**0.25)))  # a quarter of the way from 0.6 to 0.15
    assert one.net.log_scale.detach().numpy() == pytest.approx(other.net.log_scale.detach().numpy(), rel=1e-5)
    p = torch.sigmoid(other.net.roles(torch.from_numpy(table["x"]))[0]).detach().numpy().astype(np.float64)
    stats["entropy_spawn"] = pytest.approx(float(-(p * np.log(p) + (1 - p) * np.log(1 - p)).mean()), rel=1e-4)
    rest = {k: v for k, v in out.tables.items() if k not in ("stop", "spawn")}
    stats |= update(other.net, other.policy, rest, found, 8, Steps(entropy=0.00375), other.rng(4), skip={"item"})
    assert told == stats | {"tau": tau}
    with torch.no_grad():
        other.net.log_scale.copy_(one.net.log_scale)
    assert_same(one, other)


def test_steps_of_temporal_differences() -> None:
    one, other, out = two_alike("td")
    options = {"tau_from": 0.5, "tau_to": 0.25, "epochs": 2, "mix": "vdn"}
    told = learned(one, "td", out, **options)
    stats = other.fit_critics(out, steps=8)
    stats |= learn(other.net, other.module, other.policy, out, registry.get("loss", "td").resolved(options), progress=0.25)
    assert told == stats
    assert told["tau"] == pytest.approx(0.5 * 0.5**0.25)
    assert_same(one, other)
