"""Let an attacker search against a team and its gates.

Always true: what is reported was played on seeds that the search did not see.
"""

from __future__ import annotations

from typing import Any

import click

from counterpoint.app.terminal.options import cap_option, seed_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.words import plain_text
from counterpoint.display import percent
from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.app.cli._options import counts_of
from counterpoint.lab.app.cli.bench._results import epilog, team_of, team_options


@click.command(
    epilog=epilog("attack T1-100-AV2 --team topology:centralized --model-set gullible=0.7 --gate taint",
                  "attack T1-100-AV4 --team topology:swarm --model fake:0.9 --cap runs=240 --json")
)  # fmt: skip
@click.argument("cell_id", metavar="CELL")
@click.option("--team", required=True, metavar="TEAM", help="topology:NAME, the run of a language model, or code of your own.")
@team_options
@cap_option("runs")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), help="Runs that are reported.")
@seed_option("The first of them.")
@json_option
def attack(cell_id: str, as_json: bool, **options: Any) -> None:
    """Let an attacker search against a team and its gates: a defence beyond the words that it knows.

    CELL is an attacked cell of a task (`counterpoint bench ls short`). Of two dozen wordings the search keeps the one that got
    its way most often; that one is then played on seeds that the search did not see, beside the usual wording and a held-out one.
    The search takes at most --cap runs=120.
    """
    from dataclasses import asdict

    from counterpoint.lab.bench.intervals import interval_words, mean_interval
    from counterpoint.lab.bench.scorecard.attacker import outcomes, search
    from counterpoint.lab.bench.scorecard.cells import suite
    from counterpoint.lab.bench.scorecard.contestants import Caps

    cells = {c.id: c for c in suite("full")}
    known = [c.id for c in cells.values() if c.kind == "text" and c.attack and not c.is_control and not c.wording]
    if cell_id not in known:
        raise InputError(f"no attacked task {cell_id!r}", where="CELL", fix=did_you_mean(cell_id, known))
    cell, budget = cells[cell_id], counts_of(options["caps"], "runs").get("runs", 120)
    team = team_of(options)
    if not team.plays(cell):
        raise InputError(f"{team.name} does not play {cell_id}", where="--team", fix="topology:NAME")
    found = search(cell, team, budget=budget, caps=Caps(), tell=None if as_json else _searching)
    seeds = range(options["seed"], options["seed"] + options["seeds"])
    results = outcomes(cell, cells[cell.clean], found.cell, team, seeds, Caps())
    if as_json:
        about = {"cell": cell_id, **team.about(), "wording": found.cell.wording, "runs": found.runs, "tried": found.tried}
        emit({"schema": SCHEMA_VERSION, **about, "search_success": found.success, "outcomes": [asdict(o) for o in results]})
        return
    click.echo(f"{plain_text(team.name)} in {cell_id}: {found.tried} wordings, {found.runs} runs; found {found.cell.wording}\n")
    rows = []
    for one in results:
        means = (interval_words(*mean_interval(x), percent) if x else "-" for x in (one.success, one.share, one.change))
        rows.append((one.wording, f"{one.succeeded:,} of {one.met:,}", *means))
    click.echo(table(("wording", "got its way", "share", "of the optimum", "change"), rows, right=(1, 2, 3, 4)))


def _searching(done: int, of: int) -> None:
    if done % 24 == 1:
        note(f"searching: {done:,} of about {of:,} runs")
