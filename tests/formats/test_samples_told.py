"""Every importer on its samples: all that the traces hold, line by line, as it was read through and found right.

What a change of an importer does to a trace shows here as a difference of lines; `tests/told.py` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from counterpoint.trace.records import FIELDS
from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES
from logs import SAMPLES, files_of, imported, importer
from told import sample

NAMES = sorted(p.name for p in SAMPLES.iterdir() if p.is_dir())


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_told_as_it_was(name: str) -> None:
    wanted = (Path(__file__).parent / "told" / f"{name}.txt").read_text(encoding="utf-8")
    assert sample(name).splitlines() == wanted.splitlines()


def test_every_list_of_lines_has_its_sample() -> None:
    assert sorted(p.stem for p in (Path(__file__).parent / "told").glob("*.txt")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_columns_name_the_events_that_come_of_records(name: str) -> None:
    declared = {what.split(".")[0] for columns in importer(name).columns.values() for what in columns}
    assert declared <= {*EVENT_TYPES, *EDGE_TYPES, *FIELDS, "extra", "rewards", "metrics", "meta"}
    assert {e.type for trace in imported(name, files_of(SAMPLES / name)) for e in trace.events} <= declared
