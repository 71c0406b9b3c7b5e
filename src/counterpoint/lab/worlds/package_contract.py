"""What the episode of a package's world promises, called: `check_world` with a name is this and what a team of fakes adds.

Always true: an episode is used only as anybody may; each failure is one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from counterpoint.errors import NotIdentified
from counterpoint.lab.worlds.packages import Episode, package_world

Require = Callable[[bool, str], None]
_MOST = 2_000
"""Steps within which an episode ends."""
_ODD = ("", " ", "none", "-1", "9" * 40, "\u2028 ½ Ж", '{"a": 1}', "no such action")
Steps = list[dict[str, str]]


def check_package(name: str, require: Require) -> None:
    """The episode of a name declares itself, repeats, is not changed by looks, and takes any text."""
    episode = package_world(name)
    require(episode.name == name, f"calls itself {episode.name!r}, not {name!r}")
    require(bool(episode.version), "has no version")
    names = episode.agents
    require(bool(names) and len(set(names)) == len(names), f"its agents have no names of their own: {names!r}")
    require(
        all(a and "." not in a and not set(a) & set(" |:\n") for a in names), f"an agent's name holds . | : or a space: {names!r}"
    )
    known = episode.actions
    require(known is None or (bool(known) and len(set(known)) == len(known)), f"`actions` has one twice: {known!r}")
    for seed in (0, 7):
        steps, seen = _played(episode, seed, require)
        _repeats(episode, seed, steps, seen, require)
        _copies(episode, seed, steps, require)
    _odd(episode, require)


def _state(episode: Episode) -> Any:
    """Everything that can be seen of an episode."""
    turn = episode.turn()
    arrays = [None if (a := episode.array(agent)) is None else a.tobytes() for agent in turn]
    looks = [(agent, episode.observe(agent), episode.legal(agent)) for agent in turn]
    return turn, looks, arrays, episode.rewards, episode.team_reward, episode.measures(), episode.is_solved


def _played(episode: Episode, seed: int, require: Require) -> tuple[Steps, list[Any]]:
    """An episode of drawn legal actions, looked at twice before each step."""
    rng = np.random.default_rng(seed)
    episode.reset(seed)
    steps: Steps = []
    seen: list[Any] = []
    width: tuple[int, ...] | None = None
    while turn := episode.turn():
        require(len(steps) < _MOST, f"has no end within {_MOST} steps: a team would play on and on")
        require(set(turn) <= set(episode.agents), f"the turn is that of {turn}, who are not among {episode.agents}")
        seen.append(_state(episode))
        require(_state(episode) == seen[-1], "a look changes the world")
        actions = {}
        for agent in turn:
            legal, text, array = episode.legal(agent), episode.observe(agent), episode.array(agent)
            require(isinstance(text, str) and bool(text.strip()), f"{agent} sees an empty text")
            require(legal is None or bool(legal), f"it is {agent}'s turn, and nothing is legal")
            require(
                legal is None or episode.actions is None or set(legal) <= set(episode.actions), "legal is what `actions` has not"
            )
            if array is not None:
                width = width or array.shape
                require(array.ndim == 1 and array.shape == width, f"arrays have the shapes {width} and {array.shape}")
            actions[agent] = legal[int(rng.integers(len(legal)))] if legal else episode.by_hand(text, None, lambda name: 0.5)
        before = episode.illegal
        episode.step(actions)
        require(
            all(a for a in actions.values()) is False or episode.illegal == before, f"legal actions count as illegal: {actions}"
        )
        steps.append(actions)
    require(bool(steps), f"seed {seed}: nobody has a turn")
    seen.append(_state(episode))
    paid = episode.rewards
    require(set(paid) == set(episode.agents), f"pays {sorted(paid)}, and its agents are {sorted(episode.agents)}")
    numbers = [*paid.values(), episode.team_reward, *episode.measures().values()]
    require(all(math.isfinite(x) for x in numbers), f"a reward or a measure is not finite: {numbers}")
    return steps, seen


def _repeats(episode: Episode, seed: int, steps: Steps, seen: list[Any], require: Require) -> None:
    if episode.forks:
        return
    for other in (episode, package_world(episode.name)):
        other.reset(seed)
        for actions, then in zip(steps, seen, strict=False):
            require(_state(other) == then, f"seed {seed} and the same actions give another episode")
            other.step(actions)
        require(_state(other) == seen[len(steps)], f"seed {seed} and the same actions end otherwise")


def _copies(episode: Episode, seed: int, steps: Steps, require: Require) -> None:
    """A copy in the middle goes on as the episode does, and neither moves the other."""
    half = len(steps) // 2
    episode.replay(seed, steps[:half])
    try:
        other = episode.copy()
    except NotIdentified:
        return
    then = _state(episode)
    for actions in steps[half:]:
        other.step(actions)
    require(_state(episode) == then, "playing a copy changes the episode")
    for actions in steps[half:]:
        episode.step(actions)
    require(_state(other) == _state(episode), "a copy goes on otherwise than the episode")


def _odd(episode: Episode, require: Require) -> None:
    """Any text is taken; what is not legal is counted."""
    episode.reset(3)
    count = 0
    for text in _ODD * 3:
        turn = episode.turn()
        if not turn:
            break
        legal = {agent: episode.legal(agent) for agent in turn}
        episode.step(dict.fromkeys(turn, text))
        count += sum((not text.strip()) if mine is None else text.strip() not in mine for mine in legal.values())
        require(episode.illegal == count, f"{episode.illegal} illegal actions are counted, and there were {count}")
