"""`counterpoint advise`: two tables and a certificate, JSON, what is kept, and help with examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.conftest import Ends


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import counterpoint as cpt

    path = tmp_path_factory.mktemp("advise") / "s"
    with cpt.Store(path) as opened:
        opened.add(cpt.world("W1", vote_items=6).run("spawn_all", [0], log=True).trace(0))
    return path


def test_advice_is_printed_kept_and_given_as_json(store: Path, run: Ends, tmp_path: Path) -> None:
    code, out, err = run("advise", "wide_verify", "--store", store, "--kinds", "width,message", "--budget", 120)
    assert (code, err) == (0, "")
    for part in ("for all runs of the task", "in this run alone", "spawn half as many", "-> "):
        assert part in out
    code, out, _ = run("advise", "wide_verify", "--store", store, "--kinds", "width", "--apply", "-o", tmp_path / "a.jsonl", "--json")
    told = json.loads(out)
    assert (code, told["first"]["kind"], told["first"]["verdict"], told["source"]) == (0, "width", "helps", "forks")
    assert run("show", told["applied"])[0] == 0
    code, out, _ = run("advise", "wide_verify", "--store", store, "--dry-run", "--json", "--scope", "run")
    assert (code, json.loads(out)["asks_model"]) == (0, False)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["nothing"], 3, "nothing"),
        (["wide_verify", "--at", "e9999"], 3, "no event 'e9999'"),
        (["wide_verify", "--kinds", "merg"], 2, "no kind of change 'merg'"),
        (["wide_verify", "--budget", "5"], 2, "trials each"),
        (["wide_verify", "--try-model", "worker"], 2, "names no role"),
        (["wide_verify", "--kinds", "topology"], 5, "nothing in this run"),
    ],
)
def test_bad_input_is_one_clear_error(store: Path, run: Ends, words: list[str], code: int, says: str) -> None:
    ended, _, err = run("advise", *words, "--store", store)
    assert (ended, says in err) == (code, True)


def test_help_has_two_examples(run: Ends) -> None:
    code, out, _ = run("advise", "--help")
    assert code == 0
    assert out.count("  counterpoint advise ") >= 2
    assert "Exit codes" in out
    assert "--advise" in run("steer", "--help")[1]


def test_an_order_or_a_question_is_needed(store: Path, run: Ends) -> None:
    code, _, err = run("steer", "wide_verify", "--store", store)
    assert (code, "no order was given" in err) == (2, True)
    assert run("steer", "wide_verify", "--advise", "--store", store)[0] == 5
