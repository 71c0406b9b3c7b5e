"""Direct preference optimisation: of two rollouts, turns or steps the better becomes likelier than the worse.

    loss = -log sigmoid(beta [(log pi/ref)(better) - (log pi/ref)(worse)]),    log pi of a unit: the sum over its decisions

Always true: the reference is the network as it is when preferences begin, after `first` of the run was spent on imitating what
is good (`sft`); a batch without pairs changes nothing. Pairs are those in the credit's notes (`malt`: a right and a wrong step
after the same words; any mechanism with "pairs" in its notes), or (`task`) whole rollouts of one task: the best with the worst,
the second with the second to last, as far as their credit differs.

DPO arXiv 2305.18290; pairs as in MALT arXiv 2412.01928; SFT first as in MALT and OWL arXiv 2505.23885.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.train.learner import TYPES, finite, log_probs, rows_of
from counterpoint.lab.train.loss import Learner, Loss
from counterpoint.lab.train.losses.sft import Options as Imitation
from counterpoint.lab.train.losses.sft import imitate
from counterpoint.lab.train.objectives import dpo_loss
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.surrogates import Reference
from counterpoint.options import Positive, PositiveInt, Share
from counterpoint.trace import Trace
from counterpoint.trace.keys import parse_key
from counterpoint.trace.rows import Credit

_PAIRS = ("task", "notes")
_STEPS = 8  # on all pairs of the batch, per update
_MAX_NORM = 1.0  # of the gradient
_OF_DECISION = {
    "stop": ("stop",), "spawn": ("spawn", "size"), "delegate": ("item", "point"), "communicate": ("brief", "talk"),
    "aggregate": ("rule",),
}  # fmt: skip
_TABLE = {"brief": "item", "point": "item", "size": "spawn"}
Unit = tuple[int, int | None, str | None]
"""A unit of an episode: (episode, round or None for all, event id or None for all that was decided there)."""


@dataclass(frozen=True)
class Options:
    """How preferences are learned."""

    beta: Positive = 0.1
    """How far the policy may go from the reference: small is far."""
    pairs: str = "task"
    """`task`: whole rollouts of a task; `notes`: those that the credit mechanism notes."""
    first: Share = 0.0
    """Share of the run in which what is good is imitated, before preferences are learned."""
    above: float = 0.0
    """The bar for that, as in `sft`."""
    most: PositiveInt = 64
    """Pairs per update, at most; which ones is drawn."""
    skips: tuple[str, ...] = ()
    """Decision types that pairs say nothing about: ("item",) where both steps were made, and only how they were made differs."""

    def __post_init__(self) -> None:
        if self.pairs not in _PAIRS:
            raise InputError(f"option pairs is {self.pairs!r}", fix=did_you_mean(self.pairs, _PAIRS))
        for name in self.skips:
            if name not in TYPES:
                raise InputError(f"option skips names {name!r}", fix=did_you_mean(name, TYPES))


def task_pairs(value_E: np.ndarray, task_E: np.ndarray) -> list[tuple[int, int]]:
    """(better, worse) episodes of each task: the best with the worst, and so on inwards, where their values differ."""
    out = []
    for task in np.unique(task_E):
        order = np.flatnonzero(task_E == task)
        order = order[np.argsort(-value_E[order], kind="stable")]
        ends = [(int(a), int(b)) for a, b in zip(order, order[::-1], strict=True)]
        out += [(a, b) for a, b in ends[: len(order) // 2] if value_E[a] > value_E[b]]
    return out


def noted_pairs(credit: Credit, traces: Sequence[Trace]) -> list[tuple[Unit, Unit]]:
    """The pairs in a credit's notes: "trace_id unit_id", of a turn ("agent#turn") or an event."""
    if "pairs" not in credit.notes:
        fix = 'a mechanism that notes pairs, such as malt, or pairs="task"'
        raise InputError(f"credit {credit.mechanism} notes no pairs", fix=fix)
    place = {t.trace_id: i for i, t in enumerate(traces)}

    def unit(name: str) -> Unit:
        trace_id, _, unit_id = name.rpartition(" ")
        ep = place[trace_id]
        if "#" in unit_id:
            return ep, int(unit_id.rsplit("#", 1)[1]), None
        return ep, traces[ep].events[traces[ep].index[unit_id]].turn, unit_id

    return [(unit(a), unit(b)) for a, b in credit.notes["pairs"]]


def unit_rows(out: Rollout, unit: Unit, traces: Sequence[Trace], types: Collection[str]) -> dict[str, np.ndarray]:
    """Rows of a unit's decisions, by type."""
    ep, now, event_id = unit
    found: dict[str, np.ndarray] = {}
    item, slot = -1, -1
    if event_id is not None:
        event = traces[ep].events[traces[ep].index[event_id]]
        key = parse_key(event.key)
        if event.type == "orchestrator_decision":
            types = [t for t in _OF_DECISION[str((event.extra or {})["sub_decision"])] if t in types]
        elif event.type == "aggregate":
            types = [t for t in ("rule",) if t in types]
        elif key is not None and key.about:
            types = [t for t in ("item", "brief", "point", "worker") if t in types]
            item, slot = key.about[0], _slot(traces[ep], key.who)
    for name in types:
        t = out.tables[_TABLE.get(name, name)]
        own = (t["ep"] == ep) & (True if now is None else t["round"] == now)
        own &= (t["item"] == item) & (t["agent"] == slot) if item >= 0 else True
        if own.any():
            found[name] = np.flatnonzero(own)
    return found


def _slot(trace: Trace, name: str) -> int:
    return next((e.extra["slot"] for e in trace.events if e.type == "spawn" and e.to == name and e.extra), 0)


class _Sums:
    """Log-probabilities of units as sums over rows, for all units at once."""

    def __init__(self, out: Rollout, units: Sequence[Unit], traces: Sequence[Trace], counted: Mapping[str, np.ndarray]) -> None:
        self.units = len(units)
        self.places: dict[str, tuple[Tensor, Tensor]] = {}
        for name, mask in counted.items():
            rows = [unit_rows(out, u, traces, [name]).get(name, np.zeros(0, np.int64)) for u in units]
            rows = [r[mask[r]] for r in rows]
            code = np.repeat(np.arange(len(units)), [len(r) for r in rows])
            if len(code):
                self.places[name] = (torch.from_numpy(np.concatenate(rows)), torch.from_numpy(code))

    def __call__(self, logp: Mapping[str, Tensor]) -> Tensor:
        total = torch.zeros(self.units)
        for name, (rows, code) in self.places.items():
            own = logp[name][rows]
            total = total.index_add(0, code, own if own.ndim == 1 else own.sum(-1))
        return total


def _learn(learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace]) -> dict[str, float]:
    advantages, stats = learner.advantages(out, traces)
    assert isinstance(learner.module, Reference)
    if learner.progress < o.first:
        return stats | imitate(learner, out, advantages, Imitation(above=o.above, steps=_STEPS))
    if learner.credit is None:
        raise InputError("preferences are of traces, and this credit reads none", fix="a credit mechanism that reads traces")
    if o.pairs == "notes":
        pairs = noted_pairs(learner.credit, traces)
    else:
        value, place = np.zeros(len(traces)), {t.trace_id: i for i, t in enumerate(traces)}
        for row in learner.credit.rows:
            value[place[learner.credit.trace_ids[row.trace]]] += row.value if row.unit == "team" else 0.0
        pairs = [((a, None, None), (b, None, None)) for a, b in task_pairs(value, out.seeds)]
    if len(pairs) > o.most:
        pairs = [pairs[i] for i in sorted(learner.rng(6).choice(len(pairs), o.most, replace=False).tolist())]
    if not pairs:
        return stats | {"loss": 0.0, "pairs": 0.0}
    return stats | _prefer(learner, o, out, traces, pairs, advantages)


def _prefer(
    learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace], pairs: Sequence[tuple[Unit, Unit]],
    advantages: Mapping[str, np.ndarray],
) -> dict[str, float]:  # fmt: skip
    assert isinstance(learner.module, Reference)
    counted: dict[str, np.ndarray] = {}
    for name, r in rows_of(out.tables, advantages, scale=False).items():  # decisions that count, of types that learn
        if name in o.skips:
            continue
        counted[name] = np.zeros(len(out.tables[_TABLE.get(name, name)]["ep"]), np.bool_)
        counted[name][r.at] = True
    units = sorted({u for pair in pairs for u in pair}, key=str)
    place = {u: i for i, u in enumerate(units)}
    better, worse = (torch.tensor([place[pair[i]] for pair in pairs]) for i in (0, 1))
    sums = _Sums(out, units, traces, counted)
    with torch.no_grad():
        ref = sums(log_probs(learner.module.network(learner.net), out.tables)[0])
    for _ in range(_STEPS):
        now = sums(log_probs(learner.net, out.tables)[0])
        loss = dpo_loss(now[better], ref[better], now[worse], ref[worse], o.beta).mean()
        learner.policy.zero_grad()
        finite(loss, "preference").backward()
        torch.nn.utils.clip_grad_norm_(learner.net.policy_parameters(), _MAX_NORM)
        learner.policy.step()
    return {"loss": float(loss.detach()), "pairs": float(len(pairs))}


dpo = Loss(source="DPO, arXiv 2305.18290; MALT, arXiv 2412.01928", takes=Options, learn=_learn, module=Reference)
