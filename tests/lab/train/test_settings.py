"""Settings: every key known and of its type, or one clear error that names it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.lab.train.settings import Settings, read_settings, settings_of, toml_text
from counterpoint.lab.worlds.teamworld.config import Config

LEAST = {"preset": "counterpoint", "world": "W1"}


def test_defaults_and_a_round_trip_through_toml(tmp_path: Path) -> None:
    full = settings_of(
        LEAST | {"set": {"vote_items": 16, "skill_a": [0.9, 0.8, 0.7]}, "mix": [{"vote_items": 4}, {"vote_items": 8}]}
    )
    assert full.set["skill_a"] == (0.9, 0.8, 0.7)
    assert full.variants() == [{"vote_items": 4, "skill_a": (0.9, 0.8, 0.7)}, {"vote_items": 8, "skill_a": (0.9, 0.8, 0.7)}]
    path = tmp_path / "run.toml"
    path.write_text(toml_text(full.as_dict()))
    assert read_settings(path) == full
    assert settings_of(LEAST).variants() == [{}]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"wordl": "W1"}, "no setting 'wordl'.*did you mean 'world'"),
        ({"seed": "3"}, "seed is '3'.*whole number"),
        ({"seed": True}, "seed is True"),
        ({"seed": -1}, "seed is -1; seed takes a whole number from 0 to"),
        ({"seed": 10**23}, f"seed is {10**23}; seed takes a whole number from 0 to"),
        ({"eval_every": 0}, "eval_every is 0; eval_every takes a whole number of 1 or more"),
        ({"workers": 0}, "workers is 0"),
        ({"staleness": 0.5}, "staleness is 0.5"),
        ({"runner": "rays"}, "runner is 'rays'; one of here, processes, ray"),
        ({"preset": 7}, "preset is 7; preset takes a text"),
        ({"set": 3}, "set is 3"),
        ({"mix": "W1"}, "mix is 'W1'"),
        ({"mix": [1, 2]}, "mix is"),
        ({"budget_calls": 0}, "nothing says when the run ends"),
    ],
)
def test_bad_settings_are_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        settings_of(LEAST | given, where="run.toml")
    assert str(caught.value).startswith("run.toml: ")


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InputError, match='world is missing; world = "W1"'):
        settings_of({"preset": "counterpoint"})
    with pytest.raises(InputError, match="preset is missing"):
        settings_of({"world": "W1"})


def test_files_that_are_not_there_or_not_toml(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        read_settings(tmp_path / "none.toml")
    path = tmp_path / "bad.toml"
    for text in (b"preset = \n", b"\xff\xfe"):
        path.write_bytes(text)
        with pytest.raises(InputError, match=r"bad\.toml: is not valid TOML"):
            read_settings(path)


def test_devices(tmp_path: Path) -> None:
    settings_of(LEAST).check_device()
    with pytest.raises(InputError, match="no device 'tpu'"):
        settings_of(LEAST | {"device": "tpu"}).check_device()


def test_settings_and_parameters_of_worlds_have_different_names() -> None:
    """`counterpoint train --set NAME=VALUE` takes either."""
    assert not {f.name for f in dataclasses.fields(Settings)} & {f.name for f in dataclasses.fields(Config)}


def test_every_default() -> None:
    assert settings_of(LEAST).as_dict() == {
        "preset": "counterpoint", "world": "W1", "seed": 0, "set": {}, "change": {}, "mix": [], "budget_calls": 300_000, "updates": 0, "episodes": 0,
        "eval_every": 20, "eval_episodes": 40, "runner": "here", "workers": 2, "staleness": 0, "checkpoint_every": 20, "keep_traces": 4, "keep_episodes": 0, "store": "", "where": "", "ids": [], "clone": 0,
        "device": "cpu",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("seed", 0), ("eval_every", 1), ("eval_episodes", 1), ("workers", 1), ("staleness", 0), ("checkpoint_every", 1),
        ("keep_traces", 0), ("budget_calls", 0), ("updates", 0), ("episodes", 0), ("keep_episodes", 0),
    ],
)  # fmt: skip
def test_the_least_of_every_number(name: str, least: int) -> None:
    rest = LEAST | {"updates": 1} if name == "budget_calls" else LEAST
    assert getattr(settings_of(rest | {name: least}), name) == least
    with pytest.raises(InputError, match=f"{name} is {least - 1}; {name} takes a whole number (of {least} or more|from {least} to)"):
        settings_of(rest | {name: least - 1})


def test_a_run_ends_by_calls_or_by_updates() -> None:
    assert settings_of(LEAST | {"budget_calls": 0, "updates": 1}).updates == 1
    assert settings_of(LEAST | {"budget_calls": 1}).budget_calls == 1
    with pytest.raises(InputError, match="nothing says when the run ends; set budget_calls or updates"):
        settings_of(LEAST | {"budget_calls": 0, "updates": 0})


def test_lists_become_tuples_in_every_table_and_nothing_else_does() -> None:
    found = settings_of(LEAST | {"set": {"a": [1, 2], "b": 3}, "mix": [{"c": [4]}, {"d": "x"}]})
    assert found.set == {"a": (1, 2), "b": 3}
    assert found.mix == ({"c": (4,)}, {"d": "x"})
    assert found.as_dict()["mix"] == [{"c": (4,)}, {"d": "x"}]
    assert found.variants() == [{"a": (1, 2), "b": 3, "c": (4,)}, {"a": (1, 2), "b": 3, "d": "x"}]
    assert settings_of(LEAST | {"set": {"a": 1}}).variants() == [{"a": 1}]


def test_a_gpu_is_refused_whether_or_not_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    for there, words in ((False, "there is no GPU"), (True, "runs on the CPU only")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        for device in ("cuda", "cuda:1"):
            with pytest.raises(Refused, match=words):
                settings_of(LEAST | {"device": device}).check_device()


def test_errors_say_where_only_where_it_is_known(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        settings_of({**LEAST, "seed": -1})
    assert str(caught.value) == f"seed is -1; seed takes a whole number from 0 to {2**62:,}"
    path = tmp_path / "run.toml"
    path.write_text('preset = "counterpoint"\nworld = "W1"\nseeed = 3\n')
    with pytest.raises(InputError, match=r"run\.toml: no setting 'seeed'.*did you mean 'seed'"):
        read_settings(path)
    with pytest.raises(InputError, match='preset is missing; preset = "counterpoint"'):
        settings_of({"world": "W1"})
    with pytest.raises(InputError, match="run: world is missing"):
        settings_of({"preset": "x"}, where="run")
