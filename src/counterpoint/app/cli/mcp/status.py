"""Where the server is installed, and which store it would read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from counterpoint.app.load_save import store_path
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option
from counterpoint.app.terminal.store import store_option
from counterpoint.errors import InputError


@click.command(epilog="\b\nExamples:\n  counterpoint mcp status\n  counterpoint mcp status --json")
@store_option
@json_option
def status(store: Path | None, as_json: bool) -> None:
    """Show where the server is installed, and the store that it reads."""
    from counterpoint.app.mcp.clients import installed, place

    rows: list[dict[str, Any]] = []
    for client in ("claude_code", "codex"):
        for scope in ("project", "user"):
            where = place(client, scope, Path.cwd())
            about: dict[str, Any] = {"client": client, "scope": scope, "settings": str(where.settings)}
            about["skill"] = where.skill.exists()
            try:
                rows.append(about | {"server": installed(where)})
            except InputError as error:
                rows.append(about | {"server": None, "error": error.one_line()})
    path = store_path(store)
    if as_json:
        emit({"schema": SCHEMA_VERSION, "installed": rows, "store": str(path), "has_store": path.exists()})
        return
    for row in rows:
        server = row["server"]
        said = " ".join([server["command"], *server["args"]]) if server else row.get("error", "not installed")
        click.echo(f"{row['client']}, {row['scope']}: {said}")
    click.echo(f"store: {path}{'' if path.exists() else ', which is not there yet: counterpoint import makes it'}")
