"""How a run came out, for the page: what people said, what the log suggests, and a thumb that becomes a reward.

Always true: an outcome from the page is stored like one of `counterpoint notes score`, by whom the server runs as; a proposal
counts only once somebody accepts it. A trace that lies in no store cannot be scored here.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from counterpoint.app.human_scores import accepted, author, outcomes_from, score
from counterpoint.app.viewer.shapes import OutcomeInfo, Outcomes, ProposalInfo
from counterpoint.app.viewer.trace_view import view_of
from counterpoint.errors import InputError, NotFound
from counterpoint.rewards.proposals import proposals
from counterpoint.trace import Trace
from counterpoint.trace.outcome import outcomes as given_to


class ScoreBody(Struct, forbid_unknown_fields=True):
    """What the page sends: a value for a channel, or the number of a proposal."""

    channel: str = "team"
    value: float | None = None
    note: str | None = None
    proposal: int | None = None


def outcomes(trace: Trace) -> Outcomes:
    """What was said about a run, and what its log suggests."""
    place = view_of(trace).team.place_E
    return Outcomes(
        given=[
            OutcomeInfo(channel=o.channel, value=float(o.value), by=o.by, at=o.at, why=o.note or o.basis or "")
            for o in given_to(trace)
        ],
        proposed=[
            ProposalInfo(channel=p.channel, value=p.value, kind=p.kind, says=p.says,
                         event=-1 if p.event is None else int(place[trace.index[p.event]]))
            for p in proposals(trace)
        ],
    )  # fmt: skip


def read(body: bytes) -> ScoreBody:
    """What the page sent."""
    try:
        return msgspec.json.decode(body, type=ScoreBody)
    except msgspec.MsgspecError as error:
        raise InputError(f"is not a score: {error}", where="body", fix='as in {"channel": "team", "value": 1}') from error


def store(folder: Path | None, trace: Trace, sent: ScoreBody) -> Outcomes:
    """Keep what the page said, and tell what there is then."""
    if folder is None:
        raise InputError("this trace is not in a store", where=trace.trace_id, fix="counterpoint import FILE, and view the store")
    by = author()
    if sent.proposal is not None:
        offered = proposals(trace)
        if not 0 <= sent.proposal < len(offered):
            what = f"there is no such proposal: the log suggests {len(offered)} outcomes"
            raise NotFound(what, where="proposal", fix="reload the page")
        given = [accepted(offered[sent.proposal], by=by, note=sent.note)]
    elif sent.value is not None:
        given = outcomes_from({sent.channel: sent.value}, by=by, note=sent.note)
    else:
        raise InputError("there is neither a value nor a proposal", where="body", fix='as in {"channel": "team", "value": 1}')
    return outcomes(score(trace.trace_id, given, store=folder))
