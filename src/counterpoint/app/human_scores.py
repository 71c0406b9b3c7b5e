"""Scores that people give a trace: in a store, or in a file of lines that keeps who said so.

Always true: an outcome is stored whole or not at all, with its author and time, and adds to those before it.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Sequence
from pathlib import Path

from counterpoint.app.load_save import load, names_file, opened, save, store_path
from counterpoint.errors import InputError, NotFound
from counterpoint.formats.importing.files import HEAD
from counterpoint.rewards.proposals import Proposal
from counterpoint.trace import Trace, lines
from counterpoint.trace.outcome import Outcome, with_outcomes

WORDS = {"up": 1.0, "down": 0.0}
"""A thumb as a number, in the channel `team`."""


def author() -> str:
    """Who says something here, unless told otherwise: `$COUNTERPOINT_AUTHOR`, or who is logged in."""
    return os.environ.get("COUNTERPOINT_AUTHOR") or getpass.getuser()


def parse_scores(words: Sequence[str]) -> dict[str, float]:
    """Channel to value, from `team=1`, `up` or `down`."""
    out: dict[str, float] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign and name in WORDS:
            name, value = "team", str(WORDS[name])
        try:
            out[name] = float(value)
        except ValueError:
            raise InputError(f"{word!r} is not a score", fix="NAME=NUMBER such as team=1, or up, or down") from None
    return out


def accepted(proposal: Proposal, *, by: str, note: str | None = None) -> Outcome:
    """A proposal as an outcome that somebody stands for."""
    return Outcome(channel=proposal.channel, value=proposal.value, by=by, at=time.time(), note=note, basis=proposal.basis)


def outcomes_from(scores: dict[str, float], *, by: str, note: str | None = None) -> list[Outcome]:
    """What somebody says now."""
    if not by.strip():
        raise InputError("an outcome needs an author", fix="--author NAME")
    at = time.time()
    return [Outcome(channel=name, value=value, by=by.strip(), at=at, note=note or None) for name, value in scores.items()]


def score(ref: str, given: Sequence[Outcome], *, store: str | os.PathLike[str] | None = None) -> Trace:
    """Store outcomes with a trace, by its id or in its file; the trace as it is then."""
    from counterpoint.store import Store

    folder = store_path(store)
    if folder.exists():
        with Store(folder, create=False) as opened_store:
            try:
                name = opened_store.find(ref)
            except NotFound:
                if not Path(ref).exists():
                    raise
            else:
                return opened_store.score(name, given)
    if not names_file(ref, store):
        load(ref, store=store)  # the error that says what would help
    with opened(ref) as data:
        if not lines.is_lines(bytes(data[:HEAD])):
            fix = "import it into a store, and score it there: counterpoint import FILE"
            raise InputError("this file format cannot record who scored the trace", where=ref, fix=fix)
    trace = with_outcomes(load(ref), given)
    save(trace, ref, to="jsonl")
    return trace
