"""A server that answers a coding agent about recorded sessions, and its place in the agent's settings.

Always true: the server only reads, and writes to stdout nothing but the protocol; only `install` and `uninstall` change files of
other programs.
"""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.terminal.groups import Group
from counterpoint.app.terminal.store import store_option

HEADING = ""


@click.group(
    cls=Group,
    hidden=True,
    invoke_without_command=True,
    epilog="\b\nExamples:\n  counterpoint mcp install\n  counterpoint mcp install --client codex --scope user\n"
    "  counterpoint mcp status",
)
@store_option
@click.pass_context
def mcp(ctx: click.Context, store: Path | None) -> None:
    """Answer a coding agent about recorded sessions, by the Model Context Protocol on stdin and stdout.

    Its client starts it: `counterpoint mcp install` writes it into the settings of Claude Code or Codex, with a skill.
    """
    if ctx.invoked_subcommand is None:
        from counterpoint.app.mcp.reading import Reading
        from counterpoint.app.mcp.server import serve

        serve(Reading(store, is_ahead=True))
