"""Policies in a world, all on the same seeds: what `play --world` does.

Always true: the same call prints the same bytes; nothing is written without a store, and an interruption leaves whole what was
stored before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

import counterpoint.registry as registry
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, note, table
from counterpoint.app.terminal.progress import track
from counterpoint.app.words import plain_text
from counterpoint.display import counted, number
from counterpoint.errors import CounterpointError, NotFound, did_you_mean
from counterpoint.lab.app.cli._worlds import find_world, parameters_of

if TYPE_CHECKING:
    from counterpoint.lab.worlds.world import Optimum, Runs, World
    from counterpoint.store import Store

# Episodes that are played at once: enough to be quick, few enough to show progress.
_BATCH, _BATCH_LOGGED = 2048, 128
_IDS_SHOWN = 10


def play_world(
    name: str, policies: Sequence[str], episodes: int, seed: int, pairs: Sequence[str], store: str | None, *, as_json: bool
) -> None:
    """Play policies, every one of the world where none is named, and print their returns; `store` "" is the default store."""
    from counterpoint.app.terminal.store import open_store

    found = find_world(name, pairs)
    players = [(p, _policy(found, p)) for p in dict.fromkeys(policies or found.policies())]
    seeds = range(seed, seed + episodes)
    rows: list[dict[str, Any]] = []
    best = found.optimum()
    opened = None if store is None else open_store(store or None, create=True)
    try:
        for label, policy in players:
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
                note(f"{label}: {replaced:,} stored traces had these ids and other content; they were replaced")
            ids += [trace.trace_id for trace in traces]
    return runs, None if store is None else ids


def _row(label: str, runs: list[Runs], ids: list[str] | None, best: Optimum) -> dict[str, Any]:
    import numpy as np

    from counterpoint.lab.bench.intervals import mean_interval

    mean, low, high = mean_interval(np.concatenate([r.values for r in runs]).tolist())
    names = runs[0].columns
    columns = {name: float(np.concatenate([r.columns[name] for r in runs]).mean()) for name in names}
    share, share_low, share_high = (x / best.value if x is not None and best.value > 0 else None for x in (mean, low, high))
    row = {"policy": label, "mean": mean, "low": low, "high": high, "share": share, "share_low": share_low}
    row |= {"share_high": share_high, "columns": columns}
    return row if ids is None else row | {"traces": ids}


def _about(found: World) -> dict[str, Any]:
    about = {"schema": SCHEMA_VERSION, "world": found.name, "short": found.short, "version": found.version}
    return about | {"parameters": parameters_of(found)}


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
        click.echo(f"\nstored {counted(len(ids), 'trace')}")
        click.echo("\n".join("  " + plain_text(id_) for id_ in ids[:_IDS_SHOWN]))
    if len(ids) > _IDS_SHOWN:
        note(f"  and {len(ids) - _IDS_SHOWN:,} more: --json prints every id")
