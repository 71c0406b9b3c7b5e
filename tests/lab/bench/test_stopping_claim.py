"""The claim `stopping`, made small: its rows, its seeds, its drawn worlds."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.lab.bench.claims import stopping as claim


def test_drawn_worlds_are_functions_of_the_seed_and_have_a_gap() -> None:
    for name in ("s0", "s1", "s2", "s3"):
        world = claim._drawn(name, 4)
        assert world == claim._drawn(name, 4)
        assert world != claim._drawn(name, 5)
        assert 20 <= world.config.horizon <= 60
        if name != "s0":
            assert world.solution().value - world.solution().cap >= 0.03 * abs(world.solution().value)


def test_no_episode_is_used_twice() -> None:
    s1 = registry.get("world", "s1")
    uses = [claim._seeds(s1, run, use, 2000) for run in (0, 1) for use in ("train", "train on few", "bracket", "test")]
    assert len(np.unique(np.concatenate(uses))) == 8 * 2000


def test_gaps_by_hand() -> None:
    s1 = registry.get("world", "s1")
    solved = s1.solution()
    assert claim._gap(s1, 0.0) == 1
    assert claim._gap(s1, solved.value - solved.cap) == pytest.approx(0)


def test_a_small_version_yields_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_MANY": 120, "_FEW": 40, "_TEST": 400, "_FRESH": 80, "_FORKS": 8, "_PRICED": 40}.items():
        monkeypatch.setattr(claim, name, value)
    s1 = registry.get("world", "s1").replace(horizon=12)
    found = claim._measured(s1, 3)
    rows = list(claim._listed(s1, [found]))
    assert [row.name.split(":")[0] for row in rows] == ["S1"] * 6
    assert 0.5 < found["many"] <= 1


def test_seeds_below_one_are_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        next(claim.stopping(seed=0, seeds=0))
