"""Why a step is the first suspect, in one sentence as a person would say it, with the two events that show it.

Always true: the sentence says what the strongest signal of the ranking that speaks of an act means, and quotes the trace; it
claims no more than the signals do. The first event is the step; the second is where it shows: the instruction, the ledger, the
tool's answer, the reply, or the end of the run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from counterpoint.audits.blame.ledgers import ledger_of, rounds_of
from counterpoint.audits.blame.reasons import Reason
from counterpoint.audits.blame.steps import Steps
from counterpoint.trace.naming import first_line

_CUT = 110
_LEDGER_REASON = r'"%s"\s*:\s*\{\s*"reason"\s*:\s*"((?:[^"\\]|\\.)*)"'
_FINAL = re.compile(r"^[ *#]*final answer\W.*", re.IGNORECASE | re.MULTILINE)
_OWN = frozenset(
    {"first_guess", "assumes", "recalls", "hedges", "unsupported", "new_numbers", "number_of_result", "is_objected_to"}
)
"""Signals whose own words are quoted."""

_ACTS: dict[str, tuple[str, str]] = {
    "taken_as_done": ("gave an answer that was taken as done", "next task"),
    "noticed_next": ("led the team to where it first saw itself stuck", "ledger"),
    "cut_off_here": ("gave the answer with which the run breaks off", "task"),
    "lone_help": ("spoke from no page and no file", "ledger"),
    "help_at_last": ("gave the result from no page and no file", "ledger"),
    "first_replan": ("gave up the plan for a new one", "heard"),
    "accepting_lead": ("went on to a result that it then called right", "accepted"),
    "accepted_early": ("called the request satisfied", "heard"),
    "is_answer": ("brought in what the rest builds on", "reply"),
    "tool_failed": ("called a tool that failed", "result"),
    "tool_empty": ("called a tool that gave nothing back", "result"),
    "tool_poor": ("called a tool that found nothing", "result"),
    "first_error": ("made the first call that failed", "result"),
    "rule_of_errors": ("began the work, or made the first call that failed", "result"),
    "first_error_never_mended": ("made the first call that failed, and no call worked after it", "result"),
    "first_error_unfinished": ("made the first call that failed, and no result came after it", "result"),
    "error_mended": ("made a call that failed", "result"),
    "tool_gives_result": ("made the call whose answer became the result", "result"),
    "after_failure": ("went on from a failed result", "last result"),
    "after_empty": ("went on from a result that says nothing", "last result"),
    "ignores_result": ("used nothing of the tool result before it", "last result"),
    "uses_result": ("built on the tool result before it", "last result"),
    "is_objected_to": ("said what the next agent objects to", "reply"),
    "is_confirmed": ("said what the next agent confirmed", "reply"),
    "followed_by_change": ("said what made the next agent change the approach", "reply"),
    "followed_by_giving_up": ("said what the next agent found not to work", "reply"),
    "built_upon": ("stated what the next agent built on", "reply"),
    "assumes": ("worked with assumed or made-up values", "reply"),
    "recalls": ("stated something from memory", "reply"),
    "hedges": ("was not sure of what it said", "reply"),
    "first_guess": ("was the first to assume something or to state it from memory", "reply"),
    "unsupported": ("stated what nobody and no tool had said before", "reply"),
    "new_numbers": ("brought in new numbers", "reply"),
    "says_result_first": ("was the first to say the result", "end"),
    "source_of_result": ("stated first what the result rests on", "end"),
    "number_of_result": ("brought in a number of the result", "end"),
    "first_number_of_result": ("brought in the first number of the result", "end"),
    "claims_carried_on": ("stated first what was used later", "end"),
    "first_work": ("did the first work, on which the rest stands", "end"),
    "second_work": ("did the second piece of work", "end"),
    "first_work_unfinished": ("did the first work of a run that never came to a result", "end"),
    "first_code": ("wrote the first code", "result"),
    "code": ("wrote the code", "result"),
    "calculates": ("made the calculation", "reply"),
    "concludes": ("drew the conclusion", "end"),
    "ends": ("ended the work", "end"),
    "stops": ("ended the work", "end"),
    "plans": ("laid out the steps that were followed", "reply"),
    "changes_plan": ("changed the approach", "reply"),
}
"""What each signal that speaks of an act says of the agent, and which event shows it."""
_SHOWS = {
    "next task": "the next instruction asks for something else",
    "task": "it had been asked",
    "ledger": "the ledger then says",
    "heard": "just before it stands",
    "accepted": "the ledger that accepts it says",
    "result": "the tool answered",
    "last result": "the tool had answered",
    "reply": "what follows is",
    "end": "the run ends with",
}


class Why(Struct, frozen=True, kw_only=True):
    """The reason for the first suspect, for people."""

    words: str
    events: list[str]
    """The step, and the event that shows it; the step alone where nothing else does."""


def why(steps: Steps, k: int, name: str, reasons: Sequence[Reason]) -> Why:
    """The sentence for candidate k, whose agent people call `name`."""
    reason = next((r for r in reasons if r.signal in _ACTS), None)
    act, kind = ("is the likeliest to have decided it", "end") if reason is None else _ACTS[reason.signal]
    shown = _shown(steps, k, kind)
    if shown < 0 and kind != "end":
        kind, shown = "end", _shown(steps, k, "end")
    events = steps.trace.events
    first = f"{name} {act} at step {steps.numbers[k]}"
    if reason is not None and reason.signal in _OWN and reason.excerpt:
        first += f", “{reason.excerpt}”"
    if shown < 0 or shown == steps.places[k]:
        return Why(words=f"{first}.", events=[events[steps.places[k]].id])
    text = _quoted(steps, shown, kind)
    words = f"{first}; {_SHOWS[kind]} (step {steps.number(shown)})" + (f": “{text}”" if text else "")
    return Why(words=words if words.endswith(("”", ".")) else f"{words}.", events=[events[steps.places[k]].id, events[shown].id])


def _quoted(steps: Steps, i: int, kind: str) -> str:
    text = steps.texts[i]
    is_satisfied = dict(ledger_of(text)).get("is_request_satisfied")
    asked = "is_request_satisfied" if is_satisfied else "is_progress_being_made"
    if found := re.search(_LEDGER_REASON % asked, text, re.S):
        text = found[1]
    elif kind == "end" and (final := _FINAL.search(text)):
        text = final[0]
    return first_line(text, _CUT) or ""


def _shown(steps: Steps, k: int, kind: str) -> int:
    """The place of the event that shows it, or -1."""
    if kind == "result":
        return steps.results[k]
    if kind == "last result":
        return steps.last_results[k]
    if kind == "reply":
        j = next((j for j in range(k + 1, len(steps)) if steps.agents[j] != steps.agents[k]), -1)
    elif kind == "heard":
        j = next((j for j in range(k - 1, -1, -1) if steps.agents[j] != steps.agents[k]), -1)
    elif kind == "end":
        j = max((j for j in steps.ending if j > k), default=-1)
    else:
        run = rounds_of(steps)
        ledger = run.accepts if kind == "accepted" and run.accepts > k else run.first_after(list(run.ledgers), k)
        found = {"task": run.last_before(run.tasks, k), "next task": run.first_after(run.tasks, k)}
        j = found.get(kind, ledger)
    return steps.places[j] if j >= 0 else -1
