"""The work that runners carry out: rollouts of a learned policy, with weights and payload given, wherever it runs.

Always true: the result depends on payload and weights alone. Traces are made where the episodes were played; what travels back
is rows, and traces only where they were asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.lab.worlds.world import world as find
from counterpoint.trace import Trace

if TYPE_CHECKING:
    from counterpoint.lab.train.rollouts import TracedRollout

WORK = "counterpoint.lab.train.jobs:play"


def world_of(name: str, changes: Mapping[str, Any]) -> TeamWorld:
    """A TeamWorld by name, with changed parameters."""
    world = find(name)
    if not isinstance(world, TeamWorld):
        raise InputError(
            f"{name} is not a TeamWorld",
            why="the networks read TeamWorld's arrays of agents, items and calls, and it has none: no Config, no Batch",
            fix="W1, W2, D, P, V, A, M, or one that `counterpoint new world` writes; in a stopping world a stop rule is learned",
        )
    return world.replace(**changes) if changes else world


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

    from counterpoint.lab.train.policies.acting import Forced
    from counterpoint.lab.train.policies.network import Network
    from counterpoint.lab.train.recorded import DECISIONS, noted
    from counterpoint.lab.train.rollouts import TracedRollout, play_out
    from counterpoint.lab.worlds.teamworld.setting import traced

    one_core()
    world = world_of(payload["world"], payload["set"])
    net = Network.of(weights, apart=payload["apart"])
    force = Forced(*(payload.get(name) for name in FORCED))
    out = play_out(
        world.config, net, payload["seeds"], payload["salts"], log=payload["log"], goes_on=payload["goes_on"],
        force=force, name=payload["name"], workers=payload.get("workers", False), salts_ET=payload.get("salts_ET"),
    )  # fmt: skip
    traces: list[Trace] = []
    if out.batch is not None:
        make = traced(world, out.batch, out.seeds, payload["name"])
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
