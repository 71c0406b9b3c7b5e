"""Claims about language models: refused at once where there is no GPU, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from counterpoint.bench.claims.lm_learn import lm_learn  # noqa: E402
from counterpoint.errors import Refused  # noqa: E402


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_is_refused_before_anything_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path / "runs"))
    with pytest.raises(Refused, match="needs a GPU"):
        next(lm_learn(seed=0, seeds=1))
    assert not (tmp_path / "runs").exists()
