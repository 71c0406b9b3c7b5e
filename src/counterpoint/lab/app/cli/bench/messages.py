"""What the messages of teams were worth, and who can tell: a leaderboard over labels by coupled forks.

Always true: what is labelled is not labelled again; labels of held-out runs are in no file and are made on demand, in memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from counterpoint.app.terminal.options import (
    mechanism_option,
    model_options,
    samples_option,
    seed_option,
    set_option,
    values_of,
    workers_option,
)
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.display import counted
from counterpoint.errors import InputError, NotIdentified, did_you_mean

_OWN = {"k": 4, "changes": "delete", "teams": "", "change": "delete", "held_out": False}


@click.command(
    epilog="\b\nExamples:\n  counterpoint bench messages labels --samples 16 --seed 3\n"
    "  counterpoint bench messages labels --mechanism my.py:worth --set held_out=true\n"
    "  counterpoint bench messages labels --model local:smollm2-135m --json\n\n"
    "Exit codes: 0 ranked, 2 a wrong option, 3 no such folder, 5 no message has such a label."
)
@click.argument("place", metavar="FOLDER|FILE", type=click.Path(path_type=Path))
@samples_option("Label first, until the folder has this many runs: whole instances of four.", least=1)
@set_option
@mechanism_option
@model_options("Who plays, with --samples: fake:SKILL or local:NAME; else the judge, local:NAME.")
@workers_option("Processes that label at once.  [default: 1]")
@seed_option("Seed of all runs and labels, with --samples.")
@json_option
def messages(
    place: Path,
    samples: int | None,
    pairs: tuple[str, ...],
    mechanism: str | None,
    model_name: str | None,
    model_pairs: tuple[str, ...],
    base_url: str | None,
    workers: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Rank estimators of what a message was worth against labels: R with it less R without it, others reacting, by coupled forks.

    With --samples teams are played and labelled into FOLDER: rows-*.parquet, and their runs beside them. --set k=4 (pairs of
    forks), changes=delete,neutral,other,delay, teams="T1 swarm,T4 debate"; for the ranking change=delete, held_out=true.
    --mechanism adds a mechanism, or your function of a trace that gives {event id: number}.
    """
    if base_url is not None:
        raise InputError("labels are made by models of this machine", where="--base-url", fix="fake:SKILL or local:NAME")
    said = _settings(pairs)
    options = values_of(model_pairs, "--model-set")
    if samples is not None:
        _label(place, samples, said, model_name or "fake:0.7", options, seed, workers or 1)
        model_name = None
    _rank(place, said, mechanism, model_name, options, as_json=as_json)


def _settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    out = _OWN | values_of(pairs)
    for name in out:
        if name not in _OWN:
            raise InputError(f"no setting named {name!r}", where="--set", fix=did_you_mean(name, _OWN))
    if type(out["k"]) is not int or not isinstance(out["held_out"], bool):
        raise InputError(f"k is {out['k']!r} and held_out {out['held_out']!r}", where="--set", fix="k=4, held_out=true")
    return out


def _names(value: Any) -> tuple[str, ...]:
    return tuple(part.strip() for part in str(value).split(",") if part.strip())


def _label(place: Path, samples: int, said: dict[str, Any], model: str, options: dict[str, Any], seed: int, workers: int) -> None:
    from counterpoint.lab.bench.messages.labels import make
    from counterpoint.lab.bench.messages.plan import Plan

    if place.is_file():
        raise InputError("is a file, not a folder", where=str(place), fix="name a folder to label into")
    plan = Plan(
        seed=seed, model=model, options=options, k=said["k"], changes=_names(said["changes"]), teams=_names(said["teams"])
    )
    make(place, plan, samples, workers=workers)


def _rank(
    place: Path, said: dict[str, Any], mechanism: str | None, model: str | None, options: dict[str, Any], *, as_json: bool
) -> None:
    from counterpoint.lab.bench.messages.board import board, ceiling
    from counterpoint.lab.bench.messages.estimators import ESTIMATORS, Batch, own_estimator
    from counterpoint.lab.bench.messages.labels import held_out_rows, judge_of
    from counterpoint.lab.bench.messages.plan import CHANGES
    from counterpoint.lab.bench.messages.rows import read_messages

    if said["change"] not in CHANGES:
        raise InputError(f"no change {said['change']!r}", where="--set", fix=did_you_mean(str(said["change"]), CHANGES))
    found = read_messages(place)
    split = "held out" if said["held_out"] else "public"
    every_row = held_out_rows(found) if said["held_out"] else found.rows
    asked = [r for r in every_row if r.split == split and r.change == said["change"]]
    rows = tuple(r for r in asked if r.is_label)
    if not rows:
        what = f"no message has a label for {said['change']!r}" + (" in the held-out part" if said["held_out"] else "")
        raise NotIdentified(what, "label more runs: --samples", where=str(place))
    own = {name: own_estimator(name) for name in _names(mechanism or "")}
    batch = Batch(rows, found.runs(), judge_of(model, options))
    top, every = ceiling(rows), board(batch, {**own, **ESTIMATORS})
    if as_json:
        emit({"schema": SCHEMA_VERSION, "labels": msgspec.to_builtins(top)})
        for row in every:
            emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(row)})
        return
    cells = [
        (r.estimator, _share(r.covers), _mean(r.within), _mean(r.nonzero), _number(r.pooled), _number(r.slope),
         "" if r.holds is None else _share(r.holds), f"{r.calls:.1f}")
        for r in every if not r.why_not
    ]  # fmt: skip
    heads = ("estimator", "covers", "Spearman in a run", "among non-zero", "pooled", "slope", "holds", "calls")
    click.echo(table(heads, cells, right=(1, 4, 5, 6, 7)))
    note(
        f"{counted(top.messages, 'message')} of {counted(top.runs, 'run')}, {counted(top.instances, 'instance')}; "
        f"{_share(top.zeros)} changed nothing in any fork"
    )
    reach = f"{_number(top.ceiling)} in a run, {_number(top.nonzero_ceiling)} among non-zero"
    note(f"labels: halves agree {_mean(top.halves)}, a pair with the others {_mean(top.single)}")
    note(f"most that can be reached: about {reach}; {top.calls:.1f} calls a label")
    if len(rows) < len(asked):
        note(f"{counted(len(asked) - len(rows), 'message')} without a label: no fork of the run could be made there")
    for row in every:
        if row.why_not:
            note(f"{row.estimator}: left out, {row.why_not}")


def _share(value: float) -> str:
    return f"{value:.0%}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _mean(found: Any) -> str:
    if found.mean is None:
        return ""
    return f"{found.mean:.2f}" if found.low is None else f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]"
