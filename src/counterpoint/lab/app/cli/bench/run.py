"""Play a suite with a team, and print its card.

Always true: what was played is kept row by row and is not played again; a team that breaks scores what it did; nothing is
written outside the folder that -o names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from counterpoint.app.terminal.options import cap_option, caps_of, output_option, overwrite_option, seed_option
from counterpoint.app.terminal.output import emit, json_option, note
from counterpoint.app.terminal.progress import Bar, progress
from counterpoint.app.words import plain_text
from counterpoint.display import counted, duration, moment
from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.app.cli.bench._results import epilog, print_card, team_of, team_options


@click.command(
    epilog=epilog("run short --team policy:reference", "run short --team topology:swarm --model fake:0.9 --model-set babble=0.1",
                  "run short T1-100 T1-100-AV2 --team my_lab.team:answer --seeds 3 --json")
)  # fmt: skip
@click.argument("suite_name", metavar="SUITE")
@click.argument("cells", nargs=-1, metavar="[CELL]...")
@click.option("--team", required=True, metavar="TEAM", help="policy:NAME, run:DIR, topology:NAME, or your module:function.")
@team_options
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), help="Runs of each cell.")
@seed_option("The first seed.")
@output_option("The folder of the results.  [default: bench/TEAM-SUITE]", metavar="DIR")
@cap_option("seconds")
@overwrite_option
@json_option
def run(suite_name: str, cells: tuple[str, ...], output: Path | None, as_json: bool, **options: Any) -> None:
    """Play a suite (short, core or full), or some of its cells with their attacks, and print the card.

    Results are written row by row; the same command continues an interrupted one, and plays again what other code played: a
    function of your own is known by its source and what that imports from its own tree. It is called with a job (question,
    tools, recording) in a process of its own for at most --cap seconds=3600, and returns the answer. --overwrite plays again what
    is there already.
    """
    from counterpoint.lab.bench.scorecard.cells import suite
    from counterpoint.lab.bench.scorecard.contestants import Caps
    from counterpoint.lab.bench.scorecard.playing import play_suite
    from counterpoint.lab.bench.scorecard.rows import BenchFolder

    known = [c.id for c in suite(suite_name)]
    for cell in cells:
        if cell not in known:
            raise InputError(f"no cell {cell!r} in {suite_name}", where="CELL", fix=did_you_mean(cell, known))
    caps = Caps(seconds=_seconds(options["caps"]))
    team = team_of(options)
    out = output or Path("bench") / f"{_plain(team.name)}-{suite_name}"
    seeds = range(options["seed"], options["seed"] + options["seeds"])
    if not any(team.plays(c) for c in suite(suite_name) if not cells or c.id in cells):
        raise InputError(f"{team.name} plays none of these cells", where="--team", fix="counterpoint bench ls " + suite_name)
    folder = BenchFolder.begin(out, suite_name, team, seeds)
    with progress("runs", quiet=as_json) as bar:
        reporter = _Reporter(as_json, bar)
        _, left = play_suite(folder, team, seeds, caps=caps, tell=reporter, only=cells, again=options["overwrite"])
    reporter.end()
    if left and not as_json:
        note(f"{counted(len(left), 'cell')} not played: {team.name} cannot ({', '.join(c.id for c in left[:4])}, ...)")
    print_card(out, as_json=as_json)


def _seconds(pairs: tuple[str, ...]) -> float:
    value = float(caps_of(pairs, {"seconds": float}).get("seconds", 3600.0))
    if value < 1:
        raise InputError(f"seconds is {value:g}", where="--cap", fix="1 or more")
    return value


class _Reporter:
    """Prints what is under way, how much is done, and how long the rest may take."""

    def __init__(self, as_json: bool, bar: Bar) -> None:
        self.as_json, self.begin, self.bar = as_json, time.monotonic(), bar

    def __call__(self, kind: str, row: Mapping[str, Any]) -> None:
        if self.as_json:
            emit({"event": kind, **row})
            return
        if kind == "reused":
            self._reused(row)
            return
        if kind == "played":
            if row["status"] != "played":
                note(f"{row['cell']} seed {row['seed']}: {plain_text(row['status'])} {plain_text(row['why'])}")
            return
        if self.bar.total is None:
            self.bar.begin_at(row["done"])
        self.bar.at(row["done"], row["of"], row["cell"])

    @staticmethod
    def _reused(row: Mapping[str, Any]) -> None:
        since = f" ({moment(row['since'])})" if row["since"] is not None else ""
        if row["rows"]:
            why = "code unchanged since they were played" if row["code"] else "played before by this version"
            note(f"{counted(row['rows'], 'row')} reused, {why}{since}; --overwrite plays them again")
        if row["other_code"]:
            note(f"{counted(row['other_code'], 'run')} of other code not counted: played again")

    def end(self) -> None:
        """Print how long it took."""
        if not self.as_json:
            note(f"played in {duration(time.monotonic() - self.begin)}")


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")[:60]
