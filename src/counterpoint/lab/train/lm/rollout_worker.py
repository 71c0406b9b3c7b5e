"""A worker of the driver: it plays many teams at once in one process, and asks its parent whatever a model is asked.

Always true: a trace depends on its rollout and on the answers alone. A team gets its answers in the order in which it asked, one
at a time, each when nobody else in the team has anything left to do; so who is faster, and who else plays, changes nothing.
Neither torch nor the store's libraries (duckdb, pyarrow, zstandard) are loaded here. Times are logical.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.frames import Frames
from counterpoint.lab.lm.model import Call, Completion, Model, ModelFailed
from counterpoint.lab.lm.models.fake import invented_seconds
from counterpoint.lab.tasks.task import Instance, TextTask
from counterpoint.lab.team.agent import Team
from counterpoint.lab.team.edits import Edits, keyed_seed
from counterpoint.lab.team.session import DRAWS, Spec, assemble, make_model, play_to_trace
from counterpoint.lab.train.child_process import collect_seldom, end_with_parent
from counterpoint.lab.train.lm.rollout_messages import (
    Begin,
    Failed,
    ModelRequest,
    Play,
    Quiet,
    Ready,
    Report,
    Stop,
    TeamEnd,
    Unreadable,
    decode_orders,
    framed,
    packed_trace,
)
from counterpoint.lab.train.runner import error_lines
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder
from counterpoint.store.disk import write_all
from counterpoint.trace import Trace

ENGINE = "engine"
"""What a spec calls the model that learns."""
_MOST_UNSENT = 16
"""Messages that may wait for a moment in which nothing else is to be done."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One team to be played, once."""

    spec: Spec
    """Task, dials, topology, limits; `spec.model` is `engine` for the model that learns, or a demonstrator such as `fake:0.7`."""
    seed: int = 0
    """Of every draw: samples of one task differ by it. `spec.seed` is the instance's; with 0 its draws are those of the spec."""
    temperature: float = 1.0
    version: str = ""
    """Of the model that learns, as its events tell it in `policy`."""
    trace_id: str = ""
    """What its trace is called; made of the task and both seeds where empty."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """Role to the policy (an adapter's name) that speaks for it; the shared one for roles that are not here."""
    notes: tuple[Mapping[str, Any], ...] = ()
    """Where it parts from the team that it branches off (`edit_note`, without an edit): from there on it draws afresh."""
    keys: tuple[str | None, ...] = ()
    """The keys of that team's events, in their order."""
    constrained: bool = False
    """Whether an answer is held to what is legal, token by token; log-probabilities are then those under that mask."""

    @property
    def name(self) -> str:
        """Its trace's id."""
        return self.trace_id or f"{self.spec.task.rpartition(':')[2]}-{self.spec.topology}-{self.spec.seed}-{self.seed}"

    @property
    def draws(self) -> int:
        """The seed that keys every draw of the team."""
        return keyed_seed(self.spec.seed, f"rollout {self.seed}") if self.seed else self.spec.seed

    @property
    def is_asking(self) -> bool:
        """Whether the engine answers its calls."""
        return self.spec.model.partition(":")[0] == ENGINE


# -- models ----------------------------------------------------------------------------------------------------------------


class _InTurn:
    """A team's model whose answers are given in the order in which they were asked for, one at a time."""

    is_instant = True

    def __init__(self, name: str, version: str) -> None:
        self.name, self.version, self.calls = name, version, 0
        self._waiting: deque[tuple[int, asyncio.Future[Any]]] = deque()
        self._arrived: dict[int, Any] = {}

    def ask(self) -> tuple[int, asyncio.Future[Any]]:
        """The number of a call, and what its answer is awaited by."""
        self.calls += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((self.calls, future))
        return self.calls, future

    def arrive(self, call: int, answer: Any) -> None:
        """An answer is here; the team gets it when its turn comes."""
        self._arrived[call] = answer

    def give(self) -> bool:
        """Give the team its next answer; whether it was here."""
        while self._waiting and self._waiting[0][0] in self._arrived:
            call, future = self._waiting.popleft()
            answer = self._arrived.pop(call)
            if not future.done():  # cancelled with its agent
                future.set_result(answer)
                return True
        return False


class _Asking(_InTurn):
    """The model that learns, as one team sees it: its calls go to the parent."""

    def __init__(self, number: int, rollout: Rollout, chat: Chat, tell: Callable[[Report], None]) -> None:
        super().__init__(rollout.spec.model, rollout.version)
        self._number, self._rollout, self._chat, self._tell = number, rollout, chat, tell

    async def complete(self, call: Call) -> Completion:
        """Ask the parent and wait."""
        chat, role = self._chat, call.view.role if call.view is not None else ""
        prompt, policy = chat.prompt(call.messages), self._rollout.policies.get(role, "")
        starts = [(list(s.ids), s.then) for s in chat.starts(call.starts)] if self._rollout.constrained else []
        number, answered = self.ask()
        self._tell(
            ModelRequest(
                self._number, number, np.array(prompt, np.int32).tobytes(), call.max_tokens, call.temperature, call.seed, policy,
                "\n" in call.stop, starts,
            )
        )  # fmt: skip
        answer = await answered
        if isinstance(answer, Unreadable):
            raise ModelFailed("too long", answer.why, fix="shorten the prompt, or use a model with a longer context")
        said = np.frombuffer(answer.token_ids, np.int32).tolist()
        return Completion(
            text=_until(chat.decode(said), call.stop),
            tokens_in=len(prompt),
            tokens_out=len(said),
            token_ids=tuple(said),
            prompt_ids=tuple(prompt),
            logps=tuple(np.frombuffer(answer.logps, np.float64).tolist()),
            policy=policy or None,
            finish=answer.finish,
            extra={"seconds": invented_seconds(len(said))},
        )

    async def close(self) -> None:
        """Nothing to let go of."""


class _Showing(_InTurn):
    """A demonstrator, whose prompts and answers are told in the tokens of the model that learns from it."""

    def __init__(self, model: Model, chat: Chat) -> None:
        super().__init__(model.name, model.version)
        self._model, self._chat = model, chat

    async def complete(self, call: Call) -> Completion:
        """What the demonstrator says."""
        number, turn = self.ask()
        try:
            done: Completion | ModelFailed = await self._model.complete(call)
        except ModelFailed as failed:
            done = failed
        self.arrive(number, None)
        await turn
        if isinstance(done, ModelFailed):
            raise done
        prompt, said = tuple(self._chat.prompt(call.messages)), tuple(self._chat.answer(done.text))
        extra, tokens_in, tokens_out = {**done.extra, "seconds": invented_seconds(len(said))}, len(prompt), len(said)
        return replace(
            done, prompt_ids=prompt, token_ids=said, logps=None, tokens_in=tokens_in, tokens_out=tokens_out, extra=extra
        )

    async def close(self) -> None:
        """Close the demonstrator."""
        await self._model.close()


def _until(text: str, stops: tuple[str, ...]) -> str:
    """A text up to the first of its stops."""
    for stop in stops:
        text = text.partition(stop)[0]
    return text


# -- playing ---------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _instance(task: str, config: bytes, seed: int) -> tuple[TextTask, Instance]:
    """A task with its dials and one instance of it: samples of one task share them."""
    made = Spec(task=task, config=pickle.loads(config)).make_task()
    return made, made.instance(seed)


@dataclass
class _Playing:
    """A team that is under way."""

    team: Team
    model: _Asking | _Showing
    rollout: Rollout
    sink: MemorySink

    @classmethod
    def of(cls, number: int, rollout: Rollout, chat: Chat, tell: Callable[[Report], None]) -> _Playing:
        """A team that is ready to run."""
        spec = replace(rollout.spec, limits=replace(rollout.spec.limits, temperature=rollout.temperature))
        task, instance = _instance(spec.task, pickle.dumps(dict(spec.config)), spec.seed)
        model: _Asking | _Showing
        if not rollout.is_asking:
            model = _Showing(make_model(spec.model, task, **spec.options), chat)
        elif spec.harness in ("text", "actions"):
            model = _Asking(number, rollout, chat, tell)
        else:
            raise InputError(f"a model that learns cannot use the harness {spec.harness!r}", fix="harness = 'text'")
        sink = MemorySink()
        recorder, edits = Recorder(sink, LogicalClock()), Edits.of(rollout.draws, rollout.notes, rollout.keys)
        team = assemble(spec, task, instance, model, recorder, edits=edits)
        team.is_timeless = True
        return cls(team, model, replace(rollout, spec=spec), sink)

    async def play(self) -> Trace:
        """The team's trace."""
        rollout = self.rollout
        about = {"seed": rollout.seed, "constrained": rollout.constrained, "policies": dict(rollout.policies)}
        meta: dict[str, Any] = {"rollout": about} | ({DRAWS: rollout.draws} if rollout.seed else {})
        meta |= {"edits": [dict(note) for note in rollout.notes]} if rollout.notes else {}
        try:
            return await play_to_trace(self.team, rollout.spec, self.sink, trace_id=rollout.name, meta=meta)
        finally:
            await self.model.close()


class _Selector(selectors.DefaultSelector):
    """A selector that says when the event loop has nothing left to do: then every team waits for somebody else."""

    def __init__(self, between: Callable[[bool], bool]) -> None:
        """`between` is told before each wait whether nothing is left to do, and says whether there is something again."""
        super().__init__()
        self._between = between

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as usual, unless there is something to do again."""
        is_idle = timeout is None or timeout > 0
        return super().select(0 if self._between(is_idle) else timeout)


class Pipe(Protocol):
    """What a worker is connected to the driver by: a pipe, or a socket."""

    def fileno(self) -> int:
        """Its descriptor."""


class _Worker:
    """Teams under way, and the pipe to the parent."""

    def __init__(self, conn: Pipe, chat: Chat) -> None:
        self._fd, self._chat, self._frames = conn.fileno(), chat, Frames()
        self._live: dict[int, _Playing] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent: list[Report] = [Ready()]
        self._over = asyncio.Event()
        self._heard = self._quiet = 0
        """Orders that were read, and how many of them the last word of quiet knew of."""

    async def serve(self) -> None:
        """Play what comes until told to stop."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._fd, self._read)
        await self._over.wait()
        loop.remove_reader(self._fd)

    def between(self, is_idle: bool) -> bool:
        """Between two rounds of the event loop: give answers, and tell the parent what there is to tell."""
        # A team in which a tool is at work has something left to do, though the loop has not.
        if is_idle and sum([p.model.give() for p in self._live.values() if not p.team.toolbox.is_busy]):
            return True
        if is_idle and self._quiet != self._heard and not any(p.team.toolbox.is_busy for p in self._live.values()):
            self._quiet = self._heard
            self._tell(Quiet(self._heard))
        if self._unsent and (is_idle or len(self._unsent) >= _MOST_UNSENT):
            unsent, self._unsent = self._unsent, []
            write_all(self._fd, framed(unsent))
        return False

    def _read(self) -> None:
        data = os.read(self._fd, 1 << 20)
        if not data:
            self._over.set()  # the parent is gone
        for frame in self._frames.add(data):
            for order in decode_orders(frame):
                self._heard += 1
                if isinstance(order, Play):
                    task = asyncio.get_running_loop().create_task(self._play(order))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                elif isinstance(order, Stop):
                    self._over.set()
                elif not isinstance(order, Begin) and order.rollout in self._live:
                    self._live[order.rollout].model.arrive(order.call, order)

    async def _play(self, order: Play) -> None:
        number = order.rollout
        try:
            playing = _Playing.of(number, pickle.loads(order.what), self._chat, self._tell)
            self._live[number] = playing
            trace = await playing.play()
            self._tell(TeamEnd(number, packed_trace(trace), playing.model.calls, time.process_time()))
        except Exception as error:
            self._tell(Failed(number, *error_lines(error)))
        finally:
            self._live.pop(number, None)

    def _tell(self, what: Report) -> None:
        self._unsent.append(what)


def serve(conn: Pipe, chat: str) -> None:
    """The worker's process: play what comes on the pipe, with the tokeniser of this folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(conn.fileno(), False)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        worker = _Worker(conn, Chat.read(chat))
    except Exception as error:
        write_all(conn.fileno(), framed([Failed(-1, *error_lines(error))]))
        return
    gc.freeze()
    collect_seldom()
    with suppress(OSError), asyncio.Runner(loop_factory=lambda: _loop(worker)) as runner:  # OSError: the parent is gone
        runner.run(worker.serve())


def _loop(worker: _Worker) -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(_Selector(worker.between))
