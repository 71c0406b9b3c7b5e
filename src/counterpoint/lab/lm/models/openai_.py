"""`openai:NAME`: a model behind any endpoint that speaks OpenAI's chat completions, of a vendor or your own.

Always true: nothing is asked of the endpoint before the first call; an option that does not exist is an error that names the
nearest one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.lm.model import Model


def openai_(spec: str, **options: Any) -> Model:
    """The model that `spec` names at an endpoint; options are those of `EndpointModel`, with prices as `Prices` or as a table."""
    from counterpoint.lab.lm.endpoint import EndpointModel

    return EndpointModel(spec, **endpoint_settings("openai", options))


def endpoint_settings(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a model behind an endpoint as its constructor takes them."""
    from counterpoint.formats.importing.usage import Prices
    from counterpoint.lab.lm.endpoint import EndpointModel

    known = set(inspect.signature(EndpointModel).parameters) - {"name"}
    for option in options:
        if option not in known:
            raise InputError(f"{kind} has no option {option!r}", fix=did_you_mean(option, known))
    settings = {option: value for option, value in options.items() if value is not None}
    table = settings.get("prices")
    if isinstance(table, Mapping):
        # `Prices` looks a model up without the `organisation/` before its name; here it may be written either way.
        both = {str(name).rpartition("/")[2]: row for name, row in table.items()} | dict(table)
        settings["prices"] = Prices.with_file(both, where="prices")
    return settings
