"""Gradients of a language model by credit: the claim whole with a tiny model on a CPU, cut off, gone on with, and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from tests.lm_help import TEXTS  # noqa: E402
from tests.tiny_help import make_tiny  # noqa: E402

from counterpoint.lab.bench.claims import _language, _starts, gradient_lm  # noqa: E402

LIMITS = {"turns": 10, "steps": 1, "max_tokens": 6, "context": 1500, "repairs": 0, "width": 1}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trial with the least counts, on a task that a tiny model sometimes solves."""
    torch.set_num_threads(1)
    model = make_tiny(tmp_path / "tiny", texts=TEXTS, words=512, spread=0.15, context=2048)
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COUNTERPOINT_LM", str(model))
    monkeypatch.setenv("COUNTERPOINT_LM_SCALE", "0.004")
    toy = {"name": "tests.lm_help:colours", "topology": "harness", "limits": LIMITS}
    monkeypatch.setattr(gradient_lm, "_task", lambda width: toy)

    def in_turn(part: Any, given: Any, *, at_once: int = 1) -> None:
        for args in given:
            if not _language.is_made(args[0]):
                part(*args)

    monkeypatch.setattr(_starts, "side_by_side", in_turn)
    return tmp_path / "runs" / "claims" / "gradient-lm-tiny" / "1" / "batches-7-0"


def test_the_claim_whole_cut_off_and_gone_on_with(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {row.name: row for row in gradient_lm.rows(7, 1, (1,))}
    assert not any(row.has_target for row in made.values())
    assert "signal to noise of a team, 1 workers, everybody, all weights: team" in made
    assert "cosine of the mean, 1 workers, worker, attention: difference" in made
    files = sorted(small.glob("*.npz"))
    assert len(files) == 8
    with np.load(small / "credit-0.npz") as found:
        keys = [tuple(key.split("|")) for key in found.files]
        assert {key[0] for key in keys} == set(gradient_lm.CREDITS)
        parts = sum(found[f"team|{role}|all weights"] for role in ("orchestrator", "worker"))
        assert np.allclose(found["team|everybody|all weights"], parts, atol=1e-5)
        groups = sum(found[f"team|everybody|{g}"] for g in ("attention", "feed-forward", "words", "rest"))
        assert np.allclose(found["team|everybody|all weights"], groups, atol=1e-5)
    before = {f.name: f.read_bytes() for f in files}
    (small / "credit-1.npz").unlink()
    again = {row.name: row for row in gradient_lm.rows(7, 1, (1,))}
    with np.load(small / "credit-1.npz") as new:
        assert new.files
    assert (small / "truth-0.npz").read_bytes() == before["truth-0.npz"]
    name = "signal to noise of a team, 1 workers, everybody, all weights: team"
    assert again[name].value == pytest.approx(made[name].value, nan_ok=True), "the same tasks and draws again"

    def nothing(*_: Any, **__: Any) -> Any:
        raise AssertionError("what is there is read, and nothing is played")

    monkeypatch.setattr(gradient_lm, "player", nothing)
    assert {row.name for row in gradient_lm.rows(7, 1, (1,))} == set(made)
