"""What is watched for, who is told and which model judges: one TOML file, and what `--cap` changes in it.

Always true: a name that is not known, a value of the wrong kind and a channel that this machine does not have are one clear error
before anything is watched; a rule with the limit 0 is off; a secret stands in an environment variable, never in the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, structs

from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.files import read_toml

EXAMPLE = """\
# Who and what `counterpoint watch --alerts FILE` tells. All of it may be left out; a limit of 0 takes its rule away.
[rules]
stuck_minutes = 10    # a call without an answer, and nothing in the whole run grew for so long
failures = 3          # failures of one kind in a run that nothing mended
loops = 4             # the same call of one agent in a row, each time with the same result
agents = 100          # sub-agents of a run; told again at each doubling
depth = 4             # spawns between the first agent and a sub-agent
dollars = 25.0        # what a run costs, at least; told again at each doubling
tokens = 0            # what a run reads and writes
injections = true     # a text from outside gives orders, and they were carried out or tried
regressions = true    # a cause that was marked resolved in `counterpoint issues` happens again

[tell]
desktop = false       # notify-send, or osascript
mail = []             # addresses, through sendmail: ["ada@example.com"]
webhooks = []         # each gets a POST of JSON: ["https://example.com/hook"]
secret_env = ""       # the variable with the secret that signs them

[judge]               # a model's verdict on each run that no longer grows, kept as a note
model = ""            # openai:NAME, local:NAME; none is asked without one. What it reads is masked
base_url = ""         # the endpoint of openai:NAME
key_env = ""          # the variable with its key
rubric = ""           # a file as `counterpoint notes rubric` prints one
tell = []             # verdicts that are told: ["wrong"], or on a scale ["1", "2"]
tokens = 200000       # the most that it takes in 24 hours
settled_minutes = 10  # a run is judged when nothing of it grew for so long
"""
_FIX = "counterpoint watch --list prints a file to begin with"
_LOOPS = 4


class Rules(Struct, frozen=True, kw_only=True):
    """Limits; 0 or false takes a rule away."""

    stuck_minutes: float = 10.0
    failures: int = 3
    loops: int = _LOOPS
    agents: int = 100
    depth: int = 4
    dollars: float = 25.0
    tokens: int = 0
    injections: bool = True
    regressions: bool = True


class Tell(Struct, frozen=True, kw_only=True):
    """Who is told, besides the terminal."""

    desktop: bool = False
    mail: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()
    secret_env: str = ""


class JudgeSettings(Struct, frozen=True, kw_only=True):
    """The model that judges, where one is named."""

    model: str = ""
    base_url: str = ""
    key_env: str = ""
    rubric: str = ""
    tell: tuple[str, ...] = ()
    tokens: int = 200_000
    settled_minutes: float = 10.0


class WatchSettings(Struct, frozen=True, kw_only=True):
    """All of it."""

    rules: Rules = Rules()
    tell: Tell = Tell()
    judge: JudgeSettings = JudgeSettings()


CAPS: dict[str, type] = {"stuck_minutes": float, "failures": int, "agents": int, "depth": int, "dollars": float, "tokens": int}
"""What `--cap` sets."""


def watch_settings(file: Path | None, caps: Mapping[str, Any]) -> WatchSettings:
    """Those of a file, or the usual ones, with some limits in place of theirs."""
    found = WatchSettings()
    if file is not None:
        if not file.exists():
            raise NotFound("no such file", where=str(file), fix=_FIX)
        found = _of_table(read_toml(file, fix=_FIX), str(file))
    return structs.replace(found, rules=structs.replace(found.rules, **caps)) if caps else found


def _of_table(table: dict[str, Any], where: str) -> WatchSettings:
    parts: dict[str, Any] = {"rules": Rules, "tell": Tell, "judge": JudgeSettings}
    for name, values in table.items():
        if name not in parts:
            raise InputError(f"no table [{name}]", where=where, fix=did_you_mean(name, parts))
        if not isinstance(values, dict):
            raise InputError(f"{name} is {values!r}, not a table", where=where, fix=_FIX)
    rules = {name: _rule(name, value, where) for name, value in table.get("rules", {}).items()}
    tell = {name: _told(name, value, where) for name, value in table.get("tell", {}).items()}
    judge = {name: _judging(name, value, where) for name, value in table.get("judge", {}).items()}
    found = JudgeSettings(**judge)
    if found.model and not found.rubric:
        fix = "counterpoint notes rubric > verdict.toml"
        raise InputError("the model has no rubric", where=f"{where}: judge.rubric", fix=fix)
    if found.rubric:  # beside the file that names it
        found = structs.replace(found, rubric=os.path.join(os.path.dirname(where), found.rubric))
    return WatchSettings(rules=Rules(**rules), tell=Tell(**tell), judge=found)


def _judging(name: str, value: Any, where: str) -> Any:
    usual = getattr(JudgeSettings(), name, None)
    if usual is None:
        fix = did_you_mean(name, JudgeSettings.__struct_fields__)
        raise InputError(f"no setting named {name!r} in [judge]", where=where, fix=fix)
    if isinstance(usual, str):
        if not isinstance(value, str):
            raise InputError(f"judge.{name} is {value!r}", where=where, fix="a text")
        if name == "key_env" and value and not os.environ.get(value):
            raise InputError(f"judge.key_env is {value!r}", where=where, fix="the name of an environment variable that is set")
        return value
    if isinstance(usual, tuple):
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise InputError(f"judge.{name} is {value!r}", where=where, fix='a list of verdicts: ["wrong"]')
        return tuple(dict.fromkeys(value))
    kinds = (int, float) if isinstance(usual, float) else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < float("inf"):
        raise InputError(f"judge.{name} is {value!r}", where=where, fix="a number from 0")
    return value


def _rule(name: str, value: Any, where: str) -> Any:
    usual = getattr(Rules(), name, None)
    if usual is None:
        raise InputError(f"no rule named {name!r}", where=where, fix=did_you_mean(name, Rules.__struct_fields__))
    if isinstance(usual, bool):
        if not isinstance(value, bool):
            raise InputError(f"rules.{name} is {value!r}", where=where, fix="true or false")
        return value
    kinds = (int, float) if isinstance(usual, float) else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < float("inf"):
        kind = "a number" if isinstance(usual, float) else "a whole number"
        raise InputError(f"rules.{name} is {value!r}", where=where, fix=f"{kind} from 0; 0 takes the rule away")
    if name == "loops" and 0 < value < _LOOPS:
        raise InputError(f"rules.loops is {value!r}", where=where, fix=f"{_LOOPS} calls or more; 0 takes the rule away")
    return value


def _told(name: str, value: Any, where: str) -> Any:
    if name not in Tell.__struct_fields__:
        raise InputError(f"no setting named {name!r} in [tell]", where=where, fix=did_you_mean(name, Tell.__struct_fields__))
    if name == "desktop":
        if not isinstance(value, bool):
            raise InputError(f"tell.desktop is {value!r}", where=where, fix="true or false")
        return value
    if name == "secret_env":
        if not isinstance(value, str) or (value and not os.environ.get(value)):
            raise InputError(f"tell.secret_env is {value!r}", where=where, fix="the name of an environment variable that is set")
        return value
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InputError(f"tell.{name} is {value!r}", where=where, fix=_FIX)
    for one in value:
        (_check_url if name == "webhooks" else _check_address)(one, where)
    return tuple(dict.fromkeys(value))


def _check_url(url: str, where: str) -> None:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(f"not the address of a webhook: {url!r}", where=where, fix="as in https://example.com/hook")


def _check_address(address: str, where: str) -> None:
    name, sign, host = address.rpartition("@")
    if not (name and sign and host) or not address.isprintable() or set(address) & set(" ,;<>\"'()"):
        raise InputError(f"not an e-mail address: {address!r}", where=where, fix="as in ada@example.com")
