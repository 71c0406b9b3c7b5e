"""A vLLM that is started for a while and ended again: for tests, benchmarks and claims that compare with it.

Always true: the server listens on this machine alone, and it and its workers are gone when the context is left.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from counterpoint.errors import CounterpointError
from counterpoint.lab.lm.served.contracts import Vllm
from counterpoint.lab.lm.served.link import ServerFailed, ServerLink

VLLM_ENV = "COUNTERPOINT_VLLM"
"""The variable that names the executable, where it is not on the path."""
_START_S, _LOOK_S, _END_S = 900.0, 0.5, 60.0
_ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
}  # fmt: skip


def vllm_executable() -> str | None:
    """Where vLLM is; None where it is not installed."""
    return shutil.which(os.environ.get(VLLM_ENV) or "vllm")


@contextmanager
def vllm_server(executable: str, folder: Path, arguments: Sequence[str] = (), **environment: str) -> Iterator[str]:
    """The address of a server of this folder, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [executable, "serve", str(folder), "--host", "127.0.0.1", "--port", str(port), *arguments]
    told = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | _ENVIRONMENT | environment
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=told, stdout=log, stderr=log, start_new_session=True)
        try:
            end = time.monotonic() + _START_S
            while not _is_up(url):
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    last = log.read().decode("utf-8", "replace").strip().splitlines()[-1:] or ["it says nothing"]
                    raise CounterpointError("vLLM does not start", where=executable, why=last[0][-300:], fix="run it by hand")
                time.sleep(_LOOK_S)
            yield url
        finally:
            _end(process)


def _is_up(url: str) -> bool:
    link = ServerLink(url, at_once=1, needs=Vllm.needs, waits=())
    try:
        link.call("/v1/models")
    except ServerFailed:
        return False
    else:
        return True
    finally:
        link.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(_END_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
