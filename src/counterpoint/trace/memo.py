"""What is worked out of a trace, shared by all who need it at the same time.

Always true: it lies beside the trace, which holds it weakly: it lives as long as somebody uses it, and keeps no trace alive.
Threads that ask at once get one object, made once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from counterpoint.trace.trace import Trace

T = TypeVar("T")

_LOCK = "_memo_lock"


def memo(trace: Trace, name: str, make: Callable[[Trace], T]) -> T:
    """What `make` makes of a trace: the one of this name that somebody holds, else a new one."""
    beside = vars(trace)
    with beside.setdefault(_LOCK, threading.RLock()):
        reference = beside.get(name)
        held: T | None = None if reference is None else reference()
        if held is None:
            held = make(trace)
            beside[name] = weakref.ref(held)
        return held
