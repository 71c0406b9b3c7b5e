"""Teams with a ledger: their signals by hand, the set of steps as a law, and the sentence with the events that show it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from counterpoint.audits.blame.judge import blame
from counterpoint.audits.blame.learning import Case, reach_of
from counterpoint.audits.blame.ledgers import AGENT_SIGNALS, NO_NEXT_TASK, agent_table, ledger_of, ledger_signals, rounds_of
from counterpoint.audits.blame.ranker import AGENTS, Ranker, agent_shares, shape_of, shipped
from counterpoint.audits.blame.sentence import why
from counterpoint.audits.blame.steps import Steps
from counterpoint.trace import Event, Trace, content_ref

LEAD, WEB, HELP = "Orchestrator", "WebSurfer", "Assistant"


def ledger(*, done: bool = False, loop: bool = False, progress: bool = True) -> str:
    """A ledger as such an orchestrator writes it."""
    answers = {"is_request_satisfied": done, "is_in_loop": loop, "is_progress_being_made": progress}
    body = {key: {"reason": f"why {key}", "answer": value} for key, value in answers.items()}
    return "Updated Ledger:\n" + json.dumps(body, indent=2)


def run(*steps: tuple[str, str], reward: float = 0.0) -> Trace:
    """A run: `ask` is an instruction of the lead, `lead` anything else that it says."""
    events, contents = [Event(id="s0", t=0, type="human_intervention", agent="user", role="user")], {}
    for i, (who, text) in enumerate(steps, 1):
        contents[content_ref(text)] = text
        is_lead = who in ("ask", "lead")
        agent = LEAD if is_lead else who
        kind = "orchestrator_decision" if is_lead else "message"
        decision = "delegate" if who == "ask" else None
        events.append(Event(id=f"s{i}", t=i, type=kind, agent=agent, role=agent, decision=decision,
                            content_ref=content_ref(text)))  # type: ignore[arg-type]  # fmt: skip
    return Trace(trace_id="run", task_id="run", events=events, contents=contents, rewards={"team": reward})


STUCK = run(
    ("lead", ledger()),  # s1
    ("ask", "Please find tall towers"),  # s2
    (WEB, "I typed 'towers' into the search bar."),  # s3
    ("lead", ledger()),  # s4
    ("ask", "Please find the builders"),  # s5
    (WEB, "I clicked 'Shoes'."),  # s6
    ("lead", ledger(loop=True, progress=False)),  # s7
    ("lead", "Stalled.... Replanning..."),  # s8
    ("ask", "Please find the builders"),  # s9
    (WEB, "I clicked 'Builders'."),  # s10
)


def test_signals_of_a_run_that_is_cut_off_by_hand() -> None:
    steps = Steps(STUCK)
    found = {name: column.tolist() for name, column in ledger_signals(steps).items()}
    assert shape_of(steps) == "ledger"
    assert found["is_answer"] == [0, 0, 1, 0, 0, 1, 0, 0, 0, 1]
    assert found["first_answer"] == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert found["late_round"] == pytest.approx([0, 0, 0.05, 0.05, 0.05, 0.1, 0.1, 0.1, 0.1, 0.15])
    # {find, tall, towers} and {find, builders} share one of four words; then the same is asked again; then nothing is
    assert [found["taken_as_done"][k] for k in (2, 5, 9)] == [0.75, 0.0, NO_NEXT_TASK]
    assert found["noticed_next"].index(1) == 5
    assert found["first_replan"].index(1) == 7
    assert found["cut_off_here"] == pytest.approx([0] * 9 + [math.exp(-((3 / 6) ** 2))])
    assert not any(any(found[name]) for name in ("accepted_early", "accepting_lead", "lone_help"))


def test_signals_of_a_run_that_is_called_satisfied_by_hand() -> None:
    trace = run(
        ("lead", ledger()), ("ask", "Find the list"), (WEB, "A list."), ("lead", ledger()), ("ask", "Count the list"),
        (HELP, "About 12."), ("lead", ledger(done=True)), ("lead", "Request satisfied."),
    )  # fmt: skip
    steps = Steps(trace)
    found = {name: column.tolist() for name, column in ledger_signals(steps).items()}
    assert found["lone_help"] == found["help_at_last"] == [0, 0, 0, 0, 0, 1, 0, 0]
    assert found["accepted_answer"] == found["is_answer"]
    assert found["accepted_early"] == pytest.approx([0, 0, 0, 0, 0, 0, math.exp(-((1 / 6) ** 2)), 0])
    assert found["accepting_lead"] == [0, 0, 0, 1, 0, 0, 1, 0]  # after the first answer, and more than an announcement
    agents, x = agent_table(steps)
    rows = {agent: dict(zip(AGENT_SIGNALS, row, strict=True)) for agent, row in zip(agents, x.tolist(), strict=True)}
    assert [name for name, value in rows[LEAD].items() if value] == ["agent_leads", "agent_leads_accepted"]
    assert [name for name, value in rows[WEB].items() if value] == ["agent_reads"]
    assert [name for name, value in rows[HELP].items() if value] == ["agent_helps", "agent_helps_at_last"]


def test_a_run_without_a_ledger_has_none_of_these_signals() -> None:
    steps = Steps(run(("ask", "Find it"), (WEB, "I clicked 'It'.")))
    assert shape_of(steps) == "led"
    assert not any(column.any() for column in ledger_signals(steps).values())
    assert ledger_of("we are in a loop") == ()
    assert rounds_of(steps).accepts == -1


def test_the_sentence_quotes_the_event_that_shows_it() -> None:
    told = blame(replace(STUCK, events=STUCK.events[:9]))
    assert told.suspects[0].event == "s8"
    assert (
        told.why.words == f"{LEAD} gave up the plan for a new one at step 8; just before it stands (step 6): “I clicked 'Shoes'.”"
    )
    assert told.why.events == ["s8", "s6"]
    short = blame(run(("lead", ledger()), ("ask", "Find the tower"), (WEB, "I typed 'tower' into the search bar.")))
    assert short.why.words.endswith("it had been asked (step 2): “Find the tower”")
    assert short.why.events == ["s3", "s2"]


def test_the_sentence_quotes_why_a_ledger_is_satisfied_and_the_answer_of_the_run() -> None:
    guessed = run(
        ("lead", ledger()), ("ask", "Find the height"), (HELP, "I guess 12 m."), ("lead", ledger(done=True)),
        ("lead", "No agent selected.\nFINAL ANSWER: 12 m\nThe script is over."),
    )  # fmt: skip
    told = blame(guessed).why
    assert told.events == ["s3", "s4"]
    assert told.words.endswith("the ledger then says (step 4): “why is_request_satisfied”")
    steps = Steps(guessed)
    ended = why(steps, 1, LEAD, [])
    assert ended.words.endswith("the run ends with (step 5): “FINAL ANSWER: 12 m”")


def test_labels_are_not_read() -> None:
    marked = replace(STUCK, meta={"labels": {"mistake_step": 3, "ground_truth": "Shoes"}}, metrics={"mistake_step": 3.0})
    assert blame(marked) == blame(STUCK)


def test_agents_shares_sum_to_one_and_the_lead_answers_for_what_it_accepted() -> None:
    accepted = run(("lead", ledger()), ("ask", "Find it"), (WEB, "It is 3."), ("lead", ledger(done=True)))
    cut_off = run(("lead", ledger()), ("ask", "Find it"), (WEB, "It is 3."))
    first = []
    for trace in (accepted, cut_off):
        shares = agent_shares(Steps(trace), shipped(AGENTS))
        assert sum(shares.values()) == pytest.approx(1)
        first.append(max(shares, key=lambda agent: shares[agent]))
    assert first == [LEAD, WEB]


@given(st.lists(st.tuples(st.integers(2, 40), st.integers(0, 39)), min_size=9, max_size=40), st.sampled_from([0.5, 0.8, 0.9]))
def test_the_set_holds_the_step_as_often_as_it_says(runs: list[tuple[int, int]], coverage: float) -> None:
    cases = [Case(np.zeros((n, 1)), truth % n) for n, truth in runs]
    scores = [-np.arange(n, dtype=float) for n, _ in runs]  # the first step ranks first
    ranker = Ranker(names=[], mean=[], weight=[], reach=reach_of(cases, scores, coverage))
    inside = [case.truth < (ranker.set_size(len(case.x)) or len(case.x)) for case in cases]
    assert np.mean(inside) >= coverage


def test_the_reach_by_hand() -> None:
    cases = [Case(np.zeros((10, 1)), truth) for truth in range(9)]
    scores = [-np.arange(10.0)] * 9
    assert reach_of(cases, scores) == 0.9  # ceil(10 * 0.9) = 9th smallest of 0.1 ... 0.9
    assert reach_of(cases[:8], scores[:8]) == 1.0  # ceil(9 * 0.9) = 9th of 8: too few to say
    unlabelled = [*cases[:8], Case(np.zeros((10, 1)), -1)]
    assert reach_of(unlabelled, scores) == 1.0
    ranker = Ranker(names=[], mean=[], weight=[], reach=0.5)
    assert [ranker.set_size(n) for n in (1, 2, 7, 10)] == [None, 1, 3, 5]
    assert Ranker(names=[], mean=[], weight=[]).set_size(10) is None
