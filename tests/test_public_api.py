"""The public names: pinned, sorted, documented, and each loaded only when asked for."""

from __future__ import annotations

import inspect
import subprocess
import sys

import counterpoint

PINNED = [
    "CounterpointError",
    "Delete",
    "Edge",
    "Event",
    "Findings",
    "Force",
    "Format",
    "Graph",
    "InputError",
    "Insert",
    "InvalidTrace",
    "NotFound",
    "NotIdentified",
    "Problem",
    "Refused",
    "Store",
    "Substitute",
    "Trace",
    "TraceBatch",
    "TryAgain",
    "content_ref",
    "load",
    "problems", "read_logs", "record",
    "save",
    "world",
]


def test_the_public_names_are_these() -> None:
    assert counterpoint.__all__ == PINNED


def test_each_is_documented() -> None:
    for name in PINNED:
        assert inspect.getdoc(getattr(counterpoint, name)), f"{name} has no docstring"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(counterpoint, "no_such_name")


def test_dir_shows_them() -> None:
    assert set(PINNED) <= set(dir(counterpoint))


def test_import_time_is_not_spent_on_what_is_not_used() -> None:
    code = "import counterpoint, sys; counterpoint.Event; print('pyarrow' in sys.modules, 'duckdb' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]
