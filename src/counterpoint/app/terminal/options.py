"""The options that commands share, each defined once, so that one flag means one thing everywhere.

Always true: a name that is set twice, a pair without `=` and a value of the wrong type are one clear error before anything runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from counterpoint.errors import CounterpointError, InputError, did_you_mean

Command = TypeVar("Command", bound=Callable[..., Any])


class NumberRange(click.FloatRange):
    """A number within limits; click alone lets NaN through, and a wait of NaN seconds never ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; NaN is refused."""
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


# -- the options -------------------------------------------------------------------------------------------------------


set_option = click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="Override a parameter; may be repeated.")
author_option = click.option("--author", metavar="NAME", help="Who says so (default: $COUNTERPOINT_AUTHOR, or your login).")
note_option = click.option("--note", "remark", metavar="TEXT", help="The reason, or what it is for.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
dry_run_option = click.option("--dry-run", "is_dry", is_flag=True, help="Report what would happen, and do nothing.")
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace files that exist.")
ids_option = click.option("--ids", "with_ids", is_flag=True, help="Show whole ids instead of names and titles.")
mask_option = click.option(
    "--mask", type=click.Choice(["keys", "personal", "off"]), default="keys", show_default=True,
    help="Mask keys, e-mail addresses and home folders; personal: phone numbers, cards, IBANs and IP addresses too.",
)  # fmt: skip
allow_option = click.option(
    "--allow", multiple=True, metavar="NAME",
    help="Allow this to run: an irreversible tool, or code (module:object) that a file names; may be repeated.",
)  # fmt: skip
team_option = click.option(
    "--team", metavar="FILE:FUNCTION", help="The code of your own recorded team (my.py:team): it is run again over the recording."
)
token_option = click.option(
    "--token-file", type=click.Path(path_type=Path), metavar="FILE",
    help="A file with the access token (default: $COUNTERPOINT_TOKEN).",
)  # fmt: skip
success_option = click.option(
    "--success", type=float, default=1.0, show_default=True, help="The team reward from which a run counts as a success."
)
purge_option = click.option(
    "--purge", is_flag=True, help="Erase removed and replaced traces from the store's files at once, even while others read."
)
follow_option = click.option("--follow", is_flag=True, help="Keep going as more arrives, until Ctrl-C.")
host_option = click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
mechanism_option = click.option(
    "--mechanism", metavar="NAME[,NAME]", help="A credit mechanism of `credit --list`, or package.module:object."
)
limits_option = click.option(
    "--limits", "limits_file", type=click.Path(dir_okay=False), metavar="FILE",
    help="Limits of agents in TOML, as `counterpoint guard limits` prints them.",
)  # fmt: skip


def seed_option(help_: str = "Seed of everything random.", *, default: int | None = 0) -> Callable[[Command], Command]:
    """`--seed N`; others may be counted on from it, and all are 64-bit numbers."""
    kind = click.IntRange(min=0, max=2**62)
    return click.option("--seed", type=kind, default=default, show_default=default is not None, help=help_)


def rows_option(
    default: int | None, help_: str = "Print this many rows of each table; 0 for all."
) -> Callable[[Command], Command]:
    """`--rows N`: how many rows a table prints."""
    return click.option("--rows", type=click.IntRange(min=0), default=default, show_default=default is not None, help=help_)


def output_option(help_: str, *, metavar: str = "FILE", default: Path | None = None, **more: Any) -> Callable[[Command], Command]:
    """`-o/--output PATH`: where a command writes."""
    kind = click.Path(path_type=Path)
    shows = default is not None
    return click.option("-o", "--output", type=kind, metavar=metavar, help=help_, default=default, show_default=shows, **more)


def port_option(default: int) -> Callable[[Command], Command]:
    """`--port N`: where a server listens."""
    kind = click.IntRange(0, 65535)
    return click.option("--port", default=default, show_default=True, type=kind, help="0 takes any free port.")


def list_option(help_: str) -> Callable[[Command], Command]:
    """`--list`: what there is, and nothing else happens."""
    return click.option("--list", "is_list", is_flag=True, help=help_)


def kind_option(help_: str) -> Callable[[Command], Command]:
    """`--kind K`: only these kinds; repeated, or several separated by commas."""
    return click.option("--kind", "kinds", multiple=True, metavar="K[,K]", help=help_)


def agent_option(help_: str) -> Callable[[Command], Command]:
    """`--agent NAME`."""
    return click.option("--agent", default="", metavar="NAME", help=help_)


def workers_option(help_: str) -> Callable[[Command], Command]:
    """`--workers N`: how many processes work at once."""
    return click.option("--workers", type=click.IntRange(min=1), metavar="N", help=help_)


def full_option(help_: str = "Print everything, uncut.") -> Callable[[Command], Command]:
    """`--full`: nothing is cut, folded or left out."""
    return click.option("--full", "is_full", is_flag=True, help=help_)


def summary_option(help_: str) -> Callable[[Command], Command]:
    """`--summary`: the whole instead of its parts."""
    return click.option("--summary", "is_summary", is_flag=True, help=help_)


def group_option(help_: str) -> Callable[[Command], Command]:
    """`--group WHAT`: one line for each."""
    return click.option("--group", metavar="WHAT", help=help_)


def samples_option(help_: str, default: int | None = None, *, least: int = 1) -> Callable[[Command], Command]:
    """`-n/--samples K`: how many forks an estimate is drawn from."""
    kind, shows = click.IntRange(min=least), default is not None
    return click.option("-n", "--samples", type=kind, metavar="K", default=default, show_default=shows, help=help_)


def cap_option(*names: str) -> Callable[[Command], Command]:
    """`--cap NAME=N`: limits and budgets, of the names that this command knows."""
    help_ = f"A limit: {', '.join(names)}; may be repeated."
    return click.option("--cap", "caps", multiple=True, metavar="NAME=N", help=help_)


def model_options(help_: str, *, default: str | None = None) -> Callable[[Command], Command]:
    """`--model`, `--base-url` and `--model-set`: which model answers, and how it is reached."""

    def add(command: Command) -> Command:
        for option in (
            click.option(
                "--model-set", "model_pairs", multiple=True, metavar="NAME=VALUE",
                help="A setting of the model, such as key_env=MY_KEY for an endpoint; may be repeated.",
            ),
            click.option("--base-url", metavar="URL", help="The endpoint of openai:NAME."),
            click.option("--model", "model_name", metavar="MODEL", default=default, show_default=default is not None, help=help_),
        ):  # fmt: skip
            command = option(command)
        return command

    return add


# -- their values ------------------------------------------------------------------------------------------------------


def values_of(pairs: Sequence[str], flag: str = "--set") -> dict[str, Any]:
    """Name to value of NAME=VALUE pairs: JSON, or plain text where it is none."""
    values: dict[str, Any] = {}
    for name, text in _split(pairs, flag):
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def caps_of(pairs: Sequence[str], names: Mapping[str, type]) -> dict[str, Any]:
    """Name to limit of `--cap NAME=N`, each an int or a float that is not negative; names that are not set are left out."""
    caps: dict[str, Any] = {}
    for name, text in _split(pairs, "--cap"):
        if name not in names:
            raise InputError(f"no limit named {name!r}", where="--cap", fix=did_you_mean(name, names))
        try:
            caps[name] = names[name](text)
        except ValueError:
            caps[name] = -1
        if not 0 <= caps[name] < float("inf"):
            kind = "a whole number" if names[name] is int else "a number"
            raise InputError(f"{name} is {kind} from 0, not {text!r}", where="--cap", fix=f"as in --cap {name}=100")
    return caps


def most_rows(rows: int | None, default: int | None) -> int | None:
    """How many rows to print: `--rows`, or the default where it is not set; None for all."""
    return default if rows is None else rows or None


def numbers_of(pairs: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """Name to number of NAME=VALUE pairs, none of them negative; names that are not set are left out."""
    numbers: dict[str, float] = {}
    for name, value in values_of(pairs).items():
        if name not in names:
            raise InputError(f"no setting named {name!r}", where="--set", fix=did_you_mean(name, names))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise InputError(f"{name} is a number from 0, not {value!r}", where="--set", fix=f"as in --set {name}=1")
        numbers[name] = float(value)
    return numbers


def endpoint_of(base_url: str | None, pairs: Sequence[str]) -> dict[str, Any]:
    """`base_url` and `key_env` of the model that answers changed calls of a live team."""
    settings = model_settings(base_url, pairs)
    for name in settings:
        if name not in ("base_url", "key_env"):
            raise InputError(f"no setting named {name!r}", where="--model-set", fix=did_you_mean(name, ("base_url", "key_env")))
    return {"base_url": settings.get("base_url"), "key_env": settings.get("key_env")}


def model_settings(base_url: str | None, pairs: Sequence[str]) -> dict[str, Any]:
    """What `--base-url` and `--model-set` say about the model."""
    settings = values_of(pairs, "--model-set")
    if base_url is not None and settings.setdefault("base_url", base_url) != base_url:
        raise InputError("base_url is set twice", where="--model-set", fix="set it once")
    return settings


def read_token(path: Path | None) -> str:
    """The access token in a file, or in $COUNTERPOINT_TOKEN; empty where there is none."""
    if path is None:
        return os.environ.get("COUNTERPOINT_TOKEN", "").strip()
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise InputError("the token cannot be read", where=str(path), why=error.strerror) from error
    if not token or not token.isascii() or not token.isprintable():
        raise InputError("holds no token", where=str(path), fix="one line of letters and digits: openssl rand -hex 32")
    return token


def overrides(config: Any, pairs: Sequence[str]) -> dict[str, Any]:
    """What `--set` changes in a config; a value has the type that the parameter has now."""
    return {name: _value(text, getattr(config, name, None), name) for name, text in _split(pairs, "--set")}


def _split(pairs: Sequence[str], flag: str) -> list[tuple[str, str]]:
    out: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(f"not NAME=VALUE: {pair!r}", where=flag, fix=f"as in {flag} {_EXAMPLES.get(flag, 'name=1')}")
        if name in out:
            raise InputError(f"{name!r} is set twice", where=flag, fix="set it once")
        out[name] = text
    return list(out.items())


_EXAMPLES = {"--set": "horizon=20", "--cap": "tokens=50000", "--model-set": "key_env=MY_KEY"}


@contextmanager
def impossible(fix: str) -> Iterator[None]:
    """Values that contradict each other become one clear error."""
    try:
        yield
    except CounterpointError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"impossible parameters: {error}", where="--set", fix=fix) from error


def _value(text: str, present: Any, name: str) -> Any:
    """The text as a value of the type that the parameter has now: `1` for 1.0 is a float, a list for a tuple a tuple."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(present, float) and type(value) is int:
        return float(value)
    if isinstance(present, tuple) and isinstance(value, list):
        return tuple(value)
    if present is not None and type(value) is not type(present):
        kinds = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "tuple": "a list"}
        kind = kinds.get(type(present).__name__, f"a {type(present).__name__}")
        raise InputError(f"{name} is {kind}, not {text!r}", where="--set", fix=f"it is {json.dumps(present, default=str)} now")
    return value
