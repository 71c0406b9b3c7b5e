"""What a report says, as an answer: spend, failures, waste, what paid off, and how it changes.

Always true: every number comes from the report, and a table that is cut says how many rows it leaves out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from counterpoint.answer import Answer, Section
from counterpoint.app.api.mix import Change
from counterpoint.app.api.report import Pattern, Report, WasteSum
from counterpoint.app.api.sums import Sum
from counterpoint.app.price_file import cost_words
from counterpoint.app.side_words import sides_words
from counterpoint.display import at_least, compact, counted, duration, local_day, local_moment, money, number, percent
from counterpoint.trace.naming import short_model

_LINES, _DAYS = 8, 21


def report_answer(report: Report, recurs: Sequence[Section] = ()) -> Answer:
    """Everything the report says, in order; `recurs` says what recurs."""
    first, last = local_day(report.first), local_day(report.last)
    heading = f"Report: {report.query or 'All traces'}, {first}" + (f" to {last}" if first != last else "")
    sections = [
        _all(report),
        *_waiting(report),
        _spend("Spend by project", "project", report.projects, lambda s: s.name or "(none)"),
        _spend("Spend by model", "model", report.models, lambda s: short_model(s.name) if s.name else "(none)"),
        _days(report),
        *recurs,
        _failures(report),
        _waste(report),
        *_patterns(report),
        _trends(report),
        _spend("The traces that cost most", "trace", report.costliest, lambda s: s.label or s.name or "-"),
    ]
    return Answer(heading, sections)


def _all(report: Report) -> Section:
    total = report.total
    words = [counted(total.traces, "trace"), counted(report.agents, "agent"), f"{_tokens(total)} tokens"]
    words += [cost_words(total.cost_usd, total.unpriced), f"{duration(total.seconds)} in all", counted(total.errors, "error")]
    if report.reward is not None:
        words.append(f"team reward {number(report.reward, 3)} over {counted(report.rewarded, 'trace')}")
    text = " · ".join(words)
    unpriced, unknown = total.unpriced, total.uncounted
    if total.sides and (sides := sides_words(total.sides, total.tokens, total.cost_usd, unpriced=unpriced, unknown=unknown)):
        text += f". Sub-agents: {sides}"
    if total.uncounted:
        who = counted(total.uncounted, "agent or model call has", "agents or model calls have") + " no true count"
        text += f". A plus: there is more, since {who}, or since some have no price"
    if report.outside.traces:
        some, spent = counted(report.outside.traces, "trace"), compact(report.outside.tokens)
        text += f". {some} of these also worked at other times: {spent} tokens, {_money(report.outside)}, in no sum here"
    text += "." if ". " in text else ""
    return Section("In all", text)


def _waiting(report: Report) -> list[Section]:
    """Sessions whose last record is a call without an answer."""
    if not report.waiting:
        return []
    now, shown = time.time(), report.waiting[:_LINES]
    rows = [
        [h.title or h.trace_id, h.agent, h.what + (f" and {h.calls - 1:,} more" if h.calls > 1 else ""), local_moment(h.since),
         duration(None if h.since is None else max(0.0, now - h.since))]
        for h in shown
    ]  # fmt: skip
    words = f"{counted(len(report.waiting), 'trace')} ended in a call without an answer: at work, stuck, or interrupted."
    words += f" {len(report.waiting) - len(shown):,} more: counterpoint ls open." if len(shown) < len(report.waiting) else ""
    return [Section("Open calls", words, ("trace", "agent", "waits for", "since", "for"), rows, (4,))]


def _spend(title: str, what: str, sums: Sequence[Sum], name: Callable[[Sum], str]) -> Section:
    most = max((_weight(s) for s in sums), default=0.0) or 1.0
    shown = sums[:_LINES]
    rows = [[name(s), number(s.traces), _tokens(s), _money(s), duration(s.seconds), number(s.errors)] for s in shown]
    words = f"{len(sums) - len(shown):,} more are not shown." if len(sums) > len(shown) else ""
    head = (what, "traces", "tokens", "cost", "busy" if what == "model" else "time", "errors")
    return Section(title, words, head, rows, (1, 2, 3, 4, 5), [_weight(s) / most for s in shown])


def _weight(s: Sum) -> float:
    return float(s.cost_usd or 0.0) if s.cost_usd is not None else float(s.tokens or 0) / 1e9


def _money(s: Sum) -> str:
    return at_least(money(s.cost_usd), s.unpriced or s.uncounted)


def _tokens(s: Sum) -> str:
    return at_least(compact(s.tokens), s.uncounted)


def _days(report: Report) -> Section:
    """Day by day, the last ones where there are many."""
    days = report.days[-_DAYS:]
    most = max((_weight(s) for s in days), default=0.0) or 1.0
    rows = [[s.name or "(no date)", number(s.traces), _tokens(s), _money(s), duration(s.seconds), number(s.errors)] for s in days]
    words = f"Days of {report.zone}. A trace counts on every day on which it was at work."
    words += f" The last {_DAYS} of {len(report.days):,} days on which anything ran." if len(report.days) > _DAYS else ""
    head = ("day", "traces", "tokens", "cost", "time", "errors")
    return Section("Day by day", words, head, rows, (1, 2, 3, 4, 5), [_weight(s) / most for s in days])


def _failures(report: Report) -> Section:
    total = sum(f.count for f in report.failures)
    if not total:
        return Section("Failures", "Nothing failed.")
    words = f"{counted(total, 'failure')} in {report.failed:,} of {counted(report.total.traces, 'trace')}"
    words += f"; {sum(f.mended for f in report.failures):,} of them in a tool that worked later."
    rows = [[f.tool or "-", f.reason, number(f.count), number(f.traces), number(f.mended)] for f in report.failures[:_LINES]]
    left = len(report.failures) - len(rows)
    words += f" {counted(left, 'more kind')} not shown: counterpoint audit --failures." if left else ""
    most = max(f.count for f in report.failures)
    bars = [f.count / most for f in report.failures[:_LINES]]
    return Section("Failures", words, ("tool", "why", "failures", "traces", "worked later"), rows, (2, 3, 4), bars)


def _waste(report: Report) -> Section:
    """Work that led to nothing, with what it cost at least."""
    found = [w for w in report.waste if w.count]
    unjudged = [f"{w.what} ({w.unjudged:,})" for w in report.waste if w.unjudged]
    judged = f" Cannot be judged in some traces: {'; '.join(unjudged)}." if unjudged else ""
    if not found:
        return Section("Waste", f"None was found.{judged}")
    cost, tokens = sum(w.cost_usd for w in found), sum(w.tokens for w in found)
    spent = f"At least {money(cost)} and {compact(tokens)} tokens went into work that led to nothing."
    words = (spent if cost or tokens else "This work led to nothing; its events carry no tokens of their own.") + judged
    rows = []
    for w in found:
        took = [compact(w.tokens), money(w.cost_usd), duration(w.busy_s)]
        rows.append([w.what, number(w.count), number(w.traces), *took, _example(w)])
    head = ("what", "count", "traces", "tokens", "cost", "busy", "for example")
    return Section("Waste", words, head, rows, (1, 2, 3, 4, 5))


def _example(w: WasteSum) -> str:
    if not w.examples:
        return ""
    first = w.examples[0]
    who = ", ".join([*first["agents"][:2], *first["tools"][:1]])
    return f"{who}: {first['title'] or first['trace_id']}"


def _patterns(report: Report) -> list[Section]:
    """The kinds of sub-agents that cost most and the tools that took longest, and those that were of most use."""
    out = []
    heads = (("sub-agent", "Sub-agents: the largest spend", "Sub-agents: the most useful"),
             ("tool", "Tools: the longest at work", "Tools: the most read"))  # fmt: skip
    for kind, dearest, useful in heads:
        known = [p for p in report.patterns if p.kind == kind]
        if not known:
            continue
        spent = [(p.cost_usd or 0, p.tokens, p.busy_s) if kind == "sub-agent" else (p.busy_s, p.runs) for p in known]
        dear = [p for _, p in sorted(zip(spent, known, strict=True), key=lambda row: row[0], reverse=True)][:_LINES]
        out.append(_pattern_table(dearest, kind, dear, report.useful))
        repeated = [p for p in known if p.useful is not None and p.runs >= 2]
        best = sorted(repeated, key=lambda p: (-(p.useful or 0), (p.cost_usd or 0) / max(p.runs, 1), -p.runs))[:_LINES]
        if best:
            out.append(_pattern_table(useful, kind, best, report.useful))
    return out


def _pattern_table(title: str, kind: str, patterns: Sequence[Pattern], useful: float | None) -> Section:
    is_agent = kind == "sub-agent"
    of_all = "" if useful is None else f"; of all sub-agents at most {percent(useful)}"
    words = (
        "Lines kept: there at the end, of those it wrote. Used: its returns that their reader used, at least. "
        f"Useful: at most this share of its actions, on which the result depends{of_all}."
        if is_agent
        else "Read: results that a later step read."
    )
    # What a call cost stands on the model's step that made it, and is no tool's: a tool has a time only.
    has_reward = any(p.reward is not None for p in patterns)
    head = ["role", "runs", "traces", "tokens", "cost", "busy"] if is_agent else ["tool", "calls", "traces", "busy"]
    head += ["errors", *(["lines kept", "used", "useful"] if is_agent else ["read"]), *(["reward"] if has_reward else [])]
    rows = []
    for p in patterns:
        used = f"{p.used:,} of {p.judged:,}" if p.judged else "-"
        spent = [
            *([compact(p.tokens or None), at_least(money(p.cost_usd), p.unpriced)] if is_agent else []),
            duration(p.busy_s or None),
        ]
        lines = "-" if p.lines is None else f"{p.lines_kept:,} of {p.lines:,}" if p.lines else "0"
        came = [number(p.errors), *([lines] if is_agent else []), used, *([percent(p.useful)] if is_agent else [])]
        came += [number(p.reward, 3)] if has_reward else []
        rows.append([p.name, number(p.runs), number(p.traces), *spent, *came])
    return Section(title, words, head, rows, range(1, len(head)))


UNITS: dict[str, Callable[[float | None], str]] = {
    "cost": money, "cost_usd": money, "tokens": compact, "time": duration, "seconds": duration,
}  # fmt: skip
"""How a figure is written; others as numbers."""


def figure_words(name: str, value: float | None) -> str:
    """A figure as people write it: $1.20, 18.2 k, 4h55, 3.14."""
    return UNITS[name](value) if name in UNITS else number(value, 3)


def change_words(name: str, value: float | None) -> str:
    """A difference of a figure, with its sign; one that rounding made is none."""
    if value is None or value != value:
        return "-"
    text = figure_words(name, abs(value))
    return text if not value or text in ("0", "0 s", "$0.00") else f"{'+' if value > 0 else '-'}{text}"


def change_cells(change: Change, name: str) -> list[str]:
    """Its total before and after, the change, and of what it is made."""
    before, after = change.totals
    share = "" if not before else f" ({'+' if after >= before else ''}{percent((after - before) / abs(before))})"
    size = max(abs(before), abs(after))
    parts = [0.0 if abs(part) <= 1e-9 * size else part for part in (change.count, change.mix, change.alike)]
    whole, *rest = (change_words(name, part) for part in (after - before, *parts))
    return [figure_words(name, before), figure_words(name, after), whole + share, *rest]


MIX_HEAD = ("more traces", "another mix", "traces alike")


def mix_words(changes: Iterable[Change]) -> str:
    """What the parts of a change are, and of how many traces anything can be said about traces alike."""
    every = list(changes)
    one, two = (max(change.common[side] for change in every) for side in (0, 1))
    all_one, all_two = (max(change.traces[side] for change in every) for side in (0, 1))
    return (
        "The change is that of more or fewer traces, plus that of another mix of projects, models and kinds of runs, plus that of"
        f" traces alike: {one:,} of {all_one:,} and {two:,} of {all_two:,} are of a kind that both have."
    )


def _trends(report: Report) -> Section:
    """Totals, earlier and later, what the change is made of, and means per trace."""
    if not report.changes:
        return Section("Trends", "Too few traces to tell: a trend takes four.")
    rows = []
    for name, change in report.changes.items():
        means = [figure_words(name, mean) for mean in change.means]
        cells = change_cells(change, name)
        rows.append([name, *(["-"] * 6 if name == "reward" else cells), *means])  # a sum of rewards means nothing
    counts = [max(change.traces[side] for change in report.changes.values()) for side in (0, 1)]
    words = f"The time before the middle trace began ({counted(counts[0], 'trace')}) and the time from then on ({counts[1]:,}). "
    words += mix_words(report.changes.values())
    head = ("", "earlier", "later", "change", *MIX_HEAD, "per trace", "later")
    return Section("Trends", words, head, rows, range(1, 9))
