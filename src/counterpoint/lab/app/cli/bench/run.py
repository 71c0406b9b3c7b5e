"""Play a suite, or cases of your own, with a team, and print its card.

Always true: what was played is kept row by row and is not played again; a team that breaks scores what it did; nothing is
written outside the folder that -o names.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from counterpoint.app.terminal.options import (
    Command,
    NumberRange,
    cap_option,
    caps_of,
    output_option,
    overwrite_option,
    seed_option,
)
from counterpoint.app.terminal.output import emit, json_option, note
from counterpoint.app.terminal.progress import Bar, progress
from counterpoint.app.words import plain_text
from counterpoint.display import counted, duration, moment
from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.app.cli.bench._results import epilog, print_card, team_of, team_options

if TYPE_CHECKING:
    from counterpoint.lab.bench.scorecard.cells import Cell
    from counterpoint.lab.bench.scorecard.rows import BenchFolder


def _own_options(command: Command) -> Command:
    """What there is to say about cases of one's own, and what score they must reach."""
    file = click.Path(path_type=Path)
    for option in (
        click.option("--fail-under", type=NumberRange(0, 1), metavar="SCORE", help="Exit with code 4 below this mean score."),
        click.option("--reward", metavar="FILE.py:NAME", help="Scores cases: (answer, case) to 0..1.  [default: exact match]"),
        click.option("--tasks", "tasks_file", type=file, metavar="FILE.jsonl", help="Cases of your own instead of a suite."),
    ):
        command = option(command)
    return command


@click.command(
    epilog=epilog("run short --team policy:reference", "run short --team topology:swarm --model fake:0.9 --model-set babble=0.1",
                  "run short T1-100 T1-100-AV2 --team my_lab.team:answer --seeds 3 --json",
                  "run --tasks cases.jsonl --team my.py:team --reward my.py:score --fail-under 0.8",
                  more=", 4 the mean score is less than --fail-under")
)  # fmt: skip
@click.argument("suite_name", metavar="[SUITE]", required=False)
@click.argument("cells", nargs=-1, metavar="[CELL]...")
@click.option("--team", required=True, metavar="TEAM", help="policy:NAME, run:DIR, topology:NAME, or your module:function.")
@_own_options
@team_options
@click.option("--seeds", type=click.IntRange(min=1), help="Runs of each cell.  [default: 5; as a package says; of your cases 1]")
@seed_option("The first seed.")
@output_option("The folder of the results.  [default: bench/TEAM-SUITE]", metavar="DIR")
@cap_option("seconds")
@overwrite_option
@json_option
def run(suite_name: str | None, cells: tuple[str, ...], output: Path | None, as_json: bool, **options: Any) -> None:
    """Play a suite (short, core, full, or a package's: dpbench), or some of its cells, and print the card.

    Results are written row by row; the same command continues an interrupted one, and plays again what other code played: a
    function of your own is known by its source and what that imports from its own tree. It is called with a job (question,
    tools, recording), or with the question where its parameter is a str, in a process of its own for at most --cap seconds=3600,
    and returns the answer. --overwrite plays again what is there already.

    --tasks plays your cases, a {"question", "answer"} in each line; the team never sees the answer. What crashes or hangs
    scores 0.
    """
    from counterpoint.lab.bench.scorecard.contestants import Caps
    from counterpoint.lab.bench.scorecard.playing import play_suite
    from counterpoint.lab.bench.scorecard.rows import BenchFolder
    from counterpoint.lab.worlds.packages import protocol_episodes

    asked = _asked(suite_name, cells, options["tasks_file"], options["reward"])
    caps = Caps(seconds=_seconds(options["caps"]))
    team = team_of(options)
    out = output or Path("bench") / f"{_plain(team.name)}-{_plain(asked.suite)}"
    many = options["seeds"] or protocol_episodes(asked.suite) or (1 if asked.is_own else 5)
    seeds = range(options["seed"], options["seed"] + many)
    if not any(team.plays(c) for c in asked.cells if not asked.only or c.id in asked.only):
        fix = "a function of yours: path/to/file.py:team" if asked.is_own else f"counterpoint bench ls {asked.suite}"
        raise InputError(f"{team.name} plays none of these cells", where="--team", fix=fix)
    folder = BenchFolder.begin(out, asked.suite, team, seeds, asked.cells, is_own=asked.is_own)
    with progress("runs", quiet=as_json) as bar:
        reporter = _Reporter(as_json, bar)
        again = options["overwrite"]
        mine, left = play_suite(folder, team, seeds, caps=caps, tell=reporter, only=asked.only, again=again, cells=asked.cells)
    reporter.end()
    if left and not as_json:
        note(f"{counted(len(left), 'cell')} not played: {team.name} cannot ({', '.join(c.id for c in left[:4])}, ...)")
    print_card(out, as_json=as_json)
    if asked.is_own and not as_json:
        click.echo(f"traces:  {folder.store} (counterpoint show CASE-SEED --store {folder.store})")
    if options["fail_under"] is not None:
        _check_score(folder, {c.id for c in mine}, seeds, options["fail_under"], as_json=as_json)


class _Asked(NamedTuple):
    """What is to be played."""

    suite: str
    cells: Sequence[Cell]
    """All of the suite, or the cases."""
    only: tuple[str, ...]
    """The ids that were named; none: all."""
    is_own: bool


def _asked(suite_name: str | None, names: tuple[str, ...], file: Path | None, reward: str | None) -> _Asked:
    """A suite of ours, or cases of one's own, all of it or some."""
    from counterpoint.lab.bench.scorecard.cells import suite
    from counterpoint.lab.bench.scorecard.own_cases import read_cases

    if file is not None:
        asked = _Asked(file.name, read_cases(file, reward), (*([suite_name] if suite_name else []), *names), is_own=True)
    elif suite_name is None:
        fix = "short, core or full; or cases of yours: --tasks FILE.jsonl"
        raise InputError("nothing to play is named", where="SUITE", fix=fix)
    elif reward is not None:
        raise InputError("a suite scores its cells itself", where="--reward", fix="it is for cases of yours: --tasks FILE.jsonl")
    else:
        asked = _Asked(suite_name, suite(suite_name), names, is_own=False)
        for cell in asked.cells:
            if cell.is_package:
                _ = cell.make().version  # a name that its package does not know, or a package that is missing
    known = [c.id for c in asked.cells]
    for name in asked.only:
        if name not in known:
            raise InputError(f"no cell {name!r} in {asked.suite}", where="CELL", fix=did_you_mean(name, known))
    return asked


def _check_score(folder: BenchFolder, cells: set[str], seeds: range, least: float, *, as_json: bool) -> None:
    """Exit code 4 where the mean score of what was asked for is too small; attacked cells do not count."""
    known = folder.cells()
    shares = [r.share for r in folder.rows() if r.cell in cells and r.seed in seeds and not known[r.cell].attack]
    score = math.fsum(shares) / len(shares) if shares else 0.0
    is_missed = score < least
    if as_json:
        emit({"event": "target", "score": score, "runs": len(shares), "fail_under": least, "missed": is_missed})
    else:
        click.echo(f"score {score:.3f} over {counted(len(shares), 'run')}: {'less than' if is_missed else 'at least'} {least:g}")
    if is_missed:
        raise SystemExit(4)


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
            note(f"{counted(row['other_code'], 'run')} of {row['other']} not counted: played again")

    def end(self) -> None:
        """Print how long it took."""
        if not self.as_json:
            note(f"played in {duration(time.monotonic() - self.begin)}")


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")[:60]
