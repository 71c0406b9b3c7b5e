"""Print the shell code that completes our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from counterpoint.app.terminal.output import emit, json_option

HEADING = ""

# Bash ends a word at a colon, so `in:NAME` and `local:MODEL` would arrive in pieces: such a word is put together again, and what
# stands before the last colon, which bash keeps, is taken off the answers.
_COLONS = r"""
_{name}_colons() {{
    local line=${{COMP_LINE:0:COMP_POINT}}
    local word=${{line##*[[:space:]]}}
    if [[ $word == *:* ]]; then
        local -a COMP_WORDS
        local COMP_CWORD
        read -ra COMP_WORDS <<< "$line"
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _{name}_completion "$@"
        COMPREPLY=("${{COMPREPLY[@]#"${{word%"${{word##*:}}"}}"}}")
    else
        _{name}_completion "$@"
    fi
}}
complete -o nosort -F _{name}_colons {name}
"""
_NAMES = ("counterpoint", "cpt")


@click.command(
    hidden=True,
    epilog="\b\nExamples:\n  counterpoint completion bash >> ~/.bashrc\n  counterpoint completion zsh >> ~/.zshrc",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def completion(shell: str, as_json: bool) -> None:
    """Print code for your shell's start-up file, so that Tab completes `counterpoint` and `cpt`."""
    from counterpoint.app.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    code = "\n".join(kind(cli, {}, name, f"_{name.upper()}_COMPLETE").source() for name in _NAMES)
    code += "".join(_COLONS.format(name=name) for name in _NAMES) if shell == "bash" else ""
    if as_json:
        emit({"shell": shell, "code": code})
    else:
        click.echo(code)
