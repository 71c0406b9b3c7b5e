"""What to change in a team: changes of a run, tried and ranked.

Always true: a gain is with the change minus without it, with an interval that holds however often one looks; what cannot be tried
or estimated is refused with what is missing. A model that costs money is asked only within --cap tokens=N. Stored traces stay as
they are; --apply adds a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.answer import Section
from counterpoint.app.terminal.options import (
    allow_option,
    cap_option,
    caps_of,
    dry_run_option,
    endpoint_of,
    kind_option,
    model_options,
    output_option,
    rows_option,
    seed_option,
    team_option,
)
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, say
from counterpoint.app.terminal.selection import select
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import counted, number
from counterpoint.errors import InputError

if TYPE_CHECKING:
    from counterpoint.credits.advice import Advice, Advised
    from counterpoint.trace import Trace

HEADING = "Judge"

_ROWS = 8
_TITLES = {"task": "for all runs of the task", "run": "in this run alone"}


@click.command(
    epilog="\b\nExamples:\n  counterpoint advise wide_verify-0-serial --cap trials=400 --scope task\n"
    "  counterpoint advise hunt --kind merge,width --apply --json\n"
    "  counterpoint advise 'task:T1 failed' --dry-run\n"
    "  counterpoint advise hunt --try-model worker=openai:NAME --dry-run\n\n"
    "Exit codes: 0 advised (also where nothing helps), 2 wrong input, 3 no such trace or event, 5 it cannot be replayed and "
    "too few\nruns of the task are at hand, or it would cost more than --cap tokens=N."
)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...|QUERY")
@cap_option("trials (default 40 per change, 8 for a live team)", "tokens")
@click.option("--scope", type=click.Choice(["all", "task", "run"]), default="all", show_default=True,
              help="Habits for all runs of the task, changes of this run, or both.")  # fmt: skip
@kind_option("Try only changes of these kinds, as in merge,width,stop.")
@click.option("--at", multiple=True, metavar="EVENT", help="Try only changes that begin at this event; may be repeated.")
@click.option("--try-model", multiple=True, metavar="ROLE=NAME", help="Try another model for a role, as in worker=openai:NAME.")
@click.option("--message", multiple=True, metavar="TEXT", help="Try a message to the lead at the start; may be repeated.")
@click.option("--sort", type=click.Choice(["gain", "per-cost"]), default="gain", show_default=True,
              help="Order by gain, or by gain per 1,000 tokens.")  # fmt: skip
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Confidence of the verdict on each change.")
@seed_option("Seed of the trials' noise.")
@click.option("--apply", "is_applied", is_flag=True, help="Run once more with the best change, and keep that run.")
@output_option("Write the run of --apply here.")
@rows_option(_ROWS)
@dry_run_option
@model_options("The model that answers for a live team: openai:NAME, local:NAME.")
@allow_option
@team_option
@store_option
@json_option
def advise(
    traces: tuple[str, ...], is_applied: bool, output: Path | None, rows: int, is_dry: bool, store: Path | None, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Propose changes to a team, ranked by their gain.

    Changes drop, add or reword messages, spawns, widths, merges, stops and models. A run that can be replayed is tried with and
    without each, until the best is certain or the budget is spent. A log that cannot be replayed is judged by other runs of its
    task (those named, or all in the store), with intervals; too few of them give no advice. Of a query's runs, the advice is for
    the one that earned least among those that can be replayed.
    """
    from counterpoint.app.api.advise import advise as advise_run
    from counterpoint.app.api.advise import first_of, trials_of

    caps = caps_of(options["caps"], {"trials": int, "tokens": int})
    if caps.get("trials", 4) < 4:
        raise InputError("trials is at least 4", where="--cap", fix="as in --cap trials=40")
    own = {
        "kinds": [kind for kinds in options["kinds"] for kind in _words(kinds)], "models": _pairs(options["try_model"]),
        "say": options["message"], "seed": options["seed"], "model": options["model_name"], "allow": options["allow"],
        "team": options["team"],
        "budget_tokens": caps.get("tokens"), **endpoint_of(options["base_url"], options["model_pairs"]),
    }  # fmt: skip
    selection = select(traces, store)
    loaded = list(selection.traces(quiet=as_json))
    if selection.is_query and len(loaded) > 1:
        note(f"{plain_text(selection.words)}: {counted(len(loaded), 'run')}", quiet=as_json)
        loaded = first_of(loaded)
    if is_dry:
        return _dry(loaded[0], trials_of(loaded[0], **own), options["scope"], as_json=as_json)
    if own["team"] is not None and own["budget_tokens"] is not None:
        _say_price(loaded[0], trials_of(loaded[0], **own), as_json=as_json)
    tuning = {"scope": options["scope"], "at": options["at"], "sure": options["confidence"], "rank": options["sort"]}
    advice = advise_run(loaded, store=store, budget=caps.get("trials"), **tuning, **own)
    kept = _apply(advice, loaded[0], trials_of(loaded[0], **own), output, store) if is_applied else None
    if as_json:
        emit(advice_object(advice, kept))
    else:
        say(*advice_sections(advice, rows, kept))
    return None


def _words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _pairs(values: tuple[str, ...]) -> dict[str, str]:
    out = {}
    for pair in values:
        role, _, name = pair.partition("=")
        if not role or not name:
            raise InputError(f"{pair!r} names no role and model", where="--try-model", fix="as in --try-model worker=openai:NAME")
        out[role] = name
    return out


def _say_price(trace: Trace, trials: Any, *, as_json: bool) -> None:
    """What trying changes of a person's own team takes, before it begins."""
    from counterpoint.app.api.advise import price_of

    price = price_of(trials)
    what = f"{len(trials.changes):,} changes, {price.forks:,} trials at least"
    note(f"{trace.trace_id}: {what}, which may ask a model for up to {price.tokens:,} tokens", quiet=as_json)


def _dry(trace: Trace, trials: Any, scope: str, *, as_json: bool) -> None:
    from counterpoint.app.api.advise import price_of
    from counterpoint.app.api.credit import asks_model

    if trials is None:
        sizes = {"changes": 0, "trials": 0, "tokens": 0, "asks_model": False}
    else:
        trials.changes = [c for c in trials.changes if scope in ("all", c.scope)]
        price = price_of(trials)
        sizes = {"changes": len(trials.changes), "trials": price.forks, "tokens": price.tokens, "asks_model": asks_model(trace)}
    if as_json:
        emit({"schema": SCHEMA_VERSION, "trace_id": trace.trace_id, **sizes})
    elif trials is None:
        say(Section(words=f"{trace.trace_id}: cannot be replayed; other runs of its task would be read, and no model asked"))
    else:
        most = f", which may ask a model for up to {sizes['tokens']:,} tokens" if sizes["asks_model"] else ", no model calls"
        words = f"{trace.trace_id}: {sizes['changes']:,} changes, {sizes['trials']:,} trials at least{most}"
        say(Section(words=words, lines=[(c.kind, c.says) for c in trials.changes]))


def _apply(found: Advice, trace: Trace, trials: Any, output: Path | None, store: Path | None) -> str | None:
    """The id or the file of the run with the first advice; None where there is no advice."""
    from counterpoint.app.api.advise import applied
    from counterpoint.app.load_save import save

    if trials is None:
        raise InputError("a log cannot be run again with a change", where="--apply", fix="follow the advice in the next run")
    if found.first is None:
        return None
    made = applied(trials, found.first)
    if output is not None:
        return str(save(made, output))
    with open_store(store, create=True) as opened:
        opened.add(made)
    return made.trace_id


def _row(row: Advised) -> dict[str, Any]:
    c = row.change
    return {
        "for": c.scope, "kind": c.kind, "change": c.says, "event": c.at or None, "gain": row.gain, "low": row.low,
        "high": row.high, "trials": row.trials, "tokens": row.tokens, "per_1k_tokens": row.per_cost, "verdict": row.verdict,
    }  # fmt: skip


def advice_object(found: Advice, kept: str | None) -> dict[str, Any]:
    """Advice as --json prints it."""
    return {
        "schema": SCHEMA_VERSION,
        "trace_id": found.trace_id,
        "source": found.source,
        "trials": found.trials,
        "certificates": dict(found.certificates),
        "first": None if found.first is None else _row(found.first),
        "advice": [_row(row) for row in found.rows],
        "applied": kept,
    }


def advice_sections(advice: Advice, most: int, applied: str | None) -> list[Section]:
    """Advice for people: a table and a certificate for what the changes are for."""
    is_forks = advice.source == "forks"
    how = counted(advice.trials, "trial") if is_forks else f"{advice.trials:,} runs of the task, nothing replayed"
    sections = [Section(words=f"{advice.trace_id}: {how}")]
    head = ("change", "gain", "interval", "trials" if is_forks else "runs", "tokens", "per 1k", "")
    for scope, certificate in advice.certificates.items():
        rows = advice.of(scope)
        cells = [
            (r.change.says, number(r.gain), f"{number(r.low)} to {number(r.high)}" if r.trials else "-", r.trials,
             number(r.tokens), number(r.per_cost), r.verdict)
            for r in rows[: most or None]
        ]  # fmt: skip
        more = f"{len(rows) - len(cells):,} more: --rows 0 prints all" if len(cells) < len(rows) else ""
        sections.append(
            Section(_TITLES[scope], f"-> {certificate}", head, cells, range(1, 6), drop=("per 1k", "tokens"), more=more)
        )
    if applied is not None and advice.first is not None:
        sections.append(Section(lines=[("applied", advice.first.change.says), ("kept", applied)]))
    return sections
