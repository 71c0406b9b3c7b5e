"""Changes of a recorded live team, and their trials: forks of its recording, and the whole team run again with another habit.

Always true: a change at one event is a fork, in which only what changed is asked anew; a habit (another width, topology, merge
rule, model of a role) is the team run on fresh questions of the task, with and without it on the same draws. `value` is what is
gained: the team's reward unless somebody prices it. Once `budget_tokens` are spent on a model, trials end.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from counterpoint.credits.advice import Change
from counterpoint.credits.fork_price import CountingReplay
from counterpoint.credits.forks import fork_seeds
from counterpoint.display import counted
from counterpoint.lab.lm.model import Call, Completion, Model
from counterpoint.lab.tasks import grammar
from counterpoint.lab.team.edits import PASSED, Edits
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import DRAWS, Spec, assemble, drawing_seed, make_model, play_to_trace
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder, WallClock
from counterpoint.trace import Event, Trace
from counterpoint.trace.replay import Delete, Do, Force, Fork, Insert, Substitute

_EACH = 4
"""How many events of one kind are tried."""
_AT_ONCE = 8
_TOPOLOGIES = ("centralized", "harness", "swarm", "hierarchical", "debate", "planner_executor_critic")


def team_reward_of(trace: Trace) -> float:
    """The reward as it is."""
    return float(trace.rewards["team"])


class Habits:
    """A model whose answers follow a habit: a merge rule, a stop at the first merge, another model for some roles."""

    def __init__(self, model: Model, habit: Mapping[str, Any], by_role: Mapping[str, Model]) -> None:
        self._model, self._habit, self._by_role = model, habit, by_role
        self.name = model.name
        self.version = f"{model.version}+{','.join(f'{k}={v}' for k, v in habit.items())}"
        self.is_instant = getattr(model, "is_instant", False)

    async def complete(self, call: Call) -> Completion:
        """The answer, changed where the habit says so."""
        role = call.view.role if call.view is not None else ""
        done = await self._by_role.get(role, self._model).complete(call)
        text = self._said(done.text, call)
        return done if text == done.text else dataclasses.replace(done, text=text, start_logps=None, logps=None, token_ids=None)

    def _said(self, text: str, call: Call) -> str:
        choices = call.view.choices if call.view is not None else ()
        rule, fixed = self._habit.get("merge"), [c for c in choices if c.verb == "stop" and c.text == ""]
        if rule is not None and text.startswith("AGGREGATE"):
            legal = [c for c in choices if c.verb == "aggregate" and c.target == rule]
            return grammar.label(legal[0]) if legal else text
        return grammar.label(fixed[0]) if self._habit.get("stop") == "first merge" and fixed else text

    async def close(self) -> None:
        """Close every model."""
        for model in (self._model, *self._by_role.values()):
            await model.close()


class KeptOpen:
    """Somebody else's model, which many runs may use and none of them closes."""

    def __init__(self, model: Model) -> None:
        self._model, self.name, self.version = model, model.name, model.version
        self.is_instant = getattr(model, "is_instant", False)

    async def complete(self, call: Call) -> Completion:
        """Ask it."""
        return await self._model.complete(call)

    async def close(self) -> None:
        """Not ours to close."""


class LiveTrials:
    """Trials on one recording of `counterpoint play`."""

    def __init__(
        self,
        trace: Trace,
        *,
        make: Callable[[], Model] | None = None,
        allow: Collection[str] = (),
        models: Mapping[str, str] | None = None,
        say: Sequence[str] = (),
        kinds: Collection[str] = (),
        value: Callable[[Trace], float] = team_reward_of,
        budget_tokens: int | None = None,
        seed: int = 0,
    ) -> None:
        """`make` gives the model that is asked anew (default: the one that the trace names, where that reaches nothing outside);
        `models` names another model to try for a role, `say` are messages to try telling the lead."""
        self.trace, self.spec, self._value = trace, Spec.of(trace.meta["team"]), value
        self.spec.check_consent(allow, where=trace.trace_id, with_model=False, is_fork=True)
        self._make, self._allow, self._budget = make, frozenset(allow), budget_tokens
        self.spent, self._seeds = 0, fork_seeds(seed, trace, 1024)
        self._plain: dict[tuple[str, int], float] = {}
        found = [*_habits(self.spec, trace, models or {}), *_edits(trace), *_said(trace, say)]
        self.changes: Sequence[Change] = [c for c in found if not kinds or c.kind in kinds]

    def gains(self, change: Change, start: int, count: int) -> list[float]:
        """Pairs of runs on the same fresh draws."""
        trials = [k % len(self._seeds) for k in range(start, start + count)]
        if self._budget is not None and self.spent >= self._budget:
            return []
        at = "" if change.is_habit else change.at
        missing = [k for k in trials if (at, k) not in self._plain]
        plain = self._runs(None, at, [self._seeds[k] for k in missing])
        self._plain |= {(at, k): self._value(t) for k, t in zip(missing, plain, strict=True)}
        done = self._runs(change, at, [self._seeds[k] for k in trials])
        return [self._value(t) - self._plain[at, k] for t, k in zip(done, trials, strict=True)]

    def tokens(self, change: Change) -> int:
        """For a habit a whole run; at an event what may have to be asked again."""
        if change.is_habit:
            return sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in self.trace.events)
        counting = CountingReplay(asks_model=True)
        counting.fork(self.trace, change.at)
        return counting.tokens

    def apply(self, change: Change) -> Trace:
        """The recorded run with the change: its fork, or the team run again with the habit on the recorded draws."""
        if change.is_habit:
            return self.play(change, self.spec.seed, drawing_seed(self.trace.meta, self.spec))
        return self._replay().fork(self.trace, change.at, change.do)

    def play(self, change: Change | None, seed: int, draws: int | None = None) -> Trace:
        """The team, with a habit or as it is, on the question of any seed."""
        return asyncio.run(self._played(replace(self.spec, seed=seed), change, seed if draws is None else draws))

    def held_out(self, change: Change | None, seeds: Sequence[int]) -> np.ndarray:
        """What other questions of the task bring, with a habit or without."""
        return np.array([self._value(self.play(change, s)) for s in seeds])

    # -- runs ------------------------------------------------------------------------------------------------------------

    def _runs(self, change: Change | None, at: str, seeds: Sequence[int]) -> list[Trace]:
        if not seeds:
            return []
        if at:
            do: Do | None = change.do if change is not None else None
            made = self._replay().forks(self.trace, [Fork(at, _drawn(do, s), s) for s in seeds])
        else:
            made = asyncio.run(self._many(change, seeds))
        for trace in made:
            again = [e for e in trace.events if not at or (e.extra or {}).get("badge") in ("re-run", "simulated")]
            self.spent += sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in again)
        return made

    async def _many(self, change: Change | None, seeds: Sequence[int]) -> list[Trace]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(draws: int) -> Trace:
            async with gate:
                return await self._played(replace(self.spec, seed=draws % (1 << 31)), change, draws)

        return await asyncio.gather(*(one(s) for s in seeds))

    async def _played(self, spec: Spec, change: Change | None, draws: int) -> Trace:
        habit = dict(change.habit) if change is not None else {}
        spec = _with_habit(spec, habit)
        task, sink = spec.make_task(), MemorySink()
        model: Model = self._make() if self._make is not None else make_model(spec.model, task, **spec.options)
        said = {name: value for name, value in habit.items() if name in ("merge", "stop", "model")}
        if said:
            others = {role: make_model(name, task) for role, name in said.get("model", {}).items()}
            model = Habits(model, said, others)
        clock = LogicalClock() if getattr(model, "is_instant", False) else WallClock()
        team = assemble(
            spec, task, task.instance(spec.seed), model, Recorder(sink, clock), edits=Edits(draws), consent=self._allow
        )
        tag = "~".join(f"{k}-{v}" for k, v in habit.items()).replace(" ", "-") or "again"
        try:
            return await play_to_trace(team, spec, sink, trace_id=f"{self.trace.trace_id}~{tag}", meta={DRAWS: draws})
        finally:
            await model.close()

    def _replay(self) -> LiveReplay:
        return LiveReplay(model=self._make() if self._make is not None else None, allow=tuple(self._allow))


def _drawn(do: Do | None, seed: int) -> Do | None:
    """Each trial of a redraw is another draw."""
    return replace(do, draw=1 + seed % 1_000_000) if isinstance(do, Substitute) and do.value is None else do


def _with_habit(spec: Spec, habit: Mapping[str, Any]) -> Spec:
    limits = {name: habit[name] for name in ("width", "rounds") if name in habit}
    out = replace(spec, limits=replace(spec.limits, **limits)) if limits else spec
    return replace(out, topology=habit["topology"]) if "topology" in habit else out


# -- candidates --------------------------------------------------------------------------------------------------------------


def _habits(spec: Spec, trace: Trace, models: Mapping[str, str]) -> list[Change]:
    out, width, rounds = [], spec.limits.width, spec.limits.rounds
    spawned = sum(e.type == "spawn" for e in trace.events)
    if spawned:
        for other in sorted({1, max(1, width // 2), 2 * width} - {width}):
            out.append(Change("width", f"at most {counted(other, 'worker')} at once rather than {width}", habit={"width": other}))
    if spec.topology in ("debate", "planner_executor_critic"):
        for other in (rounds - 1, rounds + 1):
            if other >= (1 if spec.topology == "debate" else 0):
                out.append(Change("rounds", f"{other} rounds rather than {rounds}", habit={"rounds": other}))
    merges = [str((e.extra or {}).get("rule")) for e in trace.events if e.type == "aggregate"]
    if merges and spec.harness == "text":
        rules = spec.make_task().rules
        out += [Change("merge", f"always merge by {rule}", habit={"merge": rule}) for rule in rules if set(merges) != {rule}]
        if len(merges) > 1:
            out.append(Change("stop", "stop at the first merge", habit={"stop": "first merge"}))
    for shape in _TOPOLOGIES:
        if shape != spec.topology and ":" not in spec.topology:
            out.append(Change("topology", f"{shape} rather than {spec.topology}", habit={"topology": shape}))
    for role, name in models.items():
        out.append(Change("model", f"{name} for every {role}", habit={"model": {role: name}}))
    return out


def _edits(trace: Trace) -> list[Change]:
    out = []
    for kind in ("return", "message"):
        said = [e for e in trace.events if e.type == kind and e.agent != "user" and e.key is not None]
        for e in _spread(said):
            out.append(Change("message", f"drop {e.id} ({e.agent} to {e.to or 'its lead'})", e.id, do=Delete()))
            if kind == "return":
                out.append(Change("message", f"have {e.agent} write {e.id} again", e.id, do=Substitute()))
    decided = [e for e in trace.events if e.type == "orchestrator_decision" and e.key and PASSED not in e.key and e.options]
    for name, says, picked, do in _decided(decided):
        out += [Change(name, f"{says} at {e.id} (turn {e.turn})", e.id, do=do) for e in _spread(picked)]
    return out


def _decided(events: Sequence[Event]) -> list[tuple[str, str, list[Event], Do]]:
    def offered(event: Event, start: str) -> bool:
        return any(option.startswith(start) for option in event.options or ())

    return [
        ("spawn", "do not spawn", [e for e in events if e.decision == "spawn"], Force({"noop": True})),
        ("spawn", "spawn one more", [e for e in events if e.decision != "spawn" and offered(e, "SPAWN")], Force({"spawn": 1})),
        ("stop", "stop", [e for e in events if e.decision != "stop" and "STOP" in (e.options or ())], Force({"act": "STOP"})),
        ("stop", "go on", [e for e in events if e.decision == "stop" and offered(e, "NOOP")], Force({"noop": True})),
    ]


def _said(trace: Trace, say: Sequence[str]) -> list[Change]:
    """Messages that somebody wants to try, told to the lead before its first decision."""
    first = next((e for e in trace.events if e.key == "user|question"), None)
    if first is None:
        return []
    return [Change("message", f"tell the lead: {text}", first.id, do=Insert(text, {"to": "lead"})) for text in say]


def _spread(events: Sequence[Event]) -> list[Event]:
    if len(events) <= _EACH:
        return list(events)
    return [events[round(i * (len(events) - 1) / (_EACH - 1))] for i in range(_EACH)]
