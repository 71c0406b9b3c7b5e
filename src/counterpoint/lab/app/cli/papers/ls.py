"""List papers by tag, year or words, with counts.

Always true: every count comes from the rows; an empty answer to a valid question is an answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from counterpoint.app.terminal.output import json_option, note, table
from counterpoint.display import counted
from counterpoint.lab.app.cli.papers._text import as_dict, emit_object, examples, reward_text, with_option
from counterpoint.lab.papers import load, query
from counterpoint.lab.papers.records import family


@click.command(epilog=examples("ls reward:R7 credit:orchestrator", "ls self-play year:2025-2026 core:yes --json"))
@click.argument("words", nargs=-1, metavar="[QUERY]...")
@with_option
@json_option
def ls(words: tuple[str, ...], extra: tuple[Path, ...], as_json: bool) -> None:
    """List the papers that QUERY selects; without one all of them, with the survey's counts and cross-tables.

    QUERY is plain words (in key, title, author or one-liner) and filters: reward:R7 (R1 to R8, or a tag), credit:orchestrator,
    category:rl_method, form:swarm, scenario:coding, core:yes, rl:yes, year:2025-2026; excluded:yes lists the exclusions instead.
    Values with commas are alternatives, different filters all apply.
    """
    asked = query.parsed(" ".join(words))
    pool = load.pool(extra)
    if asked.is_excluded:
        return _print_excluded(asked.text, as_json=as_json)
    rows = query.select(pool.papers, asked.filters, between=asked.between, text=asked.text)
    numbers = query.statistics(rows, pool.excluded if not words else ())
    if as_json:
        papers = [as_dict(p) | {"family": family(p.reward_type)} for p in rows]
        return emit_object(count=len(rows), papers=papers, statistics=numbers)
    if not rows:
        return click.echo("no paper fits")
    cells = [(p.key, str(p.year), reward_text(p), p.credit_granularity, p.orchestration_form, p.title) for p in rows]
    click.echo(table(["key", "year", "reward", "credit", "form", "title"], cells))
    if not words:
        click.echo("\n" + _statistics_text(numbers))
    return note(counted(len(rows), "paper"))


def _print_excluded(text: str, *, as_json: bool) -> None:
    rows = [x for x in load.excluded() if query.matches_text(text, x.record_id, x.screening_label, x.exclusion_reason)]
    if as_json:
        return emit_object(count=len(rows), excluded=[as_dict(x) for x in rows])
    if not rows:
        return click.echo("no exclusion fits")
    cells = [(x.record_id, x.stage, x.screening_label, x.exclusion_reason) for x in rows]
    return click.echo(table(["id", "stage", "title", "reason"], cells))


def _statistics_text(numbers: dict[str, Any]) -> str:
    sections = []
    for name, section in numbers.items():
        title = name.replace("_x_", " x ")
        if " x " in title:
            heads = list(next(iter(section.values()), {}))
            rows = [[row, *cells.values()] for row, cells in section.items()]
            body = table([title.split(" x ")[0], *heads], rows, right=range(1, len(heads) + 1))
        else:
            body = table([title, "entries"], list(section.items()), right=[1])
        sections.append(f"{title}\n\n{body}" if " x " in title else body)
    return "\n\n".join(sections)
