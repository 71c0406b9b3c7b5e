"""The driver of a person's own team: its code runs in worker processes, one team in each at a time, against our endpoint.

Always true: a worker that dies, hangs past the time of a rollout or leaves calls under way is replaced; a crash or a hang costs
the one rollout that was played there, which is named. What the code raises is a team that failed, and earned nothing. Where no
team of many comes through, or none asks the endpoint, that is one error.
"""

from __future__ import annotations

import pickle
import selectors
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.train.child_process import START_S
from counterpoint.lab.train.lm.driver import DriverStats, Replaced
from counterpoint.lab.train.lm.own_calls import with_calls
from counterpoint.lab.train.lm.own_endpoint import OwnEndpoint
from counterpoint.lab.train.lm.own_rollout import OwnRollout
from counterpoint.lab.train.lm.rollout_messages import Begin, Failed, Play, Ready, Report, Stop, TeamEnd, unpacked_trace
from counterpoint.lab.train.lm.settings import TaskMix
from counterpoint.lab.train.lm.worker_link import Host, WorkerLink, WorkerStarts
from counterpoint.trace import Trace
from counterpoint.trace.model_calls import model_call

_LOOK_S = 0.5
_GRACE_S = 5.0
_MANY = 4
"""Teams of which none may fail before it is said to be the code's fault."""


def settings_of(mix: TaskMix) -> bytes:
    """What a worker needs to know of the code."""
    return pickle.dumps({"team": mix.name, "reward": mix.reward, "path": list(sys.path)})


@dataclass
class _Place:
    """A worker, and what it plays."""

    link: WorkerLink
    slot: str
    number: int = -1
    since: float = 0.0
    has_begun: bool = False


@dataclass
class OwnStats(DriverStats):
    """What has come of the teams."""

    lost: Counter[str] = field(default_factory=Counter)
    """Why rollouts were lost since they were last asked for: what happened, and how often."""


class OwnDriver:
    """Worker processes that run a person's team."""

    def __init__(self, endpoint: OwnEndpoint, mix: TaskMix, host: Host, *, workers: int) -> None:
        self.endpoint, self.stats = endpoint, OwnStats()
        self.seconds, self.count = mix.seconds, workers
        self._starts, self._places = WorkerStarts(host, "team"), list[_Place]()
        self._made, self._has_worked = 0, False
        try:
            self._fill()
            self._starts.place()
        except BaseException:
            self.close()
            raise

    def play(self, rollouts: Sequence[Any], engine: Any = None) -> list[Trace]:
        """The traces of the rollouts that came to an end, in their order; of those that are judged by all."""
        queue, done = deque(range(len(rollouts))), dict[int, Trace | None]()
        try:
            while len(done) < len(rollouts):
                self._fill()
                self._starts.check(is_alone=not self._places)
                for place in self._places:
                    if place.has_begun and place.number < 0 and queue:
                        self._give(place, queue.popleft(), rollouts)
                    place.link.write()
                self._hear(rollouts, done)
                self._look(rollouts, done)
                self._check(rollouts, done)
        except BaseException:
            self._drop([place for place in self._places if place.number >= 0])
            raise
        found = [done[k] or (_lost_trace(rollout) if rollout.is_held_out else None) for k, rollout in enumerate(rollouts)]
        return [trace for trace in found if trace is not None]

    def losses(self) -> dict[str, int]:
        """Why rollouts were lost since this was last asked, and how often."""
        told, self.stats.lost = dict(self.stats.lost), Counter()
        return told

    def close(self) -> None:
        """End the workers."""
        for place in self._places:
            place.link.news.append(Stop())
            place.link.write()
        for place in self._places:
            if place.number < 0:
                place.link.process.join(2.0)
        self._drop(self._places)
        self._starts.close()

    def __enter__(self) -> OwnDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- workers -----------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """As many workers as there should be; who has found a place is told where the model is."""
        for link in self._starts.links(self.count - len(self._places)):
            place = _Place(link, f"w{self._made}", since=time.monotonic())
            self._made += 1
            link.news.append(Begin(self.endpoint.url(place.slot), self.endpoint.key))
            link.write()  # it loads the code while the model imitates
            self._places.append(place)

    def _drop(self, gone: Sequence[_Place]) -> None:
        self._places = [place for place in self._places if place not in gone]
        for place in gone:
            self.endpoint.end(place.slot)
            place.link.process.kill()
        for place in gone:
            place.link.end()

    def _give(self, place: _Place, number: int, rollouts: Sequence[OwnRollout]) -> None:
        place.number, place.since = number, time.monotonic()
        self.endpoint.begin(place.slot, number, rollouts[number])
        place.link.news.append(Play(number, pickle.dumps(rollouts[number])))

    def _hear(self, rollouts: Sequence[OwnRollout], done: dict[int, Trace | None]) -> None:
        """What workers have to say, waited for a moment."""
        with selectors.DefaultSelector() as selector:
            for place in self._places:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if place.link.has_unsent else 0)
                selector.register(place.link.conn, events, place)
            heard = [key.data for key, mask in selector.select(_LOOK_S) if mask & selectors.EVENT_READ]
        for place in heard:
            try:
                said, is_gone = place.link.read()
                for one in said:
                    self._take(place, one, rollouts, done)
            except CounterpointError:
                raise
            except (ValueError, msgspec.MsgspecError) as error:
                self._lose(place, f"it talks nonsense ({error})", rollouts, done)
                continue
            if is_gone and place in self._places:
                self._lose(place, "", rollouts, done)

    def _take(self, place: _Place, one: Report, rollouts: Sequence[OwnRollout], done: dict[int, Trace | None]) -> None:
        if isinstance(one, Ready):
            place.has_begun = True
            self._starts.is_well()
        elif isinstance(one, Failed) and one.rollout == -1:
            error = InputError(f"the team cannot be loaded: {one.what}", where="--team", fix="run it by itself first")
            error.add_note(one.trace)
            raise error
        elif isinstance(one, Failed) and one.rollout == place.number:
            self._lose(place, one.what, rollouts, done)
        elif isinstance(one, TeamEnd) and one.rollout == place.number:
            calls, left = self.endpoint.end(place.slot)
            trace = with_calls(unpacked_trace(one.trace), calls)
            done[one.rollout] = trace
            self.stats.teams += 1
            self.stats.calls += len(calls)
            self.stats.worker_cpu_s += one.cpu_s
            place.number = -1
            if left:  # nobody reads their answers, and who made them may make more
                self._drop([place])
        else:
            raise ValueError(f"about rollout {getattr(one, 'rollout', '')}, which it does not play")

    def _look(self, rollouts: Sequence[OwnRollout], done: dict[int, Trace | None]) -> None:
        """Who has taken too long."""
        now = time.monotonic()
        for place in list(self._places):
            limit = self.seconds if place.number >= 0 else START_S if not place.has_begun else None
            if limit is not None and now - place.since > limit:
                self._lose(place, f"it did not come to an end in {limit:g} s", rollouts, done)

    def _lose(self, place: _Place, why: str, rollouts: Sequence[OwnRollout], done: dict[int, Trace | None]) -> None:
        """A worker that went wrong, and what it played."""
        self._places.remove(place)
        self.endpoint.end(place.slot)
        ended = place.link.end(0.0 if why else _GRACE_S)
        why = why or f"its process ended ({ended})"
        if place.number < 0:
            if not place.has_begun:
                self._starts.ended_early(why)
            return
        name = rollouts[place.number].name
        done[place.number] = None
        self.stats.lost[why] += 1
        self.stats.replaced.append(Replaced(place.link.pid, why, (name,)))
        warnings.warn(f"rollout {name} is lost: {why}", RuntimeWarning, stacklevel=2)

    def _check(self, rollouts: Sequence[OwnRollout], done: dict[int, Trace | None]) -> None:
        """Raise where the code is at fault: no team has ever come through, or asked the model."""
        if self._has_worked or len(done) < min(_MANY, len(rollouts)):
            return
        traces = [trace for trace in done.values() if trace is not None]
        failures = Counter(str(t.meta["rollout"]["failed"]) for t in traces if "failed" in t.meta["rollout"])
        self._has_worked = any("failed" not in t.meta["rollout"] and _has_calls(t) for t in traces)
        if traces and not any(map(_has_calls, traces)):
            if failures:
                what = f"every team fails before it asks the model: {failures.most_common(1)[0][0]}"
                raise InputError(what, where="--team", fix="run it by itself first")
            fix = "its clients must use OPENAI_BASE_URL and OPENAI_API_KEY of the environment, and name no address themselves"
            raise InputError("no call of the team reaches the endpoint", where="--team", fix=fix)
        if len(done) == len(rollouts) and not self._has_worked:
            if not traces:
                what = f"every rollout was lost: {self.stats.lost.most_common(1)[0][0]}"
                raise InputError(what, where="--team", fix="run it by itself first")
            what = f"every team failed: {failures.most_common(1)[0][0]}"
            raise InputError(what, where="--team", fix="show the model first how it is done: --demos STORE")


def _lost_trace(rollout: OwnRollout) -> Trace:
    """A team that gave no answer."""
    about = {"seed": rollout.seed, "answer": "", "failed": "the rollout was lost"}
    return Trace(
        trace_id=rollout.trace_id, task_id=rollout.case, events=[], rewards={"team": 0.0}, metrics={"task_success": 0.0},
        meta={"rollout": about},
    )  # fmt: skip


def _has_calls(trace: Trace) -> bool:
    return any(model_call(event) is not None for event in trace.events)
