"""Say how a run came out: a verdict becomes its reward.

Always true: outcomes that a log merely suggests are shown as proposals, and count only once somebody accepts them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, table
from counterpoint.app.terminal.store import store_option
from counterpoint.app.words import plain_text
from counterpoint.display import counted, number
from counterpoint.errors import InputError, NotFound

if TYPE_CHECKING:
    from counterpoint.rewards.proposals import Proposal
    from counterpoint.trace import Trace


@click.command(
    epilog="\b\nExamples:\n  counterpoint score run-1                       what it has, and what its log suggests\n"
    "  counterpoint score run-1 team=1 --note 'merged as it was'\n  counterpoint score run-1 down --by ann\n"
    "  counterpoint score run-1 --accept              the first proposal becomes the outcome\n\n"
    "Exit codes: 0 fine, 2 not a score, 3 no such trace or proposal."
)
@click.argument("trace")
@click.argument("scores", nargs=-1, metavar="[NAME=NUMBER|up|down]...")
@click.option("--by", metavar="NAME", help="Who says so (default: $COUNTERPOINT_AUTHOR, or who is logged in).")
@click.option("--note", "remark", metavar="TEXT", help="Why.")
@click.option("--accept", "is_accepted", is_flag=True, help="Accept a proposal from the log: the first, or --proposal N.")
@click.option("--proposal", "which", type=click.IntRange(min=1), metavar="N", help="The proposal to accept.")
@store_option
@json_option
def score(
    trace: str,
    scores: tuple[str, ...],
    by: str | None,
    remark: str | None,
    is_accepted: bool,
    which: int | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Give a trace an outcome, or show those it has and those that its log suggests.

    `team` is the reward that credit, training and lists use; any other name is a channel of its own. `up` and `down` are team=1
    and team=0.
    """
    from counterpoint.app.load_save import load
    from counterpoint.app.scoring import accepted, author, outcomes_from, parsed
    from counterpoint.app.scoring import score as scored
    from counterpoint.rewards.proposals import proposals

    given = outcomes_from(parsed(scores), by=by or author(), note=remark) if scores else []
    if not given and not is_accepted and which is None and (remark or by):
        raise InputError("--note and --by need a score", fix="counterpoint score TRACE team=1 --note ...")
    if is_accepted or which is not None:
        given.append(accepted(_proposed(proposals(load(trace, store=store)), which or 1), by=by or author(), note=remark))
    found = scored(trace, given, store=store) if given else load(trace, store=store)
    _show(found, as_json=as_json)


def _proposed(found: list[Proposal], which: int) -> Proposal:
    if which > len(found):
        what = f"the log suggests {counted(len(found), 'outcome')}" if found else "the log suggests no outcome"
        raise NotFound(what, fix="counterpoint score TRACE shows them; team=1 says it yourself")
    return found[which - 1]


def _show(trace: Trace, *, as_json: bool) -> None:
    from counterpoint.rewards.proposals import proposals
    from counterpoint.trace.outcome import SOURCE, outcomes

    kept, offered = outcomes(trace), proposals(trace)
    if as_json:
        emit({"schema": SCHEMA_VERSION, "trace": trace.trace_id, "rewards": trace.rewards,
              "outcomes": msgspec.to_builtins(kept), "proposals": [p._asdict() for p in offered]})  # fmt: skip
        return
    said = "  ".join(f"{plain_text(name)} {number(value)}" for name, value in trace.rewards.items()) or "none"
    click.echo(plain_text(f"{trace.trace_id}: rewards {said}"))
    if kept:
        rows: list[list[Any]] = [
            [o.channel, number(o.value), o.by, "" if o.by == SOURCE else _when(o.at), o.note or o.basis or ""] for o in kept
        ]
        click.echo(table(("outcome", "value", "by", "when", "why"), rows, right=(1,)))
    if offered:
        click.echo("proposals from the log; none counts until it is accepted (--accept, --proposal N)")
        cells = [[k, p.channel, number(p.value), p.kind, p.event or "", p.says] for k, p in enumerate(offered, 1)]
        click.echo(table(("", "outcome", "value", "from", "event", "the log says"), cells, right=(0, 2)))


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
