"""Sessions as they grow: look again and again, read what has changed, show what came.

Always true: a session is read again at most once a second and for at most a tenth of the time, however long it is; what is in the
store is always a whole trace, so that a reader or a killed follower sees no half of one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.cli._output import SCHEMA_VERSION, emit, note
from counterpoint.app.cli._store import open_store

if TYPE_CHECKING:
    from counterpoint.formats.importing.usage import Prices

_EVERY_S = 1.0
_SHARE = 0.1


def follow(places: list[str], format_: str | None, prices: Prices, options: dict[str, Any], *, as_json: bool) -> None:
    """Import, then go on until interrupted. The first look takes what `--last` says, or what is there."""
    from counterpoint.app.importing import import_sessions, sessions_under, span

    since = time.time() - span(options["last"]) if options["last"] else None
    note("following " + ", ".join(places) + "; Ctrl-C ends it", quiet=as_json)
    with open_store(options["store"], create=True) as store:
        while True:
            begin = time.monotonic()
            found = sessions_under(places, format=format_, since=since, project=options["project"], limit=options["limit"])
            for outcome in import_sessions(found.sessions, store, prices=prices):
                if outcome.status == "unchanged":
                    continue
                if as_json:
                    emit({"schema": SCHEMA_VERSION, **outcome.as_dict()})
                else:
                    ids = " ".join(outcome.traces) or outcome.session
                    click.echo(f"{outcome.status:9} {ids}  {outcome.agents:,} agents  {outcome.events:,} events")
            spent = time.monotonic() - begin
            time.sleep(max(_EVERY_S, spent * (1 / _SHARE - 1)))
