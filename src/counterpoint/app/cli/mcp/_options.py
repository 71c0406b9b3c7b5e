"""Options that the sub-commands of mcp share."""

from __future__ import annotations

import click

client_option = click.option(
    "--client", type=click.Choice(["claude_code", "codex"]), default="claude_code", show_default=True, help="The client."
)
scope_option = click.option(
    "--scope", type=click.Choice(["project", "user"]), default="project", show_default=True,
    help="For this folder's project, or for all your projects.",
)  # fmt: skip
