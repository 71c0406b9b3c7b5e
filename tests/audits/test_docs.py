"""The page about auditing names every measure, hack and bar there is."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from counterpoint.audits.hacks import DETECTORS
from counterpoint.audits.records import DEFINITIONS

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_measure_is_documented(name: str) -> None:
    short = name.replace("critical_path", "")  # the page writes `critical_path_s`, `_tokens`, `_steps`
    assert f"`{name}`" in PAGE or (short != name and f"`{short}`" in PAGE)


@pytest.mark.parametrize("name", DETECTORS)
def test_every_hack_is_documented_with_its_bar(name: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("|") and f"`{name}`" in line)
    bar = inspect.signature(DETECTORS[name]).parameters["threshold"].default
    assert f">= {bar}" in row
    assert DETECTORS[name].__doc__
