"""The other side of `Processes`: a loop that runs jobs until its parent says so or is gone.

Always true: a worker ignores Ctrl-C (its parent closes it) and never outlives its parent: a thread of its own writes a
heartbeat and watches the parent, also while a job runs. A job that raises is reported, and the worker goes on.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing import connection, parent_process
from typing import Any

from counterpoint.train.runner.protocol import frozen, packed, resolve, told


def serve(conn: connection.Connection, beats: Any, place: int, beat_s: float) -> None:
    """Answer jobs on a pipe. A job is (number, work, version or None for the last weights) and then its bytes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_beat, args=(beats, place, beat_s), daemon=True).start()
    weights: Any = None
    with contextlib.suppress(EOFError, OSError):  # the parent is gone or has closed
        while (message := conn.recv()) is not None:
            number, work, is_new = message
            blob = conn.recv_bytes() if is_new else None
            payload = conn.recv_bytes()
            begin = time.perf_counter()
            try:
                if blob is not None:
                    weights = frozen(pickle.loads(blob))
                function = resolve(work)
                _one_thread()
                result = packed(function(pickle.loads(payload), weights), "result", number, work)
                answer: tuple[Any, ...] = (number, None, time.perf_counter() - begin)
            except Exception as error:
                result, answer = b"", (number, told(error), time.perf_counter() - begin)
            conn.send(answer)
            conn.send_bytes(result)


def _one_thread() -> None:
    """Hold torch to one thread; the others were told by the environment before they were loaded."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def _beat(beats: Any, place: int, beat_s: float) -> None:
    parent = parent_process()
    while True:
        beats[place] = time.monotonic()
        if parent is None:
            time.sleep(beat_s)
        elif connection.wait([parent.sentinel], beat_s):
            os._exit(1)  # the parent is gone: nobody waits for the job
