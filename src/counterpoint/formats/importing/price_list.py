"""The price list: figures of genai-prices as one plain table, made from the package or read from what we ship.

`make prices` writes `prices.json` from the installed package (extra `prices`), a line for every model. Where a newer package
is installed than the one the table was made from, its figures count instead.

Always true: a figure is the list's own; what the list does not say of a model is absent.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

PACKAGE = "genai-prices"
TABLE = Path(__file__).with_name("prices.json")
_FIELDS = {
    "input_mtok": "input", "output_mtok": "output", "cache_read_mtok": "cache_read", "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h", "output_reasoning_mtok": "reasoning", "requests_kcount": "per_1000_calls",
}  # fmt: skip
"""Its name for a price, and ours."""
_HALF_A_DAY = 12 * 3600


def price_list() -> dict[str, Any]:
    """The installed package's figures where it is newer than our table, else the table."""
    shipped: dict[str, Any] = msgspec.json.decode(TABLE.read_bytes())
    return price_table() if _version(_installed()) > _version(shipped["version"]) else shipped


def price_table() -> dict[str, Any]:
    """The table of the installed package. Its version stands for its day, which it does not say."""
    from genai_prices.data import providers

    lists = {}
    for provider in providers:
        models = [row for model in provider.models for row in _rows(model)]
        if models:
            lists[provider.id] = {"falls_back": provider.fallback_model_providers or [], "models": models}
    return {"version": _installed(), "providers": lists}


def _installed() -> str:
    spec = importlib.util.find_spec("genai_prices")
    if spec is None or spec.origin is None:
        return ""
    beside = [path.name for path in Path(spec.origin).parents[1].glob("genai_prices-*.dist-info")]
    if len(beside) == 1:  # the name of the folder says it, without the reader of mail that `importlib.metadata` begins with
        return beside[0].removeprefix("genai_prices-").removesuffix(".dist-info")
    from importlib import metadata

    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in text.split("."))


def _rows(model: Any) -> Iterator[dict[str, Any]]:
    """A model, and it again as `name:batch` where batches have a price of their own."""
    dated = list(_dated(model.prices if isinstance(model.prices, list) else None, model.prices))
    if not dated:
        return
    names = list(dict.fromkeys([model.id.lower(), *_literals(model.match)]))
    row = {"names": names, **({"context": model.context_window} if model.context_window else {}), "prices": dated}
    yield row
    for variant in model.price_variants or ():
        if dict(variant.when) == {"processing": "batch"} and (prices := _prices(variant.prices)):
            yield {**row, "names": [f"{name}:batch" for name in names], "prices": [{**dated[-1], **prices}]}


def _literals(clause: Any) -> Iterator[str]:
    """Every name that a rule of the list spells out; what it says by parts of names is left to `model_names`."""
    for field in ("equals", "starts_with"):
        value = getattr(clause, field, None)
        # A beginning without a number (`claude`) is that of many models, and the name of none.
        if isinstance(value, str) and value[-1:].isalnum() and (field == "equals" or any(map(str.isdigit, value))):
            yield value.lower()
    for part in getattr(clause, "or_", ()):
        yield from _literals(part)


def _dated(conditional: list[Any] | None, always: Any) -> Iterator[dict[str, Any]]:
    """Prices with the day from which they hold, the earliest first. Of prices by the hour, the one of most of the day."""
    if conditional is None:
        if prices := _prices(always):
            yield prices
        return
    rows: list[tuple[str, dict[str, Any]]] = []
    for one in conditional:
        begin = getattr(one.constraint, "start_date", None)
        hours = one.constraint if hasattr(one.constraint, "start_time") else None
        if hours is not None and not _is_most_of_the_day(hours):
            continue
        if prices := _prices(one.prices):
            rows.append((begin.isoformat() if begin else "", prices))
    last = dict(rows)  # of two for one day the later entry counts
    for begin in sorted(last):
        yield {**({"since": begin} if begin else {}), **last[begin]}


def _is_most_of_the_day(hours: Any) -> bool:
    start, end = (moment.hour * 3600 + moment.minute * 60 for moment in (hours.start_time, hours.end_time))
    return bool((end - start) % 86400 > _HALF_A_DAY)


def _prices(price: Any) -> dict[str, Any]:
    """Dollars per million tokens; with tiers, the first and then [above so many input tokens, price]."""
    out: dict[str, Any] = {}
    for theirs, ours in _FIELDS.items():
        value = vars(price).get(theirs)
        if value is None:
            continue
        tiers = getattr(value, "tiers", None)
        out[ours] = float(value) if tiers is None else [float(value.base), *([tier.start, float(tier.price)] for tier in tiers)]
    return out if "input" in out or "output" in out else {}
