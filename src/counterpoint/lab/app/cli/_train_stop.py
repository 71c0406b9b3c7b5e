"""`counterpoint train` in a stopping world: one of the stop trainers learns a rule, which is judged on held-out seeds.

Always true: a rule is learned from seeds that begin at 1,000,000, or from the traces of a store, and judged on 0, 1, ...; it is
written as plain arrays, whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.options import impossible
from counterpoint.app.terminal.options import overrides as parameters
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, number, plain_text, table
from counterpoint.errors import InputError, NotFound, did_you_mean

if TYPE_CHECKING:
    from counterpoint.guard.stop_rule import Rule

_FIRST = 1_000_000
_RUNS = ("seeds", "budget", "updates", "workers", "staleness", "runner", "source")
_DEFAULTS = {"traces": 400, "eval_episodes": 1000}


def train_stop(world: Any, given: Mapping[str, Any], ids: list[str], *, as_json: bool) -> None:
    """Learn a stop rule as the options say, print what it is worth, and write it."""
    from counterpoint.lab.train.stopping.choice import TRAINERS

    name = (given["preset"] or "stacked").replace("-", "_")
    if name not in TRAINERS:
        raise NotFound(f"no stop trainer named {name!r}", fix=did_you_mean(name, TRAINERS))
    unused = [flag for flag in _RUNS if given[flag] is not None]
    if unused:
        raise InputError(f"--{unused[0]} has no effect: a stop rule is learned in one step", fix="--set traces=N, --seed S")
    numbers, pairs = dict(_DEFAULTS), []
    for pair in given["pairs"]:
        key, _, text = pair.partition("=")
        if key in numbers:
            numbers[key] = _whole(key, text)
        else:
            pairs.append(pair)
    with impossible(f"counterpoint world show {world.name}"):
        changes = parameters(world.config, pairs)
        world = world.replace(**changes) if changes else world
    seed = given["seed"] or 0
    out = given["out"] or Path("runs") / f"{name}-{world.name}-seed{seed}.npz"
    if out.exists():
        raise InputError("exists already", where=str(out), fix="choose another --out")
    if given["is_dry"]:
        plan = {"trainer": name, "world": world.name, "seed": seed, "out": str(out), "recorded": len(ids), **numbers}
        return emit({"schema": SCHEMA_VERSION, "would_train": plan}) if as_json else click.echo(json.dumps(plan))
    rule = TRAINERS[name](_paths(world, given["store"], ids, numbers["traces"], seed), seed)
    rule.refuse_other(world)
    out.parent.mkdir(parents=True, exist_ok=True)
    rule.save(out)
    _tell(world, rule, numbers["eval_episodes"], name, out, as_json=as_json)
    return None


def recorded_world(store: str, trace_id: str) -> Any:
    """The shipped world that made a trace, with the parameters that it had then; None where none did."""
    import counterpoint.registry as registry
    from counterpoint.app.terminal.store import open_store
    from counterpoint.lab.worlds.world import world

    with open_store(store, read_only=True) as opened:
        meta = opened.get(trace_id).meta
    name, config = meta.get("world"), meta.get("config")
    if name not in registry.ids("world") or not isinstance(config, Mapping):
        return None
    found = world(name)
    return found.replace(**config) if hasattr(found, "paths") else found


def _paths(world: Any, store: str | None, ids: list[str], traces: int, seed: int) -> Any:
    """Episodes under forced continuation: simulated, or read from a store."""
    if store is None:
        first = _FIRST + seed * 100_000
        return world.paths(range(first, first + traces))
    from counterpoint.app.terminal.store import open_store
    from counterpoint.guard.stop_paths import from_traces

    with open_store(store, read_only=True) as opened:
        return from_traces([opened.get(i) for i in ids])


def _whole(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{name} is {text!r}", where="--set", fix="a whole number above 0")
    return int(text)


def _tell(world: Any, rule: Rule, episodes: int, name: str, out: Path, *, as_json: bool) -> None:
    values = world.run(rule.policy(), range(episodes)).values
    best = world.solution()
    mean, se = float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
    about = {"trainer": name, "world": world.name, "traces": rule.about["traces"], "kind": rule.kind, "rule": str(out)}
    told = {"mean": mean, "se": se, "held_out": episodes, "optimum": best.value, "best_cap": best.cap}
    if as_json:
        return emit({"schema": SCHEMA_VERSION, **about, **told})
    rows = [(k, number(v, 6) if isinstance(v, float) else plain_text(str(v))) for k, v in (about | told).items()]
    return click.echo(table(("stop rule", ""), rows))
