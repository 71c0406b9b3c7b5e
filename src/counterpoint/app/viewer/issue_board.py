"""The board of issues for the page, one issue with its runs, and what a reader decides about it.

Always true: they are those of `counterpoint issues` for the same query, with secrets of known forms masked; a decision is stored
as that command stores it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from counterpoint.app.api.issues import Issue, decide, issue_runs, issues, since_words
from counterpoint.app.issue_answer import masked
from counterpoint.app.viewer.collection import Collection
from counterpoint.app.viewer.issue_shapes import IssueBoard, IssueLine, IssuePage, IssueRunLine
from counterpoint.audits.symptoms import KINDS
from counterpoint.display import local_day, local_moment
from counterpoint.errors import InputError, NotFound
from counterpoint.formats.masking import mask
from counterpoint.store import Store

_RUNS = 200
"""Runs of an issue that are listed at most."""


class Decision(Struct, forbid_unknown_fields=True):
    """What the page sends."""

    state: str
    note: str = ""


def issue_board(collection: Collection, query: str) -> IssueBoard:
    """The board of the runs that match a query."""
    board = issues(query, store=_store(collection))
    return IssueBoard(issues=[_line(one) for one in masked([*board])], kinds=KINDS, runs=board.runs, unread=list(board.unread))


def issue_page(collection: Collection, name: str, query: str) -> IssuePage:
    """One issue, by its id or the unique beginning of one."""
    store = _store(collection)
    one = issues(query, store=store).one(name)
    runs = issue_runs(one.id, query, store=store)
    told = [
        IssueRunLine(
            trace_id=run.trace_id, title=None if run.title is None else mask(run.title)[0], project=run.project, count=run.count,
            seen=local_moment(run.at) if run.is_dated else f"added {local_day(run.at)}", open=run.open, events=list(run.events),
            words=mask(run.words)[0],
        )
        for run in runs[:_RUNS]
    ]  # fmt: skip
    return IssuePage(issue=_line(masked([one])[0]), what=KINDS[one.kind], runs=told, left_out=max(0, len(runs) - _RUNS))


def decided(collection: Collection, name: str, body: bytes) -> IssuePage:
    """Keep what the page sent, and tell what there is then."""
    try:
        sent = msgspec.json.decode(body, type=Decision)
    except msgspec.MsgspecError as error:
        fix = 'as in {"state": "resolved", "note": "why"}'
        raise InputError(f"is not a decision: {error}", where="body", fix=fix) from error
    store = _store(collection)
    one = issues("", store=store).one(name)
    decide(one.id, sent.state, note=sent.note.strip() or None, store=store)
    return issue_page(collection, one.id, "")


def _store(collection: Collection) -> Store:
    store = collection.store
    if store is None:
        raise NotFound("issues are of a store, and none is on view", fix="counterpoint view --store traces")
    return store


def _line(one: Issue) -> IssueLine:
    mark = one.decided
    words = "" if mark is None else f"{mark.state} by {mark.by}, {local_moment(mark.at)}"
    return IssueLine(
        id=one.id, kind=one.kind, name=one.name, state=one.state, runs=one.runs, count=one.count, open=one.open,
        tokens=one.tokens, seen=since_words(one), cost_usd=one.cost_usd, projects=one.projects, trend=one.trend,
        is_rare=one.is_rare, decided=f"{words}: {mask(mark.note)[0]}" if mark is not None and mark.note else words,
    )  # fmt: skip
