"""Credit of language-model teams pays for work that counted: a return that no merge read is a null player everywhere.

The laws are held on teams drawn at random, with a lead in between, against a worth that this file computes by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

pytest.importorskip("torch")

from counterpoint import registry
from counterpoint.credits.mechanism import identified
from counterpoint.errors import NotIdentified
from counterpoint.lab.tasks.task import Act, Draw, Instance, Score, View
from counterpoint.lab.team.remerge import Remerge
from counterpoint.lab.team.session import Spec
from counterpoint.lab.train.lm.advantages import TASK_ANSWERS, merged_value, merged_worth, without_returns
from counterpoint.lab.worlds.world import changed, parameter
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.rows import Credit
from counterpoint.trace.trace import content_ref

WORDS = ("red", "blue", "grey")
GAMES = "difference", "shapley", "winter", "sharp"


@dataclass(frozen=True)
class Dials:
    words: int = parameter(3, "1", "Words that are right.")


@dataclass(frozen=True)
class Union:
    """Every right word of the answer pays the same."""

    config: Dials = Dials()
    name = "tests.lab.train.lm.test_late_returns:union"
    short = "union"
    version = "1"
    rules = ("union",)

    def replace(self, **changes: Any) -> Union:
        return Union(changed(self.config, changes))

    def instance(self, seed: int) -> Instance:
        return Instance(task=self.name, seed=seed, question="Which words?", answer_format="words", subtasks=())

    def check(self, instance: Instance, answer: str) -> Score:
        value = len(set(answer.split()) & set(WORDS)) / len(WORDS)
        return Score(value, value == 1.0)

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        return " ".join(sorted({word for text in texts for word in text.split()}))

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        return Act("return", "", "red")

    def truth_file(self, instance: Instance) -> str:
        return ""


union = Union()
TASK = union.instance(0)


@dataclass(frozen=True)
class Work:
    """What one worker returned: to the lead in between or to the one above, in time or after everything was merged."""

    words: frozenset[str]
    is_below: bool
    is_late: bool


def team(work: Sequence[Work]) -> Trace:
    """Who leads spawns `mid`, which merges what those below it returned, and merges that with the others' returns."""
    names = [f"w{i}" for i in range(len(work))]
    events: list[Event] = []
    edges: list[Edge] = []
    contents: dict[str, str] = {}

    def add(id_: str, type_: str, agent: str, text: str | None = None, **more: Any) -> None:
        role = {"lead": "orchestrator", "mid": "lead"}.get(agent, "worker")
        ref = None if text is None else content_ref(text)
        contents.update({} if text is None or ref is None else {ref: text})
        events.append(Event(id=id_, t=len(events), type=type_, agent=agent, role=role, content_ref=ref, **more))

    def merge(id_: str, agent: str, read: Sequence[str]) -> str:
        texts = [contents[next(e.content_ref for e in events if e.id == back) or ""] for back in read]
        add(id_, "aggregate", agent, union.merge(TASK, "union", texts), extra={"rule": "union"})
        edges.extend(Edge(src=back, dst=id_, type="aggregate") for back in read)
        return contents[events[-1].content_ref or ""]

    add("s", "spawn", "lead", to="mid")
    for name, one in zip(names, work, strict=True):
        add(f"s-{name}", "spawn", "mid" if one.is_below else "lead", to=name)
    said = lambda one: " ".join(sorted(one.words)) or "none"  # noqa: E731
    for late in (False, True):
        if late:
            below = [f"r-{n}" for n, one in zip(names, work, strict=True) if one.is_below and not one.is_late]
            add("r-mid", "return", "mid", merge("m", "mid", below), to="lead")
            above = [f"r-{n}" for n, one in zip(names, work, strict=True) if not one.is_below and not one.is_late]
            merge("g", "lead", ["r-mid", *above])
        for name, one in zip(names, work, strict=True):
            if one.is_late == late:
                add(f"c-{name}", "tool_call", name, tool="search")
                add(f"r-{name}", "return", name, said(one), to="mid" if one.is_below else "lead")
    answer = contents[next(e.content_ref for e in events if e.id == "g") or ""]
    add("end", "orchestrator_decision", "lead", answer, decision="stop")
    meta = {"answer": answer, "team": Spec(task=Union.name).as_meta()}
    worth = union.check(TASK, answer).value
    return Trace(trace_id="run", task_id="q", events=events, edges=edges, contents=contents, rewards={"team": worth}, meta=meta)


def worth(work: Sequence[Work], present: Sequence[int]) -> float:
    """By the definition: the right words that somebody present returned in time."""
    there = {word for i in present if not work[i].is_late for word in work[i].words}
    return len(there & set(WORDS)) / len(WORDS)


def credited(name: str, *traces: Trace) -> Credit:
    mechanism = registry.get("mechanism", name)
    live = {option: TASK_ANSWERS.get(value, value) for option, value in mechanism.live.items()}
    more = {"give": "marginal"} if name == "sharp" else {}
    return identified(mechanism, list(traces), {**live, **more})[0]


WORK = st.builds(Work, st.frozensets(st.sampled_from([*WORDS, "wrong"]), max_size=3), st.booleans(), st.booleans())


@settings(max_examples=60, deadline=None)
@given(st.lists(WORK, min_size=1, max_size=4))
def test_merges_made_again_are_worth_what_the_definition_says(work: list[Work]) -> None:
    trace = team(work)
    merge, everybody = Remerge(trace), range(len(work))
    assert merge.is_identified
    assert sorted(merge.workers) == [f"w{i}" for i in everybody if not work[i].is_late]
    for size in range(len(work) + 1):
        for present in combinations(everybody, size):
            absent = [f"w{i}" for i in everybody if i not in present]
            assert merge.score(absent) == worth(work, present)
            assert merged_worth(trace, frozenset(f"w{i}" for i in present)) == worth(work, present)
    assert merged_value(trace)[-1] == trace.rewards["team"] == worth(work, everybody)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORK, min_size=1, max_size=4))
def test_who_changed_nothing_gets_nothing(work: list[Work]) -> None:
    """The null player, of four games; and of `ledger`, that no late return moves the value."""
    trace = team(work)
    everybody = range(len(work))
    null = [f"w{i}" for i in everybody if all(worth(work, s) == worth(work, {*s} - {i}) for n in range(5) for s in combinations(everybody, n))]
    assert {f"w{i}" for i in everybody if work[i].is_late} <= set(null)
    for name in GAMES:
        got = credited(name, trace).of(0)
        assert {who: got[who] for who in null} == dict.fromkeys(null, 0.0), name
    assert sum(credited("shapley", trace).of(0).values()) == pytest.approx(worth(work, everybody) - worth(work, []))
    values, index = merged_value(trace), trace.index
    assert all(values[index[f"r-w{i}"] + 1] == values[index[f"r-w{i}"]] for i in everybody if work[i].is_late)


def test_a_right_answer_after_the_merge_of_a_team_that_earned_nothing() -> None:
    """By hand: w0 said wrong in time, w1 all the right words too late, so that the team earned 0, and nobody gets anything."""
    trace = team([Work(frozenset({"wrong"}), False, False), Work(frozenset(WORDS), True, True)])
    assert trace.rewards["team"] == 0.0
    for name in (*GAMES, "ledger", "remerge"):
        found = registry.get("mechanism", "remerge")([trace], merged=Remerge) if name == "remerge" else credited(name, trace)
        assert set(found.of(0).values()) == {0.0}, name
    assert without_returns(trace, "w1") == 0.0


def test_a_merge_that_does_not_come_out_as_recorded_is_refused_and_shares_nothing() -> None:
    """Shares of a merge that was never made would be of another team: a recorded text that the rule does not give."""
    trace = team([Work(frozenset({"red"}), True, False), Work(frozenset({"blue"}), False, False)])
    other = "red blue grey and more"
    events = [replace(e, content_ref=content_ref(other)) if e.id in ("g", "end") else e for e in trace.events]
    odd = replace(trace, events=events, contents={**trace.contents, content_ref(other): other}, meta={**trace.meta, "answer": other})
    odd.rewards["team"] = 1.0
    with pytest.raises(NotIdentified, match="cannot be reproduced"):
        _ = Remerge(odd).final
    with pytest.raises(NotIdentified, match="cannot be reproduced"):
        registry.get("mechanism", "remerge")([odd], merged=Remerge)
    assert {amount for name in GAMES for amount in credited(name, odd).of(0).values()} == {0.0}
    assert set(merged_value(odd)) == {0.0}
