"""Words of the text tasks: keyed draws, names of firms and people, and phrases that can be said and heard.

Always true: a draw is a function of (seed, name, place), so making one thing more or less shifts nothing else. What a phrase says
it can also hear: `phrase_fields` gives back the fields that `phrase_text` put in, whatever stands around the sentence.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.world import parameter
from counterpoint.options import LARGEST_SEED
from counterpoint.trace.keyed import child_seed, purpose, uniform

T = TypeVar("T")
_BLOCK = 256
_MOST_SEED = 2 * LARGEST_SEED  # seeds that are counted on from those of a run
_EPOCH = datetime.date(2031, 1, 1)


def check_seed(seed: int) -> int:
    """The seed; one clear error for what is none. (Called before a cache, to which 1, True and 1.0 are the same.)"""
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < _MOST_SEED:
        raise InputError(f"seed cannot be {seed!r}", fix="a whole number, 0 to 2^63 - 1")
    return seed


def check_whole(name: str, value: Any, low: int, high: int) -> None:
    """One clear error for what is no whole number in a range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{name} cannot be {value!r}", fix=f"a whole number, {low} to {high:,}")


def superseded_dial() -> Any:
    """How many texts have an earlier version that no longer counts."""
    return parameter(0.5, "1", "Share of the cards or rules that also have an earlier version, which does not count.")


class KeyedDice:
    """Keyed draws of one seed; `names` set apart what they are for."""

    def __init__(self, seed: int, *names: str) -> None:
        self.seed = child_seed(check_seed(seed), *(purpose(name) for name in names))
        self._blocks: dict[tuple[str, int], list[float]] = {}
        self._orders: dict[tuple[str, int], list[int]] = {}
        self._ranks: dict[tuple[str, int], list[int]] = {}

    def u(self, name: str, i: int = 0) -> float:
        """u(name, i) in [0, 1)."""
        block = self._blocks.get((name, i // _BLOCK))
        if block is None:  # one hash call for many neighbours: the numbers are those of one call each
            places = np.arange(i // _BLOCK * _BLOCK, (i // _BLOCK + 1) * _BLOCK)
            block = self._blocks[name, i // _BLOCK] = uniform(self.seed, purpose(name), places).tolist()
        return block[i % _BLOCK]

    def below(self, n: int, name: str, i: int = 0) -> int:
        """A whole number in 0 .. n - 1."""
        return int(self.u(name, i) * n)

    def between(self, low: int, high: int, name: str, i: int = 0) -> int:
        """A whole number in low .. high."""
        return low + self.below(high - low + 1, name, i)

    def chance(self, p: float, name: str, i: int = 0) -> bool:
        """True with this chance."""
        return self.u(name, i) < p

    def pick(self, some: Sequence[T], name: str, i: int = 0) -> T:
        """One of them."""
        return some[self.below(len(some), name, i)]

    def order(self, n: int, name: str) -> list[int]:
        """0 .. n - 1 in a random order."""
        if (name, n) not in self._orders:
            self._orders[name, n] = np.argsort(uniform(self.seed, purpose(name), np.arange(n)), kind="stable").tolist()
        return self._orders[name, n]

    def rank(self, n: int, name: str, i: int) -> int:
        """The place of i in that order."""
        if (name, n) not in self._ranks:
            self._ranks[name, n] = np.argsort(self.order(n, name), kind="stable").tolist()
        return self._ranks[name, n][i]

    def code(self, name: str, i: int = 0) -> str:
        """Eight capital letters and digits that nobody guesses."""
        letters = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
        return "".join(letters[self.below(32, f"{name} {place}", i)] for place in range(8))


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


# -- names ---------------------------------------------------------------------------------------------------------------

FIRMS, ALIASES, PEOPLE = 1_440, 528, 625
"""How many different names there are."""
_STEMS = _listed(
    """Alder Ash Aster Badger Basalt Birch Bramble Cedar Clover Cobalt Copper Coral Crane Dahlia Ember Falcon Fennel Fern Finch
    Flint Garnet Granite Hazel Heron Holly Indigo Iris Ivy Jasper Juniper Kestrel Larch Laurel Linden Lotus Magpie Maple
    Marble Marten Myrtle Oak Onyx Opal Osprey Otter Pebble Pine Plover Poppy Quartz Raven Reed Robin Rowan Sable Sage
    Sorrel Sparrow Spruce Swift Teal Thistle Topaz Tulip Umber Vesper Violet Walnut Willow Wren Yarrow Zinnia"""
)
_TRADES = _listed(
    """Freight Mills Textiles Glass Timber Foundry Dairy Optics Paper Tools Shipping Ceramics Printing Grain Motors Leather
    Chemicals Bakery Engines Instruments"""
)
_FIRST = _listed(
    """Ada Ben Cora Dov Edda Finn Gita Hugo Ines Jonas Kira Lars Mina Nils Olga Pavel Rosa Sven Tara Ugo Vera Wim Xenia Yusuf
    Zora"""
)
_LAST = _listed(
    """Abel Brandt Castel Drew Engel Foster Grant Hale Ibsen Jarvis Keller Lorne Marsh Noble Orwin Price Quist Ruiz Stone Tull
    Unger Vance Weber Yates Zeller"""
)
_COINED = _listed(
    """Ama Belo Cari Dovo Elmo Fara Gelo Halo Ista Jovi Kelo Lumo Mira Nova Oro Pela Quo Rivo Sola Tavo Ulta Vela Wexo Zeno"""
)
_ENDS = _listed("dine dex fold gate kin lane mark mere nex port quest rand sphere tane tide ton vale vane verse way yard zen")
BOOKS = _listed(
    """harbour orchard quarry meadow lantern bridge canyon desert forest garden island jungle lagoon market museum palace
    prairie river station summit temple theatre tunnel valley village vineyard abbey airport barn bazaar beacon cabin
    castle cellar chapel college cottage crater delta factory ferry glacier grotto hangar hostel kennel library lodge
    mansion marina mill monastery oasis observatory pier plaza pyramid ranch rectory refinery stadium tavern tower
    warehouse"""
)
"""Books in which papers are filed; each is a word that no other text uses."""


def firm(i: int) -> str:
    """The registered name of firm i."""
    return f"{_STEMS[i % len(_STEMS)]} {_TRADES[(i // len(_STEMS) + i) % len(_TRADES)]}"


def alias(i: int) -> str:
    """Trading name i."""
    return _COINED[i % len(_COINED)] + _ENDS[(i // len(_COINED) + i) % len(_ENDS)]


def person(i: int) -> str:
    """The name of person i."""
    return f"{_FIRST[i % len(_FIRST)]} {_LAST[(i // len(_FIRST) + i) % len(_LAST)]}"


# -- numbers and days ----------------------------------------------------------------------------------------------------

_MONTHS = _listed("January February March April May June July August September October November December")


def money(amount: int, way: int) -> str:
    """An amount as people write it, in one of two ways."""
    return f"{amount:,}" if way % 2 else str(amount)


def number(text: str) -> int:
    """The amount that was written."""
    return int(text.replace(",", ""))


def day(n: int, way: int = 0) -> str:
    """Day n of the ledger, written in one of three ways."""
    date = _EPOCH + datetime.timedelta(days=n)
    month = _MONTHS[date.month - 1]
    return (date.isoformat(), f"{date.day} {month} {date.year}", f"{month} {date.day}, {date.year}")[way % 3]


def the_day(text: str) -> int:
    """The day that was written; -1 when it is none."""
    try:
        if "-" in text:
            return (datetime.date.fromisoformat(text) - _EPOCH).days
        words = text.replace(",", "").split()
        if words[0] in _MONTHS:
            words[0], words[1] = words[1], words[0]
        return (datetime.date(int(words[2]), _MONTHS.index(words[1]) + 1, int(words[0])) - _EPOCH).days
    except (ValueError, IndexError, OverflowError):
        return -1


# -- phrases -------------------------------------------------------------------------------------------------------------

_WRITTEN = {
    "amount": r"\d[\d,]{0,17}",
    "number": r"-?\d{1,18}",
    "date": r"\d{4}-\d\d-\d\d|\d{1,2} [A-Z][a-z]+ \d{4}|[A-Z][a-z]+ \d{1,2}, \d{4}",
    "word": r"[a-z]+",
    "rest": r"(?:,[^.\n]{0,80})?",
    "name": r"[A-Z][^.;|\n]{0,60}?",
    "id": r"[A-Z]+-[A-Z0-9][A-Z0-9-]*",
    "column": r"[a-z][a-z_]*",
    "about": r"[a-z][a-z ]{0,60}",
    "tool": r"[a-z]+_[a-z]+",
    "file": r"[a-z]+/[a-z0-9]+\.txt",
}


class Phrase:
    """One sentence with fields, such as `{firm:name} owes {sum:amount} crowns.`: a field's kind says how it is written."""

    def __init__(self, template: str) -> None:
        self.template = template
        self._parts = re.split(r"\{(\w+):(\w+)\}", template)  # text, field, kind, text, ...

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        texts, names, kinds = self._parts[::3], self._parts[1::3], self._parts[2::3]
        groups = [f"(?P<{name}>{_WRITTEN[kind]})" for name, kind in zip(names, kinds, strict=True)]
        return re.compile("".join(re.escape(text) + group for text, group in zip(texts, [*groups, ""], strict=True)))

    def fill(self, **fields: object) -> str:
        """The sentence with its fields filled in."""
        texts, names = self._parts[::3], self._parts[1::3]
        return "".join(text + str(fields[name]) for text, name in zip(texts, names, strict=False)) + texts[-1]

    def find_all(self, text: str) -> list[dict[str, str]]:
        """The fields of every place where a text says this."""
        return [match.groupdict() for match in self._pattern.finditer(text)]


def phrases(*templates: str) -> tuple[Phrase, ...]:
    """Several ways to say one thing."""
    return tuple(Phrase(template) for template in templates)


def phrase_text(ways: Sequence[Phrase], way: int, **fields: object) -> str:
    """One of the ways."""
    return ways[way % len(ways)].fill(**fields)


@lru_cache(maxsize=16_384)  # a player reads its papers again at each step
def heard_all(ways: tuple[Phrase, ...], text: str) -> tuple[Mapping[str, str], ...]:
    """The fields of all sentences in a text that say this, in whichever way."""
    return tuple(fields for phrase in ways for fields in phrase.find_all(text))


def phrase_fields(ways: tuple[Phrase, ...], text: str) -> Mapping[str, str] | None:
    """The fields of the first way that a text says this in; None when it does not."""
    fields = heard_all(ways, text)
    return fields[0] if fields else None
