"""Several races on one short page: the ranks over all worlds, and what the methods are, each once.

Always true: a function of the rows alone, as `page.markdown`, which has every line of one race.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from counterpoint.lab.bench.race.judging import CLAIM_SEEDS, WorldResult
from counterpoint.lab.bench.race.page import RaceResult, difference, interval, of_plan, overview_cells, overview_header
from counterpoint.lab.bench.race.plan import BASELINES, IDLE, OURS

_OPENING = """\
Methods that learn networks, in [worlds](worlds.md#suites-worlds-that-tell-methods-apart) whose bound is known: the
same seeds and tasks for all, 32 episodes an update, one network,
one budget of calls and rounds with forks, trials and judges counted. `python tools/docs_site.py` writes this page from the rows
that come with the package. `counterpoint compare standings released` (`released:small` for the plan small) prints every line
with its intervals, `--world WORLD` those of a world, a METHOD behind it those of a method, and `-o FILE.md` writes them all."""

_SOURCES = "`counterpoint train presets` has the rewards, the unit of credit, what is trained and the regime of each."

_SHARES = "Percent of the bound, in brackets the rank; below 0 a team costs more than it earns."

_TUNED = """\
Each method was tuned on {seeds} other seeds and tasks, {budget:,} calls a point: learning rate times 1/3, 1 and 3, as published
and with the one alternative that its file names."""

_TERMS = f"""\
*Final*: the value on held-out tasks when the budget is spent, as a share of the world's bound, with Student's 95 % interval over
training seeds. *Rank*: by the mean; in brackets what paired t-tests leave
open, Holm over all pairs of the world. *Minus grpo*, *minus ours*: paired by seed; exact sign-flip test, Holm over the rows of a
world; a claim needs {CLAIM_SEEDS} seeds. A run ends with the update that spends its budget, or after {IDLE} updates in a row with
under one call an episode. *?*: parts of the method are not in its source. Ours is `{OURS}`, without the wider updates of its own
file. Methods that need votes or an opponent play only in worlds that have them."""


def digest(results: Sequence[RaceResult]) -> str:
    """The page, from races of one suite; those with enough seeds for a claim have a table for each world, too."""
    parts = ["# Methods side by side", "", _OPENING, ""]
    for result in results:
        parts += [*_race(result), ""]
    parts += [_TERMS, "", "## What each method is", "", _SOURCES, "", *_methods(results), ""]
    return "\n".join(parts)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table in Markdown."""
    return [f"|{'|'.join(header)}|", "|" + "---|" * len(header), *(f"|{'|'.join(row)}|" for row in rows)]


def _race(result: RaceResult) -> list[str]:
    plan = result.head["plan"]
    seeds = min((len(s.seeds) for w in result.worlds for s in w.standings if s.is_ranked), default=0)
    tuned = (
        _TUNED.format(seeds=plan["tune_seeds"], budget=plan["tune_budget"])
        if plan["tune_budget"]
        else "Nothing was tuned: published numbers, ours with those of its file."
    )
    about = (
        f"{len(result.head['methods'])} methods, {plan['final_budget']:,} calls and rounds a run, {seeds} training seeds. "
        f"{tuned} `counterpoint compare methods METHOD {of_plan(plan['name'])}--world all` runs a method again."
    )
    out = [f"## Plan `{plan['name']}`", "", about]
    if any(world.is_screening for world in result.worlds):
        rows = (overview_cells(one, result.head["methods"]) for one in result.overall)
        out += ["", _SHARES, "", *table(overview_header(result.worlds), rows)]
    for world in result.worlds:
        out += [] if world.is_screening else ["", f"### `{world.world}`", "", *_world(result, world)]
    return out


def _world(result: RaceResult, world: WorldResult) -> list[str]:
    header = ("rank", "method", "point", "final, % of bound", *(f"minus {name}" for name in ("grpo", "ours")))
    guessed = {name for name, one in result.head["methods"].items() if one.get("guessed")}
    return table(header, (
        (f"{s.rank:g} [{s.rank_low}, {s.rank_high}]", s.method + (" ?" if s.method in guessed else ""), s.point,
         interval(s.share), *(difference(s.against.get(name)) for name in BASELINES))
        for s in world.standings if s.is_ranked
    ))  # fmt: skip


def _methods(results: Sequence[RaceResult]) -> list[str]:
    known = {name: about for result in reversed(results) for name, about in result.head["methods"].items()}
    return table(("method", "source", "not in the source"), (
        (name, f"{one['source']} ({one['grade']})".replace("|", "/"), "; ".join(one["guessed"]) or "–")
        for name, one in sorted(known.items())
    ))  # fmt: skip
