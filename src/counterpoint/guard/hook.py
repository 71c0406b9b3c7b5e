"""The hook: a call that an agent is about to make comes in as JSON, and a refusal, a warning or nothing goes out.

Claude Code and Codex share the contract (PreToolUse): exit 0 and nothing on stdout lets the call go on; a JSON object with
`permissionDecision: deny` refuses it, and its reason is what the agent reads; `additionalContext` is read by the agent,
`systemMessage` by the person. `--answer exit` refuses by exit code 2 and stderr instead, for versions that ignore the object.

Always true: whatever goes wrong in here (a file that cannot be read, a wrong limit, a defect of ours), the call goes on and the
log has a line about it.
"""

from __future__ import annotations

import os
import sys
import time

from counterpoint.guard.limits import MARK, GuardCall, GuardLimits, limit_option, limits_file, limits_of, refusal, warnings
from counterpoint.guard.quick_json import dumps, loads
from counterpoint.guard.state import GuardState, StateLock, log, remove_old, state_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from counterpoint.guard.reader import SessionReader

_OPTIONS = ("--cap", "--limits", "--prices", "--answer")


def main(argv: Sequence[str] | None = None) -> None:
    """Answer one call from stdin, and end the process."""
    import gc

    gc.disable()  # a process of some milliseconds needs no collector
    code = 0
    try:
        options = _options(sys.argv[1:] if argv is None else argv)
        code = _tell(answer(loads(sys.stdin.buffer.read()), options), options)
        sys.stdout.flush()
    except BaseException as error:  # it never blocks: not for a defect, not for a signal
        log(f"let through, because of {type(error).__name__}: {error}")
    os._exit(code)


def _options(argv: Sequence[str]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for name, value in zip(argv[::2], argv[1::2], strict=True):
        if name not in _OPTIONS:
            raise ValueError(f"unknown option {name!r}")
        out.setdefault(name, []).append(value)
    return out


def _tell(reply: dict[str, Any], options: Mapping[str, Sequence[str]]) -> int:
    inside = reply.get("hookSpecificOutput", {})
    if inside.get("permissionDecision") == "deny" and options.get("--answer") == ["exit"]:
        sys.stderr.write(inside["permissionDecisionReason"] + "\n")
        sys.stderr.flush()
        return 2
    if reply:
        sys.stdout.write(dumps(reply) + "\n")
    return 0


def answer(request: Any, options: Mapping[str, Sequence[str]], now: float | None = None) -> dict[str, Any]:
    """What the hook says to a call: an empty object where it may go on."""
    if not isinstance(request, dict) or request.get("hook_event_name", "PreToolUse") != "PreToolUse":
        return {}
    session, transcript = request.get("session_id"), request.get("transcript_path")
    if not isinstance(session, str) or not isinstance(transcript, str) or not isinstance(request.get("tool_name"), str):
        raise ValueError("the call names no session, transcript or tool")
    now = time.time() if now is None else now
    path = state_path(session)
    with StateLock(path) as lock:
        is_first = not os.path.exists(path)
        state = GuardState(path)
        reader = reader_of(state, session, os.path.expanduser(transcript))
        limits, reply = _limits_or_words(state, options)
        if limits is not None:
            reply = decide(reader, limits, request, now) or reply
        _keep(state, now, is_ours=lock.is_held, is_first=is_first)
    return reply


def _limits_or_words(state: GuardState, options: Mapping[str, Sequence[str]]) -> tuple[GuardLimits | None, dict[str, Any]]:
    """The limits; where they cannot be read, those that were read last, and what to tell the person once."""
    try:
        return read_limits(state, options), {}
    except (ValueError, LookupError, OSError) as error:  # InputError and NotFound among them: a wrong limits file
        last = state.notes.get("limits")
        holds = "those that were read before hold" if last is not None else "nothing is refused"
        reply = _once(state, f"limits: {error}", f"{MARK} the limits cannot be read, and {holds}: {error}")
        return None if last is None else GuardLimits(last[1]), reply


def _keep(state: GuardState, now: float, *, is_ours: bool, is_first: bool) -> None:
    """Write the state for the next call; what was decided stands, also where that fails."""
    try:
        if is_ours:
            state.save()
        else:
            log(f"{state.path}: another hook holds it; this call was decided by what that one had written")
        if is_first:
            remove_old(now)
    except OSError as error:
        log(f"{state.path}: {error}")


def _once(state: GuardState, name: str, text: str) -> dict[str, Any]:
    """Tell the person something, once in a session."""
    notices = state.notes.setdefault("told", [])
    if name in notices:
        return {}
    notices.append(name)
    log(text)
    return {"systemMessage": text}


def reader_of(state: GuardState, session: str, transcript: str, *, to_end: bool = False) -> SessionReader:
    """The reader for the session's format, up to date; what it cannot read is logged, and what is known so far holds."""
    state.format = state.format or _format_of(transcript)
    reader: SessionReader
    if state.format == "codex":
        from counterpoint.guard.codex import CodexReader

        reader = CodexReader(state)
    else:
        from counterpoint.guard.claude_code import ClaudeCodeReader

        reader = ClaudeCodeReader(state)
    try:
        reader.update(transcript, to_end=to_end)
    except OSError as error:
        log(f"{session}: {error}")
    return reader


def _format_of(transcript: str) -> str:
    """The format by the beginning of a file; while there is none, by its name."""
    try:
        with open(transcript, "rb") as file:
            head = file.read(512)
    except OSError:
        head = b""
    if not head:
        return "codex" if os.path.basename(transcript).startswith("rollout-") else ""
    return "codex" if b'"session_meta"' in head else "claude_code"


# -- limits and prices ----------------------------------------------------------------------------------------------------


def read_limits(state: GuardState, options: Mapping[str, Sequence[str]]) -> GuardLimits:
    """The limits of a file and of options, options winning; the file is parsed again only when it has changed."""
    stamps = [_stamp(path) for path in options.get("--limits", ())]
    key = dumps([stamps, options.get("--cap"), options.get("--prices")])
    cached = state.notes.get("limits")
    if cached is not None and cached[0] == key:
        return GuardLimits(cached[1])
    table: dict[str, Any] = {}
    for path in options.get("--limits", ()):
        table |= limits_file(path)
    for scope, pairs in limit_option(options.get("--cap", ())).items():
        table[scope] = {**table.get(scope, {}), **pairs}
    for path in options.get("--prices", ()):
        table["prices"] = path
    limits = limits_of(table, ", ".join(options.get("--limits", ())) or "--cap")
    state.notes["limits"] = [key, limits.as_dict()]
    state.notes.pop("prices", None)
    return limits


def _stamp(path: str) -> list[Any]:
    try:
        about = os.stat(path)
    except OSError:
        return [path, None]
    return [path, about.st_mtime_ns, about.st_size]


def with_packages() -> None:
    """Make installed packages importable where Python was started without them."""
    if sys.flags.no_site and "site" not in sys.modules:
        import site

        site.main()


class ModelPrices:
    """Prices of a session's models, kept in its state: looking one up the first time costs more than everything else here."""

    def __init__(self, state: GuardState, file: str | None, *, at: float | None = None, is_strict: bool = True) -> None:
        """`at` is when the session last did something. Unless `is_strict`, a price that cannot be looked up is none, and is
        logged."""
        self._known: dict[str, list[float] | None] = state.notes.setdefault("prices", {})
        self._file, self._at, self._is_strict = file, at, is_strict

    def __call__(self, model: str) -> list[float] | None:
        """Dollars per million tokens, one for each field of a usage."""
        if model not in self._known:
            self._known[model] = self._look_up(model)
        return self._known[model]

    def _look_up(self, model: str) -> list[float] | None:
        try:
            with_packages()
            from counterpoint.guard.prices import price_of

            return price_of(model, self._file, at=self._at)
        except Exception as error:
            if self._is_strict:
                raise
            log(f"{model}: {error}")
            return None


# -- deciding --------------------------------------------------------------------------------------------------------------


def decide(reader: SessionReader, limits: GuardLimits, request: Mapping[str, Any], now: float) -> dict[str, Any]:
    """What is said to a call, after the session was read."""
    state, tally = reader.state, reader.tally
    tool, inside, agent = request["tool_name"], request.get("tool_input"), reader.caller(request)
    is_spawn = reader.is_spawn(tool)
    call = GuardCall(agent, tool, reader.key(tool, inside), is_spawn=is_spawn, depth=reader.depth(agent))
    has_price = "dollars" in {**limits.session, **limits.prompt}
    price = ModelPrices(state, limits.prices, at=tally.last_at, is_strict=False) if has_price else None
    why = None
    if not (is_spawn and reader.is_granted(request.get("tool_use_id"))):
        why = refusal(limits, tally, call, now, price)
    if why is not None:
        state.notes["refused"] = state.notes.get("refused", 0) + 1
        state.notes["last_refusal"] = [now, agent, tool, *why]
        return _deny(why[1])
    if is_spawn and isinstance(request.get("tool_use_id"), str):
        reader.grant(request["tool_use_id"], tool, agent, inside, now)
    notices = state.notes.setdefault("told", [])
    if price is not None and "price" not in notices and (unpriced := tally.unpriced(price)):
        text = f"{MARK} the limit of dollars cannot be held, because {', '.join(unpriced)} has no price: give --prices FILE"
        return _once(state, "price", text)
    spoken = f"@{tally.prompt_at}"  # what is counted since a person spoke is warned about again when one has
    words = {name + spoken: text for name, text in warnings(limits, tally, now, price).items() if name + spoken not in notices}
    if limits.advice and agent == "main":
        words |= _advice(state, limits, now)
    state.notes["told"] = [*notices, *words]
    if not words:
        return {}
    text = "\n".join(words.values())
    return {"systemMessage": text, "hookSpecificOutput": {"hookEventName": "PreToolUse", "additionalContext": text}}


def _deny(why: str) -> dict[str, Any]:
    inside = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why}
    return {"hookSpecificOutput": inside}


def _advice(state: GuardState, limits: GuardLimits, now: float) -> dict[str, str]:
    from counterpoint.guard.advice import advice

    try:
        return advice(state, limits, now)
    except Exception as error:  # advice is the least of it
        log(f"no advice: {error}")
        return {}
