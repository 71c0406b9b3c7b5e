"""What the demo trains and finds: two ways of training in one world, with several seeds and equal budgets.

Always true: every policy is judged on the same tasks, which no run trained on and which `counterpoint compare runs` pairs too, so
that both print the same numbers. The second way is given what the runs of the first were charged in the mean.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from counterpoint.app.samples import browser_words, print_next, samples, write_samples
from counterpoint.app.terminal.output import emit
from counterpoint.app.terminal.progress import progress
from counterpoint.errors import CounterpointError, InputError, install
from counterpoint.lab.app.demo_screens import decisions_screen, measures_screen, policies_screen, tasks_screen, title
from counterpoint.store import Store

if TYPE_CHECKING:
    from counterpoint.lab.app.api.compare import RunComparison
    from counterpoint.lab.bench.comparison import Group
    from counterpoint.lab.train.runners.processes import Processes
    from counterpoint.lab.worlds.teamworld.world import TeamWorld

WAYS = ("counterpoint", "grpo")
SHOWN = ("random", "serial", "spawn_all", "best_size", "best_cap", "reference")
_HERE = "counterpoint.lab.app.demo_training"
_OTHERS, _FIRST_OTHER = 25, 200_000
"""So many times the held-out tasks tell what a hand-made policy gets of tasks at large; the first of them."""
_SEEN = 24
"""Episodes over which decisions are counted."""

Tell = Callable[[float, str], None]
"""Called with how many runs are done, and what is under way."""


def training_demo(folder: Path, *, world: str, seed: int, seeds: int, budget: int, tasks: int, as_json: bool) -> None:
    """Train both ways, keep what was learned beside the samples, and print what came of it."""
    if importlib.util.find_spec("torch") is None:
        fix = f"{install('train')}, or counterpoint demo --quick"
        raise InputError("the demo trains a policy, and torch is not installed", fix=fix)
    place = folder / "trained"
    if place.exists():
        shutil.rmtree(place)  # the runs of an earlier demo, ours to replace
    write_samples(folder, samples(seed))
    begin = time.perf_counter()
    with progress("training", 2 * seeds) as bar:
        plan = {"seed": seed, "seeds": seeds, "budget": budget, "tasks": tasks}
        found = train_both(place, world, **plan, tell=lambda done, about: bar.at(done, about=about))
    found["seconds"] = round(time.perf_counter() - begin, 1)
    _keep(folder, Path(found["runs"][WAYS[0]][0]), found["traces"])
    if as_json:
        emit(found)
        return
    for screen in (title, policies_screen, tasks_screen, decisions_screen, measures_screen):
        click.echo(screen(found))
    _next_steps(folder, place, found)


def _keep(folder: Path, run: Path, names: Sequence[str]) -> None:
    """Put the learned team's traces beside the samples, so that one store has all of the demo."""
    with Store(run / "store", read_only=True) as learned, Store(folder) as store:
        store.add_many([learned.get(name) for name in names])


def _next_steps(folder: Path, trained: Path, found: dict[str, Any]) -> None:
    place, runs = os.fspath(trained), os.fspath(folder)
    first = found["traces"][0] if found["traces"] else "TRACE"
    click.echo(f"Runs    {place} (settings, metrics, checkpoints)\nStore   {runs} (a learned team's traces and eight samples)")
    print_next(
        [
            (f"show {first} --store {runs}", "the learned team, event by event"),
            (f"credit {first} --store {runs}", "who earned it"),
            (f"compare runs {place}/*", "the two on the same tasks, seeds and budget, with intervals"),
            (f"compare plot {place}/*", "learning curves, stop times, team sizes"),
            (f"view {runs} --runs {runs}", browser_words()),
        ],
        head="Next    ",
    )


def train_both(
    place: Path, world: str, *, seed: int, seeds: int, budget: int, tasks: int, tell: Tell = lambda done, about: None
) -> dict[str, Any]:
    """Train every seed of both ways into `place`, two runs at a time, and say what came of it."""
    from counterpoint.lab.train.runners.processes import Processes
    from counterpoint.lab.worlds.teamworld.suites import suite_worlds

    of_suites = suite_worlds()
    made = of_suites[world].settings() if world in of_suites else {"world": world}
    config = {**made, "eval_episodes": tasks, "eval_every": 10, "budget_calls": budget}
    runs: dict[str, list[Path]] = {way: [place / f"{way}-{one}" for one in range(seed, seed + seeds)] for way in WAYS}
    with Processes(min(2, os.cpu_count() or 1)) as pool:
        for k, way in enumerate(WAYS):
            jobs = [
                {"folder": os.fspath(folder), "config": {**config, "preset": way, "seed": seed + i}}
                for i, folder in enumerate(runs[way])
            ]
            spent = _trained(pool, jobs, lambda done, about, k=k: tell(k * seeds + done, about))  # type: ignore[misc]
            config["budget_calls"] = round(sum(spent) / len(spent))
        tell(len(WAYS) * seeds, "hand-made policies on the same tasks")
        played = _by_hand(pool, config, tasks)
    found = _found(runs, played, tasks, allow=(world,))
    about = {"world": world, "about": of_suites[world].about} if world in of_suites else {}
    return found | {"seeds": seeds, "budget": budget} | about


def _trained(pool: Processes, jobs: Sequence[Mapping[str, Any]], tell: Tell) -> list[int]:
    """Run the jobs; what each run was charged."""
    from counterpoint.lab.train.runner import Job

    numbers = {pool.submit(Job(work=f"{_HERE}:train_job", payload=job)): i for i, job in enumerate(jobs)}
    charged: dict[int, int] = {}
    while len(charged) < len(jobs):
        charged |= {numbers[done.number]: done.result for done in pool.collect(timeout_s=1.0)}
        shares = [1.0 if i in charged else _progress(job) for i, job in enumerate(jobs)]
        tell(sum(shares), f"{jobs[0]['config']['preset']}, {len(charged)} of {len(jobs)} seeds done")
    return [charged[i] for i in range(len(jobs))]


def _progress(job: Mapping[str, Any]) -> float:
    """How far a run is that another process trains."""
    from counterpoint.lab.train.folder import RunFolder

    folder = Path(job["folder"])
    with suppress(CounterpointError, OSError, ValueError):
        if (folder / "about.json").exists():
            return min(1.0, float(RunFolder.open(folder).spending()["charged"]) / job["config"]["budget_calls"])
    return 0.0


def train_job(payload: Mapping[str, Any], weights: object) -> int:
    """In a process of its own: one run; what it was charged."""
    from counterpoint.lab.train.run import train_run

    try:
        with train_run(payload["folder"], payload["config"]) as run:
            return int(run.spending()["charged"])
    except KeyboardInterrupt:  # the demo ends, and says so itself
        raise SystemExit(130) from None


def hand_job(payload: Mapping[str, Any], weights: object) -> dict[str, np.ndarray]:
    """In a process of its own: a hand-made policy on these seeds."""
    from counterpoint.lab.train.before_after import by_hand
    from counterpoint.lab.train.settings import settings_of
    from counterpoint.lab.train.training import Training

    worlds = Training(settings_of(payload["config"])).worlds
    return by_hand(payload["policy"], worlds, np.arange(payload["first"], payload["first"] + payload["tasks"]))


def _by_hand(pool: Processes, config: Mapping[str, Any], tasks: int) -> dict[str, dict[str, np.ndarray]]:
    """Every hand-made policy on the held-out tasks, and as "others" the reference on many more."""
    from counterpoint.lab.train.runner import Job

    asked: dict[str, tuple[str, int, int]] = {"others": ("reference", _FIRST_OTHER, _OTHERS * tasks)}
    asked |= {name: (name, 0, tasks) for name in SHOWN}
    base = {"config": {**config, "preset": WAYS[0]}}
    numbers = {}
    for key, (name, first, many) in asked.items():
        payload = base | {"policy": name, "first": first, "tasks": many}
        numbers[pool.submit(Job(work=f"{_HERE}:hand_job", payload=payload))] = key
    found: dict[str, dict[str, np.ndarray]] = {}
    while len(found) < len(numbers):
        found |= {numbers[done.number]: done.result for done in pool.collect()}
    return {key: found[key] for key in asked}


# -- what came of it -----------------------------------------------------------------------------------------------------


def _found(
    runs: Mapping[str, Sequence[Path]], played: Mapping[str, Mapping[str, np.ndarray]], tasks: int, *, allow: Collection[str]
) -> dict[str, Any]:
    """Everything that the demo shows, as plain numbers; `allow` is the world that somebody named, which may be their own code."""
    from counterpoint.lab.app.api.compare import compare_groups, grouped
    from counterpoint.lab.train.settings import settings_of
    from counterpoint.lab.train.training import Training

    groups = grouped([(None, folder) for way in WAYS for folder in runs[way]])
    compared = compare_groups(groups, "value", None, ignore_mismatch=True)
    ours = groups[0]
    training = Training(settings_of(ours.runs[0].config()))
    worlds = training.worlds
    values = {name: played[name]["value"][None] for name in SHOWN}
    values |= {"before training": _column(ours, "values", 0)} | {g.label: _column(g, "values") for g in groups}
    best = max(SHOWN, key=lambda name: float(values[name].mean()))
    return {
        "world": worlds[0].name,
        "tasks": tasks,
        "spent": {group.label: group.spending for group in groups},
        "runs": {group.label: [os.fspath(run.path) for run in group.runs] for group in groups},
        "not_comparable": list(compared.reasons),
        "optimum": {"value": ours.optimum["value"], "kind": ours.optimum["kind"]},
        "policies": [{"name": name, "runs": len(v), **_estimated(v)} for name, v in values.items()],
        "differences": [_over(ours.label, best, values[ours.label] - values[best]), *_differences(compared)],
        "best": best,
        "by_task": _by_task(worlds, groups, played, best),
        **_learned(ours, worlds, training.net, allow),
        "traces": [t for row in ours.runs[0].evals()[-1:] for t in row.get("traces", [])],
    }


def _column(group: Group, name: str, which: int = -1) -> np.ndarray:
    """(S, T) a list of one of the evaluations of each run: the last, or the first."""
    return np.array([run.evals()[which][name] for run in group.runs], dtype=np.float64)


def _estimated(values_ST: np.ndarray) -> dict[str, Any]:
    from counterpoint.lab.bench.comparison import estimate

    found = estimate([(1, values_ST)])
    return {"mean": found.mean, "interval": None if found.low is None else (found.low, found.high)}


def _over(label: str, against: str, values_ST: np.ndarray) -> dict[str, Any]:
    return {"label": label, "against": against, **_estimated(values_ST)}


def _differences(compared: RunComparison) -> list[dict[str, Any]]:
    """The first way less each other one, as `counterpoint compare runs` has it with its sides exchanged."""
    out = []
    for d in compared.result.differences:
        e = d.estimate
        interval = None if e.low is None or e.high is None else (-e.high, -e.low)
        out.append({"label": d.against, "against": d.label, "mean": -e.mean, "interval": interval})
    return out


def _by_task(
    worlds: Sequence[TeamWorld], groups: Sequence[Group], played: Mapping[str, Mapping[str, np.ndarray]], best: str
) -> list[dict[str, Any]]:
    """Of each sort of task: rewards and team sizes, and the bound on the very tasks that were played.

    The bound is of the mean over all tasks. What the reference got on these, less what it gets on many others, is the luck of
    these tasks, and moves the bound as it moves every policy that is paid for the same things. How far the first way's luck
    may differ from the reference's is in the interval.
    """
    from counterpoint.lab.train.evaluate import task_labels

    n, rows = len(worlds), []
    value = {best: played[best]["value"][None]} | {g.label: _column(g, "values") for g in groups}
    agents = {best: played[best]["agents"][None]} | {g.label: _column(g, "agents") for g in groups}
    many = played["others"]["value"]
    first = _FIRST_OTHER % n
    for place, (task, world) in enumerate(zip(task_labels(worlds), worlds, strict=True)):
        here, others = played["reference"]["value"][place::n], many[(place - first) % n :: n]
        if not len(here):
            continue  # fewer tasks than sorts of them
        luck = float(here.mean() - others.mean())
        half = 2.0 * math.sqrt(_variance(others) + _variance(value[groups[0].label][:, place::n].mean(0) - here))
        rows.append({
            "task": task, "bound": world.optimum().value, "luck": luck, "bound_here": world.optimum().value + luck,
            "bound_half": half, "reward": {name: float(v[:, place::n].mean()) for name, v in value.items()},
            "agents": {name: float(v[:, place::n].mean()) for name, v in agents.items()},
        })  # fmt: skip
    return rows


def _variance(values: np.ndarray) -> float:
    """Of the mean of these."""
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0


def _learned(ours: Group, worlds: Sequence[TeamWorld], start: Any, allow: Collection[str]) -> dict[str, Any]:
    """What the learned policies decide, the mean over the seeds, and how the first of them works, before and after."""
    from counterpoint.lab.train.before_after import behaviour, mean_behaviour, measured
    from counterpoint.lab.train.evaluate import policy_of, task_labels

    nets = [policy_of(run, allow=allow).net for run in ours.runs]
    counted = mean_behaviour([behaviour(net, worlds, np.arange(_SEEN)) for net in nets])
    how = {"task": task_labels(worlds)[0], "rows": measured(worlds[0], start, nets[0])}
    return {"measures": how, "behaviour": counted.as_dict()}
