"""What a time against the one before it says, and what becomes of budgets, as sections.

Always true: every number comes from the comparison or the budgets; what cannot be said is said so; a table that is cut says
how many rows it leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence

from counterpoint.answer import Answer, Section
from counterpoint.app.api.budgets import HISTORY_DAYS, LEAST_DAYS, Budget
from counterpoint.app.api.periods import ENOUGH, Figure, Group, PeriodComparison
from counterpoint.app.report_answer import MIX_HEAD, change_cells, change_words, figure_words, mix_words
from counterpoint.display import at_least, counted, local_moment, money, percent, zone
from counterpoint.trace.naming import short_model

_LINES = 8
_FEW = "too few to say"


def compared_answer(told: PeriodComparison) -> Answer:
    """The whole comparison."""
    spans = [f"{local_moment(begin)} to {local_moment(end)}" for begin, end in (told.now, told.before)]
    heading = f"Compared: {told.query or 'All traces'}, {spans[0]} against {spans[1]} ({zone()})"
    sections = [_all(told)]
    if told.groups and told.changes:
        rows = [(name, *change_cells(change, name)) for name, change in told.changes.items()]
        head = ("", "before", "now", "change", *MIX_HEAD)
        sections.append(Section("What the change is made of", mix_words(told.changes.values()), head, rows, range(1, 7)))
    for by, title in (("project", "By project"), ("system", "By system"), ("model", "By model"), ("role", "By role")):
        sections += _by([group for group in told.groups if group.by == by], by, title)
    return Answer(heading, sections)


def _all(told: PeriodComparison) -> Section:
    left = f"Left out, for their time is not known: {counted(told.undated, 'run')}." if told.undated else ""
    every = next((group for group in told.groups if group.by == "all"), None)
    if every is None:
        return Section("In all", " ".join(["Nothing ran in either time.", left]).strip())
    words = f"{every.runs[1]:,} {'run' if every.runs[1] == 1 else 'runs'} now, {every.runs[0]:,} before. "
    words += f"Per run: means over tasks, with a 95 % interval of the change where both sides have {ENOUGH} tasks or more."
    rows = []
    for name, one in every.figures.items():
        means = [figure_words(name, mean) for mean in one.means]
        rows.append([name, *("-" if name == "reward" else cell for cell in _totals(name, one)), *means, _interval(name, one)])
    head = ("", "before", "now", "per run before", "now", "change per run")
    return Section("In all", f"{words} {left}".strip(), head, rows, range(1, 6))


def _totals(name: str, one: Figure) -> list[str]:
    pairs = zip(one.totals, one.is_least, strict=True)
    return [at_least(figure_words(name, total), is_least and total is not None) for total, is_least in pairs]


def _interval(name: str, one: Figure) -> str:
    if one.diff is None or one.low is None:
        return _FEW
    return f"{change_words(name, one.diff)} ({change_words(name, one.low)} to {change_words(name, one.high)})"


def _by(groups: Sequence[Group], by: str, title: str) -> list[Section]:
    if not groups or (len(groups) == 1 and by != "model" and not groups[0].name):
        return []
    shown = groups[:_LINES]
    kept = [name for name in ("cost", "tokens", "time", "errors", "reward") if any(name in g.figures for g in shown)]
    told = "cost" if any(_is_told(g, "cost") for g in shown) else "tokens" if "tokens" in kept else "errors"
    rows = []
    for group in shown:
        name = (short_model(group.name) if by == "model" else group.name) or "(none)"
        cells = [_pair(figure, group.figures.get(figure)) for figure in kept]
        row = [name, f"{group.runs[0]:,} → {group.runs[1]:,}", *cells]
        row += [_interval(figure, one) if (one := group.figures.get(figure)) else _FEW for figure in _judged(told, kept)]
        rows.append(row)
    head = [by, "runs", *("busy" if name == "time" and by not in ("project", "system") else name for name in kept)]
    head += [f"{figure} per run" for figure in _judged(told, kept)]
    more = f"{len(groups) - len(shown):,} more: --json" if len(groups) > len(shown) else ""
    drop = ("time", "busy", "tokens", "errors")
    return [Section(title, head=head, rows=rows, right=range(1, len(head)), drop=drop, more=more)]


def _judged(told: str, kept: Sequence[str]) -> list[str]:
    return [told, *(["reward"] if "reward" in kept else [])]


def _is_told(group: Group, figure: str) -> bool:
    return figure in group.figures and group.figures[figure].diff is not None


def _pair(name: str, one: Figure | None) -> str:
    return "-" if one is None else " → ".join(_totals(name, one))


def budget_words(told: Sequence[Budget]) -> list[str]:
    """A sentence for each budget that is passed, or likely to be."""
    out = []
    for one in told:
        of = f"{one.month}, {_whose(one)}"
        if one.state == "passed":
            out.append(f"The budget of {of} is passed: {money(one.spent)} of {money(one.budget)}.")
        elif one.state == "likely":
            out.append(f"The budget of {of} is likely to be passed: {money(one.forecast)} of {money(one.budget)} at its end.")
    return out


def budget_section(told: Sequence[Budget]) -> Section:
    """Every budget, what is spent of it and what the month will cost."""
    rows = []
    for one in told:
        spent = f"{at_least(money(one.spent), one.is_least)} ({percent(one.spent / one.budget)})"
        ends = "cannot say" if one.forecast is None else money(one.forecast)
        between = "-" if one.low is None else f"{money(one.low)} to {money(one.high)}"
        chance = "-" if one.chance is None else percent(one.chance)
        state = {"passed": "passed", "likely": "likely passed", "kept": "likely kept", "unknown": "-"}[one.state]
        rows.append([_whose(one), money(one.budget), spent, ends, between, chance, state])
    words = " ".join([*budget_words(told), f"Of {told[0].month} ({told[0].zone}), of all that the store holds."])
    if any(one.forecast is None for one in told):
        words += f" A forecast takes {LEAST_DAYS} days with spend among the last {HISTORY_DAYS}."
    head = ("budget", "a month", "spent", "at its end", "in 4 of 5 cases", "passed in", "")
    return Section("Budgets", words, head, rows, (1, 2, 3, 4, 5))


def _whose(one: Budget) -> str:
    return "all projects" if one.project is None else one.project or "(no project)"
