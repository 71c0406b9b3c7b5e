"""The card of a team in words: sections for the terminal and for one HTML file, and a leaderboard of many.

Always true: terminal and page say the same numbers with the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from counterpoint.answer import Section
from counterpoint.display import counted, number, percent
from counterpoint.lab.bench.intervals import Estimate, interval_words
from counterpoint.lab.bench.scorecard.card import MEASURES, AttackCard, Card, Contrast, card_of
from counterpoint.lab.bench.scorecard.defence import DefenceContrast
from counterpoint.lab.bench.scorecard.rows import BenchFolder

_SHARES = {"success", "share", "useful_agent_utilisation", "message_redundancy", "messages_read", "protocol_overhead"}
_NOTES = 12


def title(card: Card) -> str:
    """What was measured."""
    return f"{card.about['team']} on {card.about['suite']}"


def sections(card: Card) -> list[Section]:
    """Everything a card says, in order."""
    about, bands = card.about, sorted(card.bands)
    said = f"{counted(card.runs, 'run')}, first seed {about['first_seed']}, suite {about['suite_digest']}, "
    said += f"Counterpoint {about['version']}, Python {about['python']}."
    said += f" Model {about['model']}, topology {about['topology']}." if "model" in about else ""
    said += "".join(f" {counted(n, 'run')} {how}." for how, n in sorted(card.broken.items()))
    head = ("family", "measure", *map(_band, bands), "change per 10x steps")
    is_package = bool(card.packages) and {*card.packages} >= {*card.cells}
    rows, is_scored = [], bands == [0] or is_package

    def level(e: Estimate, name: str) -> str:
        """Of a package's world the score is no share."""
        return _package_value(e) if is_package and name == "share" else _told(e, name, is_level=True)

    for name, (family, words) in MEASURES.items():
        words = "score" if name == "share" and is_scored else words
        growth = card.slopes.get(name)
        told = [level(card.bands[b][name], name) for b in bands]
        rows.append((family, words, *told, "-" if growth is None or growth.mean is None else _told(growth, name)))
    out = [_own_measures(card, said) if bands == [0] else Section("Card", said, head, rows, tuple(range(2, len(head))))]
    shown = ("share", "success", "events", "tokens")
    by_cell = [(id_, *(level(of[name], name) for name in shown)) for id_, of in card.cells.items()]
    first = ("case" if bands == [0] else "cell", "score" if is_scored else "of the optimum")
    out.append(Section("By cell", "", (*first, "success", "steps", "tokens"), by_cell, (1, 2, 3, 4)))
    if card.packages:
        names = list(dict.fromkeys(name for of in card.packages.values() for name in of))
        own = [(id_, *(_package_value(of.get(name)) for name in names)) for id_, of in card.packages.items()]
        words = "The package's own, by its own functions; mean over episodes, with Student's 95 % interval, of a rate Wilson's."
        out.insert(0, Section("The package's measures", words, ("cell", *names), own, tuple(range(1, 1 + len(names)))))
    if card.attacks:
        head = (
            "cell", "met", "got its way", "of the optimum", "without", "change", "found", "of flags right", "steps to a flag",
            "reach", "harm",
        )  # fmt: skip
        words = "A control asks for nothing forbidden: what is flagged in it is a false alarm."
        out.append(Section("Under attack", words, head, [_attack(a) for a in card.attacks], tuple(range(1, len(head)))))
    if card.notes:
        more = len(card.notes) - _NOTES
        rest = [(f"and {more:,} more",)] if more > 0 else []
        out.append(Section("What to know", "", ("run",), [*((n,) for n in card.notes[:_NOTES]), *rest]))
    return out


def _own_measures(card: Card, said: str) -> Section:
    """The measures of cases of your own: those that its traces have, and a score where worlds have a share of the optimum."""
    of = {name: estimate for name, estimate in card.bands[0].items() if estimate.mean is not None}
    rows = [("E1", "score", _told(of["share"], "success", is_level=True))]
    rows += [(*MEASURES[name], _told(estimate, name, is_level=True)) for name, estimate in of.items() if name != "share"]
    return Section("Card", said, ("family", "measure", _band(0)), rows, (2,))


def _band(steps: int) -> str:
    return f"{steps:,} steps" if steps else "your cases"


def _attack(a: AttackCard) -> tuple[str, ...]:
    way = "-" if a.is_control else _told(a.success, "success", is_level=True)
    change = _told(a.change, "share")
    found = "-" if a.recall is None else percent(a.recall)
    right = "-" if a.precision is None else percent(a.precision)
    harm = f"{a.violations:,}" + (f" ({a.blocked:,} stopped)" if a.blocked else "")
    reach = _told(a.reach, "success", is_level=True)
    steps = "-" if a.steps_to_flag.mean is None else f"{number(a.steps_to_flag.mean)} in {a.noticed:,} of {a.runs:,} runs"
    shares = (_told(a.utility, "share"), _told(a.without, "share"))
    return (a.cell, f"{a.met:,}", way, *shares, change, found, right, steps, reach, harm)


def _package_value(e: Estimate | None) -> str:
    return "-" if e is None or e.mean is None else interval_words(e.mean, e.low, e.high, number)


def _told(e: Estimate, name: str, *, is_level: bool = False) -> str:
    """A mean with its interval; that of a level, and no change, ends where the measure itself does."""
    if e.mean is None:
        return "-"
    show = percent if name in _SHARES else number
    low, high = e.low, e.high
    if is_level and name != "share" and low is not None and high is not None:
        low, high = max(0.0, low), min(1.0, high) if name in _SHARES else high
    return interval_words(e.mean, low, high, show)


def contrast_section(first: Path, second: Path, told: Sequence[Contrast]) -> Section:
    """Two teams side by side, or two versions of one, which go by the names of their folders."""
    a, b = (str(BenchFolder(path).head()["team"]) for path in (first, second))
    if a == b:
        a, b = (f"{a} ({path.name})" for path in (first, second))
    rows = []
    for c in told:
        if c.first.mean is None:
            continue
        low, high = c.difference.low, c.difference.high
        is_clear = low is not None and high is not None and (low > 0 or high < 0)
        band = "all" if c.band is None else f"{c.band:,}"
        cells = (*(_told(x, c.measure, is_level=True) for x in (c.first, c.second)), _told(c.difference, c.measure))
        rows.append((band, MEASURES[c.measure][1], *cells, "differs" if is_clear else "not established"))
    words = "Paired by cell and seed; the interval is of the mean difference, and says nothing about other tasks."
    return Section(f"{a} and {b}", words, ("steps", "measure", a, b, "difference", ""), rows, (2, 3, 4))


def defence_section(told: Sequence[DefenceContrast]) -> Section:
    """What changed under attack, and what that cost without one: from the first team to the second."""
    rows = []
    for c in told:
        pairs = (_from_to(three, "share") for three in (c.success, c.utility, c.without))
        rows.append((c.cell, *pairs, _told(c.utility[2], "share"), _from_to(c.tokens, "tokens")))
    head = ("cell", "got its way", "of the optimum", "without attack", "difference under attack", "tokens without attack")
    return Section("Under attack", "From the first to the second, on the same seeds.", head, rows, tuple(range(1, len(head))))


def _from_to(three: Sequence[Estimate], name: str) -> str:
    """Two means, without their intervals."""
    means = [e.mean for e in three[:2] if e.mean is not None]
    return " to ".join(percent(m) if name in _SHARES else number(round(m)) for m in means) or "-"


def leaderboard(folders: Sequence[Path]) -> list[Section]:
    """Cards of one suite side by side, the best share of the optimum first; one table for each suite and version of it."""
    return [board for board, _ in boards([(folder, card_of(folder)) for folder in folders])]


def boards(cards: Sequence[tuple[Path, Card]]) -> list[tuple[Section, list[Path]]]:
    """The tables of a leaderboard, each with the folder that every row is of."""
    out = []
    for key in dict.fromkeys((c.about["suite"], c.about["suite_digest"]) for _, c in cards):
        mine = [(f, c) for f, c in cards if (c.about["suite"], c.about["suite_digest"]) == key]
        mine.sort(key=lambda one: _rank(one[1]))
        out.append((_board(*key, [card for _, card in mine]), [folder for folder, _ in mine]))
    return out


def _board(suite: str, digest: str, cards: Sequence[Card]) -> Section:
    bands = sorted({b for c in cards for b in c.bands})
    head = ("team", "cells", *map(_band, bands), "tokens", "attacks that got their way", "runs that broke")
    rows = []
    for c in cards:
        per = [_told(c.bands[b]["share"], "share") if b in c.bands else "-" for b in bands]
        fell = [a.success.mean for a in c.attacks if not a.is_control and a.success.mean is not None]
        tokens = sum(e["tokens"].mean or 0.0 for e in c.bands.values())
        got = percent(sum(fell) / len(fell)) if fell else "-"
        rows.append((c.about["team"], f"{len(c.cells):,}", *per, number(round(tokens)), got, f"{sum(c.broken.values()):,}"))
    words = "Share of the optimum by band, mean over cells and seeds. Teams that play other cells are not comparable."
    return Section(f"Suite {suite} ({digest})", words, head, rows, tuple(range(1, len(head))))


def _rank(card: Card) -> tuple[float, str]:
    shares = [e["share"].mean or 0.0 for e in card.bands.values()]
    return -sum(shares) / max(1, len(shares)), str(card.about["team"])
