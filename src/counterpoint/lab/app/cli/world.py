"""Worlds with a known optimum: list them, show one, run policies.

Always true: every policy plays the same seeds, S, S + 1, ...; the same call prints the same bytes; nothing is written without
`--store`, and what was stored before an interruption stays whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

import counterpoint.registry as registry
from counterpoint.app.terminal.groups import Group
from counterpoint.app.terminal.options import impossible, overrides, set_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, SEEDS, emit, fitted, json_option, note, table
from counterpoint.app.terminal.progress import track
from counterpoint.app.words import plain_text
from counterpoint.display import number
from counterpoint.errors import CounterpointError, NotFound, did_you_mean

if TYPE_CHECKING:
    from counterpoint.lab.worlds.world import Optimum, Runs, World
    from counterpoint.store import Store

# Episodes that are played at once: enough to be quick, few enough to say how far it is.
_BATCH, _BATCH_LOGGED = 2048, 128
_IDS_SHOWN = 10


def _epilog(*lines: str) -> str:
    examples = "\n".join(f"  counterpoint world {line}" for line in lines)
    codes = "Exit codes: 0 fine, 2 a wrong option or parameter, 3 no such world or policy."
    return f"\b\nExamples:\n{examples}\n\n{codes}"


@click.group(cls=Group, epilog=_epilog("ls", "show s1 --set horizon=20"))
def world() -> None:
    """Worlds with a known optimum: list them, show one, run policies."""


# -- ls ------------------------------------------------------------------------------------------------------------------


@world.command(epilog=_epilog("ls", "ls --json"))
@json_option
def ls(as_json: bool) -> None:
    """List the worlds."""
    rows = [
        {"world": name, "short": found.short, "version": found.version, "policies": len(found.policies())}
        | {"silent": list(found.silent), "summary": registry.summary("world", name)}
        for name in registry.ids("world")
        for found in [_find(name)]
    ]
    if as_json:
        for row in rows:
            emit(row)
    elif rows:
        cells = [
            (r["world"], r["short"], r["policies"], " ".join(r["silent"]) or "-", r["summary"])  # type: ignore[arg-type]
            for r in rows
        ]
        click.echo(table(("world", "short", "policies", "silent", "summary"), cells, right=(2,), drop=("silent", "policies")))
    else:
        note("No worlds are shipped yet.")


def _find(name: str, pairs: Sequence[str] = ()) -> World:
    """The world of an id, of a short name, or from outside; with other parameters where asked."""
    from counterpoint.lab.worlds.world import world as by_name

    return _changed(by_name(name), pairs)


def _changed(found: World, pairs: Sequence[str]) -> World:
    """The world with `--set`."""
    with impossible(f"counterpoint world show {found.name}"):
        changes = overrides(found.config, pairs)
        return found.replace(**changes) if changes else found


# -- show ----------------------------------------------------------------------------------------------------------------


@world.command(epilog=_epilog("show s1", "show S1b --set horizon=20 --json"))
@click.argument("name")
@set_option
@json_option
def show(name: str, pairs: tuple[str, ...], as_json: bool) -> None:
    """One world: parameters, optimum, silent sub-decisions, policies.

    NAME is an id or a short name of `world ls`, or one of yours as package.module:object.
    """
    from counterpoint.lab.worlds.world import parameters

    found = _find(name, pairs)
    best, numbers = found.optimum(), parameters(found.config)
    if as_json:
        about = {"schema": SCHEMA_VERSION, "world": found.name, "short": found.short, "version": found.version}
        rest = {"optimum": dataclasses.asdict(best), "silent": dict(found.silent), "policies": found.policies()}
        emit(about | {"parameters": [dataclasses.asdict(p) for p in numbers]} | rest)
        return
    silent = list(found.silent.items()) or [("-", "every sub-decision matters here")]
    parts = [
        f"{found.name} ({found.short}), version {found.version}",
        table(("parameter", "value", "unit", "meaning"), [(p.name, _shown(p.value), p.unit, p.doc) for p in numbers], right=(1,)),
        "\n".join(["optimum", *(line for name, text in _optimum(best) for line in fitted(text, f"{name:9}"))]),
        "\n".join(["silent", *(line for name, text in silent for line in fitted(text, f"{name:13}"))]),
        table(("policy",), [(policy,) for policy in found.policies()]),
    ]
    click.echo("\n\n".join(parts))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return number(value, 6)
    return f"{value:,}" if type(value) is int else str(value)


def _optimum(best: Optimum) -> list[tuple[str, str]]:
    rows = [("value", f"{number(best.value, 6)} points per episode ({best.kind})"), ("over", best.over), ("how", best.how)]
    return [*rows, ("prophet", number(best.prophet, 6))]


# -- run -----------------------------------------------------------------------------------------------------------------


@world.command(
    epilog=_epilog("run s1 --policy optimum --policy cap:7 --episodes 1000", "run s1 --episodes 10 --store runs --json")
)
@click.argument("name")
@click.option("--policy", "policies", multiple=True, metavar="P", help="A policy by name; may be repeated. Default: all of them.")
@click.option("--episodes", default=100, show_default=True, type=click.IntRange(min=1), help="How many each policy plays.")
@click.option("--seed", default=0, show_default=True, type=SEEDS, help="The first seed; then seed + 1, ...")
@click.option("--store", is_flag=False, flag_value="", metavar="[DIR]", help="Keep every trace, in DIR or the default store.")
@set_option
@json_option
def run(
    name: str, policies: tuple[str, ...], episodes: int, seed: int, store: str | None, pairs: tuple[str, ...], as_json: bool
) -> None:
    """Play policies in a world, all on the same seeds.

    Prints the mean return with its 95 % interval (Student's), its share of the optimum, and the mean of every other column.
    A policy of yours is named package.module:object.
    """
    from counterpoint.app.terminal.store import open_store

    found = _find(name, pairs)
    chosen = [(p, _policy(found, p)) for p in dict.fromkeys(policies or found.policies())]
    seeds = range(seed, seed + episodes)
    rows: list[dict[str, Any]] = []
    best = found.optimum()
    opened = None if store is None else open_store(store, create=True)
    try:
        for label, policy in chosen:
            row = _row(label, *_play(found, label, policy, seeds, opened), best)
            rows.append(row)
            if as_json:
                emit(_about(found) | {"episodes": episodes, "seed": seed, "optimum": dataclasses.asdict(best)} | row)
    finally:
        if opened is not None:
            opened.close()
    if not as_json:
        click.echo(_text(found, best, rows, seeds))
        _print_ids([id_ for row in rows for id_ in row.get("traces", ())])


def _policy(found: World, name: str) -> Any:
    """What `World.run` is given: a name that the world knows, listed or not (`cap:7`), or an object from outside."""
    if name in found.policies():
        return name
    try:
        found.run(name, [0])
        return name
    except CounterpointError as error:
        refused = error
    if ":" in name:
        try:
            return registry.get("policy", name)
        except NotFound:
            pass  # neither the world's nor a module's
    fix = (":" in name and refused.fix) or did_you_mean(name, found.policies())
    raise NotFound(f"no policy named {name!r} in {found.name}", fix=fix) from refused


def _play(found: World, label: str, policy: Any, seeds: range, store: Store | None) -> tuple[list[Runs], list[str] | None]:
    """The results in batches, as an episode is the same alone or among many; and the ids of the traces, where kept."""
    size = _BATCH if store is None else _BATCH_LOGGED
    runs: list[Runs] = []
    ids: list[str] = []
    for begin in track(range(0, len(seeds), size), label):
        batch = found.run(policy, list(seeds[begin : begin + size]), log=store is not None)
        runs.append(dataclasses.replace(batch, make_trace=None))
        if store is not None:
            traces = [batch.trace(i) for i in range(len(batch.values))]
            replaced = store.add_many(traces).count("updated")
            if replaced:
                note(f"{label}: {replaced:,} stored traces had these ids and another content; they were replaced")
            ids += [trace.trace_id for trace in traces]
    return runs, None if store is None else ids


def _row(label: str, runs: list[Runs], ids: list[str] | None, best: Optimum) -> dict[str, Any]:
    import numpy as np

    from counterpoint.lab.bench.claim import mean_interval

    mean, low, high = mean_interval(np.concatenate([r.values for r in runs]).tolist())
    names = runs[0].columns
    columns = {name: float(np.concatenate([r.columns[name] for r in runs]).mean()) for name in names}
    share, share_low, share_high = (x / best.value if x is not None and best.value > 0 else None for x in (mean, low, high))
    row = {"policy": label, "mean": mean, "low": low, "high": high, "share": share, "share_low": share_low}
    row |= {"share_high": share_high, "columns": columns}
    return row if ids is None else row | {"traces": ids}


def _about(found: World) -> dict[str, Any]:
    config = {f.name: getattr(found.config, f.name) for f in dataclasses.fields(found.config)}
    about = {"schema": SCHEMA_VERSION, "world": found.name, "short": found.short, "version": found.version}
    return about | {"parameters": config}


def _text(found: World, best: Optimum, rows: list[dict[str, Any]], seeds: range) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row["columns"]))
    header = ("policy", "return", "95 % low", "high", "of optimum", "low", "high", *columns)
    keys = ("mean", "low", "high", "share", "share_low", "share_high")
    cells = [(r["policy"], *(r[key] for key in keys), *(r["columns"].get(c) for c in columns)) for r in rows]
    head = f"{found.name} ({found.short}): {len(seeds):,} episodes each, seeds {seeds[0]} to {seeds[-1]}; "
    head += f"optimum {number(best.value)} ({best.kind})"
    return plain_text(head) + "\n\n" + table(header, cells, right=range(1, len(header)), drop=columns[::-1])


def _print_ids(ids: list[str]) -> None:
    if ids:
        click.echo(f"\nstored {len(ids):,} {'trace' if len(ids) == 1 else 'traces'}")
        click.echo("\n".join("  " + plain_text(id_) for id_ in ids[:_IDS_SHOWN]))
    if len(ids) > _IDS_SHOWN:
        note(f"  and {len(ids) - _IDS_SHOWN:,} more: --json prints every id")
