"""The work that runners carry out: rollouts of a learned policy, with weights and payload given, wherever it runs.

Always true: the result depends on payload and weights alone. Traces are made where the episodes were played; what travels back
is rows, and traces only where they were asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.rules.decision import asks_decisions
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.lab.worlds.world import world as find
from counterpoint.trace import Trace

if TYPE_CHECKING:
    from counterpoint.lab.train.rollouts import TracedRollout

WORK = "counterpoint.lab.train.jobs:play"


def world_of(name: str, changes: Mapping[str, Any]) -> Any:
    """A world to train in by name, with changed parameters: a TeamWorld, or one that asks decisions by options as numbers."""
    world = find(name)
    if not isinstance(world, TeamWorld):
        _refuse_silent(world, name)
    return world.replace(**changes) if changes else world


def _refuse_silent(world: Any, name: str) -> None:
    """Raise where nothing that a network could read comes out of a world."""
    if hasattr(world, "paths"):
        fix = f"counterpoint train stop --world {world.name}"
        raise InputError(f"{name} is a stopping world, where a stop rule is learned", fix=fix)
    if not asks_decisions(world.env()):
        raise InputError(
            f"{name} cannot be trained in",
            why="it is no TeamWorld, and its env() has no decision(), which gives a network options as numbers",
            fix="give it one, as in the world that `counterpoint new world` writes",
        )
    if not dataclasses.is_dataclass(world.config) or isinstance(world.config, type):
        raise InputError(f"the config of {name} is a {type(world.config).__name__}, not a dataclass", fix="fields by `parameter`")


def one_core() -> None:
    """One thread, and plain matrix products, for this process: networks this small lose more to threads, and to the set-up of
    oneDNN's kernels (on Arm, 100 to 500 microseconds a layer), than they gain."""
    import torch

    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)


FORCED = "gate", "keeps", "tries", "sizes"
"""What a payload may say of `Forced`, in its order."""
PER_EPISODE = ("seeds", "salts", "salts_ET", *FORCED)
"""Arrays of a payload with a row for each episode."""


def play(payload: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> TracedRollout:
    """Rollouts of one job: world, set, seeds, salts, apart, goes_on, gate (forced arms), keeps (calls before an item may be
    left), tries (episodes in which none is left before its first call), sizes (of teams that are forced), workers (whether they
    learn), salts_ET (of a tree of rollouts), log, and decisions (whether traces carry what a learner reads)."""

    from counterpoint.lab.train.child_process import collecting_seldom
    from counterpoint.lab.train.options import play_options
    from counterpoint.lab.train.policies.acting import Forced
    from counterpoint.lab.train.policies.network import Network
    from counterpoint.lab.train.recorded import DECISIONS, noted
    from counterpoint.lab.train.rollouts import TracedRollout, play_out
    from counterpoint.lab.worlds.teamworld.setting import traced

    one_core()
    world = world_of(payload["world"], payload["set"])
    net = Network.of(weights, apart=payload["apart"])
    if not isinstance(world, TeamWorld):
        return play_options(world, net, payload)
    force = Forced(*(payload.get(name) for name in FORCED))
    out = play_out(
        world.config, net, payload["seeds"], payload["salts"], log=payload["log"], goes_on=payload["goes_on"],
        force=force, name=payload["name"], workers=payload.get("workers", False), salts_ET=payload.get("salts_ET"),
    )  # fmt: skip
    traces: list[Trace] = []
    if out.batch is not None:
        make = traced(world, out.batch, out.seeds, payload["name"])
        with collecting_seldom():
            traces = [_named(make(i), int(out.salts[i])) for i in range(len(out.values))]
        if payload.get("decisions"):
            how: dict[str, Any] = {"goes_on": payload["goes_on"], "workers": payload.get("workers", False)}
            for i, trace in enumerate(traces):
                trace.meta[DECISIONS] = noted(out, i, **how)
        out.batch = None
    return TracedRollout(out, traces)


def _named(trace: Trace, salt: int) -> Trace:
    """A trace id that tells the episodes of one seed apart."""
    return msgspec.structs.replace(trace, trace_id=f"{trace.trace_id}-{salt}")


def policy_from(weights: Mapping[str, np.ndarray], *, apart: bool = False, name: str = "learned") -> Any:
    """The greedy policy of a network given as arrays."""

    from counterpoint.lab.train.policies.acting import TeamPolicy
    from counterpoint.lab.train.policies.network import Network

    return TeamPolicy(Network.of(weights, apart=apart), name=name)
