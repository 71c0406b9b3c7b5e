"""A valid paper, and the command line run in-process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterpoint.app.cli import main

PAPER: dict[str, Any] = {
    "key": "novel2026",
    "title": "A Novel Team",
    "first_author": "Doe, Jane",
    "year": 2026,
    "arxiv_id": "2609.00001",
    "venue": "arXiv",
    "url": "https://arxiv.org/abs/2609.00001",
    "category": "rl_method",
    "is_rl": "yes",
    "reward_type": "orchestration",
    "credit_granularity": "orchestrator",
    "orchestration_form": "centralized",
    "scenario": "general",
    "is_core": "supporting",
    "one_liner": "Trains a team.",
}


@pytest.fixture
def record() -> dict[str, Any]:
    return dict(PAPER)


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(PAPER) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run `counterpoint papers ...`; gives exit code, stdout and stderr."""

    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["papers", *args])
        out, err = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, out, err

    return call
