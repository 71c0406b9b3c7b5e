"""Print the card of one or several results.

Always true: the text, the JSON and the HTML page show the same numbers.
"""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.terminal.output import json_option
from counterpoint.display import counted
from counterpoint.lab.app.cli.bench._results import epilog, html_option, print_card, write_page


@click.command(epilog=epilog("card bench/policy-reference-short", "card results/* -o card.html"))
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RESULT...")
@html_option
@json_option
def card(results: tuple[Path, ...], output: Path | None, as_json: bool) -> None:
    """Print the card of one or several results: as text, JSON, or one HTML file."""
    from counterpoint.lab.app.bench_page import sections, title
    from counterpoint.lab.bench.scorecard.card import card_of

    if output is None:
        for out in results:
            print_card(out, as_json=as_json)
        return
    cards = [card_of(out) for out in results]
    parts = [s._replace(title=f"{title(c)}: {s.title}") for c in cards for s in sections(c)]
    name = title(cards[0]) if len(cards) == 1 else counted(len(cards), "card")
    write_page(output, f"Card: {name}", parts)
