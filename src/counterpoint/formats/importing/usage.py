"""Tokens in one meaning for all vendors, and what they cost.

A price is in US dollars per million tokens. The package's own are those of genai-prices (`price_list.py`); a file goes on top.
A name is looked up exactly, as `model_names.py` says, never by its beginning.

Always true: input = uncached + cache_read + cache_write, so that sums can be compared across vendors; a model that the table
does not name has tokens and no cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any, NamedTuple

from counterpoint.errors import InputError, did_you_mean
from counterpoint.formats.importing.model_names import MAKERS, OPENROUTER, PROVIDERS, canonical_name, places, spellings, undated
from counterpoint.formats.importing.price_list import PACKAGE, price_list
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
        cache = as_dict(got.get("cache_creation"))
        hour, minutes = count(cache.get("ephemeral_1h_input_tokens")) or 0, count(cache.get("ephemeral_5m_input_tokens")) or 0
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
    def openai(cls, usage: Any) -> Usage | None:
        """OpenAI's counts, in the spelling of its chats or of its responses, with the details of either beside them."""
        got = as_dict(usage)
        into = got.get("input_tokens", got.get("prompt_tokens"))
        out = got.get("output_tokens", got.get("completion_tokens"))
        read = _details(got, "input_tokens_details", "input_token_details", "prompt_tokens_details")
        wrote = _details(got, "output_tokens_details", "output_token_details", "completion_tokens_details")
        cached = _first(read, "cached_tokens", "cache_read")
        cached = cached or _first(got, "cached_input_tokens", "cache_read_tokens", "cached_tokens")
        reasoning = _first(wrote, "reasoning_tokens", "reasoning") or got.get("reasoning_tokens")
        return cls.whole(into, out, cached=cached, written=read.get("cache_creation"), reasoning=reasoning)

    @classmethod
    def of_event(cls, event: Event) -> Usage:
        """What an importer put down of a call on its event."""
        extra = event.extra or {}
        total, out = event.tokens_in or 0, event.tokens_out or 0
        read, wrote = (min(count(extra.get(f"tokens_cache_{kind}")) or 0, total) for kind in ("read", "write"))
        wrote = min(wrote, total - read)
        return cls(total - read - wrote, read, wrote, out, cache_write_1h=min(count(extra.get(CACHE_WRITE_1H)) or 0, wrote))


def _details(got: dict[str, Any], *names: str) -> dict[str, Any]:
    """The first of these objects that has anything; one dialect has a single one for both sides."""
    return next((inner for name in (*names, "details") if (inner := as_dict(got.get(name)))), {})


def _first(got: dict[str, Any], *names: str) -> Any:
    return next((got[name] for name in names if got.get(name) is not None), None)


ANTHROPIC = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""The counts in a usage of Anthropic's."""


def odd_counts(got: Mapping[str, Any], names: Iterable[str]) -> int:
    """How many of some counts of tokens are stated and are none: negative, not whole, or beyond 63 bits."""
    odd = 0
    for name in names:
        value = got.get(name)
        if value is not None and count(value) is None:
            odd += 1
    return odd


class Price(NamedTuple):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    """Kept for minutes."""
    cache_write_1h: float | None = None
    """Kept for an hour; None where that costs what minutes do."""
    reasoning: float | None = None
    """The part of the output that was reasoning; None where it costs what other output does."""
    call: float = 0.0
    """Dollars for a call, whatever its tokens."""
    tiers: tuple[tuple[int, Price], ...] = ()
    """Above so many input tokens of one call all of its tokens have another price."""
    context: int | None = None
    """The most input tokens that one call can have: more are those of several calls, and have the first tier's price."""

    def of_call(self, usage: Usage) -> Price:
        """The price of the tier that a call is in."""
        if self.context is not None and usage.input > self.context:
            return self
        return next((price for above, price in reversed(self.tiers) if usage.input > above), self)

    def cost(self, usage: Usage) -> float:
        """US dollars for one call."""
        price, hour = self.of_call(usage), usage.cache_write_1h
        an_hour = price.cache_write if price.cache_write_1h is None else price.cache_write_1h
        thought = 0 if price.reasoning is None else min(usage.reasoning, usage.output)
        tokens = (
            usage.fresh * price.input + usage.cache_read * price.cache_read + (usage.cache_write - hour) * price.cache_write
            + hour * an_hour + (usage.output - thought) * price.output + thought * (price.reasoning or 0.0)
        )  # fmt: skip
        return tokens / 1e6 + price.call


_AS_OF = "as_of"
Dated = tuple[tuple[float, Price], ...]
"""Prices, each with the second of the epoch from which it holds, the earliest first."""


class Prices:
    """What models cost: the package's list prices, with those of a file on top."""

    def __init__(self, own: Mapping[str, Price] | None = None) -> None:
        self._own = {canonical_name(name): ((0.0, price),) for name, price in (own or {}).items()}
        self._known: dict[str, tuple[Dated, bool] | None] = {}

    @classmethod
    def with_file(cls, tables: Mapping[str, Any], *, where: str) -> Prices:
        """The package's prices, with those of a file on top: `[model-name]` tables of input, output, cache_read, cache_write,
        cache_write_1h."""
        return cls(_read(tables, where))

    @property
    def as_of(self) -> str:
        """The list that the package's prices are from, with its version."""
        return f"{PACKAGE} {_package().version}"

    def _entry(self, model: str | None) -> tuple[Dated, bool] | None:
        """The prices of a model, and whether they are the file's."""
        if not model:
            return None
        if model not in self._known:
            own = self._of_file(model)
            prices = own or _package().find(model)
            self._known[model] = (prices, own is not None) if prices else None
        return self._known[model]

    def _of_file(self, model: str) -> Dated | None:
        """A file may name a model with or without what stands before its name, and with or without the day of its version."""
        for name in dict.fromkeys(canonical_name(part) for part in (model, *(name for _, name in places(model, PROVIDERS)))):
            for spelled in (name, undated(name), name.rpartition("/")[2], undated(name.rpartition("/")[2])):
                if spelled in self._own:
                    return self._own[spelled]
        return None

    def of(self, model: str | None, *, at: float | None = None) -> Price | None:
        """The price of a model at a time, seconds since the epoch, or its present one; None when no list names it."""
        entry = self._entry(model)
        if entry is None:
            return None
        held = [price for since, price in entry[0] if at is None or since <= at]
        return held[-1] if held else entry[0][0][1]

    def is_own(self, model: str | None) -> bool:
        """Whether the price of a model stands in the file that was put on top."""
        entry = self._entry(model)
        return entry is not None and entry[1]

    def cost(self, model: str | None, usage: Usage, *, at: float | None = None) -> float | None:
        """US dollars for one call; `at`, seconds since the epoch, says which of its prices held then."""
        price = self.of(model, at=at)
        return None if price is None else price.cost(usage)


class _List:
    """The package's prices by provider and canonical name."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.version = str(table["version"])
        self._listings: Mapping[str, Any] = table["providers"]
        self._by_provider: dict[str, dict[str, Mapping[str, Any]]] = {}
        self.providers = frozenset(self._listings)

    def _rows(self, provider: str) -> dict[str, Mapping[str, Any]]:
        """The rows of a provider by canonical name, made on first use."""
        if provider not in self._by_provider:
            listing = self._listings.get(provider, {"models": ()})
            rows = [(list(map(canonical_name, row["names"])), row) for row in listing["models"]]
            names = {name: row for all_of_them, row in reversed(rows) for name in all_of_them}
            for all_of_them, row in rows:
                for name in all_of_them:
                    names.setdefault(undated(name), row)
            self._by_provider[provider] = names
        return self._by_provider[provider]

    @cached_property
    def _routed(self) -> dict[str, Mapping[str, Any]]:
        """Models by their names without a vendor, where one vendor alone has a model of that name."""
        routed = [(name.rpartition("/")[2], row) for name, row in self._rows(OPENROUTER).items() if "/" in name]
        vendors = Counter(name for name, _ in routed)
        return {name: row for name, row in routed if vendors[name] == 1}

    def find(self, model: str) -> Dated | None:
        """The prices of a model, by the exact names of `model_names`."""
        named = ((place, canonical_name(name)) for place, name in places(model, self.providers))
        return next((prices for place, name in named if (prices := self._in(place, name))), None)

    def _in(self, provider: str | None, name: str) -> Dated | None:
        falls_back = self._listings.get(provider or "", {}).get("falls_back", ())
        for spelled in spellings(name):
            for one in MAKERS if provider is None else (provider, *falls_back):
                if (row := self._rows(one).get(spelled)) and (prices := _dated(row)):
                    return prices
        if provider is not None:
            return None
        return next((_dated(self._routed[spelled]) for spelled in spellings(name) if spelled in self._routed), None)


def _dated(row: Mapping[str, Any]) -> Dated:
    return tuple((_second(one.get("since")), _listed(one, row.get("context"))) for one in row["prices"])


def _second(day: str | None) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() if day else 0.0


def _listed(row: Mapping[str, Any], context: int | None) -> Price:
    """A price of the list: a number, or one with tiers."""
    starts = sorted({tier[0] for value in row.values() if isinstance(value, list) for tier in value[1:]})
    tiers = tuple((start, _at(row, start)) for start in starts)
    return _at(row, -1)._replace(tiers=tiers, context=context if context and tiers and context > starts[-1] else None)


def _at(row: Mapping[str, Any], start: int) -> Price:
    def price(name: str) -> float | None:
        value = row.get(name)
        if isinstance(value, list):
            return float(next((tier[1] for tier in reversed(value[1:]) if tier[0] <= start), value[0]))
        return None if value is None else float(value)

    fresh = price("input") or 0.0
    read, wrote = price("cache_read"), price("cache_write")
    return Price(
        fresh, price("output") or 0.0, fresh if read is None else read, fresh if wrote is None else wrote,
        price("cache_write_1h"), price("reasoning"), (price("per_1000_calls") or 0.0) / 1000,
    )  # fmt: skip


@cache
def _package() -> _List:
    """The package's own prices, read once."""
    return _List(price_list())


def _read(tables: Mapping[str, Any], where: str) -> dict[str, Price]:
    """The prices in the tables of a file, which may say from what day they are (`as_of`)."""
    return {name.lower(): _one(name, row, where) for name, row in tables.items() if name != _AS_OF or isinstance(row, dict)}


_FILE_FIELDS = ("input", "output", "cache_read", "cache_write", "cache_write_1h")


def _one(name: str, row: Any, where: str) -> Price:
    """The price in a table of a price file; without prices for the cache, its tokens cost what others do."""
    for field in as_dict(row):
        if field not in _FILE_FIELDS:
            fix = did_you_mean(field, _FILE_FIELDS)
            raise InputError(f"the price of {name!r} has an unknown field {field!r}", where=where, fix=fix)
    got = {field: number(as_dict(row).get(field)) for field in _FILE_FIELDS}
    fresh, out, read, wrote = got["input"], got["output"], got["cache_read"], got["cache_write"]
    if fresh is None or out is None:
        fix = f"write [{name!r}] with input = 3.0 and output = 15.0, dollars per million tokens"
        raise InputError(f"the price of {name!r} has no input and output", where=where, fix=fix)
    if min(value for value in got.values() if value is not None) < 0:
        raise InputError(f"the price of {name!r} is negative", where=where, fix="give dollars per million tokens, 0 or more")
    return Price(fresh, out, fresh if read is None else read, fresh if wrote is None else wrote, got["cache_write_1h"])


PRICES = Prices()
"""The package's own table."""
