"""The claim `games-lm`: a tiny model goes through all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")
from tests.lm_help import TEXTS
from tests.tiny_help import make_tiny

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.bench.claims import _language, games_lm
from counterpoint.lab.lm.adding import add

are_there = all(find_spec(name) for name in ("textarena", "reasoning_gym"))


@pytest.mark.skipif(are_there, reason="both packages are installed")
def test_a_package_that_is_missing_is_named_before_anything_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path / "runs"))
    with pytest.raises(InputError, match="at least 1"):
        next(games_lm.games_lm(seed=0, seeds=0))
    with pytest.raises(NotFound, match="is not installed"):
        next(games_lm.games_lm(seed=0, seeds=1))
    assert not (tmp_path / "runs").exists()


def test_what_is_learned_has_something_to_learn() -> None:
    """Where all seats are ours the rewards of a game add up to nothing; two are the world's. Sums are in the claim's limits."""
    game, questions = (games_lm._settings(name, 7, 5000) for name in games_lm.LEARNED)
    assert game["task"][0]["name"].endswith("@3~2")
    assert (game["imitate"]["demos"], questions["imitate"]) == ("fake:1", {"steps": 0})
    assert (game["eval_first"], game["seed"], game["is_eval_first"]) == (5000, 7, True)
    assert len(games_lm.GAMES) == 3
    assert len(games_lm.SETS) == 5


@pytest.mark.skipif(not are_there, reason="textarena or reasoning_gym is not installed")
def test_the_claim_whole_with_a_tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = make_tiny(tmp_path / "tiny", texts=TEXTS, words=512, spread=0.15, context=4096, family="qwen2")
    monkeypatch.setenv("COUNTERPOINT_MODELS", str(tmp_path / "models"))
    assert add(tiny, "coder") == ("coder", True)
    for name, value in (("RUNS", str(tmp_path)), ("LM", "coder"), ("LM_SCALE", "0.004")):
        monkeypatch.setenv(f"COUNTERPOINT_{name}", value)
    short = {"turns": 400, "steps": 12, "max_tokens": 4, "context": 4096, "repairs": 0}
    for tasks in (games_lm.GAMES, games_lm.SETS, [task for task, _ in games_lm.LEARNED.values()]):
        for task in tasks:
            monkeypatch.setitem(task, "limits", short)

    def in_turn(part: Callable[..., Any], given: Sequence[tuple[Any, ...]]) -> None:
        for args in given:
            if not _language.is_made(args[0]):
                part(*args)

    monkeypatch.setattr(games_lm, "side_by_side", in_turn)
    rows = {row.name: row for row in games_lm.games_lm(seed=3, seeds=1)}
    for task in (*games_lm.GAMES, *games_lm.SETS):
        assert rows[f"{task['name']}, as it comes: actions that are illegal"].value >= 0
        assert 0 <= rows[f"{task['name']}, as it comes: won or solved"].value <= 1
    for task, _ in games_lm.LEARNED.values():
        over = rows[f"{task['name']}: reward, after over before"]
        assert over.value == pytest.approx(rows[f"{task['name']}: reward after"].value - rows[f"{task['name']}: reward before"].value)
        assert over.target.startswith(">= 0")
