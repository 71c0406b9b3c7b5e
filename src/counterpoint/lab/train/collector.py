"""Many records at once without Python's garbage collector, which would walk all of them again and again.

Always true: the collector is as it was afterwards, whatever ends the work.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """For making records that refer to values and not to each other, such as the events of traces."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
