"""Pause, message or stop a running team; ask what that would gain.

Always true: an order acts at the next safe point and is recorded in the trace, which is marked as steered; nothing is sent
without a yes, on the terminal or as --yes, and a pipe is never made to wait for one. Exit code 6: sent, and not yet taken up.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.options import (
    NumberRange,
    agent_option,
    cap_option,
    caps_of,
    endpoint_of,
    model_options,
    yes_option,
)
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, say
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.errors import InputError, TryAgain

if TYPE_CHECKING:
    from counterpoint.recorder.orders import Order
    from counterpoint.trace import Event

HEADING = "Keep"


@click.command(
    epilog="\b\nExamples:\n  counterpoint steer T1-centralized-0 pause --agent lead.1\n"
    "  counterpoint steer T1-centralized-0 message --agent lead --message 'only the second ledger' --yes\n"
    "  counterpoint steer T1-centralized-0 stop --yes --json\n"
    "  counterpoint steer T1-centralized-0 --advise --message 'only the second ledger'\n\n"
    "Exit codes: 0 it took effect, or was sent with --wait 0; 2 a wrong order, or not confirmed; 3 no such trace or agent;\n"
    "5 the trace is not running or takes no orders; 6 sent, and waiting for the next safe point."
)
@click.argument("trace")
@click.argument("action", type=click.Choice(["pause", "resume", "message", "stop"]), required=False)
@agent_option("One agent by name, such as lead.1 (default: the whole team).")
@click.option("--message", default="", metavar="TEXT", help="The text of a message; the reason of another order.")
@click.option("--tree", type=click.Choice(["yes", "no"]), help="Include all that the agent spawned (default: only for stop).")
@click.option(
    "--wait", type=NumberRange(min=0), default=10.0, show_default=True, metavar="S", help="Seconds to wait for the effect."
)
@yes_option
@click.option("--advise", "is_advised", is_flag=True, help="Send nothing: print what stopping, or --message, would gain.")
@cap_option("trials (default 8 per order)", "tokens")
@model_options("The model that answers what is not recorded, for --advise: openai:NAME.")
@store_option
@json_option
def steer(
    trace: str,
    action: str | None,
    agent: str,
    message: str,
    tree: str | None,
    wait: float,
    yes: bool,
    is_advised: bool,
    store: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Pause, resume, message or stop a running team or one of its agents.

    TRACE is the id of a trace that is being recorded, or the beginning of one. The order acts at the next safe point: before the
    agent's next model call or tool call. It is recorded, and the trace is marked as steered in every comparison.

    --advise sends nothing: it plays the recording on to the end, with and without each order, and prints the gain of each.
    """
    from counterpoint.recorder import orders

    if is_advised:
        return _advise(trace, store, agent, message, options, as_json=as_json)
    if action is None:
        raise InputError("no order is named", fix="pause, resume, message or stop; or --advise")
    with open_store(store, read_only=True) as opened:
        path, trace_id = opened.path, opened.find(trace)
    is_tree = None if tree is None else tree == "yes"
    order = orders.Order(action=action, agent=agent, text=message, tree=is_tree)  # type: ignore[arg-type]  # click has checked it
    _confirm(order, trace_id, yes=yes)
    sent = orders.send(path, trace_id, order)
    events = orders.wait(path, trace_id, sent, wait) if wait else []
    if wait and not events:
        _queued(sent, trace_id, wait, as_json=as_json)
    if as_json:
        emit(_object(sent, trace_id, events))
    else:
        click.echo(plain_text(_text(sent, trace_id, events)))
    return None


def _advise(trace: str, store: Path | None, agent: str, message: str, options: dict[str, Any], *, as_json: bool) -> None:
    """What each order would gain, and how to send the best."""
    from counterpoint.app.api.advise import advise_orders
    from counterpoint.app.cli.advise import advice_object, advice_sections

    with open_store(store, read_only=True) as opened:
        trace_id = opened.find(trace)
        so_far = opened.get(trace_id)
    caps = caps_of(options["caps"], {"trials": int, "tokens": int})
    if caps.get("trials", 4) < 4:
        raise InputError("trials is at least 4", where="--cap", fix="as in --cap trials=40")
    budgets: dict[str, Any] = {"budget": caps.get("trials"), "budget_tokens": caps.get("tokens")}
    endpoint = endpoint_of(options["base_url"], options["model_pairs"])
    texts = [message] if message else []
    advice, best = advise_orders(so_far, agent=agent, say=texts, model=options["model_name"], **budgets, **endpoint)
    if as_json:
        emit(advice_object(advice, None))
    else:
        say(*advice_sections(advice, 0, None))
        if best is not None:
            words = [*(["--agent", best.agent] if best.agent else []), *(["--message", best.text] if best.text else [])]
            click.echo(plain_text(f"send it: {shlex.join(['counterpoint', 'steer', trace_id, best.action, *words])}"))


def _confirm(order: Order, trace_id: str, *, yes: bool) -> None:
    if yes:
        return
    what = plain_text(f"{order.action} {order.whom} of {trace_id}" + (f": {order.text}" if order.text else ""))
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            f"{what}: this needs a confirmation, and there is no terminal to ask on", fix="--yes does it without asking"
        )
    if not click.confirm(f"{what}? The trace will be marked as steered", err=True):
        raise click.Abort


def _state(events: list[Event]) -> str:
    return "applied" if events else "queued"


def _object(order: Order, trace_id: str, events: list[Event]) -> dict[str, Any]:
    told = {"id": order.id, "action": order.action, "agent": order.agent or None, "tree": order.is_for_tree, "by": order.by}
    reached = [{"event": event.id, "agent": event.to, "t": event.t} for event in events]
    return {"schema": SCHEMA_VERSION, "trace_id": trace_id, "order": told, "state": _state(events), "events": reached}


def _text(order: Order, trace_id: str, events: list[Event]) -> str:
    said = f"{order.action} {order.whom} of {trace_id}"
    if not events:
        return f"{said}: sent; it acts at the next safe point"
    shown = ", ".join(f"{event.id} ({event.to}, {float(event.t):.1f} s)" for event in events[:5])
    more = f" and {len(events) - 5} more" if len(events) > 5 else ""
    return f"{said}: took effect at {shown}{more}"


def _queued(order: Order, trace_id: str, timeout: float, *, as_json: bool) -> None:
    """It was sent and nobody has got it yet: somebody is in a long call, or waits for another agent."""
    if as_json:
        emit(_object(order, trace_id, []))
        raise SystemExit(TryAgain.exit_code)
    what = f"{order.action} {order.whom}: queued for the next safe point, which did not come in {timeout:g} s"
    why = "a model call or a tool call is under way; the order stays and is not sent again"
    raise TryAgain(what, where=trace_id, why=why, fix=f"counterpoint show {os.fspath(trace_id)} says what is under way")
