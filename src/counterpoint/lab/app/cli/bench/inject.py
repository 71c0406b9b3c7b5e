"""Plant mistakes in a run that went well, and keep the truth.

Always true: the run itself is not changed; each mistake is one fork of it, so the run without the mistake is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from counterpoint.app.load_save import load, names_file, save
from counterpoint.app.terminal.options import allow_option, model_options, output_option, seed_option, values_of
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.errors import InputError, NotIdentified, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.mistake import MISTAKES, mistake_of

_SETTINGS = {"subtlety": 0.5, "harmless": False, "success": None}


@click.command(
    epilog="\b\nExamples:\n  counterpoint bench inject hunt --kind wrong_fact --set subtlety=0.8 --store live\n"
    "  counterpoint bench inject run.jsonl --samples 5 --seed 3 -o broken --json\n\n"
    "Exit codes: 0 planted, 2 a wrong option, 3 no such trace, 5 this run cannot be forked, or no mistake makes it fail."
)
@click.argument("trace")
@click.option(
    "--kind", "kinds", multiple=True, metavar="KIND", help=f"One of {', '.join(MISTAKES)}; may be repeated.  [default: all]"
)
@click.option(
    "-n", "--samples", type=click.IntRange(min=1), default=1, show_default=True, help="How many runs with one mistake each."
)
@click.option(
    "--set", "pairs", multiple=True, metavar="NAME=VALUE",
    help="subtlety=0..1 (0.5; how hard the mistake is to see), harmless=true (also keep mistakes that do not make the run fail), "
    "success=X (the team reward from which a run is a success; what the run got).",
)  # fmt: skip
@seed_option("Draws the kind, the place and the change.")
@model_options("The model that answers changed calls of a live team, as in fork.")
@allow_option
@output_option("Write the runs here, as .jsonl files.", metavar="DIR")
@store_option
@json_option
def inject(
    trace: str,
    kinds: tuple[str, ...],
    samples: int,
    pairs: tuple[str, ...],
    seed: int,
    output: Path | None,
    store: Path | None,
    as_json: bool,
    **live: Any,
) -> None:
    """Plant one mistake in a run that can be forked, let the team react, and keep that run with the truth.

    The truth (what, when, whose, and how the run ends with and without it) is in the new trace's `meta`, which `blame` never
    reads. The copies of a stored run are stored beside it; those of a file are written with -o, or stored with --store.
    """
    from counterpoint.app.api.blame import as_scored_by
    from counterpoint.app.forks import named_model, replay_for
    from counterpoint.audits.blame.injecting import inject as planted

    settings, loaded = _settings(pairs), load(trace, store=store)
    if output is None and store is None and names_file(trace):
        raise InputError("there is no place to keep the runs", where=trace, fix="-o DIR, or --store DIR")
    replay = replay_for(loaded, model=named_model(loaded, live), allow=live["allow"])
    loaded = as_scored_by(replay, loaded)
    broken_runs = list(planted(
        loaded, replay, kinds=kinds or MISTAKES, count=samples, seed=seed, subtlety=settings["subtlety"],
        bar=settings["success"], is_decisive=not settings["harmless"],
    ))  # fmt: skip
    if not broken_runs:
        fix = "--set harmless=true keeps mistakes that change nothing; another --kind or --seed, a smaller subtlety"
        raise NotIdentified("no mistake that was tried makes this run fail", fix, where=loaded.trace_id)
    kept = [_keep(broken, output, store) for broken in broken_runs]
    if as_json:
        for broken, name in zip(broken_runs, kept, strict=True):
            emit({"schema": SCHEMA_VERSION, "trace_id": broken.trace_id, "kept": name, **msgspec.to_builtins(mistake_of(broken))})
        return
    rows = [
        (m.kind, m.agent, m.step, m.event, m.reward_without, m.reward, name)
        for b, name in zip(broken_runs, kept, strict=True)
        if (m := mistake_of(b))
    ]
    click.echo(table(("mistake", "agent", "step", "event", "without", "with", "kept"), rows, right=(2, 4, 5)))
    if len(broken_runs) < samples:
        note(f"{len(broken_runs)} of {samples}: more did not make the run fail (--set harmless=true keeps those too)")


def _settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """The values of --set, checked."""
    out = _SETTINGS | values_of(pairs)
    for name, value in out.items():
        if name not in _SETTINGS:
            raise InputError(f"no setting named {name!r}", where="--set", fix=did_you_mean(name, _SETTINGS))
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and value == value
        if name == "harmless" and not isinstance(value, bool):
            raise InputError(f"harmless is {value!r}", where="--set", fix="true or false")
        if name == "subtlety" and not (is_number and 0 <= value <= 1):
            raise InputError(f"subtlety is {value!r}", where="--set", fix="a number from 0 to 1")
        if name == "success" and value is not None and not is_number:
            raise InputError(f"success is {value!r}", where="--set", fix="a number")
    return out


def _keep(broken: Trace, output: Path | None, store: Path | None) -> str:
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        return str(save(broken, output / f"{broken.trace_id.replace('/', '_')}.jsonl"))
    with open_store(store, create=True) as opened:
        opened.add(broken)
    return broken.trace_id
