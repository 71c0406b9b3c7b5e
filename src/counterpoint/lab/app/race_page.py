"""A race in words: sections for the terminal, the page of one race, and the short page of several.

Always true: a function of the rows, and of which presets bear another method's name: the same rows give the same bytes, and a
number that is printed is one of `judged`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import counterpoint.registry as registry
from counterpoint.answer import Section
from counterpoint.credits.mechanism import FEEDBACK
from counterpoint.display import counted
from counterpoint.lab.bench.intervals import interval_words
from counterpoint.lab.bench.race.judging import CLAIM_SEEDS, SHARES, Against, Overall, Row, Standing, WorldResult, overall
from counterpoint.lab.bench.race.plan import BASELINES, IDLE, OURS, PLANS, PUBLISHED
from counterpoint.lab.bench.race.result import RaceResult
from counterpoint.lab.train.preset import named_preset

_EVEN = 0.05
"""Budgets that differ by more are said to: the limit of `counterpoint compare runs`."""

# -- cells -------------------------------------------------------------------------------------------------------------

HEADER = (
    "rank", "method", "point", "seeds", "final, % of bound", "area, %", *(f"calls to {share} %" for share in SHARES),
    "CPU s", "collapsed", "minus grpo", "minus ours",
)  # fmt: skip


def cells(one: Standing, known: Mapping[str, Any]) -> tuple[str, ...]:
    """One line of a world's table; `known` says what the methods are."""
    is_guessed = bool(known.get(one.method, {}).get("guessed"))
    point = one.point if one.is_ranked or one.point != PUBLISHED else "published, untuned"
    rank = f"{one.rank:g} [{one.rank_low}, {one.rank_high}]" if one.is_ranked else "–"
    return (
        rank, one.method + (" ?" if is_guessed else ""), point,
        str(len(one.seeds)), interval(one.share), interval(one.area), *(_calls(one, share) for share in SHARES),
        f"{one.cpu_s:.0f}", f"{one.collapsed:.0%}", *(difference(one.against.get(b)) for b in BASELINES),
    )  # fmt: skip


def interval(estimate: tuple[float, float | None, float | None]) -> str:
    """A mean with its interval, in percent."""
    return interval_words(*estimate, lambda x: f"{100 * x:.1f}")


def _calls(one: Standing, share: int) -> str:
    median, count = one.calls[share]
    every = "" if count == len(one.seeds) else f" ({count} of {len(one.seeds)})"
    return f"not reached{every}" if median is None else f"{median:,.0f}{every}"


def difference(against: Against | None) -> str:
    """A method minus a baseline, in percent of the bound, and what that establishes."""
    if against is None:
        return "–"
    if against.seeds < 2:
        return f"{100 * against.mean:+.1f} (one seed)"
    verdict = f"p {against.p:.3g}" if against.verdict == "screening" else against.verdict
    return f"{100 * against.mean:+.1f} ({verdict})"


def notes(result: RaceResult, world: WorldResult) -> list[str]:
    """What to know beside the numbers of a world."""
    out = []
    finals = [r for r in result.rows if _is_final(r, world)]
    charged = [r["spent"]["charged"] for r in finals if r["spent"]["charged"] >= world.budget]
    if charged:
        ends = f"a run ends with the update that spends its budget of {world.budget:,}"
        out.append(f"runs were charged {min(charged):,} to {max(charged):,}: {ends}")
    early = [r for r in finals if r["spent"]["charged"] < world.budget]
    if idle := sum(r["collapsed"] for r in early):
        out.append(f"{idle} of {len(finals)} runs ended earlier: {IDLE} updates in a row with under one call an episode")
    if unspent := [r for r in early if not r["collapsed"]]:
        names = ", ".join(dict.fromkeys(r["method"] for r in unspent))
        least = min(r["spent"]["charged"] for r in unspent)
        out.append(f"{len(unspent)} of {len(finals)} runs ({names}) ended with {least:,} or more: their last trial left the rest")
    if charged and max(charged) > (1 + _EVEN) * min(charged):
        out.append(f"these are more than {_EVEN:.0%} apart, because updates are large here: a larger --cap calls evens that out")
    if world.is_screening:
        out.append(f"screening: fewer than {CLAIM_SEEDS} seeds, so no difference is established; p is of one test, not adjusted")
    else:
        open_ = [
            s.method for s in world.standings if any(a.verdict in ("not established", "screening") for a in s.against.values())
        ]
        out += [f"not established against grpo, ours, or both: {', '.join(open_)}"] if open_ else []
    guessed = [s.method for s in world.standings if result.head["methods"].get(s.method, {}).get("guessed")]
    out += [f"? parts of the method are not in its source: {', '.join(dict.fromkeys(guessed))}"] if guessed else []
    out += [f"no result for {method}: {why}" for method, why in world.problems.items()]
    return out


def _is_final(row: Row, world: WorldResult) -> bool:
    return bool(row["phase"] == "final" and row["world"] == world.world and row["status"] == "done")


# -- sections ----------------------------------------------------------------------------------------------------------


def world_section(result: RaceResult, world: WorldResult) -> Section:
    """A world and every line of its table."""
    about = result.head["worlds"].get(world.world, {})
    rules = ", ".join(f"{name} {value / world.bound:.1%}" for name, value in about.get("rules", {}).items())
    first, rest = about.get("about", "")[:1].upper(), about.get("about", "")[1:]
    words = f"{first}{rest}. " if first else ""
    words += f"What it is about: {about['decision']}. " if about.get("decision") else ""
    words += f"Bound {world.bound:.4g} points; best known {world.best_known / world.bound:.1%} of it; budget {world.budget:,}."
    words += f" By hand: {rules}." if rules else ""
    rows = [cells(one, result.head["methods"]) for one in world.standings]
    return Section(world.world, words, HEADER, rows, range(3, 11))


def overview_section(result: RaceResult) -> Section:
    """All worlds together."""
    words = (
        "Methods with a final value in every world, by the mean of their ranks among each other; `may see`: the finest feedback "
        "that a method learns from. A value below 0 is a team that costs more than it earns. The tables of the worlds have the "
        "intervals; with few seeds a rank says little."
    )
    return _overall_section(result, "Over all worlds", words, result.overall)


def _overall_section(result: RaceResult, title: str, words: str, lines: Sequence[Overall]) -> Section:
    head = ("mean rank", "method", "may see", "mean, % of bound", *(f"{w.world}, % (rank)" for w in result.worlds))
    rows = []
    for one in lines:
        about = result.head["methods"].get(one.method, {})
        name = one.method + (" ?" if about.get("guessed") else "")
        by_world = (f"{100 * share:.0f} ({rank:g})" for rank, share in one.worlds.values())
        rows.append((f"{one.rank:.1f}", name, about.get("sees") or "–", f"{100 * one.share:.0f}", *by_world))
    return Section(title, words, head, rows, (0, *range(3, len(head))))


def class_sections(result: RaceResult) -> list[Section]:
    """All worlds together, among methods that may see the same of the result and play no forks, or play some."""
    classes: dict[str, list[str]] = {}
    for name, about in result.head["methods"].items():
        classes.setdefault(about.get("sees") or "", []).append(name)
    levels = [level + forks for level in FEEDBACK for forks in ("", " + forks")]
    out = []
    for level in levels:
        if lines := overall(result.worlds, classes.get(level, ())):
            told = FEEDBACK[level.removesuffix(" + forks")]
            words = f"Told {told}" + ("; alternatives from one state are played." if level.endswith("forks") else ".")
            out.append(_overall_section(result, f"Among those that may see: {level}", words, lines))
    return out


def race_sections(result: RaceResult) -> list[Section]:
    """Everything that a race shows: a table for each world with what to know beside it, then all worlds."""
    out = []
    for world in result.worlds:
        out += [world_section(result, world), Section(lines=[("note", note) for note in notes(result, world)])]
    return [*out, overview_section(result), *class_sections(result)] if len(result.worlds) > 1 else out


def _methods_section(known: Mapping[str, Any]) -> Section:
    head = ("method", "source", "may see", "reward", "unit", "trains", "regime", "not in the source", "tried beside it")
    rows = []
    for name, one in known.items():
        knob = ", ".join(f"{key} {_plain(value)}" for key, value in one["knob"].items())
        source = f"{one['source']} ({one['grade']}){_renamed(name)}"
        row = (name, source, one.get("sees") or "–", " ".join(one["families"]), one["unit"], " ".join(one["trains"]),
               one["regime"], "; ".join(one["guessed"]), knob)  # fmt: skip
        rows.append([str(cell).replace("|", "/") or "–" for cell in row])
    return Section("What each method is", "", head, rows)


def _renamed(name: str) -> str:
    """What to say of a method of ours that has the name of another."""
    why = named_preset(name).renames if name in registry.ids("preset") else ""
    return f"; another method under a known name: {why}" if why else ""


def _plain(value: Any) -> str:
    return ", ".join(f"{k} {_plain(v)}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)


def _table(section: Section, *names: str) -> list[str]:
    """The lines of a section's table in Markdown, or of these columns of it."""
    at = [list(section.head).index(name) for name in names or section.head]
    lines = [f"|{'|'.join(row[i] for i in at)}|" for row in (section.head, *section.rows)]
    return [lines[0], "|" + "---|" * len(at), *lines[1:]]


# -- commands ----------------------------------------------------------------------------------------------------------


def _of_plan(plan: str) -> str:
    """The option that `counterpoint compare methods` needs for a plan, with a space behind it; none for the default."""
    return "" if plan == "screening" else f"--plan {plan} "


def _of_suite(suite: str) -> str:
    """The option that names a suite, likewise."""
    return "" if suite == "core" else f"--suite {suite} "


def released_name(plan: str) -> str:
    """What `counterpoint compare standings` calls the rows of a plan that come with the package."""
    return "released" if plan == "screening" else f"released:{plan}"


def row_command(head: Mapping[str, Any], world: WorldResult, one: Standing) -> str:
    """The command that runs the rows of a line again."""
    plan, suite = head["plan"]["name"], head["suite"]
    first = _of_plan(plan) + _of_suite(suite)
    budget = f"--seeds {len(one.seeds)} --cap calls={world.budget}"
    return f"counterpoint compare methods {one.method} {first}--world {world.world} {budget}"


# -- the page of one race ----------------------------------------------------------------------------------------------

_TUNED = """\
Each method was tuned on {seeds} and other tasks of {worlds}, {budget:,} calls a point: learning rate times 1/3, 1 and 3, as
published and with the one alternative that its file names."""

_TERMS = f"""\
*Final*: the value on held-out tasks when the budget is spent, as a share of the world's bound, with Student's 95 % interval over
training seeds. *Rank*: by the mean; in brackets what paired t-tests leave
open, Holm over all pairs of the world. *Minus grpo*, *minus ours*: paired by seed; exact sign-flip test, Holm over the rows of a
world; a claim needs {CLAIM_SEEDS} seeds. A run ends with the update that spends its budget, or after {IDLE} updates in a row with
under one call an episode. *?*: parts of the method are not in its source. Ours is `{OURS}`, without the wider updates of its own
file. Methods that need votes or an opponent play only in worlds that have them."""

_MORE_TERMS = """\
A run that was charged over a tenth more than its budget is held to what its curve has there. The bound is an expectation over
tasks: on the tasks that were drawn a share may lie above 100 %. *Area*: the mean of the held-out curve over the budget. *Calls to
q %*: what was charged when the curve first reached q % of the best value known in this world (a method's mean or a rule's); the
median over the seeds that did. *Equal*: the whole 95 % interval of the difference lies within 2 % of the bound. *Collapsed*:
share of the seeds that ended calling nobody. Of a grid the point with the largest area under the held-out curve runs, and the
published numbers are a line of their own where others were chosen."""


def _tuning(plan: Mapping[str, Any]) -> str:
    if not plan["tune_budget"]:
        return "Nothing was tuned: published numbers, ours with those of its file."
    seeds, worlds = counted(plan["tune_seeds"], "other seed"), counted(plan["tune_worlds"], "world")
    return _TUNED.format(seeds=seeds, worlds=worlds, budget=plan["tune_budget"])


def markdown(result: RaceResult) -> str:
    """The page of a race: what was run, a table for each world, what the methods are, and what is missing."""
    plan = result.head["plan"]
    title = "Every method, side by side" if plan["name"] == "screening" else f"Methods side by side: plan {plan['name']}"
    parts = [f"# {title}", "", *_opening(result), ""]
    if len(result.worlds) > 1:
        for section in (overview_section(result), *class_sections(result)):
            parts += [*_part(section), ""]
    for world in result.worlds:
        section = world_section(result, world)
        commands = [f"`{row_command(result.head, world, one)}`" for one in world.standings]
        rows = [(*row, command) for row, command in zip(section.rows, commands, strict=True)]
        parts += [*_part(section._replace(head=(*HEADER, "command"), rows=rows)), ""]
        parts += [*(f"- {line}" for line in notes(result, world)), ""]
    parts += [*_part(_methods_section(result.head["methods"])), ""]
    how = f"Plan `{plan['name']}` of suite `{result.head['suite']}`. {_tuning(plan)}"
    parts += ["## How it was run", "", how, "", _TERMS, "", _MORE_TERMS, "", *_short_of(result), ""]
    codes = Counter(r["code"] for r in result.rows if r["phase"] == "final")
    by_code = ", ".join(f"{code} ({count})" for code, count in sorted(codes.items()))
    return "\n".join([*parts, f"Rows: {len(result.rows):,}, of code {by_code}.", ""])


def _part(section: Section) -> list[str]:
    return [f"## {section.title}", "", *([section.words, ""] if section.words else []), *_table(section)]


def _seeds(result: RaceResult) -> list[int]:
    """How many training seeds lines have, in order."""
    return sorted({len(s.seeds) for w in result.worlds for s in w.standings if s.is_ranked}) or [0]


def _opening(result: RaceResult) -> list[str]:
    plan = result.head["plan"]["name"]
    command = f"counterpoint compare standings {released_name(plan)}"
    seeds, budgets = _seeds(result), sorted({w.budget for w in result.worlds})
    of_seeds = f"{seeds[0]} to {seeds[-1]} training seeds" if len(seeds) > 1 else counted(seeds[0], "training seed")
    what = "A screening" if all(w.is_screening for w in result.worlds) else "A comparison"
    return [
        f"{what} of {len(result.head['methods'])} methods that learn networks, in {counted(len(result.worlds), 'world')} whose "
        f"bound is known: {of_seeds} each, {', '.join(f'{b:,}' for b in budgets)} calls and rounds a run, forks, "
        "trials and judges counted. The same seeds and tasks for all, 32 episodes an update, one network.",
        "",
        f"This page is written by `{command} -o FILE.md` from the rows that come with the package; `{command} "
        "METHOD` prints a method's lines, and the command at the end of a line runs its rows again.",
    ]


def _short_of(result: RaceResult) -> list[str]:
    """What the plan asks for and these rows do not have, and the command that runs the rest."""
    plan, fewest = PLANS[result.head["plan"]["name"]], _seeds(result)[0]
    budget = result.head["plan"]["final_budget"]
    out = []
    if fewest < plan.final_seeds or budget < plan.final_budget:
        out.append(
            f"**Not all was run.** The plan asks for {counted(plan.final_seeds, 'seed')} of {plan.final_budget:,}; these rows "
            f"have {fewest} of {budget:,} at the least. `counterpoint compare methods --plan {plan.name}` runs the whole "
            "plan; it continues an interrupted race."
        )
    absent = result.head["absent"]
    return out + ([f"Without a row: {', '.join(absent)}."] if absent else [])


# -- several races on one short page -----------------------------------------------------------------------------------

_OPENING = """\
Methods that learn networks, in [worlds](worlds.md#suites-worlds-that-tell-methods-apart) whose bound is known: the
same seeds and tasks for all, 32 episodes an update, one network,
one budget of calls and rounds with forks, trials and judges counted. `python tools/docs_site.py` writes this page from the rows
that come with the package. `counterpoint compare standings released` prints every line
with its intervals, `--world WORLD` those of a world, a METHOD behind it those of a method, and `-o FILE.md` writes them all."""

_SOURCES = "`counterpoint train presets` has the rewards, the unit of credit, what is trained and the regime of each."

_CLASS = ("mean rank", "method", "mean, % of bound")
"""Columns of a class: its shares by world are those of the table of all methods."""

_SHARES = "Percent of the bound, in brackets the rank; below 0 a team costs more than it earns."


def digest(results: Sequence[RaceResult]) -> str:
    """The short page of races of one suite; those with enough seeds for a claim have a table for each world, too."""
    parts = ["# Methods side by side", "", _OPENING, ""]
    for result in results:
        parts += [*_race(result), ""]
    known = {name: about for result in reversed(results) for name, about in result.head["methods"].items()}
    methods = _methods_section(dict(sorted(known.items())))
    columns = ("method", "source", "may see", "not in the source")
    parts += [_TERMS, "", f"## {methods.title}", "", _SOURCES, "", *_table(methods, *columns), ""]
    return "\n".join(parts)


def _race(result: RaceResult) -> list[str]:
    plan = result.head["plan"]
    about = (
        f"{len(result.head['methods'])} methods, {plan['final_budget']:,} calls and rounds a run, {_seeds(result)[0]} training "
        f"seeds. {_tuning(plan)} `counterpoint compare methods METHOD {_of_plan(plan['name'])}{_of_suite(result.head['suite'])}"
        f"--world all --seeds {_seeds(result)[0]} --cap calls={plan['final_budget']}` runs a method again."
    )
    out = [f"## Plan `{plan['name']}`", "", about]
    if any(world.is_screening for world in result.worlds):
        out += ["", _SHARES, "", *_table(overview_section(result))]
        for section in class_sections(result):
            out += ["", f"### {section.title}", "", section.words, "", *_table(section, *_CLASS)]
    columns = ("rank", "method", "point", "final, % of bound", "minus grpo", "minus ours")
    for world in (world for world in result.worlds if not world.is_screening):
        section = world_section(result, replace(world, standings=tuple(s for s in world.standings if s.is_ranked)))
        out += ["", f"### `{world.world}`", "", *_table(section, *columns)]
    return out
