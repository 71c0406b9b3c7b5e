"""Alerts: each is raised where it is planted and not where it is not, and names episodes that come out again as traces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.lab.train import alerts
from counterpoint.lab.train.alerts import AGAIN, CODES, mismatch, raised_alerts, signals
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.run import logged
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from lab.train.quick import CONFIG

EVERYBODY = dict.fromkeys(CODES, (0, 1))


@pytest.fixture(scope="module")
def training() -> Training:
    return Training(settings_of(CONFIG | {"episodes": 6}))


@pytest.fixture(scope="module")
def batch(training: Training) -> Rollout:
    job = training.job(0, 0, training.weights())
    return play(job.payload, job.weights).rollout


def rows(n: int = 40, **columns: Any) -> list[dict[str, Any]]:
    """Metrics of an even run; a column is a number, or a function of the share of the run that is past."""
    base = {"agents": 4.0, "reward": 10.0, "reward_se": 0.1, "calls": 100, "top_share": 0.3, "message_price": 0.002}
    base |= {"message_share": 0.2, "equal_groups": 0.0, "masked": 0.0, "mismatch": 1e-6}
    out = []
    for u in range(1, n + 1):
        at = {k: (v(u / n) if callable(v) else v) for k, v in (base | columns).items()}
        inner = {k: at.pop(k) for k in ("top_share", "message_price", "message_share", "equal_groups", "masked", "mismatch")}
        out.append({"update": u, **at, "signals": inner})
    return out


def evals(n: int = 40, value: Any = lambda share: 10.0 + 5 * share, every: int = 10) -> list[dict[str, Any]]:
    luck = np.random.default_rng(0).normal(size=20)
    out = []
    for u in range(0, n + 1, every):
        values = (value(u / n) + luck + 0.01 * np.random.default_rng(u).normal(size=20)).tolist()
        out.append({"update": u, "first_seed": 0, "values": values, "mean": float(np.mean(values)), "traces": []})
    return out


def codes(metrics: list[dict[str, Any]], held: list[dict[str, Any]] | None = None, before: Any = ()) -> list[str]:
    return [a.code for a in raised_alerts(metrics, evals() if held is None else held, list(before), EVERYBODY)]


def up(share: float) -> float:
    return 10.0 + 5 * share


PLANTED = {
    "serial_collapse": {"agents": lambda s: 4.0 if s < 0.5 else 1.1, "reward": up},
    "dominant_agent": {"top_share": 0.7},
    "over_communication": {"message_price": lambda s: 0.001 if s < 0.5 else 0.003},
    "zero_variance": {"equal_groups": 0.6},
    "mask_mismatch": {"mismatch": 0.2},
}


@pytest.mark.parametrize("code", PLANTED)
def test_what_is_planted_is_found_alone(code: str) -> None:
    assert codes(rows(**PLANTED[code])) == [code]


CLEAN = {
    "an even run": {},
    "a team that was always small": {"agents": 1.0, "reward": up},
    "a team that shrinks and stays one": {"agents": lambda s: 8.0 - 5 * s, "reward": up},
    "a team that shrinks while reward falls, to more than one": {
        "agents": lambda s: 4.0 if s < 0.5 else 1.2,
        "reward": lambda s: 9 - s,
    },
    "calls spread over the team": {"top_share": 0.45},
    "nobody to choose from": {"top_share": None, "message_price": None, "message_share": None, "equal_groups": None},
    "more words that pay": {
        "message_price": lambda s: 0.001 if s < 0.5 else 0.003,
        "reward": lambda s: 10.0 if s < 0.5 else 12.0,
    },
    "more words that cost nothing to speak of": {"message_price": lambda s: 1e-6 if s < 0.5 else 1e-5, "message_share": 0.001},
    "some equal groups": {"equal_groups": 0.3},
    "rounding": {"mismatch": 2e-5},
    "a row without the check": {"mismatch": None},
}


@pytest.mark.parametrize("name", CLEAN)
def test_what_is_clean_is_not_found(name: str) -> None:
    assert codes(rows(**CLEAN[name])) == []


def test_a_collapse_below_one_is_found_also_when_reward_falls() -> None:
    falls = {"agents": lambda s: 4.0 if s < 0.5 else 0.4, "reward": lambda s: 10.0 - 5 * s}
    assert codes(rows(**falls)) == ["serial_collapse"]


def test_reward_up_while_held_out_is_flat() -> None:
    flat = evals(value=lambda share: 10.0)
    assert codes(rows(reward=up), flat) == ["held_out_flat"]
    (alert,) = raised_alerts(rows(reward=up), flat, [], EVERYBODY)
    assert alert.is_held_out
    # held-out follows; reward does not rise; exploration fades under a flat greedy level; no evaluation at this update
    assert codes(rows(reward=up), evals(value=up)) == []
    assert codes(rows(reward=10.0), flat) == []
    assert codes(rows(reward=lambda s: 4.0 + 5 * s), flat) == []
    assert codes(rows(reward=up)[:-1], flat) == []
    assert codes(rows(reward=up), flat[-2:]) == []


def test_an_alert_is_not_repeated_at_once() -> None:
    metrics = rows(n=120, **PLANTED["zero_variance"])
    held = evals(n=120)
    assert codes(metrics, held, [{"update": 120 - AGAIN + 1, "code": "zero_variance"}]) == []
    assert codes(metrics, held, [{"update": 120 - AGAIN, "code": "zero_variance"}]) == ["zero_variance"]
    assert codes(metrics, held, [{"update": 119, "code": "dominant_agent"}]) == ["zero_variance"]


def test_nothing_is_found_before_there_is_anything() -> None:
    assert raised_alerts([], [], [], {}) == []
    assert codes(rows(n=1), []) == []


# -- what a batch shows


def test_the_signals_of_a_real_batch_are_clean(training: Training, batch: Rollout) -> None:
    row = signals(batch).row
    assert row["masked"] == 0
    assert row["message_price"] == pytest.approx(batch.columns["cost_messages"].sum() / batch.columns["calls"].sum())
    assert 0 < row["message_share"] < 1  # type: ignore[operator]
    gap, who = mismatch(training.net, batch)
    assert gap < 1e-4
    assert who == ()


def test_other_weights_and_masked_choices_are_seen(training: Training, batch: Rollout) -> None:
    other = Network()
    other.load_state_dict(training.net.state_dict())
    with torch.no_grad():
        other.purpose.bias += torch.tensor([0.5, 0.0, 0.0, 0.0])
    gap, who = mismatch(other, batch)
    assert gap > 0.05
    assert who
    item = {**batch.tables["item"], "mask": batch.tables["item"]["mask"].copy()}
    item["mask"][0, item["choice"][0]] = False
    spoiled = Rollout(**{**vars(batch), "tables": {**batch.tables, "item": item}})
    seen = signals(spoiled)
    assert seen.row["masked"] == 1
    assert seen.worst["mask_mismatch"] == (int(item["ep"][0]),)


def made(agents: list[int], values: list[float], seeds: list[int], calls: list[tuple[int, int]]) -> Rollout:
    """A batch by hand; calls are (episode, agent)."""
    ep, agent = (np.array(x, np.int64) for x in zip(*calls, strict=True))
    table = {"ep": ep, "agent": agent, "choice": np.ones(len(ep), np.int64), "mask": np.ones((len(ep), 4), np.bool_)}
    n = len(values)
    columns = {
        "agents": np.array(agents),
        "calls": np.bincount(ep, minlength=n),
        "cost_messages": np.ones(n),
        "cost_calls": np.ones(n),
    }
    return Rollout(None, np.array(seeds), np.arange(n), {"item": table}, np.zeros((1, n)), np.array(values), columns)  # type: ignore[arg-type]


def test_shares_and_groups_by_hand() -> None:
    # episode 0: 9 of 12 calls to agent 1 of three; episode 1: a pair, which is no team to choose from
    calls = [(0, 1)] * 9 + [(0, 2)] * 2 + [(0, 3)] + [(1, 1)] * 12
    seen = signals(made([3, 2, 0, 0], [1.0, 1.0, 2.0, 3.0], [7, 7, 8, 8], calls))
    assert seen.row["top_share"] == pytest.approx(9 / 12)
    assert seen.worst["dominant_agent"] == (0,)
    assert seen.row["equal_groups"] == 0.5
    assert seen.worst["zero_variance"] == (0, 1)
    assert seen.worst["serial_collapse"] == (2, 3, 1)
    assert seen.row["message_share"] == 0.5
    assert signals(made([3, 3], [1.0, 1.0], [7, 8], [(0, 1)])).row["equal_groups"] is None


def test_the_traces_behind_an_alert_are_the_episodes_themselves(training: Training) -> None:
    jobs = tuple(training.job(k, 0, training.weights()) for k in (0, 1))
    played = [play(job.payload, job.weights).rollout for job in jobs]
    count = len(played[0].values)
    traces = logged(jobs, (1, 2, count))
    wanted = [played[0].values[1], played[0].values[2], played[1].values[0]]
    assert [t.rewards["team"] for t in traces] == pytest.approx(wanted)
    assert len({t.trace_id for t in traces}) == 3
    assert logged(jobs, ()) == []


def test_every_code_is_explained() -> None:
    assert all(code in (alerts.__doc__ or "") for code in CODES)
