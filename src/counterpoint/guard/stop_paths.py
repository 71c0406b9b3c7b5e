"""What a stop trainer learns from: payoffs and features of episodes under forced continuation, checked once.

Always true: row t of the features was known at checkpoint t (from traces: it is read from events up to the draft of that
checkpoint, never from a reward); payoffs are finite, of shape (E, H+1), and differ between the checkpoints before the last,
for otherwise the best label would be "never" everywhere and no rule could be learned. (Source: docs/lab/research/stopping.md.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from counterpoint.errors import InputError, NotIdentified, Refused
from counterpoint.trace import Trace

FEATURES = ("round", "evidence", "last_gain", "quiet_rounds", "drop")
"""Rounds so far; evidence (items found, margin of votes, level of the draft); its last change; rounds since it last rose; how far
it is below its best so far."""
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


class HasPaths(Protocol):
    """Anything with payoffs (E, H+1) and features (E, H+1, F): `world.paths(seeds)`, or `StopPaths`."""

    @property
    def payoffs(self) -> np.ndarray:
        """Y_t: points for stopping at checkpoint t."""

    @property
    def features(self) -> np.ndarray:
        """What was known at checkpoint t."""


@dataclass(frozen=True, kw_only=True)
class StopPaths:
    """Episodes to learn a stop rule from."""

    payoffs: np.ndarray
    """(E, H+1) Y_t."""
    features: np.ndarray
    """(E, H+1, F) what was known."""
    names: tuple[str, ...] = ()
    """The F columns."""
    about: dict[str, Any] = field(default_factory=dict)
    """Whose episodes these are: world, version, config and policy, where the traces say it."""


def checked(paths: HasPaths, *, least: int = 6) -> StopPaths:
    """The paths as float arrays, or one clear error."""
    y, x = np.asarray(paths.payoffs, np.float64), np.asarray(paths.features, np.float64)
    if y.ndim != 2 or x.ndim != 3 or x.shape[:2] != y.shape:
        raise InputError(f"payoffs of shape {y.shape} and features of shape {x.shape}", fix="(E, H+1) and (E, H+1, F)")
    if y.shape[1] < 2:
        raise InputError(
            "there is one checkpoint, so there is nothing to decide", fix="score the draft at two checkpoints or more"
        )
    if len(y) < least:
        raise InputError(f"{len(y)} traces are too few to learn from", fix=f"give {least} or more")
    for name, values in (("payoffs", y), ("features", x)):
        if not np.isfinite(values).all():
            e, t = (int(i[0]) for i in np.nonzero(~np.isfinite(values))[:2])
            raise InputError(f"{name} hold a NaN or infinite value", where=f"trace {e}, checkpoint {t}")
    if y.shape[1] > 2 and np.ptp(y[:, :-1]) < 1e-12 * max(1.0, np.abs(y).max()):
        reason = "no payoff before the last checkpoint differs from another, so the labels degenerate to never"
        raise NotIdentified(reason, "score the drafts in between, or stop by a cap")
    names = tuple(getattr(paths, "names", ())) or tuple(f"x{j}" for j in range(x.shape[2]))
    return StopPaths(payoffs=y, features=x, names=names, about=dict(getattr(paths, "about", {})))


def subset(paths: StopPaths, rows: np.ndarray) -> StopPaths:
    """Some of the traces."""
    return StopPaths(payoffs=paths.payoffs[rows], features=paths.features[rows], names=paths.names, about=paths.about)


def payoffs(trace: Trace) -> np.ndarray:
    """(checkpoints,) Y_t of a forced-continuation trace from any source: `reward["draft"]` of its aggregates, by time."""
    if trace.meta.get("forced") is False:
        raise Refused(
            f"the policy stopped trace {trace.trace_id}, so later payoffs are not known", fix="record with forced continuation"
        )
    scored = [(e.t, float(e.reward["draft"])) for e in trace.events if e.type == "aggregate" and e.reward and "draft" in e.reward]
    if not scored:
        raise InputError(
            f"trace {trace.trace_id} has no scored draft", fix='an aggregate with reward {"draft": ...} per checkpoint'
        )
    return np.array([score for _, score in sorted(scored, key=lambda pair: pair[0])])


def draft_numbers(trace: Trace) -> np.ndarray:
    """(checkpoints,) the last number in the text of each scored draft, 0 where it says none: "7 items", "ahead by 2"."""
    out = []
    for event in _drafts(trace):
        numbers = _NUMBER.findall(trace.contents.get(event.content_ref or "", ""))
        out.append(float(numbers[-1]) if numbers else 0.0)
    return np.array(out)


def from_traces(traces: Iterable[Trace], evidence: Callable[[Trace], np.ndarray] = draft_numbers) -> StopPaths:
    """Forced-continuation traces as paths, with the five features of the stopping worlds.

    `evidence` reads one number per checkpoint that was known there; round, last gain, quiet rounds and drop follow from it.
    """
    rows = list(traces)
    if not rows:
        raise InputError("no traces", fix="record some with forced continuation")
    ys = [payoffs(trace) for trace in rows]
    if len({len(y) for y in ys}) > 1:
        short, long = min(len(y) for y in ys), max(len(y) for y in ys)
        raise InputError(f"traces have {short} to {long} checkpoints", fix="one horizon for all traces of a rule")
    columns = []
    for trace, y in zip(rows, ys, strict=True):
        numbers = np.asarray(evidence(trace), np.float64)
        if numbers.shape != y.shape:
            raise InputError(
                f"{numbers.shape} numbers of evidence for {len(y)} checkpoints",
                where=trace.trace_id,
                fix="one row of evidence per checkpoint",
            )
        columns.append(numbers)
    values = np.array(columns)
    about = [_about(trace) for trace in rows]
    if any(a != about[0] for a in about):
        raise Refused("the traces are of different worlds, versions or policies", fix="one rule for each: stop values do not mix")
    return StopPaths(payoffs=np.array(ys), features=features_of(values), names=FEATURES, about=about[0])


def _about(trace: Trace) -> dict[str, Any]:
    return {key: trace.meta[key] for key in ("world", "version", "config", "policy") if key in trace.meta}


def _drafts(trace: Trace) -> list[Any]:
    scored = [e for e in trace.events if e.type == "aggregate" and e.reward and "draft" in e.reward]
    return sorted(scored, key=lambda e: e.t)


def features_of(values: np.ndarray) -> np.ndarray:
    """(E, H+1, 5) round, evidence, last gain, quiet rounds, drop: cumulative, so no column looks ahead."""
    rounds = np.broadcast_to(np.arange(values.shape[1], dtype=float), values.shape)
    change = np.diff(values, axis=1, prepend=0.0)
    last_rise = np.maximum.accumulate(np.where(change > 0, rounds, 0), axis=1)
    drop = np.maximum.accumulate(values, axis=1) - values
    return np.stack([rounds, values, change, rounds - last_rise, drop], axis=-1)
