"""Worlds of packages that others wrote: what one episode is to Counterpoint, and how a world is found by `PACKAGE:NAME`.

A file of this folder adapts one package, and defines a function of the file's name: the episode of a NAME. An installed package
adds one as a file of `packages/` below its entry point `world` of `counterpoint.plugins`.

Always true of an episode: `reset` with the same seed, and the same actions, give the same texts, arrays, rewards and measures;
`observe`, `array`, `legal` and `turn` change nothing; no action raises: what is illegal is what the package makes of it, and is
counted in the measure `illegal`. `check_package` of `counterpoint.lab.testing` holds these.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.errors import CounterpointError, InputError, NotFound, did_you_mean, install

KIND = "world/packages"
Draw = Callable[[str], float]
"""A number in [0, 1) for a named purpose; the same name gives the same number within one call."""


class Episode(ABC):
    """One episode of a package's environment; `reset` begins it, and begins it again."""

    name: str
    """`PACKAGE:NAME`."""
    version: str
    """Of the package and of the adapter: changes whenever the same seed and actions would give something else."""
    agents: tuple[str, ...]
    """The names of all agents, in the package's order; the same in every episode."""
    actions: tuple[str, ...] | None = None
    """Every action there is, in the order of the indices of a network; None where an action is free text."""
    rules: str = ""
    """What every agent is told of the world, once."""
    talks: bool = False
    """Whether words to other agents go along with an action."""
    is_solo: bool = False
    """Whether the package has one agent, so that a team may solve the episode together in any topology."""
    bound: float | None = None
    """What no policy's expected team reward passes; None where nobody knows."""
    forks: str = ""
    """Why a recorded episode cannot be replayed from its seed and actions; empty: it can."""

    def __init__(self) -> None:
        self.illegal = 0
        """Actions so far that were not legal, or could not be read."""

    # -- what an adapter writes -------------------------------------------------------------------------------------------

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Begin the episode of this seed."""

    @abstractmethod
    def turn(self) -> tuple[str, ...]:
        """Who acts now: several act at once, one acts alone, nobody: the episode is over."""

    @abstractmethod
    def observe(self, agent: str) -> str:
        """What this agent may know now, in words; never an empty text."""

    @abstractmethod
    def legal(self, agent: str) -> tuple[str, ...] | None:
        """The actions that are legal for it now; None where any text is."""

    @abstractmethod
    def take(self, actions: Mapping[str, str], words: Mapping[str, str]) -> None:
        """The package's own step with the action of each agent whose turn it is, and the words of those who said some."""

    @property
    @abstractmethod
    def rewards(self) -> dict[str, float]:
        """What the package has paid each agent so far."""

    @property
    def team_reward(self) -> float:
        """What the team has earned so far; without a rule of the package, the mean over its agents."""
        return float(np.mean(list(self.rewards.values())))

    @property
    def is_solved(self) -> bool:
        """Whether the package counts the episode as a success."""
        return False

    def measures(self) -> dict[str, float]:
        """The package's own measures of the episode so far."""
        return {}

    def array(self, agent: str) -> np.ndarray | None:
        """What this agent may know now, as a flat array of fixed length; None where the package has words only."""
        return None

    def listeners(self, agent: str) -> tuple[str, ...]:
        """Who hears this agent's words."""
        return tuple(a for a in self.agents if a != agent) if self.talks else ()

    def by_hand(self, text: str, legal: Sequence[str] | None, draw: Draw) -> str:
        """What a player by hand does, from an observation's text alone; without a rule, some legal action."""
        return legal[int(draw("action") * len(legal))] if legal else ""

    def words_for(self, action: str) -> str:
        """What the player by hand says with an action."""
        return ""

    def role(self, agent: str) -> str:
        """What kind of player this agent is: roles may have policies of their own."""
        return "player"

    def copy(self) -> Episode:
        """The same episode from here on; `NotIdentified` where the package cannot be copied: it is replayed then."""
        return copy.deepcopy(self)

    # -- what follows ----------------------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, str], words: Mapping[str, str] | None = None) -> None:
        """Let the agents whose turn it is act; an action that is missing is an empty text."""
        turn = self.turn()
        if not turn:
            raise InputError("the episode is over", where=self.name, fix="reset it")
        done = {agent: actions.get(agent, "").strip() for agent in turn}
        for agent, action in done.items():
            legal = self.legal(agent)
            if (legal is None and not action) or (legal is not None and action not in legal):
                self.illegal += 1
        heard = {a: w.strip() for a, w in (words or {}).items() if self.talks and a in done and w.strip()}
        try:
            self.take(done, heard)
        except CounterpointError:
            raise
        except Exception as error:
            what = f"the world's own step raises {type(error).__name__}: {error}"
            raise InputError(what, where=self.name, fix=f"mend it: any text is taken, here {done}") from error

    def replay(self, seed: int, steps: Sequence[Mapping[str, str]], words: Sequence[Mapping[str, str]] = ()) -> None:
        """Begin again, and take the same steps as far as the episode goes."""
        self.reset(seed)
        for i, actions in enumerate(steps):
            if not self.turn():
                break
            self.step(actions, words[i] if i < len(words) else None)


def missing(package: str, error: ImportError) -> NotFound:
    """The one error of a package that is not installed; its extra has its name."""
    return NotFound(f"{package} is not installed: {error}", where=f"{package}:NAME", fix=install(package.replace("_", "-")))


def trusts(name: str) -> bool:
    """Whether a file may name this without consent: a world of a package that is adapted here, which names no module, or one of
    those that begin as the adapter's line `TRUSTED` says."""
    if not is_package_world(name):
        return False
    package, _, rest = name.partition(":")
    known = registry.constant(KIND, package.replace("-", "_"), "TRUSTED")
    return known is None or (rest.startswith(tuple(known.split())) and not rest.partition("?")[0].endswith(".py"))


def is_package_world(name: str) -> bool:
    """Whether a name is `PACKAGE:NAME` of a package that is adapted."""
    package, _, rest = name.partition(":")
    return bool(rest) and package.replace("-", "_") in registry.ids(KIND)


def package_ids() -> list[str]:
    """The packages that are adapted."""
    return registry.ids(KIND)


def _line(name: str, line: str) -> str:
    """What a line of a package's adapter says, read as text; empty without one."""
    package = name.partition(":")[0]
    return (registry.constant(KIND, package, line) or "") if package in registry.ids(KIND) else ""


def conditions(package: str) -> list[str]:
    """The worlds of a package's own protocol, as the line `CONDITIONS` of its adapter names them."""
    return _line(package, "CONDITIONS").split()


def protocol_episodes(name: str) -> int | None:
    """Episodes of a world in its package's own protocol, as the adapter's line `EPISODES` says."""
    said = _line(name, "EPISODES")
    return int(said) if said else None


def rates(name: str) -> list[str]:
    """Measures that are 0 or 1 in an episode, as the adapter's line `RATES` says: their means are shares of episodes."""
    return _line(name, "RATES").split()


def is_episode(thing: Any) -> bool:
    """Whether something that a name stands for is a class of episodes: a world of one's own, `path/to/file.py:Class`."""
    return isinstance(thing, type) and issubclass(thing, Episode)


def package_world(name: str) -> Episode:
    """A fresh episode of `PACKAGE:NAME`, or of a class of one's own, `path/to/file.py:Class`; what it needs is imported now."""
    if ":" in name and not is_package_world(name) and (name.rpartition(":")[0].endswith(".py") or "." in name):
        own = registry.get("world", name)
        if is_episode(own):
            return _own(name, own)
    package, _, rest = name.partition(":")
    known = registry.ids(KIND)
    if package.replace("-", "_") not in known or not rest:
        raise NotFound(f"no world {name!r} of a package", fix=did_you_mean(package, [f"{k}:NAME" for k in known]))
    made = registry.get(KIND, package.replace("-", "_"))(rest)
    if not isinstance(made, Episode):
        raise InputError(f"is a {type(made).__name__}, not an Episode", where=name, fix="see docs/lab/bring-a-world.md")
    return made


def _own(name: str, kind: type[Episode]) -> Episode:
    """An episode of a class of one's own, which says who plays and in which version."""
    try:
        made = kind()
    except Exception as error:
        what = f"cannot be made: {type(error).__name__}: {error}"
        raise InputError(what, where=name, fix="a class that needs no argument and has all that an Episode has") from error
    lacks = [field for field in ("version", "agents") if not getattr(made, field, None)]
    if lacks:
        raise InputError(f"has no {' and no '.join(lacks)}", where=name, fix="see docs/lab/bring-a-world.md")
    made.name = name
    return made
