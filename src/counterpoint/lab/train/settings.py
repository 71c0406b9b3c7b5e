"""The settings of a run: what a TOML file says, resolved and checked.

Always true: every key is known and of its type, or there is one clear error that names it; names (preset, world, parameters)
are looked up before anything is played. A run is a function of its settings.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterpoint.errors import InputError, NotFound, Refused, did_you_mean
from counterpoint.files import read_toml
from counterpoint.lab.worlds.packages import trusts
from counterpoint.options import NonNegativeInt, PositiveInt, Seed, check_fields

RUNNERS = ("here", "processes", "ray")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One training run."""

    preset: str
    """A preset's name, or "package.module:object"."""
    world: str
    """A TeamWorld (W1, W2, D, P, V, A, M), or a world of yours: "path/to/file.py:object", "package.module:object"."""
    seed: Seed = 0
    """Of everything random in the run."""
    set: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the world that differ from its own."""
    change: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the preset: its fields, and options of its loss, credit and rewards: {group = 8, loss = {lam = 0.8}}."""
    mix: tuple[Mapping[str, Any], ...] = ()
    """Variants played in turn, each a set of further parameters: [{vote_items = 16}, {vote_items = 64}]."""
    budget_calls: NonNegativeInt = 300_000
    """What may be spent: every worker call and every round is charged 1, those of forks and trials included, and an episode at
    least 1, so that a team which calls nobody spends it too. Learning rates and temperatures fall over it."""
    updates: NonNegativeInt = 0
    """Updates after which it ends at the latest; 0 is no limit."""
    episodes: NonNegativeInt = 0
    """Per update; 0 is the preset's number."""
    eval_every: PositiveInt = 20
    """Updates between evaluations on the held-out seeds."""
    eval_episodes: PositiveInt = 40
    """Held-out episodes per evaluation."""
    runner: str = "here"
    """"here" (this process), "processes" of this machine, or "ray": actors of a Ray cluster."""
    workers: PositiveInt = 2
    """Processes, or actors, of the runner."""
    staleness: NonNegativeInt = 0
    """Updates by which rollouts may lag; they are used in the order of launch."""
    checkpoint_every: PositiveInt = 20
    """Updates between checkpoints."""
    keep_traces: NonNegativeInt = 4
    """Episodes of each evaluation whose traces go to the store."""
    keep_episodes: NonNegativeInt = 0
    """Episodes of each update whose traces go to the store, with every decision and its log-probability."""
    store: str = ""
    """Learn from the traces of this store, and play nothing but evaluations; empty: play."""
    where: str = ""
    """Which traces were asked for, in the words of `counterpoint ls`; `ids` has what that chose."""
    ids: tuple[str, ...] = ()
    """The traces to learn from; none: all that the store had when the run began."""
    clone: NonNegativeInt = 0
    """With a store: updates of behaviour cloning before the preset's own loss."""
    device: str = "cpu"
    """Where the network lives: "cpu". Networks this small gain nothing elsewhere, and "cuda" is refused."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.runner not in RUNNERS:
            raise InputError(f"runner is {self.runner!r}", fix=f"one of {', '.join(RUNNERS)}")
        if self.budget_calls < 1 and self.updates < 1:
            raise InputError("nothing says when the run ends", fix="set budget_calls or updates")
        if self.store and not self.updates:
            raise InputError("a run on recorded traces spends no calls, so it needs an end", fix="updates = 200")
        if (self.ids or self.where or self.clone) and not self.store:
            raise InputError("ids, where and clone are for runs that learn from a store", fix="store = the folder of the store")

    def as_dict(self) -> dict[str, Any]:
        """Every key, for `run.toml`."""
        out = dataclasses.asdict(self)
        out["mix"], out["ids"] = [dict(m) for m in self.mix], list(self.ids)
        out["set"], out["change"] = dict(self.set), dict(self.change)
        return out

    def names(self) -> list[str]:
        """What is looked up by name, and may be code from outside the package."""
        return [self.preset, *([] if trusts(self.world) else [self.world])]

    def variants(self) -> list[dict[str, Any]]:
        """The parameter sets that are played in turn."""
        return [{**self.set, **m} for m in self.mix] or [dict(self.set)]

    def check_device(self) -> None:
        """Raise where the device is not there."""
        if self.device == "cpu":
            return
        import torch

        kind = self.device.split(":")[0]
        if kind != "cuda":
            raise InputError(f"no device {self.device!r}", fix="cpu, or cuda")
        if not torch.cuda.is_available():
            raise Refused("there is no GPU, and device is 'cuda'", fix='device = "cpu"; the networks here are small')
        raise Refused(
            "this learner runs on the CPU only, and device is 'cuda'", fix='device = "cpu"; the networks here are small'
        )


def settings_of(given: Mapping[str, Any], *, where: str | None = None) -> Settings:
    """Settings from keys and values; unknown keys are an error."""
    known = [f.name for f in dataclasses.fields(Settings)]
    for key in given:
        if key not in known:
            raise InputError(f"no setting {key!r}", where=where, fix=did_you_mean(key, known))
    for key in ("preset", "world"):
        if key not in given:
            raise InputError(f"{key} is missing", where=where, fix=f'{key} = "{"counterpoint" if key == "preset" else "W1"}"')
    listed: dict[str, Any] = {k: tuple(v) if k in ("mix", "ids") and isinstance(v, list) else v for k, v in given.items()}
    listed |= {"set": _tuples(listed.get("set", {}))}
    listed |= {"mix": tuple(_tuples(m) for m in listed["mix"])} if isinstance(listed.get("mix"), tuple) else {}
    try:
        return Settings(**listed)
    except InputError as error:
        raise InputError(error.what, where=where, fix=error.fix) from error


def _tuples(table: Any) -> Any:
    """Lists of a TOML table as tuples, which the worlds' parameters are."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()} if isinstance(table, Mapping) else table


def read_settings(path: Path) -> Settings:
    """The settings of a TOML file."""
    try:
        given = read_toml(path, fix="key = value lines; see docs/lab/training.md")
    except FileNotFoundError as error:
        raise NotFound("no such file", where=str(path), fix="counterpoint train net --preset counterpoint --world W1") from error
    return settings_of(given, where=str(path))


_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(settings: Mapping[str, Any]) -> str:
    """The settings as TOML, plain values first, then one section per table; `tomllib.loads` reads the same values back.

    A tuple comes back as a list; what is None, which TOML has no word for, becomes a comment, so that every key can be seen.
    """
    return "\n".join(_section(settings, ())) + "\n"


def _section(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping)}
    lines = [
        f"# {_key(k, path)} is not set" if v is None else f"{_key(k, path)} = {_value(v, (*path, k))}" for k, v in plain.items()
    ]
    for name, inner in table.items():
        if isinstance(inner, Mapping):
            inside = (*path, name)
            lines += ["", "[" + ".".join(_key(part, path) for part in inside) + "]", *_section(inner, inside)]
    return lines


def _key(name: Any, path: tuple[str, ...]) -> str:
    if not isinstance(name, str):
        raise InputError(f"a key is text, not {name!r}", where=".".join(path) or "settings")
    return name if _BARE.fullmatch(name) else _text(name, path)


def _value(value: Any, path: tuple[str, ...]) -> str:
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(v, path) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k, path)} = {_value(v, path)}" for k, v in value.items() if v is not None) + "}"
    raise InputError(
        f"cannot be written as TOML: {type(value).__name__}", where=".".join(path), fix="text, numbers, lists, tables"
    )


def _text(text: str, path: tuple[str, ...]) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            "holds half of a character (a lone surrogate), which cannot be written as UTF-8", where=ascii(".".join(path))
        ) from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
