"""Tokens in one meaning for all vendors, and what they cost.

A price is in US dollars per million tokens. The package's own, with their date, stand in `prices.toml`; a file of the same form
goes on top. The entry with the longest name that the model's name begins with counts, after prefixes such as `provider/` and
`us.` are taken off.

Always true: input = uncached + cache_read + cache_write, so that sums can be compared across vendors; a model that the table
does not name has tokens and no cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from counterpoint.errors import InputError, did_you_mean
from counterpoint.files import read_toml
from counterpoint.formats.importing.values import as_dict, count, number
from counterpoint.trace import Event
from counterpoint.trace.keys import CACHE_WRITE_1H


class Usage(NamedTuple):
    """The tokens of one model call."""

    fresh: int = 0
    """Input that was neither read from nor written to a cache."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    """Everything the model wrote, reasoning included."""
    reasoning: int = 0
    """The part of the output that was reasoning, where the source says so."""
    cache_write_1h: int = 0
    """The part of `cache_write` that is kept for an hour and not for minutes."""

    @property
    def input(self) -> int:
        """All input tokens."""
        return self.fresh + self.cache_read + self.cache_write

    def __bool__(self) -> bool:
        return any(self)

    def plus(self, other: Usage) -> Usage:
        """The two together."""
        return Usage(*(a + b for a, b in zip(self, other, strict=True)))

    @classmethod
    def anthropic(cls, usage: Any) -> Usage | None:
        """`input_tokens` leaves the cache out."""
        got = as_dict(usage)
        read, wrote = count(got.get("cache_read_input_tokens")) or 0, count(got.get("cache_creation_input_tokens")) or 0
        fresh, out = count(got.get("input_tokens")), count(got.get("output_tokens"))
        if fresh is None and out is None:
            return None
        kept = as_dict(got.get("cache_creation"))
        hour, minutes = count(kept.get("ephemeral_1h_input_tokens")) or 0, count(kept.get("ephemeral_5m_input_tokens")) or 0
        wrote = wrote or hour + minutes
        return cls(fresh or 0, read, wrote, out or 0, cache_write_1h=min(hour, wrote))

    @classmethod
    def whole(cls, total: Any, out: Any, *, cached: Any = None, written: Any = None, reasoning: Any = None) -> Usage | None:
        """From an input count that includes the cache (OpenAI, Codex, the GenAI conventions)."""
        all_in, output = count(total), count(out)
        if all_in is None and output is None:
            return None
        read, wrote = min(count(cached) or 0, all_in or 0), count(written) or 0
        wrote = min(wrote, (all_in or 0) - read)
        return cls((all_in or 0) - read - wrote, read, wrote, output or 0, count(reasoning) or 0)

    @classmethod
    def of_event(cls, event: Event) -> Usage:
        """What an importer put down of a call on its event."""
        said = event.extra or {}
        total, out = event.tokens_in or 0, event.tokens_out or 0
        read, wrote = (min(count(said.get(f"tokens_cache_{kind}")) or 0, total) for kind in ("read", "write"))
        wrote = min(wrote, total - read)
        return cls(total - read - wrote, read, wrote, out, cache_write_1h=min(count(said.get(CACHE_WRITE_1H)) or 0, wrote))


ANTHROPIC = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""The counts in a usage of Anthropic's."""


def odd_counts(got: Mapping[str, Any], names: Iterable[str]) -> int:
    """How many of some counts of tokens are stated and are none: negative, not whole, or beyond 63 bits."""
    return sum(1 for name in names if (value := got.get(name)) is not None and count(value) is None)


class Price(NamedTuple):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    """Kept for minutes."""
    cache_write_1h: float | None = None
    """Kept for an hour; None where that costs what minutes do."""


_AS_OF = "as_of"
_PREFIX = re.compile(r"^(?:[a-z0-9_-]+/|(?:us|eu|apac|global)\.|anthropic\.|openai\.|models/)+")


class Prices:
    """What models cost: the package's list prices, with those of a file on top."""

    def __init__(self, own: Mapping[str, Price] | None = None) -> None:
        self._own = dict(own or {})
        self._known: dict[str, tuple[str, Price] | None] = {}

    @classmethod
    def with_file(cls, tables: Mapping[str, Any], *, where: str) -> Prices:
        """The package's prices, with those of a file on top: `[model-name]` tables of input, output, cache_read, cache_write,
        cache_write_1h."""
        return cls(_read(tables, where))

    @cached_property
    def _table(self) -> dict[str, Price]:
        """Every price, the longest names first."""
        return dict(sorted({**_package()[0], **self._own}.items(), key=lambda row: -len(row[0])))

    @property
    def as_of(self) -> str:
        """The day of the package's prices."""
        return _package()[1]

    def _entry(self, model: str | None) -> tuple[str, Price] | None:
        if not model:
            return None
        if model not in self._known:
            plain = _PREFIX.sub("", model.lower())
            self._known[model] = next((row for row in self._table.items() if _names(row[0], plain)), None)
        return self._known[model]

    def of(self, model: str | None) -> Price | None:
        """The price of a model, or None when no table names it."""
        found = self._entry(model)
        return None if found is None else found[1]

    def is_own(self, model: str | None) -> bool:
        """Whether the price of a model stands in the file that was put on top."""
        found = self._entry(model)
        return found is not None and found[0] in self._own

    def cost(self, model: str | None, usage: Usage) -> float | None:
        """US dollars for one call."""
        price = self.of(model)
        if price is None:
            return None
        hour, an_hour = usage.cache_write_1h, price.cache_write if price.cache_write_1h is None else price.cache_write_1h
        written = (usage.cache_write - hour) * price.cache_write + hour * an_hour
        return (usage.fresh * price.input + usage.cache_read * price.cache_read + written + usage.output * price.output) / 1e6


def _package() -> tuple[dict[str, Price], str]:
    """The package's own prices and their day, read once."""
    if not _shipped:
        path = Path(__file__).with_name("prices.toml")
        tables = read_toml(path, fix="install the package again")
        _shipped.append((_read(tables, path.name), str(tables[_AS_OF])))
    return _shipped[0]


_shipped: list[tuple[dict[str, Price], str]] = []


def _names(name: str, model: str) -> bool:
    """`gpt-5` names gpt-5 and gpt-5-2026-01-01, not gpt-5.2 or gpt-50."""
    return model.startswith(name) and (len(model) == len(name) or model[len(name)] in "-@:")


def _read(tables: Mapping[str, Any], where: str) -> dict[str, Price]:
    """The prices in the tables of a file, which may say from what day they are (`as_of`)."""
    return {name.lower(): _one(name, row, where) for name, row in tables.items() if name != _AS_OF or isinstance(row, dict)}


def _one(name: str, row: Any, where: str) -> Price:
    """The price in a table of a price file; without prices for the cache, its tokens cost what others do."""
    for field in as_dict(row):
        if field not in Price._fields:
            fix = did_you_mean(field, Price._fields)
            raise InputError(f"the price of {name!r} has an unknown field {field!r}", where=where, fix=fix)
    got = {field: number(as_dict(row).get(field)) for field in Price._fields}
    fresh, out, read, wrote = got["input"], got["output"], got["cache_read"], got["cache_write"]
    if fresh is None or out is None:
        fix = f"write [{name!r}] with input = 3.0 and output = 15.0, dollars per million tokens"
        raise InputError(f"the price of {name!r} has no input and output", where=where, fix=fix)
    if min(value for value in got.values() if value is not None) < 0:
        raise InputError(f"the price of {name!r} is negative", where=where, fix="give dollars per million tokens, 0 or more")
    return Price(fresh, out, fresh if read is None else read, fresh if wrote is None else wrote, got["cache_write_1h"])


PRICES = Prices()
"""The package's own table."""
