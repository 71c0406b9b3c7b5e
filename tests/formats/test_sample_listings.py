"""Every importer on its samples: all that the traces hold, line by line, as it was read through and found right.

What a change of an importer does to a trace shows here as a difference of lines; `tests/listing.py` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from listing import sample
from logs import SAMPLES

NAMES = sorted(p.name for p in SAMPLES.iterdir() if p.is_dir())


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_read_as_it_was(name: str) -> None:
    wanted = (Path(__file__).parent / "listings" / f"{name}.txt").read_text(encoding="utf-8")
    assert sample(name).splitlines() == wanted.splitlines()


def test_every_list_of_lines_has_its_sample() -> None:
    assert sorted(p.stem for p in (Path(__file__).parent / "listings").glob("*.txt")) == NAMES
