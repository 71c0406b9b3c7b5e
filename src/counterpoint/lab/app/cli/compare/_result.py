"""A comparison of runs as commands print it, and the options of every command that prints one.

Always true: the same comparison prints the same bytes; what is not comparable is said above the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, fitted, table
from counterpoint.app.words import plain_text
from counterpoint.display import number

if TYPE_CHECKING:
    from counterpoint.lab.app.api.compare import RunComparison
    from counterpoint.lab.bench.comparison import Group

_OPTIONS = (
    click.option(
        "--metric", default="value", show_default=True, help="value, agents, rounds, calls, or any list of the evaluations."
    ),
    click.option("--baseline", metavar="LABEL", help="The side that the others are compared with.  [default: the first]"),
    click.option("--ignore-mismatch", is_flag=True, help="Compare what is not comparable, with a warning."),
)


def comparison_options(command: Any) -> Any:
    """What is compared, with which side, and how strictly."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def print_comparison(found: RunComparison, *, as_json: bool) -> None:
    """Print it as JSON or as tables."""
    if as_json:
        return emit({"schema": SCHEMA_VERSION, **found.as_dict()})
    return click.echo(_text(found))


def _text(found: RunComparison) -> str:
    from counterpoint.lab.app.api.compare import joined_reasons

    metric, groups, result = found.metric, found.groups, found.result
    header = (metric, "runs", "mean", "95 % low", "high", "of optimum", "calls/episode", "agents/episode", "calls spent/run")
    rows = [
        (g.label, len(g.runs), *map(number, (e.mean, e.low, e.high)), _percent(found.share_of_optimum(i)), *_means(g))
        for i, (g, e) in enumerate(zip(groups, result.means, strict=True))
    ]
    words = ("better", "worse") if metric == "value" else ("higher", "lower")
    differ = (f"minus {found.baseline.label}", "difference", "95 % low", "high", "p", "p (Holm)", *words, "same")
    cells = [
        [d.label, *(_signed(x) for x in (d.estimate.mean, d.estimate.low, d.estimate.high)), _p(d.estimate.p), _p(d.p_holm)]
        + [str(count) for count in d.counts()]
        for d in result.differences
    ]
    parts = ["\n".join(fitted(f"warning: not comparable: {joined_reasons(found.reasons)}", most=200))] if found.reasons else []
    parts.append("\n".join(fitted(found.heading(), most=200)))
    parts.append(table(header, rows, right=range(1, 9), drop=("agents/episode", "calls/episode", "of optimum")))
    parts.append(table(differ, cells, right=range(1, 9), drop=("same", "p")))
    parts += ["\n".join(line for one in remarks for line in fitted(one, most=200))] if (remarks := found.remarks()) else []
    return "\n\n".join(plain_text(part, keep_lines=True) for part in parts)


def _means(group: Group) -> tuple[str, str, str]:
    return number(group.mean_of("calls"), 3), number(group.mean_of("agents"), 3), f"{group.spending['calls']:,.0f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _p(value: float | None) -> str:
    return "-" if value is None else "<0.0001" if value < 1e-4 else f"{value:.4f}"
