"""What a recording keeps for a replay, and where a replay comes in between a team and its functions.

Always true: an answer is kept so that it can be given again as it was, or its event says why not; a text that the trace holds
letter by letter is kept by that alone. Where no replay runs nothing stands in for a function.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from counterpoint.errors import NotIdentified
from counterpoint.recorder.answers import Answer, Unpackable, as_line, is_plain_text, pack, snapshot
from counterpoint.recorder.edits import arguments_of
from counterpoint.recorder.lanes import RecordingSession, Scope, current
from counterpoint.recorder.problems import one_line
from counterpoint.recorder.values import arguments_text, parameters, text_of
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
    if ok and is_all_told(scope, value, error, text):
        return None
    note: dict[str, Any] = {}
    _keep_answer(scope, note, value, error, text)
    return {REPLAY: note}


def keep_step(scope: Scope, value: Any, error: BaseException | None, text: str | None, *, instead: Any = None) -> None:
    """The same of a model's step, whose event says what was asked, too; `instead` is kept where the answer cannot be."""
    if not is_all_told(scope, value, error, text):
        note = scope.outcome.setdefault("extra", {}).setdefault(REPLAY, {})
        _keep_answer(scope, note, value, error, text, instead=instead)


def is_all_told(scope: Scope, value: Any, error: BaseException | None, text: str | None) -> bool:
    """Whether the text of an answer says all that there is to say of it."""
    if error is not None or scope.has_inner or scope.parts is not None or scope.is_awaited:
        return False
    return (value is None and text is None) or (is_plain_text(value) and value == text)


def _keep_answer(
    scope: Scope, note: dict[str, Any], value: Any, error: BaseException | None, text: str | None, *, instead: Any = None
) -> None:
    """The answer as it is now; its line is written where the team does not wait for it."""
    if scope.has_inner:
        note["runs"] = True
    elif scope.parts is not None and len(scope.parts) >= MOST_PARTS:
        note["lost"] = f"a stream of {MOST_PARTS:,} parts or more"
    else:
        answer = Answer(value, error, scope.parts, is_awaited=scope.is_awaited, is_cut=scope.is_cut)
        packed, why = list[dict[str, Any]](), ""
        for one in (answer, *([] if instead is None else [Answer(instead)])):
            try:
                packed.append(snapshot(one))
            except Unpackable as odd:
                why = why or str(odd)
        if packed:
            scope.session.recorder.sink.later(note, functools.partial(_line_note, packed), len(text or ""))
        else:
            note["lost"] = why


def _line_note(packed: Sequence[dict[str, Any]], keep: Callable[[str], str]) -> dict[str, str]:
    first, *others = packed
    try:
        return {"answer": keep(as_line(first))}
    except Unpackable as odd:
        return _line_note(others, keep) if others else {"lost": str(odd)}
    except Exception as error:  # what writes must go on
        return {"lost": one_line(error)}


def _asked_note(model: str, text: str | None, keep: Callable[[str], str]) -> dict[str, str]:
    return {"asked": content_ref(f"{model}\n{text}")}


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


def asked_text(session: RecordingSession, names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """The arguments of a call as text, as they are now."""
    try:
        return arguments_text(names, args, kwargs)
    except Exception as error:  # the code of a text of a class of its own
        session.note(one_line(error))
        return None


def said_text(session: RecordingSession, make: Callable[[Any], str | None] | None, value: Any) -> str | None:
    """A result as text, as it is now; `make` makes one of it."""
    try:
        return text_of(value if make is None or value is None else make(value))
    except Exception as error:
        session.note(one_line(error))
        return None


# -- standing in ---------------------------------------------------------------------------------------------------------------


def stand_in(function: Fn, begun: Scope | None, tool: str, text: str | None, *, effects: bool) -> Scope | None:
    """A tool's call that has begun; in a replay with what is called instead."""
    if begun is not None and (player := begun.session.player) is not None:
        asked = "" if text is None else content_ref(text)
        begun.stands_in = player.stand_in(function, begun, tool, asked, is_model=False, effects=effects is True)
    return begun


def keep_question(begun: Scope, model: str, text: str | None) -> str:
    """What a model's step was asked, written down by its hash alone; in a replay the hash."""
    note: dict[str, Any] = {}
    begun.outcome["extra"] = {REPLAY: note}
    begun.session.recorder.sink.later(note, functools.partial(_asked_note, model, text), len(text or ""))
    return note.get("asked", "")


def model_stand_in(function: Fn, begun: Scope | None, model: str, text: str | None) -> Scope | None:
    """A model's step that has begun; in a replay with what is called instead."""
    if begun is not None:
        keep_question(begun, model, text)
        if (player := begun.session.player) is not None:
            asked = begun.outcome["extra"][REPLAY]["asked"]
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
