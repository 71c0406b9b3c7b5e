"""Options that several sub-commands of guard take, and how amounts and times are printed."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from counterpoint.app.terminal.options import cap_option, limits_option

client_option = click.option(
    "--client", type=click.Choice(["claude_code", "codex"]), default="claude_code", show_default=True, help="The client."
)
scope_option = click.option(
    "--scope", type=click.Choice(["project", "local", "user"]), default="project", show_default=True,
    help="Guard this folder's project, the project on this machine alone (settings that are not shared), or all your projects.",
)  # fmt: skip
answer_option = click.option(
    "--answer", type=click.Choice(["json", "exit"]), default="json", show_default=True,
    help="Refuse with a JSON object, or with exit code 2 for clients that ignore the object.",
)  # fmt: skip
_NAMES = ("agents", "depth", "calls", "tokens", "dollars", "minutes", "failures", "repeats", "prompt.NAME since the last prompt")


def limit_options(command: Any) -> Any:
    """`--cap`, `--limits` and `--prices`."""
    prices = click.option("--prices", type=click.Path(dir_okay=False), metavar="FILE", help="Prices of models, in TOML.")
    return cap_option(*_NAMES)(limits_option(prices(command)))


def hook_options(caps: tuple[str, ...], limits_file: str | None, prices: str | None) -> dict[str, list[str]]:
    """The options as the hook takes them, checked."""
    from counterpoint.guard.hook import read_limits
    from counterpoint.guard.prices import price_of
    from counterpoint.guard.state import GuardState

    options: dict[str, list[str]] = {}
    if caps:
        options["--cap"] = list(caps)
    if limits_file is not None:
        options["--limits"] = [os.path.abspath(limits_file)]
    if prices is not None:
        options["--prices"] = [os.path.abspath(prices)]
    limits = read_limits(GuardState(), options)
    if limits.prices is not None:
        price_of("", limits.prices)
    return options


def amount(name: str, value: float) -> str:
    """A count, dollars or minutes, by the name of the limit."""
    if name.endswith("dollars"):
        return f"${value:,.2f}"
    return f"{value:,.1f}" if name.endswith("minutes") else f"{value:,.0f}"


def time_of(at: float | None) -> str:
    """A time in UTC, to the second."""
    return "-" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
