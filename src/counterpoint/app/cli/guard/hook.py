"""Answer one call from stdin, as the hook does."""

from __future__ import annotations

import click

from counterpoint.app.cli.guard._options import answer_option, limit_options
from counterpoint.app.terminal.output import json_option


@click.command(
    epilog="\b\nExamples:\n  counterpoint guard hook --cap agents=40 < call.json\n"
    "  counterpoint guard hook --limits guard.toml < call.json"
)
@limit_options
@answer_option
@json_option
def hook(caps: tuple[str, ...], limits_file: str | None, prices: str | None, answer: str, as_json: bool) -> None:
    """Answer one call from stdin, as the hook does; `install` writes a faster way to run the same."""
    from counterpoint.guard.hook import main

    words = [word for cap in caps for word in ("--cap", cap)]
    for name, value in (("--limits", limits_file), ("--prices", prices), ("--answer", answer)):
        words += [name, value] if value is not None else []
    main(words)
