"""Runs in which a language model learns, from what a command line or a RUN.toml says.

Always true: everything named is looked up before anything is played or written. Dials (`documents=8`) go to every task that has
them, limits (`limits.width=2`) to every team; the rest are settings of the run (`learn.updates=40`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import counterpoint.registry as registry
from counterpoint.app.api.inputs import chosen_ids
from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.tasks.task import task as find_task
from counterpoint.lab.worlds.world import parameters

_HOME = Path("runs")


def is_language_file(source: Path | None) -> bool:
    """Whether a RUN.toml is of a run of this kind; a file that cannot be read is another's business."""
    from counterpoint.files import read_toml

    if source is None or not source.is_file():
        return False
    try:
        return "model" in read_toml(source, fix="")
    except InputError:
        return False


def is_language_run(folder: Path) -> bool:
    """Whether the run in a folder is of this kind."""
    try:
        return json.loads((folder / "about.json").read_bytes()).get("kind") == "language model"
    except (OSError, ValueError, AttributeError):
        return False


def language_config(
    source: Path | None,
    *,
    model: str | None = None,
    tasks: Sequence[str] = (),
    own: Mapping[str, str] | None = None,
    topology: str | None = None,
    demos: str | None = None,
    where: str | None = None,
    credit: Sequence[str] = (),
    allow: Collection[str] = (),
    pairs: Sequence[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """The settings of a file, or none, with what was named beside it; `own` is a team of one's own with its cases."""
    from counterpoint.lab.train.lm.methods import without_preset
    from counterpoint.lab.train.lm.settings import named_in, read_language_settings

    config = {} if source is None else dict(read_language_settings(source))
    config |= {} if model is None else {"model": model}
    if tasks:
        config["task"] = [{"name": name} for name in tasks]
    if own is not None:
        config["task"] = [own]
    config["task"] = [dict(mix) for mix in config.get("task", ())]
    if not config["task"]:
        fix = "--task T1, or several: --task T1,T5; a team of your own: --team my.py:team --tasks cases.jsonl"
        raise InputError("no task to play", where="--task", fix=fix)
    for mix in config["task"]:
        mix |= {} if topology is None else {"topology": topology}
    named = {*tasks, *(own or {}).values(), *credit, *filter(None, (topology, options.get("preset")))}
    registry.check_consent(named_in(config), {*allow, *named}, where=str(source))
    if options.get("preset") and source is not None:  # what is typed wins over the file, and over the preset that is in it
        for name in (config.get("preset"), options["preset"]):
            config = without_preset(config, name) if name else config
    tables = {name: {**(config.get(name) or {}), **(options.pop(name, None) or {})} for name in ("learn", "imitate")}
    tables["learn"] |= {"credit": list(credit)} if credit else {}
    tables["imitate"] |= {} if demos is None else {"demos": demos}
    config |= {name: value for name, value in options.items() if value is not None} | tables
    for pair in pairs:
        _set(config, pair)
    for name in ("learn", "imitate"):
        if not isinstance(config[name], Mapping):
            raise InputError(f"{name} is {config[name]!r}", where="--set", fix=f"a setting of it: {name}.lr=1e-4")
    _defaults(config, demos is not None)
    _chosen(config["imitate"], where)
    registry.check_consent(named_in(config), {*allow, *named}, where=str(source))
    return config


def _defaults(config: dict[str, Any], has_demos: bool) -> None:
    """What a run does where nothing says how long: imitation where demonstrations are named, then reinforcement."""
    imitate, learn = config["imitate"], config["learn"]
    if not {"steps", "seconds"} & imitate.keys() and (has_demos or "demos" in imitate):
        imitate["steps"] = 300
    if not {"updates", "seconds"} & learn.keys():
        learn["updates"] = 40


def _chosen(imitate: dict[str, Any], where: str | None) -> None:
    """The traces of a store that are shown, found by the query."""
    from counterpoint.lab.train.lm.settings import is_fake

    demos = imitate.get("demos", "fake:1")
    if (where is not None or imitate.get("where")) and is_fake(demos):
        raise InputError("there is no store to select traces from", where="imitate.where", fix="--demos STORE")
    if not is_fake(demos):
        query = where if where is not None else imitate.get("where", "")
        imitate |= {"where": query, "ids": imitate.get("ids") or chosen_ids(demos, query)}


def _set(config: dict[str, Any], pair: str) -> None:
    """One NAME=VALUE of --set."""
    from counterpoint.lab.train.lm.settings import LanguageSettings

    name, sign, text = pair.partition("=")
    if not sign:
        raise InputError(f"{pair!r} has no value", where="--set", fix="NAME=VALUE")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    own = [f.name for f in dataclasses.fields(LanguageSettings)]
    head, _, rest = name.partition(".")
    if head == "limits" and rest:
        for mix in config["task"]:
            mix["limits"] = {**mix.get("limits", {}), rest: value}
    elif head in own and head != "task":
        table = config
        *path, last = name.split(".")
        for part in path:
            table[part] = dict(table.get(part) or {})
            table = table[part]
        table[last] = value
    else:
        _dial(config["task"], name, value, own)


def _dial(tasks: Sequence[dict[str, Any]], name: str, value: Any, own: Sequence[str]) -> None:
    dials = [set() if mix.get("cases") else {p.name for p in parameters(find_task(mix["name"]).config)} for mix in tasks]
    if not any(name in known for known in dials):
        known = {*own, *(d for some in dials for d in some), "limits.width", "learn.updates", "imitate.steps"}
        raise InputError(f"no setting or dial {name!r}", where="--set", fix=did_you_mean(name, known))
    for mix, some in zip(tasks, dials, strict=True):
        if name in some:
            mix["set"] = {**mix.get("set", {}), name: value}


def folder_word(name: str) -> str:
    """A name as a part of a folder's: of code that is named by its file, the object alone."""
    place, _, attribute = name.rpartition(":")
    return attribute if place.endswith(".py") else name.replace(":", ".")


def lasting(name: str) -> str:
    """Code that is named by its file, by the whole path: a run is resumed from any folder."""
    place, colon, attribute = name.rpartition(":")
    return f"{Path(place).resolve()}:{attribute}" if colon and place.endswith(".py") else name


def _short(mix: Mapping[str, Any]) -> str:
    return folder_word(mix["name"]) if mix["cases"] else str(find_task(mix["name"]).short)


def language_planned(
    config: Mapping[str, Any], *, out: Path | None, seeds: int | None, source: Path | None, is_dry: bool = False
) -> list[tuple[Path, dict[str, Any]]]:
    """Every run to be trained: its folder and its settings, all looked up; to plan, a model's config.json is enough."""
    from counterpoint.lab.lm.weights import INSTALLABLE, find, lasting_name
    from counterpoint.lab.train.lm.settings import is_fake, language_settings

    full = language_settings(config, where=None if source is None else str(source)).as_dict()
    is_enough = is_dry and (Path(full["model"]) / "config.json").is_file()
    # a plan may be made before the model is installed, and for another machine
    if full["model"].lower() not in INSTALLABLE and not is_enough:
        find(full["model"])
    full["model"] = lasting_name(full["model"])  # a run is resumed from any folder
    if not is_fake(demos := full["imitate"]["demos"]):
        full["imitate"]["demos"] = str(Path(demos).resolve())
    for mix in full["task"] if full["task"][0]["cases"] else ():
        mix |= {"name": lasting(mix["name"]), "cases": str(Path(mix["cases"]).resolve()), "reward": lasting(mix["reward"])}
    tasks = "-".join(dict.fromkeys(_short(mix) for mix in full["task"]))
    usual = "-".join(part for part in ("lm", Path(full["model"]).name, tasks, folder_word(full["preset"])) if part)
    name = out or _HOME / (source.stem if source is not None else usual)
    each = range(full["seed"], full["seed"] + (seeds or 1))
    is_one = out is not None and seeds is None
    return [(name if is_one else name.with_name(f"{name.name}-seed{seed}"), full | {"seed": seed}) for seed in each]
