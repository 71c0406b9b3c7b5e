"""Who broke it: the steps of a failed run, ranked, with causes.

Always true: nothing is stored and no model is asked, except by `--replay` and `--repair` of a live team, within `--cap tokens=N`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from counterpoint.answer import Section
from counterpoint.app.blame_answer import run_sections
from counterpoint.app.terminal.options import (
    allow_option,
    cap_option,
    caps_of,
    endpoint_of,
    model_options,
    most_rows,
    rows_option,
    samples_option,
    seed_option,
    success_option,
    summary_option,
    team_option,
)
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, say
from counterpoint.app.terminal.progress import track
from counterpoint.app.terminal.selection import select
from counterpoint.app.terminal.store import store_option
from counterpoint.audits.blame.reasons import FAMILIES
from counterpoint.audits.blame.repair import Repair
from counterpoint.display import counted
from counterpoint.errors import InputError

if TYPE_CHECKING:
    from counterpoint.app.api.blame import Blamed
    from counterpoint.trace import Trace

HEADING = "Judge"

_ROWS = 5


@click.command(
    epilog="\b\nExamples:\n  counterpoint blame 3f2a\n  counterpoint blame run.json --json --rows 3\n"
    "  counterpoint blame 'project:shop since:7d'\n  counterpoint blame hunt --replay --store live\n"
    "  counterpoint blame hunt --repair --samples 4 --store live\n\n"
    "Exit codes: 0 ranked, 2 a wrong option, 3 no such trace, 5 the run succeeded, nothing says it failed, or no redo."
)
@click.argument("words", nargs=-1, metavar="[TRACE|QUERY]")
@rows_option(None, f"Print this many suspects of a run; 0 for all (default: {_ROWS}, in --json 20).")
@success_option
@click.option("--all", "is_all", is_flag=True, help="Rank also runs that succeeded, state no outcome or have no clear step.")
@summary_option("Print only the causes that recur over the runs, and how often.")
@click.option("--surprise", metavar="MODEL", help="Score how odd each text is with local weights of `counterpoint models`.")
@click.option("--replay", "is_replay", is_flag=True, help="Find the decisive step by forks of a world's trace or a live team's.")
@click.option("--repair", "is_repair", is_flag=True, help="Go back to the named step with advice; compare with a random and the "
              "last step and plain retries.")
@samples_option("Forks of a live team per step that --replay tries; plain retries of --repair, whose calls each arm has.", 2)
@seed_option("Seed of the forks' draws.")
@cap_option("tokens")
@model_options("The model that answers changed calls of a live team: openai:NAME, local:NAME.")
@allow_option
@team_option
@store_option
@json_option
def blame(
    words: tuple[str, ...],
    rows: int | None,
    success: float,
    is_all: bool,
    is_summary: bool,
    surprise: str | None,
    is_replay: bool,
    is_repair: bool,
    store: Path | None,
    as_json: bool,
    **replay: Any,
) -> None:
    """Show which step of a failed run may have decided it, whose it is, and why; where none stands out, what failed.

    TRACE is a file or an id; QUERY is what `ls` takes. Shares are over the steps of the run; the verdict says how often first
    suspects were right on labelled runs of its kind. Over many runs it also shows the causes that recur. In --json each suspect
    is a line with `agent`, `step` (the entry in the source's conversation, else the place among the events) and `score`.
    """
    from counterpoint.app.api.blame import collected, judged, with_forks

    which = select(words, store)
    again = "--replay" if is_replay else "--repair" if is_repair else None
    if again and len(which) != 1:
        raise InputError(f"{again} is about one trace, not {len(which)}", fix="name one")
    most = most_rows(rows, 20 if as_json else _ROWS)
    kept = None if again or most is None else max(most, 1 if as_json or rows is not None else 10)
    one_by_one = judged(which.traces(quiet=as_json), bar=success, anyway=is_all, most=kept, surprise=surprise)
    result = collected(track(one_by_one, "judging runs", total=len(which), quiet=as_json))
    if again:
        _say_price(result.found[0][0], replay["samples"], as_json, is_replay, is_repair)
        about = {"bar": success, **_replay_options(replay)}
        result = with_forks(result, limit=most, is_decisive=is_replay, is_repair=is_repair, **about)
    if as_json:
        for row in map(msgspec.to_builtins, result.causes()) if is_summary else result.as_dicts():
            emit({"schema": SCHEMA_VERSION, **row})
    elif len(which) == 1:
        say(*run_sections(*result.found[0], result.decisive, most, is_all=is_all), *_repaired(result.repair))
    else:
        say(*_many(result, most_rows(rows, 20), is_summary))


def _replay_options(options: dict[str, Any]) -> dict[str, Any]:
    budget = caps_of(options["caps"], {"tokens": int}).get("tokens")
    endpoint = endpoint_of(options["base_url"], options["model_pairs"])
    about = {"draws": options["samples"], "seed": options["seed"], "allow": options["allow"], "team": options["team"]}
    return {**about, "budget_tokens": budget, "model": options["model_name"], **endpoint}


def _say_price(trace: Trace, draws: int, as_json: bool, is_replay: bool, is_repair: bool) -> None:
    from counterpoint.app.api.blame import repair_price, search_price
    from counterpoint.app.api.credit import asks_model

    if asks_model(trace):
        for price in [search_price] * is_replay + [repair_price] * is_repair:
            note(f"at most {price(trace, draws).words}", quiet=as_json)


def _repaired(repair: Repair | None) -> list[Section]:
    """The arms of a repair, each with how often it mended the run and at what price."""
    if repair is None:
        return []
    rows = []
    for arm in repair.arms:
        low, high = arm.ends
        where = ", ".join(dict.fromkeys(f"{one.event} {one.agent}" for one in arm.tries[:3]))
        ends = f"{low:.0%} to {high:.0%}" if arm.tries else "-"
        rows.append((arm.name, where, f"{arm.successes} of {len(arm.tries)}", ends, f"{arm.calls + arm.cut:,}"))
    head = ("go back to", "where", "mended", "95 %", repair.unit)
    is_told = any(one.is_told for arm in repair.arms for one in arm.tries)
    lines = [("advice", repair.advice if is_told else "none: nobody could be told anything there")]
    return [Section(words=f"repair  {repair.words}", head=head, rows=rows, right=(2, 4)), Section(lines=lines)]


def _many(result: Blamed, most: int | None, is_summary: bool) -> list[Section]:
    """Many runs for people: what recurs, then each run's first suspect."""
    rows = [(c.words, c.who, c.runs, c.expected, c.reason, f"{c.trace_id} {c.event}") for c in result.causes()[:most]]
    sections = [Section(head=("cause", "of", "runs", "expected", "such as", "in"), rows=rows, right=(2, 3))]
    if not is_summary:
        firsts = [(b, b.suspects[0]) for b in result.runs if b.stands_out]
        cells = [(b.trace_id, s.step, s.name, f"{s.score:.0%}", FAMILIES[b.cause], s.text or "") for b, s in firsts[:most]]
        more = f"… {len(firsts) - len(cells):,} more runs (--rows)" if len(firsts) > len(cells) else ""
        head = ("trace", "step", "agent", "score", "cause", "text")
        sections.append(Section(head=head, rows=cells, right=(1, 3), more=more))
    unclear = sum(not one.stands_out for one in result.runs)
    words = f"{counted(len(result.runs), 'run')} judged{f', {unclear:,} in which no step stands out' if unclear else ''}"
    words += f", {len(result.refused):,} left out: {result.refused[0][1].what}" if result.refused else ""
    return [*sections, Section(words=words)]
