"""Show one trace: answers, lanes, path, credit; or one event.

Always true: it fits the screen (`COLUMNS`); what is cut is counted, and --full shows it; what a trace says cannot steer the
terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec
import numpy as np

from counterpoint.answer import Screen, padded, span, wrapped
from counterpoint.app.forks import free_replay, last_merge
from counterpoint.app.load_save import about, load
from counterpoint.app.price_file import cost_words
from counterpoint.app.side_words import sides_dict, sides_of_trace
from counterpoint.app.terminal.options import full_option, ids_option
from counterpoint.app.terminal.output import emit, json_option, screen, table
from counterpoint.app.terminal.store import store_option
from counterpoint.app.viewer.credit_tab import team_work
from counterpoint.app.viewer.overview import overview
from counterpoint.app.viewer.trace_view import TraceView, view_of
from counterpoint.app.words import plain_text
from counterpoint.audits.facts import Facts, facts_of
from counterpoint.audits.rollups import rollup
from counterpoint.credits.choice import agent_shares
from counterpoint.display import compact, counted, duration, moment, number
from counterpoint.errors import NotFound, did_you_mean
from counterpoint.trace import Event, Trace
from counterpoint.trace.annotation import annotations_of, one_line
from counterpoint.trace.ending import ending_words, under_way
from counterpoint.trace.lanes import EMPTY, KINDS, WAIT, Cells, Lane, cells, folded
from counterpoint.trace.model_calls import prompt_of
from counterpoint.trace.naming import models_of, project_of, short_model, started, title_of
from counterpoint.trace.outcome import as_recorded, by_hand, in_words
from counterpoint.trace.rows import Shares
from counterpoint.trace.sides import sides_of
from counterpoint.trace.team import TraceTeam
from counterpoint.trace.wire import event_dict

HEADING = "Look"
# How much of a text is shown of one event, and how many lanes of a team, before it is cut; --full shows the rest.
_TEXT, _LANES, _EVENTS, _NOTES = 2000, 40, 12, 4


@click.command(
    epilog="\b\nExamples:\n  counterpoint show run.trace.json\n  counterpoint show research-team e12 --store counterpoint_demo"
)
@click.argument("trace")
@click.argument("event", required=False)
@click.option("--events", "with_events", is_flag=True, help="List the events themselves.")
@full_option()
@ids_option
@click.option("--prompt", "with_prompt", is_flag=True, help="Print the prompt of EVENT's model call, where the trace has it.")
@store_option
@json_option
def show(
    trace: str, event: str | None, with_events: bool, is_full: bool, with_ids: bool, with_prompt: bool, store: Any, as_json: bool
) -> None:
    """Show a trace: who was spawned by whom, what was waited for. Name an EVENT to see it whole, with its causes."""
    loaded = load(trace, store=store)
    with about(trace):
        if event is not None:
            _show_event(loaded, event, whole=is_full, with_prompt=with_prompt, as_json=as_json)
        elif as_json:
            emit(_card(loaded, facts_of(loaded)))
        else:
            _show_trace(loaded, with_events=with_events, whole=is_full, with_ids=with_ids)


def _card(trace: Trace, facts: Facts) -> dict[str, Any]:
    named: dict[str, Any] = {"trace_id": trace.trace_id, "task_id": trace.task_id, "system": trace.system}
    named |= {"topology": trace.topology, "title": title_of(trace), "project": project_of(trace.meta)}
    named |= {"models": models_of(trace.events, trace.meta), "started": started(trace.events, trace.meta)}
    named |= {"errors": len(trace.failures), "unpriced": trace.unpriced, "sides": sides_dict(sides_of(trace))}
    shape = {"events": len(trace.events), "edges": len(trace.edges), "agents": len(trace.members)}
    maps = {"rewards": trace.rewards, "costs": trace.known_costs, "metrics": trace.metrics, "meta": trace.meta}
    rows = rollup(trace)
    figures_of = lambda r: {"depth": r.depth, "events": r.events, "tokens": r.tokens_own, "role": r.role}  # noqa: E731
    team = [{"agent": r.name, "name": r.label, **figures_of(r)} for r in rows]
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


def _show_trace(trace: Trace, *, with_events: bool, whole: bool, with_ids: bool) -> None:
    on, look = screen(), view_of(trace)
    team, shares = look.team, agent_shares(trace, replay=free_replay(trace), merged=last_merge)
    lanes = folded(team, is_whole=whole, with_ids=with_ids)
    path = _path(look.facts)
    parts = [*_head(trace, on), *wrapped(ending_words(trace), on, "open     ")]
    parts += wrapped([fact.text for fact in overview(trace).facts], on, "answers  ")
    rewards, metrics = ([f"{k} {number(v)}" for k, v in (m or {}).items()] for m in (trace.rewards, trace.metrics))
    said = {"rewards": rewards, "costs": _costs(trace), "metrics": metrics, "outcome": in_words(trace), "notes": _notes(trace)}
    for name, words in said.items():
        parts += wrapped(words, on, f"{name:8} ", "  ")
    steps = path["events"] if with_ids else _hands(look.facts)
    parts += [*_path_lines(path, steps, on, whole=whole), ""]
    tainted = set(team.agent_E[look.tainted_E].tolist())
    on_path = [trace.index[name] for name in path["events"]]
    parts.append(lanes_text(team, lanes, on_path, figures(look, lanes), on, tainted=tainted, limit=0 if whole else _LANES))
    own = by_hand(trace, "team") is not None and "team" in as_recorded(trace).rewards
    if shares is not None:
        parts += ["", credit_bar(shares, lanes, team.names, on, limit=len(lanes) if whole else 8, is_own=own)]
    parts += ["", *_work(look, on, limit=None if whole else 8)]
    if with_events:
        parts += ["", _list_events(trace.events, whole=whole)]
    _say("\n".join(parts))


def _work(look: TraceView, on: Screen, limit: int | None) -> list[str]:
    """What was done and what became of it: in all, and by agent."""
    told = team_work(look)
    lines = wrapped(told.headline.split(" · "), on, "work     ")
    some = told.agents[:limit] if len(told.agents) > 1 else []
    wide = min(max((span(plain_text(one.name)) for one in some), default=0), _MOST_LABEL, max(on.width // 3, 8))
    for one in some:
        lines += wrapped(one.became.split("; "), on, f"  {padded(plain_text(one.name), wide, on)} ", "; ")
    left = len(told.agents) - len(some) if some else 0
    return [*lines, *([f"  {left:,} more agents: counterpoint credit"] if left else [])]


def _notes(trace: Trace) -> list[str]:
    """What is said about the trace, the last first, and how much about its events."""
    given = annotations_of(trace)
    whole = [one_line(one) for one in reversed(given) if one.event is None]
    more = [f"and {len(whole) - _NOTES:,} more"] if len(whole) > _NOTES else []
    of_events = len(given) - len(whole)
    more += [f"{counted(of_events, 'note')} on events"] if of_events else []
    return [line if len(line) <= 100 else line[:99] + "…" for line in [*whole[:_NOTES], *more]]


def _head(trace: Trace, on: Screen) -> list[str]:
    """Title; then id, project, date and models; then how large it is."""
    title, project = title_of(trace), project_of(trace.meta)
    models, began = models_of(trace.events, trace.meta), started(trace.events, trace.meta)
    lines = wrapped([title], on) if title and title != trace.trace_id else []
    words = [trace.trace_id]
    words += [f"task {trace.task_id}"] if trace.task_id not in (trace.trace_id, title) else []
    words += [word for word in (trace.system, project) if word]
    words += [moment(began)] * (began is not None) + [short_model(name) for name in models[:3]]
    words += [f"and {len(models) - 3:,} more models"] * (len(models) > 3)
    size = [trace.topology or "unknown topology", counted(len(trace.members), "agent"), counted(len(trace.events), "event")]
    size += [counted(len(trace.edges), "edge"), *([counted(len(trace.failures), "error")] if trace.failures else [])]
    return [*lines, *wrapped(words, on, between="  "), *wrapped(size, on, between="  ")]


def _costs(trace: Trace) -> list[str]:
    """Tokens, time and money in people's words, then what else the source states."""
    costs = dict(trace.known_costs)
    tokens, seconds, paid = (costs.pop(name, None) for name in ("tokens", "wall_clock_s", "cost_usd"))
    words = [f"{compact(tokens)} tokens"] if tokens is not None else []
    words += [duration(seconds)] if seconds is not None else []
    words += [cost_words(paid, trace.unpriced if any(trace.unpriced) else {})] if paid is not None or any(trace.unpriced) else []
    words += [f"{k} {number(v)}" for k, v in costs.items()]
    return [*words, *filter(None, [sides_of_trace(trace)])]


def _hands(facts: Facts) -> list[str]:
    """The critical path by agent: who had it, one after the other, and for how long."""
    path, team = facts.path, facts.team
    if path is None:
        return []
    out: list[tuple[int, float]] = []
    for i, adds in zip(path.events, path.adds, strict=True):
        agent = int(team.agent_E[i])
        if out and out[-1][0] == agent:
            out[-1] = agent, out[-1][1] + float(adds)
        else:
            out.append((agent, float(adds)))
    return [f"{team.label_A[a]} {_length(length, path.unit)}" for a, length in out if length > 0 or len(out) == 1]


def _length(length: float, unit: str) -> str:
    return duration(length) if unit == "s" else f"{compact(length)} {unit}"


def _path_lines(path: dict[str, Any], steps: list[str], on: Screen, *, whole: bool) -> list[str]:
    if path["length"] is None:
        return wrapped(["- (no edge says what waited for what)"], on, "path     ")
    half = len(steps) if whole else _EVENTS // 2
    cut = [f"... {len(steps) - 2 * half} ..."] if len(steps) > 2 * half else []
    shown = [*steps[:half], *cut, *steps[half if not cut else -half :]]
    begin = f"{_length(path['length'], path['unit'])} over {counted(len(path['events']), 'event')}: "
    shown[:1] = [begin + step for step in shown[:1]]
    return wrapped(shown, on, "path     ", " > ")


def _list_events(events: list[Event], *, whole: bool) -> str:
    shown = events if whole else events[:200]
    cells = [[e.id, number(e.t), e.type, e.agent, e.tool or e.to or e.decision or "", number(e.dur)] for e in shown]
    text = table(["event", "t", "type", "agent", "what", "dur"], cells, right=(1, 5))
    return text if len(shown) == len(events) else f"{text}\n... {len(events) - len(shown):,} more events: --full"


def _show_event(trace: Trace, name: str, *, whole: bool, with_prompt: bool, as_json: bool) -> None:
    if name not in trace.index:
        raise NotFound(f"no event {name!r} in {trace.trace_id}", fix=did_you_mean(name, list(trace.index)[:5000]))
    number_, event = trace.index[name], trace.events[trace.index[name]]
    causes = [{"event": e.src, "edge": e.type} for e in trace.edges if e.dst == name]
    effects = [{"event": e.dst, "edge": e.type} for e in trace.edges if e.src == name]
    cone = int(trace.graph.descendants(number_).sum()) - 1
    text, asked = trace.text(event), prompt_of(trace, event)
    said = [one for one in annotations_of(trace) if one.event == name]
    if as_json:
        told = {"event": event_dict(event), "caused_by": causes, "led_to": effects, "cone": cone, "text": text}
        told |= {"annotations": msgspec.to_builtins(said)} if said else {}
        emit(told | ({"prompt": asked} if with_prompt else {}))
        return
    fields = event_dict(event)
    if isinstance(fields.get("call"), dict):
        fields["call"] = _call_line(fields["call"], asked) or fields["call"]
    for key, value in fields.items():
        click.echo(f"{plain_text(str(key)):12} {plain_text(str(value))}")
    if event in under_way(trace):
        click.echo(f"{'open':12} it began, and no end of it is recorded")
    for label, linked in (("caused by", causes), ("led to", effects)):
        click.echo(f"{label:12} " + (", ".join(f"{plain_text(c['event'])} ({c['edge']})" for c in linked) or "-"))
    click.echo(f"{'cone':12} {cone:,} of {len(trace.events):,} events depend on it")
    for one in said:
        click.echo(f"{'note':12} {plain_text(one_line(one))}")
    if text is None:
        click.echo(f"{'text':12} not in this file" if event.content_ref else f"{'text':12} -")
    else:
        click.echo("\n" + _cut(text, whole=whole))
    if with_prompt:
        for place, message in enumerate(asked, 1):
            click.echo(f"\n-- asked, message {place} of {len(asked)}\n" + _cut(message, whole=whole))


def _cut(text: str, *, whole: bool) -> str:
    cut = text if whole or len(text) <= _TEXT else text[:_TEXT] + f"\n[cut: {_TEXT:,} of {len(text):,} characters; --full]"
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


# -- figures ---------------------------------------------------------------------------------------------------


def figures(look: TraceView, lanes: list[Lane]) -> dict[str, list[str]]:
    """Columns beside the tree, the most telling first."""
    facts, agents = look.facts, overview(look.trace).agents
    path = _per_lane(np.array([agent.path_share for agent in agents]), lanes)
    tokens = _per_lane(np.array([agent.tokens_own for agent in agents]), lanes)
    events = _per_lane(np.array([agent.events for agent in agents]), lanes)
    columns = {"path%": [f"{100 * x:.0f}" if x else "-" for x in path]}
    if bool(facts.has_tokens_E.any()):
        columns["tokens"] = [compact(x) if x else "-" for x in tokens]
    columns["events"] = [number(int(x)) for x in events]
    columns["role"] = [plain_text(lane.role or "-")[:16] for lane in lanes]
    return columns


def _per_lane(values_A: np.ndarray, lanes: list[Lane]) -> list[float]:
    return [float(values_A[list(lane.agents)].sum()) for lane in lanes]


# -- A team as text: the tree of agents with their lanes beside it, who worked at once, and the credit bar ------------
# Always true: no line is wider than the screen; every sign has an ASCII twin, used where the output cannot hold the real one;
# colour only repeats what a sign says already, so nothing is lost without it. Agents alike are one line (`reader ×6`), and what
# is left out is counted.

# The terminal's own colours follow its theme, light or dark; one per family, in the order of `FAMILIES`.
_COLOURS = ("blue", "yellow", "magenta", "green", None)
_SHADES = ((" ", "░", "▒", "▓", "█"), (" ", ".", ":", "+", "#"))
_FEWEST = 16  # cells that a lane needs to say anything
_MOST_LABEL = 30


def lanes_text(
    team: TraceTeam,
    lanes: list[Lane],
    path: Sequence[int],
    columns: dict[str, list[str]],
    on: Screen,
    *,
    tainted: set[int],
    limit: int,
) -> str:
    """The tree with its lanes. `columns` are figures for each lane, dropped from the last where the screen is narrow."""
    shown = lanes if limit <= 0 else lanes[:limit]
    labels = [lead + _label(lane, tainted, on) for lead, lane in zip(_branches(shown, on), shown, strict=True)]
    wide = min(max(map(span, [*labels, "at once"])), _MOST_LABEL, max(on.width // 3, 10))
    kept = dict(columns)
    while kept and _room(wide, kept, on) < min(max(_FEWEST, on.width // 3), 60):
        kept.popitem()
    room = max(_room(wide, kept, on), 4)
    drawn = cells(team, shown, room, list(path))
    heads = [padded("agent", wide, on), *(name.rjust(_width(name, values)) for name, values in kept.items())]
    lines = ["  ".join([*heads, _ruler(drawn, room)]).rstrip()]
    most = f"at once {on.pick('≤', '<=')}{max(float(drawn.busy.max(initial=0.0)), 0):.0f}"
    lines.append((padded(most, wide, on) + " " * _taken(kept) + "  " + _density(drawn, on)).rstrip())
    for row, label in enumerate(labels):
        figures = [values[row].rjust(_width(name, values)) for name, values in kept.items()]
        lines.append("  ".join([padded(label, wide, on), *figures, _lane(drawn, row, on)]).rstrip())
    if len(shown) < len(lanes):
        more = sum(len(lane.agents) for lane in lanes[len(shown) :])
        lines.append(f"{on.pick('…', '...')} {len(lanes) - len(shown):,} more lanes, {more:,} agents: --full")
    return "\n".join([*lines, *_legend(drawn, on, has_taint=bool(tainted))])


def _label(lane: Lane, tainted: set[int], on: Screen) -> str:
    text = plain_text(lane.label(on.pick("×", "x")))
    return text if tainted.isdisjoint(lane.agents) else f"{text} {on.pick('▨', '%')}"


def _width(name: str, values: list[str]) -> int:
    return max(span(text) for text in [name, *values])


def _taken(columns: dict[str, list[str]]) -> int:
    return sum(_width(name, values) + 2 for name, values in columns.items())


def _room(label: int, columns: dict[str, list[str]], on: Screen) -> int:
    return on.width - label - _taken(columns) - 2


def _branches(lanes: list[Lane], on: Screen) -> list[str]:
    """What stands before each name: the branches of the tree."""
    last = {lane.parent: k for k, lane in enumerate(lanes)}
    stems, out = [""] * len(lanes), []
    for k, lane in enumerate(lanes):
        if lane.parent < 0:
            out.append("")
            continue
        is_last = last[lane.parent] == k
        out.append(stems[lane.parent] + (on.pick("└ ", "`-") if is_last else on.pick("├ ", "|-")))
        stems[k] = stems[lane.parent] + ("  " if is_last else on.pick("│ ", "| "))
    return out


def _ruler(drawn: Cells, width: int) -> str:
    left, right = "0 s", duration(drawn.clock.end - drawn.clock.start)
    return left + right.rjust(width - len(left)) if len(left) + len(right) < width else right[:width]


def _density(drawn: Cells, on: Screen) -> str:
    shades = _SHADES[0 if on.is_unicode else 1]
    most = max(float(drawn.busy.max(initial=0.0)), 1e-9)
    level = np.ceil(drawn.busy / most * (len(shades) - 1) - 1e-3).astype(int)
    return "".join(shades[max(k, 0)] for k in level.tolist()).rstrip()


def _lane(drawn: Cells, row: int, on: Screen) -> str:
    """One lane: runs of equal cells, so that a colour is switched on once for each."""
    out, before, run = [], None, ""
    signs = {EMPTY: " ", WAIT: on.pick("─", "-")} | {k: on.pick(kind.glyph, kind.ascii) for k, kind in enumerate(KINDS)}
    kinds, on_path = drawn.kind[row].tolist(), drawn.on_path[row].tolist()
    breaks = set(np.floor(drawn.clock.place(np.array([a for a, _ in drawn.clock.gaps])) * len(kinds)).astype(int).tolist())
    for column, (kind, is_on) in enumerate(zip(kinds, on_path, strict=True)):
        sign = on.pick("┊", ":") if column in breaks and kind < 0 else signs[kind]
        state = (kind if kind >= 0 else None, is_on and kind >= 0)
        if state != before:
            out.append(_styled(run, before, on))
            run, before = "", state
        run += sign
    return "".join([*out, _styled(run, before, on)]).rstrip()


def _styled(run: str, state: tuple[int | None, bool] | None, on: Screen) -> str:
    if not run or state is None or not on.is_colour or state[0] is None:
        return run
    family = KINDS[state[0]].family
    return click.style(run, fg=_COLOURS[family], bold=_COLOURS[family] is None, underline=state[1])


def _legend(drawn: Cells, on: Screen, *, has_taint: bool) -> list[str]:
    """The signs that occur, in lines that fit."""
    there = set(np.unique(drawn.kind).tolist())
    words = [f"{on.pick(k.glyph, k.ascii)} {k.name}" for i, k in enumerate(KINDS) if i in there]
    words += [on.pick("─", "-") + " waits"] if WAIT in there else []
    words += [on.pick("▨", "%") + " read content from outside"] if has_taint else []
    if drawn.clock.gaps:
        idle = sum(b - a for a, b in drawn.clock.gaps)
        words.append(f"{on.pick('┊', ':')} {len(drawn.clock.gaps):,} silences folded, {duration(idle)} in all")
    words += ["underlined: critical path"] if on.is_colour and drawn.on_path.any() else []
    return wrapped(words, on, between="  ")


def credit_bar(shares: Shares, lanes: list[Lane], names: list[str], on: Screen, *, limit: int = 8, is_own: bool = False) -> str:
    """Who earned the team reward: a bar for each lane, the largest first; agents and the unassigned rest add up to it."""
    amounts = [(lane.label(on.pick("×", "x")), sum(shares.agents.get(names[a], 0.0) for a in lane.agents)) for lane in lanes]
    rows = sorted((r for r in amounts if r[1]), key=lambda r: -abs(r[1]))
    rest = rows[limit:]
    rows = rows[:limit]
    if rest:
        rows.append((f"{len(rest):,} more", sum(v for _, v in rest)))
    rows += [("unassigned", shares.unassigned)] if abs(shares.unassigned) > 1e-9 else []
    total = sum(v for _, v in amounts)
    whole = f"R {number(shares.reward)}" + (" as the run scored itself" if is_own else "")
    closing = f"{whole} = agents {total:+.3g} + unassigned {shares.unassigned:+.3g}"
    lines = wrapped([closing, f"by {shares.method}"], on, "credit   ", "  ")
    wide = min(max((span(plain_text(label)) for label, _ in rows), default=0), _MOST_LABEL, max(on.width // 3, 8))
    room = min(max(on.width - wide - 14, 1), 48)
    most = max((abs(v) for _, v in rows), default=0.0) or 1.0
    for label, value in rows:
        bar = (on.pick("█", "#") if value >= 0 else on.pick("▒", "=")) * max(round(room * abs(value) / most), 1)
        coloured = click.style(bar, fg="blue" if value >= 0 else "yellow") if on.is_colour else bar
        lines.append(f"  {padded(plain_text(label), wide, on)} {value:+9.3g} {coloured}".rstrip())
    return "\n".join(lines)
