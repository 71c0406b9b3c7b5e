"""Send the traces of a store to a collector on another machine.

Always true: what is not acknowledged stays here and is sent again the next time; sending a trace twice changes nothing there.
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from counterpoint.app.terminal.options import NumberRange
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.errors import InputError, TryAgain

token_option = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file with the token that the collector asks for ($COUNTERPOINT_TOKEN where there is none).",
)


@click.command(
    epilog="\b\nExamples:\n  counterpoint push --to http://collector:4318\n"
    "  counterpoint push 'reward>0.5' --store runs/mine/store --to http://collector:4318\n"
    "  counterpoint push --to https://collector --token-file token --follow\n\n"
    "Exit codes: 0 all is there, 2 not an address or a query, 3 no store, 4 some were refused,\n"
    "5 it is no collector, or asks for a token, 6 the collector does not answer."
)
@click.argument("query", nargs=-1, metavar="[QUERY]")
@click.option("--to", "url", required=True, metavar="URL", help="The collector: what `counterpoint serve` prints.")
@click.option("--follow", is_flag=True, help="Keep sending what is recorded, until Ctrl-C.")
@click.option(
    "--every",
    default=2.0,
    show_default=True,
    type=NumberRange(0.1),
    help="With --follow: seconds between checks for new traces.",
)
@click.option(
    "--patience",
    default=60.0,
    show_default=True,
    type=NumberRange(0),
    help="Seconds to keep trying when the collector does not answer.",
)
@token_option
@store_option
@json_option
def push(
    query: tuple[str, ...],
    url: str,
    follow: bool,
    every: float,
    patience: float,
    token_file: Path | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Send finished traces to a collector (`counterpoint serve` on another machine).

    The store here is the spool: a trace counts as sent when the collector has it on disk and says so. QUERY, in the words of
    `counterpoint ls`, chooses; without it everything is sent that was not sent before.
    """
    from counterpoint.app.pushing import Push, Pushed
    from counterpoint.app.search import matcher

    total = Pushed()
    with open_store(store) as opened:
        matches = matcher(" ".join(query), opened.datasets())
        way = Push(opened, url, token=read_token(token_file), note=lambda text: note(plain_text(text)))
        try:
            while True:
                ids = [row.id for row in opened.rows() if matches(row)] if query else None
                try:
                    done = way.send(ids, patience_s=patience)
                    total.counts.update(done.counts)
                    total.refused += done.refused
                except TryAgain as error:
                    if not follow:
                        raise
                    note(plain_text(error.one_line()))
                if not follow:
                    break
                time.sleep(every)
        except KeyboardInterrupt:
            if not follow:
                raise
        finally:
            way.close()
    if as_json:
        emit({"schema": SCHEMA_VERSION, "to": way.address, "counts": dict(total.counts), "refused": dict(total.refused)})
    else:
        shown = " · ".join(f"{n:,} {what}" for what, n in total.counts.items() if n) or "nothing new"
        click.echo(f"{way.address}: {shown}")
    if total.refused:
        raise click.exceptions.Exit(4)


def read_token(path: Path | None) -> str:
    """The token in a file, or in $COUNTERPOINT_TOKEN; empty where there is none."""
    import os

    if path is None:
        return os.environ.get("COUNTERPOINT_TOKEN", "").strip()
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise InputError("the token cannot be read", where=str(path), why=error.strerror) from error
    if not token or not token.isascii() or not token.isprintable():
        raise InputError("holds no token", where=str(path), fix="one line of letters and digits: openssl rand -hex 32")
    return token
