"""Runs written by hand, from which the ranker of ledgers learns too: their form, their labels, and that they are nobody's test."""

from __future__ import annotations

import json

import numpy as np

from counterpoint.audits.blame.learning import Case
from counterpoint.audits.blame.ledgers import LEDGER_SIGNALS
from counterpoint.audits.blame.ranker import shape_of
from counterpoint.audits.blame.steps import Steps
from counterpoint.lab.bench.blame_cases import known_run, ledger_ranker
from counterpoint.lab.bench.expert_chat.ledger_runs import written_files, written_runs


def test_each_is_a_run_with_a_ledger_whose_labelled_agent_speaks_at_the_labelled_step() -> None:
    runs = list(written_runs())
    assert len(runs) == len(written_files()) == 14
    for trace in runs:
        (mistake,) = [e for e in trace.events if (e.extra or {}).get("is_mistake")]
        assert trace.meta["labels"]["agrees"] is True
        assert mistake.id == f"s{int((trace.metrics or {})['mistake_step'])}"
        assert shape_of(Steps(trace)) == "ledger"
        assert known_run(trace, "written").truth >= 0


def test_a_round_is_a_ledger_an_instruction_and_an_answer() -> None:
    history = json.loads(written_files()["wrong-click"])["history"]
    assert [entry["role"] for entry in history[:9]] == [
        "human", "Orchestrator (thought)", "Orchestrator (thought)", "Orchestrator (-> WebSurfer)", "WebSurfer",
        "Orchestrator (thought)", "Orchestrator (-> WebSurfer)", "Orchestrator (thought)", "WebSurfer",
    ]  # fmt: skip
    assert history[7]["content"] == "Next speaker WebSurfer"
    assert history[-1]["content"].splitlines()[1] == "FINAL ANSWER: 555"


def test_their_labels_move_the_ranker_that_labelled_runs_give() -> None:
    x = np.zeros((3, len(LEDGER_SIGNALS)))
    x[:, LEDGER_SIGNALS.index("late_round")] = [0.0, 0.5, 1.0]
    made = ledger_ranker([Case(x, 2, f"{k}") for k in range(6)], 0)
    weight = dict(zip(made.names, made.weight, strict=True))
    assert weight["late_round"] > 0, "as in the labelled cases"
    assert weight["lone_help"] > 0, "which only the written runs have"
