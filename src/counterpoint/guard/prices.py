"""What a model's tokens cost, as the importers price them: one number for each kind of token that a guard counts.

Always true: a session costs here what `counterpoint import` says that it cost, as long as its calls are of ordinary length: a
guard counts tokens, not calls, and knows no surcharge for long ones.
"""

from __future__ import annotations

from counterpoint.files import read_toml
from counterpoint.formats.importing.usage import PRICES, Prices

_FIX = 'write ["model"] tables with input and output'


def price_of(model: str, file: str | None = None, *, at: float | None = None) -> list[float] | None:
    """Dollars per million tokens, in the order of a guard's counts: fresh input, cache read, cache written for minutes, for an
    hour, output, as they were at a time or are now; None where neither the file nor the package's list names the model."""
    prices = PRICES if file is None else Prices.with_file(read_toml(file, fix=_FIX), where=file)
    price = prices.of(model, at=at)
    if price is None:
        return None
    hour = price.cache_write if price.cache_write_1h is None else price.cache_write_1h
    return [price.input, price.cache_read, price.cache_write, hour, price.output]
