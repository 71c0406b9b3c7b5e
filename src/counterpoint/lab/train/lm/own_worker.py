"""A worker that runs a person's own team, as it is: one case after another, in a process whose environment names our endpoint.

Always true: one team runs at a time; what its code raises costs that one rollout. Nothing of the code is changed: recordings that
it makes are kept here instead of in a store, LangGraph and the Agents SDK are recorded by their own callbacks, and requests to
our endpoint carry the event that they are part of, in a header. Neither torch nor a model is loaded here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import math
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

import counterpoint.registry as registry
from counterpoint.display import counted
from counterpoint.errors import InputError
from counterpoint.lab.lm.frames import Frames
from counterpoint.lab.lm.serving.callers import EVENT_HEADER
from counterpoint.lab.tasks.cases import is_match, without_answer
from counterpoint.lab.team.job import Job, takes, takes_text
from counterpoint.lab.train.child_process import end_with_parent
from counterpoint.lab.train.lm.own_numbers import CallNumbers
from counterpoint.lab.train.lm.own_rollout import OwnRollout
from counterpoint.lab.train.lm.rollout_messages import (
    Begin,
    Failed,
    Play,
    Ready,
    Report,
    Stop,
    TeamEnd,
    decode_orders,
    framed,
    packed_trace,
)
from counterpoint.lab.train.runner import error_lines
from counterpoint.recorder.memory_run import Captured
from counterpoint.recorder.problems import error_text
from counterpoint.recorder.recording import Recording, record
from counterpoint.recorder.replaying import playing
from counterpoint.store.disk import write_all
from counterpoint.trace import Trace

_FAILED_REWARD = 0.0
"""What a team earns whose code raises."""
_QUIET = {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}
"""Nothing leaves this machine."""
_FRAMEWORKS = {"langchain_core": ("langchain", "langgraph"), "agents": ("agents",)}
"""Module to the words in a team's source that say that it is used."""
_CLIENTS = ("httpx", "httpx2")
_FORMS = {"team": "def team(question: str), or def team(job)", "reward": "def score(answer, case)"}


def serve_teams(conn: Any, settings: bytes) -> None:
    """The worker's process: run what comes on the pipe until told to stop."""
    with contextlib.suppress(OSError):
        os.setsid()  # so that all that the code starts can be ended with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(conn.fileno(), False)
    threading.Thread(target=end_with_parent, daemon=True).start()
    with contextlib.suppress(OSError):  # the parent is gone
        _Worker(conn.fileno(), pickle.loads(settings)).serve()


class _Worker:
    """The team's code, loaded once, and the pipe to the parent."""

    def __init__(self, fd: int, settings: Mapping[str, Any]) -> None:
        self._fd, self._settings, self._frames = fd, settings, Frames()
        self._team = self._score = None
        self._watch, self._runner = _Watch(), asyncio.Runner()

    def serve(self) -> None:
        """Order after order."""
        while data := os.read(self._fd, 1 << 20):
            for frame in self._frames.add(data):
                for order in decode_orders(frame):
                    if isinstance(order, Stop):
                        return
                    if isinstance(order, Begin):
                        self._begin(order)
                    elif isinstance(order, Play):
                        self._play(order)

    def _tell(self, what: Report) -> None:
        write_all(self._fd, framed([what]))

    def _begin(self, order: Begin) -> None:
        """Load the code, with the endpoint in the environment from before its first line."""
        url, key = order.url, order.key
        os.environ.update({"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "OPENAI_API_KEY": key, **_QUIET})
        try:
            with contextlib.redirect_stdout(sys.stderr):
                sys.path[:] = [*dict.fromkeys([*self._settings["path"], *sys.path])]
                self._team = registry.get("team", self._settings["team"])
                self._score = registry.get("scorer", self._settings["reward"]) if self._settings["reward"] else None
                self._check()
                self._watch.attach(self._settings["team"], url)
        except BaseException as error:
            self._tell(Failed(-1, *error_lines(error)))
            return
        self._tell(Ready())

    def _check(self) -> None:
        """Raise where the code can be asked nothing."""
        for function, count, name in ((self._team, 1, "team"), (self._score, 2, "reward")):
            where = self._settings[name]
            if function is not None and not callable(function):
                raise InputError(f"is a {type(function).__name__}, not a function", where=where)
            if function is not None and not takes(function, count):
                raise InputError(f"cannot be called with {counted(count, 'argument')}", where=where, fix=_FORMS[name])

    def _play(self, order: Play) -> None:
        rollout: OwnRollout = pickle.loads(order.what)
        begin = time.process_time()
        try:
            trace = copy_context().run(self._run, order.rollout, rollout)
        except BaseException as error:  # a bug of ours, or of what the code did to this process
            self._tell(Failed(order.rollout, *error_lines(error)))
            return
        self._tell(TeamEnd(order.rollout, packed_trace(trace), 0, time.process_time() - begin))

    def _run(self, number: int, rollout: OwnRollout) -> Trace:
        """The trace of one case, with what it earned."""
        captured = Captured(rollout.trace_id, rollout.case)
        playing.set(captured)
        rec = record(task=rollout.case)
        failed, answer = None, ""
        with contextlib.redirect_stdout(sys.stderr):
            numbers = self._watch.begin(captured, rec, number)
            try:
                with rec:
                    answer = self._answer(rollout, rec)
            except Exception as error:
                failed = _where(error)
            except SystemExit as error:
                failed = f"SystemExit: {error.code}" if error.code else None
            finally:
                self._watch.end()
            recorded = captured.trace()
            reward = _FAILED_REWARD if failed else self._reward(answer, rollout, recorded.rewards.get("team"))
        if isinstance(reward, str):
            failed, reward = reward, _FAILED_REWARD
        about = {"seed": rollout.seed, "answer": answer[:2000]} | ({} if failed is None else {"failed": failed})
        return replace(
            numbers.marked(recorded), rewards={**recorded.rewards, "team": reward},
            metrics={**(recorded.metrics or {}), "task_success": float(reward == 1.0)}, meta={**recorded.meta, "rollout": about},
        )  # fmt: skip

    def _answer(self, rollout: OwnRollout, rec: Recording) -> str:
        line = {**without_answer(rollout.line), "id": rollout.case}
        question, how = str(line["question"]), str(line.get("answer_format", ""))
        job = Job(
            question=question, answer_format=how, parts={"all": question}, tools={}, about={}, recording=rec, case=line,
        )  # fmt: skip
        team: Any = self._team
        value = team(job.question if takes_text(team) else job)
        if inspect.isawaitable(value):
            value = self._awaited(value)
        if value is None:
            raise InputError("it returned None, which is no answer")
        return str(value)

    def _awaited(self, value: Any) -> Any:
        """What a task gives; all teams share one event loop, as in a service, because clients stay bound to theirs."""
        try:
            return self._runner.run(_await(value), context=copy_context())
        finally:
            self._runner.run(_cancel_rest())

    def _reward(self, answer: str, rollout: OwnRollout, told: float | None) -> float | str:
        """What it earned, or why nobody can say."""
        if self._score is None:
            return float(is_match(answer, rollout.line)) if told is None else float(told)
        name = self._settings["reward"]
        try:
            value = self._score(answer, {**rollout.line, "id": rollout.case})
            if inspect.isawaitable(value):
                value = self._awaited(value)
            value = float(value)
        except Exception as error:
            return f"the scorer {name}: {_where(error)}"
        return value if math.isfinite(value) else f"the scorer {name} gave {value}, which is no number"


async def _await(value: Any) -> Any:
    return await value


async def _cancel_rest() -> None:
    """What a team has left running ends with it."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def _where(error: BaseException) -> str:
    """An error in one line, and the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and f"{os.sep}counterpoint{os.sep}" not in f.filename]
    last = (own or frames)[-1]
    return f"{(error_text(error) or '').partition(chr(10))[0][:160]} at {os.path.basename(last.filename)}:{last.lineno}"


# -- watching what the code does -------------------------------------------------------------------------------------------------


class _Watch:
    """What is hung into libraries that the team uses, once in this process."""

    def __init__(self) -> None:
        self._numbers: CallNumbers | None = None
        self._handler: ContextVar[Any] | None = None
        self._address: tuple[str | None, int | None] = (None, None)
        self._rollout = -1
        self._patched: set[str] = set()

    def attach(self, team: str, url: str) -> None:
        """The code is loaded: hang ourselves into what it uses."""
        parts = urlsplit(url)
        self._address = parts.hostname, parts.port
        place = team.rpartition(":")[0]
        source = Path(place).read_text(encoding="utf-8", errors="replace") if place.endswith(".py") else ""
        for module, words in _FRAMEWORKS.items():
            if any(word in source for word in words):
                with contextlib.suppress(ImportError):
                    importlib.import_module(module)

    def begin(self, captured: Captured, rec: Recording, rollout: int) -> CallNumbers:
        """A team begins."""
        self._numbers, self._rollout = CallNumbers(captured), rollout
        captured.on_own = self._detach
        self._frameworks(rec)
        for name in _CLIENTS:
            if name in sys.modules and name not in self._patched:
                self._patched.add(name)
                self._patch(sys.modules[name])
        return self._numbers

    def end(self) -> None:
        """It has ended: what it left running is none of the next one's."""
        self._numbers = None
        self._detach()

    def _frameworks(self, rec: Recording) -> None:
        if "langchain_core" in sys.modules:
            from counterpoint.recorder.adapters.langgraph import handler

            if self._handler is None:
                from langchain_core.tracers.context import register_configure_hook

                self._handler = ContextVar("counterpoint_handler", default=None)
                register_configure_hook(self._handler, inheritable=True)
            self._handler.set(handler(rec))
        if "agents" in sys.modules and hasattr(sys.modules["agents"], "set_trace_processors"):
            from agents import set_default_openai_api, set_trace_processors

            from counterpoint.recorder.adapters.openai_agents import processor

            set_default_openai_api("chat_completions")
            set_trace_processors([processor(rec)])

    def _detach(self) -> None:
        """The code records itself: what it hangs in by itself is enough."""
        if self._handler is not None:
            self._handler.set(None)
        if "agents" in sys.modules and hasattr(sys.modules["agents"], "set_trace_processors"):
            from agents import set_trace_processors

            set_trace_processors([])

    def _patch(self, library: Any) -> None:
        """Requests to our endpoint say which event they are part of."""
        sync, later = library.Client.send, library.AsyncClient.send

        @functools.wraps(sync)
        def send(client: Any, request: Any, **options: Any) -> Any:
            self._mark(request)
            return sync(client, request, **options)

        @functools.wraps(later)
        async def send_later(client: Any, request: Any, **options: Any) -> Any:
            self._mark(request)
            return await later(client, request, **options)

        library.Client.send, library.AsyncClient.send = send, send_later

    def _mark(self, request: Any) -> None:
        numbers = self._numbers
        if numbers is None or (request.url.host, request.url.port) != self._address:
            return
        with contextlib.suppress(Exception):  # a request of a kind that we do not know goes out as it is
            asked = msgspec.json.decode(request.content)
            number = numbers.number(asked) if isinstance(asked, dict) else None
            if number is not None:
                request.headers[EVENT_HEADER] = f"{self._rollout}.{number}"
