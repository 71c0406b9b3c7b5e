"""What to change in a team: changes of a run, tried and ranked.

Always true: a gain is with the change minus without it, with an interval that holds however often one looks; what cannot be tried
or estimated is refused with what is missing. A model that costs money is asked only within --budget-tokens. Nothing that is
stored is changed; --apply adds a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.selection import select
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import counted, number
from counterpoint.errors import InputError

if TYPE_CHECKING:
    from counterpoint.credits.advice import Advice, Advised
    from counterpoint.trace import Trace

HEADING = "Judge"

_SHOWN = 8
_TITLES = {"task": "for all runs of the task", "run": "in this run alone"}


@click.command(
    epilog="\b\nExamples:\n  counterpoint advise wide_verify-0-serial --budget 400 --scope task\n"
    "  counterpoint advise hunt --kinds merge,width --apply --json\n"
    "  counterpoint advise 'task:T1 failed' --dry-run\n"
    "  counterpoint advise hunt --try-model worker=openai:NAME --dry-run\n\n"
    "Exit codes: 0 advised (also where nothing helps), 2 wrong input, 3 no such trace or event, 5 it cannot be replayed and "
    "too few\nruns of the task are at hand, or it would cost more than --budget-tokens."
)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...|QUERY")
@click.option(
    "--budget", type=click.IntRange(min=4), metavar="N", help="Trials in total (default: 40 per change, 8 for a live team)."
)
@click.option("--scope", type=click.Choice(["all", "task", "run"]), default="all", show_default=True,
              help="Habits for all runs of the task, changes of this run, or both.")  # fmt: skip
@click.option("--kinds", default="", metavar="K1,K2", help="Only these kinds, as in merge,width,stop.")
@click.option("--at", multiple=True, metavar="EVENT", help="Only changes that begin at this event.")
@click.option("--try-model", multiple=True, metavar="ROLE=NAME", help="Try another model for a role, as in worker=openai:NAME.")
@click.option("--say", multiple=True, metavar="TEXT", help="Try telling the lead this at the start.")
@click.option("--rank", type=click.Choice(["gain", "per-cost"]), default="gain", show_default=True,
              help="Order by gain, or by gain per 1,000 tokens.")  # fmt: skip
@click.option("--sure", type=float, default=0.95, show_default=True, help="Confidence of the verdict on each change.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the trials' noise.")
@click.option("--apply", "is_applied", is_flag=True, help="Run once more with the best change made, and keep that run.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="With --apply: write that run here.")
@click.option("--limit", type=click.IntRange(min=0), default=_SHOWN, show_default=True, help="Rows per table; 0 for all.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would be tried and what it costs, and try nothing.")
@click.option("--budget-tokens", type=click.IntRange(min=0), metavar="N", help="Spend at most N tokens on model calls.")
@click.option("--model", metavar="NAME", help="Who answers for a live team: openai:NAME, local:NAME.")
@click.option("--base-url", metavar="URL", help="The endpoint, for --model openai:NAME.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the endpoint's key.")
@click.option("--allow", multiple=True, metavar="NAME", help="Allow this to run: an irreversible tool, or code the trace names.")
@store_option
@json_option
def advise(
    traces: tuple[str, ...], is_applied: bool, output: Path | None, limit: int, is_dry: bool, store: Path | None, as_json: bool,
    **asked: Any,
) -> None:  # fmt: skip
    """Say what to change, ranked by what it gains.

    Changes are dropped, added or reworded messages, spawns, widths, merges, stops and models. Those of a run that can be replayed
    are tried, with and without, until the best is certain or the budget is spent. A log that cannot be replayed is judged by
    other runs of its task (those given, or all in the store), with intervals; with too few of them there is no advice. Of what a
    query finds, the run is advised that earned least among those that can be replayed.
    """
    from counterpoint.app.api.advise import advise as advised
    from counterpoint.app.api.advise import first_of, trials_of

    asked |= {"kinds": _listed(asked["kinds"]), "models": _pairs(asked.pop("try_model"))}
    meant = select(traces, store)
    loaded = list(meant.traces(quiet=as_json))
    if meant.is_query and len(loaded) > 1:
        note(f"{plain_text(meant.words)}: {counted(len(loaded), 'run')}", quiet=as_json)
        loaded = first_of(loaded)
    own = ("kinds", "models", "say", "seed", "model", "base_url", "key_env", "allow", "budget_tokens")
    if is_dry:
        return _dry(loaded[0], trials_of(loaded[0], **{n: asked[n] for n in own}), asked["scope"], as_json=as_json)
    found = advised(loaded, store=store, **asked)
    kept = None
    if is_applied:
        kept = _applied(found, loaded[0], trials_of(loaded[0], **{n: asked[n] for n in own}), output, store)
    if as_json:
        emit(advice_object(found, kept))
    else:
        click.echo(advice_text(found, limit, kept))
    return None


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    out = {}
    for pair in given:
        role, _, name = pair.partition("=")
        if not role or not name:
            raise InputError(f"{pair!r} names no role and model", where="--try-model", fix="as in --try-model worker=openai:NAME")
        out[role] = name
    return out


def _dry(trace: Trace, trials: Any, scope: str, *, as_json: bool) -> None:
    from counterpoint.app.api.advise import price_of
    from counterpoint.app.api.credit import asks_model

    if trials is None:
        told = {"changes": 0, "trials": 0, "tokens": 0, "asks_model": False}
    else:
        trials.changes = [c for c in trials.changes if scope in ("all", c.scope)]
        price = price_of(trials)
        told = {"changes": len(trials.changes), "trials": price.forks, "tokens": price.tokens, "asks_model": asks_model(trace)}
    if as_json:
        emit({"schema": SCHEMA_VERSION, "trace_id": trace.trace_id, **told})
    elif trials is None:
        click.echo(f"{trace.trace_id}: cannot be replayed; other runs of its task would be read, and no model asked")
    else:
        most = f", which may ask a model for up to {told['tokens']:,} tokens" if told["asks_model"] else ", no model calls"
        click.echo(f"{trace.trace_id}: {told['changes']:,} changes, {told['trials']:,} trials at least{most}")
        click.echo("\n".join(plain_text(f"  {c.kind:9} {c.says}") for c in trials.changes))


def _applied(found: Advice, trace: Trace, trials: Any, output: Path | None, store: Path | None) -> str | None:
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


def advice_text(found: Advice, limit: int, kept: str | None) -> str:
    """Advice as text: a table and a certificate for what the changes are for."""
    how = counted(found.trials, "trial") if found.source == "forks" else f"{found.trials:,} runs of the task, nothing replayed"
    parts = [f"{found.trace_id}: {how}"]
    for scope, said in found.certificates.items():
        rows = found.of(scope)
        shown = rows[:limit] if limit else rows
        cells = [
            (r.change.says, number(r.gain), f"{number(r.low)} to {number(r.high)}" if r.trials else "-", r.trials,
             number(r.tokens), number(r.per_cost), r.verdict)
            for r in shown
        ]  # fmt: skip
        head = ("change", "gain", "interval", "trials" if found.source == "forks" else "runs", "tokens", "per 1k", "")
        parts += ["", _TITLES[scope], table(head, cells, right=range(1, 6), drop=("per 1k", "tokens"))]
        parts += [f"{len(rows) - len(shown):,} more: --limit 0 shows all"] if len(shown) < len(rows) else []
        parts.append(plain_text(f"-> {said}"))
    if kept is not None and found.first is not None:
        parts += ["", f"applied: {found.first.change.says}", f"kept   {kept}"]
    return "\n".join(parts)
