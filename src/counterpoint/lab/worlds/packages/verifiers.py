"""verifiers: the tasks of a module, the agents that its environment declares, and its own rewards.

`verifiers:MODULE` is the id of a task set, as its command line takes it: a module that Python finds. What may follow: `@ENV`, an
environment of the package or an installed one that is paired with it (`@best_of_n`), and settings of the task set as
`?KEY=VALUE&KEY=VALUE`. A seed is a place in the task set, modulo its length (of an endless one, modulo 1,000).

The environment's own `run` and `finalize` play the episode (verifiers 0.4.0, `Env`): what it asks an agent, by `run` or by an
`interaction`, is that agent's turn here, and the task's own `@reward` and `@metric` methods score each trace. Departures: a model
call is our agent's answer, so that no harness runs, no endpoint is opened and no token is recorded. A task that needs a runtime,
tools of a server, or set-up in one is refused with the reason. An episode cannot be copied in the middle; it forks by replay.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import itertools
import json
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

from counterpoint.errors import InputError, NotIdentified, Refused
from counterpoint.lab.worlds.packages import Episode, missing

TRUSTED = "verifiers.v1."
_ENDLESS = 1_000
_LOCK = threading.RLock()
_ROUNDS = 10
"""Rounds of the event loop in which agents that are asked at once show up together."""


@dataclass
class _Ask:
    """What an agent is asked, and where its answer goes."""

    agent: str
    text: str
    answer: asyncio.Future[str]


class Rollout(Episode):
    """One task, played in an environment."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.name = f"verifiers:{code}"
        vf, version = _package()
        self._vf, self.version = vf, f"{version}/1"
        self._env, self._tasks = _loaded(code)
        self.agents = tuple(vf.configs.agent.agent_config_fields(self._env.config))
        self._end: weakref.finalize | None = None
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Begin the task of this seed."""
        self.illegal = 0
        task = self._tasks[seed % len(self._tasks)]
        _check_task(task, self.name)
        if self._end is not None:
            self._end()
        self._stage = _Stage(self._vf, self._env, task, self.agents, self.name)
        self._end = weakref.finalize(self, _loop().call_soon_threadsafe, self._stage.cancel)
        _run(self._stage.begin())

    def turn(self) -> tuple[str, ...]:
        """The agents that the environment waits for."""
        return tuple(dict.fromkeys(ask.agent for ask in self._stage.asks))

    def observe(self, agent: str) -> str:
        """What it asks this agent."""
        return next((ask.text for ask in self._stage.asks if ask.agent == agent), "") or "(nothing yet)"

    def legal(self, agent: str) -> None:
        """Any text is an answer."""

    def take(self, actions: Mapping[str, str], words: Mapping[str, str]) -> None:
        """Give the answers to the environment, and let it run until it asks again or ends."""
        _run(self._stage.answer(dict(actions)))

    @property
    def rewards(self) -> dict[str, float]:
        """The mean reward of each agent's traces."""
        paid: dict[str, list[float]] = {agent: [] for agent in self.agents}
        for trace in self._stage.traces:
            paid[trace.agent.name].append(float(trace.reward))
        return {agent: sum(some) / len(some) if some else 0.0 for agent, some in paid.items()}

    @property
    def is_solved(self) -> bool:
        """Every reward that was given is whole."""
        given = [r for trace in self._stage.traces for r in trace.rewards.values() if r is not None]
        return not self.turn() and bool(given) and all(reward.value >= reward.weight > 0 for reward in given)

    def measures(self) -> dict[str, float]:
        """The mean of each reward and metric over traces, traces, and whether the environment raised."""
        values: dict[str, list[float]] = {}
        for trace in self._stage.traces:
            for name, reward in trace.rewards.items():
                values.setdefault(name, []).append(0.0 if reward is None else float(reward.value))
            for name, metric in trace.metrics.items():
                values.setdefault(name, []).append(float(metric or 0.0))
        means = {name: sum(some) / len(some) for name, some in sorted(values.items())}
        return means | {"traces": float(len(self._stage.traces)), "failed": float(bool(self._stage.failure))}

    def copy(self) -> Rollout:
        """A running environment is no value."""
        raise NotIdentified(
            "an environment that runs cannot be copied", "replay it from its seed and its actions", where=self.name
        )


class _Stage:
    """An environment at play in the event loop; it does not know the episode, which may be dropped before the end."""

    def __init__(self, vf: Any, env: Any, task: Any, agents: tuple[str, ...], name: str) -> None:
        self.vf, self.env, self.task, self.agents, self.name = vf, env, task, agents, name
        self.asks: list[_Ask] = []
        self.traces: list[Any] = []
        self.failure = ""

    def cancel(self) -> None:
        """Stop where it is."""
        self._playing.cancel()

    async def begin(self) -> None:
        self._wake = asyncio.Event()
        self._playing = asyncio.ensure_future(self._play())
        self._playing.add_done_callback(lambda _: self._wake.set())
        await self._settle()

    async def answer(self, actions: dict[str, str]) -> None:
        for agent, text in actions.items():
            ask = next(ask for ask in self.asks if ask.agent == agent)
            self.asks.remove(ask)
            ask.answer.set_result(text)
        self._wake.clear()
        await self._settle()

    async def _settle(self) -> None:
        """Wait until somebody is asked or all is over; who is asked at the same time is asked in few rounds."""
        while not self.asks and not self._playing.done():
            await self._wake.wait()
            self._wake.clear()
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)

    async def _play(self) -> None:
        vf = self.vf
        try:
            seats = _Seats({name: _Seat(self, name) for name in self.agents})
            await self.env.run(self.task, seats)
            episode = vf.Episode(
                task=vf.TraceTask(type=type(self.task).__name__, data=self.task.data), traces=self.traces, ok=True
            )
            await self.env.finalize(self.task, episode)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"

    async def ask(self, agent: str, text: str) -> str:
        """Ask our agent."""
        ask = _Ask(agent, text, asyncio.get_running_loop().create_future())
        self.asks.append(ask)
        self._wake.set()
        return await ask.answer

    def trace_for(self, agent: str, task: Any) -> Any:
        """An empty trace of the package for what an agent does."""
        vf = self.vf
        about = vf.AgentInfo(config=vf.AgentConfig(), name=agent)
        told = vf.TraceTask(type=type(task).__name__, data=task.data)
        kind: Any = type(task)
        return vf.Trace(task=told, agent=about, state=_state_type(kind)())

    async def score(self, task: Any, trace: Any) -> None:
        """The task's own judgement of a trace, which then is one of the episode."""
        trace.is_completed = trace.ok = True
        await task.score(trace, None)
        self.traces.append(trace)


class _Seats:
    """What an environment's `run` takes as `agents`."""

    def __init__(self, seats: dict[str, _Seat]) -> None:
        self._seats = seats

    def __getattr__(self, name: str) -> _Seat:
        try:
            return self.__dict__["_seats"][name]
        except KeyError:
            raise AttributeError(name) from None


class _Seat:
    """An agent of ours, as an environment sees it."""

    def __init__(self, stage: _Stage, name: str) -> None:
        self._stage, self.name, self.trainable = stage, name, True

    async def run(self, task: Any, **options: Any) -> Any:
        """One answer to a task; its trace, scored."""
        async with self.interaction(task) as talk:
            await talk.turn()
        return talk.trace

    @contextlib.asynccontextmanager
    async def interaction(self, task: Any, **options: Any) -> AsyncIterator[_Talk]:
        """A talk, turn by turn, whose trace is scored at its end."""
        _check_task(task, self._stage.name)
        talk = _Talk(self._stage, self.name, task)
        yield talk
        await self._stage.score(task, talk.trace)


class _Talk:
    """What `Agent.interaction` gives: one trace, and turns in it."""

    def __init__(self, stage: _Stage, agent: str, task: Any) -> None:
        self._stage, self._agent, self._task = stage, agent, task
        self.trace = stage.trace_for(agent, task)
        self._opening = [*_opening(stage.vf, task.data)]

    async def turn(self, message: Any = None) -> Any:
        """Our agent's answer to what was said, as a segment."""
        vf = self._stage.vf
        said = [vf.UserMessage(content=message)] if isinstance(message, str) else list(message or ())
        for one in (*self._opening, *said):
            self._add(one, sampled=False)
        self._opening = []
        shown = "\n\n".join(f"{node.message.role}: {_text(node.message)}" for node in self.trace.nodes)
        answer = vf.AssistantMessage(content=await self._stage.ask(self._agent, shown))
        self._add(answer, sampled=True)
        return vf.Segment(messages=[answer])

    def _add(self, message: Any, *, sampled: bool) -> None:
        nodes = self.trace.nodes
        parent = len(nodes) - 1 if nodes else None
        nodes.append(self._stage.vf.graph.MessageNode(parent=parent, message=message, sampled=sampled, timestamp=0.0))


def _opening(vf: Any, data: Any) -> list[Any]:
    """What a task says first."""
    out = [vf.SystemMessage(content=data.system_prompt)] if data.system_prompt else []
    if isinstance(data.prompt, str):
        return [*out, vf.UserMessage(content=data.prompt)]
    return [*out, *(data.prompt or ())]


def _text(message: Any) -> str:
    content = message.content
    return content if isinstance(content, str) else json.dumps(content, default=str)


# -- the package ---------------------------------------------------------------------------------------------------------


@cache
def _package() -> tuple[Any, str]:
    from importlib.metadata import version

    try:
        import verifiers.v1 as vf
        import verifiers.v1.configs.agent
        import verifiers.v1.graph
        import verifiers.v1.utils.generic
        import verifiers.v1.utils.loaders  # noqa: F401
    except ImportError as error:
        raise missing("verifiers", error) from None
    return vf, version("verifiers")


@cache
def _loaded(code: str) -> tuple[Any, tuple[Any, ...]]:
    """The environment and the tasks of a code."""
    vf, _ = _package()
    place, _, settings = code.partition("?")
    module, _, env = place.partition("@")
    options = {key: _value(text) for key, text in parse_qsl(settings, keep_blank_values=True)}
    try:
        config = vf.utils.loaders.resolve_env_config({"id": env, "taskset": {"id": module, **options}})
        made = vf.utils.loaders.load_environment(config)
        tasks = tuple(itertools.islice(made.taskset, None if made.taskset.bounded else _ENDLESS))
    except Exception as error:
        what = f"the package cannot load it: {type(error).__name__}: {error!s:.300}"
        raise InputError(
            what, where=f"verifiers:{code}", fix="MODULE, MODULE@ENV or MODULE?SETTING=VALUE of an installed module"
        ) from error
    if not tasks:
        raise InputError("the task set is empty", where=f"verifiers:{code}", fix="other settings after a ?")
    return made, tasks


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _check_task(task: Any, name: str) -> None:
    """Refuse a task that an answer alone does not play."""
    kind: Any = type(task)
    needs = [*_needs(kind), *(["a container"] if task.data.image else [])]
    if needs:
        raise Refused(f"its tasks need {', '.join(needs)}", where=name, fix="a task set whose rewards read the trace alone")


@cache
def _needs(kind: Any) -> tuple[str, ...]:
    """What tasks of a class need beside answers."""
    vf, _ = _package()
    hooks = ("setup", "finalize", "stage_verifier")
    needs = ["a container"] if getattr(kind, "NEEDS_CONTAINER", False) else []
    needs += [f"its own `{hook}` in a runtime" for hook in hooks if getattr(kind, hook) is not getattr(vf.Task, hook)]
    for name, does in inspect.getmembers(kind, callable):
        if getattr(does, "reward", False) or getattr(does, "metric", False):
            runtime = inspect.signature(does).parameters.get("runtime")
            needs += [f"a runtime for {name}"] if runtime is not None and runtime.default is inspect.Parameter.empty else []
    return tuple(needs)


@cache
def _state_type(kind: Any) -> Any:
    vf, _ = _package()
    return vf.utils.generic.concrete_type(kind, vf.State, origin=vf.Task) or vf.State


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The one event loop of all episodes, which runs only while one of them takes a step."""
    loop = asyncio.new_event_loop()
    atexit.register(_close, loop)
    return loop


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Nothing is left waiting when Python ends."""
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def _run(does: Coroutine[Any, Any, None]) -> None:
    """Run it to its end here; a team of agents calls this from inside a loop of its own, which waits."""
    with _LOCK:
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            _loop().run_until_complete(does)
        finally:
            asyncio._set_running_loop(outer)


def verifiers(name: str) -> Episode:
    """A task of a module, such as `my_tasks` or `my_tasks@best_of_n`."""
    return Rollout(name)
