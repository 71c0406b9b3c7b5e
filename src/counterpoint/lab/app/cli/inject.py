"""Plant a mistake in a run that went well, and keep the truth.

Always true: the run given is not changed; each mistake is one fork of it, so the run without the mistake is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from counterpoint.app.load_save import load, names_file, save
from counterpoint.app.terminal.options import NumberRange
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.mistake import MISTAKES, mistake_of


@click.command(
    epilog="\b\nExamples:\n  counterpoint inject hunt --kind wrong_fact --subtlety 0.8 --store live\n"
    "  counterpoint inject run.jsonl -n 5 --seed 3 -o broken --json\n\n"
    "Exit codes: 0 planted, 2 a wrong option, 3 no such trace, 5 this run cannot be forked, or no mistake makes it fail."
)
@click.argument("trace")
@click.option(
    "--kind", "kinds", multiple=True, metavar="KIND", help=f"One of {', '.join(MISTAKES)}; may be repeated (default: all)."
)
@click.option(
    "-n", "--count", type=click.IntRange(min=1), default=1, show_default=True, help="How many runs with one mistake each."
)
@click.option(
    "--subtlety",
    type=NumberRange(0, 1),
    default=0.5,
    show_default=True,
    help="How hard the mistake is to see: 0 easy, 1 hard.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Draws the kind, the place and the change."
)
@click.option("--harmless", is_flag=True, help="Also keep mistakes that do not make the run fail.")
@click.option("--success", "bar", type=float, help="The team reward from which a run is a success (default: what the run got).")
@click.option("--model", "model_name", metavar="NAME", help="Who answers changed calls of a live team, as in fork.")
@click.option("--base-url", metavar="URL", help="The endpoint, for --model openai:NAME.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the endpoint's key.")
@click.option("--allow", multiple=True, metavar="NAME", help="Allow this to run, as in fork.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help="Write the runs here, as .jsonl files.")
@store_option
@json_option
def inject(
    trace: str,
    kinds: tuple[str, ...],
    count: int,
    subtlety: float,
    seed: int,
    harmless: bool,
    bar: float | None,
    output: Path | None,
    store: Path | None,
    as_json: bool,
    **live: Any,
) -> None:
    """Plant one mistake in a run that can be forked, let the team react, and keep that run with the truth.

    The truth (what, when, whose, and how the run ends with and without it) is in the new trace's `meta`, which `blame` never
    reads. A stored run's copies are stored beside it; a file's are written with -o, or stored with --store.
    """
    from counterpoint.app.api.blame import as_scored_by
    from counterpoint.app.forks import named_model, replay_for
    from counterpoint.audits.blame.injecting import inject as planted

    loaded = load(trace, store=store)
    if output is None and store is None and names_file(trace):
        raise InputError("there is no place to keep the runs", where=trace, fix="-o DIR, or --store DIR")
    replay = replay_for(loaded, model=named_model(loaded, live), allow=live["allow"])
    loaded = as_scored_by(replay, loaded)
    found = list(
        planted(
            loaded, replay, kinds=kinds or MISTAKES, count=count, seed=seed, subtlety=subtlety, bar=bar, is_decisive=not harmless
        )
    )
    if not found:
        fix = "--harmless keeps mistakes that change nothing; another --kind, --seed or a smaller --subtlety"
        raise NotIdentified("no mistake that was tried makes this run fail", fix, where=loaded.trace_id)
    kept = [_keep(broken, output, store) for broken in found]
    if as_json:
        for broken, name in zip(found, kept, strict=True):
            emit({"schema": SCHEMA_VERSION, "trace_id": broken.trace_id, "kept": name, **msgspec.to_builtins(mistake_of(broken))})
        return
    rows = [
        (m.kind, m.agent, m.step, m.event, m.reward_without, m.reward, name)
        for b, name in zip(found, kept, strict=True)
        if (m := mistake_of(b))
    ]
    click.echo(table(("mistake", "agent", "step", "event", "without", "with", "kept"), rows, right=(2, 4, 5)))
    if len(found) < count:
        note(f"{len(found)} of {count}: more did not make the run fail (--harmless keeps those too)")


def _keep(broken: Trace, output: Path | None, store: Path | None) -> str:
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        return str(save(broken, output / f"{broken.trace_id.replace('/', '_')}.jsonl"))
    with open_store(store, create=True) as opened:
        opened.add(broken)
    return broken.trace_id
