"""`bench blame`: hits of labelled runs by hand, sets with several labels, what is left out, and what it says of folders without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from counterpoint.audits.blame.judge import blame
from counterpoint.audits.blame.steps import Steps
from counterpoint.lab.bench.blame_sets import Hits, labels_of, run_hits, scores
from counterpoint.trace import Event, Trace, content_ref

Ends = Callable[..., tuple[int, str, str]]
LOGS = Path(__file__).parents[3] / "examples" / "logs"


def talk(extra: dict[int, dict[str, object]], **meta: object) -> Trace:
    """Four entries of two experts, after a question."""
    said = ["Which tower is the tallest?", "It is 12 m.", "Is it?", "Yes, 12 m.", "The answer is 12."]
    events = [
        Event(id=f"s{i}", t=i, type="message" if i else "human_intervention", agent="ab"[i % 2] if i else "user",
              content_ref=content_ref(text), extra=extra.get(i)) for i, text in enumerate(said)
    ]  # fmt: skip
    contents = {content_ref(text): text for text in said}
    return Trace(trace_id="t", task_id="t", system="talks", events=events, contents=contents, meta=dict(meta))


def test_labels_are_those_of_events_and_of_the_run() -> None:
    for trace, steps, agents in (
        (talk({2: {"is_mistake": True, "mistake_agent": "b"}}), {1}, {"b"}),
        (talk({1: {"trail_errors": [{}]}, 4: {"trail_errors": [{}]}}), {0, 3}, {"b", "a"}),
        (talk({0: {"is_mistake": True, "mistake_agent": "a"}}), set(), {"a"}),  # on the question, which nobody in the team said
        (talk({}, labels={"mistake_agent": "a", "mistake_step": "9"}), set(), {"a"}),
    ):
        known = labels_of(trace, Steps(trace))
        assert known is not None
        assert (known.steps, known.agents) == (steps, agents)
    assert labels_of(talk({}, labels={"note": "modes of the whole run"}), Steps(talk({}))) is None
    assert run_hits(talk({})) is None


def test_a_ranking_is_held_against_the_label_and_never_reads_it() -> None:
    ranked = [int(s.event[1:]) for s in blame(talk({}), anyway=True).suspects]
    for place, step in enumerate(ranked):
        found = run_hits(talk({step: {"is_mistake": True, "mistake_agent": "ab"[step % 2]}}))
        assert found is not None
        near = abs(ranked[0] - step) <= 1
        assert (found.hits["first"], found.hits["in three"], found.hits["within one"]) == (place == 0, place < 3, near)
        assert (found.chance, found.opening, found.source) == (0.25, step == 1, "talks")
    nowhere = run_hits(talk({}, labels={"mistake_agent": "a"}))
    assert nowhere is not None
    assert (nowhere.hits["first"], nowhere.hits["within one"], nowhere.chance) == (False, False, 0.0)


def test_shares_have_wilsons_interval_by_source() -> None:
    def hits(source: str, first: bool) -> Hits:
        about: dict[str, bool | None] = {"first": first, "in three": True, "within one": first, "agent": None}
        return Hits(trace_id="t", source=source, hits=about, chance=0.25, opening=False)

    told = {(s.source, s.measure): s for s in scores([hits("x", k < 1) for k in range(4)] + [hits("y", True)])}
    one = told["x", "first"]
    assert (one.runs, one.share, one.low, one.high) == (4, 0.25, pytest.approx(0.0456, abs=1e-4), pytest.approx(0.6994, abs=1e-4))
    assert told["y", "first"].share == 1.0
    assert ("x", "agent") not in told, "a label that names no agent says nothing of agents"
    assert (told["x", "a step at random"].share, told["x", "a step at random"].low) == (0.25, None)


@pytest.mark.parametrize("source", ["who_and_when", "agentrx", "trail", "who_and_when_pro", "trace_elephant"])
def test_sets_as_they_are_published(run: Ends, source: str) -> None:
    code, out, _ = run("bench", "blame", LOGS / source, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    measures = ["first", "in three", "within one", "agent", "always the first step", "a step at random"]
    sources = list(dict.fromkeys(row["source"] for row in rows))
    assert [row["measure"] for row in rows] == measures * len(sources)
    assert all(0 <= row["share"] <= 1 and row["runs"] >= 1 for row in rows)
    assert run("bench", "blame", LOGS / source)[1].count("always the first step") == len(sources)


def test_folders_without_labels_are_refused(run: Ends, tmp_path: Path) -> None:
    code, _, err = run("bench", "blame", LOGS / "mast")
    assert code == 5
    assert "none of 1 run has a label of a step or an agent" in err
    assert run("bench", "blame", tmp_path / "none")[0] == 3
