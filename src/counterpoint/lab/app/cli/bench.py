"""Measure a team over ten to ten thousand steps, and under attack.

Always true: what was played is kept row by row and is not played again; a team that breaks scores what it did; nothing is
written outside --out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import counterpoint
from counterpoint.app.terminal.groups import Group
from counterpoint.app.terminal.options import NumberRange
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.progress import Bar, progress
from counterpoint.app.words import plain_text
from counterpoint.display import counted, duration, moment, percent
from counterpoint.errors import InputError, did_you_mean
from counterpoint.files import put

HEADING = "Learn"


def _epilog(*lines: str) -> str:
    examples = "\n".join(f"  counterpoint bench {line}" for line in lines)
    codes = "Exit codes: 0 fine (a team that breaks is measured, too), 2 a wrong option, 3 no such suite, team or results."
    return f"\b\nExamples:\n{examples}\n\n{codes}"


_MODEL = (
    click.option("--model", metavar="MODEL", help="With topology: openai:NAME, local:NAME or a test double.  [default: fake]"),
    click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the model; may be repeated."),
    click.option(
        "--gate", "gates", multiple=True, metavar="NAME[,NAME]", help="Defences: allow_list, taint, quorum, verifier, quarantine."
    ),
)


def _model_options(command: Any) -> Any:
    """What `run` and `attack` say about a team of models."""
    for option in reversed(_MODEL):
        command = option(command)
    return command


@click.group(cls=Group, epilog=_epilog("run short --team policy:reference", "card bench/policy-reference-short"))
def bench() -> None:
    """Measure a team: success, parallelism, collaboration, overhead, by length and under attack."""


@bench.command(epilog=_epilog("ls", "ls core --json"))
@click.argument("suite_name", metavar="[SUITE]", required=False)
@json_option
def ls(suite_name: str | None, as_json: bool) -> None:
    """List the suites, or the cells of one."""
    from counterpoint.lab.bench.scorecard.cells import SUITES, suite

    if suite_name is None:
        rows = [{"suite": name, "cells": len(suite(name)), "summary": text} for name, text in SUITES.items()]
        if as_json:
            for row in rows:
                emit(row)
        else:
            click.echo(table(("suite", "cells", "summary"), [tuple(r.values()) for r in rows], right=(1,)))
        return
    cells = suite(suite_name)
    if as_json:
        for cell in cells:
            emit(cell.as_dict())
    else:
        shown = [(c.id, c.kind, f"{c.band:,}", c.attack or "-", ", ".join(f"{k}={v}" for k, v in c.set.items())) for c in cells]
        click.echo(table(("cell", "kind", "steps", "attack", "parameters"), shown, right=(2,)))


@bench.command(
    epilog=_epilog("run short --team policy:reference", "run short --team topology:swarm --model fake:0.9 --option gullible=0.5",
                   "run short --team my_lab.team:answer --seeds 3 --json")
)  # fmt: skip
@click.argument("suite_name", metavar="SUITE")
@click.option("--team", required=True, metavar="TEAM", help="policy:NAME, run:DIR, topology:NAME, or your module:function.")
@_model_options
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), help="Runs of each cell.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="The first seed.")
@click.option("--only", metavar="CELL[,CELL]", help="These cells only, and their attacks.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Where results go.  [default: bench/TEAM-SUITE]")
@click.option("--limit-s", default=3600.0, show_default=True, type=NumberRange(min=1), help="For one run of your code.")
@click.option("--again", is_flag=True, help="Play what is there already anew, too.")
@json_option
def run(suite_name: str, as_json: bool, **given: Any) -> None:
    """Play a suite and print its card.

    SUITE is short, core or full. Results go to --out row by row; the same command goes on where it was cut off, and plays again
    what other code played: a function of your own is known by its source and what that imports from its own tree. It is called
    with a job (question, tools, recording) in a process of its own, and gives the answer.
    """
    from counterpoint.lab.bench.scorecard.cells import suite
    from counterpoint.lab.bench.scorecard.contestants import Caps, contestant
    from counterpoint.lab.bench.scorecard.playing import play_suite, result_folder

    known = [c.id for c in suite(suite_name)]
    only = [c.strip() for c in (given["only"] or "").split(",") if c.strip()]
    for cell in only:
        if cell not in known:
            raise InputError(f"no cell {cell!r} in {suite_name}", where="--only", fix=did_you_mean(cell, known))
    team = contestant(given["team"], model=given["model"], options=_pairs(given["options"]), gates=given["gates"])
    out = given["out"] or Path("bench") / f"{_plain(team.name)}-{suite_name}"
    seeds = range(given["seed"], given["seed"] + given["seeds"])
    if not any(team.plays(c) for c in suite(suite_name) if not only or c.id in only):
        raise InputError(f"{team.name} plays none of these cells", where="--team", fix="counterpoint bench ls " + suite_name)
    result_folder(out, suite_name, team, seeds)
    with progress("runs", quiet=as_json) as bar:
        telling = _Telling(as_json, bar)
        caps = Caps(seconds=given["limit_s"])
        _, left = play_suite(out, suite_name, team, seeds, caps=caps, tell=telling, only=only, again=given["again"])
    telling.end()
    if left and not as_json:
        note(f"{counted(len(left), 'cell')} not played: {team.name} cannot ({', '.join(c.id for c in left[:4])}, ...)")
    _show(out, as_json)


class _Telling:
    """What is under way, how much is done, and how long the rest may take."""

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
            note(f"{counted(row['rows'], 'row')} reused, {why}{since}; --again plays them anew")
        if row["other_code"]:
            note(f"{counted(row['other_code'], 'run')} of other code not counted: played again")

    def end(self) -> None:
        """Say how long it took."""
        if not self.as_json:
            note(f"played in {duration(time.monotonic() - self.begin)}")


def _pairs(given: Sequence[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for pair in given:
        name, sign, text = pair.partition("=")
        if not sign:
            raise InputError(f"{pair!r} has no value", where="--option", fix="NAME=VALUE")
        try:
            out[name] = json.loads(text)
        except ValueError:
            out[name] = text
    return out


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")[:60]


@bench.command(epilog=_epilog("card bench/policy-reference-short", "card results/* --html card.html"))
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RESULT...")
@click.option("--html", "file", type=click.Path(path_type=Path), metavar="FILE", help="Write it as one HTML file.")
@json_option
def card(results: tuple[Path, ...], file: Path | None, as_json: bool) -> None:
    """The card of one or several results: as text, JSON, or one HTML file."""
    from counterpoint.app.report_page import sections_page
    from counterpoint.lab.app.bench_page import sections, title
    from counterpoint.lab.bench.scorecard.card import card_of

    cards = [card_of(out) for out in results]
    if file is not None:
        parts = [s._replace(title=f"{title(c)}: {s.title}") for c in cards for s in sections(c)]
        name = title(cards[0]) if len(cards) == 1 else counted(len(cards), "card")
        put([(file, sections_page(f"Card: {name}", parts, made=_made()).encode())], overwrite=True)
        click.echo(f"Wrote {file}")
        return
    for out in results:
        _show(out, as_json)


@bench.command(
    epilog=_epilog("attack T1-100-AV2 --team topology:centralized --option gullible=0.7 --gate taint",
                   "attack T1-100-AV4 --team topology:swarm --model fake:0.9 --budget 240 --json")
)  # fmt: skip
@click.argument("cell_id", metavar="CELL")
@click.option("--team", required=True, metavar="TEAM", help="topology:NAME, the run of a language model, or code of your own.")
@_model_options
@click.option("--budget", default=120, show_default=True, type=click.IntRange(min=1), help="Runs that the search may use.")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), help="Runs that are reported.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="The first of them.")
@json_option
def attack(cell_id: str, as_json: bool, **given: Any) -> None:
    """Let an attacker search against a team and its gates: a defence beyond the words that it knows.

    CELL is an attacked cell of a task (`counterpoint bench ls short`). Of two dozen wordings the search keeps the one that got
    its way most often; it is then played on seeds that the search did not see, beside the usual wording and one that is held out.
    """
    from dataclasses import asdict

    from counterpoint.lab.bench.claim import mean_interval
    from counterpoint.lab.bench.scorecard.attacker import outcomes, search
    from counterpoint.lab.bench.scorecard.cells import suite
    from counterpoint.lab.bench.scorecard.contestants import Caps, contestant

    cells = {c.id: c for c in suite("full")}
    known = [c.id for c in cells.values() if c.kind == "text" and c.attack and not c.is_control and not c.wording]
    if cell_id not in known:
        raise InputError(f"no attacked task {cell_id!r}", where="CELL", fix=did_you_mean(cell_id, known))
    cell, options = cells[cell_id], _pairs(given["options"])
    team = contestant(given["team"], model=given["model"], options=options, gates=given["gates"])
    if not team.plays(cell):
        raise InputError(f"{team.name} does not play {cell_id}", where="--team", fix="topology:NAME")
    found = search(cell, team, budget=given["budget"], caps=Caps(), tell=None if as_json else _searching)
    seeds = range(given["seed"], given["seed"] + given["seeds"])
    told = outcomes(cell, cells[cell.clean], found.cell, team, seeds, Caps())
    if as_json:
        about = {"cell": cell_id, **team.about(), "wording": found.cell.wording, "runs": found.runs, "tried": found.tried}
        emit({"schema": SCHEMA_VERSION, **about, "search_success": found.success, "outcomes": [asdict(o) for o in told]})
        return
    click.echo(f"{plain_text(team.name)} in {cell_id}: {found.tried} wordings, {found.runs} runs; found {found.cell.wording}\n")
    rows = []
    for one in told:
        means = (mean_interval(x) if x else (None, None, None) for x in (one.success, one.share, one.change))
        rows.append((one.wording, f"{one.succeeded:,} of {one.met:,}", *(_interval(*m) for m in means)))
    click.echo(table(("wording", "got its way", "share", "of the optimum", "change"), rows, right=(1, 2, 3, 4)))


def _searching(done: int, of: int) -> None:
    if done % 24 == 1:
        note(f"searching: {done:,} of about {of:,} runs")


def _interval(mean: float | None, low: float | None, high: float | None) -> str:
    if mean is None:
        return "-"
    return percent(mean) if low is None or high is None else f"{percent(mean)} [{percent(low)}, {percent(high)}]"


@bench.command(epilog=_epilog("compare bench/a-short bench/b-short", "compare bench/a-short bench/b-short --json"))
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@json_option
def compare(first: Path, second: Path, as_json: bool) -> None:
    """Two results, paired by cell and seed: what differs, and what is not established."""
    import msgspec

    from counterpoint.lab.app.bench_page import contrast_section, defence_section
    from counterpoint.lab.bench.scorecard.card import contrast, read_about
    from counterpoint.lab.bench.scorecard.defence import defence_contrast

    found, attacked = contrast(first, second), defence_contrast(first, second)
    if as_json:
        for one in (*found, *attacked):
            emit(msgspec.to_builtins(one))
        return
    names = [str(read_about(x)["team"]) for x in (first, second)]
    click.echo(_text(contrast_section(names[0], names[1], found)))
    if attacked:
        click.echo("\n" + _text(defence_section(attacked)))


@bench.command(epilog=_epilog("leaderboard bench", "leaderboard bench --html board.html"))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--html", "file", type=click.Path(path_type=Path), metavar="FILE", help="Write it as one HTML file.")
@json_option
def leaderboard(folder: Path, file: Path | None, as_json: bool) -> None:
    """All results in a folder, the best first."""
    from counterpoint.app.report_page import sections_page
    from counterpoint.lab.app.bench_page import leaderboard as board
    from counterpoint.lab.bench.scorecard.playing import ABOUT, ROWS

    found = sorted(p.parent for p in folder.glob(f"*/{ROWS}") if (p.parent / ABOUT).is_file())
    if not found:
        raise InputError("no results are in this folder", where=str(folder), fix="counterpoint bench run short --team ...")
    told = board(found)
    if as_json:
        for section in told:
            rows = [dict(zip(section.head, row, strict=True)) for row in section.rows]
            emit({"schema": SCHEMA_VERSION, "suite": section.title, "teams": rows})
        return
    if file is not None:
        put([(file, sections_page("Leaderboard", told, made=_made()).encode())], overwrite=True)
        click.echo(f"Wrote {file}")
    else:
        click.echo("\n\n".join(map(_text, told)))


def _made() -> str:
    return f"counterpoint {counterpoint.__version__}"


def _show(out: Path, as_json: bool) -> None:
    import msgspec

    from counterpoint.lab.app.bench_page import sections, title
    from counterpoint.lab.bench.scorecard.card import card_of

    made = card_of(out)
    if as_json:
        emit({"schema": SCHEMA_VERSION, "results": str(out), **msgspec.to_builtins(made, str_keys=True)})
        return
    click.echo(f"CARD    {plain_text(title(made))}\n\n" + "\n\n".join(map(_text, sections(made))) + f"\n\nresults: {out}")


def _text(section: Any) -> str:
    lines = [plain_text(section.title)]
    lines += [plain_text(section.words)] if section.words else []
    if section.rows:
        lines.append(table(section.head, section.rows, right=section.right))
    return "\n".join(lines)
