"""MAST: conversations of teams, labelled with their failure modes; and the plain logs of its systems.

One JSON document (`..._human.json`) is one run; a list or lines of them work too. So do the large set (`mas_name`, `trace`,
`mast_annotation` or `annotations`) and the text logs themselves (`systems.py`).

| record | becomes |
|---|---|
| entry i of `trajectory` | event `s{i}`: `message` of the agent in `name` or `role`; of a terminal `tool_call`, `tool_result` |
| a `trajectory` or `trace` that is text, or lines of it | an event `s{i}` for each turn of a speaker, to whom it is addressed |
| `problem_statement` | `human_intervention` of `user`, event `task` |
| `note.options`, `mast_annotation` | `metrics["failure: <mode>"]`, 1 for yes and 0 for no; a mode without an answer is absent |
| `annotations` | `metrics["failure: <mode>"]`: the share of the annotators who say yes |
| `note.text`, `other_data` | `meta["labels"]`; `other_data.correct` is `rewards["team"]` |

The names of the modes are kept as written: they differ between the sets (AG2, HyperAgent) and from the published taxonomy.

What is lost: what a system's program says about itself (counted in `left_out`); times and tokens are in the logs of some systems
alone, and at which step a mode shows is in none.

Always true: event `s{i}` is entry i of `trajectory`, or turn i of a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.autogen.console import blocks_of, is_console, put_blocks
from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Turn, put_down
from counterpoint.formats.importing.files import File, first_keys, is_document
from counterpoint.formats.importing.values import as_dict, as_list, number, string, text_of
from counterpoint.formats.mast.systems import is_log, read_system, system_of
from counterpoint.trace import Trace
from counterpoint.trace.keys import MODELS

_ANSWERS = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0}
_JSON = re.compile(rb"[\xef\xbb\xbf\s]*(?:\{|\[\s*[\[{])")
_NO_STEP = "at which step a failure shows"
# What a system's text log must show before it is looked at more closely.
_TEXT_MARKS = (b" - INFO - ", b" INFO] ", b"| INFO", b"MetaGPT Agent Communication Log", b"Response from ", b"NEW MESSAGES:")


def _sniff(head: bytes) -> bool:
    if not _JSON.match(head):
        return _is_text_log(head)
    if b'"trajectory"' not in head and b'"mas_name"' not in head:
        return False
    keys = first_keys(head).keys()
    return keys >= {"instance_id", "trajectory"} or ("mas_name" in keys and bool(keys & {"trace", "trajectory"}))


def _is_text_log(head: bytes) -> bool:
    if _JSON.match(head) or b"\0" in head[:1000] or not any(mark in head for mark in _TEXT_MARKS):
        return False
    return not is_document(head) and is_log(head.decode("utf-8", "replace"))


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        if _is_text_log(file.head()):
            yield from _log(session, file)
            continue
        for line, run in session.entries(file):
            name = string(run.get("instance_id")) or (string(run.get("mas_name")) and _mad_name(run))
            if name and _conversation(run) is not None:
                yield from _run(session, name, run)
            else:
                session.report.broke(file.name, line, "a run without a trajectory or id")


def _mad_name(run: dict[str, Any]) -> str:
    keys = ("mas_name", "llm_name", "benchmark_name", "trace_id")
    return "/".join(str(run[key]) for key in keys if run.get(key) not in (None, ""))


def _conversation(run: dict[str, Any]) -> Any:
    """The run's conversation: a list of entries, or text."""
    value = run.get("trajectory", run.get("trace"))
    value = value.get("trajectory", value.get("trace")) if isinstance(value, dict) else value
    return value if isinstance(value, (str, list)) else None


def _log(session: Session, file: File) -> Iterator[Trace]:
    """A system's own log, which nobody labelled."""
    try:
        text = file.data().decode("utf-8", "replace")
    except InputError as error:
        session.report.broke(file.name, None, error.one_line())
        return
    own, name = run_of(text), (system_of(text) or "mast").split()[0]
    draft = session.draft(f"{name}-{own}", f"{name}-{own}", system=name, run=own)
    session.report.records += 1
    _put_text(draft, text, "")
    yield from draft.traces()


def _run(session: Session, name: str, run: dict[str, Any]) -> Iterator[Trace]:
    draft = session.draft(f"mast/{name}", name, system="mast", run=run_of(run))
    talk, asked = _conversation(run), text_of(run.get("problem_statement"))
    if isinstance(talk, list) and any(isinstance(entry, str) for entry in talk):
        talk = "\n".join(text_of(entry) for entry in talk)
    if isinstance(talk, list):
        put_down(draft, [_turn(as_dict(entry)) for entry in talk], task=asked)
    else:
        _put_text(draft, str(talk), asked)
    if model := string(run.get("llm_name")):
        draft.meta[MODELS] = [model]
    _label(draft, run)
    draft.report.lacks[_NO_STEP] += 1
    if not any("tokens_in" in row for row in draft.rows.values()):
        draft.report.lacks["tokens"] += 1
    yield from draft.traces()


def _put_text(draft: Draft, text: str, asked: str) -> None:
    """A system's log; one that no reader knows is one message of the whole team."""
    if is_console(text[:65536].encode("utf-8", "replace")):
        put_blocks(draft, blocks_of(text.splitlines(keepends=True)))
        return
    parsed = read_system(text)
    if parsed is None:
        draft.report.unknown["a log of a system we do not know: kept as one message"] += 1
        put_down(draft, [Turn("team", text)], task=asked)
        return
    put_down(draft, parsed.turns, task=asked or parsed.task)
    if parsed.left_out:
        draft.meta["left_out"] = dict(parsed.left_out)


def _label(draft: Draft, run: dict[str, Any]) -> None:
    note = as_dict(run.get("note"))
    labels = {"note": note.get("text"), "other_data": run.get("other_data"), "annotations": run.get("annotations")}
    draft.meta["labels"] = {key: value for key, value in labels.items() if value}
    modes = {**as_dict(note.get("options")), **as_dict(run.get("mast_annotation"))}
    for mode, answer in modes.items():
        verdict = _ANSWERS.get(str(answer).strip().lower())
        if verdict is None:
            draft.report.lacks["a yes or no to some failure modes"] += 1
        else:
            draft.metrics[f"failure: {mode}"] = verdict
    for row in map(as_dict, as_list(run.get("annotations"))):
        votes = [v for key, v in row.items() if key.startswith("annotator") and isinstance(v, bool)]
        if votes and (mode := text_of(row.get("failure mode")).strip()):
            draft.metrics[f"failure: {mode.splitlines()[0].strip()}"] = sum(votes) / len(votes)
    correct = as_dict(run.get("other_data")).get("correct")
    correct = float(correct) if isinstance(correct, bool) else number(correct)
    if correct in (0.0, 1.0):
        draft.rewards["team"] = correct


def _turn(entry: dict[str, Any]) -> Turn:
    return Turn(string(entry.get("name")) or string(entry.get("role")) or "unnamed", text_of(entry.get("content")))


mast = Importer(
    suffixes=(".mast.json",),
    sniff=_sniff,
    signs=("instance_id", "problem_statement", "trajectory", "note"),
    system="mast",
    read_session=_read,
    becomes={
        "trajectory": ("message", "tool_call", "tool_result", "human_intervention", "orchestrator_decision", "return"),
        "problem_statement": ("human_intervention",),
        "note": ("metrics", "meta"),
        "other_data": ("rewards", "meta"),
    },
    versions="all three sets",
    exact="speakers, labels",
    lost="call ids, the step of a failure, most times and tokens",
)
"""Runs of MAST."""
