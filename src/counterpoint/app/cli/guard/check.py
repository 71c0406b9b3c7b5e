"""Show what a session has used next to its limits."""

from __future__ import annotations

from typing import Any

import click

from counterpoint.app.cli.guard._options import amount, hook_options, limit_options
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.words import plain_text
from counterpoint.guard.sessions import read_session


@click.command(
    epilog="\b\nExamples:\n  counterpoint guard check SESSION.jsonl --cap agents=40\n"
    "  counterpoint guard check SESSION_ID --limits guard.toml --json"
)
@click.argument("session")
@limit_options
@json_option
@click.pass_context
def check(
    ctx: click.Context, session: str, caps: tuple[str, ...], limits_file: str | None, prices: str | None, as_json: bool
) -> None:
    """Show what a session has used next to its limits; exit 4 where one is reached.

    Time is counted up to the session's last record.
    """
    from counterpoint.guard.hook import ModelPrices, read_limits

    options = hook_options(caps, limits_file, prices)
    reader = read_session(session)
    limits, now = read_limits(reader.state, options), reader.tally.last_at
    price = ModelPrices(reader.state, limits.prices, at=reader.tally.last_at)
    rows, reached = [], []
    for scope in ("session", "prompt"):
        for name, have in reader.tally.counts(scope, now, price).items():
            most = getattr(limits, scope).get(name)
            full = name if scope == "session" else f"prompt.{name}"
            is_over = most is not None and (have > most if name == "depth" else have >= most)
            reached += [full] if is_over else []
            rows.append({"limit": full, "used": have, "most": most, "reached": is_over})
    unpriced = reader.tally.unpriced(price)
    if as_json:
        about = {"files": len(reader.state.files), "unread_lines": reader.state.unread, "unpriced_tokens": unpriced}
        emit({"schema": SCHEMA_VERSION, "session": session, **about, "counts": rows, "reached": reached})
    else:
        cells = [(r["limit"], _used(r), _most(r), "reached" * r["reached"]) for r in rows]
        click.echo(table(("counted", "used", "limit", ""), cells, right=(1, 2)))
        if unpriced:
            note("without a price: " + ", ".join(f"{n:,} tokens of {plain_text(m)}" for m, n in unpriced.items()))
        if reader.state.unread:
            note(f"{reader.state.unread:,} lines could not be read")
    ctx.exit(4 if reached else 0)


def _used(row: dict[str, Any]) -> str:
    return amount(row["limit"], row["used"])


def _most(row: dict[str, Any]) -> str:
    return "-" if row["most"] is None else amount(row["limit"], row["most"])
