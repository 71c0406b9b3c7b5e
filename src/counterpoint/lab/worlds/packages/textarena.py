"""TextArena: text games for one player and for several, each by its id in the package, such as `ThreePlayerTicTacToe-v0`.

What may follow the id:

    @3     how many play; without it 2, or the fewest that the game takes
    ~2     how many of them, the last, are the world's: they play some listed legal action at random, drawn by the seed, and are
           not agents here. A game that pays some what it takes from others has something to learn only then.

Moves, turns, observations, penalties and rewards are the package's (textarena 0.7.4; Guertler et al., arXiv:2504.11442): an agent
reads the text that the package's wrapper for language models gives it. Legal actions are those that the package lists for the
player, or, in the games of `_LISTS`, those that its rules take; elsewhere an action is free text. What the package itself refuses
as an invalid move is the measure `refused`.

The package draws from the `random` module of the process. Here a stand-in takes that module's place in the package's modules, and
draws from the stream of the episode that is played, so that episodes side by side do not disturb one another. Some games fetch
word lists or ask a judge over the network: where that fails, the error says what the package said. A game that raises in a step
is over, unpaid, and measured as `crash`.
"""

from __future__ import annotations

import contextlib
import copy
import io
import random
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from counterpoint.errors import CounterpointError, InputError, did_you_mean
from counterpoint.lab.worlds.packages import Draw, Episode, missing
from counterpoint.trace.keyed import purpose, uniform

_NAME = re.compile(r"(?P<game>[^@~]+)(?:@(?P<players>\d+))?(?:~(?P<rivals>\d+))?")
_LISTING = re.compile(
    r"(?:(?:available|valid|legal|possible)\s(?:moves|actions)|your options|remaining (?:hand|money cards)|respond with one of)"
    r"(?:\sare)?\s*:?\s*(?=['\"]?\[)((?:[\s,/|'\"]|\bor\b|\[[^\[\]\n]+\])+)",
    re.IGNORECASE,
)
_WORDS = ("moves", "actions", "options", "hand", "cards", "one of")
"""One of these stands in the words before a list."""
_PLACEHOLDER = re.compile(r"\[[^\]]*(?:\s[NXY]\b|<)[^\]]*\]")
"""A bracket with something to fill in, such as [bet X]: then the list is no list of actions."""
_RIVAL = purpose("rival action")
_SILENCE = "I say nothing."
_MOST_PLAYERS = 15
_MOST_TURNS = 500
_LOCK = threading.RLock()


class Game(Episode):
    """One game."""

    def __init__(self, code: str) -> None:
        super().__init__()
        found = _NAME.fullmatch(code)
        ids = _registered()
        if found is None or found["game"] not in ids:
            fix = did_you_mean(found["game"] if found else code, ids)
            raise InputError(
                f"no game {code!r}", where="textarena", fix=f"{fix}, with @3 (players) or @3~2 (two at random) after it"
            )
        self.name, self.game = f"textarena:{code}", found["game"]
        self._kind = self.game.split("-v")[0]
        self.version = f"{_version()}/1"
        self._stream = random.Random(0)
        with self._package():
            self._env = self._made()
        self.players = self._accepted(int(found["players"]) if found["players"] else None)
        rivals = int(found["rivals"] or 0)
        if rivals >= self.players:
            raise InputError(f"{rivals} of {self.players} players are the world's", where=self.name, fix="leave one to play")
        self.agents = tuple(f"player_{i}" for i in range(self.players - rivals))
        self.reset(0)
        if rivals:
            self._try_rivals()

    def reset(self, seed: int) -> None:
        """Begin the game of this seed, and let the world's players move as far as one of ours."""
        self.illegal, self.refused, self.turns, self.seed = 0, 0, 0, seed
        self.crash, self.is_over = "", False
        self._paid: dict[int, float] = {}
        self._lists: dict[int, tuple[str, ...] | None] = {}
        self._shown: dict[int, str] = {}
        self._legal: tuple[str, ...] | None = None
        self._stream = random.Random(seed)
        with self._package():
            self._env = self._made()
            with contextlib.redirect_stdout(io.StringIO()):
                self._env.reset(num_players=self.players, seed=seed)
            self._state = self._env.state
            self._arrive()
        self._rivals_move()

    def turn(self) -> tuple[str, ...]:
        """The player whose move it is."""
        return () if self.is_over else (self.agents[self._at],)

    def observe(self, agent: str) -> str:
        """What the package last showed this player, and what it has been sent since."""
        at = self.agents.index(agent)
        sent = self._env.state.observations.get(at, ()) if at != self._at or self.is_over else ()
        waiting = [f"\n[{'GAME' if by == -1 else f'Player {by}'}] {text}" for by, text, *_ in sent]
        return self._shown.get(at, "") + "".join(waiting) or "The game has begun."

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """The actions that the package lists, or None."""
        return self._legal if self.turn() == (agent,) else ()

    def take(self, actions: Mapping[str, str], words: Mapping[str, str]) -> None:
        """The move of the one whose turn it is, and those of the world's players after it."""
        for text in actions.values():
            self._move(text)
        self._rivals_move()

    def by_hand(self, text: str, legal: Sequence[str] | None, draw: Draw) -> str:
        """Some legal action; where any text is, a word that says nothing."""
        return super().by_hand(text, legal, draw) or _SILENCE

    @property
    def rewards(self) -> dict[str, float]:
        """What the package pays at the end; 0 before."""
        return {agent: float(self._paid.get(i, 0.0)) for i, agent in enumerate(self.agents)}

    @property
    def is_solved(self) -> bool:
        """All our players have the package's reward for a win."""
        return self.is_over and min(self.rewards.values()) >= 1

    def measures(self) -> dict[str, float]:
        """Turns, moves that the package refused, players that ended by one; and whether the package raised."""
        info = getattr(self._env.state, "game_info", None) or {}
        invalid = sum(bool(one.get("invalid_move")) for one in info.values())
        counts = {"turns": self.turns, "refused": self.refused, "invalid_move": invalid, "crash": bool(self.crash)}
        return {name: float(count) for name, count in counts.items()}

    def copy(self) -> Game:
        """The package's state by a deep copy; its draws go on as they would have."""
        new = object.__new__(Game)
        fields: dict[str, Any] = {"_lists": dict(self._lists), "_shown": dict(self._shown), "_stream": copy.copy(self._stream)}
        with self._package():
            fields |= {"_env": copy.deepcopy(self._env)}
        new.__dict__ |= self.__dict__ | fields
        new._state = new._env.state
        return new

    # -- the package ------------------------------------------------------------------------------------------------------

    def _package(self) -> _Stream:
        """The package draws from this episode's own stream."""
        return _Stream(self._stream)

    def _made(self) -> Any:
        import textarena

        try:
            with contextlib.redirect_stdout(io.StringIO()):
                env = textarena.make(self.game)
        except Exception as error:
            raise _unmakeable(self.name, error) from error
        _give_streams(self.game)
        return env

    def _accepted(self, players: int | None) -> int:
        """The number of players, which the package takes."""
        for n in (2, 1, *range(3, _MOST_PLAYERS + 1)) if players is None else (players,):
            said = self._refusal(n)
            if said is None:
                return n
        fits = [n for n in range(1, _MOST_PLAYERS + 1) if self._refusal(n) is None]
        if not fits:
            raise _unmakeable(self.name, said)
        fix = f"@{fits[0]}" if len(fits) == 1 else f"@{fits[0]} to @{fits[-1]}"
        raise InputError(f"{players} players: {said}", where=self.name, fix=fix)

    def _refusal(self, players: int) -> Exception | None:
        try:
            with self._package(), contextlib.redirect_stdout(io.StringIO()):
                self._made().reset(num_players=players, seed=0)
        except CounterpointError:
            raise
        except Exception as error:
            return error
        return None

    def _arrive(self) -> None:
        """Look at the game as the player whose turn it is."""
        at = self._state.current_player_id
        if self._kind not in _LISTS:
            told = _newest_list(self._state.observations.get(at, ()), self._kind in _SAME_MOVES)
            self._lists |= {at: _tokens(told)} if told else {}
        self._at, shown = self._env.get_observation()
        self._shown[self._at] = shown.strip() if isinstance(shown, str) else "\n".join(str(m[1]) for m in shown)
        self._legal = self._listed()

    def _listed(self) -> tuple[str, ...] | None:
        """The legal actions of the player whose turn it is, as its newest list has them."""
        state = self._state
        rule = _LISTS.get(self._kind)
        if rule is not None:
            return rule(state, self._at)
        if (state.game_state or {}).get("phase") == "conversation":
            return None
        return self._lists.get(self._at)

    def _move(self, text: str) -> None:
        mover, state = self._at, self._state
        invalid = _invalid(state, mover)
        try:
            with self._package():
                is_done, _ = self._env.step(action=text)
                if is_done:
                    self._paid = _numbers(self._env.close())
                else:
                    self._arrive()
        except Exception as error:
            self.crash, is_done = f"{type(error).__name__}: {error}", True
        self.turns += 1
        self.refused += mover < len(self.agents) and _invalid(state, mover) > invalid
        self.is_over = bool(is_done) or self.turns >= _MOST_TURNS

    def _rivals_move(self) -> None:
        while not self.is_over and self._at >= len(self.agents):
            legal = self._legal
            drawn = float(uniform(self.seed, _RIVAL, self.turns))
            self._move(legal[int(drawn * len(legal))] if legal else _SILENCE)

    def _try_rivals(self) -> None:
        """A game in which nobody can tell what is legal has no players at random."""
        trial = self.copy()
        while not trial.is_over:
            talks = (trial._env.state.game_state or {}).get("phase") == "conversation"
            if trial._legal is None and not talks:
                raise InputError(
                    f"{self.game} lists no legal actions, so nobody can play it at random", where=self.name, fix="no ~"
                )
            trial.take({trial.agents[trial._at]: trial._legal[0] if trial._legal else _SILENCE}, {})


def _newest_list(messages: Sequence[Any], is_prompt_read: bool) -> str:
    """The brackets of the last list that the game itself gives, in its opening words only where moves are the same always."""
    for by, text, kind in reversed(messages):
        if by == -1 and "[" in text and (is_prompt_read or getattr(kind, "name", "") != "PROMPT"):
            low = text.lower()
            last = max(low.rfind(word) for word in _WORDS)
            found = last >= 0 and (_LISTING.search(text, max(last - 24, 0)) or _LISTING.search(text))
            if found:
                return str(found[1])
    return ""


def _tokens(listing: str) -> tuple[str, ...] | None:
    """The actions of a list; None where one of them has something to fill in."""
    return None if _PLACEHOLDER.search(listing) else tuple(dict.fromkeys(re.findall(r"\[[^\[\]\n]+\]", listing)))


def _numbers(paid: Any) -> dict[int, float]:
    """What `close` of the package gives, which is rewards alone or with more; in some games a text stands for a number."""
    return {player: float(one) for player, one in ((paid[0] if isinstance(paid, tuple) else paid) or {}).items()}


def _invalid(state: Any, player: int) -> int:
    """How often the package has refused a player, as far as its state tells."""
    info = (getattr(state, "game_info", None) or {}).get(player, {})
    return 100 * bool(info.get("invalid_move")) + int(getattr(state, "error_count", 0))


def _unmakeable(name: str, error: Exception | None) -> InputError:
    what = f"the package cannot make it here: {type(error).__name__}: {error!s:.200}"
    return InputError(
        what, where=name, fix="games that fetch data or ask a judge need a network and what they name; others do not"
    )


class _Draws:
    """Stands for the module `random` in the package's modules: the draws of the episode that is played, else the module's own."""

    stream: random.Random | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream if self.stream is not None and hasattr(self.stream, name) else random, name)


_DRAWS = _Draws()


class _Stream:
    """While it is entered, the package draws from this stream; one thread at a time."""

    __slots__ = ("_before", "_own")

    def __init__(self, own: random.Random) -> None:
        self._own = own

    def __enter__(self) -> None:
        _LOCK.acquire()
        self._before, _DRAWS.stream = _DRAWS.stream, self._own

    def __exit__(self, *error: object) -> None:
        _DRAWS.stream = self._before
        _LOCK.release()


@cache
def _give_streams(game: str) -> None:
    """Every module of the package draws by the episode; a game's own module is imported when it is first made."""
    for name in [name for name in sys.modules if name.startswith("textarena")]:
        if vars(sys.modules[name]).get("random") is random:
            sys.modules[name].random = _DRAWS  # type: ignore[attr-defined]


@cache
def _version() -> str:
    from importlib.metadata import version

    return version("textarena")


@cache
def _registered() -> tuple[str, ...]:
    """The ids of all games of the package."""
    try:
        from textarena.envs.registration import ENV_REGISTRY
    except ImportError as error:
        raise missing("textarena", error) from None
    return tuple(ENV_REGISTRY)


# -- games that do not list what is legal --------------------------------------------------------------------------------


def _columns(state: Any, player: int) -> tuple[str, ...]:
    return tuple(f"[col {c}]" for c, cell in enumerate(state.game_state["board"][0]) if cell == ".")


def _removals(state: Any, player: int) -> tuple[str, ...]:
    return tuple(f"[{i} {n}]" for i, pile in enumerate(state.game_state["piles"]) for n in range(1, pile + 1))


def _bids(state: Any, player: int) -> tuple[str, ...]:
    """A call, where there is a bid; and every bid that is higher in one number and not lower in the other."""
    bid, dice = state.game_state["current_bid"], sum(state.game_state["remaining_dice"].values())
    low, face = bid["quantity"], max(bid["face_value"], 1)
    bids = [(q, f) for q in range(max(low, 1), dice + 1) for f in range(face, 7) if (q, f) != (low, bid["face_value"])]
    return (*(("[Call]",) if low else ()), *(f"[Bid: {q}, {f}]" for q, f in bids))


def _dilemma(state: Any, player: int) -> tuple[str, ...] | None:
    return ("[Cooperate]", "[Defect]") if state.game_state["phase"] == "decision" else None


def _two_dilemmas(state: Any, player: int) -> tuple[str, ...] | None:
    if state.game_state["phase"] != "decision":
        return None
    a, b = (other for other in range(state.num_players) if other != player)
    words = ("cooperate", "defect")
    return tuple(f"[{a} {x}] [{b} {y}]" for x in words for y in words)


def _contributions(state: Any, player: int) -> tuple[str, ...] | None:
    if state.game_state["phase"] == "conversation":
        return None
    return tuple(f"[{n}]" for n in range(int(state.game_state["endowment"]) + 1))


def _entries(state: Any, player: int) -> tuple[str, ...] | None:
    return None if state.game_state["phase"] == "conversation" else ("[E]", "[S]")


def _unlisted(state: Any, player: int) -> None:
    """What this game lists is not what it takes."""


_SAME_MOVES = ("IteratedRockPaperScissors", "Snake", "Surround")
"""Games that say once what the moves are."""
_LISTS: dict[str, Callable[[Any, int], tuple[str, ...] | None]] = {
    "ConnectFour": _columns,
    "FrozenLake": _unlisted,
    "Golf": _unlisted,
    "IteratedPrisonersDilemma": _dilemma,
    "LiarsDice": _bids,
    "MarketEntryGame": _entries,
    "Nim": _removals,
    "PublicGoodsGame": _contributions,
    "ThreePlayerIPD": _two_dilemmas,
}


def textarena(name: str) -> Episode:
    """A game by its id, such as `ThreePlayerTicTacToe-v0` or `Snake-v0@4~3`."""
    return Game(name)
