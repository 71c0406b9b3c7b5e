"""Text tasks by name: the id, the short name of the research notes, or anybody's object.

Always true: a name that is no task is one clear error with the nearest one; finding a task makes no instance.
"""

from __future__ import annotations

from typing import Any

from counterpoint import registry
from counterpoint.envs.task import TextTask
from counterpoint.errors import InputError, NotFound, did_you_mean


def _checked(found: Any, name: str) -> TextTask:
    if not isinstance(found, TextTask):
        fix = "counterpoint.testing.check_task says what a task needs"
        raise InputError(f"is a {type(found).__name__}, not a task", where=name, fix=fix)
    return found


def _named(name: str) -> TextTask:
    if ":" in name:
        return _checked(registry.get("task", name), name)
    wanted, ids = name.lower().replace("-", "_"), registry.ids("task")
    if wanted in ids:
        return _checked(registry.get("task", wanted), wanted)
    shorts = []
    for id_ in ids:
        one = _checked(registry.get("task", id_), id_)
        if one.short.lower() == name.lower():
            return one
        shorts.append(one.short)
    raise NotFound(f"no task named {name!r}", fix=did_you_mean(name, {*ids, *shorts}))


def task(name: str, **dials: Any) -> Any:
    """A task by id (`ledger_hunt`), short name (`T1`) or `"package.module:object"`, with other dials where given."""
    found = _named(name)
    return found.replace(**dials) if dials else found
