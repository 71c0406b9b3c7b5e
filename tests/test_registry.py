"""Plug-ins by file name, shipped and outside; names that are nearly right."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tomllib
from collections.abc import Iterator
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


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python does not look for modules in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        del sys.modules[name]


def test_code_named_by_its_file_finds_its_neighbours(lab: Path) -> None:
    (lab / "beside_it.py").write_text("value = 40\n")
    (lab / "lone_file.py").write_text("import beside_it\n\nnovelty = beside_it.value + 2\n")
    assert registry.get("format", "lone_file.py:novelty") == registry.get("format", f"{lab}/lone_file.py:novelty") == 42
    with pytest.raises(InputError, match="did you mean 'novelty'"):
        registry.get("format", "lone_file.py:novelti")


def test_a_file_in_a_package_is_the_module_that_it_is(lab: Path) -> None:
    package = lab / "outer_lab" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "base.py").write_text("class Base: ...\n")
    (package / "thing.py").write_text("from .base import Base\n\n\nclass Thing(Base): ...\n\n\nthing = Thing()\n")
    thing = registry.get("format", "outer_lab/inner/thing.py:thing")
    assert type(thing).__module__ == "outer_lab.inner.thing"
    assert registry.get("format", "outer_lab.inner.thing:thing") is thing  # one class, so that what is pickled is what is there
    assert pickle.loads(pickle.dumps(thing)).__class__ is type(thing)


def test_a_file_is_loaded_again_only_after_it_has_changed(lab: Path) -> None:
    file = lab / "grows.py"
    file.write_text("box = []\n")
    first = registry.get("format", "grows.py:box")
    assert registry.get("format", "grows.py:box") is first
    file.write_text("box = [1, 2]\n")
    assert registry.get("format", "grows.py:box") == [1, 2]


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (None, NotFound, "odd_file.py: no such file"),
        ("x = 1\ndef f(:\n", InputError, "odd_file.py:2: it cannot be loaded: SyntaxError"),
        ("x = 1\n\nraise KeyError('why')\n", InputError, "odd_file.py:3: it cannot be loaded: KeyError: 'why'"),
        ("import no_such_module_at_all\n", NotFound, "odd_file.py: it cannot be loaded: No module named"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_where(lab: Path, text: str | None, error: type[Exception], words: str) -> None:
    if text is not None:
        (lab / "odd_file.py").write_text(text)
    with pytest.raises(error) as raised:
        registry.get("format", "odd_file.py:thing")
    assert words in str(raised.value)
    assert "odd_file" not in sys.modules


def test_a_file_does_not_take_the_place_of_another_module(lab: Path) -> None:
    (lab / "json.py").write_text("thing = 1\n")
    with pytest.raises(InputError, match="a module named 'json' is loaded already; give the file another name"):
        registry.get("format", "json.py:thing")
    assert sys.modules["json"] is json


def test_a_module_beside_us_that_python_does_not_look_for_is_named_as_a_file(lab: Path) -> None:
    (lab / "my_own").mkdir()
    (lab / "my_own" / "thing.py").write_text("thing = 1\n")
    with pytest.raises(NotFound, match=r"name the file: my_own/thing.py:thing"):
        registry.get("format", "my_own.thing:thing")


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
