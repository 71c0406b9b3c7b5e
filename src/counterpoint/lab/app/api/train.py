"""`cpt.train`: an orchestrator trained until its budget is spent, in one run or one for each of several seeds.

Always true: everything named is looked up before anything is played or written; a run is left whole however it ends, and
`resume` continues it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import counterpoint.registry as registry
from counterpoint.app.api.inputs import chosen_ids
from counterpoint.errors import InputError, NotFound, NotIdentified, did_you_mean, install
from counterpoint.lab.app.api.language import folder_word, is_language_file, is_language_run, language_config, language_planned
from counterpoint.lab.worlds.packages import trusts
from counterpoint.trace.tabular import Tabular

if TYPE_CHECKING:
    from counterpoint.lab.train.folder import RunFolder
    from counterpoint.lab.train.session import Progress

_HOME = Path("runs")


@dataclass(frozen=True)
class TrainedRuns(Tabular):
    """The runs that were trained, one for each seed: a table of their evaluations on held-out tasks."""

    TABLE: ClassVar = {
        "run": "string", "preset": "string", "world": "string", "seed": "int64", "update": "int64", "calls": "int64",
        "mean": "double", "se": "double", "episodes": "int64", "collapsed": "bool",
    }  # fmt: skip

    runs: tuple[RunFolder, ...]

    @property
    def run(self) -> RunFolder:
        """The one run; of several, the first."""
        return self.runs[0]

    def __iter__(self) -> Iterator[RunFolder]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per evaluation: after which update, for how many calls, the mean over held-out episodes."""
        for run in self.runs:
            about = [run.about[name] for name in ("preset", "world", "seed")]
            fallen = bool(run.about.get("collapsed"))
            for one in run.evals():
                level = (one["update"], one["calls"], one["mean"], one["se"], len(one["values"]))
                yield (os.fspath(run.path), *about, *level, fallen)

    def caption(self) -> str:
        """What each run is and how it ended."""
        told = [(run.path, run.about, ", collapsed" if run.about.get("collapsed") else "") for run in self.runs]
        return "; ".join(f"{path}: {about['status']}{fallen}, {about['updates']:,} updates" for path, about, fallen in told)


def train(
    world: str | None = None,
    *,
    lm: str | None = None,
    task: str | Sequence[str] | None = None,
    preset: str | None = None,
    source: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    budget: int | None = None,
    set: Mapping[str, Any] | None = None,
    store: str | os.PathLike[str] | None = None,
    where: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    allow: Collection[str] = (),
    progress: Progress | None = None,
    address: str | None = None,
    log: Sequence[str] = (),
    push: str | None = None,
    **settings: Any,
) -> TrainedRuns:
    """Train an orchestrator in a world whose optimum is known, and leave the run in a folder.

    `world` is a TeamWorld (W1, W2, D, P, V, A, M), one of the suites (width, crew, ...) or one of yours (path/to/file.py:object),
    and `preset` a way to train of `counterpoint train presets`; `source` is a RUN.toml that says both, and more. `set` changes
    parameters of the world, `budget` is the calls and rounds to spend, and `settings` are the other keys of a RUN.toml
    (`updates`, `eval_every`, `workers`, ...). Runs go to `out`, else to runs/PRESET-WORLD-seedS; with `seeds` there is one for
    each, and those that are there already are resumed. `resume` continues an interrupted run. With `store` it learns from the
    finished traces there that `where` finds (the language of `counterpoint ls`), and plays nothing but evaluations. With `lm` (a
    name of `counterpoint models`, or a folder) a language model learns to play `task` (T1 to T8, or several) as a team; `set`
    then has dials of the tasks and settings of the run, as `--set` does, and `preset` is a method that language models can learn
    by. `progress(kind, row)` is told what happens. With `runner="ray"` rollouts are played on the Ray cluster at `address` (else
    $RAY_ADDRESS, else this machine). `log` names trackers that are told too (tensorboard, wandb, mlflow), `push` a collector
    (`counterpoint serve`) that gets the traces which are kept. Needs the extra `train`, or `llm`.

    >>> import counterpoint as cpt
    >>> trained = cpt.train("W1", preset="grpo", updates=1, episodes=16, eval_episodes=4, set={"vote_items": 8})
    >>> trained.run.about["status"], trained.to_arrow().column("update").to_pylist()
    ('finished', [0, 1])
    """
    given: dict[str, Any] = {"world": world, "preset": preset, "source": source, "out": out, "seed": seed, "seeds": seeds}
    given |= {"budget": budget, "store": store, "where": where, "lm": lm, "task": task, "set": set}
    how: dict[str, Any] = {"allow": allow, "progress": progress, "address": address, "log": log, "push": push}
    if resume is not None:
        _refuse_with_resume(given | settings)
        return TrainedRuns((train_one(run_folder(Path(resume)), {}, resume=True, **how),))
    runs = _runs(given, settings, allow)
    some = {f: len(runs) > 1 and is_run(f) for f, _ in runs}
    return TrainedRuns(tuple(train_one(f, c, resume=some[f], **how) for f, c in runs))


def _runs(given: Mapping[str, Any], settings: Mapping[str, Any], allow: Collection[str]) -> list[tuple[Path, dict[str, Any]]]:
    """Every run that `train` was asked for."""
    file, place = (None if given[name] is None else Path(given[name]) for name in ("source", "out"))
    task, where, changes = given["task"], {"where": given["where"], "seed": given["seed"]}, given["set"] or {}
    if given["lm"] is not None or is_language_file(file):
        told = {"model": given["lm"], "tasks": (task,) if isinstance(task, str) else tuple(task or ())}
        told |= {"preset": given["preset"], **where, **settings}
        return _language_runs(file, told, changes, allow, out=place, seeds=given["seeds"])
    named = {"store": given["store"], "budget_calls": given["budget"], **where, **settings}
    config = settings_named(file, given["preset"], given["world"], allow, **named)
    config["set"] = {**(config.get("set") or {}), **changes}
    return planned(config, out=place, seeds=given["seeds"], source=file)


def _language_runs(
    file: Path | None, told: Mapping[str, Any], changes: Mapping[str, Any], allow: Collection[str], **where: Any
) -> list[tuple[Path, dict[str, Any]]]:
    pairs = [f"{name}={json.dumps(value)}" for name, value in changes.items()]
    return language_planned(language_config(file, allow=allow, pairs=pairs, **told), source=file, **where)


def _refuse_with_resume(given: Mapping[str, Any]) -> None:
    unused = [name for name, value in given.items() if value is not None]
    if unused:
        raise InputError(f"{unused[0]} is for a new run", where="resume", fix="a resumed run keeps its own run.toml")


def settings_named(
    source: Path | None,
    preset: str | None,
    world: str | None,
    allow: Collection[str],
    *,
    store: str | os.PathLike[str] | None = None,
    where: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The settings of a file, or none, with what was named beside it; options that are None leave them as they are."""
    config: dict[str, Any] = {}
    if source is not None:
        from counterpoint.lab.train.settings import read_settings

        if source.is_dir():
            fix = f"counterpoint train resume {source}" if is_run(source) else "name a .toml file"
            raise InputError("is a folder, not a TOML file", where=os.fspath(source), fix=fix)
        config = read_settings(source).as_dict()
    named = {name: value for name, value in (("preset", preset), ("world", world)) if value is not None}
    given = config | named
    config = _of_suite({"preset": "counterpoint"} | given)
    if where is not None and store is None and not config.get("store"):
        raise InputError("there is no store to select traces from", where="where", fix="--store DIR (store=...)")
    if store is not None or where is not None:
        config |= _recorded(config, os.fspath(store or config["store"]), where or "")
    if "world" not in config:
        fix = "--world W1, or RUN.toml; counterpoint train worlds and counterpoint train presets list names"
        raise InputError("no world to train in", fix=fix)
    # RUN.toml may come from anybody, so what it names needs the consent that a name on the command line is
    names = [config["preset"], *([] if trusts(config["world"]) else [config["world"]])]
    registry.check_consent(names, {*allow, *named.values()}, where=str(source))
    if "preset" not in given and _has_own_rules(config["world"]):
        config["preset"] = "grpo"
    known = registry.ids("preset")
    if ":" not in config["preset"] and config["preset"].replace("-", "_") not in known:
        raise NotFound(f"no preset named {config['preset']!r}", fix=did_you_mean(config["preset"], known))
    config |= {name: value for name, value in options.items() if value is not None}
    if options.get("workers") is not None and options.get("runner") is None:
        config["runner"] = "processes"
    return config


def _has_own_rules(world: str) -> bool:
    from counterpoint.lab.worlds.teamworld.world import TeamWorld
    from counterpoint.lab.worlds.world import world as find

    return not isinstance(find(world), TeamWorld)


def _of_suite(config: dict[str, Any]) -> dict[str, Any]:
    """The settings, a world of the suites (`width`) replaced by the released world, parameters and sorts of tasks that it is."""
    from counterpoint.lab.worlds.teamworld.suites import suite_worlds

    found = suite_worlds().get(config.get("world", ""))
    if found is None:
        return config
    made = found.settings()
    return config | made | {"set": {**made["set"], **(config.get("set") or {})}, "mix": config.get("mix") or made["mix"]}


def _short_name(full: Mapping[str, Any]) -> str:
    """What the folder of a run is called after: its preset and its world, by its name in the suites where it has one."""
    from counterpoint.lab.train.jobs import world_of
    from counterpoint.lab.worlds.teamworld.suites import suite_worlds

    base, mix = world_of(full["world"], {}).name, [dict(one) for one in full["mix"]]
    of_suites = (w.name for w in suite_worlds().values() if w.settings() == {"world": base, "set": full["set"], "mix": mix})
    return "-".join([folder_word(full["preset"]), next(of_suites, base)])


def _recorded(config: Mapping[str, Any], folder: str, where: str) -> dict[str, Any]:
    """The settings of a run on recorded traces: which ones, and the world they are of where none is named."""
    from counterpoint.app.load_save import store_path
    from counterpoint.lab.train.jobs import world_of
    from counterpoint.lab.worlds.world import parameters
    from counterpoint.store import Store

    ids = chosen_ids(folder, where)
    with Store(store_path(folder), create=False, read_only=True) as store:
        out: dict[str, Any] = {"store": folder, "where": where, "ids": ids, "updates": config.get("updates") or 200}
        meta = {} if "world" in config else store.get(ids[0]).meta
    if "world" in meta and "config" in meta:
        usual = {p.name: p.value for p in parameters(world_of(meta["world"], {}).config)}
        own = {k: tuple(v) if isinstance(v, list) else v for k, v in meta["config"].items()}
        out |= {"world": meta["world"], "set": {k: v for k, v in own.items() if k in usual and v != usual[k]}}
    elif "world" not in config:
        what = "the first trace was not made by a simulator, so its policy cannot be asked again"
        fix = "traces of `counterpoint play --world W1 --store` or of a run's store; rows of model calls: counterpoint export"
        raise NotIdentified(what, fix, where=ids[0])
    return out


def planned(
    config: Mapping[str, Any], *, out: Path | None, seeds: int | None, source: Path | None
) -> list[tuple[Path, dict[str, Any]]]:
    """Every run to be trained: its folder and its settings, all looked up."""
    from counterpoint.lab.train.preset import named_preset
    from counterpoint.lab.train.settings import settings_of

    full = settings_of(config).as_dict()
    preset = named_preset(full["preset"]).changed(full["change"])
    preset.episodes_of(full["episodes"])
    if full["change"]:  # a preset's own options are checked when a run begins, which a dry run does not
        from counterpoint.lab.train.row_credit import check

        check(preset)
    if full["preset"] == "clone" and not full["store"]:
        raise InputError("clone learns from recorded traces", where="preset", fix="counterpoint train log, or another preset")
    name = out or _HOME / (source.stem if source is not None else _short_name(full))
    each = range(full["seed"], full["seed"] + (seeds or 1))
    is_one = out is not None and seeds is None
    return [(name if is_one else name.with_name(f"{name.name}-seed{seed}"), full | {"seed": seed}) for seed in each]


def train_one(
    folder: Path, config: Mapping[str, Any], *, resume: bool, allow: Collection[str], progress: Progress | None,
    address: str | None = None, log: Sequence[str] = (), push: str | None = None,
) -> RunFolder:  # fmt: skip
    """Train one run, or resume it; `log` names trackers, `push` the collector of its traces."""
    from counterpoint.lab.app.tracking import TRACKERS, tracked

    names = (log,) if isinstance(log, str) else tuple(log)
    for name in names:
        if name not in TRACKERS:
            raise InputError(f"no tracker named {name!r}", fix=did_you_mean(name, TRACKERS))
    with tracked(names, folder, progress) as tell, _pushed(folder, push, tell):
        return _trained(folder, config, resume=resume, allow=allow, progress=tell, address=address)


def _pushed(folder: Path, url: str | None, tell: Progress) -> AbstractContextManager[None]:
    """The traces of a run on their way to a collector while it is trained."""
    if url is None:
        return nullcontext()
    from counterpoint.app.push import check_url, push_while

    token = os.environ.get("COUNTERPOINT_TOKEN", "")
    return push_while(folder / "store", check_url(url), token=token, note=lambda what: tell("note", {"what": what}))


def _trained(folder: Path, config: Mapping[str, Any], *, resume: bool, **how: Any) -> RunFolder:
    is_language = is_language_run(folder) if resume else "model" in config
    try:
        if is_language:
            from counterpoint.lab.train.lm.run import train_language

            return train_language(folder, config, resume=resume, **how)
        from counterpoint.lab.train.run import train_run
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in ("torch", "safetensors", "tokenizers", "jinja2"):
            raise
        extra = "llm" if is_language else "train"
        raise InputError(f"training needs {missing}, which is not installed", fix=install(extra)) from error
    return train_run(folder, config, resume=resume, **how)


def run_folder(path: Path) -> Path:
    """A run's folder, also by its name in ./runs."""
    return _HOME / path if not path.exists() and (_HOME / path).exists() else path


def is_run(folder: Path) -> bool:
    """Whether a run was begun here."""
    return (folder / "about.json").is_file()
