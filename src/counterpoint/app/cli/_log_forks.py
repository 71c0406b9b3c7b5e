"""Forks of logged sessions on the terminal: what the model would read, what asking it may take, and what came of it.

Always true: nothing is asked before the most that it may take was printed and, where it costs something, allowed.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from counterpoint.app.api.fork import Forked
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, note
from counterpoint.app.words import plain_text
from counterpoint.display import counted, money
from counterpoint.errors import Refused
from counterpoint.trace import Trace
from counterpoint.trace.replay import Do
from counterpoint.trace.tool_signatures import tools_of
from counterpoint.trace.turn_edits import start_of

CAPS = {"calls": int, "tokens": int, "usd": float, "seconds": float}
_SHOWN = 160


def print_messages(trace: Trace, at: str, do: Do | None, *, as_json: bool) -> None:
    """What a model would be asked first, and with which tools."""
    start = start_of(trace, at, do)
    messages = start.conversation.prompt(start.turn)
    functions, told = tools_of(start.conversation)
    notes = [*start.conversation.notes(start.turn), *told]
    if keys := _keys_in(messages):
        notes.append(f"{counted(keys, 'key')} in these texts would be sent as the agent had read them")
    said = start.forced
    if as_json:
        about: dict[str, Any] = {"schema": SCHEMA_VERSION, "trace_id": trace.trace_id, "at": at}
        about |= {"agent": start.conversation.agent, "messages": messages, "tools": functions, "notes": notes}
        emit(about | {"answer": None if said is None else {"text": said.text, "calls": said.calls}})
        return
    lines = [f"{trace.trace_id}: {start.conversation.agent} at {at}, {counted(len(messages), 'message')}, nothing asked"]
    for message in messages:
        lines += ["", f"[{message['role']}]" + (f" of {message['tool_call_id']}" if "tool_call_id" in message else "")]
        lines += [message["content"]] if message["content"] else []
        calls = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
        lines += [f"-> {name}: {function['name']} {function['arguments']}" for name, function in calls]
    if said is not None:
        lines += ["", "[assistant] as the edit says", *([said.text] if said.text else [])]
        lines += [f"-> {tool} {arguments}" for tool, arguments in said.calls]
    names = ", ".join(one["function"]["name"] for one in functions) or "none"
    lines += ["", f"tools  {names}", *(f"note   {one}" for one in notes)]
    click.echo(plain_text("\n".join(lines), keep_lines=True))


def confirm(replay: Any, trace: Trace, at: str, do: Do | None, caps: dict[str, Any], *, yes: bool, quiet: bool) -> None:
    """Say the most that it may take; where that costs something and no budget allows it, ask a person or refuse."""
    plan = replay.plan(trace, at, do)
    cost = "" if plan.usd is None or plan.is_free else f", {money(plan.usd)} at most"
    price = " (no price is known)" if plan.usd is None and not plan.is_free else ""
    first = f"the first prompt has about {plan.prompt:,}"
    asks = f"{plan.model} is asked up to {counted(plan.calls, 'time')}, for up to {plan.tokens:,} tokens{cost}{price}; {first}"
    note(plain_text(asks), quiet=quiet)
    start = start_of(trace, at, do)
    if keys := _keys_in(start.conversation.prompt(start.turn)):
        note(f"{counted(keys, 'key')} in these texts: {plan.model} reads what the agent had read", quiet=quiet)
    if plan.is_free or yes or "tokens" in caps or "usd" in caps:
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm("Ask?", abort=True, err=True)
        return
    fix = f"--cap tokens={plan.tokens} allows that much, --cap calls=N asks less often; --dry-run shows what is asked"
    raise Refused(f"{plan.model} would be asked, for up to {plan.tokens:,} tokens", fix=fix)


def lines_of(found: Forked) -> list[str]:
    """What became of the session, for people."""
    about = found.trace.meta["fork"]
    calls, answers = about["calls"], about["answers"]
    told = ", ".join(f"{who} {n:,}" for who, n in answers.items() if n) or "none"
    held = f" · nobody: {', '.join(about['held'])}" if about["held"] else ""
    lines = [f"asked  {about['model']}: as recorded {calls['recorded']:,} · otherwise {calls['re-run']:,}"]
    lines.append(f"tools  answered by {told}{held}")
    first = found.diff.first
    if first is None:
        lines.append("parts  nowhere: every event is as recorded")
    else:
        where = first.event.a or first.event.b
        lines.append(f"parts  at {where} ({first.how}): {_short(first.text_a)} -> {_short(first.text_b)}")
    lines.append(f"ended  {about['ended']}")
    spent = about["spent"]
    lines.append(f"spent  {spent['tokens']:,} tokens" + (f", {money(spent['usd'])}" if spent["usd"] else ""))
    return [*lines, *(f"note   {one}" for one in about["notes"])]


def _keys_in(messages: list[dict[str, Any]]) -> int:
    """Keys and passwords in what would be sent."""
    from counterpoint.formats.masking import mask

    return mask("\n\n".join(str(message["content"]) for message in messages))[1]["key"]


def _short(text: str | None) -> str:
    words = " ".join((text or "").split())
    return repr(words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…") if words else "nothing"
