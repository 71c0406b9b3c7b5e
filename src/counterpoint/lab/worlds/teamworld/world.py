"""TeamWorld as a world: a configuration with a name, its policies, its optimum, episodes, traces and forks.

Always true: the trace of an episode carries all it takes to run it again (world, version, configuration, seed, policy, edits),
and `fork` runs it again: events before the fork are the same because every draw is keyed, not because they were copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.worlds.teamworld.action import VERIFY, Calls, as_action
from counterpoint.lab.worlds.teamworld.config import FAMILIES, KINDS
from counterpoint.lab.worlds.teamworld.env import TeamEnv
from counterpoint.lab.worlds.teamworld.event_makers import PURPOSES
from counterpoint.lab.worlds.teamworld.observation import Observation
from counterpoint.lab.worlds.teamworld.optimum.bound import optimum
from counterpoint.lab.worlds.teamworld.policies import Policy, play
from counterpoint.lab.worlds.teamworld.setting import Setting, columns, traced
from counterpoint.lab.worlds.teamworld.team_replay import TeamReplay
from counterpoint.lab.worlds.teamworld.traces import agent_names
from counterpoint.lab.worlds.world import Optimum, Runs
from counterpoint.trace import Trace
from counterpoint.trace.replay import Do, Fork

# -- One episode as a game of many agents -----------------------------------------------------------------------------
# After PettingZoo's parallel habit, with an open agent set and two phases in a round.
#
# Always true: `agents` is who must act now: first the orchestrator; then, if it called anybody, those workers; then the
# orchestrator again.
#
# There is no `possible_agents`: who exists is decided while the episode runs. A worker sees its brief, what its tool said, its
# inbox and how many calls it took, never a truth or a flag. The reward is the team's and goes to everybody who acted in the
# round (a Dec-POMDP), so the orchestrator's rewards sum to the return. An action out of turn, or one that is missing, is one
# `InputError`, and nothing changes.
#
# What workers change of their own accord is not in the trace's `actions`, so such a trace cannot be forked; all others can.

ORCHESTRATOR = "orchestrator"
Step = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class WorkerTask:
    """One call that a worker has to answer."""

    item: int
    kind: str
    purpose: str
    brief: int
    """Size of the brief, 0 to 3."""
    tool: int
    """What its tool says: a vote or verdict (0 or 1), finds, a level, or 1 for done."""

    @property
    def is_free(self) -> bool:
        """Whether the worker may say something else than its tool: votes and verdicts."""
        return self.kind == "vote" or self.purpose == PURPOSES[VERIFY]


@dataclass(frozen=True)
class InboxNote:
    """Something in a worker's inbox about a question."""

    item: int
    source: str
    """"broadcast": the votes read to everybody; "memory": the note in the shared memory."""
    no: int
    yes: int


@dataclass(frozen=True)
class WorkerView:
    """All that a worker sees."""

    agent: str
    family: str
    specialty: int
    taken: int
    """Calls it took before."""
    tasks: tuple[WorkerTask, ...]
    inbox: tuple[InboxNote, ...]


class TeamAgents:
    """The agents of one TeamWorld episode."""

    def __init__(self, world: Setting) -> None:
        self._env = TeamEnv(world)
        self._order: Any = None
        self._views: dict[str, WorkerView] = {}

    @property
    def agents(self) -> list[str]:
        """Who must act now; nobody once the team has stopped."""
        if self._env.batch.state.done[0]:
            return []
        return list(self._views) if self._order is not None else [ORCHESTRATOR]

    @property
    def alive(self) -> list[str]:
        """Who is there, the orchestrator first."""
        return self._env.agents

    def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin the episode of this seed."""
        first, info = self._env.reset(seed)
        self._order, self._views = None, {}
        return {ORCHESTRATOR: first}, {ORCHESTRATOR: info}

    def observe(self, agent: str) -> Observation | WorkerView:
        """What an agent sees now: the orchestrator at any time, a worker while it has something to answer."""
        if agent == ORCHESTRATOR:
            return self._env.observe()
        if agent not in self._views:
            raise InputError(f"{agent!r} has nothing to look at now", fix=did_you_mean(agent, [ORCHESTRATOR, *self._views]))
        return self._views[agent]

    def step(self, actions: Mapping[str, Any]) -> Step:
        """Everybody in `agents` acts: the orchestrator gives an action (see `action.as_action`); a worker what it claims.

        None claims what the tool said; a worker with several calls gives a list. Returns observations of those who act next,
        then rewards, terminations, truncations and infos of those who acted.
        """
        self._in_turn(actions)
        if self._order is not None:
            return self._answered(actions)
        order = as_action(self._env.world.config, actions[ORCHESTRATOR])
        views = self._rehearsed(order)
        if not views:
            return self._played(order, [ORCHESTRATOR], None)
        self._order, self._views = order, views
        return dict(views), {ORCHESTRATOR: 0.0}, {ORCHESTRATOR: False}, {ORCHESTRATOR: False}, {ORCHESTRATOR: {}}

    def trace(self) -> Trace:
        """What has happened in whole rounds since `reset`."""
        return self._env.trace()

    def _in_turn(self, actions: Mapping[str, Any]) -> None:
        turn = self.agents
        if not turn:
            raise InputError("the episode is over", fix="call reset(seed)")
        for name in actions:
            if name not in turn:
                known = name in self._env.agents
                raise InputError(
                    f"{name!r} acts out of turn" if known else f"{name!r} is not alive", fix=f"now: {', '.join(turn)}"
                )
        missing = [name for name in turn if name not in actions]
        if missing:
            raise InputError(f"no action of {', '.join(missing)}", fix="one for everybody in `agents`")

    def _rehearsed(self, order: Any) -> dict[str, WorkerView]:
        """What the called workers see: the round is played and taken back."""
        batch = self._env.batch
        heard: list[tuple[int, WorkerTask]] = []
        kinds = np.repeat(np.arange(len(KINDS)), batch.config.counts)

        def listen(calls: Calls, claims: np.ndarray) -> np.ndarray:
            for i in np.flatnonzero(calls.agent != 0).tolist():
                item = int(calls.item[i])
                purpose = PURPOSES[int(calls.purpose[i])]
                heard.append(
                    (int(calls.agent[i]), WorkerTask(item, KINDS[kinds[item]], purpose, int(calls.brief[i]), int(claims[i])))
                )
            return claims

        before = batch.snapshot()
        batch.step(order, listen)
        batch.restore(before)
        s = batch.state
        names = agent_names(s.parent[0], s.ordinal[0], int(s.spawned[0]))
        out = {}
        for slot in dict.fromkeys(slot for slot, _ in heard):
            tasks = tuple(task for at, task in heard if at == slot)
            family, kind, load = FAMILIES[s.family[0, slot]], int(s.type[0, slot]), int(s.taken[0, slot])
            out[names[slot]] = WorkerView(names[slot], family, kind, load, tasks, self._inbox(tasks))
        return out

    def _inbox(self, tasks: tuple[WorkerTask, ...]) -> tuple[InboxNote, ...]:
        """What others said about a worker's questions, where it can hear or read it."""
        votes, notes = self._env.batch.state.kinds.vote, []
        for task in tasks:
            if votes is None or task.kind != "vote":
                continue
            at = task.item - votes.first_item
            if votes.public[0, at]:
                no, yes = votes.tally[0, at].sum(axis=0).tolist()
                notes.append(InboxNote(task.item, "broadcast", no, yes))
            if self._env.world.config.topology == "swarm" and votes.note[0, at] >= 0:
                says = int(votes.note[0, at])
                notes.append(InboxNote(task.item, "memory", 1 - says, says))
        return tuple(notes)

    def _answered(self, actions: Mapping[str, Any]) -> Step:
        """The workers have spoken: the round is played."""
        claims = {}
        for name, view in self._views.items():
            for task, claim in zip(view.tasks, _claims(view, actions[name]), strict=True):
                claims[name, task.item] = claim
        s = self._env.batch.state
        slots = {name: slot for slot, name in enumerate(agent_names(s.parent[0], s.ordinal[0], int(s.spawned[0])))}
        by_call = {(slots[name], item): claim for (name, item), claim in claims.items()}

        def speak(calls: Calls, heard: np.ndarray) -> np.ndarray:
            rows = zip(calls.agent.tolist(), calls.item.tolist(), heard.tolist(), strict=True)
            return np.array([by_call.get((agent, item), claim) for agent, item, claim in rows], np.int64)

        return self._played(self._order, [ORCHESTRATOR, *self._views], speak)

    def _played(self, order: Any, actors: list[str], answers: Any) -> Step:
        view, reward, ended, cut, info = self._env.step(order, answers)
        self._order, self._views = None, {}
        infos: dict[str, dict[str, Any]] = {name: {} for name in actors}
        infos[ORCHESTRATOR] = info
        rewards = dict.fromkeys(actors, reward)
        over, cuts = dict.fromkeys(actors, ended), dict.fromkeys(actors, cut)
        return {ORCHESTRATOR: view}, rewards, over, cuts, infos


def _claims(view: WorkerView, action: Any) -> list[int]:
    """What a worker says to each of its tasks."""
    claims = list(action) if isinstance(action, list | tuple) else [action] * len(view.tasks) if action is None else [action]
    if len(claims) != len(view.tasks):
        raise InputError(
            f"{view.agent} answers {len(claims)} of {len(view.tasks)} calls", fix="a list with one claim, or None, per call"
        )
    out = []
    for task, claim in zip(view.tasks, claims, strict=True):
        claim = task.tool if claim is None else claim
        if isinstance(claim, bool) or not isinstance(claim, int | np.integer):
            raise InputError(f"{view.agent} claims {claim!r}", fix="a whole number, or None for what the tool said")
        if claim != task.tool and not (task.is_free and claim in (0, 1)):
            fix = "0 or 1" if task.is_free else f"None, or {task.tool}: only votes and verdicts are free"
            raise InputError(f"{view.agent} claims {claim} about {task.kind} {task.item}", fix=fix)
        out.append(int(claim))
    return out


@dataclass(frozen=True)
class TeamWorld(Setting):
    """One released configuration of TeamWorld, or one that you make by `replace`."""

    def optimum(self) -> Optimum:
        """Exact, or a certified upper bound; see `optimum/bound.py`."""
        return optimum(self.config)

    def run(self, policy: str | Policy, seeds: Sequence[int] | np.ndarray, *, log: bool = False) -> Runs:
        """One episode per seed, all at once."""
        chosen = self.policy(policy)
        numbers = np.asarray(seeds, np.int64)
        batch = play(self.config, chosen, numbers, log=log)
        make = traced(self, batch, numbers, chosen) if log else None
        table = columns(batch)
        table["calls"] += getattr(chosen, "simulated_calls", 0)  # a search pays for what it tried
        return Runs(seeds=numbers, values=batch.value(), columns=table, make_trace=make)

    def env(self) -> TeamEnv:
        """One episode to step by hand, after Gymnasium's habits."""
        return TeamEnv(self)

    def agents(self) -> TeamAgents:
        """One episode as a game of all its agents, after PettingZoo's parallel habit: workers may say what they like."""
        return TeamAgents(self)

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """What would have happened; the trace must be of this world, and its policy one that `policies()` names."""
        return TeamReplay(self).fork(trace, at, do, seed)

    def forks(self, trace: Trace, forks: Sequence[Fork]) -> Runs:
        """Many forks of one trace at once, not logged: their returns."""
        return TeamReplay(self).forks(trace, forks)

    def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
        """The returns of many forks of one trace."""
        return self.forks(trace, forks).values
