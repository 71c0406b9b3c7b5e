"""Who broke it: the steps that may have decided a failure, with reasons, for a list and the timeline.

Always true: the ranking is that of `counterpoint blame`; a run that succeeded, or that nothing says failed, or without steps, has
no suspects and says so. Where no step stands out there are none either, and what failed is told instead.
"""

from __future__ import annotations

from shlex import quote

from msgspec import Struct

from counterpoint.app.viewer.causes import RecurringCause, RecurringCauses
from counterpoint.app.viewer.panel import Panel
from counterpoint.app.viewer.trace_view import view_of
from counterpoint.audits.blame.judge import Blame, succeeded
from counterpoint.audits.blame.judge import blame as judged
from counterpoint.audits.failures import Failure, failures
from counterpoint.errors import NotIdentified, Refused
from counterpoint.trace import Trace

SUSPECTS = 10
"""Suspects that are told."""
_LARGE, _FAILED = 120_000, 20


class SuspectReason(Struct, frozen=True, kw_only=True):
    """One signal, in words."""

    words: str
    share: float
    excerpt: str | None


class SuspectStep(Struct, frozen=True, kw_only=True):
    """One step that may have decided it."""

    event: int
    """Its number on the page."""
    step: int
    agent: str
    score: float
    text: str | None
    reasons: list[SuspectReason]


class FailedStep(Struct, frozen=True, kw_only=True):
    """Something that went wrong."""

    event: int
    agent: str
    what: str
    reason: str
    is_mended: bool


class Suspicion(Struct, frozen=True, kw_only=True):
    """The ranking of a run."""

    suspects: list[SuspectStep]
    agents: dict[str, float]
    sure: str
    verdict: str
    """The word, whom it is said of, and how often first suspects were right on labelled runs of the kind."""
    why: str
    """One sentence for the first suspect."""
    shown: list[int]
    """The events that show it, by their numbers on the page."""
    set: str
    """The steps of which one decided nine in ten labelled runs of the kind."""
    steps: int
    notes: list[str]
    failed: list[FailedStep]
    """Where no step stands out."""
    failed_count: int


def _answer(trace: Trace) -> Suspicion:
    """The first suspects of a trace."""
    return view_of(trace).once("blame", lambda: _suspicion(trace))


def _suspicion(trace: Trace) -> Suspicion:
    command = f"counterpoint blame {quote(trace.trace_id)}"
    if len(trace.events) > _LARGE:
        return _nobody(f"{len(trace.events):,} events are too many to rank here; `{command}` ranks them")
    try:
        return _told(trace, judged(trace, most=SUSPECTS))
    except NotIdentified as refused:
        why = refused.what.removeprefix("not identified: ")
        return _nobody(f"{why[0].upper()}{why[1:]}. {refused.fix}.", trace if succeeded(trace) is None else None)
    except Refused as refused:  # what would help there are options of the command
        return _nobody(f"{refused.what}; `{command} --all` ranks its steps as if it had failed")


def _nobody(why: str, trace: Trace | None = None) -> Suspicion:
    failed = [] if trace is None else sorted(failures(trace), key=lambda f: f.is_mended)
    shown = [] if trace is None else _failed(trace, failed)
    return Suspicion(suspects=[], agents={}, sure="", verdict="", why="", shown=[], set="", steps=0, notes=[why], failed=shown,
                     failed_count=len(failed))  # fmt: skip


def _failed(trace: Trace, failed: list[Failure]) -> list[FailedStep]:
    place = view_of(trace).team.place_E
    return [
        FailedStep(event=int(place[trace.index[f.event]]), agent=f.name, what=f.tool or f.type.replace("_", " "),
                   reason=f.reason or "it failed", is_mended=f.is_mended)
        for f in failed[:_FAILED]
    ]  # fmt: skip


def _told(trace: Trace, found: Blame) -> Suspicion:
    place = view_of(trace).team.place_E
    steps = [
        SuspectStep(
            event=int(place[trace.index[s.event]]), step=s.step, agent=s.name, score=s.score, text=s.text,
            reasons=[SuspectReason(words=_words(r.words), share=r.share, excerpt=r.excerpt) for r in s.reasons],
        )
        for s in (found.suspects if found.stands_out else ())
    ]  # fmt: skip
    return Suspicion(
        suspects=steps, agents=found.agents if found.stands_out else {}, sure=found.sure, verdict=_sentence(found.verdict),
        why=found.why.words if found.stands_out else "", shown=[int(place[trace.index[e]]) for e in found.why.events],
        set=_sentence(found.set_words),
        steps=found.steps, notes=found.notes, failed=_failed(trace, found.failed), failed_count=len(found.failed),
    )  # fmt: skip


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _words(words: str) -> str:
    """A reason as the page says it: what speaks by its absence reads as a sentence does."""
    bare = words.removeprefix("not: ")
    return f"not {bare}" if bare != words and bare.startswith(("much ", "long", "very ", "the ", "among ")) else words


_SHAPES = (RecurringCause, RecurringCauses, SuspectReason, SuspectStep, FailedStep, Suspicion)
blame = Panel(name="Blame", key="6", answer=_answer, shapes=_SHAPES)
