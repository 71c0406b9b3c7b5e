"""Who earned it: credit per unit by any mechanism, sums checked.

Always true: an additive mechanism's rows are shown with what they sum to; an estimate with its standard error; a unit without an
answer with the reason. A trace of one of our worlds is forked where a mechanism needs it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import counterpoint.registry as registry
from counterpoint.app.cli._dials import options_of
from counterpoint.app.cli._output import SCHEMA_VERSION, emit, json_option, table
from counterpoint.app.cli._store import store_option
from counterpoint.app.words import number
from counterpoint.errors import InputError, NotFound, did_you_mean

if TYPE_CHECKING:
    from counterpoint.trace import Trace
    from counterpoint.trace.rows import Credit, CreditRow

_SHOWN = 25
_WIDE = 160


@click.command(
    epilog="\b\nExamples:\n  counterpoint credit wide_verify-0-reference --method message_delete\n"
    "  counterpoint credit run-1 run-2 run-3 --method group_relative --compare uniform --json\n\n"
    "\b\nExit codes: 0 fine, 2 usage or unreadable input, 3 not found, 5 not identified."
)
@click.argument("traces", nargs=-1, metavar="TRACE...")
@click.option("--method", default="uniform", show_default=True, help="A mechanism of --list, or package.module:object.")
@click.option("--compare", metavar="M2", help="A second mechanism, beside the first.")
@click.option("--unit", help="Show the rows of this unit only.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the mechanism; JSON, or text.")
@click.option("--limit", type=click.IntRange(min=0), default=_SHOWN, show_default=True, help="Rows per trace; 0 for all.")
@click.option("--model", "model_name", metavar="NAME", help="Who answers changed calls of a live team: openai:NAME, local:NAME.")
@click.option("--base-url", metavar="URL", help="The endpoint, for --model openai:NAME.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the endpoint's key.")
@click.option(
    "--allow", multiple=True, metavar="NAME", help="Allow this to run: an irreversible tool, or code that the trace names."
)
@click.option("--list", "listing", is_flag=True, help="List the mechanisms.")
@store_option
@json_option
def credit(
    traces: tuple[str, ...],
    method: str,
    compare: str | None,
    unit: str | None,
    options: tuple[str, ...],
    limit: int,
    listing: bool,
    store: Path | None,
    as_json: bool,
    **live: Any,
) -> None:
    """Say who earned the reward, unit by unit."""
    if listing:
        return _list(as_json)
    if not traces:
        raise InputError("no trace was named", fix="counterpoint credit TRACE, or --list")
    from counterpoint.app.api.credit import credit_of, forked_by
    from counterpoint.app.library import load

    loaded = [load(ref, store=store) for ref in traces]
    replay = forked_by(model=live.pop("model_name"), **live)
    found = [
        credit_of(name, loaded, options_of(options if i == 0 else ()), replay=replay)
        for i, name in enumerate([method, *([compare] if compare else [])])
    ]
    if unit is not None:
        _known_unit(unit, found[0])
    if as_json:
        for one in found:
            emit(_as_dict(one, unit))
        return None
    for i, trace in enumerate(loaded):
        click.echo(_shown(trace, i, found, unit, limit))
    for one in found:
        click.echo(_notes(one))
    return None


def _list(as_json: bool) -> None:
    rows = [(name, registry.get("credit", name)) for name in registry.ids("credit")]
    if as_json:
        for name, m in rows:
            emit({"method": name, "unit": m.unit, "additive": m.additive, "needs": list(m.needs), "estimand": m.estimand,
                  "assumptions": m.assumptions, "cost": m.cost, "source": m.source, "options": m.options})  # fmt: skip
        return
    cells = [(n, m.unit, "yes" if m.additive else "no", " ".join(m.needs) or "-", registry.summary("credit", n)) for n, m in rows]
    click.echo(table(("method", "unit", "additive", "needs", "summary"), cells))


def _known_unit(unit: str, found: Credit) -> None:
    if unit not in found.units:
        have = ", ".join(found.units) or "none"
        raise NotFound(
            f"{found.mechanism} gives no {unit} rows here",
            fix=did_you_mean(unit, found.units) if have == "none" else f"it has: {have}",
        )


def _as_dict(one: Credit, unit: str | None) -> dict[str, Any]:
    rows = [r._asdict() | {"trace": one.trace_ids[r.trace]} for r in one.rows if unit in (None, r.unit)]
    refused = [{"trace": one.trace_ids[t], "unit_id": u, "why": why} for (t, u), why in one.unidentified.items()]
    declared = None if one.declared is None else dict(zip(one.trace_ids, one.declared.tolist(), strict=True))
    return {
        "schema": SCHEMA_VERSION,
        "method": one.mechanism,
        "estimand": one.estimand,
        "additive": one.additive,
        "declared": declared,
        "cost": one.cost._asdict(),
        "notes": dict(one.notes),
        "rows": rows,
        "unidentified": refused,
    }


def _shown(trace: Trace, i: int, found: list[Credit], unit: str | None, limit: int) -> str:
    """One trace's credit as text: a table, what it sums to, what was refused."""
    first = found[0]
    rows = [r for r in first.rows if r.trace == i and unit in (None, r.unit)]
    parts = [f"{trace.trace_id}: {first.mechanism}, {first.estimand}"]
    parts.append(_table(rows, [one.of(i) for one in found[1:]], found, limit))
    parts += [_sum(one, i, unit) for one in found]
    refused = [(u, why) for (t, u), why in first.unidentified.items() if t == i]
    if refused:
        parts.append("not identified")
        parts += [f"  {u or 'team'}: {why}" for u, why in refused[: limit or None]]
        if limit and len(refused) > limit:
            parts.append(f"  and {len(refused) - limit:,} more")
    if first.cost.forks or first.cost.tokens:
        parts.append(f"cost: {first.cost.forks:,} forks, {first.cost.tokens:,} tokens")
    return "\n".join(parts) + "\n"


def _table(rows: list[CreditRow], others: list[dict[str, float]], found: list[Credit], limit: int) -> str:
    ordered = sorted(rows, key=lambda r: -abs(r.value))
    shown = ordered[:limit] if limit else ordered
    header = ["unit", "id", "credit", "se", *(one.mechanism for one in found[1:])]
    cells = [
        [r.unit, r.unit_id or "team", number(r.value), number(r.se), *(number(o.get(r.unit_id)) for o in others)] for r in shown
    ]
    text = table(header, cells, right=tuple(range(2, len(header))))
    return text + (f"\n{len(ordered) - len(shown):,} smaller rows: --limit 0 shows all" if len(shown) < len(ordered) else "")


def _notes(one: Credit) -> str:
    """What to know beside the numbers: who was compared with whom, and by which convention."""
    lines = [f"{one.mechanism}: {'additive' if one.additive else 'not additive'}"]
    for name, value in one.notes.items():
        if isinstance(value, dict):  # a unit of one of many traces is named by both
            value = {" ".join(map(str, k)) if isinstance(k, tuple) else str(k): v for k, v in value.items()}
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        lines.append(f"  {name}: {text if len(text) <= _WIDE else text[: _WIDE - 1] + '…'}")
    return "\n".join(lines)


def _sum(one: Credit, i: int, unit: str | None) -> str:
    units = [u for u in one.units if unit in (None, u)]
    sums = {u: sum(r.value for r in one.rows if r.trace == i and r.unit == u) for u in units}
    text = f"{one.mechanism}: " + (", ".join(f"{u} rows sum to {number(v, 6)}" for u, v in sums.items()) or "no rows")
    if one.additive and one.declared is not None:
        text += f"; declared {number(float(one.declared[i]), 6)}, checked to 1e-9"
    return text
