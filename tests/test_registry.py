"""Plug-ins by file name, shipped and outside; names that are nearly right."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
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


def test_an_installed_package_adds_plug_ins_answers_and_names(tmp_path: Path) -> None:
    """By the entry points of its `dist-info`, as the laboratory does; nothing of it is imported before it is asked for."""
    (tmp_path / "guests" / "rewards").mkdir(parents=True)
    for folder in ("guests", "guests/rewards"):
        (tmp_path / folder / "__init__.py").write_text('"""Somebody\'s."""\n')
    (tmp_path / "guests" / "rewards" / "applause.py").write_text('"""Applause, in claps."""\n\napplause = 7\n')
    (tmp_path / "guests" / "answers.py").write_text(
        "def maybe(trace, *, loud): return 'an answer' if loud else None\n\n\ndef greet(): return 'hello'\n"
    )
    info = tmp_path / "guests-1.0.dist-info"
    info.mkdir()
    info.joinpath("entry_points.txt").write_text(
        "[counterpoint.plugins]\nreward = guests.rewards\n\n[other.group]\nreward = nobody\n\n"
        "[counterpoint.hooks]\nodd_question = guests.answers:maybe\n\n[counterpoint.names]\ngreet = guests.answers:greet\n"
    )
    code = """
import sys, pytest, counterpoint as cpt
from counterpoint import registry
assert "applause" in registry.ids("reward") and "team_outcome" in registry.ids("reward")
assert registry.summary("reward", "applause") == "Applause, in claps."
assert "greet" in dir(cpt) and not any(name.startswith("guests") for name in sys.modules)
assert registry.get("reward", "applause") == 7 and cpt.greet() == "hello"
assert registry.answer("odd_question", None, loud=True) == "an answer"
assert registry.answer("odd_question", None, loud=False) is registry.answer("no_such_question") is None
assert registry.hook("odd_question", "odd").__name__ == "maybe"
with pytest.raises(cpt.NotFound, match="pigs fly: no installed package does this"):
    registry.hook("no_such_question", "pigs fly")
"""
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, check=True)


def test_the_entry_points_that_are_installed_lead_to_what_is_there() -> None:
    wanted = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["entry-points"]
    for value in [*wanted["counterpoint.hooks"].values(), *wanted["counterpoint.names"].values()]:
        module, _, name = value.partition(":")
        assert f"def {name}(" in Path(importlib.util.find_spec(module).origin).read_text(), value  # type: ignore[union-attr, arg-type]
    assert {kind for kind in wanted["counterpoint.plugins"] if kind != "command"} <= set(registry.kinds())
