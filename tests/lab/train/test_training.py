"""The learner's state: jobs by number, one update, budgets, and a checkpoint that holds all of it."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from counterpoint.errors import InputError, Refused
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.rollouts import TracedRollout
from counterpoint.lab.train.run import logged
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from lab.train.quick import CONFIG


def training(**changes: object) -> Training:
    return Training(settings_of(CONFIG | changes))


def played(t: Training, number: int) -> TracedRollout:
    job = t.job(number, t.update, t.weights())
    return play(job.payload, job.weights)


def test_a_job_is_a_function_of_its_number() -> None:
    t = training(runner="processes", workers=2)
    assert t.jobs_per_update() == 2
    for number in range(6):
        a, b = t.job(number, 0, {}).payload, t.job(number, 5, {}).payload
        assert all(np.array_equal(a[k], b[k]) for k in a)
    seeds = [t.job(number, 0, {}).payload["seeds"] for number in range(6)]
    assert np.concatenate(seeds).min() >= 1_000_000
    # groups stay whole: a seed is in one job, as often as the group is large
    every, counts = np.unique(np.concatenate(seeds), return_counts=True)
    assert (counts == 2).all()
    assert len(every) == 12
    other = training(seed=1).job(0, 0, {}).payload["seeds"]
    assert not set(other) & set(every)


def test_jobs_of_an_update_are_its_episodes_whatever_their_number() -> None:
    one, two = training(), training(runner="processes", workers=2)
    whole = one.job(3, 0, {}).payload
    parts = [two.job(k, 0, {}).payload for k in (6, 7)]
    for key in ("seeds", "salts", "gate", "keeps"):
        assert np.array_equal(whole[key], np.concatenate([p[key] for p in parts]))


def test_an_update_counts_all_it_spent_and_changes_the_weights() -> None:
    t = training()
    before, out = t.weights(), played(t, 0)
    row = t.learn([out])
    assert t.update == row["update"] == 1
    assert row["calls"] == out.rollout.calls == t.totals["calls"]
    rounds = out.rollout.columns["rounds"].tolist()
    assert 0 in rounds, "an episode without a round is charged 1"
    assert row["charged"] == out.rollout.calls + sum(rounds) + rounds.count(0) == t.totals["charged"]
    assert row["episodes"] == 8
    forced = out.rollout.tables["spawn"]
    assert row["forks"] == len(np.unique(forced["ep"][forced["forced"]]))
    assert row["reward"] == pytest.approx(out.rollout.values.mean())
    assert any(not np.array_equal(before[k], v) for k, v in t.weights().items())


def test_progress_is_by_whichever_limit_is_nearer() -> None:
    t = training(updates=4, budget_calls=1000)
    t.update, t.totals = 1, {**t.totals, "charged": 100}
    assert t.progress == 0.25
    t.totals["charged"] = 600
    assert t.progress == 0.6
    t.totals["charged"] = 2000
    assert t.is_done
    assert training(budget_calls=0).progress == 0.0


def test_a_checkpoint_holds_the_whole_state() -> None:
    a, b = training(), training()
    a.learn([played(a, 0)])
    b.restore(a.state(), "a test")
    assert b.update == 1
    rows = [t.learn([played(t, 1)]) for t in (a, b)]
    assert rows[0] == rows[1]
    assert all(np.array_equal(v, b.weights()[k]) for k, v in a.weights().items())
    assert all(torch.equal(v, b.mean[k]) for k, v in a.mean.items())


def test_rollouts_of_the_present_weights_have_full_weight_and_older_ones_less() -> None:
    t = training()
    out = played(t, 0)
    assert t.learn([out], stale=1)["ess"] == pytest.approx(1.0, abs=1e-3)
    assert t.learn([out], stale=1)["ess"] < 0.9999


def test_the_player_is_the_running_mean() -> None:
    t = training()
    t.learn([played(t, 0)])
    net = t.player()
    assert all(torch.equal(v, t.mean[k]) for k, v in net.state_dict().items())


def test_an_update_widens_where_the_preset_says_so_and_not_against_the_run() -> None:
    ours = {"preset": "counterpoint", "world": "W1", "set": {"vote_items": 8}, "updates": 3}
    t = Training(settings_of(ours))
    first, times = t.preset.widens
    assert (t.episodes(first - 1), t.episodes(first)) == (24, 24 * times)
    assert len(t.job(first, 0, {}).payload["seeds"]) == 24 * times
    assert Training(settings_of({**ours, "episodes": 8})).episodes(first) == 8


def test_fewer_items_are_kept_open_as_a_run_goes_on() -> None:
    t = training(preset="counterpoint", episodes=24, set={"vote_items": 40})
    early, late = (t.job(n, 0, {}).payload["keeps"] for n in (0, 60))
    assert (early > 0).mean() == pytest.approx(t.preset.keeps, abs=0.05)
    assert (late > 0).mean() == pytest.approx(t.preset.keeps / 4, abs=0.03)
    assert set(early[early > 0]) == {12}  # calls, after which it may be left


def test_a_task_is_tried_in_all_its_episodes_or_in_none_and_more_rarely_as_a_run_goes_on() -> None:
    t = training(preset="counterpoint", episodes=24, set={"vote_items": 4})
    early, late = (np.array([t.job(n, 0, {}).payload["tries"] for n in range(first, first + 20)]) for first in (0, 80))
    groups = early.reshape(-1, t.preset.group)
    assert (groups.all(axis=1) == groups.any(axis=1)).all()
    assert early.mean() == pytest.approx(t.preset.tries / 1.4, abs=0.12)
    assert late.mean() == pytest.approx(t.preset.tries / 5.4, abs=0.08)


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="3 episodes do not make groups of 2"):
        training(episodes=3).episodes()
    with pytest.raises(Refused, match="needs votes"):
        training(preset="lab.train.quick:needy", world="D", set={})
    t = training()
    with pytest.raises(InputError, match="other settings: seed"):
        training(seed=3).restore(t.state(), "here")
    with pytest.raises(InputError, match="not a checkpoint"):
        t.restore(b"nothing", "here")


class _Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, ("sprung",))


def test_a_checkpoint_of_a_stranger_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    into = io.BytesIO()
    torch.save({"format": 1, "settings": _Trap()}, into)
    with pytest.raises(InputError, match="not a checkpoint"):
        training().restore(into.getvalue(), "here")
    assert not (tmp_path / "sprung").exists()


def test_episodes_of_an_alert_are_those_that_were_played() -> None:
    training = Training(settings_of({"preset": "counterpoint", "world": "W1", "set": {"vote_items": 8}, "updates": 4}))
    job = training.job(0, 0, training.weights())
    whole = play({**job.payload, "log": True}, job.weights).traces
    tried = np.flatnonzero(np.isfinite(job.payload["sizes"]).any(axis=1))
    some = (0, int(tried[0]), len(whole) - 1)
    assert job.payload["tries"][tried].all()
    said = [[(e.key, e.type, e.agent, e.to, e.tokens_in) for e in t.events] for t in (*logged((job,), some), *(whole[i] for i in some))]
    assert said[:3] == said[3:]


def test_critics_keep_a_rollout_of_every_sort_of_task() -> None:
    mix = [{"vote_items": 2}, {"vote_items": 3}]
    t = Training(settings_of({"preset": "counterpoint", "world": "W1", "mix": mix, "updates": 9, "episodes": 4, "budget_calls": 0}))
    for update in range(3):
        job = t.job(update, update, t.weights())
        t.fit_critics(play(job.payload, job.weights).rollout, keep=1)
    assert [r.config.vote_items for r in t.recent] == [3, 2]
