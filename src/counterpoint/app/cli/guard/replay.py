"""Show when limits would have stopped an old session."""

from __future__ import annotations

from typing import Any

import click

from counterpoint.app.cli.guard._options import amount, hook_options, limit_options, time_of
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, table
from counterpoint.guard.sessions import fresh_reader, transcript_of


@click.command(
    epilog="\b\nExamples:\n  counterpoint guard replay SESSION.jsonl --cap agents=20\n"
    "  counterpoint guard replay SESSION_ID --cap prompt.minutes=40 --json"
)
@click.argument("session")
@limit_options
@json_option
def replay(session: str, caps: tuple[str, ...], limits_file: str | None, prices: str | None, as_json: bool) -> None:
    """Show when limits would have stopped an old session, and what came after that."""
    from counterpoint.guard.hook import ModelPrices, read_limits
    from counterpoint.guard.replay import replay as replay_session

    options = hook_options(caps, limits_file, prices)
    path = transcript_of(session)
    reader = fresh_reader(session)
    limits = read_limits(reader.state, options)
    result = replay_session(reader, path, limits)
    end = reader.tally.counts("session", reader.tally.last_at, ModelPrices(reader.state, limits.prices, at=reader.tally.last_at))
    rows: list[dict[str, Any]] = [
        {
            "limit": f.limit, "at": f.at, "agent": f.agent, "tool": f.tool, "refused_calls": f.calls, "text": f.text,
            "after": {name: end[name] - f.counts[name] for name in ("agents", "calls", "tokens", "dollars", "minutes")},
        }
        for f in result.fired.values()
    ]  # fmt: skip
    if as_json:
        emit({"schema": SCHEMA_VERSION, "session": session, "end": end, "fired": rows})
        return
    if not rows:
        click.echo("No limit would have refused anything.")
        return
    names = ("agents", "tokens", "dollars", "minutes")
    about = [(r["limit"], time_of(r["at"]), r["agent"], r["tool"], f"{r['refused_calls']:,}") for r in rows]
    cells = [(*a, *(amount(n, r["after"][n]) for n in names)) for a, r in zip(about, rows, strict=True)]
    header = ("limit", "first refused", "agent", "call", "refused", *(f"{name} after" for name in names))
    click.echo(table(header, cells, right=(4, 5, 6, 7, 8)))
