"""The claim about a small model, run with fakes: rows for every topology, intervals, and no target that could hide a result."""

from __future__ import annotations

import pytest

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.lab.bench.claims.small_model import small_model


def test_every_topology_of_both_tasks_is_told() -> None:
    rows = list(small_model(seed=3, seeds=2, model="fake:0.9"))
    names = {row.name for row in rows}
    for task in ("pointer_chase", "ledger_hunt"):
        for topology in registry.ids("topology"):
            assert {f"{task} {topology}: E1 score", f"{task} {topology}: tokens", f"{task} {topology}: E4 orchestration tokens"} <= names
    assert all(row.low is None or row.low <= row.value <= (row.high or 0) for row in rows)
    assert {row.target for row in rows} == {"none: as it is"}
    assert rows == list(small_model(seed=3, seeds=2, model="fake:0.9"))


def test_no_seeds_is_an_error() -> None:
    with pytest.raises(InputError, match="at least 1"):
        list(small_model(seed=0, seeds=0))
