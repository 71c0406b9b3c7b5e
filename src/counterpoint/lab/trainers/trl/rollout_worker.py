"""A rollout worker for TRL's asynchronous trainer: teams play in a thread, while the trainer learns from earlier rounds.

Always true: weights change between two rounds, never in one; a sample says which weights spoke; a queue that is full makes the
teams wait, so nothing is thrown away here. What goes wrong in the thread is raised in the trainer.

TRL's samples have one advantage each. A row whose tokens earned different amounts becomes one sample for each amount, with the
same tokens and another mask: TRL's loss is a sum over tokens divided by their number, so that is the same loss.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.trainers.row import TrainingRow, as_float32, logps_of, only_policy, version_number
from counterpoint.lab.trainers.team_play import TeamPlay
from counterpoint.lab.trainers.trainer import warn_version
from counterpoint.lab.trainers.trl import TESTED

_LOOK_S = 0.5
"""How often a thread that waits looks whether it is to end."""


def samples_of(row: TrainingRow, group: int) -> list[Any]:
    """A row as TRL's samples: one for each amount that tokens of it earned."""
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    before = len(row.prompt_ids)
    if not before:
        raise InputError("an empty prompt, and TRL scores a token by the one before it", where=row.name, fix="leave it out")
    ids = np.concatenate([row.prompt_ids, row.completion_ids])
    logps = np.concatenate([np.zeros(before), as_float32(logps_of(row, "TRL"), "log-probabilities", row.name)])
    advantages = as_float32(row.advantages, "advantages", row.name)
    out = []
    for value in dict.fromkeys(advantages[row.mask == 1].tolist()):
        mask = np.concatenate([np.zeros(before, np.int64), (advantages == value) & (row.mask == 1)]).astype(np.int64)
        metrics = {"advantage_size": abs(value)}
        version = version_number(row)
        out.append(RolloutSample([], [], ids, mask, logps, value, version or 0, group, metrics))
    return out


class TeamRolloutWorker:
    """What `AsyncGRPOTrainer` takes as `rollout_worker`, and as `weight_transfer` too: weights stay in this process."""

    def __init__(self, play: TeamPlay, *, most: int = 1024, token_budget: int = 0) -> None:
        """`most`: samples that may wait for the trainer; `token_budget`: that of its configuration, since it drops longer samples
        with no more than a warning; 0 where it has none."""
        warn_version("trl", TESTED)
        self.play, self.token_budget = play, token_budget
        self.rollout_buffer: queue.Queue[Any] = queue.Queue(maxsize=most)
        self.metrics_queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self._turn = threading.Condition()
        self._is_playing = self._is_paused = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._alive_s = time.monotonic()
        self._version = 0
        self._groups: dict[str, int] = {}

    # -- as a rollout worker

    def start(self) -> None:
        """Play, until told to stop."""
        self._thread = threading.Thread(target=self._run, name="counterpoint-teams", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the processes of the teams."""
        self._over.set()
        with self._turn:
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join()
        self.play.close()

    def update_model_version(self, model_version: int) -> None:
        """The weights that were sent last have this number."""
        self._version = model_version
        self.play.version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raise what went wrong in the thread, or that it has done nothing for so long."""
        if self._error is not None:
            raise CounterpointError(f"the teams stopped: {self._error}", where="rollout worker") from self._error
        if time.monotonic() - self._alive_s > stale_after_s:
            fix = "fewer groups or samples a round, or a longer time limit"
            raise CounterpointError(f"no round has ended for {stale_after_s:g} s", where="rollout worker", fix=fix)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                rows, metrics = self._round()
                self._alive_s = time.monotonic()
                self.metrics_queue.put(metrics)
                for sample in self._samples(only_policy(rows) if rows else []):
                    self._put(sample)
        except BaseException as error:
            self._error = error

    def _round(self) -> tuple[list[TrainingRow], dict[str, float]]:
        with self._turn:
            self._turn.wait_for(lambda: not self._is_paused or self._over.is_set())
            if self._over.is_set():
                return [], {}
            self._is_playing = True
        try:
            return self.play.rows(), {f"teams/{name}": value for name, value in self.play.told.items()}
        finally:
            with self._turn:
                self._is_playing = False
                self._turn.notify_all()

    def _samples(self, rows: Sequence[TrainingRow]) -> Iterator[Any]:
        for row in rows:
            size = len(row.prompt_ids) + len(row.completion_ids)
            if self.token_budget and size > self.token_budget:
                what = f"a call of {size:,} tokens, and the trainer takes {self.token_budget:,}"
                raise InputError(what, where=row.name, why="it would drop it", fix="a larger token_budget")
            yield from samples_of(row, self._groups.setdefault(row.group, len(self._groups)))

    def _put(self, sample: Any) -> None:
        sample.enqueued_at = time.time()
        while not self._over.is_set():
            try:
                self.rollout_buffer.put(sample, timeout=_LOOK_S)
                return
            except queue.Full:
                self._alive_s = time.monotonic()  # it is the trainer that is waited for

    # -- as a weight transfer

    def init_weight_transfer(self) -> None:
        """Nothing to set up: the teams' engine is in this process."""

    def pause(self) -> None:
        """Wait until the round that is being played has ended."""
        with self._turn:
            self._is_paused = True
            self._turn.wait_for(lambda: not self._is_playing)

    def send_weights(self, iterator: Iterator[tuple[str, Tensor]]) -> None:
        """Take over the trainer's weights."""
        self.play.load(dict(iterator), self._version + 1)

    def resume(self) -> None:
        """Go on playing."""
        with self._turn:
            self._is_paused = False
            self._turn.notify_all()

    def destroy(self) -> None:
        """Nothing to let go of."""
