"""What it takes to ask "what if": a replay that can fork a trace at an event, and the four things that can be done there.

Always true: a fork keeps every event before `at`, applies `do` to the event `at`, and lets everybody react from there on. With
`seed=None` the fork shares all noise with the original (coupled); with a seed, draws after `at` are fresh. A fork with `do=None`
and no seed reproduces the trace. Who cannot fork raises `NotIdentified`, and says what would make it possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from counterpoint.trace.trace import Trace


@dataclass(frozen=True)
class Delete:
    """The event never happens: a message is not delivered, an agent is not spawned, a decision becomes a noop."""


@dataclass(frozen=True)
class Substitute:
    """The event happens with other content. `value=None` resamples it from its writer (needs `draw`, default 1)."""

    value: Any = None
    draw: int = 1
    """Which of the fresh draws, 1 and up, when `value` is None."""


@dataclass(frozen=True)
class Insert:
    """One more message, delivered right after the event: `value` is what it says; the rest says who to whom about what."""

    value: Any
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Force:
    """The decision is another one: `action` in the world's own terms, such as `{"spawn": 0}` or `{"stop": True}`."""

    action: Mapping[str, Any]


Do = Delete | Substitute | Insert | Force


class Fork(NamedTuple):
    """One fork to make."""

    at: str
    do: Do | None = None
    seed: int | None = None


@runtime_checkable
class Replay(Protocol):
    """Something that can run a recorded team again from any of its events."""

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """The trace that would have come about, had `do` been done at event id `at`."""


@runtime_checkable
class ManyReplay(Replay, Protocol):
    """A replay that can run many forks at once, for those who need only what came of them."""

    def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
        """The team reward of each fork, in the order given."""
