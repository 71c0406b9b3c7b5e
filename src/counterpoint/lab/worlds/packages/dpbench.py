"""DPBench: dining philosophers, all at once or one by one, with or without words to neighbours.

Names are the package's own codes of an experiment: `sim_n5_nocomm`, `seq_n7_comm`, with what may follow:

    _names   every philosopher has a name drawn from the seed, which says nothing of its seat (the package's are P0, P1, ...)
    _mem3    the package's memory window: the last three states of the whole table are shown
    _step    each is told the step, which the package does not tell
    _t50     steps of an episode, 30 where it is not said (the published protocol)

The state, its steps, what is read out of a text, deadlock, throughput, fairness and starvation are the package's functions
(dpbench 0.2.1: `dpbench.core`, `dpbench.agents.philosopher.parse_action`, Hasan and BusiReddyGari, arXiv:2602.13255). The words
around an observation are ours, with the information of the package's template variables and no more; what `sanitize_message`
leaves of words is what neighbours see. The table is the same in every episode, so that a seed decides names only.

One by one, the runner of 0.2.1 ends at a deadlock and reports none (its last node passes the flag on to nobody); here it is told.

The package pays nothing. Here an agent is paid its meals, and the team its meals for each step of the whole protocol, so that a
deadlock costs what could have been eaten. The package's throughput divides by the steps that were played.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.packages import Draw, Episode, missing

CONDITIONS = "sim_n5_nocomm sim_n5_comm sim_n10_nocomm seq_n5_nocomm"
EPISODES = "30"
RATES = "deadlock"
_CODE = re.compile(r"(sim|seq)_n(\d+)_(comm|nocomm)(_names)?(?:_mem(\d+))?(_step)?(?:_t(\d+))?")
_MODES = {"sim": "simultaneous", "seq": "sequential"}
_SAID_BY = re.compile(r"^You are (\S+), one of (\d+) ", re.M)
_SYLLABLES = ("ba", "do", "ke", "li", "mu", "na", "po", "ri", "sa", "tu", "ve", "zo")
_ACTIONS = ("GRAB_LEFT", "GRAB_RIGHT", "RELEASE", "WAIT")


class Dining(Episode):
    """One table."""

    actions = _ACTIONS

    def __init__(self, code: str) -> None:
        super().__init__()
        found = _CODE.fullmatch(code)
        size = int(found[2]) if found else 0
        if found is None or not 2 <= size <= 99:
            fix = "dpbench:sim_n5_nocomm, seq_n7_comm, ..., with _names, _mem3, _step or _t50 after it"
            raise InputError(f"no condition {code!r}", where="dpbench", fix=fix)
        self.name, self.size, self.mode = f"dpbench:{code}", size, _MODES[found[1]]
        self.talks, self.is_renamed = found[3] == "comm", found[4] is not None
        self.window, self.tells_step, self.horizon = int(found[5] or 0), found[6] is not None, int(found[7] or 30)
        self.version = f"{_api().version}/1"
        self.agents = tuple(f"P{i}" for i in range(size))
        self.rules = _rules(size, self.talks)
        self.bound = min(size // 2, size / 3)  # who eats holds two forks, and eats again three steps later at the earliest
        self.reset(0)

    def reset(self, seed: int) -> None:
        """A table where all are hungry and all forks are free."""
        self.illegal, self.next, self.is_over = 0, 0, False
        self.is_dead = False
        self.state = _api().create_initial_state(self.size)
        self.names = _drawn_names(seed, self.size) if self.is_renamed else self.agents
        self.words: dict[int, str] = {}
        self.decisions: list[Any] = []
        self.past: list[Any] = []

    def turn(self) -> tuple[str, ...]:
        """Everybody, or the next one."""
        if self.is_over:
            return ()
        return self.agents if self.mode == "simultaneous" else (self.agents[self.next],)

    def legal(self, agent: str) -> tuple[str, ...]:
        """All four actions, always: a grab at a fork that is taken fails in silence, as the package has it."""
        return _ACTIONS

    def take(self, actions: Mapping[str, str], words: Mapping[str, str]) -> None:
        """One timestep; one by one, a timestep is one philosopher's, and an episode ends after a round."""
        api = _api()
        made = []
        for agent, text in actions.items():
            seat = int(agent[1:])
            said = api.sanitize_message(words.get(agent, "")) or None
            made.append(api.AgentDecision(seat, api.parse_action(text), message_to_neighbors=said))
        done = api.step(self.state, made, mode=self.mode)
        self.state = done.new_state
        self.decisions += made
        new = {d.philosopher_id: d.message_to_neighbors for d in made if d.message_to_neighbors}
        self.words = new if self.mode == "simultaneous" else self.words | new
        self.next = (self.next + len(made)) % self.size if self.mode == "sequential" else 0
        if self.next == 0:
            self.is_dead = bool(done.deadlock)
            self.is_over = self.is_dead or self.state.timestep >= self.horizon
            self.past = [*self.past, self.state][-self.window :] if self.window else []

    # -- what an agent knows ---------------------------------------------------------------------------------------------

    def _seen(self, agent: str) -> Any:
        return _api().get_observation(self.state, int(agent[1:]), self.words if self.talks else None)

    def observe(self, agent: str) -> str:
        """The package's observation in words."""
        seen, name = self._seen(agent), self.names[int(agent[1:])]
        left = "AVAILABLE" if seen.left_fork_available else "TAKEN"
        right = "AVAILABLE" if seen.right_fork_available else "TAKEN"
        holds = " and ".join(side for side, is_held in (("left", seen.holding_left), ("right", seen.holding_right)) if is_held)
        lines = [f"You are {name}, one of {self.size} philosophers."]
        lines += [f"Step {self.state.timestep + 1} of {self.horizon}."] if self.tells_step else []
        lines += [f"State: {seen.state.value}. Meals: {seen.meals_eaten}. You hold: {holds or 'nothing'}."]
        lines += [f"Left fork: {left}. Right fork: {right}."]
        if self.talks:
            lines += [f"Left neighbor says: {seen.left_neighbor_message or '(no message)'}"]
            lines += [f"Right neighbor says: {seen.right_neighbor_message or '(no message)'}"]
        lines += [_table(state, self.names) for state in self.past]
        return "\n".join(lines)

    def array(self, agent: str) -> np.ndarray:
        """Eating, forks free, forks held, meals per step of the protocol, seat, parity of the seat, size, step where it is told;
        with drawn names the seat is not told, as a name says nothing of it."""
        seen, seat = self._seen(agent), int(agent[1:])
        where = (0.0, 0.0) if self.is_renamed else (seat / self.size, float(seat % 2))
        step = self.state.timestep / self.horizon if self.tells_step else 0.0
        flags = (seen.left_fork_available, seen.right_fork_available, seen.holding_left, seen.holding_right)
        numbers = (float(seen.state.value == "eating"), *map(float, flags), seen.meals_eaten / self.horizon)
        return np.array((*numbers, *where, self.size / 15, step), dtype=np.float32)

    def words_for(self, action: str) -> str:
        """What the player by hand tells its neighbours: what it does."""
        return f"I {action.lower().replace('grab_', 'grab my ')}"

    def listeners(self, agent: str) -> tuple[str, ...]:
        """The two neighbours."""
        seat = int(agent[1:])
        near = dict.fromkeys(((seat - 1) % self.size, (seat + 1) % self.size))
        return tuple(self.agents[i] for i in near) if self.talks else ()

    def by_hand(self, text: str, legal: Sequence[str] | None, draw: Draw) -> str:
        """Even names take the left fork first, odd names the right one; who has no number draws which, and releases one fork
        that waits for the other with chance 1/2."""
        found = _SAID_BY.search(text)
        name = found[1] if found else ""
        is_numbered = re.fullmatch(r"P\d+", name) is not None
        holds = text.partition("You hold: ")[2].partition(".")[0]
        free = {side: f"{side.title()} fork: AVAILABLE" in text for side in ("left", "right")}
        if "State: eating" in text:
            return "WAIT"
        if holds in free:
            other = "right" if holds == "left" else "left"
            if free[other]:
                return f"GRAB_{other.upper()}"
            return "WAIT" if is_numbered or draw("release") < 0.5 else "RELEASE"
        first = ("left", "right")[int(name[1:]) % 2] if is_numbered else ("left", "right")[int(draw("side") * 2)]
        return f"GRAB_{first.upper()}"

    # -- what came of it ---------------------------------------------------------------------------------------------------

    @property
    def rewards(self) -> dict[str, float]:
        """The meals of each."""
        return {a: float(p.meals_eaten) for a, p in zip(self.agents, self.state.philosophers, strict=True)}

    @property
    def team_reward(self) -> float:
        """Meals for each step of the whole protocol."""
        return sum(self.rewards.values()) / self.horizon

    @property
    def is_solved(self) -> bool:
        """No deadlock, and everybody ate."""
        return self.is_over and not self.is_dead and min(self.rewards.values()) > 0

    def result(self) -> Any:
        """The package's `EpisodeResult`."""
        meals = tuple(p.meals_eaten for p in self.state.philosophers)
        at = self.state.timestep
        return _api().EpisodeResult(
            0, at, self.is_dead, at if self.is_dead else None, meals, total_meals=sum(meals), all_decisions=self.decisions
        )

    def measures(self) -> dict[str, float]:
        """Deadlock, throughput, fairness, starvation, meals and steps, by the package's own functions."""
        result = self.result()
        out = {
            "deadlock": float(result.deadlock),
            "throughput": float(result.throughput),
            "fairness": float(result.fairness_gini),
            "starvation": float(result.starvation_count),
            "meals": float(result.total_meals),
            "steps": float(result.total_timesteps),
        }
        agreed = _api().compute_message_action_consistency(self.decisions) if self.talks else None
        return out if agreed is None else out | {"consistency": float(agreed)}

    def copy(self) -> Dining:
        """The state is frozen, so that a copy shares it."""
        new = object.__new__(Dining)
        new.__dict__ |= self.__dict__ | {"words": dict(self.words), "decisions": list(self.decisions), "past": list(self.past)}
        return new


class _Package:
    """The package's functions, imported once."""

    def __init__(self) -> None:
        from importlib.metadata import version

        try:
            from dpbench.agents.philosopher import parse_action
            from dpbench.core.environment import create_initial_state, get_observation, step
            from dpbench.core.types import AgentDecision, EpisodeResult, sanitize_message
            from dpbench.evaluation.metrics import compute_message_action_consistency
        except ImportError as error:
            raise missing("dpbench", error) from None
        self.version: str = version("dpbench")
        self.parse_action, self.sanitize_message = parse_action, sanitize_message
        self.create_initial_state, self.get_observation, self.step = create_initial_state, get_observation, step
        self.AgentDecision, self.EpisodeResult = AgentDecision, EpisodeResult
        self.compute_message_action_consistency = compute_message_action_consistency


_LOADED: list[_Package] = []


def _api() -> _Package:
    if not _LOADED:
        _LOADED.append(_Package())
    return _LOADED[0]


def _rules(size: int, talks: bool) -> str:
    said = (
        f"{size} philosophers sit at a round table, one fork between each two. To eat you must hold both of your forks; then "
        "they go back by themselves. If everybody holds one fork and waits, that is a deadlock and ends all. The team wants many "
        "meals, for everybody. GRAB_LEFT and GRAB_RIGHT take a fork if it is free, RELEASE puts down what you hold, WAIT does "
        "nothing."
    )
    return f"{said} What you say is read by your two neighbors before their next action." if talks else said


def _table(state: Any, names: Sequence[str]) -> str:
    """One state of the table, as the package's history has it."""
    one = [
        f"{name} {p.state.value} [{'+'.join('LR'[i] for i, h in enumerate((p.has_left_fork, p.has_right_fork)) if h) or '-'}] "
        f"meals={p.meals_eaten}"
        for name, p in zip(names, state.philosophers, strict=True)
    ]
    return f"After step {state.timestep}: " + "; ".join(one)


def _drawn_names(seed: int, size: int) -> tuple[str, ...]:
    """Names that a seed decides, all different."""
    out: dict[str, None] = {}
    n = 0
    while len(out) < size:
        word = hashlib.blake2b(f"{seed}|name|{n}".encode(), digest_size=3).digest()
        out["".join(_SYLLABLES[b % len(_SYLLABLES)] for b in word).title()] = None
        n += 1
    return tuple(out)


def dpbench(name: str) -> Episode:
    """A table by the code of a condition, such as `sim_n5_nocomm`."""
    return Dining(name)
