"""A Ray cluster as our workers need it: connected to or started here, asked for room, and watched.

Always true: what cannot be placed is one error that says what was asked and what the cluster has; workers have our import path,
one thread each and our code, or there is one error that says what differs; only a cluster that was started here is ended here.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ray

from counterpoint.errors import CounterpointError, InputError, Refused, TryAgain
from counterpoint.lab.train.child_process import THREADS

PLACE_S = 120.0
"""How long workers may wait for a place; an autoscaling cluster needs a minute or two to add a node."""
STORE_MB = 128
"""Object store of a cluster that is started here; weights lie in it, once per version."""
RAY_MB = 400
"""What Ray's own processes take on a machine: measured with one node, no dashboard and an object store of 100 MB."""
_HEAD_S = 15.0
"""How long the head may be unreachable before it counts as lost; Ray itself ends this process after a minute."""
_LOOK_S = 3.0
_END_S = 10.0


def room(workers: int, memory_mb: int) -> str:
    """What workers take, in words."""
    each = "1 worker of 1 CPU" if workers == 1 else f"{workers} workers of 1 CPU each"
    return f"{each}, {memory_mb:,} MB of memory for each"


class RayCluster:
    """A connection to a cluster, for `workers` actors of one CPU and `memory_mb` each; also a context manager."""

    def __init__(self, address: str | None, *, workers: int, memory_mb: int) -> None:
        """Connect to `address` ($RAY_ADDRESS, or a cluster of this machine alone, where there is none)."""
        self.workers, self.memory_mb = workers, memory_mb
        self.address = address or os.environ.get("RAY_ADDRESS") or ""
        self.is_ours = not ray.is_initialized()
        self._looked_at, self._unreachable_s = time.monotonic(), 0.0
        if self.is_ours:
            _connect(self.address, workers)
        self._head = ray.get_runtime_context().gcs_address

    def needs(self) -> str:
        """What the run will take of the cluster, to be said before it does."""
        own = f"a cluster of this machine, which takes {RAY_MB + STORE_MB:,} MB itself"
        where = f"the cluster at {self._head}" if self.address else own
        return f"Ray: {room(self.workers, self.memory_mb)}, on {where}"

    def actor(self, kind: Any, *args: Any, **options: Any) -> Any:
        """A new actor, with our import path and threads; it is placed when there is room for it."""
        env = {**dict.fromkeys(THREADS, "1"), "PYTHONPATH": os.pathsep.join(_import_path())}
        how: dict[str, Any] = {"num_cpus": 1, "memory": self.memory_mb << 20, "max_restarts": 0, "max_task_retries": 0}
        how |= {"scheduling_strategy": "SPREAD", "runtime_env": {"env_vars": env}, **options}
        return kind.options(**how).remote(*args)

    def check_code(self, found: str, node: str) -> None:
        """Raise where a worker runs other code of ours than this process: its numbers could differ."""
        if found != code_digest():
            fix = "install this version on every node, or start from a folder that all of them share"
            raise InputError("a worker runs other code of Counterpoint than this process", where=f"node {node}", fix=fix)

    def not_placed(self, placed: int, waited_s: float) -> CounterpointError:
        """The error of workers that found no place in time: what was asked, and what there is."""
        asked = f"{placed} of {self.workers} workers were placed within {waited_s:g} s"
        fix = f"--workers {max(1, placed)}, or more nodes; `ray status` shows who has the rest"
        why = f"asked: {room(self.workers, self.memory_mb)}; there is: {_has()}"
        return TryAgain(asked, where=f"Ray at {self._head}", why=why, fix=fix)

    def check_head(self) -> None:
        """Raise once the head node has not been reachable for a while; asks it now and then only."""
        since = time.monotonic() - self._looked_at
        if since < _LOOK_S:
            return
        self._looked_at += since
        host, _, port = self._head.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_LOOK_S).close()
            self._unreachable_s = 0.0
        except OSError as error:
            # Of a long pause little counts: this process may have been stopped itself.
            self._unreachable_s += min(since, 2 * _LOOK_S)
            if self._unreachable_s > _HEAD_S:
                raise self._lost_head(error) from error

    @property
    def is_reachable(self) -> bool:
        """Whether the head answered when it was last asked."""
        return self._unreachable_s == 0.0

    def _lost_head(self, error: OSError) -> CounterpointError:
        what = f"the head node of the Ray cluster is lost: {error.strerror or error}"
        fix = "start the cluster again, then: counterpoint train resume DIR --runner ray:HOST:PORT"
        return CounterpointError(what, where=self._head, fix=fix)

    def close(self) -> None:
        """Let go of the cluster; one that was started here ends."""
        if self.is_ours:
            self.is_ours = False
            # Without a head Ray's own end waits for answers that never come.
            within(_END_S, ray.shutdown)

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def within(seconds: float, work: Callable[[], Any]) -> None:
    """Do something that may never end or may fail, and wait for it so long at most."""

    def tried() -> None:
        with contextlib.suppress(Exception):
            work()

    thread = threading.Thread(target=tried, daemon=True)
    thread.start()
    thread.join(seconds)


def _connect(address: str, workers: int) -> None:
    if address.startswith("ray://"):
        why = "weights and rollouts would all pass through one proxy, and a lost connection would end the run"
        fix = "start it on a node of the cluster: ray job submit -- counterpoint train net --runner ray:auto ..."
        raise Refused("a run does not go through Ray Client", where=address, why=why, fix=fix)
    if ":" in address:
        _reach(address)
    small = {"num_cpus": workers, "object_store_memory": STORE_MB << 20, "include_dashboard": False}
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **({} if address else small))
    except Exception as error:  # Ray raises ConnectionError, ValueError, RuntimeError and errors of its own for this
        what = "cannot connect to the Ray cluster" if address else "cannot start Ray on this machine"
        fix = "ray status, on a node of the cluster; every node needs the same token" if address else "look at its logs"
        raise TryAgain(what, where=address or "Ray", why=" ".join(str(error).split())[:300], fix=fix) from error


def _reach(address: str) -> None:
    """Raise where nobody listens there: Ray itself would try for minutes, and then say less."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_HEAD_S).close()
    except (OSError, ValueError) as error:
        fix = "the address that `ray start --head` printed, HOST:6379, from a node of the cluster; or auto"
        raise TryAgain("nothing answers at the address of the Ray cluster", where=address, why=str(error), fix=fix) from error


def _has() -> str:
    """What every live node has, and what is free in all."""
    with contextlib.suppress(Exception):
        free = ray.available_resources()
        nodes = [n for n in ray.nodes() if n["Alive"]]
        each = [f"{n['NodeManagerAddress']} {_amount(n['Resources'])}" for n in nodes[:8]]
        more = f" and {len(nodes) - 8} more" if len(nodes) > 8 else ""
        return f"{', '.join(each)}{more}; free now: {_amount(free)}"
    return "unknown, the cluster does not answer"


def _amount(resources: dict[str, float]) -> str:
    return f"{resources.get('CPU', 0):g} CPU and {resources.get('memory', 0) / (1 << 20):,.0f} MB"


def _import_path() -> list[str]:
    """What this process imports from beside the interpreter's own folders, which a worker has by itself."""
    own = tuple(os.path.join(p, "lib") for p in {sys.prefix, sys.base_prefix})
    found = [os.path.abspath(p) for p in sys.path if os.path.isdir(p or ".")]
    return list(dict.fromkeys(p for p in found if not p.startswith(own)))


@cache
def code_digest() -> str:
    """A sum of our source files, to tell other versions apart."""
    root = Path(__file__).parents[2]
    total = hashlib.blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py")):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()
