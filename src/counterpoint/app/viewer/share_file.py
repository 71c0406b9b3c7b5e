"""A trace, or a part of it, as a file to hand over: for `counterpoint export --to html` and for the page's Share.

Always true: secrets are masked unless asked otherwise, also in the notes that say what was taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from counterpoint.app.viewer.excerpt import part
from counterpoint.app.viewer.one_file import OneFile, one_file
from counterpoint.formats.masking import MaskedTraces, mask, masked_all
from counterpoint.trace import Trace


class SharedFile(NamedTuple):
    """A file, what was masked in it (None: masking was off), the ids of its traces, and what the reader should know."""

    file: OneFile
    masked: MaskedTraces | None
    ids: list[str]
    notes: list[str]


def share_file(
    traces: Sequence[Trace],
    *,
    agents: Sequence[str] = (),
    window: tuple[float, float] | None = None,
    is_summary: bool = False,
    is_bare: bool = False,
    is_personal: bool = False,
) -> SharedFile:
    """The traces, cut to some agents and all below them or to a window of seconds, in one page."""
    taken, notes = list(traces), []
    if agents or window:
        cut = [part(trace, agents=agents, window=window) for trace in taken]
        taken, notes = [trace for trace, _ in cut], [said for _, said in cut]
    done = None if is_bare else masked_all(taken, is_personal=is_personal)
    if done is not None:  # a note names the agents that were asked for
        taken, notes = list(done.traces), [mask(note, is_personal=is_personal)[0] for note in notes]
    notes += ["a summary: texts and fields of events are not in this file"] if is_summary else []
    made = one_file(taken, masked=None if done is None else done.by_kind, is_summary=is_summary, notes=notes)
    return SharedFile(made, done, [trace.trace_id for trace in taken], notes)
