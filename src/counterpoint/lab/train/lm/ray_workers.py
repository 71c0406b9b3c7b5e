"""Rollout workers as actors of a Ray cluster: teams are played on any node, the engine stays where the driver is.

Always true: an actor talks to the driver through a connection that it opens with a token which only Ray has carried, by the same
messages as a process of this machine. The tokeniser travels with it, so no folder has to be shared. A node that is lost closes
its connections or stops answering the kernel's probes; what was played there is then played elsewhere.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray

from counterpoint.errors import InputError
from counterpoint.lab.train.child_process import START_S
from counterpoint.lab.train.lm.own_worker import serve_teams
from counterpoint.lab.train.lm.rollout_worker import serve
from counterpoint.lab.train.lm.worker_link import Started
from counterpoint.lab.train.ray_cluster import PLACE_S, RayCluster, code_digest, within

OWN_MB = 1000
"""What is reserved for a worker that runs a person's own team, with what it imports."""
WORKER_MB = 300
"""What is reserved for a worker, which loads neither torch nor the store; teams of long texts take more."""
_HELLO = struct.Struct("<32sII16s")
"""Token, number of the worker, process id there, sum of its code."""
_HELLO_S = 10.0
_KILL_S = 10.0
_PROBES = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""A machine that is gone is noticed after 25 s."""
_FILES = (
    "tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json", "chat_template.jinja",
)  # fmt: skip
"""What a chat is read from."""


class _Actor:
    """A worker of the cluster, as the driver sees it."""

    def __init__(self, cluster: RayCluster, actor: Any, ref: Any) -> None:
        self._cluster, self._actor, self.pid = cluster, actor, 0
        self.conn: socket.socket | None = None
        self._over = threading.Event()
        self._why = "its connection closed"
        ref.future().add_done_callback(self._ended)

    def _ended(self, future: Any) -> None:
        error = future.exception()
        if error is not None:
            self._why = " ".join(str(error).split())[:300]
        self._over.set()

    def connected(self) -> socket.socket | None:
        """Its connection, once it has opened one."""
        return self.conn

    def failure(self) -> str | None:
        """Why it ended before it had opened one."""
        return self._why if self.conn is None and self._over.is_set() else None

    def join(self, wait_s: float) -> None:
        """Wait until Ray knows how it ended, so long at most."""
        self._over.wait(wait_s)

    def kill(self) -> None:
        """End it, whatever it is doing."""
        if self._cluster.is_reachable:  # without its head a cluster ends by itself, and cannot be told to
            within(_KILL_S, lambda: ray.kill(self._actor, no_restart=True))

    def ended(self) -> str:
        """What Ray says of its end."""
        return self._why


class RayHost:
    """Where a driver starts its workers: a Ray cluster."""

    def __init__(
        self, given: Path | str | bytes, workers: int, *, address: str | None = None, memory_mb: int = WORKER_MB,
        place_s: float = PLACE_S, tell: Callable[[str], None] = lambda what: None,
    ) -> None:  # fmt: skip
        """`given`: the folder of the tokeniser, or as bytes what a worker of a person's own team is told; all `workers` must have
        a place within `place_s`; `tell` is told what the run takes of the cluster before it does."""
        self._place_s, self._cluster = place_s, RayCluster(address, workers=workers, memory_mb=memory_mb)
        tell(self._cluster.needs())
        self._files = [ray.put(given if isinstance(given, bytes) else _chat_files(Path(given)))]
        self._token, self._started = secrets.token_bytes(32), list[_Actor]()
        self._wrong_code: str | None = None
        self._alone_s, self._checked = 0.0, time.monotonic()
        self.own_address = ray.util.get_node_ip_address()
        """Where this process is reached from the nodes."""
        self._listener = socket.create_server((self.own_address, 0), backlog=256)
        threading.Thread(target=self._listen, daemon=True, name="counterpoint-ray-workers").start()

    # -- who comes

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                conn, peer = self._listener.accept()
                threading.Thread(target=self._greet, args=(conn, peer[0]), daemon=True).start()

    def _greet(self, conn: socket.socket, peer: str) -> None:
        """Take a connection whose first bytes are those of a worker of ours."""
        try:
            conn.settimeout(_HELLO_S)
            token, number, pid, digest = _HELLO.unpack(_received(conn, _HELLO.size))
            if not hmac.compare_digest(token, self._token):
                raise ValueError("not a worker of ours")
            if digest.decode() != code_digest():
                self._wrong_code = peer
                raise ValueError("other code")
            _probe(conn)
        except (OSError, ValueError):
            conn.close()
            return
        self._started[number].pid, self._started[number].conn = pid, conn

    # -- what the driver asks for

    def start(self, count: int) -> list[_Actor]:
        """Start so many; each connects when it has its place."""
        out = []
        for _ in range(count):
            actor = self._cluster.actor(TeamActor)
            host, port = self._listener.getsockname()[:2]
            ref = actor.serve.remote(host, port, self._token, len(self._started), self._files)
            self._started.append(_Actor(self._cluster, actor, ref))
            out.append(self._started[-1])
        return out

    def place(self, waiting: Sequence[Started]) -> None:
        """Wait until these are connected."""
        until = time.monotonic() + self._place_s
        while any(w.connected() is None for w in waiting):
            self._check_code()
            if any(w.failure() is not None for w in waiting):
                return  # the driver counts them, and starts others
            if time.monotonic() > until:
                placed = self._cluster.workers - sum(w.connected() is None for w in waiting)
                raise self._cluster.not_placed(placed, self._place_s)
            time.sleep(0.02)

    def check(self, waiting: Sequence[Started], *, is_alone: bool) -> None:
        """Raise where the head is lost, or nobody has had a place for too long."""
        now = time.monotonic()
        passed, self._checked = now - self._checked, now
        self._check_code()
        self._cluster.check_head()
        self._alone_s = self._alone_s + min(passed, 2.0) if is_alone and waiting else 0.0
        if self._alone_s > max(self._place_s, START_S):
            raise self._cluster.not_placed(0, max(self._place_s, START_S))

    def _check_code(self) -> None:
        if self._wrong_code is not None:
            self._cluster.check_code("", self._wrong_code)

    def close(self) -> None:
        """Let go of the cluster."""
        self._listener.close()
        for started in self._started:
            if started.conn is not None:
                started.conn.close()
        self._cluster.close()


def _chat_files(folder: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name in _FILES if (path := folder / name).is_file()}


def _received(conn: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = conn.recv(size - len(data))
        if not more:
            raise ValueError("the connection ended")
        data += more
    return data


def _probe(conn: socket.socket) -> None:
    """Send at once, and have the kernel notice a machine that is gone."""
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        if hasattr(socket, name):
            conn.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@ray.remote
class TeamActor:
    """Where teams are played."""

    def serve(self, host: str, port: int, token: bytes, number: int, files: list[Any]) -> None:
        """Play what the driver there sends, until it closes the connection."""
        join_driver(host, port, token, number, ray.get(files[0]))


def join_driver(host: str, port: int, token: bytes, number: int, given: dict[str, bytes] | bytes) -> None:
    """Connect to the driver, and play what it sends until it closes the connection."""
    with tempfile.TemporaryDirectory(prefix="counterpoint-chat-") as folder:
        for name, data in () if isinstance(given, bytes) else given.items():
            (Path(folder) / name).write_bytes(data)
        try:
            conn = socket.create_connection((host, port), timeout=_HELLO_S)
        except OSError as error:
            fix = "nodes must reach each other on all ports, as Ray's own workers do"
            raise InputError(f"a worker cannot reach the driver: {error}", where=f"{host}:{port}", fix=fix) from error
        with conn:
            _probe(conn)
            conn.sendall(_HELLO.pack(token, number, os.getpid(), code_digest().encode()))
            conn.settimeout(None)
            serve_teams(conn, given) if isinstance(given, bytes) else serve(conn, folder)
