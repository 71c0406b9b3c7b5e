"""Model weights on this machine: list, install, add, show, export, serve.

Always true: listing and showing change nothing and fetch nothing; an interrupted install leaves no half model behind.
"""

from __future__ import annotations

import click

from counterpoint.app.terminal.groups import Group
from counterpoint.app.terminal.output import json_option

HEADING = "Learn"


@click.group(
    cls=Group, invoke_without_command=True,
    epilog="\b\nExamples:\n  counterpoint models\n  counterpoint models install smollm2-135m\n\n"
    "Exit codes: 0 fine, 1 no index or no space, 2 bad input or no llm extra, 3 no such model, 4 damaged weights.",
)  # fmt: skip
@json_option
@click.pass_context
def models(ctx: click.Context, as_json: bool) -> None:
    """Model weights on this machine: list, install, add, show, export, serve.

    Alone it lists them, as `models ls` does. They are kept in $COUNTERPOINT_MODELS, or in the user's cache; any folder or .gguf
    file elsewhere, and the folder of a run that trained a language model, is used by its path.
    """
    if ctx.invoked_subcommand is None:
        from counterpoint.lab.app.cli.models.ls import print_models

        print_models((), as_json=as_json)
