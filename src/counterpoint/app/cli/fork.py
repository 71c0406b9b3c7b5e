"""Change one event of a run and see what comes of it.

Always true: the recorded trace is not touched; with one fork no effect is claimed, an interval needs `--samples`. The samples
pair the run with and without the edit on the same fresh noise after the event. A live team's recording answers every call that is
unchanged; an endpoint is asked only where `--model` names it, and what cannot be undone is done only where `--allow` says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from counterpoint.app.api.fork import Forked
from counterpoint.app.api.fork import fork as forked_at
from counterpoint.app.forking import edit
from counterpoint.app.load_save import about, load, names_file, save
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import number
from counterpoint.trace import Trace
from counterpoint.trace.outcome import by_hand
from counterpoint.trace.replay import Substitute

HEADING = "Judge"


@click.command(
    epilog="\b\nExamples:\n  counterpoint fork wide_verify-0-reference --at e30 --delete --samples 16\n"
    "  counterpoint fork run.jsonl --at e2 --force '{\"spawn\": 2}' -o fork.jsonl --json\n\n"
    "Exit codes: 0 forked, 2 the event cannot take this edit, 3 no such trace or event, 5 this trace cannot be forked."
)
@click.argument("trace")
@click.option("--at", required=True, metavar="EVENT", help="The event to change.")
@click.option("--delete", "is_deleted", is_flag=True, help="The event never happens.")
@click.option("--substitute", metavar="VALUE", help="It says something else: JSON, or plain text.")
@click.option("--force", metavar="JSON", help='The decision is another one, such as {"spawn": 2} or {"stop": true}.')
@click.option(
    "--do", "do_", type=click.Choice(["delete", "substitute"]), help="delete: as --delete; substitute: draw its content again."
)
@click.option("--edit", "is_edited", is_flag=True, help="Open the event's text in $EDITOR; what is saved is what it says.")
@click.option("--model", "model_name", metavar="NAME", help="Who answers changed calls of a live team: openai:NAME, local:NAME.")
@click.option("--base-url", metavar="URL", help="The endpoint, for --model openai:NAME.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the endpoint's key.")
@click.option(
    "--allow", multiple=True, metavar="NAME", help="Allow this to run: an irreversible tool, or code that the trace names."
)
@click.option("--seed", type=click.IntRange(min=0), help="Draw fresh randomness after the event, not the recorded one.")
@click.option("-n", "--samples", type=click.IntRange(min=2), metavar="K", help="Estimate the effect over K fresh continuations.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the fork here (.jsonl can be forked)."
)
@store_option
@json_option
def fork(
    trace: str,
    at: str,
    is_deleted: bool,
    substitute: str | None,
    force: str | None,
    do_: str | None,
    is_edited: bool,
    seed: int | None,
    samples: int | None,
    output: Path | None,
    store: Path | None,
    as_json: bool,
    **live: Any,
) -> None:
    """Change one event of a simulated or live run and see how it would have gone on.

    A fork of a stored trace is stored beside it; a fork of a file is written with -o, or stored with --store.
    """
    loaded = load(trace, store=store)
    if is_edited:
        substitute = _edited(loaded, at)
    do = Substitute() if do_ == "substitute" else edit(is_deleted or do_ == "delete", substitute, force)
    with about(trace):
        found = forked_at(loaded, at, do, seed=seed, samples=samples, model=live.pop("model_name"), **live)
    kept = _keep(found.trace, trace, output, store)
    if as_json:
        emit(_object(found, kept))
    else:
        click.echo(_text(found, kept, by_hand(loaded, "team")))


def _edited(trace: Trace, at: str) -> str:
    """What the person makes of the event's text."""
    from counterpoint.errors import InputError, NotFound

    if at not in trace.index:
        raise NotFound(f"no event {at!r}", where=trace.trace_id, fix="counterpoint show lists events")
    before = trace.text(trace.events[trace.index[at]]) or ""
    after = click.edit(before, extension=".txt")
    if after is None or after.rstrip("\n") == before.rstrip("\n"):
        raise InputError(
            "nothing was changed", where=at, fix="save another text; --delete, --substitute and --force need no editor"
        )
    return after.rstrip("\n")


def _live_lines(forked: Trace) -> list[str]:
    """Of a live fork: how many model calls were made, and what was held back."""
    about = forked.meta.get("fork")
    if not isinstance(about, dict):
        return []
    calls, held = about["calls"], about["held"]
    tools = sorted({str(e.tool) for e in forked.events if e.key in set(held)})
    wants = "".join(f" --allow {tool}" for tool in tools)
    return [
        f"calls  from recording {calls['recorded']:,} · re-run {calls['re-run']:,} model calls · held {len(held)}"
        + (f" (needs{wants})" if held else "")
    ]


def _keep(forked: Trace, ref: str, output: Path | None, store: Path | None) -> str | None:
    if output is not None:
        return str(save(forked, output))
    if store is None and names_file(ref):
        return None
    with open_store(store, create=True) as opened:
        opened.add(forked)
    return forked.trace_id


def _object(found: Forked, kept: str | None) -> dict[str, Any]:
    trace, forked, blast = found.original, found.trace, found.blast
    team = {"before": trace.rewards.get("team"), "after": forked.rewards.get("team")}
    reach = None
    if blast is not None:
        reach = {"closure": int(blast.closure.sum()), "changed": int(blast.changed.sum()), "held": list(blast.held)}
    return {
        "schema": SCHEMA_VERSION,
        "trace_id": trace.trace_id,
        "fork": forked.trace_id,
        "at": found.at,
        "team": team,
        "effect": found.effect,
        "badges": found.counts,
        "live": forked.meta.get("fork"),
        "reach": reach,
        "first": msgspec.to_builtins(found.diff.first),
        "kept": kept,
    }


def _text(found: Forked, kept: str | None, said: str | None) -> str:
    trace, forked, blast, effect = found.original, found.trace, found.blast, found.effect
    lines = [f"fork {forked.trace_id} at {found.at} of {trace.trace_id}"]
    lines.append(" · ".join(f"{name} {count:,}" for name, count in found.counts.items()))
    lines += _live_lines(forked)
    if blast is not None:
        share = f"{int(blast.closure.sum()):,} of {len(trace.events):,} events could depend on it"
        lines.append(f"reach  {share}, {int(blast.changed.sum()):,} changed")
    before, after = trace.rewards.get("team"), forked.rewards.get("team")
    one = "" if effect else "  (one continuation is no effect; --samples 16 for an interval)"
    lines.append(f"team   {number(before)} -> {number(after)}{one}")
    if said is not None:
        lines.append(f"       both as the run scores itself; {said} is of the run as it was, and is not compared")
    if effect is not None:
        ends = f"95 % {number(effect['low'])} to {number(effect['high'])}"
        lines.append(f"effect {effect['mean']:+.4g}  ({ends}, {effect['samples']} paired samples)")
    lines.append(f"kept   {kept}" if kept else "not kept: -o FILE or --store DIR")
    return plain_text("\n".join(lines), keep_lines=True)
