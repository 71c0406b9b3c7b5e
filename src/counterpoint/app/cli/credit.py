"""Who earned it: credit per unit, by the best mechanism or yours.

Always true: every number stands under the name of its mechanism, and the reason for a choice is printed with it; a row says whose
it is and what was said, the largest first; an estimate has its standard error, a unit without an answer the reason. What forks
may ask of a model is said before any is made.
"""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

import counterpoint.registry as registry
from counterpoint.answer import Section, some
from counterpoint.app.terminal.options import (
    allow_option,
    cap_option,
    caps_of,
    dry_run_option,
    endpoint_of,
    list_option,
    mechanism_option,
    model_options,
    rows_option,
    set_option,
    team_option,
    values_of,
)
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, say
from counterpoint.app.terminal.progress import track
from counterpoint.app.terminal.store import store_option
from counterpoint.display import number
from counterpoint.errors import InputError, NotFound, NotIdentified, Refused, did_you_mean
from counterpoint.trace.vocabulary import UNITS

if TYPE_CHECKING:
    from counterpoint.audits.work.agents import TeamWork
    from counterpoint.credits.row_places import RowPlaces
    from counterpoint.trace import Trace
    from counterpoint.trace.rows import Credit, CreditRow

HEADING = "Judge"

_ROWS = 25
_WIDE = 160
_EXCERPT = 60
_HIDDEN = ("chosen", "passed", "traces", "fix")
"""Notes that are printed in words of their own, or are of single traces."""


@click.command(
    epilog="\b\nExamples:\n  counterpoint credit run-1\n  counterpoint credit run-1 --mechanism provenance,uniform\n"
    "  counterpoint credit wide_verify-0-reference --mechanism message_delete --dry-run\n"
    "  counterpoint credit run-1 run-2 run-3 --mechanism group_relative --json\n\n"
    "Exit codes: 0 fine, 2 usage or unreadable input, 3 not found, 5 not identified, or over the budget."
)
@click.argument("traces", nargs=-1, metavar="TRACE...")
@mechanism_option
@click.option("--unit", help="Print rows of this unit only: agent, message, tool, turn, ...")
@set_option
@rows_option(_ROWS)
@dry_run_option
@cap_option("tokens")
@model_options("The model that answers changed calls of a live team: openai:NAME, local:NAME.")
@allow_option
@team_option
@list_option("List the mechanisms.")
@store_option
@json_option
def credit(
    traces: tuple[str, ...],
    mechanism: str | None,
    pairs: tuple[str, ...],
    is_list: bool,
    is_dry: bool,
    unit: str | None,
    rows: int,
    store: Path | None,
    as_json: bool,
    **live: Any,
) -> None:
    """Show who earned the reward, unit by unit.

    Without --mechanism (or as `best`) the command picks the best one that is identified for the traces, and prints why; several
    mechanisms stand side by side, with the rank correlation of agents. Where none is identified, as for most logs, nobody is
    paid: the table shows what each agent cost and what became of its work.
    """
    if is_list:
        return _list(as_json)
    if not traces:
        raise InputError("no trace was named", fix="counterpoint credit TRACE, or --list")
    from counterpoint.app.api.inputs import expanded, once
    from counterpoint.app.load_save import load

    loaded = once(load(ref, store=store) for ref in track(expanded(traces, store), "traces", quiet=as_json))
    names, options = _names(mechanism), values_of(pairs)
    if is_dry:
        return _dry_run(names, loaded, options, live["team"], as_json)
    if unit is not None and unit not in UNITS:
        raise NotFound(f"there is no unit {unit!r}", where="--unit", fix=did_you_mean(unit, UNITS))
    credits = _credits(names, loaded, options, live | {"unit": unit}, quiet=as_json)
    if credits and unit is not None and credits[0].mechanism != "none":
        _known_unit(unit, credits[0])
    if as_json:
        for one in credits:
            emit(_as_dict(one, unit) | ({"work": _work(loaded, one)} if names == [None] else {}))
        return None
    sections = [section for i, trace in enumerate(loaded) for section in _one_trace(trace, i, credits, unit, rows)]
    sections += _contributions(loaded, credits[0], rows) if names == [None] else []
    say(*sections, *map(_notes, credits))
    return None


def _names(mechanism: str | None) -> list[str | None]:
    """The mechanisms, in order; None stands for the best that is identified."""
    if mechanism is None:
        return [None]
    names = [name.strip() for name in mechanism.split(",") if name.strip()]
    if not names:
        raise InputError("names no mechanism", where="--mechanism", fix="--mechanism shapley,uniform")
    return [None if name == "best" else name for name in dict.fromkeys(names)]


def _credits(
    names: list[str | None], traces: list[Trace], options: dict[str, Any], live: dict[str, Any], *, quiet: bool
) -> list[Credit]:
    """The credit of each mechanism; a note says what forks may cost before they are made."""
    from counterpoint.app.api.credit import asks_model, chosen_credit, credit_of, fork_price, forked_by, with_team

    budget, endpoint = caps_of(live["caps"], {"tokens": int}).get("tokens"), endpoint_of(live["base_url"], live["model_pairs"])
    replay = forked_by(model=live["model_name"], allow=live["allow"], team=live["team"], **endpoint)
    out: list[Credit] = []
    for i, name in enumerate(track(names, "credit", quiet=quiet)):
        own = with_team(name, options if i == 0 else {}, traces, live["team"])
        if name is None:
            best = chosen_credit(traces, own, live["unit"] if len(names) == 1 else None)
            if len(names) > 1 and not best.rows:
                why = next(iter(best.unidentified.values()), "")
                raise NotIdentified(why.removeprefix("not identified: "), "name each mechanism: --mechanism M1,M2")
            out.append(best)
            continue
        if any(map(asks_model, traces)) and (price := fork_price(name, traces, own)) is not None:
            note(f"{name}: {price.words}")
        try:
            out.append(credit_of(name, traces, own, replay=replay, budget_tokens=budget))
        except (Refused, InputError) as error:
            if len(names) == 1 or (i == len(names) - 1 and not out):
                raise
            note(f"{name}: {error.one_line()}")
    return out


def _dry_run(names: list[str | None], traces: list[Trace], options: dict[str, Any], team: Any, as_json: bool) -> None:
    from counterpoint.app.api.credit import asks_model, fork_price, with_team

    is_asking = any(map(asks_model, traces))
    for i, name in enumerate(names):
        if name is None:
            raise InputError(
                "without --mechanism no forks are made, so there is no cost to estimate",
                fix="name the one whose cost you want: --mechanism NAME",
            )
        price = fork_price(name, traces, with_team(name, options if i == 0 else {}, traces, team))
        if as_json:
            emit({"schema": SCHEMA_VERSION, "method": name, "forks": price.forks if price else 0,
                  "tokens": price.tokens if price else 0, "asks_model": price is not None and is_asking})  # fmt: skip
            continue
        cost = "no forks, no model calls"
        if price is not None:
            cost = price.words if is_asking else f"{price.forks:,} forks of a simulated world, no model calls"
        say(Section(words=f"{name}: {cost}"))


def _list(as_json: bool) -> None:
    rows = [(name, registry.get("mechanism", name)) for name in registry.ids("mechanism")]
    if as_json:
        for name, m in rows:
            emit({"method": name, "unit": m.unit, "additive": m.additive, "needs": list(m.needs), "estimand": m.estimand,
                  "assumptions": m.assumptions, "cost": m.cost, "source": m.source, "options": m.options})  # fmt: skip
        return
    about = {n: registry.summary("mechanism", n) for n, _ in rows}
    cells = [(n, m.unit, "yes" if m.additive else "no", " ".join(m.needs) or "-", about[n]) for n, m in rows]
    say(Section(head=("mechanism", "unit", "additive", "needs", "summary"), rows=cells))


def _known_unit(unit: str, credit: Credit) -> None:
    if unit not in credit.units:
        have = ", ".join(credit.units) or "no rows at all"
        raise NotFound(f"{credit.mechanism} gives no {unit} rows here", fix=f"it has: {have}; --list says what the others have")


def _as_dict(one: Credit, unit: str | None) -> dict[str, Any]:
    rows = [r._asdict() | {"trace": one.trace_ids[r.trace]} for r in one.rows if unit in (None, r.unit)]
    refused = [{"trace": one.trace_ids[t], "unit_id": u, "why": why} for (t, u), why in one.unidentified.items()]
    declared = None if one.declared is None else dict(zip(one.trace_ids, one.declared.tolist(), strict=True))
    return {
        "schema": SCHEMA_VERSION,
        "method": None if one.mechanism == "none" else one.mechanism,
        "estimand": one.estimand,
        "additive": one.additive,
        "declared": declared,
        "cost": one.cost._asdict(),
        "notes": dict(one.notes),
        "rows": rows,
        "unidentified": refused,
    }


# -- one trace --------------------------------------------------------------------------------------------------------


def _one_trace(trace: Trace, i: int, credits: list[Credit], unit: str | None, limit: int) -> list[Section]:
    """One trace's credit: why this mechanism, tables by size, what they sum to, what was refused."""
    from counterpoint.credits.row_places import RowPlaces
    from counterpoint.trace.outcome import in_words

    first, places = credits[0], RowPlaces(trace)
    outcomes = [("outcome", words) for words in in_words(trace)]
    if first.mechanism == "none":
        return [Section(words=f"{trace.trace_id}: {first.unidentified[i, '']}", lines=outcomes)]
    reasons = [("chosen", str(first.notes["chosen"]))] if "chosen" in first.notes else []
    sections = [Section(words=f"{trace.trace_id}: by {first.mechanism}, {first.estimand}", lines=[*reasons, *outcomes])]
    for rows in _tables(first, i, unit):
        sections.append(_table(trace, places, rows, [one.of(i) for one in credits[1:]], credits, limit))
    sums = [(one.mechanism, _sum(one, i, unit)) for one in credits]
    cost = f"{first.cost.forks:,} forks, {first.cost.tokens:,} tokens" if first.cost.forks or first.cost.tokens else ""
    alike = [("", words) for words in _correlations(places, credits, i)]
    sections.append(Section(lines=[*sums, *_provenance(first, i), *alike, *([("cost", cost)] if cost else [])]))
    refused = [(u or "team", why) for (t, u), why in first.unidentified.items() if t == i]
    more = f"and {len(refused) - limit:,} more" if limit and len(refused) > limit else ""
    return [*sections, *([Section("not identified", lines=refused[: limit or None], more=more)] if refused else [])]


def _tables(one: Credit, i: int, unit: str | None) -> list[list[CreditRow]]:
    """The rows that are shown: of one unit; else the agents', and the finest unit of an additive mechanism or all others."""
    if unit is not None:
        return [[r for r in one.rows if r.trace == i and r.unit == unit]]
    others = [u for u in one.units if u != "agent"]
    shown = [["agent"] if "agent" in one.units else [], others[-1:] if one.additive else others]
    return [[r for r in one.rows if r.trace == i and r.unit in units] for units in shown if units]


def _table(
    trace: Trace, places: RowPlaces, rows: list[CreditRow], others: list[dict[str, float]], credits: list[Credit], limit: int
) -> Section:
    ordered = sorted(rows, key=lambda r: -abs(r.value))
    has_se = any(r.se is not None for r in ordered)
    head = ["unit", "id", "agent", credits[0].mechanism, *(["se"] if has_se else []), *(c.mechanism for c in credits[1:]), ""]
    cells = []
    for r in ordered[: limit or None]:
        event, agent = places.of(r)
        who = places.team.names[agent] if agent >= 0 else ""
        cells.append([
            r.unit, r.unit_id or "team", who if who != r.unit_id else places.team.role_A[agent] or "", number(r.value),
            *([number(r.se)] if has_se else []), *(number(o.get(r.unit_id)) for o in others),
            _excerpt(trace, places, credits[0], r, event, agent),
        ])  # fmt: skip
    more = f"{len(ordered) - len(cells):,} smaller rows: --rows 0 prints all" if len(cells) < len(ordered) else ""
    return Section(head=head, rows=cells, right=range(3, len(head) - 1), more=more)


def _excerpt(trace: Trace, places: RowPlaces, one: Credit, row: CreditRow, event: int, agent: int) -> str:
    """What was said: the words that the result has from there, the event's text, or the agent's last words."""
    about = one.notes.get("traces") if one.mechanism == "provenance" else None
    if about:
        matched = about[row.trace]["matched"]
        ids = [trace.events[event].id] if event >= 0 else [e for e in matched if places.team.agent_E[trace.index[e]] == agent]
        runs = [run for name in ids for run in matched.get(name, ())]
        return _short(max(runs, key=len)) if runs else ""
    if event >= 0:
        return _short(trace.text(trace.events[event]) or "")
    return _short(_last_words(trace, places, agent)) if agent >= 0 else ""


def _last_words(trace: Trace, places: RowPlaces, agent: int) -> str:
    for i in reversed(places.team.order_E.tolist()):
        event = trace.events[i]
        is_said = event.type in ("message", "return", "aggregate", "orchestrator_decision")
        if is_said and places.team.agent_E[i] == agent and (text := trace.text(event)):
            return text
    return ""


def _short(text: str) -> str:
    words = " ".join(text[: 4 * _EXCERPT].split())
    return words if len(words) <= _EXCERPT else words[: _EXCERPT - 1] + "…"


def _provenance(one: Credit, i: int) -> list[tuple[str, str]]:
    """The parts of a result that provenance gives to nobody, and who is not in it."""
    if one.mechanism != "provenance":
        return []
    about = one.notes["traces"][i]
    words = (
        f"of the {about['words']:,} words of the result ({some(about['result'], 6)}): {about['traced']:.0%} traced to the team, "
        f"{about['printed']:.0%} printed by tools, {about['given']:.0%} given by the user or the system, "
        f"{about['new']:.0%} new in the result, "
        f"{about['unlinked']:.0%} said before by an agent that no recorded edge connects with it"
    )
    lines = [("", words)]
    lines += [("", f"not in the result: {some(about['unused'], 6)}")] if about["unused"] else []
    return lines + ([("", f"read by nobody: {some(about['unread'], 6)}")] if about["unread"] else [])


def _correlations(places: RowPlaces, credits: list[Credit], i: int) -> list[str]:
    """How alike two mechanisms rank the agents."""
    from counterpoint.credits.row_places import rank_correlation

    lines = []
    for a, b in combinations(credits, 2):
        rho, n = rank_correlation(places.by_agent(a, i), places.by_agent(b, i))
        size = "not defined" if rho is None else f"{rho:+.2f}"
        lines.append(f"rank correlation of agents, {a.mechanism} and {b.mechanism}: {size} ({n} agents)")
    return lines


def _notes(one: Credit) -> Section:
    """What to know beside the numbers: who was compared with whom, by which convention, and which mechanisms were not used."""
    words = "" if one.mechanism == "none" else f"{one.mechanism}: {'additive' if one.additive else 'not additive'}"
    lines = [(name, f"is not used: {why}") for name, why in one.notes.get("passed", {}).items()]
    for name, value in one.notes.items():
        if name in _HIDDEN and ("chosen" in one.notes or one.mechanism in ("provenance", "none")):
            continue
        if isinstance(value, dict):  # a unit of one of many traces is named by both
            value = {" ".join(map(str, k)) if isinstance(k, tuple) else str(k): v for k, v in value.items()}
        text = value if isinstance(value, str) else json.dumps(_rounded(value), default=str)
        lines.append((name, text if len(text) <= _WIDE else text[: _WIDE - 1] + "…"))
    return Section(words=words, lines=lines, more=str(one.notes.get("fix", "")))


def _rounded(value: Any) -> Any:
    """Numbers inside as people read them; `--json` has them whole."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _sum(one: Credit, i: int, unit: str | None) -> str:
    units = [u for u in one.units if unit in (None, u)]
    sums = {u: sum(r.value for r in one.rows if r.trace == i and r.unit == u) for u in units}
    text = ", ".join(f"{u} rows sum to {number(v, 6)}" for u, v in sums.items()) or "no rows"
    if one.additive and one.declared is not None:
        text += f"; declared {number(float(one.declared[i]), 6)}, checked to 1e-9"
    return text


# -- what each agent cost and what became of it ----------------------------------------------------------------------


def _each(traces: list[Trace], one: Credit) -> list[TeamWork]:
    from counterpoint.app.contributions import Uncredited, contributions

    return list(one.work) if isinstance(one, Uncredited) else [contributions(trace) for trace in traces]


def _work(traces: list[Trace], one: Credit) -> dict[str, Any]:
    """The same for machines, by trace."""
    return {
        trace.trace_id: {"headline": team.headline, "useful": team.useful, "notes": team.notes, "files": team.files,
                         "agents": [msgspec.to_builtins(row) | {"became": row.became} for row in team.agents]}
        for trace, team in zip(traces, _each(traces, one), strict=True)
    }  # fmt: skip


def _contributions(traces: list[Trace], one: Credit, limit: int) -> list[Section]:
    """What each agent cost and what became of its work."""
    from counterpoint.app.contributions import work_section

    return [work_section(team, limit or None) for team in _each(traces, one)]
