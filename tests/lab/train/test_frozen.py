"""What training holds is not changed under anybody's hands: its records are frozen, but for the few that are filled step by step."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

MODULES = (
    "alerts", "assign", "learner", "loss", "losses.clip", "losses.reinforce", "losses.soft", "losses.td", "preset", "returns",
    "settings", "feed", "runner", "stopping.expected",
    "stopping.basis", "stopping.certificate", "stopping.choice", "stopping.paths", "stopping.rule",
)  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_records_are_frozen(name: str) -> None:
    module = importlib.import_module(f"counterpoint.lab.train.{name}")
    found = [c for c in vars(module).values() if isinstance(c, type) and dataclasses.is_dataclass(c) and c.__module__ == module.__name__]
    assert found
    for record in found:
        made = object.__new__(record)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, dataclasses.fields(record)[0].name, None)
