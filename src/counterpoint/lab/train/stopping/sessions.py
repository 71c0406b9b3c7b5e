"""A stop rule learned from sessions that are over: work is cut into stretches, and stretches into rounds.

Always true: what is learned at a round does not look at later ones; the rule advises a running session (`guard.advice`), and
refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from counterpoint.errors import InputError
from counterpoint.guard.advice import rounds_of
from counterpoint.guard.stop_paths import StopPaths, features_of
from counterpoint.lab.train.stopping.choice import stacked

if TYPE_CHECKING:
    from counterpoint.guard.reader import SessionReader
    from counterpoint.guard.stop_rule import Rule

_LEAST_ROUNDS, _MOST_ROUNDS = 2, 48


def rule_of_sessions(sessions: Iterable[tuple[SessionReader, str]], *, minutes: float, cost: float, seed: int = 0) -> Rule:
    """A stop rule from sessions that are over: for each a reader that has read nothing, and its transcript."""
    work = [stretch for reader, transcript in sessions for stretch in stretches(reader, transcript)]
    return learn(work, minutes=minutes, cost=cost, seed=seed)


def stretches(reader: SessionReader, transcript: str) -> list[tuple[float, float, list[float]]]:
    """Begin, end and gains of the work after each thing that a person said, in a session that is over."""
    out: list[tuple[float, float, list[float]]] = []
    tally, begin, end, gains = reader.tally, None, 0.0, list[float]()
    for agent, record, at in reader.in_order(transcript):
        reader.take(record, agent)
        if tally.prompt_at != begin:
            if begin is not None:
                out.append((begin, end, gains))
            begin, gains = tally.prompt_at, []
        gains = list(tally.gains)
        end = max(end, at) if at is not None else end
    return [*out, (begin, end, gains)] if begin is not None else out


def learn(work: Sequence[tuple[float, float, list[float]]], *, minutes: float, cost: float, seed: int = 0) -> Rule:
    """A stop rule from stretches of work: stopping at a round pays the share of its gains made by then, less a cost per round."""
    series = [rounds_of(gains, begin, end, minutes * 60) for begin, end, gains in work if gains]
    series = [known for known in series if len(known) > _LEAST_ROUNDS]
    if len(series) < 12:
        what = f"too few stretches of work with {_LEAST_ROUNDS + 1} rounds of {minutes:g} minutes and a gain: {len(series)}"
        raise InputError(what, fix="give more sessions (12 stretches at least), or shorter rounds: --round-minutes 2")
    width = min(_MOST_ROUNDS, max(map(len, series))) + 1
    known = np.array([(row + [row[-1]] * width)[:width] for row in series], dtype=float)
    payoffs = known / np.maximum(known[:, -1:], 1) - cost * np.arange(width)
    config = {"round_minutes": minutes, "cost": cost}
    about = {"world": "sessions", "version": 1, "config": config, "policy": "recorded"}
    return stacked(StopPaths(payoffs=payoffs, features=features_of(known), about=about), seed)
