"""Who broke a run, as sections: for the terminal and for agents that ask.

Always true: every suspect is named with its event; where none stands out, what failed is listed, and nobody is blamed.
"""

from __future__ import annotations

from counterpoint.answer import Section
from counterpoint.audits.blame.judge import Blame, Suspect
from counterpoint.audits.blame.search import Decisive
from counterpoint.audits.failures import Failure
from counterpoint.display import counted
from counterpoint.trace import Trace

_ROWS = 5


def run_sections(trace: Trace, blame: Blame, decisive: Decisive | None, most: int | None, *, is_all: bool) -> list[Section]:
    """One run for people: the suspects, each with its reasons below it; where none stands out, what failed."""
    is_ranked = blame.stands_out or is_all
    outcome = "no outcome stated" if blame.outcome is None else f"team reward {blame.outcome:g}"
    words = f"{trace.trace_id}: {outcome}; {counted(blame.steps, 'step')} could have decided it"
    lines = [("verdict", blame.verdict + ("" if is_ranked else "; --all ranks its steps"))]
    lines += [("why", blame.why.words)] if is_ranked else []
    lines += [("set", blame.set_words)]
    lines += [("by forks", _by_forks(decisive))] if decisive is not None else []
    agents = ", ".join(f"{agent} {share:.0%}" for agent, share in list(blame.agents.items())[:6])
    return [
        Section(words=words, lines=lines),
        *([] if blame.stands_out else [_failures(blame)]),
        *map(_suspect, blame.suspects[:most] if is_ranked else []),
        Section(lines=[*([("agents", agents)] if is_ranked else []), *(("note", words) for words in blame.notes)]),
    ]


def _failures(blame: Blame) -> Section:
    """What went wrong in a run in which no step stands out."""
    if not blame.failed:
        return Section(words="nothing failed in it")
    alike: dict[tuple[str, str], list[Failure]] = {}
    for one in blame.failed:
        alike.setdefault((one.tool or one.type.replace("_", " "), one.kind), []).append(one)
    mended = sum(f.is_mended for f in blame.failed)
    words = f"{counted(len(blame.failed), 'failure')} in it, {mended:,} of them in a tool that worked later:"
    ranked = sorted(alike.values(), key=lambda some: (all(f.is_mended for f in some), -len(some)))
    rows = []
    for some in ranked[:_ROWS]:
        first, who = some[0], ", ".join(list(dict.fromkeys(f.name for f in some))[:3])
        rows.append((len(some), first.tool or first.type, first.reason or "it failed", who, first.event))
    left = sum(map(len, ranked[_ROWS:]))
    more = f"and {left:,} more: counterpoint audit --failures" if left else ""
    return Section(words=words, head=("count", "tool", "why", "agents", "first"), rows=rows, right=(0,), more=more)


def _suspect(suspect: Suspect) -> Section:
    first = (f"{suspect.score:.0%}", (f"step {suspect.step}", suspect.name, suspect.event, suspect.text or "(no text)"))
    reasons = [f"{r.share:.0%}  {r.words}" + (f": {r.excerpt}" if r.excerpt else "") for r in suspect.reasons]
    return Section(lines=[first, *(("", words) for words in reasons)])


def _by_forks(decisive: Decisive) -> str:
    where = f"step {decisive.step} of {decisive.agent} ({decisive.event})" if decisive.event is not None else "no step"
    share = f"{counted(decisive.forks, 'fork')}, {counted(decisive.steps, 'step')} to try"
    return f"{where}; {decisive.words}  ({share})"
