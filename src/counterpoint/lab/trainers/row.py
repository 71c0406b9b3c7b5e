"""The row that every trainer gets: one model call that a policy can learn from, checked.

Always true: a row has token ids, an advantage for each token of its answer, and as many of everything as the answer has tokens;
calls that cannot have that are counted with the reason, never dropped silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.credits.call_rows import CallRow, CallRows
from counterpoint.errors import InputError, did_you_mean

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SECRET = "that read or wrote a secret (--mask off keeps them)"
WITHOUT_LOGPS = "without log-probabilities, which this trainer learns from"
TOLERANCE = 1e-6
"""The most that a number may differ after it went through a trainer's own types."""


@dataclass(frozen=True, eq=False)
class TrainingRow:
    """One model call: what was read and written, how likely that was, what each token earned, and whose it is."""

    trace_id: str
    event_id: str
    agent: str
    role: str | None
    model: str | None
    policy: str
    """Which learner the row is for: the adapter that spoke, or else the model."""
    version: str | None
    """The weights that spoke."""
    group: str
    """The task: its runs were compared with each other."""
    prompt_ids: Ints
    completion_ids: Ints
    mask: Ints
    """1 for each token of the answer that teaches."""
    logps: Floats | None
    """Of each token of the answer, under what it was sampled from; None where the model told none."""
    advantages: Floats
    """Of each token of the answer."""
    advantage: float
    """Of the whole call: what each token has, or their sum where the credit is by token."""
    level: str
    """Where the advantage comes from: token, event, turn, agent, role or team."""
    share: float
    """The part of the credit that the call stands for."""

    @property
    def name(self) -> str:
        """Which call it is, for messages."""
        return f"{self.trace_id} {self.event_id}"

    def about(self) -> dict[str, Any]:
        """What a trainer keeps beside the numbers, so that a row can be traced back to its call."""
        names = ("trace_id", "event_id", "agent", "role", "model", "policy", "version", "group", "advantage", "level")
        return {name: getattr(self, name) for name in names} | {"share": self.share}


class LearnableRows(NamedTuple):
    """The rows of calls that can be learned from, and how many calls are left out for which reason."""

    rows: list[TrainingRow]
    left_out: Counter[str]


def training_rows(calls: CallRows, secret: Collection[tuple[int, str]] = ()) -> LearnableRows:
    """The calls that a policy can learn from; `secret` names those (place of the trace, event) that must not leave."""
    rows: list[TrainingRow] = []
    left_out: Counter[str] = Counter()
    for i, call in enumerate(calls.rows):
        prompt, answer, advantages = calls.prompt_ids(i), call.token_ids, call.token_advantages
        if answer is None or prompt is None:
            left_out["without token ids"] += 1
        elif (call.trace, call.event) in secret:
            left_out[SECRET] += 1
        elif not call.sampled:
            left_out["whose answer was put there"] += 1
        elif call.advantage is None or advantages is None or call.level is None:
            left_out["without an advantage"] += 1
        elif not len(answer):
            left_out["that wrote nothing"] += 1
        else:
            mask = np.ones(len(answer), np.int64)
            row = TrainingRow(
                calls.trace_ids[call.trace], call.event, call.agent, call.role, call.model, policy_of(call), call.version,
                call.group, prompt, answer, mask, call.logps, advantages, call.advantage, call.level, call.share,
            )  # fmt: skip
            check_row(row)
            rows.append(row)
    return LearnableRows(rows, left_out)


def check_row(row: TrainingRow) -> None:
    """Refuse what a trainer would cut, pad, zero or turn into a loss that is no number."""
    n = len(row.completion_ids)
    for name in ("logps", "advantages", "mask"):
        values = getattr(row, name)
        if values is not None and len(values) != n:
            raise InputError(f"{len(values)} {name} for {n} tokens", where=row.name, fix="record one for each token")
    for name in ("logps", "advantages"):
        values = getattr(row, name)
        if values is not None and not np.isfinite(values).all():
            raise InputError(f"{name} are NaN or infinite", where=row.name, fix="leave this trace out, or correct its credit")
    if n and min(row.completion_ids.min(), row.prompt_ids.min(initial=0)) < 0:
        raise InputError("a token id below 0", where=row.name, fix="token ids count from 0")


# -- whose rows ----------------------------------------------------------------------------------------------------------


def policy_of(call: CallRow) -> str:
    """Which learner a call is for: its adapter, or else its model."""
    has_adapter = call.policy is not None and call.policy != call.version
    return (call.policy if has_adapter else call.model) or "policy"


def by_policy(rows: Iterable[TrainingRow]) -> dict[str, list[TrainingRow]]:
    """The rows of each policy, in their order."""
    groups: dict[str, list[TrainingRow]] = {}
    for row in rows:
        groups.setdefault(row.policy, []).append(row)
    return groups


def only_policy(rows: Sequence[TrainingRow], policy: str | None = None) -> list[TrainingRow]:
    """The rows of the policy that is named, or of the only one there is: one learner must not learn from another's rows."""
    groups = by_policy(rows)
    if policy is not None:
        if policy not in groups:
            raise InputError(f"no rows of the policy {policy!r}", fix=did_you_mean(policy, groups))
        return groups[policy]
    if len(groups) > 1:
        counts = ", ".join(f"{name} ({len(some)})" for name, some in groups.items())
        raise InputError(f"rows of {len(groups)} policies: {counts}", why="one learner would learn from what another said",
                         fix="name one of them as the policy, or write a folder: a file for each")  # fmt: skip
    return list(rows)


def group_numbers(rows: Sequence[TrainingRow]) -> list[int]:
    """Each row's group as a number, counted from 0 in the order in which they first come."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(row.group, len(numbers)) for row in rows]


def version_number(row: TrainingRow) -> int | None:
    """The version as a number, for trainers that count weights; None where it is none."""
    text = row.version or ""
    return int(text) if text.isascii() and text.isdecimal() else None


# -- as a table ----------------------------------------------------------------------------------------------------------

COLUMNS = {
    "prompt_ids": "list:int64", "completion_ids": "list:int64", "completion_mask": "list:int64", "logprobs": "list:double",
    "advantages": "list:double", "policy": "string", "version": "string", "group": "string", "trace_id": "string",
    "event_id": "string", "agent": "string", "role": "string", "model": "string", "advantage": "double", "level": "string",
    "share": "double",
}  # fmt: skip
"""The columns of a file of rows, by the names that trainers use."""


def as_record(row: TrainingRow) -> dict[str, Any]:
    """A row as a line of a table."""
    return {
        "prompt_ids": row.prompt_ids.tolist(),
        "completion_ids": row.completion_ids.tolist(),
        "completion_mask": row.mask.tolist(),
        "logprobs": None if row.logps is None else row.logps.tolist(),
        "advantages": row.advantages.tolist(),
        **row.about(),
    }


def of_record(record: Mapping[str, Any], where: str = "") -> TrainingRow:
    """A row from a line of a table, checked."""
    missing = [name for name in COLUMNS if name not in record]
    if missing:
        raise InputError(f"no column {missing[0]!r}", where=where or None, fix="a file of `counterpoint export --to trl`")
    about = {name: record[name] for name in ("trace_id", "event_id", "agent", "role", "model", "policy", "version", "group")}
    logps = record["logprobs"]
    row = TrainingRow(
        **about,
        prompt_ids=np.asarray(record["prompt_ids"], np.int64),
        completion_ids=np.asarray(record["completion_ids"], np.int64),
        mask=np.asarray(record["completion_mask"], np.int64),
        logps=None if logps is None else np.asarray(logps, np.float64),
        advantages=np.asarray(record["advantages"], np.float64),
        advantage=float(record["advantage"]),
        level=record["level"],
        share=float(record["share"]),
    )
    check_row(row)
    return row


# -- what a trainer would change without saying so -----------------------------------------------------------------------


def as_float32(values: Floats, name: str, where: str) -> NDArray[np.float32]:
    """The numbers as a trainer keeps them; refused where that changes one by more than 1e-6."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    if not np.allclose(rounded, values, rtol=0, atol=TOLERANCE):
        worst = float(np.abs(values).max())
        what = f"{name} of the size {worst:.6g} are rounded by more than {TOLERANCE:g} in float32"
        raise InputError(what, where=where, fix="a credit of smaller numbers: one that is normalised, such as group_relative")
    return rounded


def logps_of(row: TrainingRow, trainer: str) -> Floats:
    """The row's log-probabilities; a trainer that needs them would take zeros, which are those of certain tokens."""
    if row.logps is None:
        fix = "play with a model that returns them: local:NAME, or openai:NAME at vLLM or SGLang with --model-set token_ids=true"
        raise InputError(f"no log-probabilities, and {trainer} learns from them", where=row.name, fix=fix)
    return row.logps


def check_same(ours: Sequence[TrainingRow], theirs: Sequence[TrainingRow], trainer: str) -> None:
    """Refuse what came back from a trainer's form in another order, shorter, or with other numbers."""
    if len(ours) != len(theirs):
        raise InputError(f"{len(theirs)} rows came back of {len(ours)}", where=trainer, fix="a bug of the adapter; report it")
    for own, other in zip(ours, theirs, strict=True):
        changed = _changed(own, other)
        if changed:
            what = f"{trainer} changed {changed}"
            raise InputError(what, where=own.name, fix="a bug of the adapter, or another version of the trainer; report it")


def _changed(own: TrainingRow, other: TrainingRow) -> str | None:
    for name, value in own.about().items():
        if getattr(other, name) != value:
            return name
    for name in ("prompt_ids", "completion_ids", "mask"):
        if not np.array_equal(getattr(own, name), getattr(other, name)):
            return name
    for name in ("logps", "advantages"):
        a, b = getattr(own, name), getattr(other, name)
        if (a is None) != (b is None):
            return name
        if a is not None and (len(a) != len(b) or not np.allclose(a, b, rtol=0, atol=TOLERANCE)):
            return name
    return None
