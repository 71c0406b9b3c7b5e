"""A light ranker of steps: a linear score over the signals, as plain numbers; a softmax over the steps of a run.

Always true: the probabilities of a run's candidates sum to 1; a score is the same whatever the other runs are. It runs on numpy
alone. The weights that are shipped are JSON beside this file, made by `BLAME_WEIGHTS=FILE counterpoint reproduce blame-train`.

    p_k = softmax_k( sharpness * w . (x_k - mean) )      over the candidates k of one run
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from counterpoint.audits.blame.ledgers import AGENT_SIGNALS, LEDGER_SIGNALS, agent_table, has_ledger, ledger_signals
from counterpoint.audits.blame.signals import BINS, hashed, signals
from counterpoint.audits.blame.steps import Floats, Steps

WEIGHTS = "weights.json"
HASHED = tuple(f"words_{b}" for b in range(BINS))
"""The columns of hashed words."""


class Ranker(Struct, frozen=True, kw_only=True):
    """The weights."""

    names: list[str]
    """The signals, in the order of the columns; hashed words last, where they are used."""
    mean: list[float]
    weight: list[float]
    sharpness: float = 1.0
    """Fitted on held-out runs, so that the probabilities are as sure as they are right."""
    reach: float = 1.0
    """The share of a run's steps, best first, that held the labelled step in nine of ten labelled runs held out; 1 is unknown."""
    made: dict[str, Any] = {}
    """What it was trained on, for people to read."""

    def parts(self, x: Floats) -> Floats:
        """What each signal adds to the score of each row; columns are `names`."""
        return np.asarray((x - np.asarray(self.mean)) * np.asarray(self.weight), np.float64)

    def scores(self, x: Floats) -> Floats:
        """The score of each row."""
        return np.asarray((x - np.asarray(self.mean)) @ np.asarray(self.weight), np.float64)

    def probabilities(self, x: Floats) -> Floats:
        """How likely each row is the decisive one, if one of them is."""
        return softmax(self.sharpness * self.scores(x))

    def set_size(self, count: int) -> int | None:
        """How many first suspects of so many steps hold the decisive one in nine of ten runs; None where it would be all."""
        size = max(int(self.reach * count + 1e-9), 1)
        return size if size < count else None


def softmax(score: Floats) -> Floats:
    """Probabilities of scores; empty stays empty."""
    if not len(score):
        return np.zeros(0)
    out = np.exp(score - score.max())
    return np.asarray(out / out.sum(), np.float64)


def table(steps: Steps, names: list[str], more: Mapping[str, Floats] | None = None) -> Floats:
    """The columns that a ranker reads, of every candidate; a signal that this trace does not give is 0."""
    columns = dict(more or {})
    if any(name in LEDGER_SIGNALS for name in names):
        columns |= ledger_signals(steps)
    if not set(names) <= columns.keys():
        columns = signals(steps) | columns
    if any(name in HASHED for name in names):
        words = hashed(steps)
        columns |= {name: words[:, b] for b, name in enumerate(HASHED)}
    nothing = np.zeros(len(steps))
    return np.stack([columns.get(name, nothing) for name in names], axis=1) if names else np.zeros((len(steps), 0))


SHAPES = ("panel", "led", "ledger")
"""The teams that rankers are made for: all just speak, somebody decides for the others, or does so and keeps a ledger."""
AGENTS = "ledger_agents"
"""The ranker of the agents of a team with a ledger."""


def shape_of(steps: Steps) -> str:
    """`ledger` where an orchestrator keeps a ledger, `led` where one decides without, else `panel`."""
    events = steps.trace.events
    if has_ledger(steps):
        return "ledger"
    return "led" if any(events[i].type in ("orchestrator_decision", "spawn") for i in steps.places) else "panel"


@cache
def _weights() -> dict[str, Ranker]:
    text = files("counterpoint.audits.blame").joinpath(WEIGHTS).read_bytes()
    return msgspec.json.decode(text, type=dict[str, Ranker])


def shipped(shape: str) -> Ranker:
    """The ranker that comes with the package for a shape of team."""
    return _weights()[shape]


def agent_shares(steps: Steps, ranker: Ranker) -> dict[str, float]:
    """The share of each agent of a team with a ledger, by a ranker of agents."""
    agents, x = agent_table(steps)
    return dict(
        zip(agents, ranker.probabilities(x[:, [AGENT_SIGNALS.index(name) for name in ranker.names]]).tolist(), strict=True)
    )
