"""The screening of the suites: rows for every world and decision, paired, with targets where a world is about the decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from counterpoint.lab.bench.claims import suite_screening as claim
from counterpoint.lab.worlds.teamworld.suites import suite_worlds


def test_rows_have_targets_where_the_world_is_about_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = suite_worlds()["critic"]
    small = replace(whole, mix=tuple({**task, "vote_items": 6} for task in whole.mix))
    monkeypatch.setattr(claim, "SUITES", {"core": (small,), "full": (small,)})
    monkeypatch.setattr(claim, "DECISIONS", ("delegate", "aggregate"))
    monkeypatch.setattr(claim, "_TASKS", 24)  # many tasks at once cost little, long ones much
    monkeypatch.setattr(claim, "_REHEARSED", 4)
    rows = list(claim.suite_screening(seed=3, seeds=3))
    share, delegate, aggregate, *counts = rows
    assert share.name == "critic: known play, share of the bound"
    assert delegate.name.startswith("critic, delegate: known - ")
    assert delegate.target == "none: as it is"
    assert aggregate.target == ">= 0.1"
    assert aggregate.ok
    assert aggregate.value > 0.1
    assert [(row.name, row.value) for row in counts] == [
        ("core worlds that hold delegate", 0.0), ("core worlds that hold aggregate", 1.0),
    ]  # fmt: skip
    assert list(claim.suite_screening(seed=3, seeds=3)) == rows
