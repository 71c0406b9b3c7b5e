"""Worlds by name: the id, the short name of the research notes, or anybody's object.

Always true: a name that is no world is one clear error with the nearest one; finding a world computes nothing.
"""

from __future__ import annotations

from typing import Any

from counterpoint import registry
from counterpoint.envs.world import World
from counterpoint.errors import InputError, NotFound, did_you_mean


def _checked(found: Any, name: str) -> World:
    if not isinstance(found, World):
        fix = "counterpoint.testing.check_env says what a world needs"
        raise InputError(f"is a {type(found).__name__}, not a world", where=name, fix=fix)
    return found


def _named(name: str) -> World:
    if ":" in name:
        return _checked(registry.get("env", name), name)
    wanted, ids = name.lower().replace("-", "_"), registry.ids("env")
    if wanted in ids:
        return _checked(registry.get("env", wanted), wanted)
    every = [_checked(registry.get("env", id_), id_) for id_ in ids]
    for one in every:
        if one.short.lower() == name.lower():
            return one
    raise NotFound(f"no world named {name!r}", fix=did_you_mean(name, {*ids, *(one.short for one in every)}))


def world(name: str, **parameters: Any) -> Any:
    """A world by id (`wide_verify`), short name (`W1`) or `"package.module:object"`, with other parameters where given."""
    found = _named(name)
    return found.replace(**parameters) if parameters else found
