"""What is played for one update, and playing it while the update before is learned.

Always true: the teams of update u + 1 are played with the weights that update u begins with, however fast anybody is; so a run is
the same function of its settings with and without waiting. Only one batch is under way, and nobody else plays meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from counterpoint.lab.train.lm.rollout_messages import packed_trace, unpacked_trace
from counterpoint.lab.train.lm.team_batch import TeamBatch
from counterpoint.trace import Trace


@dataclass(frozen=True)
class PlayedGroups:
    """What was played for one update."""

    batch: TeamBatch
    kept: list[Trace]
    """Of groups with spread."""
    flat: float
    """The share of groups without."""
    reused: float = 0.0
    """The share of prompt tokens that the engine had read before."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What playing took: `play` in all, in which `engine` computed, and `wait`, in which it had nothing to compute."""
    lost: dict[str, Any] = field(default_factory=dict)
    """Rollouts of a person's own team that were lost."""

    def packed(self) -> dict[str, Any]:
        """As plain values, for a checkpoint."""
        places = {id(trace): i for i, trace in enumerate(self.batch.traces)}
        traces = [packed_trace(t) for t in self.batch.traces]
        kept = [places[id(t)] for t in self.kept]
        about = {"flat": self.flat, "reused": self.reused, "seconds": self.seconds, "lost": self.lost}
        return {"traces": traces, "kept": kept, **about}

    @classmethod
    def unpacked(cls, plain: dict[str, Any]) -> PlayedGroups:
        """What a checkpoint kept."""
        traces = [unpacked_trace(t) for t in plain["traces"]]
        kept = [traces[i] for i in plain["kept"]]
        return cls(TeamBatch(traces), kept, plain["flat"], plain["reused"], plain["seconds"], plain["lost"])


class PlayAhead:
    """One batch that is played in a thread of its own; on a GPU in a stream of its own, which goes first."""

    def __init__(self, *, is_gpu: bool) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="play-ahead")
        self._stream: Any = None
        self._is_gpu = is_gpu
        self._next: Future[PlayedGroups] | None = None

    def begin(self, play: Callable[[], PlayedGroups]) -> None:
        """Play from now on, with what the device has been asked for so far."""
        self._next = self._pool.submit(self._play, play, self._moment())

    def _moment(self) -> Any:
        if not self._is_gpu:
            return None
        import torch

        if self._stream is None:
            self._stream = torch.cuda.Stream(priority=-1)
        return torch.cuda.current_stream().record_event()

    def _play(self, play: Callable[[], PlayedGroups], moment: Any) -> PlayedGroups:
        with self._in_stream(moment):
            return play()

    @contextmanager
    def _in_stream(self, moment: Any) -> Iterator[None]:
        if moment is None:
            yield
            return
        import torch

        with torch.cuda.stream(self._stream):
            self._stream.wait_event(moment)
            yield
            self._stream.synchronize()

    def take(self) -> PlayedGroups | None:
        """What was played, once it is; None where nothing was begun."""
        found, self._next = self._next, None
        return None if found is None else found.result()

    def settle(self) -> PlayedGroups | None:
        """The same, but it is kept: the engine and the workers are free from now on."""
        return None if self._next is None else self._next.result()

    def put(self, played: PlayedGroups) -> None:
        """What was played before a run was cut off."""
        self._next = Future()
        self._next.set_result(played)

    def close(self) -> None:
        """Wait until nobody plays any more, however that ends."""
        if self._next is not None:
            self._next.exception()
        self._pool.shutdown()
