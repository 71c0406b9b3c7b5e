"""What Tab offers in the laboratory's commands: worlds, presets, tasks, topologies, tools, models, claims, weights.

Always true: only names are read; no plug-in is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import counterpoint.registry as registry

Offer = Callable[[Any], Iterable[tuple[str, str]]]
"""From the context of a command to words, each with what it is."""


def completions() -> tuple[dict[str, Offer], dict[str, Offer]]:
    """What flags take, by their names without dashes, and what the arguments `name` and `names` of commands take."""
    flags = {kind: _plugins(kind) for kind in ("preset", "task", "topology", "tool")}
    commands: dict[str, Offer] = {"reproduce": _claims, "train worlds": _worlds}
    commands |= {"models install": _weights, "models show": _weights}
    commands |= {f"compare {part}": _plugins("preset") for part in ("presets", "methods", "standings")}
    return flags | {"world": _trained_worlds, "model": _models}, commands


def _plugins(kind: str) -> Offer:
    return lambda ctx: [(name, registry.summary(kind, name)) for name in registry.ids(kind)]


def _worlds(ctx: Any) -> Iterable[tuple[str, str]]:
    for name in registry.ids("world"):
        about = registry.summary("world", name)  # begins with the short name: "W1, wide verify: ..."
        yield from ((word, about) for word in dict.fromkeys((about.partition(",")[0], name)))


def _trained_worlds(ctx: Any) -> Iterable[tuple[str, str]]:
    """Worlds to train in, and those of the suites."""
    from counterpoint.lab.worlds.teamworld.suites import suite_worlds

    yield from _worlds(ctx)
    yield from ((name, world.about) for name, world in suite_worlds().items())


def _models(ctx: Any) -> Iterable[tuple[str, str]]:
    yield from (("fake", "a test double, needs nothing"), ("openai:", "an endpoint"), ("scripted:", "lines of a file"))
    yield from ((f"local:{name}", state) for name, state in _weights(ctx))


def _weights(ctx: Any) -> Iterable[tuple[str, str]]:
    from counterpoint.lab.lm.weights import listed

    return [(weights.name, weights.state) for weights in listed()]


def _claims(ctx: Any) -> Iterable[tuple[str, str]]:
    return [(name.replace("_", "-"), registry.summary("claim", name)) for name in registry.ids("claim")]
