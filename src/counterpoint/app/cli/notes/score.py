"""Record how a run turned out; the verdict becomes its reward.

Always true: an outcome that a log merely suggests is a proposal, and counts only once somebody accepts it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from counterpoint.app.terminal.options import author_option, note_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, table
from counterpoint.app.terminal.store import store_option
from counterpoint.app.words import plain_text
from counterpoint.display import counted, number
from counterpoint.errors import InputError, NotFound

if TYPE_CHECKING:
    from counterpoint.rewards.proposals import Proposal
    from counterpoint.trace import Trace


@click.command(
    epilog="\b\nExamples:\n  counterpoint notes score run-1                       what it has, and what its log suggests\n"
    "  counterpoint notes score run-1 team=1 --note 'merged as it was'\n  counterpoint notes score run-1 down --author ann\n"
    "  counterpoint notes score run-1 --accept 1          the first proposal becomes the outcome\n\n"
    "Exit codes: 0 fine, 2 not a score, 3 no such trace or proposal."
)
@click.argument("trace")
@click.argument("scores", nargs=-1, metavar="[NAME=NUMBER|up|down]...")
@author_option
@note_option
@click.option("--accept", type=click.IntRange(min=1), metavar="N", help="Accept the log's N-th proposal as the outcome.")
@store_option
@json_option
def score(
    trace: str,
    scores: tuple[str, ...],
    author: str | None,
    remark: str | None,
    accept: int | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Give a trace an outcome, or show those it has and those that its log suggests.

    `team` is the reward that credit, training and lists use; any other name is a channel of its own. `up` and `down` are team=1
    and team=0.
    """
    from counterpoint.app import human_scores
    from counterpoint.app.load_save import load
    from counterpoint.rewards.proposals import proposals

    by = author or human_scores.author()
    outcomes = human_scores.outcomes_from(human_scores.parse_scores(scores), by=by, note=remark) if scores else []
    if not outcomes and accept is None and (remark or author):
        raise InputError("--note and --author need a score", fix="counterpoint notes score TRACE team=1 --note ...")
    if accept is not None:
        outcomes.append(human_scores.accepted(_proposal(proposals(load(trace, store=store)), accept), by=by, note=remark))
    _print(human_scores.score(trace, outcomes, store=store) if outcomes else load(trace, store=store), as_json=as_json)


def _proposal(offers: list[Proposal], which: int) -> Proposal:
    if which > len(offers):
        what = f"the log suggests {counted(len(offers), 'outcome')}" if offers else "the log suggests no outcome"
        raise NotFound(what, fix="counterpoint notes score TRACE lists them; team=1 sets one yourself")
    return offers[which - 1]


def _print(trace: Trace, *, as_json: bool) -> None:
    from counterpoint.rewards.proposals import proposals
    from counterpoint.trace.outcome import SOURCE, outcomes

    kept, offered = outcomes(trace), proposals(trace)
    if as_json:
        emit({"schema": SCHEMA_VERSION, "trace": trace.trace_id, "rewards": trace.rewards,
              "outcomes": msgspec.to_builtins(kept), "proposals": [p._asdict() for p in offered]})  # fmt: skip
        return
    rewards = "  ".join(f"{plain_text(name)} {number(value)}" for name, value in trace.rewards.items()) or "none"
    click.echo(plain_text(f"{trace.trace_id}: rewards {rewards}"))
    if kept:
        rows: list[list[Any]] = [
            [o.channel, number(o.value), o.by, "" if o.by == SOURCE else _when(o.at), o.note or o.basis or ""] for o in kept
        ]
        click.echo(table(("outcome", "value", "author", "when", "why"), rows, right=(1,)))
    if offered:
        click.echo("proposals from the log; none counts until it is accepted (--accept N)")
        cells = [[k, p.channel, number(p.value), p.kind, p.event or "", p.says] for k, p in enumerate(offered, 1)]
        click.echo(table(("", "outcome", "value", "from", "event", "the log says"), cells, right=(0, 2)))


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
