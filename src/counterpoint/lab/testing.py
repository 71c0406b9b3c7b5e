"""The contracts of the laboratory's plug-ins, which can be called: worlds, tasks, teams, presets, losses, trainers, claims.

Always true: nothing in the package imports this module; a check returns nothing when a plug-in keeps its contract and raises
`counterpoint.testing.ConformanceError` when it does not. `CHECKS` names the check of each kind.

    from counterpoint.lab.testing import check_world
    check_world(my_world)
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, cast

import numpy as np

from counterpoint.errors import CounterpointError
from counterpoint.lab.tasks.contract import check_task as check_text_task
from counterpoint.lab.tasks.task import TextTask
from counterpoint.lab.team import contracts as team_contracts
from counterpoint.lab.team.topology import Topology
from counterpoint.lab.train.preset import Preset
from counterpoint.lab.trainers.contract import check_trainer as check_trainer_files
from counterpoint.lab.worlds.contract import check_world as check_world_laws
from counterpoint.lab.worlds.package_contract import check_package
from counterpoint.lab.worlds.packages import package_world
from counterpoint.lab.worlds.world import World
from counterpoint.lab.worlds.world import world as find_world
from counterpoint.testing import NO_OPTION, ConformanceError, refuses_options, require

__all__ = [
    "CHECKS",
    "check_claim",
    "check_loss",
    "check_model",
    "check_preset",
    "check_task",
    "check_tool",
    "check_topology",
    "check_trainer",
    "check_world",
    "checks",
]


# -- worlds --------------------------------------------------------------------------------------------------------


def check_world(world: World | str, *, episodes: int = 60) -> None:
    """A world declares itself, plays each seed one way however it is asked, logs valid traces, and is not beaten.

    `episodes` is how many each policy plays against the optimum, which its mean may pass by four standard errors at most.
    A world of a package is named (`dpbench:sim_n5_nocomm`): its episode repeats, looks change nothing, copies and replays
    come out the same, every text is an action, a team of fakes plays it and forks by replay; its arrays are checked as any.
    """
    try:
        if isinstance(world, str) and ":" in world:
            check_package(world, require)
            team_contracts.check_turns(world, require)
            first = package_world(world)
            first.reset(0)
            if first.bound is None or not first.actions or first.array(first.turn()[0]) is None:
                return
            check_world_laws(find_world(world), require, episodes=min(episodes, 12))
            return
        check_world_laws(cast(World, world), require, episodes=episodes)
    except ConformanceError:
        raise
    except Exception as error:
        raise ConformanceError(f"the world ends in {type(error).__name__}: {error}") from error


# -- live teams ----------------------------------------------------------------------------------------------------------


def check_task(task: TextTask) -> None:
    """A text task declares itself, makes each instance one way, scores any text, and is solved by its own player."""
    try:
        check_text_task(task, require)
    except ConformanceError:
        raise
    except Exception as error:
        raise ConformanceError(f"the task ends in {type(error).__name__}: {error}") from error


def check_topology(topology: Topology) -> None:
    """A topology names its root's role and who works; a team of fakes runs a small task in it to its end, twice the same way."""
    team_contracts.check_topology(topology, require)


def check_tool(maker: Callable[..., Any], **options: Any) -> None:
    """A tool describes itself, answers its own `example`, and meets odd arguments with a result and not with an exception.

    It is really called: for a tool that cannot be undone, give options under which a call does no harm.
    """
    team_contracts.check_tool(maker, require, **options)


def check_model(factory: Callable[..., Any], *given: Any, **options: Any) -> None:
    """A model is made by a documented function of what is given here, says name and version, and answers a call twice alike."""
    team_contracts.check_model(factory, require, *given, **options)


# -- claims --------------------------------------------------------------------------------------------------------------


def check_claim(claim: Callable[..., Any]) -> None:
    """A claim is a documented function of `seed` and `seeds`, by keyword. It is not run: that is what `reproduce` does."""
    require(callable(claim), f"is a {type(claim).__name__}, not a function")
    found = inspect.signature(claim).parameters
    for name in ("seed", "seeds"):
        require(name in found and found[name].kind is inspect.Parameter.KEYWORD_ONLY, f"takes no keyword-only `{name}`")
    open_ = [p.name for p in found.values() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    require(set(open_) <= {"seed", "seeds"}, f"needs more than seed and seeds: {', '.join(open_)}")
    require(bool((inspect.getdoc(claim) or "").strip()), "has no docstring")


# -- presets -------------------------------------------------------------------------------------------------------------


def check_preset(preset: Preset) -> None:
    """A preset is data, states source and departures, names only what there is, and learns: one update on a small world."""
    from counterpoint.lab.train.row_credit import check

    require(isinstance(preset, Preset), f"is a {type(preset).__name__}, not a Preset")
    for name in ("source", "departures"):
        require(bool(getattr(preset, name).strip()), f"states no {name}")
    for part in (preset.reward, preset.credit, preset.loss, preset.rates):
        require(not any(callable(value) for value in _leaves(part)), "holds code: a preset is names and numbers")
    require(set(preset.rates) == {"policy", "spawn", "critic"}, f"rates name policy, spawn, critic, not {sorted(preset.rates)}")
    require(all(rate > 0 for rate in preset.rates.values()), "a learning rate is above 0")
    require(bool(preset.reward), "pays nothing")
    # a stop that was written down and not carried out is in no trace
    require(not (preset.goes_on and preset.uses_traces), "goes on after stops, which credit judged on traces cannot see")
    for form in (preset, preset.changed(preset.as_released), preset.changed(preset.knob)):
        try:
            check(form)
        except CounterpointError as error:
            raise ConformanceError(f"names what there is not: {error}") from error
    row = _one_update(preset)
    require(row.get("decisions", 0) > 0, "an update learns from no decision")
    odd = sorted(name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value))
    require(not odd, f"an update ends with numbers that are none: {', '.join(odd)}")


def _one_update(preset: Preset) -> Mapping[str, Any]:
    """What the first update says, on a small world that has workers and votes; the run's folder goes away."""
    from counterpoint.lab.train.run import train_run

    holder = ModuleType("counterpoint_preset_under_check")
    holder.__dict__["preset"] = preset
    sys.modules[holder.__name__] = holder
    small = {"vote_items": 4, "max_agents": 4, "max_rounds": 6, **preset.world}
    few = {"updates": 1, "episodes": 2 * preset.group, "eval_episodes": 1, "keep_traces": 0}
    try:
        with TemporaryDirectory() as folder:
            run = train_run(Path(folder) / "run", {"preset": f"{holder.__name__}:preset", "world": "W1", "set": small, **few})
            return dict(list(run.metrics())[-1])
    except CounterpointError as error:
        raise ConformanceError(f"does not learn on a small world: {error}") from error
    finally:
        del sys.modules[holder.__name__]


def check_loss(loss: Any) -> None:
    """A loss states its source, has a default for every option and refuses others; one update changes the network, the same one
    each time, and leaves finite weights. It is played in a small world, for a few episodes."""
    from counterpoint.lab.train.jobs import play
    from counterpoint.lab.train.loss import Loss
    from counterpoint.lab.train.settings import Settings
    from counterpoint.lab.train.training import Training

    require(isinstance(loss, Loss), f"is a {type(loss).__name__}, not a Loss")
    require(bool(loss.source.strip()), "states no source")
    require(dataclasses.is_dataclass(loss.takes), f"takes {loss.takes!r}, not a dataclass of options")
    for option in dataclasses.fields(loss.takes):
        require(option.default is not dataclasses.MISSING, f"option {option.name} has no default")
    refuses_options(lambda: loss.resolved({NO_OPTION: 1}))
    tiny = {"vote_items": 4, "max_agents": 4, "max_rounds": 5}
    settings = Settings(preset="grpo", world="wide_verify", set=tiny, updates=4, episodes=16)
    ends = []
    for _ in range(2):
        training = Training(settings, loss=loss)
        begin = training.weights()
        job = training.job(0, 0, begin)
        training.learn([play(job.payload, job.weights)])
        ends.append(training.weights())
    require(all(np.isfinite(w).all() for w in ends[0].values()), "leaves weights that are no finite numbers")
    require(any((begin[k] != w).any() for k, w in ends[0].items()), "changes nothing")
    require(all((ends[0][k] == ends[1][k]).all() for k in begin), "another time the same episodes teach something else")


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for part in value.values() for leaf in _leaves(part)]
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, list | tuple) else [value]


def check_trainer(trainer: Any) -> None:
    """A trainer says what it holds and what is lost; rows come back from its files the same, in their order, as far as 1e-6, and
    those with too few of anything, or with what is no number, are refused."""
    check_trainer_files(trainer, require)


CHECKS: Mapping[str, Callable[..., None]] = {
    "world": check_world,
    "claim": check_claim,
    "preset": check_preset,
    "loss": check_loss,
    "task": check_task,
    "model": check_model,
    "tool": check_tool,
    "topology": check_topology,
    "trainer": check_trainer,
}
"""Each kind of plug-in of the laboratory, and its check."""


def checks() -> Mapping[str, Callable[..., None]]:
    """What `counterpoint.testing.checks` asks for by the hook `checks`."""
    return CHECKS
