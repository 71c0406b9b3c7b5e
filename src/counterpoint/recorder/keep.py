"""What a recording keeps for a replay, and where a replay comes in between a team and its functions.

Always true: an answer is kept so that it can be given again as it was, or its event says why not; a text that the trace holds
letter by letter is kept by that alone. Where no replay runs nothing stands in for a function.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from counterpoint.errors import NotIdentified
from counterpoint.recorder.answers import Answer, Unpackable, is_plain_text, pack
from counterpoint.recorder.edits import arguments_of
from counterpoint.recorder.lanes import Scope, current
from counterpoint.recorder.values import arguments_text, parameters
from counterpoint.recorder.wrap import ASYNC_GENERATOR, COROUTINE, GENERATOR, MOST_PARTS, shape_of
from counterpoint.trace import content_ref
from counterpoint.trace.keys import REPLAY
from counterpoint.trace.replay import Delete

Fn = Callable[..., Any]


# -- keeping -----------------------------------------------------------------------------------------------------------------


def answer_note(
    scope: Scope, value: Any, error: BaseException | None, text: str | None, *, ok: bool = True
) -> dict[str, Any] | None:
    """What to write down beside a call's answer; None where its text is all. Not `ok` and no error: the text says what failed."""
    note = _note(scope, value, error, text, ok=ok)
    return {REPLAY: note} if note else None


def keep_step(scope: Scope, value: Any, error: BaseException | None, text: str | None) -> None:
    """The same of a model's step, whose event says what was asked, too."""
    extra = scope.outcome.setdefault("extra", {})
    extra[REPLAY] = {**extra.get(REPLAY, {}), **_note(scope, value, error, text)}


def _note(scope: Scope, value: Any, error: BaseException | None, text: str | None, *, ok: bool = True) -> dict[str, Any]:
    if scope.has_inner:
        return {"runs": True}
    is_odd = scope.parts is not None or scope.is_awaited or not ok
    if error is None and not is_odd and ((value is None and text is None) or (is_plain_text(value) and value == text)):
        return {}
    if scope.parts is not None and len(scope.parts) >= MOST_PARTS:
        return {"lost": f"a stream of {MOST_PARTS:,} parts or more"}
    answer = Answer(value, error, scope.parts, is_awaited=scope.is_awaited, is_cut=scope.is_cut)
    try:
        return {"answer": scope.session.recorder.sink.content(pack(answer))}
    except Unpackable as odd:
        return {"lost": str(odd)}


def keep_kind(scope: Scope, value: Any) -> None:
    """Of what type an agent's result is, where it is no text: what is there instead when the agent is not."""
    if value is not None and not isinstance(value, str):
        scope.outcome.setdefault("extra", {})[REPLAY] = {"gives": type(value).__name__}


def keep_arguments(scope: Scope, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """What the root agent is called with, so that its function can be called again."""
    if "given" in scope.session.kept or not scope.session.lanes.is_root(scope, name):
        return
    try:
        scope.session.kept["given"] = pack(Answer([list(args), dict(kwargs)]))
    except Unpackable:
        scope.session.kept["given"] = None


# -- standing in ---------------------------------------------------------------------------------------------------------------


def stand_in(function: Fn, begun: Scope | None, tool: str, text: str | None, *, effects: bool) -> Scope | None:
    """A tool's call that has begun; in a replay with what is called instead."""
    if begun is not None and (player := begun.session.player) is not None:
        asked = "" if text is None else content_ref(text)
        begun.stands_in = player.stand_in(function, begun, tool, asked, is_model=False, effects=effects is True)
    return begun


def keep_question(begun: Scope, model: str, text: str | None) -> str:
    """What a model's step was asked, written down by its hash alone."""
    asked = content_ref(f"{model}\n{text}")
    begun.outcome["extra"] = {REPLAY: {"asked": asked}}
    return asked


def model_stand_in(function: Fn, begun: Scope | None, model: str, text: str | None) -> Scope | None:
    """A model's step that has begun; in a replay with what is called instead."""
    if begun is not None:
        asked = keep_question(begun, model, text)
        if (player := begun.session.player) is not None:
            begun.stands_in = player.stand_in(function, begun, model, asked, is_model=True)
    return begun


def ended(scope: Scope) -> None:
    """A call has ended."""
    if scope.session.player is not None and scope.event is not None:
        scope.session.player.ended(scope.event)


def agent_stand_in(
    function: Fn, scope: Scope, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], text: str | None, *, is_new: bool
) -> tuple[Fn | None, str | None, bool]:
    """What is called instead of an agent's function, its brief, and whether a replay leaves the agent out."""
    player, lanes = scope.session.player, scope.session.lanes
    if player is None or lanes.is_root(scope, name):
        return None, text, False
    do, found = (None, name) if not lanes.is_spawned(scope, name, is_new=is_new) else player.agent_edit(scope, name, text)
    if isinstance(do, Delete):
        return player.absent(function, found), text, True
    value = getattr(do, "value", None)
    if value is not None:
        text = arguments_text(parameters(function), *arguments_of(function, args, kwargs, value))
    return _returning(function, player, value), text, False


def _returning(function: Fn, player: Any, value: Any) -> Fn:
    """An agent's function, with other arguments where `value` is not None, and with the result that a replay gives it."""
    def called(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if value is not None:
            args, kwargs = arguments_of(function, args, kwargs, value)
        return function(*args, **kwargs)

    def result(one: Any) -> Any:
        scope = current.get()
        return one if scope is None else player.returned(scope.lane.agent, one)

    async def later(*args: Any, **kwargs: Any) -> Any:
        return result(await called(args, kwargs))

    def now(*args: Any, **kwargs: Any) -> Any:
        return result(called(args, kwargs))

    shape = shape_of(function)
    if shape in (GENERATOR, ASYNC_GENERATOR):
        return lambda *args, **kwargs: called(args, kwargs)
    return later if shape == COROUTINE else now


def refuse_block(scope: Scope, what: str, name: str) -> None:
    """A block of code cannot be stood in for."""
    player = scope.session.player
    if player is not None:
        fix = f"decorate a function with @rec.{what}, so that its recorded answer can be given"
        player.failure = NotIdentified(f"`with rec.{what}_call({name!r})` is code that would really run", fix)
        raise player.failure


# -- randomness and time --------------------------------------------------------------------------------------------------------


def random_of(scope: Scope) -> Random:
    """The generator of an agent, or of one call of it."""
    session = scope.session
    inner = scope.event if scope.outer is not None and scope.tool is not None else ""
    seed = session.kept["seed"] if session.player is None else session.player.seed()
    name = f"{seed}|{scope.lane.agent}|{inner}"
    return session.draws.setdefault(name, Random(name))


def told_time(scope: Scope) -> float:
    """Now, or what the agent was told before."""
    session, agent = scope.session, scope.lane.agent
    again = None if session.player is None else session.player.now(agent)
    moment = time.time() if again is None else again
    session.kept.setdefault("now", {}).setdefault(agent, []).append(moment)
    return moment


