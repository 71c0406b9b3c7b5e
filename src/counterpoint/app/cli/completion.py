"""Print the shell code that completes our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from counterpoint.app.cli._output import emit, json_option


@click.command(epilog="\b\nExamples:\n  counterpoint completion bash >> ~/.bashrc\n  counterpoint completion zsh >> ~/.zshrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def completion(shell: str, as_json: bool) -> None:
    """Print code for your shell's start-up file, so that Tab completes `counterpoint` and `cpt`."""
    from counterpoint.app.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    code = "\n".join(kind(cli, {}, name, f"_{name.upper()}_COMPLETE").source() for name in ("counterpoint", "cpt"))
    if as_json:
        emit({"shell": shell, "code": code})
    else:
        click.echo(code)
