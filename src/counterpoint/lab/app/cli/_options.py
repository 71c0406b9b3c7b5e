"""Options that several commands of the laboratory share, and the values of `--cap` and `--model-set`.

Always true: an option that the model has no use for is one clear error before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from counterpoint.app.terminal.options import caps_of, model_settings
from counterpoint.errors import InputError, did_you_mean

gate_option = click.option(
    "--gate", "gates", multiple=True, metavar="NAME[,NAME]", help="Defences: allow_list, taint, quorum, verifier, quarantine."
)
preset_option = click.option("--preset", metavar="NAME", help="A name of `train presets`, or package.module:object.")
runner_option = click.option(
    "--runner", metavar="NAME", help="Where runs are played: here, processes, ray (a cluster: ray:HOST:PORT, ray:auto)."
)
workers_option = click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="Processes or actors of the runner (processes unless named)."
)

_RUNNERS = ("here", "processes", "ray")
_OF_LOCAL = ("device", "dtype", "threads", "batch", "propensities", "context")
_OF_ENDPOINT = ("base_url", "key_env", "concurrency", "rpm", "tpm", "timeout_s", "retries", "token_ids", "price")
_NEEDS = dict.fromkeys(_OF_ENDPOINT, ("an endpoint", "openai:NAME")) | dict.fromkeys(_OF_LOCAL, ("a local model", "local:NAME"))


def split_runner(text: str | None) -> tuple[str | None, str | None]:
    """The runner and the address of its cluster, from `--runner ray:HOST:PORT`."""
    if text is None:
        return None, None
    kind, _, address = text.partition(":")
    if kind not in _RUNNERS:
        raise InputError(f"no runner named {kind!r}", where="--runner", fix=did_you_mean(kind, _RUNNERS))
    if address and kind != "ray":
        raise InputError(f"the runner {kind} has no address", where="--runner", fix=f"--runner ray:{address}")
    return kind, address or None


def counts_of(pairs: Sequence[str], *names: str) -> dict[str, int]:
    """The values of `--cap`, each a whole number above 0."""
    caps = caps_of(pairs, dict.fromkeys(names, int))
    for name, value in caps.items():
        if value < 1:
            raise InputError(f"{name} is {value}", where="--cap", fix="a whole number above 0")
    return caps


def model_options(model: str, base_url: str | None, pairs: Sequence[str]) -> dict[str, Any]:
    """The options of a model that `--base-url` and `--model-set` name, as the model takes them."""
    options, kind = model_settings(base_url, pairs), model.partition(":")[0]
    for name in options:
        what, example = _NEEDS.get(name, ("", ""))
        if what and kind in ("fake", "scripted", "openai", "local") and example.partition(":")[0] != kind:
            flag = "--base-url" if name == "base_url" and base_url is not None else name
            raise InputError(f"{flag} is for {what}", where="--model", fix=f"--model {example}")
    if "price" in options:
        read, written = price_of(options.pop("price"))
        options["prices"] = {model.partition(":")[2]: {"input": read, "output": written}}
    return options


def price_of(value: Any) -> tuple[float, float]:
    """Dollars per million tokens read and written, from `IN,OUT`."""
    try:
        read, written = (float(part) for part in str(value).split(","))
    except ValueError:
        fix = "dollars per million tokens read and written: price=0.5,2"
        raise InputError(f"{value!r} is not a price", where="--model-set", fix=fix) from None
    return read, written


def names_of(text: str | None) -> tuple[str, ...]:
    """The names of a list with commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
