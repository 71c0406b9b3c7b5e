"""Without TRL the claim about it is refused and says how to get it; with it, tests/lab/trainers runs it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from counterpoint.errors import InputError, Refused
from counterpoint.lab.bench.claims.under_trl import ARMS, under_trl


@pytest.mark.skipif(find_spec("trl") is not None, reason="TRL is here")
def test_where_trl_is_not_installed_the_claim_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path))
    with pytest.raises(Refused, match=r"learns with TRL, and trl is not installed.*make trainers"):
        next(under_trl(seed=0, seeds=1))


def test_it_needs_a_run() -> None:
    with pytest.raises(InputError, match="seeds is at least 1, not 0"):
        next(under_trl(seed=0, seeds=0))


def test_runs_that_ended_are_read_without_trl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Made on another machine, read here: each arm's share of the best is by hand, 0.38 / 0.76 and so on."""
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path))
    monkeypatch.delenv("COUNTERPOINT_LM", raising=False)
    folder = tmp_path / "claims" / "under-trl-tiny"
    folder.mkdir(parents=True)
    for arm, score in zip(ARMS, (0.76, 0.38, 0.19, 0.0), strict=True):
        row = {"steps": 25, "arm": arm, "score": score, "before": -0.076, "best": 0.76}
        (folder / f"{arm.replace('/', '-')}-7-0-0.json").write_text(json.dumps(row))
    rows = {row.name: row.value for row in under_trl(seed=7, seeds=1)}
    assert rows["computed: share of the best team's reward"] == 1.0
    assert rows["computed over dr-mas, share of the best"] == 0.5
    assert rows["computed over reward/K, share of the best"] == 1.0
    assert rows["before anything is learnt: share of the best"] == pytest.approx(-0.1)
