"""From live teams to training rows: what each credit mechanism reaches, as docs/lab/rows.md says it, and that no credit is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint import Trace, registry
from counterpoint.app.api.credit import credit_of
from counterpoint.credits.call_rows import call_rows, cause_of
from counterpoint.credits.example import running_mean
from counterpoint.credits.mechanisms.message_amortised import fit
from counterpoint.credits.mechanisms.qmix import MixWeights
from counterpoint.credits.rows import actions
from counterpoint.errors import NotIdentified
from counterpoint.lab.team.session import Spec, about, assemble, end_of, make_model, play
from counterpoint.lab.team.state import Limits
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder
from counterpoint.trace import Event, summed_costs
from counterpoint.trace.model_calls import model_call
from counterpoint.trace.rows import Credit

TEAMS: list[tuple[str, str, dict[str, Any]]] = [
    ("ledger_hunt", "centralized", {"documents": 8, "rows": 2, "parts": 2, "firms": 6}),
    ("pointer_chase", "planner_executor_critic", {"hops": 2, "parts": 2, "distractors": 4}),
    ("split_evidence", "debate", {"claims": 2}),
    ("sql_audit", "hierarchical", {"rules": 2, "rows": 20, "violations": 1, "distractors": 1}),
    ("timetables", "swarm", {"days": 2, "talks": 2}),
]
"""One team for each kind of work and every topology with several agents."""


def team(task: str, topology: str, dials: dict[str, Any], model: str) -> Trace:
    """The trace of a team of fakes."""
    spec = Spec(task=task, config=dials, topology=topology, model=model, limits=Limits(width=2, steps=8, turns=12))
    made, sink = spec.make_task(), MemorySink()
    players = make_model(model, made)
    running = assemble(spec, made, made.instance(0), players, Recorder(sink, LogicalClock()))
    rewards, metrics, ended = end_of(running, asyncio.run(play(running, spec.make_topology())))
    events = list(sink.events.values())
    return Trace(
        trace_id=f"{task}-{model}", task_id=task, events=events, edges=sink.edges, rewards=rewards, metrics=metrics,
        costs=dict(summed_costs(events)), meta=about(spec, made, players, running.harness) | ended, contents=sink.contents,
    )  # fmt: skip


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    return [team(*which, model) for which in TEAMS for model in ("fake:0.6", "fake:1")]


def _options(trace: Trace) -> list[tuple[str, int]]:
    return [(e.id, len(e.options)) for e in trace.events if e.options]


def _mixer(trace: Trace) -> MixWeights:
    members = len({trace.events[i].agent for i in actions(trace)})
    return MixWeights(w1=[[1.0, 0.5]] * members, b1=[0.0, -1.0], w2=[1.0, 2.0], b2=0.1)


def _even(trace: Trace) -> dict[str, float]:
    return dict.fromkeys(trace.agents, 0.1)


def _less_likely(trace: Trace) -> dict[str, float]:
    return {e.id: e.logp - float(np.log(2)) for e in trace.events if e.logp is not None}


ASKED_FOR: dict[str, Callable[[list[Trace]], dict[str, Any]]] = {
    "coma": lambda traces: {
        "q": lambda trace: {at: [1.0] + [0.0] * (n - 1) for at, n in _options(trace)},
        "pi": lambda trace: {at: [1 / n] * n for at, n in _options(trace)},
    },
    "gae": lambda traces: {"value": running_mean},
    "marft": lambda traces: {"value": running_mean},
    "mars2": lambda traces: {"channel": "draft"},
    "message_amortised": lambda traces: {"weights": fit(traces, credit_of("message_delete", traces))},
    "qmix": lambda traces: {"q": _even, "mixer": _mixer},
    "shapley": lambda traces: {"replay": True},
    "shapley_q": lambda traces: {"marginal": lambda trace: lambda before, who: 1.0},
    "sharp": lambda traces: {"replay": True},
    "step_pairs": lambda traces: {"critic": lambda trace, event: trace.rewards["team"]},
    "task_returns": lambda traces: {"value": running_mean},
    "token_spread": lambda traces: {"credit": credit_of("ledger", traces)},
    "vdn": lambda traces: {"q": _even},
    "vtrace": lambda traces: {"target": _less_likely},
    "winter": lambda traces: {"replay": True},
}
"""What a mechanism asks for beside the traces, where it refuses without."""


REFUSES = {
    "agreement": r'no message carries a claim; extra\["claim"\]',
    "coma": r"critic over the options of each decision \(q=\); give a function",
    "gae": r"needs a critic \(value=\); give a function",
    "marft": r"needs a critic \(value=\); give a function",
    "mars2": "no event carries a reward 'team'; score the nodes",
    "message_amortised": r"no weights; weights=fit\(",
    "message_logged": "each arm needs 20; more runs of the task, or a replay",
    "message_masked": r'no message carries a scored claim; extra\["claim"\]',
    "qmix": "the mix is not in a trace; give mixer=",
    "shapley": "nothing says what a part of the team is worth.*; give worth=.*, or a replay that can fork",
    "shapley_q": "marginal values are not in a trace; give marginal=",
    "sharp": "nothing says what a part of the team is worth.*; give worth=.*, or a replay that can fork",
    "step_pairs": "no step has a score; give a critic",
    "task_returns": r"needs a critic \(value=\), or steps=; give a function",
    "token_spread": "nothing to spread; give credit=",
    "vdn": "values are not in a trace; give q=",
    "vtrace": r"log-probabilities \(target=\); give a function",
    "winter": "nothing says what a part of the team is worth.*; give worth=.*, or a replay that can fork",
}
"""What is missing, and what would help, in the words of the refusal."""


def told() -> dict[str, list[str]]:
    """The table of the page: mechanism to its cells."""
    page = (Path(__file__).parents[3] / "docs" / "lab" / "rows.md").read_text().partition("| mechanism |")[2]
    lines = [[cell.strip() for cell in line.split("|")[1:]] for line in page.splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): cells[1:4] for cells in lines}


def reached(name: str, traces: list[Trace]) -> list[str]:
    """The cells of a mechanism, as they are measured."""
    given: dict[str, Any] = {}
    if name in REFUSES:
        with pytest.raises(NotIdentified, match=REFUSES[name]):
            credit_of(name, traces)
        if name not in ASKED_FOR:
            return ["", "none", ""]
        given = ASKED_FOR[name](traces)
    credit = credit_of(name, traces, given)
    rows = call_rows(traces, credit)
    _nothing_lost(rows, credit)
    levels = sorted({row.level for row in rows.rows if row.level is not None})
    count = sum(row.level is not None for row in rows.rows)
    asked = ", ".join(f"`{option}`" for option in given)
    return [", ".join(levels), "all" if count == len(rows.rows) else "some", asked]


def _nothing_lost(rows: Any, credit: Credit) -> None:
    placed = rows.placement
    placed.check()
    for i in range(len(credit.trace_ids)):
        missing = sum(u.value for u in placed.unplaced if u.trace == i)
        there = sum(float(a[i]) for d in (placed.carried, placed.replaced) for a in d.values())
        assert there + missing == pytest.approx(sum(credit.of(i).values()), abs=1e-9)
        if credit.additive:
            assert sum(float(a[i]) for a in placed.given.values()) == pytest.approx(
                sum(credit.declared[i] for unit in credit.units if credit.of(i, unit)), abs=1e-9  # type: ignore[index]
            )


@pytest.mark.parametrize("name", registry.ids("mechanism"))
def test_each_mechanism_reaches_what_the_page_says(name: str, traces: list[Trace]) -> None:
    assert told()[name] == reached(name, traces)


def test_the_page_names_every_mechanism() -> None:
    assert list(told()) == list(registry.ids("mechanism"))


def test_one_agent_alone_is_credited_or_the_refusal_says_what_would_help() -> None:
    alone = [team("ledger_hunt", "harness", TEAMS[0][2], model) for model in ("fake:0.3", "fake:1")]
    refused: dict[str, str | None] = {}
    empty = set()
    for name in registry.ids("mechanism"):
        if name in REFUSES:
            continue
        try:
            credit = credit_of(name, alone)
        except NotIdentified as why:
            refused[name] = why.fix
            continue
        found = call_rows(alone, credit)
        _nothing_lost(found, credit)
        assert any(row.level is not None for row in found.rows) == bool(credit.rows), name
        empty |= set() if credit.rows else {name}
    assert set(refused) == {"cone", "difference", "ledger", "message_delete", "remerge", "stop"}
    assert empty == {"message_substitute"}  # it wrote no message
    assert all(refused.values())


def test_every_effect_of_a_live_team_has_a_turn_and_the_call_that_caused_it(traces: list[Trace]) -> None:
    for trace in traces:
        causes = cause_of(trace)
        for i in actions(trace):
            event = trace.events[i]
            assert event.turn is not None, event
            cause = trace.events[causes[i]]
            assert (cause.agent, cause.turn) == (event.agent, event.turn), event
        numbers = [(e.agent, e.turn) for e in trace.events if model_call(e) is not None]
        assert len(set(numbers)) == len(numbers)  # no repair was asked for: a turn is a call


def test_the_orders_that_nobody_decided_are_no_calls_of_anybody(traces: list[Trace]) -> None:
    question: Event = traces[0].events[0]
    found = call_rows(traces, credit_of("ledger", traces))
    assert (0, question.id) in {(u.trace, u.unit_id) for u in found.placement.unplaced}


def test_options_whose_names_are_taken_are_given_by_name() -> None:
    import counterpoint as cpt

    trace = team(*TEAMS[0], "fake:1")
    with pytest.raises(TypeError):
        cpt.rows(trace, "token_spread", credit="ledger")  # type: ignore[call-overload]
    of = {"credit": credit_of("ledger", [trace], {"unit": "all"})}
    spread = cpt.rows(trace, "token_spread", given=of)
    assert any(row.token_advantages is not None for row in spread.rows)
