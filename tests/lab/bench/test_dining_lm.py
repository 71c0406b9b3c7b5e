"""The claim `dpbench-lm`: a tiny model goes through all of it, and its reward by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")
from tests.lm_help import TEXTS
from tests.tiny_help import make_tiny

from counterpoint.lab.bench.claims import _language, _starts, dpbench_lm
from counterpoint.lab.bench.dining.pay import meals_and_fairness
from counterpoint.lab.lm.adding import add
from counterpoint.trace.example import rollouts


def test_what_the_team_is_paid_by_hand() -> None:
    trace = rollouts()[0]
    assert meals_and_fairness(trace) == []
    found = {"task_meals": 15.0, "task_fairness": 0.8, "task_deadlock": 0.0}
    paid = [meals_and_fairness(msgspec.structs.replace(trace, metrics=found | {"task_deadlock": d}))[0].value for d in (0.0, 1.0)]
    assert paid == pytest.approx([0.4, -0.6])


@pytest.mark.skipif(find_spec("dpbench") is None, reason="dpbench is not installed")
def test_the_claim_whole_with_a_tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = make_tiny(tmp_path / "tiny", texts=TEXTS, words=512, spread=0.15, context=2048, family="qwen2")
    monkeypatch.setenv("COUNTERPOINT_MODELS", str(tmp_path / "models"))
    assert add(tiny, "coder") == ("coder", True)
    for name, value in (("RUNS", str(tmp_path)), ("LM", "coder"), ("LM_SCALE", "0.006")):
        monkeypatch.setenv(f"COUNTERPOINT_{name}", value)
    monkeypatch.setattr(_starts, "STARTS", 1)
    monkeypatch.setattr(dpbench_lm, "TABLE", dpbench_lm._table("sim_n3_nocomm_step_t3"))
    monkeypatch.setattr(dpbench_lm, "_SAMPLES", 4)
    monkeypatch.setattr(dpbench_lm, "_ARMS", dpbench_lm._ARMS | {"forks": {"learn": {"tree": [2, 2]}}})

    def in_turn(part: Callable[..., Any], given: Sequence[tuple[Any, ...]], *, at_once: int = 1) -> None:
        for args in given:
            if not _language.is_made(args[0]):
                part(*args)

    for module in (_starts, dpbench_lm):
        monkeypatch.setattr(module, "side_by_side", in_turn)
    rows = {row.name: row for row in dpbench_lm.dpbench_lm(seed=3, seeds=1)}
    for arm in ("imitation", "GRPO", "team", "agent", "forks"):
        assert 0 <= rows[f"5, {arm}: fairness"].value <= 1
        assert rows[f"5, {arm}: throughput"].value >= 0
    assert rows["5, GRPO: deadlock"].target.startswith("<= 0.01")
