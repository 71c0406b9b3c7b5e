"""What a run must say, and may not, when the team is a person's own code.

Always true: everything is looked at before anything is played: the file of the team, of its scorer and of its cases, and whether
the credit is of a kind that such a team's traces identify.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import counterpoint.registry as registry
from counterpoint.credits.mechanism import Mechanism
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.lab.lm.served.engine import OWN

_LIMITS = ("max_tokens", "seconds")


def check_own(settings: Any, mix: Any) -> None:
    """Raise where a run of a person's own team cannot begin: its `LanguageSettings`, and the `TaskMix` of the team."""
    if len(settings.task) > 1:
        raise InputError("a team of your own is played alone", where="task", fix="one [[task]]")
    for name, where in ((mix.name, "--team"), *([(mix.reward, "--reward")] if mix.reward else [])):
        place, colon, attribute = name.rpartition(":")
        if not colon or not attribute.isidentifier():
            fix = "path/to/file.py:function, or package.module:function"
            raise InputError(f"{name!r} names no function", where=where, fix=fix)
        if place.endswith(".py") and not Path(place).is_file():
            raise NotFound(f"no file {place}", where=where, fix="path/to/file.py:function")
    if not Path(mix.cases).is_file():
        fix = 'one case in each line: {"question": "...", "answer": "..."}'
        raise NotFound("no such file", where=mix.cases, fix=fix)
    if mix.set or mix.topology != "centralized":
        what, fix = "a team of your own has no dials and no topology of ours", "leave `set` and `topology` out"
        raise InputError(what, where="task", fix=fix)
    for name, value in mix.limits.items():
        if name not in _LIMITS:
            raise InputError(f"no limit named {name!r}", where="task.limits", fix=did_you_mean(name, _LIMITS))
        kind = int if name == "max_tokens" else int | float
        if isinstance(value, bool) or not isinstance(value, kind) or value <= 0:
            raise InputError(f"{name} is {value!r}", where="task.limits", fix="above 0")
    _check_run(settings)


def _check_run(settings: Any) -> None:
    learn, imitate = settings.learn, settings.imitate
    if (imitate.steps or imitate.seconds) and imitate.demos.partition(":")[0] == "fake":
        what = "a fake cannot show how your own team works"
        raise InputError(what, where="imitate.demos", fix="--demos STORE, with recordings of your team that went well")
    if learn.tree:
        raise InputError("a team of your own does not branch", where="learn.tree", fix="leave it out")
    if settings.engine != OWN:
        what, fix = "a team of your own is answered by the engine of this process", f"--set engine={OWN}"
        raise InputError(what, where="engine", fix=fix)
    if settings.adapters == "role":
        what = "the roles of a team of your own are not known before it plays"
        raise InputError(what, where="adapters", fix="--set adapters=shared")
    for name in learn.credit:
        mechanism: Any = registry.get("mechanism", name)
        if isinstance(mechanism, Mechanism) and (missing := _answers(mechanism.live, learn.options.get(name, {}))):
            what = f"{name} asks the task's own checker for {missing}, which a team of your own has not"
            fix = "group_relative, agent_lightning, magrpo, or another that reads traces alone"
            raise InputError(what, where="learn.credit", fix=fix)


def _answers(live: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """What a mechanism would ask a task of ours: a team of one's own has a reward, and nothing between."""
    asked = [str(value) for option, value in live.items() if option not in given]
    return next((value.removeprefix("task:") for value in asked if value.startswith("task:") and value != "task:reward"), "")
