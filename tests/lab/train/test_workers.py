"""Workers that learn: what they see and record, whose noise it is, who pays them, and that R2 alone pays herding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from counterpoint.errors import InputError
from counterpoint.lab.train.critics import fit_workers, worker_advantages, worker_events
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.learner import log_probs, update
from counterpoint.lab.train.policies.acting import TeamPolicy
from counterpoint.lab.train.policies.features import WORKER
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.policies.workers import worker_rows
from counterpoint.lab.train.returns import lesson, measure
from counterpoint.lab.train.rollouts import Rollout, merge_rollouts, play_out
from counterpoint.lab.train.settings import Settings
from counterpoint.lab.train.surrogates import Steps
from counterpoint.lab.train.training import Training
from counterpoint.lab.worlds.teamworld.action import Calls
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.world import world as find

torch.set_num_threads(1)


def _config(**changes: object) -> Config:
    config: Config = find("W1").replace(vote_items=8, max_agents=6, **changes).config
    return config


def _net(*, apart: bool = False, defer: float | None = None) -> Network:
    """A network whose orchestrator asks for several votes on every question; `defer` fixes the workers' logit."""
    torch.manual_seed(1)
    net = Network(apart=apart)
    with torch.no_grad():
        net.gate.bias.fill_(3.0)
        net.purpose.bias[0] = -2.0
        if defer is not None:
            for head in net.worker:
                head[-1].weight.zero_()
                head[-1].bias.fill_(defer)
    return net


def _played(net: Network, episodes: int = 12, *, first: int = 0, **how: bool) -> Rollout:
    seeds = first + np.arange(episodes)
    return play_out(_config(), net, seeds, seeds + 1, **({"workers": True} | how))  # type: ignore[arg-type]


@pytest.mark.parametrize("apart", [False, True])
def test_rows_are_real_choices_and_their_log_probs_are_the_networks(apart: bool) -> None:
    net = _net(apart=apart)
    out = _played(net)
    t, item = out.tables["worker"], out.tables["item"]
    assert len(t["ep"]) > 50
    assert t["x"].shape[1] == WORKER
    assert (t["x"][:, 8] > 0).all()  # votes were counted
    for name in ("ep", "round", "item", "agent"):
        assert (item[name][t["row"]] == t[name]).all()
    with torch.no_grad():
        again = log_probs(net, out.tables)[0]["worker"].numpy()
    assert again == pytest.approx(t["logp"], abs=1e-5)
    assert np.exp(t["logp"]) == pytest.approx(np.full(len(again), 0.5), abs=0.05)  # indifferent at first
    assert 0.4 < t["choice"].mean() < 0.6
    assert out.gap() < 1e-9


def test_workers_that_never_defer_are_the_frozen_ones_of_regime_a() -> None:
    net = _net(defer=-60.0)
    learning, frozen = _played(net), _played(net, workers=False)
    assert "worker" not in frozen.tables
    assert learning.decisions == frozen.decisions + len(learning.tables["worker"]["ep"])
    assert not learning.tables["worker"]["choice"].any()
    assert learning.values.tobytes() == frozen.values.tobytes()
    for name, table in frozen.tables.items():
        for column, values in table.items():
            assert learning.tables[name][column].tobytes() == values.tobytes(), (name, column)


def test_whoever_defers_repeats_the_draft() -> None:
    herd = _played(_net(defer=60.0)).tables["worker"]
    assert herd["choice"].all()
    assert (herd["x"][:, 9] >= herd["x"][:, 10]).mean() > 0.9  # the draft is nearly always what most have said
    honest = _played(_net(defer=-60.0)).tables["worker"]
    # once all repeat the first vote, nobody's finding is ever counted against it
    assert herd["x"][:, 12].all()
    assert not honest["x"][:, 12].all()


def test_same_seed_same_bytes_and_a_batch_decides_as_its_episodes_do() -> None:
    net = _net()
    one, two = _played(net), _played(net)
    for column, values in one.tables["worker"].items():
        assert two.tables["worker"][column].tobytes() == values.tobytes()
    parts = merge_rollouts([_played(net, 1, first=e) for e in range(12)])
    key = lambda t: np.lexsort((t["agent"], t["item"], t["round"], t["ep"]))  # noqa: E731
    a, b = one.tables["worker"], parts.tables["worker"]
    for column in ("ep", "round", "item", "agent", "choice", "said", "right", "attempt"):
        assert (a[column][key(a)] == b[column][key(b)]).all(), column
    for name in ("ep", "round", "item", "agent"):  # joined rollouts keep the rows together
        assert (parts.tables["item"][name][b["row"]] == b[name]).all()
    other = play_out(_config(), net, np.arange(12), np.arange(12) + 100, workers=True).tables["worker"]
    assert len(other["choice"]) != len(a["choice"]) or (other["choice"] != a["choice"]).any()


def test_a_greedy_worker_takes_the_likelier() -> None:
    for logit, defers in ((0.1, True), (-0.1, False)):
        found = _played(_net(defer=logit), greedy=True)
        if "worker" in found.tables:
            assert (found.tables["worker"]["choice"] == defers).all()
        sampled = _played(_net(defer=logit)).tables["worker"]["choice"]
        assert sampled.any()
        assert not sampled.all()


def test_a_worker_sees_nothing_hidden() -> None:
    def rows(changed: bool) -> np.ndarray:
        batch = Batch(_config(), np.arange(4))
        policy = TeamPolicy(_net(), greedy=False)
        for _ in range(3):
            batch.step(policy.act(batch.observe()))
        votes = batch.state.kinds.vote
        assert votes is not None
        if changed:
            votes.truth[:] = 1 - votes.truth
            votes.difficulty[:] = 2 - votes.difficulty
            votes.misled[:] = ~votes.misled
        return worker_rows(batch.observe(), Calls.of(np.repeat(np.arange(4), 8), np.tile(np.arange(8), 4), 1, brief=3))

    assert rows(False).tobytes() == rows(True).tobytes()
    assert len(np.unique(rows(False), axis=0)) > 3


def _table(choice: list[bool]) -> dict[str, np.ndarray]:
    n = len(choice)
    x = np.zeros((n, WORKER), np.float32)
    x[:, 0] = x[:, 4] = 1
    return {"ep": np.arange(n), "x": x, "choice": np.array(choice), "logp": np.full(n, np.log(0.5)), "row": np.arange(n)}


@pytest.mark.parametrize(("paid", "up"), [([1.0, -1.0], True), ([-1.0, 1.0], False)])
def test_a_step_moves_towards_what_was_paid(paid: list[float], up: bool) -> None:
    net, table = _net(defer=0.0), _table([True, False])
    rest = {k: v.clone() for k, v in net.state_dict().items() if not k.startswith("worker.")}
    step = torch.optim.Adam(net.policy_parameters(), lr=0.01)
    options = Steps(epochs=1, entropy=0.0)
    update(net, step, {"worker": table}, {"worker": np.array(paid)}, 2, options, np.random.default_rng(0), parts=1)
    with torch.no_grad():
        logit = net.workers(torch.from_numpy(table["x"]))
    assert ((logit > 0) == up).all()
    assert all(torch.equal(v, net.state_dict()[k]) for k, v in rest.items())


def test_families_apart_learn_apart() -> None:
    net, table = _net(apart=True, defer=0.0), _table([True, True])
    step = torch.optim.Adam(net.policy_parameters(), lr=0.01)
    update(
        net, step, {"worker": table}, {"worker": np.ones(2)}, 2, Steps(epochs=1, entropy=0.0), np.random.default_rng(0), parts=1
    )
    other = table["x"].copy()
    other[:, :2] = (0, 1)
    with torch.no_grad():
        assert (net.workers(torch.from_numpy(table["x"])) > 0).all()
        assert (net.workers(torch.from_numpy(other)) == 0).all()


def test_advantages_by_hand() -> None:
    out = _played(_net(), 2)
    t = out.tables["worker"]
    left = np.arange(len(out.tables["item"]["ep"]), dtype=np.float64)
    assert worker_advantages(out, left=left).tolist() == t["row"].tolist()
    assert worker_advantages(out).tolist() == t["right"].tolist()
    first = worker_events(out)[0]
    assert first == f"a{t['agent'][0] - 1}|return|{t['item'][0]}|{t['attempt'][0]}"
    given = worker_advantages(out, credit=[{first: 2.5} if e == t["ep"][0] else {} for e in range(2)])
    assert given[0] == 2.5
    assert given[1:].sum() == 0
    with pytest.raises(InputError, match="given credit twice"):
        worker_advantages(out, left=left, credit=[{}, {}])


def test_the_critic_takes_off_what_it_expects() -> None:
    net, out = _net(), _played(_net())
    y = np.full(len(out.tables["worker"]["ep"]), 3.0)
    optimizer = torch.optim.Adam(net.critic_parameters(), lr=0.02)
    fit_workers(net, optimizer, out, y, np.random.default_rng(0), steps=60)
    every = np.full(len(out.tables["item"]["ep"]), 3.0)
    assert np.abs(worker_advantages(out, net=net, left=every)).mean() < 0.3
    assert worker_advantages(out, left=every).tolist() == y.tolist()


def test_keys_are_those_of_the_traces_returns() -> None:
    weights = {k: v.numpy() for k, v in _net().state_dict().items()}
    payload = {
        "world": "W1", "set": {"vote_items": 8, "max_agents": 6}, "seeds": np.arange(3), "salts": np.arange(3), "apart": False, "log": True,
        "goes_on": False, "name": "herd", "workers": True,
    }  # fmt: skip
    found = play(payload, weights)
    t = found.rollout.tables["worker"]
    said = [{e.key: e.extra["claim"] for e in trace.events if e.type == "return"} for trace in found.traces]
    right = [{e.key: e.reward["R2"] for e in trace.events if e.type == "return"} for trace in found.traces]
    for row, key in enumerate(worker_events(found.rollout)):
        assert said[t["ep"][row]][key] == t["said"][row]
        assert right[t["ep"][row]][key] == t["right"][row]


def test_r2_pays_herding_and_the_team_pays_for_what_is_new() -> None:
    net = _net()
    with torch.no_grad():
        net.rule.bias[0] = 10.0  # bayes
    defer, report = [], []
    for first in range(0, 3000, 300):
        out = _played(net, 300, first=first)
        measure(net, out)
        known = lesson(net, out)
        assert known is not None
        t = out.tables["worker"]
        most = t["x"][:, 9] > t["x"][:, 10]  # more votes for the draft than against it
        for rows, into in ((t["choice"] & most, defer), (~t["choice"] & most, report)):
            into.append([worker_advantages(out)[rows].mean(), worker_advantages(out, left=known.left)[rows].mean()])
    gain = np.array(defer) - np.array(report)  # (samples, R2 and team)
    mean, error = gain.mean(axis=0), gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
    assert mean[0] > 3 * error[0]
    assert mean[1] < -3 * error[1]


@pytest.mark.parametrize(("regime", "moves"), [("A", False), ("B", True), ("C", True)])
def test_one_update_of_each_regime(regime: str, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "from dataclasses import replace\nfrom counterpoint.lab.train.presets.counterpoint import counterpoint\n"
    (tmp_path / f"lab_{regime}.py").write_text(f'{lines}ours = replace(counterpoint, regime="{regime}", episodes=8)\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings(
        preset=f"lab_{regime}:ours", world="W1", set={"vote_items": 4, "max_agents": 4}, budget_calls=0, updates=2
    )
    training = Training(settings)
    assert len(training.net.worker) == (2 if regime == "C" else 1)
    before = [p.clone() for p in training.net.worker.parameters()]
    job = training.job(0, 0, training.weights())
    training.learn([play(job.payload, job.weights)])
    changed = any(not torch.equal(a, b) for a, b in zip(before, training.net.worker.parameters(), strict=True))
    assert changed == moves
