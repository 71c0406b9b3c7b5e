"""Send the traces of a store to a collector on another machine.

Always true: an unacknowledged trace stays here and is sent again the next time; sending a trace twice changes nothing there.
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from counterpoint.app.terminal.options import follow_option, read_token, token_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.errors import TryAgain

_CHECK_S, _PATIENCE_S = 2.0, 60.0
"""Seconds between checks for new traces, and how long a collector that does not answer is retried."""


@click.command(
    epilog="\b\nExamples:\n  counterpoint store push --to http://collector:4318\n"
    "  counterpoint store push 'reward>0.5' --store runs/mine/store --to http://collector:4318\n"
    "  counterpoint store push --to https://collector --token-file token --follow\n\n"
    "Exit codes: 0 all is there, 2 not an address or a query, 3 no store, 4 some were refused,\n"
    "5 it is no collector, or asks for a token, 6 the collector does not answer."
)
@click.argument("query", nargs=-1, metavar="[QUERY]")
@click.option("--to", "url", required=True, metavar="URL", help="The collector: what `counterpoint serve` prints.")
@follow_option
@token_option
@store_option
@json_option
def push(
    query: tuple[str, ...],
    url: str,
    follow: bool,
    token_file: Path | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Send finished traces to a collector (`counterpoint serve` on another machine).

    The store here is the spool: a trace counts as sent when the collector acknowledges that it is on disk. Without QUERY (of
    `counterpoint ls`) every trace is sent that was not sent before.
    """
    from counterpoint.app.push import Push, PushResult
    from counterpoint.app.search import matcher

    total = PushResult()
    with open_store(store) as opened:
        matches = matcher(" ".join(query), opened.datasets())
        way = Push(opened, url, token=read_token(token_file), note=lambda text: note(plain_text(text)))
        try:
            while True:
                ids = [row.id for row in opened.rows() if matches(row)] if query else None
                try:
                    done = way.send(ids, patience_s=_PATIENCE_S)
                    total.counts.update(done.counts)
                    total.refused += done.refused
                except TryAgain as error:
                    if not follow:
                        raise
                    note(plain_text(error.one_line()))
                if not follow:
                    break
                time.sleep(_CHECK_S)
        except KeyboardInterrupt:
            if not follow:
                raise
        finally:
            way.close()
    if as_json:
        emit({"schema": SCHEMA_VERSION, "to": way.address, "counts": dict(total.counts), "refused": dict(total.refused)})
    else:
        counts = " · ".join(f"{n:,} {what}" for what, n in total.counts.items() if n) or "nothing new"
        click.echo(f"{way.address}: {counts}")
    if total.refused:
        raise click.exceptions.Exit(4)
