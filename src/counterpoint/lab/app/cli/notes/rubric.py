"""Print a rubric to begin from.

Always true: `counterpoint notes judge --rubric` reads what it prints.
"""

from __future__ import annotations

import click

from counterpoint.app.terminal.output import emit, json_option

EXAMPLE = """name = "verdict"
labels = ["right", "wrong"]        # or: scale = [1, 5]
unit = "trace"                     # or: "event", with types = ["return"]
text = \"\"\"
Is the final answer supported by what the team read and did?
right: every claim of it is; wrong: any claim is not, or it does not answer.
\"\"\"
"""


@click.command(epilog="\b\nExamples:\n  counterpoint notes rubric > verdict.toml\n  counterpoint notes rubric --json")
@json_option
def rubric(as_json: bool) -> None:
    """Print an example of a rubric, to be edited."""
    emit({"rubric": EXAMPLE}) if as_json else click.echo(EXAMPLE, nl=False)
