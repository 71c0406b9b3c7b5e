"""Runs of a team with a ledger, written by hand: fourteen ways to fail, in topics and words of our own, each with its label.

`ledger_runs.jsonl` has them in short: plans, rounds (a ledger, an instruction, an answer) and ends. They are put out as
Magentic-One (Fourney et al., arXiv 2411.04468) is logged in Who&When, and read by its importer. Who wrote them had seen labels of
that set, so they are no test of anything; a ranker learns from them beside the few labelled runs.

Always true: the same files, byte for byte; nothing of Who&When is in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

import counterpoint.registry as registry
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.trace import Trace

_TEAM = (
    "Assistant: A general AI assistant with Python skills.\nComputerTerminal: runs Python and shell scripts.\n"
    "FileSurfer: reads local files.\nWebSurfer: can open web pages."
)
_LEADER = "Orchestrator"
_REASONS = ("Not answered yet.", "No repetition.", "We move forward.")


def written_runs() -> Iterator[Trace]:
    """Every run, with its label in `extra`, `metrics` and `meta` as the importer puts it."""
    for name, data in written_files().items():
        yield from registry.get("format", "who_and_when").read_session(Session(name, [File.of(data)]))


@cache
def written_files() -> dict[str, bytes]:
    """Every run as a file of Who&When, by its name."""
    lines = files("counterpoint.lab.bench.expert_chat").joinpath("ledger_runs.jsonl").read_bytes().splitlines()
    rows = [msgspec.json.decode(line) for line in lines]
    return {row["name"]: json.dumps(_logged(row)).encode() for row in rows}


def _logged(row: dict[str, Any]) -> dict[str, Any]:
    history = [{"role": "human", "content": row["question"] + "\n"}]
    rounds = 0
    for kind, *words in row["run"]:
        for role, text in _entries(kind, words, row["question"], len(history)):
            history.append({"role": role, "content": text})
        if kind == "ask":
            if rounds and row["announces"]:
                history.append({"role": f"{_LEADER} (thought)", "content": f"Next speaker {words[0]}"})
            rounds += 1
    label = {"mistake_agent": row["agent"], "mistake_step": str(row["step"]), "mistake_reason": row["why"]}
    about = {"question": row["question"], "question_ID": row["name"], "ground_truth": row["answer"], "is_corrected": False}
    return {"history": history, **about, **label}


def _entries(kind: str, words: list[Any], question: str, place: int) -> Iterator[tuple[str, str]]:
    """The entries of the log that a line of the short form stands for."""
    thought = f"{_LEADER} (thought)"
    if kind in ("plan", "new plan"):
        if kind == "new plan":
            yield thought, "Stalled.... Replanning..."
        head = "Initial plan" if kind == "plan" else "New plan"
        asked = f"{head}:\n\nWe are working to address the following user request:\n\n{question}\n\n\n"
        team = f"To answer this request we have assembled the following team:\n\n{_TEAM}\n\n\n\n"
        facts = f"Here is an initial fact sheet to consider:\n\n{words[0]}\n\n\n"
        yield thought, f"{asked}{team}{facts}Here is the plan to follow as best as possible:\n\n{words[1]}"
    elif kind == "page":
        did, title, text = words
        seen = f"Here is a screenshot of [{title}](https://example.org/{place}). The viewport shows 40% of the webpage, and is"
        found = (
            'positioned at the top of the page.\nThe following metadata was extracted from the webpage:\n\n{"meta_tags": {}}\n'
        )
        text = f"Automatic OCR of the page screenshot has detected the following text:\n\n{text}\n<Image>"
        yield "WebSurfer", f"{did}\n\n{seen} {found}{text}"
    elif kind == "say":
        yield words[0], words[1]
    elif kind == "end":
        yield thought, _ledger("Assistant", words[1], ["The request is answered.", "No loop.", "Done."], is_done=True)
        yield thought, "Request satisfied."
        yield f"{_LEADER} (termination condition)", f"No agent selected.\nFINAL ANSWER: {words[0]}\nSCENARIO.PY COMPLETE !#!#"
    else:
        who, text, *marks = words
        reasons = next((mark for mark in marks if isinstance(mark, list)), _REASONS)
        yield thought, _ledger(who, text, reasons, is_loop="loop" in marks, has_progress="stuck" not in marks)
        if kind == "ask":
            yield f"{_LEADER} (-> {who})", text


def _ledger(who: str, text: str, reasons: Any, *, is_done: bool = False, is_loop: bool = False, has_progress: bool = True) -> str:
    asked = {
        "is_request_satisfied": (reasons[0], is_done),
        "is_in_loop": (reasons[1], is_loop),
        "is_progress_being_made": (reasons[2], has_progress),
        "next_speaker": ("Best suited.", who),
        "instruction_or_question": ("Next.", text),
    }
    return "Updated Ledger:\n" + json.dumps(
        {key: {"reason": why, "answer": said} for key, (why, said) in asked.items()}, indent=2
    )
