"""Compare two results, paired by cell and seed.

Always true: a difference that is not established is printed as such.
"""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.terminal.output import emit, json_option, say
from counterpoint.lab.app.cli.bench._results import epilog


@click.command(epilog=epilog("compare bench/a-short bench/b-short", "compare bench/a-short bench/b-short --json"))
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@json_option
def compare(first: Path, second: Path, as_json: bool) -> None:
    """Compare two results, paired by cell and seed: what differs, and what is not established."""
    import msgspec

    from counterpoint.lab.app.bench_page import contrast_section, defence_section
    from counterpoint.lab.bench.scorecard.card import contrast
    from counterpoint.lab.bench.scorecard.defence import defence_contrast

    differences, attacked = contrast(first, second), defence_contrast(first, second)
    if as_json:
        for one in (*differences, *attacked):
            emit(msgspec.to_builtins(one))
        return
    say(contrast_section(first, second, differences), *([defence_section(attacked)] if attacked else []))
