"""`counterpoint fork`, `counterpoint diff` and `counterpoint audit --taint` as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import counterpoint as cpt
from counterpoint import registry
from counterpoint.app.load_save import load, save
from counterpoint.store import Store
from counterpoint.trace import Event, Trace

Run = Callable[..., tuple[int, str, str]]
WORLD = cpt.world("W1", vote_items=12)


@pytest.fixture
def trace() -> Trace:
    made: Trace = WORLD.run("reference", [3], log=True).trace(0)
    return made


@pytest.fixture
def file(tmp_path: Path, trace: Trace) -> Path:
    return save(trace, tmp_path / "run.jsonl")


def _vote(trace: Trace) -> Event:
    return next(e for e in trace.events if e.type == "return")


@pytest.mark.parametrize("name", ["fork", "blame", "audit"])
def test_help_is_short_and_has_two_examples(run: Run, name: str) -> None:
    assert 10 < len(registry.summary("command", name)) < 110
    code, out, _ = run(name, "--help")
    assert code == 0
    assert "--json" in out
    assert len([line for line in out.splitlines() if line.strip().startswith(f"counterpoint {name} ")]) >= 2


def test_fork_of_a_file_says_what_came_of_it_and_writes_where_told(run: Run, file: Path, trace: Trace, tmp_path: Path) -> None:
    vote = _vote(trace)
    code, out, _ = run("fork", file, "--at", vote.id, "--do", "delete", "-o", tmp_path / "fork.jsonl", "--json")
    assert code == 0
    told = json.loads(out)
    fork = WORLD.fork(trace, vote.id, cpt.Delete())
    assert told["team"] == {"before": trace.rewards["team"], "after": fork.rewards["team"]}
    assert told["effect"] is None
    badges = told["badges"]
    assert badges["reused"] + badges["re-run"] + badges["gone"] == len(trace.events)
    assert badges["reused"] + badges["re-run"] + badges["new"] == len(fork.events)
    kept = load(tmp_path / "fork.jsonl")
    assert kept.trace_id == told["fork"] == fork.trace_id
    assert [e.content_ref for e in kept.events] == [e.content_ref for e in fork.events]


def test_one_fork_is_no_effect_and_samples_give_an_interval(run: Run, file: Path, trace: Trace) -> None:
    vote = _vote(trace)
    assert vote.extra is not None
    code, out, _ = run("fork", file, "--at", vote.id, "--substitute", 1 - vote.extra["claim"])
    assert code == 0
    assert "no effect" in out
    assert "not kept" in out
    first = next(e.id for e in trace.events if e.decision == "spawn")
    code, out, _ = run("fork", file, "--at", first, "--decide", '{"spawn": 1}', "--samples", 8, "--json")
    assert code == 0
    effect = json.loads(out)["effect"]
    assert effect["samples"] == 8
    assert effect["low"] < effect["mean"] < effect["high"]
    again = [WORLD.fork(trace, first, do, s).rewards["team"] for s in range(8) for do in (cpt.Force({"spawn": 1}), None)]
    assert effect["mean"] == pytest.approx(sum(again[::2]) / 8 - sum(again[1::2]) / 8)


def test_fork_of_a_stored_trace_is_stored_and_diff_compares_them(run: Run, trace: Trace, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Store(store) as opened:
        opened.add(trace)
    vote = _vote(trace)
    assert vote.extra is not None
    code, out, _ = run(
        "fork", trace.trace_id, "--at", vote.id, "--substitute", 1 - vote.extra["claim"], "--store", store, "--json"
    )
    assert code == 0
    fork = json.loads(out)["kept"]
    code, out, _ = run("compare", "traces", trace.trace_id, fork, "--store", store, "--json")
    assert code == 0
    told = json.loads(out)
    assert told["first"]["how"] == "changed"
    assert told["first"]["event"]["a"] == vote.id
    assert told["counts"]["same"] + told["counts"]["changed"] + told["counts"]["gone"] == len(trace.events)
    code, out, _ = run("compare", "traces", trace.trace_id, fork, "--store", store)
    assert code == 0
    assert f"first divergence {vote.id} (changed)" in out
    code, out, _ = run("compare", "traces", trace.trace_id, trace.trace_id, "--store", store)
    assert code == 0
    assert "no event differs" in out


def test_what_cannot_be_forked_says_why(run: Run, file: Path, trace: Trace, tmp_path: Path) -> None:
    foreign = save(Trace(trace_id="f", task_id="t", events=[Event(id="a", t=0, type="message", agent="x")]), tmp_path / "f.jsonl")
    code, out, _ = run("fork", foreign, "--at", "a", "--do", "delete", "--json")
    assert code == 5
    assert "not identified" in json.loads(out)["error"]["what"]
    assert run("fork", file, "--at", "e99999", "--do", "delete")[0] == 3
    assert run("fork", file, "--at", "e1", "--substitute", "1")[0] == 2
    assert run("fork", file, "--at", "e1")[0] == 2
    assert run("fork", file, "--at", "e1", "--do", "delete", "--decide", "{}")[0] == 2
    assert run("fork", file, "--at", "e1", "--decide", "[1]")[0] == 2


def test_taint_shows_the_way_and_exits_4_on_a_violation(run: Run, file: Path, tmp_path: Path) -> None:
    code, out, _ = run("audit", file, "--taint", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["counts"]["violation"] == 0
    assert told["by_label"] == {"tool": told["sources"]}
    attacked = WORLD.replace(attack="AV6", attack_rate=0.3).run("reference", [0], log=True).trace(0)
    bad = save(attacked, tmp_path / "bad.jsonl")
    code, out, _ = run("audit", bad, "--taint", "--json")
    assert code == 4
    sink = next(s for s in json.loads(out)["sinks"] if s["status"] == "violation")
    assert sink["path"][-1] == sink["event"]
    assert sink["source"] == sink["path"][0]
    code, out, _ = run("audit", bad, "--taint")
    assert code == 4
    assert "VIOLATION" in out
    assert sink["event"] in out
