"""Who&When Pro: runs of fifteen frameworks with one mistake put in on purpose: who, when and what.

A row is a run: `id`, `framework`, `benchmark`, and `task`, `trajectory`, `ground_truth`, `extras` as JSON or as the text of JSON.

| record | becomes |
|---|---|
| turn, entry of a round, action, plan | event `s{i}`: `message`, or `orchestrator_decision` of who leads |
| `observation` of an action, entry of a tool | `tool_result` of who spoke before, and its `tool_call` (inferred) |
| entry of the user; else `task.query` | `human_intervention` |
| entry of the system | `message` of `system` |
| `ground_truth` | `extra` of its event or events, `metrics`, `meta["labels"]` |

A step is named in the coordinates of its framework: a number, `round.position`, a stage, or the place in the trajectory. Where a
label names a round alone, the turns of its agents in that round are marked. `accepted_predictions` are marked too: any counts.

What is lost: images and frames, which stand beside the rows; ids of calls.

Always true: what a label says is in no text; a label whose step is nowhere is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.chat import Turn, put_down
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, json_field, string, text_of
from counterpoint.trace import Trace

_LEADERS = frozenset({"orchestrator", "Orchestrator"})
_FRAMES_OF = {"frame_inspect_tool": "frame_inspect_agent"}
"""A tool that is an agent of its own: a model that looks at frames."""
_LAYERS = {"author": "0.0", "critic": "1.0", "rewriter": "1.1", "sink": "2.0"}
"""MacNet's roles by layer and place."""
_NOWHERE = "a labelled step that is in the run"
_PICTURES = "images"


class NamedTurn(NamedTuple):
    """A turn and the names of its step."""

    turn: Turn
    native: str
    """As the label names it."""
    shown: str
    """As the set's own readers number it, which accepted answers use."""


def _sniff(head: bytes) -> bool:
    keys = first_keys(head).keys()
    if keys >= {"framework", "benchmark", "trajectory"}:
        return True  # what comes after a long trajectory is beyond the head
    return keys >= {"framework", "benchmark", "modality", "task"}


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        for line, row in session.entries(file):
            trajectory = json_field(row.get("trajectory"))
            if isinstance(trajectory, list):
                yield from _run(session, row, [as_dict(entry) for entry in trajectory])
            else:
                session.report.broke(file.name, line, "a run without a trajectory")


def _run(session: Session, row: dict[str, Any], trajectory: list[dict[str, Any]]) -> Iterator[Trace]:
    framework = string(row.get("framework")) or "unnamed"
    task, truth = as_dict(json_field(row.get("task"))), as_dict(json_field(row.get("ground_truth")))
    said = list(_said(framework, trajectory))
    name = string(row.get("id")) or compact(row.get("id"))
    draft = session.draft(f"who_and_when_pro/{name}", name, system="who_and_when_pro")
    leader = next((s.turn.speaker for s in said if s.turn.speaker in _LEADERS), None)
    draft.topology = "centralized" if leader is not None else None
    speaks = next((s.turn.speaker for s in said if s.turn.tool is None and s.turn.speaker != "human"), "agent")
    for k, entry in enumerate(entry for entry in trajectory if entry.get("kind") == "system"):
        draft.lane(speaks, role=speaks).prompt(text_of(entry.get("content")), by="system", source="system", id=f"system{k}")
    turns = [s.turn for s in said]
    put_down(draft, turns, leader=leader, task="" if "human" in {t.speaker for t in turns} else text_of(task.get("query")))
    extras = json_field(row.get("extras"))
    draft.meta["labels"] = {"ground_truth": task["answer"]} if "answer" in task else {}
    draft.meta |= {key: value for key in ("framework", "benchmark", "modality") if (value := string(row.get(key)))}
    draft.meta |= {"extras": extras} if extras else {}
    _label(draft, truth, said)
    if any("images" in key or key == "frames" for entry in trajectory for key in entry):
        draft.report.lacks[_PICTURES] += 1
    draft.report.lacks["tokens"] += 1
    yield from draft.traces()


def _said(framework: str, trajectory: Sequence[dict[str, Any]]) -> Iterator[NamedTurn]:
    """Every turn in the order of the run, with the names of its step."""
    cursor = 0 if next((e.get("kind") for e in trajectory if e.get("kind") not in ("user", "system")), "") == "planning" else 1
    for i, entry in enumerate(trajectory):
        kind = entry.get("kind")
        if kind in ("user", "human"):
            yield NamedTurn(Turn("human", text_of(entry.get("content"))), "", "")
        elif kind == "round":
            round_ = compact(entry.get("round", 0))
            for k, turn in enumerate(map(as_dict, as_list(entry.get("turns")))):
                place = f"{round_}.{compact(turn.get('position', k))}"
                yield NamedTurn(_turn(turn), place, place)
        elif kind in ("action", "planning"):
            step = str(cursor) if framework == "smolagents" or entry.get("step_number") is None else compact(entry["step_number"])
            yield NamedTurn(_turn(entry), step, step)
            if observed := _observed(entry):
                yield NamedTurn(observed, "", "")
            cursor += 1
        elif kind in ("assistant", "tool"):
            yield _spoken(framework, entry, i)
        elif kind not in ("system", "final_answer"):
            native, shown = _place(framework, entry)
            yield NamedTurn(_proxy(entry) if framework == "mathchat" else _turn(entry), native, shown)


def _place(framework: str, entry: dict[str, Any]) -> tuple[str, str]:
    """The names of a turn that stands by itself: by its stage, its layer, or its round and position."""
    round_, position = count(entry.get("round")), count(entry.get("position"))
    if entry.get("stage") is not None and framework == "metagpt":
        return compact(entry["stage"]), compact(entry["stage"])
    if round_ is None or position is None:
        layer = _LAYERS.get(string(entry.get("role")) or "", "")
        return layer, layer
    native = f"{round_}.{position}"
    return native, str(2 * round_ + position) if framework == "mathchat" else native


def _turn(entry: dict[str, Any]) -> Turn:
    speaker = string(entry.get("agent")) or string(entry.get("agent_id")) or "agent"
    parts = [text_of(entry.get(key) or "") for key in ("plan", "reasoning", "action", "code", "output", "content")]
    told = list(dict.fromkeys(part for part in parts if part))
    told = [part for part in told if not any(part is not other and part in other for other in told)]
    for key in ("tool_actions", "ledger"):
        if entry.get(key):
            told.append(compact(entry[key]))
    to = string(entry.get("next_speaker")) if speaker in _LEADERS else None
    is_end = "final_answer" in as_list(entry.get("phase"))
    decision = "delegate" if to else "stop" if is_end and speaker in _LEADERS else None
    return Turn(speaker, "\n".join(told), to=to, decision=decision)


def _proxy(entry: dict[str, Any]) -> Turn:
    """A turn of MathChat: its proxy hands out the task, then prints what the code gives."""
    turn = _turn(entry)
    if turn.speaker != "user_proxy":
        return turn
    return Turn("human", turn.text) if count(entry.get("round")) == 0 else Turn("tool", turn.text, tool="python")


def _observed(entry: dict[str, Any]) -> Turn | None:
    """What an action gave back."""
    parts = (text_of(entry.get(key) or "") for key in ("error", "observation"))
    text = "\n".join(part for part in parts if part)
    return Turn("tool", text, tool="environment") if text else None


def _spoken(framework: str, entry: dict[str, Any], i: int) -> NamedTurn:
    """An entry of a chat: its step is its place in the trajectory; readers count from the first answer on."""
    shown = str((i - 2) // 2 if framework == "eva" else i - 2)
    text = text_of(entry.get("content") or "")
    if entry.get("kind") == "tool":
        tool = string(entry.get("tool_name")) or "tool"
        turn = Turn(_FRAMES_OF[tool], text) if tool in _FRAMES_OF else Turn("tool", text, tool=tool)
        return NamedTurn(turn, str(i), "" if framework == "eva" else shown)
    calls = [as_dict(call) for call in as_list(entry.get("tool_calls"))]
    told = [text, *(f"{compact(call.get('name'))}({compact(call.get('arguments') or '')})" for call in calls)]
    return NamedTurn(Turn("agent" if framework == "eva" else "orchestrator", "\n".join(filter(None, told))), str(i), shown)


# -- labels ----------------------------------------------------------------------------------------------------------------


def _label(draft: Draft, truth: dict[str, Any], said: Sequence[NamedTurn]) -> None:
    """Mark the labelled turns; what is accepted beside them counts as much."""
    if not truth:
        return
    agents = [a for a in (truth.get("agent"), *as_list(truth.get("agents"))) if isinstance(a, str) and a]
    places = _named(_step(truth), agents, said)
    first = min(places, default=None)
    for other in map(as_dict, as_list(truth.get("accepted_predictions"))):
        wanted = _bare(other.get("step_coord"))
        places |= {k for k, one in enumerate(said) if wanted and one.shown == wanted and one.turn.tool is None}
    if not places:
        draft.report.lacks[_NOWHERE] += 1
    for k in places:
        marks = {"is_mistake": True, "mistake_agent": said[k].turn.speaker, "failure_category": string(truth.get("mode"))}
        draft.set(f"s{k}", extra=marks)
    if first is not None:
        draft.metrics["mistake_step"] = float(first)
    about = {"mistake_step": first, "mistake_agent": agents[0] if len(agents) == 1 else None, "mode": truth.get("mode")}
    draft.meta["labels"] |= {key: value for key, value in about.items() if value is not None} | {"injected": truth}


def _named(wanted: str, agents: Sequence[str], said: Sequence[NamedTurn]) -> set[int]:
    """The turns that a label means: the step it names, or what its agents say in the round it names."""
    exact = {k for k, one in enumerate(said) if wanted and one.native == wanted}
    if exact or "." in wanted or not wanted:
        return exact
    there = {k for k, one in enumerate(said) if one.native.startswith(f"{wanted}.")}
    return {k for k in there if said[k].turn.speaker in agents} or there


def _step(truth: dict[str, Any]) -> str:
    """The name of the labelled step: stated whole, or as round and position, or as a stage."""
    for key in ("step_coord", "step"):
        if truth.get(key) not in (None, ""):
            return _bare(truth[key])
    if truth.get("stage") is not None:
        return compact(truth["stage"])
    parts = [compact(truth[key]) for key in ("round", "position") if truth.get(key) is not None]
    return ".".join(parts)


def _bare(step: Any) -> str:
    """A step's name without the word before it: `step 1.0` is `1.0`."""
    return compact(step).strip().lower().removeprefix("step ").removeprefix("round ").strip() if step not in (None, "") else ""


who_and_when_pro = Importer(
    suffixes=(".who_and_when_pro.jsonl",),
    sniff=_sniff,
    signs=("framework", "benchmark", "trajectory", "modality", "extras"),
    system="who_and_when_pro",
    read_session=_read,
    rank=1,
    becomes={
        "trajectory": ("message", "orchestrator_decision", "human_intervention", "tool_call", "tool_result"),
        "task": ("human_intervention",),
        "ground_truth": ("extra", "metrics", "meta"),
    },
    versions="the set of July 2026, by its published reader; no file of it was at hand",
    exact="speakers, mistakes",
    lost="images, frames, call ids; times and tokens are not in the source",
)
"""Runs of Who&When Pro."""
