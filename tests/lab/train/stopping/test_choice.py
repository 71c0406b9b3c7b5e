"""The stacked chooser: leaves the cap where there is something to gain, stays where there is not; the same seed, the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint import registry
from counterpoint.errors import InputError, NotFound, NotIdentified, Refused
from counterpoint.guard.stop_paths import StopPaths, checked, from_traces
from counterpoint.guard.stop_rule import Rule, best_cap, load_rule
from counterpoint.lab.train.stopping.choice import TRAINERS, _undecided, choose, stacked
from counterpoint.lab.train.stopping.expected import calmest, expected

S0, S1, S2, S3 = (registry.get("world", name) for name in ("s0", "s1", "s2", "s3"))


def gap(world: Any, rule: Rule) -> float:
    x = world.paths(range(900_000, 902_000)).features
    return float(1 - world.regret(x, rule.stop_times(x)).mean() / (world.solution().value - world.solution().cap))


def test_it_closes_the_gap_in_s1_and_s3() -> None:
    assert gap(S1, stacked(S1.paths(range(200)), 0)) > 0.85
    assert gap(S3, stacked(S3.paths(range(100)), 0)) > 0.9


def test_it_stays_at_the_cap_where_only_time_matters() -> None:
    choice, _ = choose(S0.paths(range(300)), 0)
    assert choice.winners == ("best_cap",)
    assert set(choice.gains) == {"threshold", "longstaff_schwartz", "pooled", "all_stops"}


def test_what_the_traces_cannot_tell_apart_goes_on_longer() -> None:
    """A hundred traces of S2 in which, by luck, one vote was enough: the cap would lose twice the gap."""
    paths = S2.paths(range(10_000_000, 10_000_100))
    choice, calm = choose(paths, 0)
    assert max(mean - error for mean, error in choice.gains.values()) <= 1e-9  # nothing clearly beats the cap
    assert len(choice.winners) == 1
    assert gap(S2, best_cap(calm)) < -0.5
    assert gap(S2, stacked(paths, 0)) > 0.5


def test_the_longer_rule_needs_payoffs_that_do_not_speak_against_it() -> None:
    rng = np.random.default_rng(0)
    later = {"short": np.full(60, -1.0), "long": np.full(60, 2.0)}
    noise = rng.normal(size=60)
    assert _undecided({"short": noise, "long": noise - noise.mean()}, later) == "long"
    assert _undecided({"short": noise, "long": noise - noise.mean() - 1.0}, later) == "best_cap"
    assert _undecided({"short": noise, "long": noise}, {name: -np.abs(x) for name, x in later.items()}) == "best_cap"


def test_expected_gains_have_the_same_mean_and_less_noise() -> None:
    paths = checked(S1.paths(range(400)))
    form, calm = calmest(paths, 0)
    assert form == "given now"
    assert calm[:, 0] == pytest.approx(paths.payoffs[:, 0])
    assert calm.mean(axis=0)[:15] == pytest.approx(paths.payoffs.mean(axis=0)[:15], abs=0.2)
    at = S1.run("optimum", range(400)).columns["rounds"].astype(int)
    gained = [y[np.arange(400), at] - y[:, 8] for y in (paths.payoffs, calm)]
    assert gained[1].mean() == pytest.approx(gained[0].mean(), abs=0.4)
    assert gained[1].std() < 0.7 * gained[0].std()


def test_votes_are_calmer_given_the_next_margin() -> None:
    paths = checked(S2.paths(range(200)))
    assert calmest(paths, 0)[0] == "given now and next"
    gains = np.diff(expected(paths, 0, after=True), axis=1)
    margin = paths.features[:, :, 1]
    sure = (margin[:, :-1] >= 2) & (margin[:, 1:] >= 2)
    assert np.abs(gains[sure] + S2.config.price).max() < 0.03  # nothing changes while a side leads by two


@pytest.mark.parametrize("name", sorted(TRAINERS))
def test_the_same_seed_gives_the_same_bytes_and_a_file_the_same_rule(name: str, tmp_path: Path) -> None:
    paths = S3.replace(horizon=12).paths(range(60))
    rule, again = (TRAINERS[name](paths, 7) for _ in range(2))
    assert rule.as_bytes() == again.as_bytes()
    rule.save(tmp_path / "rule.npz")
    loaded = load_rule(tmp_path / "rule.npz")
    assert (loaded.stops(paths.features) == rule.stops(paths.features)).all()
    assert loaded.about == rule.about
    assert rule.about["traces"] == 60


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 50), st.sampled_from(sorted(TRAINERS)))
def test_changing_the_future_changes_no_earlier_decision(t: int, name: str) -> None:
    world = S1.replace(horizon=10)
    rule = TRAINERS[name](world.paths(range(40)), 0)
    x = world.paths(range(1000, 1030)).features
    changed = x.copy()
    cut = t % 10
    changed[:, cut + 1 :] = np.random.default_rng(t).normal(size=changed[:, cut + 1 :].shape) * 50
    assert (rule.stops(x)[:, : cut + 1] == rule.stops(changed)[:, : cut + 1]).all()
    assert rule.stops(x)[:, -1].all()
    assert (rule.stop_times(x) == rule.stops(x).argmax(axis=1)).all()


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([S0, S1, S2, S3]), st.integers(1, 30), st.floats(0.5, 2.0))
def test_no_cap_beats_the_optimum(world: Any, horizon: int, factor: float) -> None:
    changed = world.replace(horizon=horizon, price=factor * world.config.price)
    rule, x = best_cap(changed.paths(range(30))), changed.paths(range(100, 200)).features
    lost = changed.regret(x, rule.stop_times(x))
    assert lost.min() >= -1e-9
    assert changed.solution().cap <= changed.solution().value + 1e-9


def test_other_horizons_and_other_features() -> None:
    rng = np.random.default_rng(0)
    for horizon, width in ((1, 1), (7, 14)):
        x = rng.normal(size=(40, horizon + 1, width))
        y = np.cumsum(x[:, :, 0], axis=1)
        for trainer in TRAINERS.values():
            assert trainer(StopPaths(payoffs=y, features=x), 1).stops(x).shape == (40, horizon + 1)


def test_a_rule_plays_in_its_world_and_refuses_another() -> None:
    traces = [S3.replace(horizon=8).trace(seed) for seed in range(20)]
    rule = stacked(from_traces(traces), 0)
    assert rule.about["world"] == "s3"
    assert rule.about["policy"] == "optimum"
    small = S3.replace(horizon=8)
    rule.refuse_other(small)
    runs = small.run(rule.policy(), range(50))
    x = small.paths(range(50)).features
    assert (runs.columns["rounds"] == rule.stop_times(x)).all()
    with pytest.raises(Refused, match="world s3"):
        rule.refuse_other(S1)
    with pytest.raises(Refused, match="horizon = 8"):
        rule.refuse_other(S3)


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    y, x = np.random.default_rng(0).normal(size=(20, 5)), np.zeros((20, 5, 2))
    for wrong, says in (
        (StopPaths(payoffs=y, features=x[:, :4]), "features of shape"),
        (StopPaths(payoffs=y[:, :1], features=x[:, :1]), "nothing to decide"),
        (StopPaths(payoffs=y[:3], features=x[:3]), "too few"),
        (StopPaths(payoffs=np.where(np.arange(5) == 3, np.nan, y), features=x), "trace 0, checkpoint 3"),
    ):
        with pytest.raises(InputError, match=says):
            stacked(wrong)
    never = np.zeros((20, 5))
    never[:, -1] = 1
    with pytest.raises(NotIdentified, match="degenerate to never"):
        best_cap(StopPaths(payoffs=never, features=x))
    rule = best_cap(StopPaths(payoffs=y, features=x))
    with pytest.raises(InputError, match="as it was trained on"):
        rule.stops(np.zeros((2, 9, 2)))
    with pytest.raises(NotFound):
        load_rule(tmp_path / "none.npz")
    (tmp_path / "no.npz").write_bytes(b"PK\x03\x04nothing")
    with pytest.raises(InputError, match="is not a stop rule"):
        load_rule(tmp_path / "no.npz")
