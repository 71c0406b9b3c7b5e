"""`counterpoint advise`: two tables and a certificate, JSON, what is kept, and help with examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import counterpoint as cpt
from ends_help import Ends


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("advise") / "s"
    with cpt.Store(path) as opened:
        opened.add(cpt.world("W1", vote_items=6).run("spawn_all", [0], log=True).trace(0))
    return path


def test_advice_is_printed_kept_and_given_as_json(store: Path, run: Ends, tmp_path: Path) -> None:
    code, out, err = run("advise", "wide_verify", "--store", store, "--kind", "width,message", "--cap", "trials=120")
    assert (code, err) == (0, "")
    for part in ("for all runs of the task", "in this run alone", "spawn half as many", "-> "):
        assert part in out
    code, out, _ = run("advise", "wide_verify", "--store", store, "--kind", "width", "--apply", "-o", tmp_path / "a.jsonl", "--json")
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
        (["wide_verify", "--kind", "merg"], 2, "no kind of change 'merg'"),
        (["wide_verify", "--cap", "trials=5"], 2, "trials each"),
        (["wide_verify", "--try-model", "worker"], 2, "names no role"),
        (["wide_verify", "--kind", "topology"], 5, "offers no change to try"),
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
    assert (code, "no order is named" in err) == (2, True)
    assert run("steer", "wide_verify", "--advise", "--store", store)[0] == 5


def _log(n: int, task: str, reward: float | None) -> cpt.Trace:
    events = [cpt.Event(id=f"e{k}", t=k, type="message", agent="lead") for k in range(3)]
    return cpt.Trace(trace_id=f"log-{n}", task_id=task, events=events, rewards={} if reward is None else {"team": reward})


@pytest.mark.parametrize("is_scored", [False, True])
def test_a_log_says_at_once_all_that_it_needs(tmp_path: Path, run: Ends, is_scored: bool) -> None:
    with cpt.Store(tmp_path / "s") as opened:
        opened.add(_log(1, "t", 0.0 if is_scored else None))
        opened.add(_log(2, "another task", 1.0))
    code, _, err = run("advise", "log-1", "--store", tmp_path / "s")
    assert code == 5
    for part in ("cannot be replayed", "40 scored runs", "counterpoint play", "counterpoint audit log-1 --failures"):
        assert part in err
    assert ("it has no outcome either, which alone would not do" in err) is not is_scored
    assert "counterpoint notes score" not in err  # it would lead to this very error


def test_an_outcome_is_asked_for_where_that_is_all_that_is_missing(tmp_path: Path, run: Ends) -> None:
    trace = cpt.world("W1", vote_items=4).run("reference", [0], log=True).trace(0)
    with cpt.Store(tmp_path / "s") as opened:
        opened.add(cpt.Trace(trace_id="t", task_id="x", events=trace.events, edges=trace.edges, meta=trace.meta))
    code, _, err = run("advise", "t", "--store", tmp_path / "s")
    assert (code, "counterpoint notes score t team=1" in err) == (5, True)


def test_a_query_is_advised_by_the_run_that_earned_least(tmp_path: Path, run: Ends) -> None:
    runs = cpt.world("W1", vote_items=6).run("spawn_all", range(4), log=True)
    traces = [runs.trace(k) for k in range(4)]
    with cpt.Store(tmp_path / "s") as opened:
        opened.add(_log(1, "t", -1000.0))
        for trace in traces:
            opened.add(trace)
    worst = min(traces, key=lambda t: t.rewards["team"])
    code, out, _ = run("advise", "events>0", "--store", tmp_path / "s", "--kind", "width", "--scope", "task", "--json")
    assert (code, json.loads(out)["trace_id"]) == (0, worst.trace_id)
    assert run("advise", "events>99999", "--store", tmp_path / "s")[0] == 3


def test_a_query_of_logs_says_what_they_lack(tmp_path: Path, run: Ends) -> None:
    with cpt.Store(tmp_path / "s") as opened:
        for n in range(3):
            opened.add(_log(n, f"t{n}", None if n else 1.0))
    code, _, err = run("advise", "finished", "--store", tmp_path / "s")
    assert code == 5
    for part in ("none of 3 runs can be advised", "2 have no outcome", "3 cannot be replayed", "40 of one task"):
        assert part in err
