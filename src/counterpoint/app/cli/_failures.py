"""`counterpoint audit --failures`: what failed, and why, in one trace or many.

Always true: a failed call and its result are one failure, and the counts are those of `ls`, `top` and the page.
"""

from __future__ import annotations

import msgspec

from counterpoint.app.failure_answer import GROUPS, FailureIn, counts_section, each_section, failures_of, grouped, tally
from counterpoint.app.terminal.options import most_rows
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, say
from counterpoint.app.terminal.selection import Selection
from counterpoint.errors import InputError, did_you_mean

_ROWS = 20


def print_failures(which: Selection, group: str | None, rows: int | None, *, as_json: bool) -> None:
    """Of one trace every failure; of many, or with a group, how often each kind happened."""
    if group is not None and group not in GROUPS:
        raise InputError(f"cannot count failures by {group!r}", fix=did_you_mean(group, GROUPS))
    failures = list(failures_of(which.traces(quiet=as_json), which.period))
    most = most_rows(rows, None if as_json else _ROWS)
    if group is not None or (which.is_query and not as_json):
        _counts(failures, group or "reason", which, most, as_json=as_json)
    elif as_json:
        for one in failures[:most]:
            about = {"trace_id": one.trace.trace_id, "title": one.line.title, "project": one.line.project}
            emit({"schema": SCHEMA_VERSION, **about, **msgspec.to_builtins(one.failure), "kind": one.failure.kind})
    else:
        say(each_section([one.failure for one in failures], most))


def _counts(every: list[FailureIn], group: str, which: Selection, most: int | None, *, as_json: bool) -> None:
    """How often each kind happened, the most first."""
    ordered = grouped(every, group)
    if as_json:
        rows = [{"name": key, "failures": len(of), **tally(of)} for key, of in ordered[:most]]
        emit({"schema": SCHEMA_VERSION, "group": group, "traces": len(which), "failures": len(every), "rows": rows})
    else:
        say(counts_section(ordered, group, len(which), most))
