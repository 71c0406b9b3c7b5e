"""Show one trace: answers, lanes, path, credit; or one event.

Always true: it fits the screen (`COLUMNS`); what is cut is counted, and --all shows it; what a trace says cannot steer the
terminal.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from counterpoint.app.cli._lanes_text import Screen, credit_bar, lanes_text, screen, wrapped
from counterpoint.app.cli._output import emit, json_option, table
from counterpoint.app.cli._store import store_option
from counterpoint.app.library import about, load
from counterpoint.app.viewer.overview import overview
from counterpoint.app.viewer.prepared import Prepared, prepared
from counterpoint.app.words import number, plain_text
from counterpoint.audit.facts import Facts
from counterpoint.audit.rollups import rollup
from counterpoint.credit.shares import agent_shares
from counterpoint.errors import NotFound, did_you_mean
from counterpoint.trace import Event, Trace
from counterpoint.trace.lanes import Lane, folded
from counterpoint.trace.model_calls import prompt_of
from counterpoint.trace.wire import event_dict

# How much of a text is shown of one event, and how many lanes of a team, before it is cut; --all shows the rest.
_TEXT, _LANES, _EVENTS = 2000, 40, 12


@click.command(
    epilog="\b\nExamples:\n  counterpoint show run.trace.json\n  counterpoint show research-team e12 --store counterpoint_demo"
)
@click.argument("trace")
@click.argument("event", required=False)
@click.option("--events", "listed", is_flag=True, help="List the events themselves.")
@click.option("--all", "whole", is_flag=True, help="Show everything, uncut.")
@click.option("--prompt", "is_asked", is_flag=True, help="With EVENT: what its model was asked, where the trace has it.")
@store_option
@json_option
def show(trace: str, event: str | None, listed: bool, whole: bool, is_asked: bool, store: Path | None, as_json: bool) -> None:
    """Show a trace: who was spawned by whom, what was waited for. Name an EVENT to see it whole, with its causes."""
    loaded = load(trace, store=store)
    with about(trace):
        if event is not None:
            _show_event(loaded, event, whole=whole, is_asked=is_asked, as_json=as_json)
        elif as_json:
            emit(_card(loaded, Facts(loaded)))
        else:
            _show_trace(loaded, listed=listed, whole=whole)


def _card(trace: Trace, facts: Facts) -> dict[str, Any]:
    named = {"trace_id": trace.trace_id, "task_id": trace.task_id, "system": trace.system, "topology": trace.topology}
    shape = {"events": len(trace.events), "edges": len(trace.edges), "agents": len(trace.members)}
    maps = {"rewards": trace.rewards, "costs": trace.known_costs, "metrics": trace.metrics, "meta": trace.meta}
    rows = rollup(trace, facts=facts)
    team = [{"agent": r.name, "depth": r.depth, "events": r.events, "tokens": r.tokens_own, "role": r.role} for r in rows]
    return named | shape | maps | {"critical_path": _path(facts), "team": team}


def _path(facts: Facts) -> dict[str, Any]:
    """The critical path; without a length where nothing says what waited for what."""
    path = facts.path
    if path is None:
        return {"length": None, "unit": None, "events": []}
    length = path.length if path.unit == "s" else int(path.length)
    return {"length": length, "unit": path.unit, "events": [facts.events[i].id for i in path.events]}


def _say(text: str) -> None:
    """Print, with `?` for what the output's encoding has no sign for: names of agents are in any script."""
    encoding = sys.stdout.encoding or "ascii"
    click.echo(text.encode(encoding, "replace").decode(encoding))


def _show_trace(trace: Trace, *, listed: bool, whole: bool) -> None:
    on, look = screen(), prepared(trace)
    team, shares = look.team, agent_shares(trace)
    lanes = folded(team, is_whole=whole)
    path = _path(look.facts)
    parts = [*_head(trace, on), *wrapped(answers(look, on), on.pick(" · ", " | "), on, "answers  ")]
    for name, values in (("rewards", trace.rewards), ("costs", trace.known_costs), ("metrics", trace.metrics or {})):
        parts += wrapped([f"{plain_text(k)} {number(v)}" for k, v in values.items()], "  ", on, f"{name:8} ")
    parts += [*_path_lines(path, on, whole=whole), ""]
    tainted = set(team.agent_E[look.tainted_E].tolist())
    on_path = [trace.index[name] for name in path["events"]]
    parts.append(lanes_text(team, lanes, on_path, figures(look, lanes), on, tainted=tainted, limit=0 if whole else _LANES))
    if shares is not None:
        parts += ["", credit_bar(shares, lanes, team.names, on, limit=len(lanes) if whole else 8)]
    if listed:
        parts += ["", _list_events(trace.events, whole=whole)]
    _say("\n".join(parts))


def _head(trace: Trace, on: Screen) -> list[str]:
    words = [plain_text(trace.trace_id), trace.topology or "unknown topology", f"task {plain_text(trace.task_id)}"]
    words += [f"{len(trace.members):,} agents", f"{len(trace.events):,} events", f"{len(trace.edges):,} edges"]
    return wrapped(words, "  ", on)


def _path_lines(path: dict[str, Any], on: Screen, *, whole: bool) -> list[str]:
    if path["length"] is None:
        return wrapped(["- (no edge says what waited for what)"], "", on, "path     ")
    ids = [plain_text(name) for name in path["events"]]
    half = len(ids) if whole else _EVENTS // 2
    cut = [f"... {len(ids) - 2 * half} ..."] if len(ids) > 2 * half else []
    shown = [*ids[:half], *cut, *ids[half if not cut else -half :]]
    shown[:1] = [f"{number(path['length'])} {path['unit']} over {len(ids):,} events: {name}" for name in shown[:1]]
    return wrapped(shown, " > ", on, "path     ")


def _list_events(events: list[Event], *, whole: bool) -> str:
    shown = events if whole else events[:200]
    cells = [[e.id, number(e.t), e.type, e.agent, e.tool or e.to or e.decision or "", number(e.dur)] for e in shown]
    text = table(["event", "t", "type", "agent", "what", "dur"], cells, right=(1, 5))
    return text if len(shown) == len(events) else f"{text}\n... {len(events) - len(shown):,} more events: --all"


def _show_event(trace: Trace, name: str, *, whole: bool, is_asked: bool, as_json: bool) -> None:
    if name not in trace.index:
        raise NotFound(f"no event {name!r} in {trace.trace_id}", fix=did_you_mean(name, list(trace.index)[:5000]))
    number_, event = trace.index[name], trace.events[trace.index[name]]
    causes = [{"event": e.src, "edge": e.type} for e in trace.edges if e.dst == name]
    effects = [{"event": e.dst, "edge": e.type} for e in trace.edges if e.src == name]
    cone = int(trace.graph.descendants(number_).sum()) - 1
    text, asked = trace.text(event), prompt_of(trace, event)
    if as_json:
        told = {"event": event_dict(event), "caused_by": causes, "led_to": effects, "cone": cone, "text": text}
        emit(told | ({"prompt": asked} if is_asked else {}))
        return
    fields = event_dict(event)
    if isinstance(fields.get("call"), dict):
        fields["call"] = _call_line(fields["call"], asked) or fields["call"]
    for key, value in fields.items():
        click.echo(f"{plain_text(str(key)):12} {plain_text(str(value))}")
    for label, linked in (("caused by", causes), ("led to", effects)):
        click.echo(f"{label:12} " + (", ".join(f"{plain_text(c['event'])} ({c['edge']})" for c in linked) or "-"))
    click.echo(f"{'cone':12} {cone:,} of {len(trace.events):,} events depend on it")
    if text is None:
        click.echo(f"{'text':12} not in this file" if event.content_ref else f"{'text':12} -")
    else:
        click.echo("\n" + _cut(text, whole=whole))
    if is_asked:
        for place, message in enumerate(asked, 1):
            click.echo(f"\n-- asked, message {place} of {len(asked)}\n" + _cut(message, whole=whole))


def _cut(text: str, *, whole: bool) -> str:
    cut = text if whole or len(text) <= _TEXT else text[:_TEXT] + f"\n[cut: {_TEXT:,} of {len(text):,} characters; --all]"
    return plain_text(cut, keep_lines=True)


def _call_line(call: dict[str, Any], asked: list[str]) -> str:
    """A live team's call of a model or a tool in one line; the rest of it is in --json."""
    words = [f"failed: {call['failed']}"] if "failed" in call else [f"ended by {call['finish']}"] if "finish" in call else []
    words += [f"asked {call['attempts']} times"] if "attempts" in call else []
    told = call.get("told")
    words += [f"{plain} {value}" for plain, value in told.items()] if isinstance(told, dict) else []
    words += [f"log-probs of {len(call['logps'])} tokens"] if isinstance(call.get("logps"), list) else []
    words += [f"prompt of {len(asked)} messages, {sum(map(len, asked)):,} characters (--prompt shows it)"] if asked else []
    return " · ".join([*words, str(call["address"])] if "address" in call else words)


# -- answers and figures ---------------------------------------------------------------------------------------------------


def answers(look: Prepared, on: Screen) -> list[str]:
    """Computed facts, each with the agent or the event it is about."""
    return [plain_text(fact.text).replace("×", on.times()) for fact in overview(look.trace).facts]


def figures(look: Prepared, lanes: list[Lane]) -> dict[str, list[str]]:
    """Columns beside the tree, the most telling first."""
    facts, agents = look.facts, overview(look.trace).agents
    path = _per_lane(np.array([agent.path_share for agent in agents]), lanes)
    tokens = _per_lane(np.array([agent.tokens_own for agent in agents]), lanes)
    events = _per_lane(np.array([agent.events for agent in agents]), lanes)
    columns = {"path%": [f"{100 * x:.0f}" if x else "-" for x in path]}
    if bool(facts.has_tokens_E.any()):
        columns["tokens"] = [_short(x) if x else "-" for x in tokens]
    columns["events"] = [number(int(x)) for x in events]
    columns["role"] = [plain_text(lane.role or "-")[:16] for lane in lanes]
    return columns


def _per_lane(values_A: np.ndarray, lanes: list[Lane]) -> list[float]:
    return [float(values_A[list(lane.agents)].sum()) for lane in lanes]


def _short(value: float) -> str:
    return f"{int(value):,}" if value < 10_000 else f"{value / 1000:,.0f}k" if value < 1e7 else f"{value / 1e6:,.1f}M"
