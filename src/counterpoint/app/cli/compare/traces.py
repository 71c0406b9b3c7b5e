"""Compare two traces event by event, or what queries select.

Always true: nothing is written; two single traces are aligned by their stable keys, and the counts cover every event of both.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from counterpoint.app.cli.compare._diff import print_diff
from counterpoint.app.load_save import load, names_file
from counterpoint.app.search import remarks
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, fitted, json_option, note, table
from counterpoint.app.terminal.selection import single_trace
from counterpoint.app.terminal.store import store_option
from counterpoint.app.words import plain_text
from counterpoint.display import at_least, compact, duration, money, number

if TYPE_CHECKING:
    from counterpoint.app.api.compare_traces import TraceComparison
    from counterpoint.app.api.sums import Sum

_GROUP_ROWS = 8


@click.command(
    epilog="\b\nExamples:\n  counterpoint compare traces run.jsonl fork.jsonl\n"
    "  counterpoint compare traces 'since:14d until:7d' last:7d\n  counterpoint compare traces in:before in:after --json\n\n"
    "Exit codes: 0 compared, 2 not a query, or a trace could not be read, 3 no such trace."
)
@click.argument("sides", nargs=-1, required=True, metavar="TRACE|QUERY TRACE|QUERY...")
@store_option
@json_option
def traces(sides: tuple[str, ...], store: Path | None, as_json: bool) -> None:
    """Compare two traces, such as a run and its fork: the first divergence, and the events that changed, came and went.

    Where a side is a query of `counterpoint ls`, compare what the queries select: totals, what drives their change, and the
    mean of every figure with its interval.
    """
    if len(sides) == 2 and (_are_single(sides, store) or any(names_file(side, store) for side in sides)):
        return print_diff(load(sides[0], store=store), load(sides[1], store=store), as_json=as_json)
    return _print_comparison(sides, store, as_json=as_json)


def _are_single(sides: tuple[str, ...], store: Path | None) -> bool:
    return None not in [single_trace(side, store) for side in sides]


def _print_comparison(queries: tuple[str, ...], store: Path | None, *, as_json: bool) -> None:
    from counterpoint.app.api.compare_traces import compare_traces

    for remark in dict.fromkeys(one for query in queries for one in remarks(query)):
        note(remark)
    comparison = compare_traces(*queries, store=store)
    if as_json:
        sides = dict(zip(comparison.labels, comparison.counts, strict=True))
        return emit({"schema": SCHEMA_VERSION, "sides": sides, "shared": comparison.shared, **_fields(comparison)})
    click.echo("\n\n".join(plain_text(part, keep_lines=True) for part in _text(comparison)))
    if overlap := comparison.remark():
        note(overlap)
    return None


def _fields(comparison: TraceComparison) -> dict[str, Any]:
    """What stands in the JSON beside the sides."""
    groups = {"projects": comparison.projects, "models": comparison.models}
    by = {name: {one: msgspec.to_builtins(sums) for one, sums in rows} for name, rows in groups.items()}
    changes = [{"label": label, "figure": name, **msgspec.to_builtins(change)} for label, name, change in comparison.changes]
    rows = [dataclasses.asdict(row) for row in comparison.rows]
    return {"totals": msgspec.to_builtins(comparison.totals), **by, "changes": changes, "rows": rows}


def _text(comparison: TraceComparison) -> list[str]:
    """Totals, of what their change is made, by project and by model, then means with intervals."""
    from counterpoint.app.report_answer import MIX_HEAD, change_cells, change_words, figure_words, mix_words

    head = ("total of", "traces", "tokens", "cost", "time", "errors")
    sides = [(label, *_sum_cells(total)) for label, total in zip(comparison.labels, comparison.totals, strict=True)]
    parts = [table(head, sides, right=range(1, 6))]
    if comparison.changes:
        first = (f"change from {comparison.labels[0]}", "", "before", "after", "change", *MIX_HEAD)
        made = [(label, name, *change_cells(change, name)) for label, name, change in comparison.changes]
        parts.append(
            "\n".join([table(first, made, right=range(2, 8)), *fitted(mix_words(c for *_, c in comparison.changes), most=130)])
        )
    for what, rows in (("project", comparison.projects), ("model", comparison.models)):
        cells = [
            (one if k == 0 else "", label, *_sum_cells(total))
            for one, sums in rows[:_GROUP_ROWS]
            for k, (label, total) in enumerate(zip(comparison.labels, sums, strict=True))
        ]
        more = [f"… {len(rows) - _GROUP_ROWS:,} more (--json)"] if len(rows) > _GROUP_ROWS else []
        parts.append("\n".join([table((what, "traces of", "traces", *head[2:]), cells, right=range(2, 7)), *more]))
    means = [
        (r.figure, r.label, r.traces, *(figure_words(r.figure, x) for x in (r.mean, r.low, r.high)),
         *(change_words(r.figure, x) for x in (r.diff, r.diff_low, r.diff_high)), r.tasks or "")
        for r in comparison.rows
    ]  # fmt: skip
    header = ("", "traces of", "n", "mean", "95 % low", "high", f"minus {comparison.labels[0]}", "95 % low", "high", "tasks")
    parts.append(
        "\n".join([*fitted(f"Means per trace: {comparison.caption()}", most=130), table(header, means, right=range(2, 10))])
    )
    return parts


def _sum_cells(s: Sum) -> list[str]:
    cost = at_least(money(s.cost_usd), s.unpriced or s.uncounted)
    return [number(s.traces), at_least(compact(s.tokens), s.uncounted), cost, duration(s.seconds), number(s.errors)]
