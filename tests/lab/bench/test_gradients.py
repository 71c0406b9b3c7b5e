"""Gradients under a credit: the arithmetic by hand, what is unbiased, and the claim at a small size."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.lab.bench.claims.gradient_fidelity import part_rows, rows
from counterpoint.lab.bench.claims.gradient_training import rows as training_rows
from counterpoint.lab.bench.fidelity import GradientSample, fidelity
from counterpoint.lab.bench.gradients import (
    CREDITS,
    GROUP,
    NAMES,
    PARTITION,
    TEAM,
    Setting,
    gradient,
    gradient_sample,
    item_returns,
    less_others,
    parameter_groups,
    team_advantages,
    teams_of,
)
from counterpoint.lab.train.presets.grpo import grpo
from counterpoint.lab.train.row_credit import assigned
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training

ROOT = Path(__file__).parents[3]
DIALS = {"vote_items": 4, "max_agents": 2}


@pytest.fixture(scope="module")
def setting() -> Setting:
    run = Training(settings_of({"preset": "dense_clip", "world": "W1", "set": DIALS, "seed": 3, "updates": 1}))
    return Setting(run.net, run.weights(), "W1", DIALS)


def test_fidelity_by_hand() -> None:
    # the truth is (2, 0) in both halves; of the credit's two batches, (1, 1) and (1, -1), the mean is (1, 0)
    truth = GradientSample(np.array([[2.0, 0.0], [2.0, 0.0]]), 10, 5.0)
    found = fidelity(GradientSample(np.array([[1.0, 1.0], [1.0, -1.0]]), 4, 2.0), truth)
    assert found.batch == pytest.approx(math.sqrt(0.5))
    assert math.isnan(found.cosine), "the two batches have a product of 0: no signal above the noise"
    # along the truth 1 and 1: signal 1; trace of the covariance: mean square 2, less the product 0
    assert found.per_team == pytest.approx(1 / 2 / 4)
    assert found.per_call == pytest.approx(1 / 2 / 4 / 2)
    one_sided = fidelity(GradientSample(np.array([[1.0, 1.0], [1.0, 0.0]]), 4, 2.0), truth)
    assert one_sided.cosine == pytest.approx(1.0), "the batches' product is 1, and along the truth lies 1"
    itself = fidelity(truth, truth, is_truth=True)
    assert itself.cosine == 1.0


def test_noise_alone_has_no_signal() -> None:
    rng = np.random.default_rng(1)
    truth = GradientSample(np.ones((40, 50)) + rng.normal(0, 0.1, (40, 50)), 1, 1.0)
    found = [fidelity(GradientSample(rng.normal(0, 1, (20, 50)), 1, 1.0), truth).per_team for _ in range(400)]
    spread = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found)) < 4.5 * spread, "what is reported of pure noise is 0 on average"


def test_team_credit_is_that_of_the_mechanism(setting: Setting) -> None:
    out, traces = teams_of(setting, 500, 2, log=True)
    preset = replace(grpo, credit={"group_relative": {"convention": "rloo"}})
    wanted = assigned(preset, out, traces, setting.net, progress=0.0).advantages["item"]
    assert np.allclose(team_advantages(out)["item"], wanted)


def test_the_partition_adds_up_to_what_the_calls_brought(setting: Setting) -> None:
    out, _ = teams_of(setting, 900, 2, log=False)
    t = out.tables["item"]
    raw = np.bincount(t["ep"], t["reward"], len(out.values))
    assert np.allclose(raw + out.extra["team"] + out.value_TE[0], out.values)
    first = t["order"][np.r_[True, np.diff(t["chain"][t["order"]]) != 0]]
    to_go = item_returns(replace(out, seeds=np.arange(len(out.values))))  # alone in their tasks: nothing is taken off
    assert np.allclose(np.bincount(t["ep"][first], to_go["item"][first], len(out.values)), raw)


def test_a_baseline_is_of_other_teams(setting: Setting) -> None:
    out, _ = teams_of(setting, 300, 2, log=False)
    ep = out.tables["item"]["ep"]
    given = {name: np.ones(len(ep)) for name in ("item", "brief", "point")}
    assert np.allclose(less_others(out, given)["item"], 0.0), "what all teams get alike teaches nothing"
    moved = {name: np.where(ep == 0, 5.0, 0.0) for name in given}
    found = less_others(out, moved)["item"]
    assert np.allclose(found[ep == 0], 5.0), "one's own does not lower it"
    assert (found[(ep > 0) & (ep < GROUP)] < 0).all()
    assert np.allclose(found[ep >= GROUP], 0.0), "another task"
    some = np.arange(len(ep)) % 2 == 0
    assert np.allclose(less_others(out, moved, some)["item"][~some], 0.0), "what a credit does not cover gets 0"


def test_no_advantage_no_gradient_and_gradients_add(setting: Setting) -> None:
    out, _ = teams_of(setting, 700, 1, log=False)
    n = len(out.tables["item"]["ep"])
    one, two = ({"item": np.random.default_rng(s).normal(size=n)} for s in (0, 1))
    assert not gradient(setting.net, out, {"item": np.zeros(n)}).any()
    both = gradient(setting.net, out, {"item": one["item"] + two["item"]})
    assert np.allclose(both, gradient(setting.net, out, one) + gradient(setting.net, out, two), atol=1e-4)


def test_forks_are_paid_and_the_same_seed_gives_the_same(setting: Setting) -> None:
    names = [TEAM, PARTITION, "difference", "messages by forks"]
    found, again = (gradient_sample(setting, names, 40, 2, 1) for _ in range(2))
    assert found[TEAM].calls == found[PARTITION].calls < found["difference"].calls < found["messages by forks"].calls
    assert all((found[name].batches == again[name].batches).all() for name in names)


def test_parameter_groups_are_all_that_is_taught(setting: Setting) -> None:
    out, _ = teams_of(setting, 700, 2, log=False)
    whole = gradient(setting.net, out, team_advantages(out))
    groups = parameter_groups(setting.net)
    assert list(groups) == ["encoder", "what for", "brief", "whom"]
    places = np.concatenate(list(groups.values()))
    assert len(set(places.tolist())) == len(places)
    assert not np.delete(whole, places).any(), "the rest decides nothing here"


def test_fidelity_of_some_parameters_is_that_of_them_alone() -> None:
    rng = np.random.default_rng(3)
    truth, mine = (GradientSample(rng.normal(1, 1, (8, 6)), 2, 1.0) for _ in range(2))
    at = np.array([1, 4])
    alone = [GradientSample(sample.batches[:, at], 2, 1.0) for sample in (mine, truth)]
    assert fidelity(mine.of(at), truth.of(at)) == fidelity(*alone)
    silent = fidelity(GradientSample(np.zeros((4, 6)), 2, 1.0), truth)
    assert all(math.isnan(x) for x in (silent.batch, silent.cosine, silent.per_team)), "what has no gradient has no direction"


def test_parts_at_a_small_size() -> None:
    made = [row.name for row in part_rows(5, 1, 2, 640, 4)]
    assert len(set(made)) == len(made)
    assert f"parameters: whom, 2 workers, cosine of the mean: {PARTITION}" in made


def test_training_at_a_small_size() -> None:
    made, again = ({row.name: row for row in training_rows(3, 2, (2, 3), 2, 3)} for _ in range(2))
    assert made == again
    for name in (TEAM, PARTITION):
        assert made[f"3 workers, matched KL, {name}: KL of a step"].value == pytest.approx(0.01, rel=0.02)
        assert made[f"3 workers, one rate, {name}: gained, share of the bound"].low is not None
    assert [row.name for row in made.values() if row.has_target] == ["matched KL: lead of the partition, widest less narrowest"]
    lead = [made[f"{n} workers, matched KL: partition less team, share of the bound"].value for n in (2, 3)]
    assert made["matched KL: lead of the partition, widest less narrowest"].value == pytest.approx(lead[1] - lead[0])
    with pytest.raises(InputError, match="at least 1"):
        next(training_rows(1, 0, (2,), 2, 3))


def test_the_claim_at_a_small_size() -> None:
    made = list(rows(3, 1, (2, 4), 640, 4))
    names = [row.name for row in made]
    assert len(set(names)) == len(names)
    for name in NAMES:
        assert f"signal to noise of a team, 4 workers: {name}" in names
    by_name = {row.name: row.value for row in made}
    key = "signal to noise of a team, {} workers: " + PARTITION
    assert by_name[key.format(2)] > 0
    assert len(CREDITS) == 5
    with pytest.raises(InputError, match="at least 1"):
        next(rows(1, 0, (2,), 640, 4))


@pytest.mark.parametrize("name", ["fork-audit", "gradient-fidelity", "messages"])
def test_the_papers_figures_are_drawn_from_their_rows(name: str, tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "tools" / "figures.py", name, ROOT / "docs" / "lab" / "research" / f"{name}.jsonl"]
    for kind in ("one.svg", "two.svg"):
        subprocess.run([*command, tmp_path / kind], check=True, timeout=300)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.svg").read_text().count("<path") > 20
    refused = subprocess.run([*command, tmp_path / "three.gif"], capture_output=True, text=True, timeout=300)
    assert (refused.returncode, "give fork-audit or gradient-fidelity or messages" in refused.stderr) == (2, True)
