"""Teams of strangers, for the bench: honest ones, and ones that break in every way."""

from __future__ import annotations

import os
import time
from typing import Any


def finds(job: Any) -> str:
    """Works as it should: a reader for each part, all of it recorded."""
    found = []
    for name, text in job.parts.items():
        with job.recording.acting(f"reader-{name}", role="worker"):
            found.append(job.tools["search"](text[:60]))
    return found[0][:40]


async def waits(job: Any) -> str:
    return "nothing"


def crashes(job: Any) -> str:
    job.tools["search"]("one")
    raise KeyError("oops")


def exits(job: Any) -> str:
    os._exit(7)


def hangs(job: Any) -> str:
    job.tools["search"]("one")
    while True:
        time.sleep(0.05)


def floods(job: Any) -> str:
    while True:
        job.tools["search"]("again")


def lies(job: Any) -> str:
    """Uses the pipe behind the recording's back."""
    job.tools["search"]("once, on the record")
    call = dict(zip(job.tools["search"].__code__.co_freevars, job.tools["search"].__closure__, strict=True))["ask"].cell_contents
    cells = dict(zip(call.__code__.co_freevars, (c.cell_contents for c in call.__closure__), strict=True))
    for _ in range(3):
        cells["pipe"].send(("tool", "lead", "search", "off the record"))
        cells["pipe"].recv()
    return "done"


def prints(job: Any) -> str:
    """Answers without recording anything, and starts a process that would outlive it."""
    print("noise")
    assert "T1" not in str(job.recording.trace_id)
    if os.fork() == 0:
        time.sleep(10_000)
    return "nothing"


def peeks(job: Any) -> str:
    from counterpoint.lab.tasks.ledger_hunt import ledger_hunt

    return ledger_hunt.truth_file(None)


not_callable = 3
