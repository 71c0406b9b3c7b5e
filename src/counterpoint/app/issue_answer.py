"""What a board of issues says, as sections: for the terminal, the report and the page; masked.

Always true: every number comes from the board; secrets of known forms are masked in names, titles and what runs say.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from counterpoint.answer import Section
from counterpoint.app.api.issues import Board, Example, Issue, since_words
from counterpoint.audits.symptoms import KINDS
from counterpoint.display import at_least, counted, local_moment, money

_BARS = " ▁▂▃▄▅▆▇█"
_REPORTED = 8


def needed(board: Board) -> list[Issue]:
    """The issues that need somebody: open or regressed, and not of one run alone."""
    return [one for one in board if one.state in ("open", "regressed") and not one.is_rare]


def report_section(board: Board) -> Section:
    """The first of a board, in a report."""
    found = needed(board)
    if not found:
        return Section("What recurs", "Nothing recurs.")
    more = f"{len(found) - _REPORTED:,} more: counterpoint issues" if len(found) > _REPORTED else ""
    return board_section(masked(found[:_REPORTED]), more, "What recurs")


def board_section(issues: Sequence[Issue], more: str = "", title: str = "") -> Section:
    """The board as a table."""
    head = ("issue", "what", "state", "runs", "times", "unmended", "seen", "cost", "weeks")
    rows = [(i.id, i.name, i.state, i.runs, i.count, i.open, since_words(i), _cost(i), sparks(i.trend)) for i in issues]
    return Section(title, head=head, rows=rows, right=(3, 4, 5, 7), drop=("weeks", "seen", "times"), more=more)


def one_section(issue: Issue) -> Section:
    """One issue with its newest runs."""
    decided = issue.decided
    said = "" if decided is None else f", {decided.state} by {decided.by} {local_moment(decided.at)}"
    said += f": {decided.note}" if decided is not None and decided.note else ""
    where = ", ".join(f"{name or '(no project)'} ({n:,})" for name, n in [*issue.projects.items()][:8])
    often = f"{counted(issue.count, 'time')} in {counted(issue.runs, 'run')}, {issue.open:,} unmended"
    lines = [
        ("kind", KINDS[issue.kind]),
        ("state", issue.state + said),
        ("seen", f"{often}; {since_words(issue)}"),
        ("cost", _spent(issue)),
        ("projects", where),
        ("weeks", f"{sparks(issue.trend)}  {' '.join(map(str, issue.trend))}"),
    ]
    rows = [(e.trace_id, e.event or "-", e.title or "-", " ".join(e.words.split())[:200]) for e in issue.examples]
    return Section(lines=lines, head=("trace", "event", "title", "what it says"), rows=rows, more="newest runs first")


def sparks(trend: Sequence[int]) -> str:
    """Runs per week as small bars."""
    most = max(trend, default=0) or 1
    return "".join(_BARS[0 if not n else max(1, round(8 * n / most))] for n in trend)


def _cost(issue: Issue) -> str:
    return "-" if issue.cost_usd is None else at_least(money(issue.cost_usd), True)


def _spent(issue: Issue) -> str:
    parts = [*([] if issue.cost_usd is None else [_cost(issue)]), *([f"{issue.tokens:,} tokens"] if issue.tokens else [])]
    return f"{' and '.join(parts)} of the model calls that led to it" if parts else "not known"


def masked(issues: Sequence[Issue]) -> list[Issue]:
    """The same with secrets of known forms masked in names, titles and what runs say."""
    from counterpoint.formats.masking import mask

    def clean(text: str) -> str:
        return mask(text)[0]

    def cleaned(one: Example) -> Example:
        return replace(one, title=None if one.title is None else clean(one.title), words=clean(one.words))

    return [replace(one, name=clean(one.name), examples=[cleaned(e) for e in one.examples]) for one in issues]
