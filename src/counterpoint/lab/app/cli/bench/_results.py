"""What the commands of `counterpoint bench` share: options of a team of models, and how results are printed.

Always true: the card, its JSON and its HTML page show the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

import counterpoint
from counterpoint.answer import Answer, Section, page
from counterpoint.app.terminal.options import model_options, model_settings, output_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, say
from counterpoint.files import put
from counterpoint.lab.app.cli._options import gate_option


def epilog(*lines: str, more: str = "") -> str:
    """Examples and exit codes of one command; `more` are codes of its own."""
    examples = "\n".join(f"  counterpoint bench {line}" for line in lines)
    codes = "Exit codes: 0 fine (a team that breaks is measured, too), 2 a wrong option, 3 no such suite, team or results"
    return f"\b\nExamples:\n{examples}\n\n{codes}{more}."


html_option = output_option("Write one HTML file instead.", metavar="FILE.html")


def team_options(command: Any) -> Any:
    """What `run` and `attack` say about a team of models."""
    return model_options("The model of topology:NAME: openai:NAME, local:NAME.  [default: fake]")(gate_option(command))


def team_of(options: Mapping[str, Any]) -> Any:
    """The contestant that the options name."""
    from counterpoint.lab.bench.scorecard.contestants import contestant

    settings = model_settings(options["base_url"], options["model_pairs"])
    return contestant(options["team"], model=options["model_name"], options=settings, gates=options["gates"])


def write_page(file: Path, title: str, sections: Any) -> None:
    """Sections as one HTML file."""
    put([(file, page(Answer(title, sections), f"counterpoint {counterpoint.__version__}").encode())], overwrite=True)
    click.echo(f"wrote {file}")


def print_card(out: Path, *, as_json: bool) -> None:
    """Print the card of the results in a folder."""
    import msgspec

    from counterpoint.lab.app.bench_page import sections, title
    from counterpoint.lab.bench.scorecard.card import card_of

    made = card_of(out)
    if as_json:
        emit({"schema": SCHEMA_VERSION, "results": str(out), **msgspec.to_builtins(made, str_keys=True)})
        return
    say(*sections(made), Section(words=f"results: {out}"), heading=f"Card: {title(made)}")
