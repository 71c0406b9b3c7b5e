"""Tools that judge: failures, blame, credit and issues.

Always true: nothing is forked, no model is asked, no decision is kept; what could not be judged is said, never guessed.
"""

from __future__ import annotations

from msgspec.structs import replace

from counterpoint.answer import Section
from counterpoint.app.api.blame import collected, judged
from counterpoint.app.api.issues import Issue
from counterpoint.app.api.issues import issues as board_of
from counterpoint.app.blame_answer import run_sections
from counterpoint.app.contributions import contributions, work_section
from counterpoint.app.failure_answer import GROUPS, counts_section, each_section, failures_of, grouped
from counterpoint.app.issue_answer import board_section, needed, one_section
from counterpoint.app.mcp.answers import Reply, cleaned
from counterpoint.app.mcp.reading import Reading
from counterpoint.app.search import period_of
from counterpoint.credits.choice import choose
from counterpoint.credits.row_places import RowPlaces
from counterpoint.display import counted, number
from counterpoint.errors import CounterpointError, InputError, NotFound, Refused, did_you_mean
from counterpoint.trace.outcome import in_words

_SUSPECTS, _AGENTS, _FAILURES = 3, 8, 8


def failures(reading: Reading, which: str, by: str, limit: int) -> Reply:
    """What failed, and why: each failure of a session, or how often each kind happened in many."""
    if by and by not in GROUPS:
        raise InputError(f"cannot count failures by {by!r}", fix=did_you_mean(by, GROUPS))
    found = reading.one_or_many(which)
    if isinstance(found, str):
        trace = reading.trace(found)
        every = list(failures_of([trace]))
        if not by:
            section = each_section([one.failure for one in every], limit)
            left = len(every) - limit
            more = [f"and {left:,} more: ask with limit, or by='reason'"] if left > 0 else []
            counts = section.more.partition(";")[0]
            about = Section(words=f"{trace.trace_id}: {counts}" if counts else trace.trace_id)
            return Reply([about, section._replace(more="")], more=more)
        return Reply([_counts(counts_section(grouped(every, by), by, 1, limit))])
    read = reading.read(found)
    ordered = grouped(list(failures_of(read.traces, period_of(which))), by or "reason")
    first = [(key, f"{of[0].trace.trace_id} {of[0].failure.event}") for key, of in ordered[:limit]]
    table = _counts(counts_section(ordered, by or "reason", len(read.traces), limit))
    rows = [(*row[:-1], where) for row, (_, where) in zip(table.rows, first, strict=True)]
    more = [f"and {len(ordered) - limit:,} more kinds: ask with limit"] if len(ordered) > limit else []
    return Reply([table._replace(rows=rows, head=(*table.head[:-1], "first in, at event"))], more=[*read.words, *more])


def _counts(section: Section) -> Section:
    return section._replace(more=section.more.rpartition("; ")[2])


def blame(reading: Reading, trace: str) -> Reply:
    """Which step of a failed session may have decided it; where none stands out, what failed."""
    loaded = reading.named(trace)
    try:
        result = collected(judged([loaded], most=10))
    except Refused as error:  # nothing says that it failed: what went wrong in it is known all the same
        failed = [one.failure for one in failures_of([loaded])]
        return Reply([Section(words=f"{loaded.trace_id}: {error.what}"), each_section(failed, _FAILURES)._replace(more="")],
                    more=[f"{counted(len(failed), 'failure')} in it: failures lists them"])  # fmt: skip
    sections = run_sections(*result.found[0], None, _SUSPECTS, is_all=False)
    return Reply(sections, more=["shares are guesses, and the verdict says how good; a suspect's text: show with its event"])


def credit(reading: Reading, trace: str) -> Reply:
    """Who earned the outcome, where that is identified without forks; and what each agent cost and what became of its work."""
    loaded = reading.named(trace)
    lines = [("outcome", words) for words in in_words(loaded)]
    shares: list[tuple[str, str]] = []
    try:
        chosen = choose([loaded]).credit
        lines.append(("credit", f"by {chosen.mechanism}: {chosen.notes.get('chosen', '')}"))
        by_agent = RowPlaces(loaded).by_agent(chosen, 0)
        ordered = sorted(by_agent.items(), key=lambda one: -abs(one[1]))
        shares = [(name, number(value)) for name, value in ordered[:_AGENTS]]
    except CounterpointError as error:
        lines.append(("credit", f"nobody is paid: {error.what}"))
    work = work_section(contributions(loaded), _AGENTS)
    sections = [Section(words=loaded.trace_id, lines=lines)]
    sections += [Section(head=("agent", "credit"), rows=shares, right=(1,))] if shares else []
    return Reply([*sections, work._replace(more=work.more.partition(":")[0])], more=["what an event says: show with event=ID"])


def issues(reading: Reading, query: str, issue: str, limit: int) -> Reply:
    """What recurs over many sessions, or one such issue with its newest sessions and their events."""
    seen: list[str] = []
    store = reading.store
    board = board_of(query, store=store, remember=False, known=reading.shown, track=lambda rows: reading.in_time(rows, seen))
    every = reading.rows(query)
    notes = []
    if len(seen) < len(every):
        how = "the others are being read: ask again in a moment" if reading.read_ahead(every) else "ask again"
        known = f"{len(seen):,} of {len(every):,} sessions were read so far"
        notes = [f"{known}: {how}; counterpoint issues, in a terminal, reads all"]
    if issue:
        if notes and not any(one.id.startswith(issue) for one in board):
            raise NotFound(f"no issue {issue[:80]!r} yet", fix=notes[0])
        return Reply([one_section(_clean(board.one(issue)))], more=notes)
    found = needed(board)
    if not found:
        return Reply([Section(words=f"Nothing recurs in {counted(len(seen), 'session')}.")], more=notes)
    more = [f"and {len(found) - limit:,} more: ask with limit"] if len(found) > limit else []
    more.append("an issue's sessions and events: ask with issue=ID")
    words = f"{counted(len(found), 'issue')} open in {counted(len(seen), 'session')}"
    return Reply([board_section([_clean(one) for one in found[:limit]])._replace(words=words)], more=[*notes, *more])


def _clean(issue: Issue) -> Issue:
    """The same without secrets."""
    said = issue.decided
    texts = [issue.name, *issue.projects, *(text for one in issue.examples for text in (one.title, one.words))]
    shown = iter(cleaned([*texts, *((said.by, said.note) if said is not None else ())]))
    name, projects = next(shown), {next(shown): count for count in issue.projects.values()}
    examples = [replace(one, title=next(shown) or None, words=next(shown)) for one in issue.examples]
    decided = None if said is None else replace(said, by=next(shown), note=next(shown) or None)
    return replace(issue, name=name, projects=projects, examples=examples, decided=decided)
