"""List the worlds with a known optimum, or show one.

Always true: the same call prints the same bytes; nothing is played or written.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

import counterpoint.registry as registry
from counterpoint.app.terminal.options import set_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, fitted, json_option, table
from counterpoint.display import number
from counterpoint.errors import InputError
from counterpoint.lab.app.cli._worlds import find_world

if TYPE_CHECKING:
    from counterpoint.lab.worlds.world import Optimum


@click.command(
    epilog="\b\nExamples:\n  counterpoint train worlds\n  counterpoint train worlds S1b --set horizon=20 --json\n\n"
    "Exit codes: 0 fine, 2 a wrong option or parameter, 3 no such world."
)
@click.argument("name", required=False)
@set_option
@json_option
def worlds(name: str | None, pairs: tuple[str, ...], as_json: bool) -> None:
    """List the worlds, or show one: parameters, optimum, silent sub-decisions, policies.

    NAME is an id or a short name of the list, or one of yours as package.module:object. `counterpoint play --world` plays them.
    """
    if name is not None:
        _show(name, pairs, as_json=as_json)
    elif pairs:
        raise InputError("no world to change", where="--set", fix="name one: counterpoint train worlds W1 --set vote_items=8")
    else:
        _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    rows = [
        {"world": name, "short": found.short, "version": found.version, "policies": len(found.policies())}
        | {"silent": list(found.silent), "summary": registry.summary("world", name)}
        for name in registry.ids("world")
        for found in [find_world(name)]
    ]
    if as_json:
        for row in rows:
            emit(row)
        return
    cells = [
        (r["world"], r["short"], r["policies"], " ".join(r["silent"]) or "-", r["summary"])  # type: ignore[arg-type]
        for r in rows
    ]
    click.echo(table(("world", "short", "policies", "silent", "summary"), cells, right=(2,), drop=("silent", "policies")))


def _show(name: str, pairs: tuple[str, ...], *, as_json: bool) -> None:
    from counterpoint.lab.worlds.world import parameters

    found = find_world(name, pairs)
    best, numbers = found.optimum(), parameters(found.config)
    if as_json:
        about = {"schema": SCHEMA_VERSION, "world": found.name, "short": found.short, "version": found.version}
        rest = {"optimum": dataclasses.asdict(best), "silent": dict(found.silent), "policies": found.policies()}
        emit(about | {"parameters": [dataclasses.asdict(p) for p in numbers]} | rest)
        return
    silent = list(found.silent.items()) or [("-", "every sub-decision matters here")]
    cells = [(p.name, _value_text(p.value), p.unit, p.doc) for p in numbers]
    parts = [
        f"{found.name} ({found.short}), version {found.version}",
        table(("parameter", "value", "unit", "meaning"), cells, right=(1,)),
        "\n".join(["optimum", *(line for name, text in _optimum(best) for line in fitted(text, f"{name:9}"))]),
        "\n".join(["silent", *(line for name, text in silent for line in fitted(text, f"{name:13}"))]),
        table(("policy",), [(policy,) for policy in found.policies()]),
    ]
    click.echo("\n\n".join(parts))


def _value_text(value: Any) -> str:
    if isinstance(value, float):
        return number(value, 6)
    return f"{value:,}" if type(value) is int else str(value)


def _optimum(best: Optimum) -> list[tuple[str, str]]:
    rows = [("value", f"{number(best.value, 6)} points per episode ({best.kind})"), ("over", best.over), ("how", best.how)]
    return [*rows, ("prophet", number(best.prophet, 6))]
