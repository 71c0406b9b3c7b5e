"""What was decided on items in a round: its log-probabilities, and its rows in the record.

Always true: a row that was not reached (nobody was free for it) has no row in the record and no probability; candidates point
to the row of their item in the record's item table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoint.train.policies import features as f
from counterpoint.train.policies.pointing import Pointed
from counterpoint.train.policies.record import Record


@dataclass(frozen=True)
class Decided:
    """Over the item rows of a round; `brief`, `brief_logp` and `pointed` are over those that go."""

    rows: f.Rows
    mask: np.ndarray
    reached: np.ndarray
    purpose: np.ndarray
    purpose_logp: np.ndarray
    go: np.ndarray
    """Places of the rows that go."""
    pointed: Pointed
    brief: np.ndarray
    brief_logp: np.ndarray

    @property
    def own(self) -> np.ndarray:
        """Log-probability of each row's purpose."""
        return np.take_along_axis(self.purpose_logp, self.purpose[:, None], axis=1)[:, 0]

    @property
    def said(self) -> np.ndarray:
        """Log-probability of each brief."""
        return np.take_along_axis(self.brief_logp, self.brief[:, None], axis=1)[:, 0]

    def add_logp(self, logp: np.ndarray) -> None:
        """Add to the (E, 5) log-probabilities of the action: whom (2) and what is said (3)."""
        ep, episodes = self.rows.ep, len(logp)
        logp[:, 2] += np.bincount(ep[self.reached], self.own[self.reached], episodes)
        logp[:, 2] += np.bincount(ep[self.go], self.pointed.logp, episodes)
        logp[:, 3] += np.bincount(ep[self.go], self.said, episodes)

    def note(self, record: Record, now: int) -> None:
        """Write the round's rows."""
        rows, go, pointed, n = self.rows, self.go, self.pointed, len(self.rows)
        at = np.flatnonzero(self.reached)
        spread = {"agent": np.full(n, -1), "brief": np.zeros(n, np.int64), "brief_logp": np.zeros(n), "point_logp": np.zeros(n)}
        for name, values in (
            ("agent", pointed.agent),
            ("brief", self.brief),
            ("brief_logp", self.said),
            ("point_logp", pointed.logp),
        ):
            spread[name][go] = values
        spread["agent_x"], spread["pair_x"] = np.zeros((n, f.AGENT), np.float32), np.zeros((n, f.PAIR), np.float32)
        mine = go[pointed.row[pointed.picked]]
        spread["agent_x"][mine], spread["pair_x"][mine] = pointed.agent_x[pointed.picked], pointed.pair_x[pointed.picked]
        spread |= {"item": rows.item, "copy": rows.copy, "x": rows.x, "mask": self.mask, "choice": self.purpose, "logp": self.own}
        first = record.count("item")
        record.add("item", ep=rows.ep[at], round=now, **{name: column[at] for name, column in spread.items()})
        where = np.full(n, -1)
        where[at] = first + np.arange(len(at))
        if len(pointed.row):
            candidates = {"agent_x": pointed.agent_x, "pair_x": pointed.pair_x, "picked": pointed.picked}
            record.add("candidate", ep=rows.ep[go][pointed.row], round=now, row=where[go][pointed.row], **candidates)
