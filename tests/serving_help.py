"""A running endpoint for tests: a real server on a port of this machine, in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint import Store
from counterpoint.app import http_server
from counterpoint.lab.app import model_fronts
from counterpoint.lab.lm.models.local import local
from counterpoint.lab.lm.serving.backend import EngineBackend
from counterpoint.lab.lm.serving.ledger import Ledger
from counterpoint.lab.lm.serving.pass_on import PassOn


@dataclass
class Endpoint:
    """What tests know of a running endpoint."""

    url: str
    """With /v1."""
    backend: Any
    server: Any
    thread: threading.Thread

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    def stop(self) -> None:
        """Ask it to end; who has begun is answered."""
        self.server.should_exit = True


@contextmanager
def served(model: Path | str, *, store: Store | None = None, base_url: str | None = None, token: str = "", front_ends: int = 0, **options: Any) -> Iterator[Endpoint]:
    """An endpoint of a folder's model, or with `base_url` of another endpoint's."""
    made = None if base_url else local(str(model), **options)
    backend: Any = PassOn(str(model), base_url=base_url, key_env="") if made is None else EngineBackend(made.thread, "tiny", version=made.version)
    is_ready = threading.Event()
    sock = http_server.listening_socket("127.0.0.1", 0)
    ledger = None if store is None else Ledger(store)
    server = model_fronts.server(backend, ledger, front_ends=front_ends, token=token, on_ready=is_ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    assert is_ready.wait(60)
    end = Endpoint(f"http://127.0.0.1:{sock.getsockname()[1]}/v1", backend, server, thread)
    try:
        yield end
    finally:
        end.stop()
        thread.join(60)
        if ledger is not None:
            ledger.close()
            assert ledger.problems == []
        if made is not None:
            asyncio.run(made.close())
        sock.close()
        assert not thread.is_alive()
