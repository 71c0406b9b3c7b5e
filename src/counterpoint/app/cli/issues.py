"""What recurs over many runs: each cause once, with what people decided about it.

Always true: an issue keeps its id and its name whatever runs come; a decision is on disk before the command says so; secrets of
known forms are masked in what runs say.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import msgspec

from counterpoint.answer import Section
from counterpoint.app.api.issues import STATES, Board, Issue, decide
from counterpoint.app.api.issues import issues as board_of
from counterpoint.app.issue_answer import board_section, masked, needed, one_section
from counterpoint.app.terminal.options import author_option, full_option, most_rows, note_option, rows_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, say
from counterpoint.app.terminal.progress import track
from counterpoint.app.terminal.store import store_option
from counterpoint.display import counted
from counterpoint.errors import InputError

HEADING = "Look"

_ROWS = 20
_ID = re.compile(r"[0-9a-f]{4,8}")


@click.command(
    epilog="\b\nExamples:\n  counterpoint issues\n  counterpoint issues 'project:shop last:30d'\n  counterpoint issues 95ee38da\n"
    "  counterpoint issues 95ee38da --mark resolved --note 'asks before it edits'\n\n"
    "Exit codes: 0 fine, 2 not a query, 3 no such issue or run."
)
@click.argument("words", nargs=-1, metavar="[ISSUE|QUERY]")
@click.option("--mark", type=click.Choice(STATES), help="Keep this decision about the issue.")
@note_option
@author_option
@rows_option(None, f"Print this many rows; 0 for all (default: {_ROWS}, in --json all).")
@full_option("Print also what is resolved, ignored, or happened in one run alone.")
@store_option
@json_option
def issues(
    words: tuple[str, ...],
    mark: str | None,
    remark: str | None,
    author: str | None,
    rows: int | None,
    is_full: bool,
    store: Path | None,
    as_json: bool,
) -> None:
    """Show what recurs over many runs: failing tools, broken steps, loops, injections, stuck, runaway and costly runs.

    With the id of an issue: its runs and events, or, with --mark, a decision about it. A resolved issue that happens again is
    regressed, and stands first.
    """
    is_one = len(words) == 1 and _ID.fullmatch(words[0]) is not None
    if (mark or remark or author) and not (is_one and mark):
        raise InputError("a decision needs an issue and --mark", fix="counterpoint issues ID --mark resolved")
    board = board_of("" if is_one else " ".join(words), store=store, track=lambda rows: track(rows, "runs", quiet=as_json))
    for why in board.unread[:3]:
        note(f"left out: {why}")
    if is_one:
        _one(board.one(words[0]), mark, remark, author, store, as_json=as_json)
    else:
        _all(board, most_rows(rows, None if as_json else _ROWS), is_full=is_full, as_json=as_json)


def _one(issue: Issue, mark: str | None, remark: str | None, author: str | None, store: Path | None, *, as_json: bool) -> None:
    if mark is not None:
        issue.decided = decide(issue.id, mark, note=remark, by=author, store=store)
        issue.state = mark
    issue = masked([issue])[0]
    if as_json:
        emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(issue)})
    else:
        say(one_section(issue), heading=f"{issue.id} · {issue.name}")


def _all(board: Board, most: int | None, *, is_full: bool, as_json: bool) -> None:
    chosen = list(board) if is_full else needed(board)
    shown = masked(chosen[:most])
    if as_json:
        for one in shown:
            emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(one)})
        return
    left = f"; {len(board) - len(shown):,} more: --full, --rows" if len(board) > len(shown) else ""
    if not shown:
        say(Section(words=f"Nothing recurs in {counted(board.runs, 'run')}{left}."))
        return
    say(board_section(shown, f"{counted(len(shown), 'issue')} in {counted(board.runs, 'run')}{left}"))
