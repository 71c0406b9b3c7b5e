"""`counterpoint credit`: rows per unit, sums checked, refusals explained."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

import counterpoint as cpt
from counterpoint.app.cli import main


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    folder = tmp_path_factory.mktemp("credit") / "store"
    world = cpt.world("W1", vote_items=8, max_agents=6)
    runs = world.run("reference", range(2), log=True)
    traces = [runs.trace(0), runs.trace(1), world.run("serial", [0], log=True).trace(0)]
    store = cpt.Store(folder)
    for trace in traces:
        store.add(trace)
    return str(folder), [t.trace_id for t in traces]


class Ended(NamedTuple):
    exit_code: int
    output: str


def run(*args: str) -> Ended:
    """The command as the shell would run it: exit code, and all that was printed."""
    out, code = io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(out):
        try:
            main(["credit", *args])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return Ended(code, out.getvalue())


def test_an_additive_method_shows_what_it_sums_to(stored: tuple[str, list[str]]) -> None:
    store, ids = stored
    out = run(ids[0], "--store", store, "--method", "uniform")
    assert out.exit_code == 0, out.output
    assert "checked to 1e-9" in out.output
    row = json.loads(run(ids[0], "--store", store, "--method", "uniform", "--json").output)
    assert sum(r["value"] for r in row["rows"]) == pytest.approx(row["declared"][ids[0]], abs=1e-9)


def test_a_world_is_the_replay_of_its_own_traces(stored: tuple[str, list[str]]) -> None:
    store, ids = stored
    out = run(ids[0], "--store", store, "--method", "message_delete", "--limit", "3")
    assert out.exit_code == 0, out.output
    assert "forks" in out.output
    assert "smaller rows" in out.output


def test_two_methods_side_by_side_and_one_unit(stored: tuple[str, list[str]]) -> None:
    store, ids = stored
    out = run(ids[0], "--store", store, "--method", "shapley", "--compare", "uniform", "--unit", "agent")
    assert out.exit_code == 0, out.output
    assert out.output.splitlines()[1].split() == ["unit", "id", "credit", "se", "uniform"]
    assert len(run(ids[0], "--store", store, "--compare", "shapley", "--json").output.splitlines()) == 2


def test_a_group_is_several_traces_of_a_task(stored: tuple[str, list[str]]) -> None:
    store, ids = stored
    out = run(ids[0], ids[2], "--store", store, "--method", "group_relative", "--json")
    assert out.exit_code == 0, out.output
    values = [r["value"] for r in json.loads(out.output)["rows"] if r["unit"] == "team"]
    text = run(ids[0], ids[2], "--store", store, "--method", "group_relative").output
    assert "ddof: 1" in text  # the convention, and who was compared with whom, are printed
    assert ids[2] in text.split("compared:")[1]
    assert sum(values) == pytest.approx(0, abs=1e-9)


def test_the_mechanisms_are_listed() -> None:
    out = run("--list")
    assert out.exit_code == 0
    assert "shapley" in out.output
    rows = [json.loads(line) for line in run("--list", "--json").output.splitlines()]
    assert all(row["estimand"] and row["source"] for row in rows)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ([], 2, "no trace was named"),
        (["{0}", "--method", "shaply"], 3, "did you mean 'shapley'"),
        (["{0}", "--method", "counterpoint.errors:did_you_mean"], 2, "not a mechanism"),
        (["{0}", "--option", "x"], 2, "not NAME=VALUE"),
        (["{0}", "--option", "by_tokns=1"], 2, "no option 'by_tokns'"),
        (["{0}", "--unit", "token"], 3, "gives no token rows"),
        (["{0}", "--method", "group_relative"], 5, "not identified"),
        (["nowhere"], 3, "nowhere"),
    ],
)
def test_what_does_not_work_says_so(stored: tuple[str, list[str]], args: list[str], code: int, words: str) -> None:
    store, ids = stored
    out = run(*[a.format(*ids) for a in args], "--store", store)
    assert out.exit_code == code, out.output
    assert words in out.output


def test_a_trace_without_rewards_and_one_without_a_world(tmp_path: Path) -> None:
    from counterpoint.testing import synthetic_trace

    path = tmp_path / "made.trace.json"
    cpt.save(synthetic_trace(3, 20, "swarm"), path)
    out = run(str(path), "--method", "message_delete")
    assert out.exit_code == 5
    assert "not identified" in out.output
