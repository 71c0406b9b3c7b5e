"""Why a step is suspected, in words: what each signal means, which family of causes it belongs to, and the words that show it.

Always true: every signal of `signals` has its words here (a test compares the two); an excerpt is text of the trace, cut.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from counterpoint.audits.blame.ledgers import NO_NEXT_TASK
from counterpoint.audits.blame.signals import matches
from counterpoint.audits.blame.steps import Floats, Steps

_EXCERPT = 110
_LEAST = 0.02
"""What adds less than this share is no reason."""

FAMILIES: dict[str, str] = {
    "place": "its place in the run",
    "who": "who said it",
    "tool": "a tool that failed or said nothing",
    "code": "the code that it wrote",
    "claim": "a claim that nothing supports",
    "result": "a result that was misread or not used",
    "plan": "a plan, or a change of it",
    "stop": "when the work was ended",
    "repeat": "work done again",
    "reply": "what others made of it",
    "reach": "how far it was read",
    "manner": "how it is said",
    "words": "the words it uses",
}
"""Causes by family; what many runs are grouped by."""

_SAID: dict[str, tuple[str, str]] = {
    "late": ("place", "late in the run"),
    "early": ("place", "early in the run"),
    "middle": ("place", "in the middle of the run"),
    "is_checker": ("who", "the agent's role is to check"),
    "is_lead": ("who", "the agent leads the team"),
    "is_coder": ("who", "the agent writes code or works on data"),
    "is_reader": ("who", "the agent reads pages or files"),
    "first_of_agent": ("who", "the agent's first step"),
    "turn_of_agent": ("who", "late among the agent's own steps"),
    "share_of_agent": ("who", "the agent does much of the work"),
    "is_first_agent": ("who", "of the agent that began"),
    "is_second_agent": ("who", "of the second agent to speak"),
    "takes_over": ("who", "takes over from another agent"),
    "hands_over": ("who", "another agent goes on from here"),
    "calls_tool": ("tool", "calls a tool"),
    "tool_failed": ("tool", "the tool it called failed"),
    "tool_empty": ("tool", "the tool it called gave nothing back"),
    "tool_worked": ("tool", "the tool it called answered"),
    "went_wrong": ("tool", "the step itself is marked as failed"),
    "after_failure": ("tool", "comes after a failed result"),
    "after_empty": ("tool", "comes after a result that says nothing"),
    "first_error": ("tool", "the first error of the run is here"),
    "last_error": ("tool", "the last error of the run is here"),
    "before_first_error": ("tool", "before the first error"),
    "after_first_error": ("tool", "after the first error"),
    "no_error_at_all": ("tool", "no tool failed in this run"),
    "first_worked": ("tool", "the first call that worked"),
    "last_worked": ("tool", "the last call that worked"),
    "before_first_call": ("tool", "before anybody used a tool"),
    "after_last_call": ("tool", "after the last use of a tool"),
    "errors_so_far": ("tool", "errors had piled up"),
    "on_the_way": ("reach", "the result depends on it"),
    "read_by_others": ("reach", "other agents read it"),
    "read_by_nobody": ("reach", "nobody read it"),
    "in_cone_of_error": ("reach", "follows from the first error"),
    "reads_outside": ("reach", "rests on content from outside"),
    "widely_read": ("reach", "read by many later steps"),
    "is_decision": ("plan", "a decision of the orchestrator"),
    "is_return": ("who", "hands over a result"),
    "is_call": ("tool", "is a tool call"),
    "stops": ("stop", "ends the work"),
    "delegates": ("plan", "gives work to another agent"),
    "is_merge": ("plan", "merges results"),
    "assumes": ("claim", "works with assumed or made-up values"),
    "recalls": ("claim", "states from memory"),
    "hedges": ("claim", "is not sure of what it says"),
    "gives_up": ("manner", "says that something did not work"),
    "confirms": ("manner", "confirms what was there"),
    "objects": ("manner", "objects to something"),
    "plans": ("plan", "lays out steps"),
    "changes_plan": ("plan", "changes the approach"),
    "concludes": ("stop", "draws the conclusion"),
    "ends": ("stop", "says that the work is over"),
    "asks": ("manner", "asks others for something"),
    "calculates": ("manner", "calculates"),
    "length": ("manner", "long, compared with the run's other steps"),
    "longest": ("manner", "the longest step"),
    "short": ("manner", "very short"),
    "code": ("code", "holds code"),
    "first_code": ("code", "the first code of the run"),
    "lists": ("manner", "is a list"),
    "questions": ("manner", "asks questions"),
    "unsupported": ("claim", "states what nobody and no tool had said before"),
    "new_numbers": ("claim", "brings in new numbers"),
    "claims_carried_on": ("claim", "what it states first is used later"),
    "source_of_result": ("claim", "the result's facts come from here"),
    "number_of_result": ("claim", "a number of the result comes from here"),
    "first_number_of_result": ("claim", "the first number of the result comes from here"),
    "uses_result": ("result", "uses the tool result before it"),
    "ignores_result": ("result", "uses nothing of the tool result before it"),
    "keeps_question": ("result", "holds the words of the question"),
    "like_the_end": ("reply", "says what the end says"),
    "echoes": ("repeat", "much like the step before"),
    "repeats": ("repeat", "much like a recent step"),
    "repeats_own": ("repeat", "much like the agent's own last step"),
    "is_objected_to": ("reply", "the next agent objects"),
    "is_confirmed": ("reply", "the next agent confirms it"),
    "followed_by_change": ("plan", "the next agent changes the approach"),
    "followed_by_giving_up": ("reply", "the next agent says that something did not work"),
    "built_upon": ("reply", "the next agent uses what it states"),
    "has_no_reply": ("reply", "no other agent answers it"),
    "is_brief": ("plan", "hands out the task"),
    "shows_page": ("reach", "shows a page or search results"),
    "first_work": ("place", "the first work after the task was handed out"),
    "second_work": ("place", "the second piece of work"),
    "first_work_unfinished": ("place", "the first work of a run that never came to a result"),
    "first_error_unfinished": ("tool", "the first error of a run that never came to a result"),
    "error_mended": ("tool", "an error, but a later call worked"),
    "first_error_never_mended": ("tool", "the first error, and no call worked after it"),
    "first_guess": ("claim", "the first to assume something or to state it from memory"),
    "tool_poor": ("tool", "the tool it called ran, and found nothing"),
    "says_result_first": ("claim", "the first to say the result"),
    "tool_gives_result": ("result", "the result first comes up in the answer to its call"),
    "rule_of_errors": ("tool", "the first error, or the first work where no tool failed"),
    "is_answer": ("who", "the answer of a member who reads pages or files"),
    "first_answer": ("place", "the first such answer"),
    "late_round": ("place", "after many answers"),
    "taken_as_done": ("result", "taken as done: the next instruction asks for something else"),
    "noticed_next": ("reply", "the ledger after it is the first to see the team stuck"),
    "cut_off_here": ("stop", "the run breaks off here, after few answers"),
    "lone_help": ("claim", "said from no page and no file"),
    "help_at_last": ("claim", "said from no page and no file, and taken as the result"),
    "first_replan": ("plan", "the plan is given up for a new one"),
    "accepted_answer": ("stop", "an answer in a run that was called satisfied"),
    "accepting_lead": ("stop", "decided by the lead, which called the result right"),
    "accepted_early": ("stop", "the request is called satisfied after few answers"),
    "unlike_others": ("claim", "other runs of the task do not state this"),
    "surprise": ("words", "a local model finds it surprising"),
}
_ABSENT = {
    "echoes": "unlike the step before",
    "repeats": "unlike recent steps",
    "repeats_own": "unlike the agent's own last step",
    "keeps_question": "holds few words of the question",
    "uses_result": "uses little of the tool result before it",
    "tool_worked": "the tool it called gave no answer",
    "on_the_way": "the result does not depend on it",
    "is_confirmed": "the next agent does not confirm it",
    "length": "short, compared with the run's other steps",
}
"""Signals whose absence speaks for a step, and is no cause by itself."""

_LOW = {
    "late": "early in the run",
    "early": "late in the run",
    "late_round": "after few answers",
    "turn_of_agent": "early among the agent's own steps",
    "share_of_agent": "of an agent that says little",
    "short": "says more than a few words",
    "read_by_nobody": "somebody read it",
    "has_no_reply": "another agent answers it",
}
"""Signals whose absence says as much as they do."""
_BY_RESULT = frozenset(
    {
        "tool_failed",
        "tool_empty",
        "tool_poor",
        "first_error",
        "last_error",
        "error_mended",
        "first_error_unfinished",
        "first_error_never_mended",
        "tool_gives_result",
    }
)
"""Signals that the answer of the step's tool shows."""


class Reason(Struct, frozen=True, kw_only=True):
    """One signal that speaks for a step."""

    signal: str
    family: str
    words: str
    share: float
    """Of all that speaks for the step."""
    excerpt: str | None = None

    @property
    def is_cause(self) -> bool:
        """Whether it can name the cause: not the mere absence of a signal."""
        return not self.words.startswith("not: ") and self.words not in _ABSENT.values()


def signal_words(signal: str, is_low: bool = False) -> tuple[str, str]:
    """The family of a signal and its words; of a signal that speaks by being low, the opposite."""
    if signal.startswith("words_"):
        return "words", "uses words that mistakes use"
    if signal.startswith("place_"):
        return "place", f"among the {'last' if 'last' in signal else 'first'} steps of the run"
    family, words = _SAID[signal]
    return family, words if not is_low else _LOW.get(signal) or _ABSENT.get(signal) or f"not: {words}"


def reasons(steps: Steps, k: int, part: Floats, x: Floats, names: list[str], most: int = 4) -> list[Reason]:
    """What speaks most for candidate k: its signals whose part of the score is above the run's mean, hashed words as one."""
    above = part[k] - part.mean(axis=0)
    words = np.array([name.startswith("words_") for name in names])
    gains = {names[j]: float(above[j]) for j in np.flatnonzero(~words).tolist() if above[j] > 1e-9}
    if words.any() and above[words].sum() > 0:
        gains["words_0"] = float(above[words].sum())
    total = sum(gains.values()) or 1.0
    usual = x.mean(axis=0)
    column = {name: j for j, name in enumerate(names)}
    best = sorted(gains, key=lambda name: (-gains[name], name))
    out: list[Reason] = []
    for name in best:
        if gains[name] < _LEAST * total:
            break
        is_low = name != "words_0" and bool(x[k, column[name]] < usual[column[name]])
        if is_low and name not in _ABSENT and name not in _LOW:
            continue  # it speaks for the step by not being there: true, and of no help
        if name == "taken_as_done" and x[k, column[name]] == NO_NEXT_TASK:
            continue
        family, phrase = signal_words(name, is_low)
        out.append(Reason(signal="words" if name == "words_0" else name, family=family, words=phrase,
                          share=round(gains[name] / total, 4), excerpt=excerpt(steps, k, name)))  # fmt: skip
        if len(out) == most:
            break
    return out


def excerpt(steps: Steps, k: int, signal: str) -> str | None:
    """The words of the trace that show the signal, where words show it."""
    text = steps.texts[steps.places[k]]
    if signal in _BY_RESULT and steps.results[k] >= 0:
        return _cut(steps.texts[steps.results[k]], 0)
    if signal in ("after_failure", "after_empty", "ignores_result", "uses_result") and steps.last_results[k] >= 0:
        return _cut(steps.texts[steps.last_results[k]], 0)
    place = matches(signal, text) if signal != "first_guess" else matches("assumes", text) or matches("recalls", text)
    if place is not None:
        return _cut(text, place)
    if signal in (
        "unsupported",
        "new_numbers",
        "number_of_result",
        "first_number_of_result",
        "source_of_result",
        "claims_carried_on",
    ):
        earlier = frozenset().union(
            *(steps.claims[i] for i in steps.order[: int(steps.facts.team.place_E[steps.places[k]])][-400:])
        )
        new = sorted(steps.claims[steps.places[k]] - earlier, key=lambda c: (not c[:1].isdigit(), text.find(c)))
        return _cut(text, max(text.find(new[0]), 0)) if new else None
    return None


def _cut(text: str, at: int) -> str | None:
    """A line of the text around a place."""
    begin = max(0, at - _EXCERPT // 3)
    line = re.sub(r"\s+", " ", text[begin : begin + _EXCERPT]).strip()
    if not line:
        return None
    return ("…" if begin else "") + line + ("…" if begin + _EXCERPT < len(text) else "")
