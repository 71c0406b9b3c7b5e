"""The processes of one learner as actors of a Ray cluster: what torchrun does, where a cluster has the cards.

Always true: all of them have a place in one placement group, as near to each other as there is room, or the run does not begin;
the driver, with the engine and the first part of the learner, has the group's first place, on its own node. Workers that play are
no part of the group: they may be lost. Who learns may not: it ends the run with one error, and the run is resumed.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from counterpoint.errors import InputError, TryAgain
from counterpoint.lab.train.ray_cluster import PLACE_S, RayCluster, code_digest, within

_RANK_MB = 1000
"""What is reserved of a node's memory for a process that learns; weights lie on its card."""
_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
_END_S = 30.0


class RayRanks:
    """A learner's processes in a cluster, of which this one is the first; also a context manager."""

    def __init__(self, size: int, *, address: str | None, place_s: float = PLACE_S) -> None:
        """Place all of them, and have the others follow this one, which is then as torchrun would have started it."""
        if not (address or os.environ.get("RAY_ADDRESS")):
            fix = f"ray start --head, then --runner ray:auto; or torchrun --nproc-per-node {size} -m counterpoint train lm ..."
            raise InputError(f"{size} processes that learn need a cluster", where="--runner ray", fix=fix)
        self._cluster = RayCluster(address, workers=size - 1, memory_mb=_RANK_MB)
        self._before = {name: os.environ.get(name) for name in _NAMES}
        self._is_over = False
        here, is_gpu = ray.util.get_node_ip_address(), ray.cluster_resources().get("GPU", 0) > 0
        card = {"GPU": 1} if is_gpu else {}
        places = [{f"node:{here}": 0.001, **card}, *({"CPU": 1, "memory": _RANK_MB << 20, **card} for _ in range(size - 1))]
        self._group = placement_group(places, strategy="PACK")
        try:
            if not self._group.wait(place_s):
                raise self._not_placed(places, place_s)
            self._start(size, here, is_gpu)
        except BaseException:
            self.close()
            raise

    def _not_placed(self, places: Sequence[Any], place_s: float) -> TryAgain:
        nodes = [n for n in ray.nodes() if n["Alive"]]
        has = ", ".join(f"{n['NodeManagerAddress']} {_cards(n['Resources'])}" for n in nodes[:8])
        why = f"asked: {len(places)} of {_cards(places[-1])} each, one of them on this node; there is: {has}"
        fix = "a smaller WORLD_SIZE, or more nodes; `ray status` shows who has the rest"
        return TryAgain(f"the learner's processes were not placed within {place_s:g} s", where="Ray", why=why, fix=fix)

    def _start(self, size: int, here: str, is_gpu: bool) -> None:
        told = {"WORLD_SIZE": str(size), "MASTER_ADDR": here, "MASTER_PORT": str(_free_port(here)), "LOCAL_RANK": "0"}
        card = {"num_gpus": 1} if is_gpu else {}
        room = {"num_cpus": 1, "memory": _RANK_MB << 20}
        actors = [self._actor(i, **(room if i else {"num_cpus": 0, "memory": None}), **card) for i in range(size)]
        cards, *_ = ray.get([actor.about.remote() for actor in actors])
        for digest in ray.get([actor.digest.remote() for actor in actors]):
            self._cluster.check_code(digest, "of the placement group")
        self._holder = actors[0]
        self._others = [a.follow.remote({**told, "RANK": str(i)}) for i, a in enumerate(actors) if i]
        os.environ.update(told, RANK="0")
        if is_gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = cards
        threading.Thread(target=self._watch, daemon=True, name="counterpoint-ray-ranks").start()

    def _actor(self, place: int, **how: Any) -> Any:
        where = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place)
        return self._cluster.actor(RankActor, scheduling_strategy=where, **how)

    def _watch(self) -> None:
        """End this process where another one ends first: it may wait in an exchange that never comes."""
        left = list(self._others)
        while left and not self._is_over:
            done, left = ray.wait(left, timeout=1.0)
            for ref in done:
                try:
                    ray.get(ref)
                except Exception as error:
                    if not self._is_over:
                        _end("a process that learns is lost: " + " ".join(str(error).split())[:300])

    def close(self) -> None:
        """Let the others end, and give their places back."""
        others, self._is_over = getattr(self, "_others", []), True
        within(_END_S, lambda: ray.wait(others, num_returns=len(others), timeout=_END_S) if others else None)
        within(_END_S, lambda: remove_placement_group(self._group))
        for name, value in self._before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})
        self._cluster.close()

    def __enter__(self) -> RayRanks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end(what: str) -> None:
    fix = "counterpoint train resume DIR, when there is room for all of them again"
    sys.stderr.write(f"error: {what}\nfix    {fix}\n")
    sys.stderr.flush()
    os._exit(1)


def _cards(resources: dict[str, Any]) -> str:
    return f"{resources.get('CPU', 0):g} CPU and {resources.get('GPU', 0):g} GPU"


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as found:
        port: int = found.getsockname()[1]
        return port


@ray.remote
class RankActor:
    """A process that learns; of the first place, one that only holds the driver's card."""

    def about(self) -> str:
        """The cards that are its own, as CUDA is told."""
        return ",".join(map(str, ray.get_runtime_context().get_accelerator_ids().get("GPU", ())))

    def digest(self) -> str:
        """The sum of its code."""
        return code_digest()

    def follow(self, told: dict[str, str]) -> None:
        """Learn with the first process until it ends."""
        os.environ.update(told)
        from counterpoint.lab.train.lm.followers import follow

        follow()
