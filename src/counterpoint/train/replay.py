"""Replay of decisions from traces of any shape: flat columns in a ring, no padding, prefixes by reference.

Always true: a trace is kept whole or not at all, so a prefix (trace, row) stays readable; the oldest traces leave first. What
is sampled is decisions, not traces, without replacement, each by a hash of (seed, draw, trace id, row): so the order in which
traces were added changes nothing, and the same seed and draw give the same rows in the same order. Decision types keep their
share of the buffer, and a rare one (stop, noop, despawn) is never lost. A saved buffer loads to the same bytes.

    loss weight of row i of type k:  1 / (K n_k)                 the mean per decision type, then over types
    scale of role x sub-decision r:  s^2 = (n_r s_r^2 + n_0 s_pool^2) / (n_r + n_0)

so that a trace of 4,000 decisions does not outweigh 400 short ones, and a role with few rows borrows its scale. The scale may
depend on who decides and on what; a baseline within bins of what the decision caused (width, depth, events) would erase its
credit (research notes B7, proposition), and is not offered.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import counterpoint.files as files
from counterpoint.envs.keyed import bits, purpose
from counterpoint.errors import InputError, NotFound, did_you_mean

Floats = NDArray[np.float64]
_FORMAT = 1


class Sample(NamedTuple):
    """Decisions drawn from a buffer."""

    columns: dict[str, np.ndarray]
    """The rows, column by column."""
    trace_N: np.ndarray
    """The id of the trace each row is in."""
    row_N: np.ndarray
    """Its place in that trace; the rows before it are its prefix."""
    type_N: np.ndarray
    """Its decision type."""
    weight_N: Floats
    """`loss_weights` of the types; they sum to 1."""


class _Span(NamedTuple):
    begin: int
    """Rows ever written before this trace; the place in the ring is this modulo the capacity."""
    length: int
    key: int


class Replay:
    """A ring of decision rows."""

    def __init__(self, capacity: int, *, seed: int = 0) -> None:
        """`capacity` rows; the first trace says which columns there are."""
        if capacity < 1:
            raise InputError(f"a capacity of {capacity} rows", fix="at least 1")
        self.capacity, self.seed = capacity, seed
        self._columns: dict[str, np.ndarray] = {}
        self._types: dict[str, int] = {}
        self._type_C = np.full(capacity, -1, np.int32)
        self._key_C = np.zeros(capacity, np.int64)
        self._row_C = np.zeros(capacity, np.int64)
        self._spans: dict[str, _Span] = {}
        self._written = self._rows = 0

    def __len__(self) -> int:
        """Rows held."""
        return self._rows

    def __contains__(self, trace: object) -> bool:
        return trace in self._spans

    @property
    def traces(self) -> tuple[str, ...]:
        """Ids held, oldest first."""
        return tuple(self._spans)

    @property
    def counts(self) -> dict[str, int]:
        """Rows held by decision type."""
        found = np.bincount(self._type_C[self._held()], minlength=len(self._types)).tolist()
        return {t: found[i] for t, i in sorted(self._types.items()) if found[i]}

    # -- in

    def add(self, trace: str, columns: Mapping[str, ArrayLike], types: ArrayLike) -> None:
        """The decisions of one trace, in order: columns with an equal first axis, and the type of each decision."""
        arrays = {name: np.asarray(c) for name, c in columns.items()}
        kinds = np.asarray(types, np.str_)
        self._check(trace, arrays, kinds)
        if not self._columns:
            self._columns = {n: np.zeros((self.capacity, *a.shape[1:]), a.dtype) for n, a in arrays.items()}
        while self._spans and len(self) + len(kinds) > self.capacity:
            gone = self._spans.pop(next(iter(self._spans)))
            self._type_C[_ring(gone, self.capacity)] = -1
            self._rows -= gone.length
        span = _Span(self._written, len(kinds), purpose(trace))
        at = _ring(span, self.capacity)
        for name, array in arrays.items():
            self._columns[name][at] = array
        for kind in np.unique(kinds).tolist():
            self._types.setdefault(kind, len(self._types))
        self._type_C[at] = [self._types[k] for k in kinds.tolist()]
        self._key_C[at], self._row_C[at] = span.key, np.arange(len(kinds))
        self._spans[trace] = span
        self._written += len(kinds)
        self._rows += len(kinds)

    def _check(self, trace: str, arrays: dict[str, np.ndarray], kinds: np.ndarray) -> None:
        where = f"trace {trace}"
        if trace in self._spans:
            raise InputError("is held already", where=where, fix="an id of its own for every rollout")
        if not arrays or kinds.ndim != 1 or not len(kinds):
            raise InputError("no columns or no decisions", where=where, fix="at least one of each")
        if len(kinds) > self.capacity:
            raise InputError(f"{len(kinds)} rows, and the buffer holds {self.capacity}", where=where, fix="a larger capacity")
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise InputError(f"column {name!r} holds objects", where=where, fix="numbers, or text of a fixed width")
            if array.ndim < 1 or len(array) != len(kinds):
                raise InputError(f"column {name!r} has shape {array.shape}, for {len(kinds)} decisions", where=where)
        if self._columns and set(arrays) != set(self._columns):
            odd = sorted(set(arrays) ^ set(self._columns))
            raise InputError(f"columns differ in {', '.join(odd)}", where=where, fix="the same for every trace")
        for name, held in self._columns.items():
            if arrays[name].shape[1:] != held.shape[1:] or not np.can_cast(arrays[name].dtype, held.dtype, "same_kind"):
                raise InputError(
                    f"column {name!r} is {arrays[name].dtype} {arrays[name].shape[1:]}", where=where,
                    fix=f"{held.dtype} {held.shape[1:]}, as in the first trace",
                )  # fmt: skip

    # -- out

    def _held(self) -> np.ndarray:
        return np.flatnonzero(self._type_C >= 0)

    def sample(self, n: int, *, draw: int = 0, least: int = 1) -> Sample:
        """`n` decisions (all, where fewer are held); another `draw`, another sample.

        Types have their share of `n`, and at least `least` rows or all they have, as far as `n` reaches.
        """
        if n < 1 or least < 1:
            raise InputError(f"{n} rows, at least {least} of a type", fix="at least 1 of both")
        held = self._held()
        if not len(held):
            raise InputError("the buffer is empty", fix="add a trace first")
        # by name, not by number: numbers come from the order of adding
        names = sorted(self._types)
        rank = np.empty(len(names), np.int64)
        rank[[self._types[t] for t in names]] = np.arange(len(names))
        kind = rank[self._type_C[held]]
        key = bits(self.seed, draw, self._key_C[held], self._row_C[held])
        quota = _quotas(np.bincount(kind, minlength=len(names)), n, least)
        chosen = np.concatenate([_least(np.flatnonzero(kind == k), key, int(quota[k])) for k in range(len(names))])
        chosen = chosen[np.argsort(key[chosen], kind="stable")]
        at = held[chosen]
        type_N = np.array(names)[kind[chosen]]
        by_key = {s.key: t for t, s in self._spans.items()}
        trace_N = np.array([by_key[k] for k in self._key_C[at].tolist()])
        columns = {name: c[at] for name, c in self._columns.items()}
        return Sample(columns, trace_N, self._row_C[at], type_N, loss_weights(type_N))

    def prefix(self, trace: str, row: int) -> dict[str, np.ndarray]:
        """The decisions of a trace before a row, column by column."""
        span = self._spans.get(trace)
        if span is None:
            raise NotFound(f"no trace {trace!r} in the buffer", fix=did_you_mean(trace, self._spans))
        if not 0 <= row < span.length:
            raise InputError(f"no row {row}", where=f"trace {trace}", fix=f"0 to {span.length - 1}")
        at = _ring(span, self.capacity)[:row]
        return {name: c[at] for name, c in self._columns.items()}

    def __iter__(self) -> Iterator[tuple[str, dict[str, np.ndarray], np.ndarray]]:
        """(id, columns, types) of every trace, oldest first."""
        names = np.array(list(self._types) or [""])
        for trace, span in self._spans.items():
            at = _ring(span, self.capacity)
            yield trace, {name: c[at] for name, c in self._columns.items()}, names[self._type_C[at]]

    # -- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """The whole buffer as one file that appears whole or not at all."""
        out = io.BytesIO()
        spans = np.array([(s.begin, s.length, s.key) for s in self._spans.values()], np.int64).reshape(-1, 3)
        about = np.array([_FORMAT, self.capacity, self.seed, self._written], np.int64)
        names = {"traces": np.array(self.traces, np.str_), "types": np.array(list(self._types), np.str_)}
        parts = {"about": about, "spans": spans, **names, "type": self._type_C, "key": self._key_C, "row": self._row_C}
        np.savez(out, allow_pickle=False, **parts, **{f"column.{n}": c for n, c in self._columns.items()})
        files.put([(Path(path), out.getvalue())])

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Replay:
        """A buffer as it was saved."""
        where = os.fspath(path)
        try:
            with np.load(path, allow_pickle=False) as found:
                data = {name: found[name] for name in found.files}
            version, capacity, seed, written = (int(x) for x in data["about"])
        except FileNotFoundError as error:
            raise NotFound("no such file", where=where) from error
        except Exception as error:  # zip, numpy and the header each have errors of their own
            raise InputError("is no saved replay buffer", where=where, why=str(error)) from error
        if version != _FORMAT:
            raise InputError(f"a replay buffer of format {version}", where=where, fix=f"format {_FORMAT}; fill a new one")
        out = Replay(capacity, seed=seed)
        out._columns = {n.removeprefix("column."): c for n, c in data.items() if n.startswith("column.")}
        out._types = {str(t): i for i, t in enumerate(data["types"])}
        out._type_C, out._key_C, out._row_C, out._written = data["type"], data["key"], data["row"], written
        out._spans = {str(t): _Span(*(int(x) for x in s)) for t, s in zip(data["traces"], data["spans"], strict=True)}
        out._rows = sum(s.length for s in out._spans.values())
        return out


def _ring(span: _Span, capacity: int) -> np.ndarray:
    return (span.begin + np.arange(span.length)) % capacity


def _least(rows: np.ndarray, key: np.ndarray, n: int) -> np.ndarray:
    """The n of these rows with the least keys, in any order."""
    return rows if n >= len(rows) else rows[np.argpartition(key[rows], n)[:n]]


def _quotas(count_K: np.ndarray, n: int, least: int) -> np.ndarray:
    """Rows per type: `least` (or all it has) where its share of `n` is less, rarest first; the others share the rest."""
    if n >= count_K.sum():
        return count_K.copy()
    quota, is_rare = np.zeros(len(count_K), np.int64), count_K == 0
    while True:
        rest = n - int(quota[is_rare].sum())
        share = np.where(is_rare, 0.0, rest * count_K / max(1, int(count_K[~is_rare].sum())))
        short = np.flatnonzero(~is_rare & (share < least))
        if not len(short):
            break
        rarest = short[np.argmin(count_K[short])]
        is_rare[rarest], quota[rarest] = True, min(int(count_K[rarest]), least, rest)
    low = np.floor(share).astype(np.int64)
    order = np.argsort(low - share, kind="stable")
    low[order[: rest - int(low.sum())]] += 1
    return quota + low


def loss_weights(types: ArrayLike) -> Floats:
    """(N,) 1 / (K n_k): a weighted sum is the mean over types of the mean within each."""
    kind = np.asarray(types)
    if kind.ndim != 1:
        raise InputError("types have one entry per decision")
    _, code, count = np.unique(kind, return_inverse=True, return_counts=True)
    return 1.0 / (max(1, len(count)) * count[code])


def role_scale(
    values: ArrayLike, roles: ArrayLike, types: ArrayLike | None = None, *, n0: float = 20.0, floor: float = 1e-8
) -> Floats:
    """(N,) the scale of each row's role x sub-decision, shrunk to the pooled one by `n0` rows. Divide advantages by it.

    Variances are around each group's own mean, with divisor n; the pooled one is their mean over rows.
    """
    x, role = np.asarray(values, np.float64), np.asarray(roles)
    kind = np.zeros(len(x), np.int64) if types is None else np.asarray(types)
    if not (x.shape == role.shape == kind.shape) or x.ndim != 1:
        raise InputError("values, roles and types have one entry per decision")
    if n0 < 0 or not np.isfinite(x).all():
        raise InputError("n0 is at least 0 and values are finite")
    if not len(x):
        return x
    who, what = (np.unique(c, return_inverse=True)[1] for c in (role, kind))
    code = np.unique(who * (int(what.max()) + 1) + what, return_inverse=True)[1]
    n = np.bincount(code)
    mean = np.bincount(code, x) / n
    square = np.bincount(code, (x - mean[code]) ** 2)
    pooled = float(square.sum()) / len(x)
    return np.maximum(np.sqrt((square + n0 * pooled) / (n + n0)), floor)[code]
