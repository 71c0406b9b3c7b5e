"""What a model's tokens cost, as the importers price them: one number for each kind of token that a guard counts.

Always true: a session costs here what `counterpoint import` says that it cost.
"""

from __future__ import annotations

from counterpoint.files import read_toml
from counterpoint.formats.importing.usage import PRICES, Prices, Usage

_MILLION = 1_000_000
_FIX = 'write ["model"] tables with input and output'
# An hour in the cache may have a price of its own.
_HOUR = {"cache_write_1h": _MILLION} if "cache_write_1h" in Usage._fields else {}
# In the order of a guard's counts: fresh input, cache read, cache written for minutes, for an hour, output.
_ONE_OF_EACH = (
    Usage(fresh=_MILLION),
    Usage(cache_read=_MILLION),
    Usage(cache_write=_MILLION),
    Usage(cache_write=_MILLION, **_HOUR),
    Usage(output=_MILLION),
)


def price_of(model: str, file: str | None = None) -> list[float] | None:
    """Dollars per million tokens of each kind; None where neither the file nor the package's table names the model."""
    prices = PRICES if file is None else Prices.with_file(read_toml(file, fix=_FIX), where=file)
    found = [prices.cost(model, usage) for usage in _ONE_OF_EACH]
    known = [dollars for dollars in found if dollars is not None]
    return known if len(known) == len(found) else None
