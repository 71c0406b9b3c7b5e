"""reasoning-gym: a question from a generator and the package's own checker, one agent or a team that solves it together.

A name is a data set of the package, such as `reasoning_gym:chain_sum`; what may follow are its own settings, as in
`chain_sum?min_terms=2&max_terms=3`. Questions are made by the thousand: seed 4321 is question 321 of the data set of seed 4000.

Question and score are the package's (reasoning-gym 0.1.25; Stojanovski et al., arXiv:2505.24760): its score lies from 0 to 1, and
some checkers pay a part for an answer that holds the right one. Only a score of 1 counts as solved. A checker that stumbles over
a text scores it 0. There is no player by hand: nobody but the package knows how to solve what it asks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any
from urllib.parse import parse_qsl

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.worlds.packages import Episode, missing

_CHUNK = 1_000
_SEEDS = 2**31
_AGENT = "solver"


class Question(Episode):
    """One question."""

    agents = (_AGENT,)
    is_solo = True

    def __init__(self, code: str) -> None:
        super().__init__()
        known, self.version = _known()
        set_name, _, settings = code.partition("?")
        if set_name not in known:
            raise InputError(f"no data set {set_name!r}", where="reasoning_gym", fix=did_you_mean(set_name, known))
        self.name = f"reasoning_gym:{code}"
        self._set_name, self._settings = set_name, settings
        self.reset(0)

    def reset(self, seed: int) -> None:
        """The question of this seed."""
        self.illegal, self.score, self.is_over = 0, 0.0, False
        self._item = self._asked(seed)

    def _asked(self, seed: int) -> dict[str, Any]:
        chunk, place = divmod(seed % _SEEDS, _CHUNK)
        try:
            self._set = _made(self._set_name, self._settings, chunk * _CHUNK)
            return dict(self._set[place])
        except InputError:
            raise
        except Exception as error:
            what = f"the package makes no question of it: {type(error).__name__}: {error!s:.200}"
            raise InputError(what, where=f"{self.name}, seed {seed}", fix="other settings after a ?") from error

    def turn(self) -> tuple[str, ...]:
        """The one agent, until it has answered."""
        return () if self.is_over else self.agents

    def observe(self, agent: str) -> str:
        """The question."""
        return str(self._item["question"])

    def legal(self, agent: str) -> None:
        """Any text is an answer."""

    def take(self, actions: Mapping[str, str], words: Mapping[str, str]) -> None:
        """The package's checker scores the answer."""
        self.is_over = True
        try:
            self.score = min(max(float(self._set.score_answer(actions[_AGENT], entry=self._item)), 0.0), 1.0)
        except Exception:
            self.score = 0.0

    @property
    def rewards(self) -> dict[str, float]:
        """The score."""
        return {_AGENT: self.score}

    @property
    def is_solved(self) -> bool:
        """The whole score."""
        return self.score == 1

    def measures(self) -> dict[str, float]:
        """The package's score."""
        return {"score": self.score}

    def key(self) -> str:
        """The answer that the package itself gives; for tests, never for agents."""
        return str(self._item["answer"])

    def copy(self) -> Question:
        """The data set makes no draws between questions, so that a copy shares it."""
        new = object.__new__(Question)
        new.__dict__ |= self.__dict__
        return new


@cache
def _known() -> tuple[tuple[str, ...], str]:
    """The data sets, and the version."""
    from importlib.metadata import version

    try:
        import reasoning_gym  # noqa: F401
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise missing("reasoning_gym", error) from None
    return tuple(sorted(DATASETS)), f"{version('reasoning-gym')}/1"


@lru_cache(maxsize=64)
def _made(name: str, settings: str, first: int) -> Any:
    """A piece of the data set: a few generators draw all of their questions before the first."""
    import reasoning_gym

    options = {key: _value(text) for key, text in parse_qsl(settings, keep_blank_values=True)}
    try:
        return reasoning_gym.create_dataset(name, **{"seed": first, "size": _CHUNK, **options})
    except Exception as error:
        what = f"the package does not make it: {type(error).__name__}: {error!s:.200}"
        raise InputError(
            what, where=f"reasoning_gym:{name}", fix=f"settings of its own after it: {name}?SETTING=VALUE"
        ) from error


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def reasoning_gym(name: str) -> Episode:
    """A question of a data set, such as `chain_sum` or `chain_sum?max_terms=3`."""
    return Question(name)
