"""What training holds is not changed under anybody's hands: its records are frozen, but for the few that are filled step by step."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

MODULES = (
    "lab.train.alert", "lab.train.row_credit", "lab.train.learner", "lab.train.loss", "lab.train.losses.clip", "lab.train.losses.reinforce",
    "lab.train.losses.soft", "lab.train.losses.td", "lab.train.preset", "lab.train.returns", "lab.train.settings", "lab.train.feed",
    "lab.train.runner", "lab.train.stopping.expected", "lab.train.stopping.certificate", "lab.train.stopping.choice",
    "guard.stop_basis", "guard.stop_paths", "guard.stop_rule",
)  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_records_are_frozen(name: str) -> None:
    module = importlib.import_module(f"counterpoint.{name}")
    found = [c for c in vars(module).values() if isinstance(c, type) and dataclasses.is_dataclass(c) and c.__module__ == module.__name__]
    assert found
    for record in found:
        made = object.__new__(record)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, dataclasses.fields(record)[0].name, None)
