"""MAST: conversations of teams, labelled by people with the failure modes that they show.

One JSON document (`..._human.json`) is one run; a list or lines of them work too.

| record | becomes |
|---|---|
| entry i of `trajectory` | event `s{i}`: `message` of the agent in `name` or `role`; of a terminal `tool_call`, `tool_result` |
| `problem_statement` | `human_intervention` of `user`, event `task` |
| `note.options` | `metrics["failure: <mode>"]`, 1 for yes and 0 for no; a mode without an answer is absent |
| `note.text`, `other_data` | `meta["labels"]`; `other_data.correct` is `rewards["team"]` |

The names of the modes are kept as written: they differ between the sets (AG2, HyperAgent) and from the published taxonomy.

What is lost: nothing of the records; times, tokens and ids of calls are not in the source, nor at which step a mode shows.

Always true: event `s{i}` is entry i of `trajectory`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Turn, put_down
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.values import as_dict, string, text_of
from counterpoint.trace import Trace

_ANSWERS = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
_NO_STEP = "at which step a failure shows"


def _sniff(head: bytes) -> bool:
    if b'"instance_id"' not in head or b'"trajectory"' not in head:
        return False
    return first_keys(head).keys() >= {"instance_id", "problem_statement", "trajectory"}


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        for line, run in session.entries(file):
            if isinstance(run.get("trajectory"), list) and string(run.get("instance_id")):
                yield from _run(session, run)
            else:
                session.report.broke(file.name, line, "a run without a trajectory or id")


def _run(session: Session, run: dict[str, Any]) -> Iterator[Trace]:
    task = run["instance_id"]
    draft = session.draft(f"mast/{task}", task, system="mast", run=run_of(run))
    turns = [_turn(as_dict(entry)) for entry in run["trajectory"]]
    put_down(draft, turns, task=text_of(run.get("problem_statement")))
    labels = {"note": as_dict(run.get("note")).get("text"), "other_data": run.get("other_data")}
    draft.meta["labels"] = {key: value for key, value in labels.items() if value}
    for mode, answer in as_dict(as_dict(run.get("note")).get("options")).items():
        said = _ANSWERS.get(str(answer).strip().lower())
        if said is None:
            draft.report.lacks["a yes or no to some failure modes"] += 1
        else:
            draft.metrics[f"failure: {mode}"] = said
    if isinstance(correct := as_dict(run.get("other_data")).get("correct"), bool):
        draft.rewards["team"] = float(correct)
    draft.report.lacks.update({"tokens": 1, _NO_STEP: 1})
    yield from draft.traces()


def _turn(entry: dict[str, Any]) -> Turn:
    return Turn(string(entry.get("name")) or string(entry.get("role")) or "unnamed", text_of(entry.get("content")))


mast = Importer(
    suffixes=(".mast.json",),
    sniff=_sniff,
    signs=("instance_id", "problem_statement", "trajectory", "note"),
    system="mast",
    read_session=_read,
    columns={
        "trajectory": ("message", "tool_call", "tool_result"),
        "problem_statement": ("human_intervention",),
        "note": ("metrics", "meta"),
        "other_data": ("rewards", "meta"),
    },
    lost="nothing of the records; times, tokens, ids of calls and the step of a failure are not in the source",
)
"""Runs of MAST."""
