"""Change one event of a run and see what comes of it.

Always true: the recorded trace is not touched; with one fork no effect is claimed, an interval needs `--samples`. The samples
pair the run with and without the edit on the same fresh noise after the event. A live team's recording answers every call that is
unchanged; an endpoint is asked only where `--model` names it, and what cannot be undone is done only where `--allow` says so.
In a logged session `--model` answers anew from the event on, after the most that this may take was printed and allowed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from counterpoint.app.api.fork import Forked, log_plan
from counterpoint.app.api.fork import fork as fork_at
from counterpoint.app.cli import _log_forks
from counterpoint.app.forks import edit, is_log, named_model
from counterpoint.app.load_save import about, load, names_file, save
from counterpoint.app.terminal.options import (
    allow_option,
    cap_option,
    caps_of,
    dry_run_option,
    endpoint_of,
    model_options,
    output_option,
    samples_option,
    seed_option,
    team_option,
    yes_option,
)
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import number
from counterpoint.errors import InputError, NotFound
from counterpoint.trace import Trace
from counterpoint.trace.outcome import as_recorded, by_hand
from counterpoint.trace.replay import Do, Insert

HEADING = "Judge"


@click.command(
    epilog="\b\nExamples:\n  counterpoint fork wide_verify-0-reference --at e30 --do delete --samples 16\n"
    "  counterpoint fork run.jsonl --at e2 --decide '{\"spawn\": 2}' -o fork.jsonl --json\n"
    "  counterpoint fork SESSION --at toolu_01 --message 'Run the tests first.' --model anthropic:NAME --cap calls=5\n\n"
    "Exit codes: 0 forked, 2 the event cannot take this edit, 3 no such trace or event, 5 this trace cannot be forked, or "
    "no budget\nwas set."
)
@click.argument("trace")
@click.option("--at", required=True, metavar="EVENT", help="The event to change.")
@click.option(
    "--do", "do_", type=click.Choice(["delete", "redraw", "edit"]),
    help="Delete the event, draw its content again, or edit its text in $EDITOR.",
)  # fmt: skip
@click.option("--substitute", metavar="VALUE", help="Replace its content: JSON, or plain text.")
@click.option("--decide", metavar="JSON", help='Replace the decision, such as {"spawn": 2} or {"stop": true}.')
@click.option("--message", metavar="TEXT", help="Add a message of the user at the event of a live team or a logged session.")
@model_options("The model that answers changed calls of a live team, or anew in a logged session: openai:NAME, anthropic:NAME.")
@click.option("--tools", default="stop", show_default=True, metavar="WHO",
              help="Who answers calls of a logged session that the recording does not: stop, model, python.")  # fmt: skip
@cap_option(*_log_forks.CAPS)
@dry_run_option
@yes_option
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

    In an imported session of an agent, --model answers anew from the event on, with or without a change; calls are answered
    from the recording as long as they are equal (--dry-run prints what the model reads). A fork of a stored trace is stored
    beside it; a fork of a file is written with -o, or stored with --store.
    """
    loaded = load(trace, store=store)
    do = _edit(loaded, at, do_, substitute, decide, live["message"])
    endpoint = endpoint_of(live["base_url"], live["model_pairs"])
    with about(trace):
        if live["is_dry"]:
            return _dry(loaded, at, do, as_json=as_json)
        about_live = {"model": live["model_name"], "allow": live["allow"], "team": live["team"], **endpoint}
        if is_log(loaded) and live["team"] is None:
            about_live = _log_options(loaded, at, do, live, endpoint, as_json=as_json)
        elif live["caps"] or live["tools"] != "stop":
            fix = "a live team's calls are bounded where it is played: counterpoint play --cap"
            raise InputError("--cap and --tools are for logged sessions", where=loaded.trace_id, fix=fix)
        found = fork_at(loaded, at, do, seed=seed, samples=samples, **about_live)
    kept = _keep(found.trace, trace, output, store)
    if as_json:
        emit(_object(found, kept))
    else:
        click.echo(_text(found, kept, by_hand(loaded, "team")))
    return None


def _edit(loaded: Trace, at: str, do: str | None, substitute: str | None, decide: str | None, message: str | None) -> Do | None:
    """The one edit that was asked for; none is needed in a logged session, which another model can answer as it is."""
    if at not in loaded.index:
        raise NotFound(f"no event {at!r}", where=loaded.trace_id, fix="counterpoint show lists events")
    if message is not None:
        if do or substitute is not None or decide is not None:
            raise InputError("one edit at a time", fix="name one of --message, --do, --substitute VALUE and --decide JSON")
        if not is_log(loaded) and not isinstance(loaded.meta.get("team"), dict):
            fix = "--substitute VALUE changes a message that was sent"
            raise InputError("a message can be added to a live team and to a logged session", where="--message", fix=fix)
        return Insert(message)
    if is_log(loaded) and do is None and substitute is None and decide is None:
        return None
    return edit(do, substitute if do != "edit" else _text_from_editor(loaded, at), decide)


def _dry(loaded: Trace, at: str, do: Do | None, *, as_json: bool) -> None:
    if not is_log(loaded):
        fix = "counterpoint show TRACE EVENT --prompt prints what a live team's model was asked"
        raise InputError("--dry-run prints the messages of a logged session", where=loaded.trace_id, fix=fix)
    _log_forks.print_messages(as_recorded(loaded), at, do, as_json=as_json)


def _log_options(
    loaded: Trace, at: str, do: Do | None, live: dict[str, Any], endpoint: dict[str, Any], *, as_json: bool
) -> dict[str, Any]:
    """How a logged session is forked, after the most that it may take was said and allowed."""
    caps = caps_of(live["caps"], _log_forks.CAPS)
    named = {"model_name": live["model_name"], "allow": live["allow"], **endpoint}
    about_log = {"model": named_model(loaded, named), "tools": live["tools"], "cap": caps, "allow": live["allow"]}
    replay = log_plan(as_recorded(loaded), **about_log)
    _log_forks.confirm(replay, as_recorded(loaded), at, do, caps, yes=live["yes"], quiet=as_json)
    return about_log


def _text_from_editor(trace: Trace, at: str) -> str:
    """The event's text as the editor saved it."""
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
    if is_log(trace):
        kept_line = f"kept   {kept}" if kept else "not kept: -o FILE or --store DIR"
        return plain_text("\n".join([*lines, *_log_forks.lines_of(found), kept_line]), keep_lines=True)
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
