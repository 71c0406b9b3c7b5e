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
from counterpoint.app.api.fork import fork as fork_at
from counterpoint.app.forks import edit
from counterpoint.app.load_save import about, load, names_file, save
from counterpoint.app.terminal.options import (
    allow_option,
    endpoint_of,
    model_options,
    output_option,
    samples_option,
    seed_option,
    team_option,
)
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import number
from counterpoint.trace import Trace
from counterpoint.trace.outcome import by_hand

HEADING = "Judge"


@click.command(
    epilog="\b\nExamples:\n  counterpoint fork wide_verify-0-reference --at e30 --do delete --samples 16\n"
    "  counterpoint fork run.jsonl --at e2 --decide '{\"spawn\": 2}' -o fork.jsonl --json\n\n"
    "Exit codes: 0 forked, 2 the event cannot take this edit, 3 no such trace or event, 5 this trace cannot be forked."
)
@click.argument("trace")
@click.option("--at", required=True, metavar="EVENT", help="The event to change.")
@click.option(
    "--do", "do_", type=click.Choice(["delete", "redraw", "edit"]),
    help="Delete the event, draw its content again, or edit its text in $EDITOR.",
)  # fmt: skip
@click.option("--substitute", metavar="VALUE", help="Replace its content: JSON, or plain text.")
@click.option("--decide", metavar="JSON", help='Replace the decision, such as {"spawn": 2} or {"stop": true}.')
@model_options("The model that answers changed calls of a live team: openai:NAME, local:NAME.")
@allow_option
@team_option
@seed_option("Draw fresh randomness after the event, not the recorded one.", default=None)
@samples_option("Estimate the effect over K fresh continuations.", least=2)
@output_option("Write the fork here (.jsonl can be forked).")
@store_option
@json_option
def fork(
    trace: str,
    at: str,
    do_: str | None,
    substitute: str | None,
    decide: str | None,
    seed: int | None,
    samples: int | None,
    output: Path | None,
    store: Path | None,
    as_json: bool,
    **live: Any,
) -> None:
    """Change one event of a simulated or live run and see how it would have continued.

    A fork of a stored trace is stored beside it; a fork of a file is written with -o, or stored with --store.
    """
    loaded = load(trace, store=store)
    do = edit(do_, substitute if do_ != "edit" else _text_from_editor(loaded, at), decide)
    endpoint = endpoint_of(live["base_url"], live["model_pairs"])
    with about(trace):
        about_live = {"model": live["model_name"], "allow": live["allow"], "team": live["team"], **endpoint}
        found = fork_at(loaded, at, do, seed=seed, samples=samples, **about_live)
    kept = _keep(found.trace, trace, output, store)
    if as_json:
        emit(_object(found, kept))
    else:
        click.echo(_text(found, kept, by_hand(loaded, "team")))


def _text_from_editor(trace: Trace, at: str) -> str:
    """The event's text as the editor saved it."""
    from counterpoint.errors import InputError, NotFound

    if at not in trace.index:
        raise NotFound(f"no event {at!r}", where=trace.trace_id, fix="counterpoint show lists events")
    before = trace.text(trace.events[trace.index[at]]) or ""
    after = click.edit(before, extension=".txt")
    if after is None or after.rstrip("\n") == before.rstrip("\n"):
        raise InputError("nothing was changed", where=at, fix="save another text; --substitute needs no editor")
    return after.rstrip("\n")


def _live_lines(forked: Trace) -> list[str]:
    """Of a live fork: how many model calls were made, and what was held back."""
    about = forked.meta.get("fork")
    if not isinstance(about, dict):
        return []
    calls, held = about["calls"], about["held"]
    tools = sorted({str(e.tool) for e in forked.events if e.key in set(held)} | set(held if "tools" in calls else ()))
    anew = [f"{calls['re-run']:,} model calls", *([f"{calls['tools']:,} tool calls"] if "tools" in calls else [])]
    wants = "".join(f" --allow {tool}" for tool in tools)
    return [
        f"calls  from recording {calls['recorded']:,} · re-run {', '.join(anew)} · held {len(held)}"
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
    if "failed" in forked.meta:
        lines.append(f"failed {forked.meta['failed']}")
    if said is not None:
        lines.append(f"       both as the run scores itself; {said} is of the run as it was, and is not compared")
    if effect is not None:
        ends = f"95 % {number(effect['low'])} to {number(effect['high'])}"
        lines.append(f"effect {effect['mean']:+.4g}  ({ends}, {effect['samples']} paired samples)")
    lines.append(f"kept   {kept}" if kept else "not kept: -o FILE or --store DIR")
    return plain_text("\n".join(lines), keep_lines=True)
