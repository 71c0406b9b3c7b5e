"""A race as a table in Markdown, and the record that the table, the command and the viewer print from.

Always true: a function of the rows alone: the same rows give the same bytes, and a number that is printed is one of `judged`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.errors import InputError
from counterpoint.lab.bench.race.judging import CLAIM_SEEDS, SHARES, Against, Overall, Row, Standing, WorldResult, judged, overall
from counterpoint.lab.bench.race.plan import BASELINES, IDLE, OURS, PLANS, PUBLISHED, about, methods, world_about
from counterpoint.lab.bench.race.rows import read_rows
from counterpoint.lab.worlds.teamworld.suites import SUITES


@dataclass(frozen=True)
class RaceResult:
    """A race: what its rows have in common, what its methods are, and what each world shows."""

    head: Mapping[str, Any]
    """With `methods` and `worlds`: what they are, by name; and `absent`: methods without a row."""
    rows: tuple[Row, ...]
    worlds: tuple[WorldResult, ...]
    overall: tuple[Overall, ...]
    """Over all its worlds."""

    @property
    def failures(self) -> dict[str, str]:
        """Methods with a failed row, and the first error of each."""
        return {r["method"]: r["error"] for r in reversed(self.rows) if r["status"] == "failed"}

    def only(self, names: Sequence[str], worlds: Sequence[str] = ()) -> RaceResult:
        """The same with some lines only; ranks and tests are still those of all rows."""
        wanted = {name.replace("-", "_") for name in names}
        missing = wanted - {r["method"] for r in self.rows} | set(worlds) - {w.world for w in self.worlds}
        if missing:
            raise InputError(f"there is no row of {min(missing)!r}", fix="counterpoint compare standings prints what there is")
        some = tuple(w for w in self.worlds if not worlds or w.world in worlds)
        kept = tuple(
            WorldResult(
                w.world, w.bound, w.budget, w.best_known, tuple(s for s in w.standings if not wanted or s.method in wanted),
                {m: why for m, why in w.problems.items() if not wanted or m in wanted},
                {m: c for m, c in w.curves.items() if not wanted or m in wanted},
            )
            for w in some
        )  # fmt: skip
        return RaceResult(self.head, self.rows, kept, tuple(o for o in overall(some) if not wanted or o.method in wanted))


def result_of(path: Path) -> RaceResult:
    """The result of a race in a folder, or in a file of rows."""
    head, found = read_rows(path)
    rows = current(found)
    head = described(head, rows)
    places = {name: place for place, name in enumerate(head["worlds"])}
    rows = sorted(rows, key=lambda row: places[row["world"]])
    rules = {name: world["rules"] for name, world in head["worlds"].items()}
    worlds = tuple(judged(rows, rules, BASELINES))
    return RaceResult(head, tuple(rows), worlds, tuple(overall(worlds)))


def current(rows: Sequence[Row]) -> list[Row]:
    """The rows of each world's newest parameters and of each method's newest recipe: older ones are not mixed with new ones."""
    return _newest(_newest(rows, "course", ("world", "phase")), "recipe", ("method", "point", "budget"))


def _newest(rows: Sequence[Row], what: str, within: Sequence[str]) -> list[Row]:
    found: dict[tuple[Any, ...], tuple[float, str]] = {}
    for row in rows:
        key, told = tuple(row[name] for name in within), (row.get("ended", 0), row.get(what, ""))
        found[key] = max(found.get(key, told), told)
    return [row for row in rows if found[tuple(row[name] for name in within)][1] == row.get(what, "")]


def described(head: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """The head, with what its methods and worlds are, where it does not say so itself."""
    order = [world.name for world in SUITES.get(head["suite"], ())]
    named = sorted({r["world"] for r in rows}, key=lambda name: (order.index(name) if name in order else len(order), name))
    known = head.get("methods") or {name: about(name) for name in sorted({r["method"] for r in rows})}
    worlds = head.get("worlds") or {name: world_about(head["suite"], name) for name in named}
    absent = head["absent"] if "absent" in head else [m.name for m in methods() if m.name not in known]
    return {**head, "methods": known, "worlds": worlds, "absent": absent}


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


def interval(found: tuple[float, float | None, float | None]) -> str:
    """A mean with its interval, in percent."""
    mean, low, high = found
    return f"{100 * mean:.1f}" + ("" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]")


def _calls(one: Standing, share: int) -> str:
    found, count = one.calls[share]
    every = "" if count == len(one.seeds) else f" ({count} of {len(one.seeds)})"
    return f"not reached{every}" if found is None else f"{found:,.0f}{every}"


def difference(found: Against | None) -> str:
    """A method minus a baseline, in percent of the bound, and what that establishes."""
    if found is None:
        return "–"
    if found.seeds < 2:
        return f"{100 * found.mean:+.1f} (one seed)"
    verdict = f"p {found.p:.3g}" if found.verdict == "screening" else found.verdict
    return f"{100 * found.mean:+.1f} ({verdict})"


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


# -- the page ----------------------------------------------------------------------------------------------------------


def markdown(result: RaceResult) -> str:
    """The page of a race: what was run, a table for each world, what the methods are, and what is missing."""
    head, plan = result.head, result.head["plan"]
    finals = [r for r in result.rows if r["phase"] == "final"]
    title = "Every method, side by side" if plan["name"] == "screening" else f"Methods side by side: plan {plan['name']}"
    parts = [f"# {title}", "", *_opening(result), ""]
    if len(result.worlds) > 1:
        parts += [*_overview_part(result), ""]
    for world in result.worlds:
        parts += [*_world_part(result, world), ""]
    parts += ["## What each method is", "", *_methods_part(result), ""]
    parts += ["## How it was run", "", *_how(plan, head), "", *_short_of(result), ""]
    codes = Counter(r["code"] for r in finals)
    parts += [
        f"Rows: {len(result.rows):,}, of code {', '.join(f'{code} ({count})' for code, count in sorted(codes.items()))}.",
        "",
    ]
    return "\n".join(parts)


def _opening(result: RaceResult) -> list[str]:
    plan = result.head["plan"]["name"]
    command = f"counterpoint compare standings {released_name(plan)}"
    seeds = sorted({len(s.seeds) for w in result.worlds for s in w.standings if s.is_ranked})
    budgets = sorted({w.budget for w in result.worlds})
    of_seeds = _count(seeds[0] if seeds else 0, "training seed")
    of_seeds = f"{seeds[0]} to {seeds[-1]} training seeds" if len(seeds) > 1 else of_seeds
    what = "A screening" if all(w.is_screening for w in result.worlds) else "A comparison"
    return [
        f"{what} of {len(result.head['methods'])} methods that learn networks, in {_count(len(result.worlds), 'world')} whose "
        f"bound is known: {of_seeds} each, {', '.join(f'{b:,}' for b in budgets)} calls and rounds a run, forks, "
        "trials and judges counted. The same seeds and tasks for all, 32 episodes an update, one network.",
        "",
        f"This page is written by `{command} -o FILE.md` from the rows that come with the package; `{command} "
        "METHOD` prints a method's lines, and the command at the end of a line runs its rows again.",
    ]


def overview_cells(one: Overall, known: Mapping[str, Any]) -> tuple[str, ...]:
    """One line of the table over all worlds."""
    name = one.method + (" ?" if known.get(one.method, {}).get("guessed") else "")
    by_world = (f"{100 * share:.0f} ({rank:g})" for rank, share in one.worlds.values())
    return f"{one.rank:.1f}", name, f"{100 * one.share:.0f}", *by_world


def overview_header(worlds: Sequence[WorldResult]) -> tuple[str, ...]:
    """Its header."""
    return "mean rank", "method", "mean, % of bound", *(f"{w.world}, % (rank)" for w in worlds)


def _overview_part(result: RaceResult) -> list[str]:
    header = overview_header(result.worlds)
    out = ["## Over all worlds", ""]
    what = (
        "Methods with a final value in every world below, by the mean of their ranks among each other. A value below 0 is a team "
    )
    out.append(what + "that costs more than it earns. The tables below have the intervals; with few seeds a rank says little.")
    out += ["", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return out + ["| " + " | ".join(overview_cells(one, result.head["methods"])) + " |" for one in result.overall]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _world_part(result: RaceResult, world: WorldResult) -> list[str]:
    told = result.head["worlds"].get(world.world, {})
    rules = ", ".join(f"{name} {value / world.bound:.1%}" for name, value in told.get("rules", {}).items())
    out = [f"## {world.world}", ""]
    first, rest = told.get("about", "")[:1].upper(), told.get("about", "")[1:]
    what = f"{first}{rest}. What it is about: {told['decision']}. " if told.get("decision") else ""
    out.append(f"{what}Bound {world.bound:.4g} points; best known {world.best_known / world.bound:.1%} of it."
               + (f" By hand: {rules}." if rules else ""))  # fmt: skip
    header = [*HEADER, "command"]
    out += ["", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for one in world.standings:
        out.append("| " + " | ".join([*cells(one, result.head["methods"]), f"`{row_command(result.head, world, one)}`"]) + " |")
    return [*out, "", *(f"- {line}" for line in notes(result, world))]


def of_plan(plan: str) -> str:
    """The option that `counterpoint compare methods` needs for a plan, with a space behind it; none for the default."""
    return "" if plan == "screening" else f"--plan {plan} "


def released_name(plan: str) -> str:
    """What `counterpoint compare standings` calls the rows of a plan that come with the package."""
    return "released" if plan == "screening" else f"released:{plan}"


def row_command(head: Mapping[str, Any], world: WorldResult, one: Standing) -> str:
    """The command that runs the rows of a line again."""
    plan, suite = head["plan"]["name"], head["suite"]
    first = of_plan(plan) + ("" if suite == "core" else f"--suite {suite} ")
    budget = f"--seeds {len(one.seeds)} --cap calls={world.budget}"
    return f"counterpoint compare methods {one.method} {first}--world {world.world} {budget}"


def _methods_part(result: RaceResult) -> list[str]:
    header = ("method", "source", "reward", "unit", "trains", "regime", "not in the source", "tried beside it")
    out = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for name, told in result.head["methods"].items():
        knob = ", ".join(f"{key} {_plain(value)}" for key, value in told["knob"].items())
        cells_ = (name, f"{told['source']} ({told['grade']})", " ".join(told["families"]), told["unit"], " ".join(told["trains"]),
                  told["regime"], "; ".join(told["guessed"]), knob)  # fmt: skip
        out.append("| " + " | ".join(str(cell).replace("|", "/") or "–" for cell in cells_) + " |")
    return out


def _plain(value: Any) -> str:
    return ", ".join(f"{k} {_plain(v)}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)


def _short_of(result: RaceResult) -> list[str]:
    """What the plan asks for and these rows do not have, and the command that runs the rest."""
    plan, lines = PLANS[result.head["plan"]["name"]], [s for w in result.worlds for s in w.standings if s.is_ranked]
    fewest = min((len(s.seeds) for s in lines), default=0)
    budget = result.head["plan"]["final_budget"]
    out = []
    if fewest < plan.final_seeds or budget < plan.final_budget:
        out.append(
            f"**Not all was run.** The plan asks for {_count(plan.final_seeds, 'seed')} of {plan.final_budget:,}; these rows "
            f"have {fewest} of {budget:,} at the least. `counterpoint compare methods --plan {plan.name}` runs the whole "
            "plan; it continues an interrupted race."
        )
    absent = result.head["absent"]
    return out + ([f"Without a row: {', '.join(absent)}."] if absent else [])


def _how(plan: Mapping[str, Any], head: Mapping[str, Any]) -> list[str]:
    tuned = (
        f"Each method was tuned on {plan['tune_seeds']} other seeds and tasks: learning rate times 1/3, 1 and 3, as published "
        f"and with the one alternative that its file names, {plan['tune_budget']:,} calls each; the point with the largest area "
        "under the held-out curve runs. The published numbers are a line of their own where others were chosen."
        if plan["tune_budget"]
        else "Nothing was tuned: each method runs with its published numbers, ours with those of its file."
    )
    return [
        f"Plan `{plan['name']}` of suite `{head['suite']}`. {tuned}",
        "",
        "- *final*: the value on held-out tasks when the budget is spent, as a share of the world's bound, with Student's 95 % "
        "interval over training seeds; a run that was charged over a tenth more is held to what its curve has at the budget. "
        "*Area*: the mean of the held-out curve over the budget. *Calls to q %*: what was charged "
        "when the curve first reached q % of the best value known in this world (a method's mean or a rule's); the median over "
        "the seeds that did. The bound is an expectation over tasks: on the tasks that were drawn a share may lie above 100 %.",
        "- *rank*: by the mean, equal ones sharing the mean of their ranks; in brackets what paired t-tests leave open, "
        "Holm over all pairs of the world.",
        f"- *minus grpo*, *minus ours*: paired by seed, in % of the bound. Exact sign-flip test, Holm over the rows of a world; "
        f"a claim needs {CLAIM_SEEDS} seeds. *equal*: the whole 95 % interval lies within 2 % of the bound.",
        f"- *collapsed*: share of the seeds that ended calling nobody. After {IDLE} updates in a row with under one call an "
        "episode a run ends, and its value stays what it is.",
        f"- ours is `{OURS}`. It runs on the same terms, without the wider updates of its own file.",
    ]
