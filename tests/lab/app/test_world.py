"""`train worlds` and `play --world`: what they print, on a tiny world from outside and on the shipped ones."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from counterpoint import registry
from counterpoint.app.cli import cli, main
from counterpoint.lab.bench.intervals import mean_interval
from counterpoint.store import Store
from counterpoint.trace import encode, problems
from lab.worlds.coin_world import coin_world

COIN = "lab.worlds.coin_world:coin_world"


def words(*arguments: str) -> list[str]:
    """The command line of `run NAME ...`, which plays, or of `show [NAME] ...`, which shows."""
    return ["play", "--world", *arguments[1:]] if arguments[0] == "run" else ["train", "worlds", *arguments[1:]]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, words(*arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def ends(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as exit_:
        main(words(*arguments))
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, capsys.readouterr().err


def test_ls_lists_what_is_shipped() -> None:
    rows = lines(run("show", "--json"))
    assert [row["world"] for row in rows] == registry.ids("world")
    assert all(list(row) == ["world", "short", "version", "policies", "silent", "summary"] for row in rows)
    text = run("show")
    assert all(name in text for name in registry.ids("world"))


def test_show_says_everything() -> None:
    (about,) = lines(run("show", COIN, "--json"))
    assert about["parameters"][0] == {"name": "heads", "value": 0.75, "unit": "1", "doc": "The chance of a head."}
    assert about["optimum"]["value"] == 0.75**3 * 3  # flip until the pot is 3
    assert about["optimum"]["kind"] == "exact"
    assert about["silent"]["spawn"] == "There is one agent."
    assert about["policies"] == ["flip", "best", "stop"]
    text = run("show", COIN)
    for word in ("coin_world", "C1", "horizon", "flips", "1.26562", "exact", "backward pass", "There is one agent.", "best"):
        assert word in text


def test_set_changes_a_parameter_and_its_kind_stays() -> None:
    (about,) = lines(run("show", COIN, "--set", "heads=1", "--set", "horizon=4", "--json"))
    assert [p["value"] for p in about["parameters"]] == [1.0, 4]
    assert isinstance(about["parameters"][0]["value"], float)
    assert about["optimum"]["value"] == 4


def test_run_gives_the_means_of_the_same_seeds() -> None:
    seeds = list(range(5, 45))
    rows = lines(run("run", COIN, "--policy", "best", "--policy", "flip", "--episodes", "40", "--seed", "5", "--json"))
    assert [row["policy"] for row in rows] == ["best", "flip"]
    for row in rows:
        played = coin_world.run(row["policy"], seeds)
        mean, low, high = mean_interval(played.values)
        assert (row["mean"], row["low"], row["high"]) == (mean, low, high)
        assert row["share"] == mean / coin_world.optimum().value
        assert row["share_low"] == row["low"] / coin_world.optimum().value
        assert row["columns"] == {"flips": float(np.mean(played.columns["flips"]))}
        assert (row["world"], row["episodes"], row["seed"]) == ("coin_world", 40, 5)
        assert "traces" not in row


def test_run_plays_every_policy_by_default_and_prints_one_table() -> None:
    text = run("run", COIN, "--episodes", "50")
    assert text == run("run", COIN, "--episodes", "50")
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["policy", "flip", "best", "stop"]
    assert "of optimum" in text
    assert "flips" in text


def test_more_episodes_than_a_batch_are_the_same_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run("run", COIN, "--episodes", "30", "--json")
    monkeypatch.setattr("counterpoint.lab.app.cli._play_world._BATCH", 7)
    assert run("run", COIN, "--episodes", "30", "--json") == whole


def test_one_episode_has_no_interval_and_no_gain_no_share() -> None:
    (row,) = lines(run("run", COIN, "--policy", "best", "--episodes", "1", "--json"))
    assert row["low"] is None
    assert row["high"] is None
    (row,) = lines(run("run", COIN, "--policy", "stop", "--set", "heads=0", "--json"))
    assert (row["mean"], row["share"]) == (0, None)


def test_a_policy_from_outside() -> None:
    (row,) = lines(run("run", COIN, "--policy", "lab.worlds.coin_world:twice", "--episodes", "500", "--json"))
    assert math.isclose(row["mean"], 2 * 0.75**2, abs_tol=0.15)


def test_nothing_is_written_without_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("run", COIN)
    assert list(tmp_path.iterdir()) == []
    (row,) = lines(run("run", COIN, "--policy", "best", "--episodes", "3", "--json", "--store"))
    assert [p.name for p in tmp_path.iterdir()] == ["traces"]
    assert len(row["traces"]) == 3


def test_stored_traces_are_those_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.lab.app.cli._play_world._BATCH_LOGGED", 5)
    call = ("run", COIN, "--policy", "best", "--policy", "flip", "--episodes", "12", "--store", str(tmp_path / "s"))
    rows = lines(run(*call, "--json"))
    with Store(tmp_path / "s") as store:
        assert sorted(store.ids()) == sorted(rows[0]["traces"] + rows[1]["traces"])
        for row in rows:
            logged = coin_world.run(row["policy"], range(12), log=True)
            kept = [store.get(id_) for id_ in row["traces"]]
            assert [encode(t) for t in kept] == [encode(logged.trace(i)) for i in range(12)]
            assert [p for t in kept for p in problems(t)] == []
    text = run(*call)
    assert "stored 24 traces" in text
    assert rows[0]["traces"][0] in text
    with Store(tmp_path / "s") as store:
        assert len(store.ids()) == 24


def test_replaced_traces_are_said(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        mine = coin_world.run("best", [0], log=True).trace(0)
        store.add(msgspec.structs.replace(mine, system="another"))
    call = ["play", "--world", COIN, "--policy", "best", "--episodes", "2", "--store", str(tmp_path / "s")]
    assert "1 stored traces had these ids" in CliRunner().invoke(cli, call).stderr
    assert "stored traces had" not in CliRunner().invoke(cli, call).stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["show", "no-such-world"], 3, "no world named"),
        (["show", "lab.worlds.coin_world:coin_wrld"], 2, "coin_world"),
        (["show", "lab.worlds.coin_world:Config"], 2, "not a world"),
        (["run", COIN, "--policy", "bst"], 3, "did you mean 'best'?"),
        (["run", COIN, "--policy", "no_such_module:rule"], 3, "no policy named"),
        (["run", COIN, "--policy", "lab.worlds.coin_world:twise"], 2, "did you mean 'twice'?"),
        (["run", "s1", "--policy", "cap:x"], 3, "cap:7"),
        (["show", COIN, "--set", "head=0.5"], 2, "did you mean 'heads'?"),
        (["show", COIN, "--set", "heads"], 2, "NAME=VALUE"),
        (["show", COIN, "--set", "heads=x"], 2, "is a number"),
        (["show", COIN, "--set", "horizon=2.5"], 2, "a whole number"),
        (["show", COIN, "--set", "horizon=true"], 2, "a whole number"),
        (["show", COIN, "--set", "heads=2"], 2, "heads is a chance"),
        (["show", COIN, "--set", "heads=0", "--set", "heads=1"], 2, "twice"),
        (["run", COIN, "--episodes", "0"], 2, "episodes"),
        (["run", COIN, "--seed", "-1"], 2, "seed"),
        (["run", COIN, "--seed", "99999999999999999999999"], 2, "seed"),
        (["show", "--set", "heads=1"], 2, "no world to change"),
        (["run", COIN, "--topology", "swarm"], 2, "--topology is for a team"),
        (["run", COIN, "--cap", "tokens=5"], 2, "--cap is for a team"),
    ],
)
def test_errors(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str) -> None:
    found, err = ends(capsys, *arguments)
    assert found == code
    assert says in err


def test_an_interrupted_run_keeps_what_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("counterpoint.lab.app.cli._play_world._BATCH_LOGGED", 4)
    rule = iter([*range(4), None])  # four episodes of "stop at once", then Ctrl-C

    def stopped(pot: int) -> bool:
        if next(rule) is None:
            raise KeyboardInterrupt
        return False

    monkeypatch.setattr("lab.worlds.coin_world.twice", stopped)
    code, err = ends(capsys, "run", COIN, "--policy", "lab.worlds.coin_world:twice", "--episodes", "8", "--store", str(tmp_path / "s"))
    assert code == 130
    assert "interrupted" in err
    with Store(tmp_path / "s") as store:
        assert len(store.ids()) == 4


def test_the_optimal_stop_in_s1_is_worth_the_optimum_and_a_cap_less() -> None:
    optimum, cap = lines(run("run", "S1", "--policy", "optimum", "--policy", "cap:7", "--episodes", "4000", "--json"))
    half = optimum["share_high"] - optimum["share"]
    assert abs(optimum["share"] - 1) < 2 * half  # four standard errors, as in check_env
    assert cap["share_high"] < optimum["share"]
    assert cap["columns"]["rounds"] == 7
    shorter = lines(run("show", "s1", "--set", "horizon=5", "--json"))[0]
    assert shorter["optimum"]["value"] < optimum["optimum"]["value"] < optimum["optimum"]["prophet"]


@pytest.mark.parametrize("name", registry.ids("world"))
def test_shipped_worlds_go_by_id_and_short_name(name: str) -> None:
    world = registry.get("world", name)
    by_id = run("show", name, "--json")
    assert by_id == run("show", world.short.lower(), "--json") == run("show", world.short.upper(), "--json")
    rows = lines(run("run", name, "--episodes", "1", "--policy", world.policies()[0], "--json"))
    assert rows[0]["world"] == name
