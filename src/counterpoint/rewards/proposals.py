"""Outcomes that a log holds without saying so: tests that passed, graders, labels, merges, the user's words.

Always true: a proposal is no reward until somebody accepts it, and names the event and the words that it rests on. Of several
test runs the last one counts, and of the user's words the last that judge. The strongest comes first: graders, labels, tests,
merges, words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from counterpoint.trace import Event, Trace
from counterpoint.trace.test_output import test_run

KINDS = ("grader", "label", "tests", "merged", "user")
_EXCERPT = 120
_LONGEST = 400
"""Characters of a remark; what is longer is a task of its own."""
_GRADES = re.compile(r"(?:task_)?success|utility|correct(?:ness)?|accuracy|resolved|passed|pass_rate|score", re.I)

_MERGED = re.compile(r"\b(?:Merged pull request|Squashed and merged|Rebased and merged|Fast-forward\b|Merge made by the)", re.I)
_MERGES = re.compile(r"\b(?:gh pr merge|git merge|git pull)\b")

_BAD = re.compile(
    r"\b(?:(?:do|does|did|is|are|was)(?:n't| not) (?:work|right|correct\b|what|good|fixed|help|it\b)"
    r"|not (?:right|correct\b|what i|good|fixed|quite|working)"
    r"|(?:still|again) (?:fail|broken|wrong|not|the same)"
    r"|wrong|incorrect|broken|revert|undo|try again|useless|you (?:broke|missed|forgot))",
    re.I,
)
_GOOD = re.compile(
    r"\b(?:thanks?|thank you|thx|perfect|great|excellent|awesome|nice|well done|good (?:job|work)"
    r"|(?:it|this|all|everything) works|works (?:now|great|well|fine|perfectly)|lgtm|looks good"
    r"|love it|that'?s (?:it|right|correct)|danke|perfekt|merci|gracias)\b|谢谢|感谢|完美|ありがとう",
    re.I,
)


class Proposal(NamedTuple):
    """An outcome that somebody may accept."""

    channel: str
    value: float
    kind: str
    """One of `KINDS`."""
    says: str
    """The words of the log that it rests on."""
    event: str | None = None
    """The event that holds them."""

    @property
    def basis(self) -> str:
        """What an accepted outcome keeps of it."""
        return f"{self.kind}{f' {self.event}' if self.event else ''}: {self.says}"


def proposals(trace: Trace) -> list[Proposal]:
    """The outcomes that a log offers, the strongest first; none that is the trace's reward already."""
    every = [*_graders(trace), *_labels(trace), *_tests(trace), *_merges(trace), *_words(trace)]
    return [p for p in every if trace.rewards.get(p.channel) != p.value]


def _graders(trace: Trace) -> Iterator[Proposal]:
    """Scores under a name that means success, in 0 to 1."""
    stated = {**(trace.metrics or {}), **{k: v for k, v in trace.rewards.items() if k != "team"}}
    for name, value in stated.items():
        if _GRADES.fullmatch(name) and math.isfinite(value) and 0 <= value <= 1:
            yield Proposal("team", float(value), "grader", f"{name} {value:g}")


def _labels(trace: Trace) -> Iterator[Proposal]:
    labels: Any = trace.meta.get("labels")
    if not isinstance(labels, dict):
        return
    for name in ("is_correct", "correct", "resolved", "success"):
        if isinstance(labels.get(name), bool):
            yield Proposal("team", float(labels[name]), "label", f"{name}: {labels[name]}")
            return
    if isinstance(labels.get("mistake_agent"), str):
        yield Proposal("team", 0.0, "label", f"the mistake of {labels['mistake_agent']} decided the failure")


def _tests(trace: Trace) -> Iterator[Proposal]:
    """The last test run of the trace."""
    for event in reversed(trace.events):
        if event.type == "tool_result" and (text := trace.text(event)) and (run := test_run(text)):
            yield Proposal("team", float(run[0]), "tests", _short(run[1]), event.id)
            return


def _merges(trace: Trace) -> Iterator[Proposal]:
    """The last merge that went through."""
    calls = {e.id: e for e in trace.events if e.type == "tool_call" and _MERGES.search(trace.text(e) or "")}
    if not calls:
        return
    answered = {edge.dst: edge.src for edge in trace.edges if edge.src in calls}
    for event in reversed(trace.events):
        if event.type == "tool_result" and event.id in answered and event.ok is not False:
            match = _MERGED.search(trace.text(event) or "")
            if match:
                yield Proposal("team", 1.0, "merged", _short((trace.text(event) or "")[match.start() :]), event.id)
                return


def _words(trace: Trace) -> Iterator[Proposal]:
    """The last remark in which the user judges; the first thing that the user says is the task."""
    requests = [e for e in trace.events if _is_users(e)]
    for event in reversed(requests[1:]):
        text = (trace.text(event) or "").strip()
        if not text or len(text) > _LONGEST or text.startswith(("<", "/", "{", "[")):
            continue
        judged = judgement(text)
        if judged is not None:
            yield Proposal("team", float(judged), "user", _short(text), event.id)
            return


def judgement(text: str) -> bool | None:
    """Whether a remark is content or not; None where it does not judge. What is found wrong weighs more than a thank-you."""
    if _BAD.search(text):
        return False
    return True if _GOOD.search(text) else None


def _is_users(event: Event) -> bool:
    return event.type == "human_intervention" and (event.role or event.agent) in ("user", "human")


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _EXCERPT else words[: _EXCERPT - 1] + "…"
