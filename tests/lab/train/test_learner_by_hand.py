"""One update, number by number: log-probabilities, which rows count, their units, the clipped loss, and parts of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.lab.train.learner import (
    LossRows,
    NotFinite,
    Steps,
    _needed,
    _part,
    _policy_loss,
    _segments,
    finite,
    log_probs,
    rows_of,
    update,
)
from counterpoint.lab.train.policies.features import AGENT, PAIR, ROLE, TEAM, WORKER
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.surrogates import MAX_NORM, PARTS
from lab.train.nets import item_x, known_net, says

LOG = np.log
HALF = LOG(0.5)


def entropy(*p: float) -> float:
    return -sum(x * LOG(x) for x in p)


def net_of() -> Network:
    """Purposes 1 : 2 : 3 : 4, briefs 1 : 1 : 2 : 4, rules 1 : 1 : 1 : 1 : 2 : 2; chances: stop 3/4, talk 1/5 and 4/5, worker 2/3,
    spawn 3/4, log size 1 with a spread of 2."""
    net = known_net(purpose=[LOG(k) for k in (1, 2, 3, 4)])
    says(net.brief, *[float(LOG(k)) for k in (1, 1, 2, 4)])
    says(net.rule, *[float(LOG(k)) for k in (1, 1, 1, 1, 2, 2)])
    says(net.stop, float(LOG(3)))
    says(net.talk, float(LOG(0.25)), float(LOG(4)))
    says(net.gate, float(LOG(3)))
    says(net.size, 1.0)
    says(net.worker[0][-1], float(LOG(2)))  # type: ignore[index]
    with torch.no_grad():
        net.log_scale.fill_(LOG(2))
        net.key.weight.zero_()
        net.key.bias.zero_()
        net.pair.weight.zero_()
        net.pair.weight[0, 0] = 1.0  # the first number of a pair is its score
    return net


def item_table() -> dict[str, np.ndarray]:
    """Four rows: a call, leaving, a call to oneself (agent 0), and a row without a choice."""
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], np.bool_)
    return {
        "ep": np.array([0, 0, 1, 1]), "x": item_x(0, 1, 0, 0), "mask": mask, "choice": np.array([1, 0, 1, 0]), "brief": np.array([3, 0, 2, 0]),
        "agent": np.array([2, -1, 0, -1]), "logp": np.array([HALF] * 4), "brief_logp": np.array([HALF] * 4), "point_logp": np.array([HALF] * 4),
    }  # fmt: skip


def candidates() -> dict[str, np.ndarray]:
    """Row 0 chooses of two, the second is picked; row 2 has one."""
    pair = np.zeros((3, PAIR), np.float32)
    pair[:, 0] = LOG([1, 3, 7])
    return {
        "ep": np.array([0, 0, 1]), "row": np.array([0, 0, 2]), "agent_x": np.zeros((3, AGENT), np.float32), "pair_x": pair,
        "picked": np.array([False, True, True]),
    }  # fmt: skip


def team_table(choice: Any, **more: Any) -> dict[str, np.ndarray]:
    n = len(choice)
    return {"ep": np.arange(n), "x": np.zeros((n, TEAM), np.float32), "choice": np.array(choice), "logp": np.full(n, HALF), **more}


def spawn_table() -> dict[str, np.ndarray]:
    return {
        "ep": np.array([0, 0, 1]), "x": np.zeros((3, ROLE), np.float32), "choice": np.array([True, False, True]), "size": np.array([3.0, 0.0, 1.0]),
        "forced": np.array([False, False, True]), "logp": np.full(3, HALF), "size_logp": np.full(3, -1.0),
    }  # fmt: skip


def test_log_probabilities_and_entropies_of_every_head() -> None:
    tables = {
        "item": item_table(), "candidate": candidates(), "stop": team_table([True, False]), "rule": team_table([0, 5]),
        "talk": team_table([[True, False], [False, True]]), "spawn": spawn_table(),
        "worker": {"ep": np.array([0, 1]), "x": np.zeros((2, WORKER), np.float32), "choice": np.array([True, False])},
    }  # fmt: skip
    with torch.no_grad():
        logp, spread = log_probs(net_of(), tables)
    wanted = {
        "item": LOG([2 / 6, 1 / 10, 2 / 3, 1]), "brief": LOG([4 / 8, 1 / 8, 2 / 8, 1 / 8]), "point": [LOG(3 / 4), 0, 0, 0],
        "stop": LOG([3 / 4, 1 / 4]), "rule": LOG([1 / 8, 2 / 8]), "talk": LOG([[1 / 5, 1 / 5], [4 / 5, 4 / 5]]),
        "spawn": LOG([3 / 4, 1 / 4, 3 / 4]), "size": [-0.5 - LOG(2), -0.125 - LOG(2), -LOG(2)], "worker": LOG([2 / 3, 1 / 3]),
    }  # fmt: skip
    assert set(logp) == set(spread) == set(wanted)
    for name, values in wanted.items():
        assert logp[name].numpy() == pytest.approx(np.array(values), abs=1e-5), name
    four, brief = entropy(0.1, 0.2, 0.3, 0.4), entropy(1 / 8, 1 / 8, 2 / 8, 4 / 8)
    entropies = {
        "item": [entropy(1 / 6, 2 / 6, 3 / 6), four, entropy(1 / 3, 2 / 3), 0], "brief": [brief] * 4, "point": [entropy(0.25, 0.75), 0, 0, 0],
        "stop": [entropy(0.25, 0.75)] * 2, "rule": [entropy(*[1 / 8] * 4, 1 / 4, 1 / 4)] * 2, "talk": [[entropy(0.2, 0.8)] * 2] * 2,
        "spawn": [entropy(0.25, 0.75)] * 3, "size": [LOG(2)] * 3, "worker": [entropy(1 / 3, 2 / 3)] * 2,
    }  # fmt: skip
    for name, values in entropies.items():
        assert spread[name].detach().numpy() == pytest.approx(np.array(values), abs=1e-5), name
    with torch.no_grad():
        assert set(log_probs(net_of(), {"talk": tables["talk"]})[0]) == {"talk"}
        assert set(log_probs(net_of(), {"item": tables["item"]})[0]) == {"item", "brief"}


def test_each_team_table_is_judged_on_its_own_rows() -> None:
    torch.manual_seed(3)
    net = Network()
    rng = np.random.default_rng(0)
    xs = {name: rng.normal(size=(2, TEAM)).astype(np.float32) for name in ("stop", "talk", "rule")}
    tables = {"stop": team_table([True, True]), "talk": team_table([[True, True]] * 2), "rule": team_table([1, 2])}
    for name, x in xs.items():
        tables[name]["x"] = x
    with torch.no_grad():
        together, apart = log_probs(net, tables)[0], {n: log_probs(net, {n: t})[0][n] for n, t in tables.items()}
    assert all(torch.allclose(together[n], apart[n]) for n in apart)


def test_a_pointer_chooses_within_its_row() -> None:
    score, row = torch.tensor([1.0, 2.0, 900.0]), torch.tensor([0, 0, 2])
    found, spread = _segments(score, row, torch.tensor([True, False, True]), 4)
    assert found.tolist() == pytest.approx([-float(np.log1p(np.e)), 0, 0, 0])
    p = 1 / (1 + np.e)
    assert spread.tolist() == pytest.approx([-p * np.log(p) - (1 - p) * np.log(1 - p), 0, 0, 0])


def test_the_entropy_bonus_of_a_pointer_pulls_as_the_entropy_does_whatever_was_chosen() -> None:
    """Against a finite difference of H = -sum p log p; a bonus of -log p of the choice has an expected gradient of 0."""
    score, row = np.array([0.3, -1.2, 0.8, 2.0, 0.5]), np.array([0, 0, 0, 1, 1])

    def entropies(x: np.ndarray) -> float:
        parts = [np.exp(x[row == r] - x[row == r].max()) for r in (0, 1)]
        return float(sum(-(p / p.sum() * np.log(p / p.sum())).sum() for p in parts))

    step = 1e-6
    slope = [(entropies(score + step * e) - entropies(score - step * e)) / (2 * step) for e in np.eye(5)]
    assert np.abs(slope).max() > 0.1
    for choices in ([0, 3], [1, 4], [2, 3]):
        x = torch.tensor(score, dtype=torch.float32, requires_grad=True)
        picked = torch.zeros(5, dtype=torch.bool)
        picked[choices] = True
        _segments(x, torch.tensor(row), picked, 2)[1].sum().backward()
        assert x.grad is not None
        assert x.grad.numpy() == pytest.approx(np.array(slope), abs=1e-5)


# -- which rows count


def test_rows_that_count_and_their_columns() -> None:
    t = item_table() | {"logp": np.arange(4.0), "brief_logp": 10 + np.arange(4.0), "point_logp": 20 + np.arange(4.0)}
    tables = {"item": t, "stop": team_table([True, False]), "talk": team_table([[1, 0], [0, 1]]), "spawn": spawn_table()}
    adv = {
        "item": np.array([1.0, 2, 3, 4]), "brief": np.array([5.0, 6, 7, 8]), "point": np.array([9.0, 10, 11, 12]), "stop": np.array([1.0, 2]),
        "talk": np.array([3.0, 4]), "spawn": np.array([5.0, 6, 7]), "rule": np.array([1.0]),
    }  # fmt: skip
    found = rows_of(tables, adv, scale=False)
    assert {k: (r.at.tolist(), r.advantage.tolist()) for k, r in found.items()} == {
        "item": ([0, 1, 2], [1, 2, 3]), "brief": ([0], [5]), "point": ([0, 2], [9, 11]), "stop": ([0, 1], [1, 2]),
        "talk": ([0, 1], [[3, 3], [4, 4]]), "spawn": ([0, 1], [5, 6]), "size": ([0, 2], [5, 7]),
    }  # fmt: skip
    assert (found["item"].old.tolist(), found["brief"].old.tolist(), found["point"].old.tolist()) == ([0, 1, 2], [10], [20, 22])
    assert found["size"].old.tolist() == [-1, -1]
    assert found["item"].weight.tolist() == [1, 1, 1]
    assert rows_of({"stop": team_table([])}, {"stop": np.zeros(0)}) == {}
    assert set(rows_of(tables, {"stop": adv["stop"]})) == {"stop"}


def test_advantages_in_units_of_their_kind_shrunk_to_the_types() -> None:
    adv = {"item": np.array([1.0, 2.0, 3.0, 99.0]), "brief": np.zeros(4), "point": np.array([0.0, 0, 2.0, 0])}
    found = rows_of({"item": item_table()}, adv)
    # kinds 0, 1, 0: squares 1, 9 and 4; pooled 14 / 3; each kind is given eight rows of that
    pooled = 14 / 3
    unit = np.sqrt([(10 + 8 * pooled) / 10, (4 + 8 * pooled) / 9, (10 + 8 * pooled) / 10])
    assert found["item"].advantage == pytest.approx(np.array([1, 2, 3]) / unit)
    assert found["brief"].advantage.tolist() == [0.0]
    assert found["point"].advantage == pytest.approx([0, 2 / np.sqrt((4 + 8 * 2) / 10)])
    talk = rows_of({"talk": team_table([[1, 0], [0, 1]])}, {"talk": np.array([3.0, 4.0])})["talk"]
    assert talk.advantage == pytest.approx(np.array([[3, 3], [4, 4]]) / np.sqrt(12.5))


# -- the loss


def one_stop(advantage: float, chance_then: float) -> dict[str, LossRows]:
    return {"stop": LossRows(np.array([0]), np.array([LOG(chance_then)]), np.array([advantage]), np.ones(1))}


@pytest.mark.parametrize(
    ("advantage", "then", "options", "wanted"),
    [
        # now 3/4: the ratio is 1.5, 0.75 or 1
        (2.0, 0.5, {}, -2.4), (2.0, 0.5, {"clip_high": 0.4}, -2.8), (2.0, 1.0, {}, -1.5), (-2.0, 1.0, {}, 1.6), (-2.0, 1.0, {"clip": 0.1}, 1.8),
        (-2.0, 0.5, {}, 3.0), (-2.0, 0.5, {"dual": 1.25}, 2.5), (2.0, 0.5, {"dual": 1.25}, -2.4), (2.0, 0.75, {"entropy": 0.0}, -2.0),
        (2.0, 0.75, {"entropy": 1.0}, -2.0 - entropy(0.25, 0.75)), (-1.0, 0.75e-9, {"dual": 3.0}, 3.0),
    ],
)  # fmt: skip
def test_a_clipped_loss(advantage: float, then: float, options: dict[str, float], wanted: float) -> None:
    tables = {"stop": team_table([True])}
    loss = _policy_loss(net_of(), tables, one_stop(advantage, then), Steps(**({"entropy": 0.0} | options)), None)  # type: ignore[arg-type]
    assert float(loss.detach()) == pytest.approx(wanted, abs=1e-5)


def test_a_far_ratio_is_held_at_ten_in_the_log() -> None:
    loss = _policy_loss(net_of(), {"stop": team_table([True])}, one_stop(-1.0, 1e-9), Steps(entropy=0.0), None)
    assert float(loss.detach()) == pytest.approx(np.exp(10), rel=1e-4)
    old = {"stop": LossRows(np.array([0]), np.array([40.0]), np.array([1.0]), np.ones(1))}
    assert float(_policy_loss(net_of(), {"stop": team_table([True])}, old, Steps(entropy=0.0), None).detach()) == pytest.approx(-np.exp(-10))


def test_types_add_up_and_each_is_a_mean() -> None:
    tables = {"stop": team_table([True, True]), "rule": team_table([0])}
    rows = {
        "stop": LossRows(np.array([0, 1]), LOG([0.75, 0.75]), np.array([1.0, 3.0]), np.ones(2)),
        "rule": LossRows(np.array([0]), LOG([0.125]), np.array([10.0]), np.ones(1)),
    }
    sums: dict[str, list[float]] = {}
    loss = _policy_loss(net_of(), tables, rows, Steps(entropy=0.1), sums)
    spread = entropy(*[1 / 8] * 4, 1 / 4, 1 / 4)
    assert float(loss.detach()) == pytest.approx(-2 - 10 - 0.1 * (entropy(0.25, 0.75) + spread), abs=1e-5)
    assert sums["entropy_rule"] == pytest.approx([spread], abs=1e-5)
    assert sums["kl_stop"] == pytest.approx([0], abs=1e-6)
    _policy_loss(net_of(), tables, {"stop": LossRows(np.array([0]), LOG([0.5]), np.ones(1), np.ones(1))}, Steps(), sums)
    assert sums["kl_stop"] == pytest.approx([0, 1.5 - 1 - LOG(1.5)], abs=1e-6)


def test_a_loss_that_is_no_number_is_refused() -> None:
    assert float(finite(torch.tensor(2.0), "x")) == 2
    for bad in (float("nan"), float("inf")):
        with pytest.raises(NotFinite, match="the policy loss is"):
            finite(torch.tensor(bad), "policy")


# -- parts of a batch


def whole() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    tables: dict[str, Any] = {
        "item": item_table() | {"x": rng.normal(size=item_table()["x"].shape).astype(np.float32)},
        "candidate": candidates(), "stop": team_table([True, False]), "spawn": spawn_table(), "unread": team_table([1, 2]),
    }  # fmt: skip
    n = {"item": 4, "brief": 4, "point": 4, "stop": 2, "spawn": 3}
    return tables, {name: rng.normal(size=k) for name, k in n.items()}


def test_what_does_not_count_is_left_out_and_the_loss_is_the_same() -> None:
    torch.manual_seed(4)
    net, (tables, advantages) = Network(), whole()
    rows = rows_of(tables, advantages)
    small, moved = _needed(tables, rows)
    assert set(small) == {"item", "candidate", "stop", "spawn"}
    assert small["item"]["ep"].tolist() == [0, 0, 1]  # the row without a choice, and without a call, is gone
    assert small["candidate"]["row"].tolist() == [0, 0, 2]
    assert "logp" not in small["item"]
    loss = [float(_policy_loss(net, t, r, Steps(), None).detach()) for t, r in ((tables, rows), (small, moved))]
    assert loss[0] == pytest.approx(loss[1], abs=1e-6)


def test_a_part_holds_the_rows_of_its_episodes() -> None:
    torch.manual_seed(4)
    net, (tables, advantages) = Network(), whole()
    rows = rows_of(tables, advantages)
    small, mine = _part(tables, rows, np.array([False, True]))
    assert small["item"]["ep"].tolist() == [1, 1]
    assert small["candidate"]["row"].tolist() == [0]
    assert {k: r.at.tolist() for k, r in mine.items()} == {"item": [0], "point": [0], "stop": [0], "size": [0]}
    assert mine["item"].advantage == pytest.approx(rows["item"].advantage[2:])
    assert mine["point"].old == pytest.approx(rows["point"].old[1:])
    everything = _part(tables, rows, np.array([True, True]))
    loss = [float(_policy_loss(net, t, r, Steps(), None).detach()) for t, r in ((tables, rows), everything)]
    assert loss[0] == pytest.approx(loss[1], abs=1e-6)
    nothing = _part({k: v for k, v in tables.items() if k != "unread"}, rows, np.array([False, False]))
    assert nothing == ({}, {})


def test_steps_of_an_update_are_steps_on_the_loss() -> None:
    tables, advantages = whole()
    nets = []
    for _ in range(2):
        torch.manual_seed(4)
        nets.append(Network())
    options = Steps(epochs=2)
    stats = update(nets[0], torch.optim.SGD(nets[0].parameters(), lr=0.5), tables, advantages, 2, options, np.random.default_rng(0), parts=1)
    for _ in range(2):
        nets[1].zero_grad()
        loss = _policy_loss(nets[1], *_needed(tables, rows_of(tables, advantages)), options, None)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(nets[1].policy_parameters(), 0.5)
        torch.optim.SGD(nets[1].parameters(), lr=0.5).step()
    assert stats["loss"] == pytest.approx(float(loss.detach()), abs=1e-5)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_an_update_makes_one_step_per_part_and_epoch_and_says_the_last_epochs_means() -> None:
    steps = []

    class Counting(torch.optim.SGD):
        def step(self, *given: Any) -> None:  # type: ignore[override]
            steps.append(1)

    tables, advantages = whole()
    net = net_of()
    stats = update(net, Counting(net.parameters(), lr=1.0), tables, advantages, 2, Steps(epochs=3), np.random.default_rng(0), parts=2)
    assert len(steps) == 6
    assert stats["entropy_stop"] == pytest.approx(entropy(0.25, 0.75), abs=1e-5)
    assert stats["kl_stop"] == pytest.approx(np.mean([1.5 - 1 - LOG(1.5), 0.5 - 1 - LOG(0.5)]), abs=1e-5)
    assert set(stats) == {"loss"} | {f"{w}_{n}" for w in ("kl", "entropy") for n in ("item", "brief", "point", "stop", "spawn", "size")}
    skipped = update(
        net, Counting(net.parameters(), lr=1.0), tables, advantages, 2, Steps(epochs=1), np.random.default_rng(0), skip=("item", "size"), parts=1
    )  # fmt: skip
    assert {"kl_item", "kl_size"}.isdisjoint(skipped)
    assert "kl_brief" in skipped


def test_episodes_without_a_decision_that_counts_are_passed_over() -> None:
    net = net_of()
    tables = {"stop": {k: v[:1] for k, v in team_table([True]).items()}}
    stats = update(net, torch.optim.SGD(net.parameters(), lr=0.0), tables, {"stop": np.ones(1)}, 5, Steps(), np.random.default_rng(0), parts=5)
    assert stats["loss"] != 0 or stats["kl_stop"] > 0
    empty = update(net, torch.optim.SGD(net.parameters(), lr=0.0), {}, {}, 5, Steps(), np.random.default_rng(0))
    assert empty == {"loss": 0.0}


def test_options_of_an_update() -> None:
    assert Steps() == Steps(epochs=4, clip=0.2, clip_high=None, dual=None, entropy=0.005, scale=True)
    assert (PARTS, MAX_NORM) == (3, 0.5)
