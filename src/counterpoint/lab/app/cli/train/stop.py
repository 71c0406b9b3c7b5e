"""Learn a stop rule, in a stopping world or from recorded traces.

Always true: a rule learns from seeds that begin at 1,000,000, or from the traces of a store, and is judged on seeds 0, 1, ...; it
is written as plain arrays, whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.options import dry_run_option, output_option, seed_option, set_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, table
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.display import number, plain_text
from counterpoint.errors import InputError, NotFound, NotIdentified, did_you_mean
from counterpoint.lab.app.cli._worlds import changed_world, find_world

if TYPE_CHECKING:
    from counterpoint.guard.stop_rule import Rule

_FIRST = 1_000_000
_DEFAULTS = {"traces": 400, "eval_episodes": 1000}


@click.command(
    epilog="\b\nExamples:\n  counterpoint train stop --world S1 --preset longstaff_schwartz --set traces=1600 -o stop.npz\n"
    "  counterpoint train stop 'reward>0' --store traces -o stop.npz --json\n\n"
    "Exit codes: 0 learned, 2 a wrong option or setting, 3 no such world, trainer or trace, 5 no stopping world."
)
@click.argument("words", nargs=-1, metavar="[QUERY]...")
@click.option("--world", "world_name", metavar="NAME", help="S0 to S3, or package.module:object.  [default: that of the traces]")
@click.option("--preset", default="stacked", show_default=True, metavar="NAME", help="The stop trainer: stacked, all_stops, ...")
@set_option
@seed_option()
@output_option("The rule's file.  [default: runs/TRAINER-WORLD-seedS.npz]")
@dry_run_option
@store_option
@json_option
def stop(
    words: tuple[str, ...], world_name: str | None, preset: str, pairs: tuple[str, ...], seed: int, output: Path | None,
    is_dry: bool, store: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Learn when to stop, in one step: from a simulated world, or from the traces of a store that QUERY selects.

    --set takes parameters of the world (horizon=20), traces=N (episodes to simulate) and eval_episodes=N (seeds to judge on).
    """
    from counterpoint.lab.train.stopping.choice import TRAINERS

    trainer = preset.replace("-", "_")
    if trainer not in TRAINERS:
        raise NotFound(f"no stop trainer named {trainer!r}", fix=did_you_mean(trainer, TRAINERS))
    is_recorded = bool(words) or store is not None
    ids = _ids(store, words) if is_recorded else []
    numbers, parameters = _split(pairs)
    world = changed_world(_world(world_name, store, ids), parameters)
    out = output or Path("runs") / f"{trainer}-{world.name}-seed{seed}.npz"
    if out.exists():
        raise InputError("exists already", where=str(out), fix="name another file with -o")
    if is_dry:
        plan = {"trainer": trainer, "world": world.name, "seed": seed, "out": str(out), "recorded": len(ids), **numbers}
        return emit({"schema": SCHEMA_VERSION, "would_train": plan}) if as_json else click.echo(json.dumps(plan))
    paths = _recorded_paths(store, ids) if is_recorded else _simulated_paths(world, numbers["traces"], seed)
    rule = TRAINERS[trainer](paths, seed)
    rule.refuse_other(world)
    out.parent.mkdir(parents=True, exist_ok=True)
    rule.save(out)
    return _print(world, rule, numbers["eval_episodes"], trainer, out, as_json=as_json)


def _ids(store: Path | None, words: Sequence[str]) -> list[str]:
    from counterpoint.app.api.inputs import chosen_ids
    from counterpoint.app.load_save import store_path

    return chosen_ids(str(store_path(store)), " ".join(words))


def _split(pairs: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """The settings of the command, and what is left for the world."""
    numbers, parameters = dict(_DEFAULTS), []
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name not in numbers:
            parameters.append(pair)
        elif not text.isdecimal() or int(text) < 1:
            raise InputError(f"{name} is {text!r}", where="--set", fix="a whole number above 0")
        else:
            numbers[name] = int(text)
    return numbers, parameters


def _world(name: str | None, store: Path | None, ids: Sequence[str]) -> Any:
    """The stopping world that is named, or the one that made the traces."""
    if name is not None:
        world = find_world(name)
    elif ids:
        world = _recorded_world(store, ids[0])
    else:
        raise InputError("no world to learn in", where="--world", fix="--world S1, or --store DIR with recorded traces")
    if not hasattr(world, "paths"):
        fix = f"S0 to S3; or counterpoint train net --world {name or world.name}"
        raise InputError(f"{world.name} is not a stopping world", where="--world", fix=fix)
    return world


def _recorded_world(store: Path | None, trace_id: str) -> Any:
    """The shipped world that made a trace, with the parameters that it had then."""
    import counterpoint.registry as registry

    with open_store(store, read_only=True) as opened:
        meta = opened.get(trace_id).meta
    name, config = meta.get("world"), meta.get("config")
    if name not in registry.ids("world") or not isinstance(config, Mapping):
        what = "no world of Counterpoint made the first trace"
        raise NotIdentified(what, "name the world: --world S1", where=trace_id)
    found = find_world(name)
    return found.replace(**config) if hasattr(found, "paths") else found


def _simulated_paths(world: Any, traces: int, seed: int) -> Any:
    first = _FIRST + seed * 100_000
    return world.paths(range(first, first + traces))


def _recorded_paths(store: Path | None, ids: Sequence[str]) -> Any:
    from counterpoint.guard.stop_paths import from_traces

    with open_store(store, read_only=True) as opened:
        return from_traces([opened.get(i) for i in ids])


def _print(world: Any, rule: Rule, episodes: int, trainer: str, out: Path, *, as_json: bool) -> None:
    values = world.run(rule.policy(), range(episodes)).values
    best = world.solution()
    mean, se = float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
    about = {"trainer": trainer, "world": world.name, "traces": rule.about["traces"], "kind": rule.kind, "rule": str(out)}
    result = {"mean": mean, "se": se, "held_out": episodes, "optimum": best.value, "best_cap": best.cap}
    if as_json:
        return emit({"schema": SCHEMA_VERSION, **about, **result})
    rows = [(k, number(v, 6) if isinstance(v, float) else plain_text(str(v))) for k, v in (about | result).items()]
    return click.echo(table(("stop rule", ""), rows))
