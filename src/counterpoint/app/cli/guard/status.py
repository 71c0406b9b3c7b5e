"""Where guards are installed, and what they refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from counterpoint.app.cli.guard._options import time_of
from counterpoint.app.terminal.options import rows_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.words import plain_text


@click.command(epilog="\b\nExamples:\n  counterpoint guard status\n  counterpoint guard status --json")
@rows_option(10, "Print this many sessions, the newest; 0 for all.")
@json_option
def status(rows: int, as_json: bool) -> None:
    """Show where guards are installed, their sessions, and what they refused."""
    from counterpoint.guard.settings import installed, places
    from counterpoint.guard.state import GuardState, home

    hooks = {str(path): command for path in places(Path.cwd()) for command in installed(path)}
    folder = Path(home())
    states = sorted(folder.glob("*.json"), key=lambda p: p.stat().st_mtime)[-rows:] if folder.is_dir() else []
    sessions = [_session_row(path.stem, GuardState(str(path)), path.stat().st_mtime) for path in states]
    if as_json:
        emit({"schema": SCHEMA_VERSION, "installed": hooks, "sessions": sessions, "log": str(folder / "guard.log")})
        return
    for place, command in hooks.items():
        click.echo(plain_text(f"installed in {place}: {command}"))
    if not hooks:
        click.echo("no guard is installed for this folder or this user")
    if sessions:
        header = ("session", "last call", "agents", "calls", "tokens", "minutes", "refused", "last refusal")
        cells = [
            (r["session"], time_of(r["at"]), *(f"{r[n]:,.0f}" for n in header[2:7]), r["last_refusal"] or "") for r in sessions
        ]
        click.echo(table(header, cells, right=(2, 3, 4, 5, 6)))
    if (folder / "guard.log").exists():
        note(f"errors are in {folder / 'guard.log'}")


def _session_row(name: str, state: Any, at: float) -> dict[str, Any]:
    counts = state.tally.counts("session", at)
    last = state.notes.get("last_refusal")
    about = {n: counts[n] for n in ("agents", "calls", "tokens", "minutes")}
    return {"session": name, "at": at, **about, "refused": state.notes.get("refused", 0), "last_refusal": last and last[3]}
