"""Plug-ins by file name, shipped and outside; names that are nearly right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from counterpoint import registry
from counterpoint.errors import InputError, NotFound, did_you_mean


def test_ids_are_file_names() -> None:
    assert {"survey", "jsonl", "parquet", "csv", "perfetto"} <= set(registry.ids("format"))
    assert all(not name.startswith("_") for kind in registry.kinds() for name in registry.ids(kind))


def test_every_kind_has_plug_ins() -> None:
    assert [kind for kind in registry.kinds() if not registry.ids(kind)] == []


def test_names_nearly_right_get_a_suggestion() -> None:
    with pytest.raises(NotFound, match="did you mean 'survey'"):
        registry.get("format", "survy")
    with pytest.raises(NotFound, match="did you mean 'format'"):
        registry.ids("formats")


def test_code_outside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_lab.py").write_text("novelty = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registry.get("format", "their_lab:novelty") == 42
    with pytest.raises(InputError, match="did you mean 'novelty'"):
        registry.get("format", "their_lab:novelti")
    with pytest.raises(InputError, match=r"has no 'zzz'.*known: novelty$"):
        registry.get("format", "their_lab:zzz")
    with pytest.raises(NotFound, match="no_such_lab"):
        registry.get("format", "no_such_lab:thing")
    sys.modules.pop("their_lab", None)


def test_every_plug_in_says_in_one_line_what_it_is() -> None:
    for kind in registry.kinds():
        for name in registry.ids(kind):
            assert 10 < len(registry.summary(kind, name)) < 110, f"{kind} {name}"


def test_did_you_mean() -> None:
    assert did_you_mean("tool_uze", ["tool_use", "team"]) == "did you mean 'tool_use'?"
    assert did_you_mean("zzz", ["a", "b"]) == "known: a, b"
    assert did_you_mean("zzz", []) == "none is known"
