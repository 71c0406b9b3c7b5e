"""Worlds by the names that people type, with other parameters where they ask for them.

Always true: a world that does not exist is `NotFound` with the nearest name, those of the suites among them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import counterpoint.registry as registry
from counterpoint.app.terminal.options import impossible, overrides
from counterpoint.errors import NotFound, did_you_mean

if TYPE_CHECKING:
    from counterpoint.lab.worlds.world import World


def find_world(name: str, pairs: Sequence[str] = ()) -> World:
    """The world of an id, of a short name, or of package.module:object; with other parameters where asked."""
    from counterpoint.lab.worlds.world import world

    return changed_world(world(name), pairs)


def changed_world(found: World, pairs: Sequence[str]) -> World:
    """The world with `--set`."""
    with impossible(f"counterpoint train worlds {found.name}"):
        changes = overrides(found.config, pairs)
        return found.replace(**changes) if changes else found


def trainable_world(name: str) -> World:
    """A world by name, those of the suites too; the error of an unknown one names the nearest of all."""
    from counterpoint.lab.worlds.teamworld.suites import suite_worlds
    from counterpoint.lab.worlds.world import world

    suites = suite_worlds()
    try:
        return world(suites[name].settings()["world"] if name in suites else name)
    except NotFound as error:
        if ":" in name:
            raise
        raise NotFound(error.what, fix=did_you_mean(name, {*suites, *registry.ids("world")})) from None


def parameters_of(found: World) -> dict[str, Any]:
    """The parameters of a world by name."""
    return {f.name: getattr(found.config, f.name) for f in dataclasses.fields(found.config)}
