"""One update of a language model: imitation of what was said, or a policy gradient on what it earned.

Always true: the vocabulary is met only where tokens were written by the model; the loss is divided by all tokens of an update,
whatever the micro-batches; a loss or gradient that is no number changes nothing (`NotFinite` names the update's sequences);
where the GPU's memory is short, a step begins again with micro-batches of half the size, and they stay so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch

from counterpoint.credits.call_rows import CallRows
from counterpoint.errors import InputError, Refused
from counterpoint.lab.lm.adapter import Adapter, PolicyWeights
from counterpoint.lab.lm.network import ALONE, LayerCall, LongRow, Network, Packed, Weights
from counterpoint.lab.train.learner import NotFinite
from counterpoint.lab.train.lm.objective import Objective
from counterpoint.lab.train.lm.packing import SQUARE, ForestRow, Squares, forest_rows, long_row, on_device, row_length
from counterpoint.lab.train.lm.stopwatch import Stopwatch
from counterpoint.lab.train.lm.tensor_trees import on_cpu
from counterpoint.lab.train.objectives import dpo_loss, kl

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Loss = Callable[[Tensor, Sequence[int]], tuple[Tensor, dict[str, Tensor]]]
    """From the log-probabilities of what some calls said, and the calls: their part of the loss, and means to tell of them."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class CallTokens:
    """A prompt and what was said after it, with what learning needs of each token said."""

    name: str
    """Which trace and event it is, for messages."""
    prompt: NDArray[np.int64]
    said: NDArray[np.int64]
    advantages: NDArray[np.float64] | None = None
    sampler: NDArray[np.float64] | None = None
    """Log-probabilities that the engine recorded."""
    old: NDArray[np.float64] | None = None
    """Log-probabilities under the weights before the update; the sampler's where they are not given."""
    weight: float | None = None
    """Of each token in the update (`token_weights`); None: all tokens of a step weigh the same."""

    def __len__(self) -> int:
        return len(self.prompt) + len(self.said)


def sequences_of(rows: CallRows) -> list[CallTokens]:
    """The calls that a policy can learn from: sampled, with token ids and log-probabilities, and an advantage that is not 0."""
    out = []
    for i, row in enumerate(rows.rows):
        prompt = rows.prompt_ids(i)
        if not row.sampled or row.token_ids is None or row.logps is None or prompt is None or row.token_advantages is None:
            continue
        if len(row.logps) != len(row.token_ids):
            what = f"{len(row.logps)} log-probabilities for {len(row.token_ids)} tokens"
            raise InputError(what, where=f"{rows.trace_ids[row.trace]} {row.event}", fix="record one per token")
        if row.token_advantages.any():
            name = f"{rows.trace_ids[row.trace]} {row.event}"
            out.append(CallTokens(name, prompt, row.token_ids, row.token_advantages, row.logps))
    return out


@dataclass(frozen=True, kw_only=True)
class Options:
    """How an update is made."""

    lr: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    tokens: int = 16_384
    """Tokens of a micro-batch; on a CPU padding is counted."""
    steps: int = 1
    """Optimiser steps that the sequences of an update are divided among."""
    temperature: float = 1.0
    """At which the calls of an update were sampled, and so of the policy that learns: all log-probabilities are at it, and
    ratios begin at 1."""
    kl_limit: float = 0.0
    """Most that an update may move what was said, in KL per token; 0: no limit."""


_LEAST_SHARED = 32
"""Tokens that calls must share on a CPU to stand in one row."""
_JUDGED = 64
"""Calls on which an update is held to its limit."""
_TRIES, _LEAST_SHARE, _BELOW = 5, 0.1, 0.95
"""How often an update is made shorter, the last time to nothing; to what of its length at once, at least; and how far below."""


class _Row(NamedTuple):
    """A micro-batch on the device."""

    ids: Tensor
    attend: Packed | Squares | LongRow
    said: Tensor
    """Tokens that were said, call after call."""
    before: Tensor
    """Where tokens stand that said ones follow, each once."""
    which: Tensor
    """Which of those each token that was said follows."""


class LanguageLearner:
    """Weights that learn: all of them, or an adapter over them."""

    def __init__(self, network: Network, weights: Weights, options: Options, adapter: Adapter | None = None) -> None:
        """`weights` are float32 and change in place; with an adapter they stay as they are."""
        self.network, self.weights, self.options, self.adapter = network, weights, options, adapter
        for weight in weights.values():
            weight.requires_grad_(adapter is None)
        self.learned = list(weights.values()) if adapter is None else adapter.parameters()
        kernel = {"fused": True} if self._is_gpu else {"foreach": True}
        told = {"lr": options.lr, "betas": options.betas, "weight_decay": options.weight_decay}
        self.optimizer = torch.optim.AdamW(self.learned, **told, **kernel)  # type: ignore[arg-type]
        self.mean: list[Tensor] = []
        """The running mean of what learned; empty: none is kept."""
        self.averaged = 0
        """States that it is the mean of."""
        self.watch = Stopwatch(is_gpu=self._is_gpu)
        """What layout, forward and backward passes and the optimiser took."""
        self._compiled: set[tuple[int, bool]] = set()
        """Lengths of rows that were met on a GPU, with gradients or without."""

    def set_rate(self, lr: float) -> None:
        """Another learning rate from now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def state(self) -> dict[str, Any]:
        """What learned, and its optimizer, on the CPU."""
        learned, mean = ([t.detach().to("cpu", copy=True) for t in some] for some in (self.learned, self.mean))
        return {"learned": learned, "optimizer": on_cpu(self.optimizer.state_dict()), "mean": mean, "averaged": self.averaged}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        with torch.no_grad():
            for own, kept in zip(self.learned, state["learned"], strict=True):
                own.copy_(kept)
        self.optimizer.load_state_dict(state["optimizer"])
        self.averaged = state.get("averaged", 0)
        self.mean = [t.to(self.network.device) for t in state.get("mean", ())]

    def warm(self) -> None:
        """Have what a GPU runs compiled, for rows as long as they may be; what is learned does not change."""
        if not self._is_gpu:
            return
        each, vocabulary = min(1024, self.network.shape.context), self.network.shape.vocabulary
        calls = [
            CallTokens("warm", np.full(each - 8, i % vocabulary), np.zeros(8, np.int64))
            for i in range(max(1, self.options.tokens // each))
        ]
        self._fitting(calls, lambda: self._gradient(calls, lambda logp, _: (0.0 * logp.sum(), {})))
        self.optimizer.zero_grad(set_to_none=True)
        self.watch.take()

    def average(self, kept: float) -> None:
        """Take what is learned now into the running mean, which keeps the share `kept` of what it was.

            mean_n = sum_i kept^(n - i) w_i / sum_i kept^(n - i)        i = 1 .. n, w_i what was learned after update i

        Averaging of iterates (Polyak and Juditsky 1992), with weights that fall, so that the beginning is forgotten.
        """
        self.averaged += 1
        share = (1 - kept) / (1 - kept**self.averaged)
        with torch.no_grad():
            if not self.mean:
                self.mean = [t.detach().clone() for t in self.learned]
            for mean, own in zip(self.mean, self.learned, strict=True):
                mean.lerp_(own.detach(), share)

    def swap(self) -> None:
        """The mean in place of what was learned last, or back again; nothing where there is no mean."""
        with torch.no_grad():
            for mean, own in zip(self.mean, self.learned, strict=False):
                held = own.detach().clone()
                own.copy_(mean)
                mean.copy_(held)

    def now(self) -> Weights:
        """The weights as they are now, adapter added."""
        return self.weights if self.adapter is None else self.adapter.over(self.weights)

    def snapshot(self) -> Weights:
        """The weights as they are now, to be kept: what `reference` may be."""
        with torch.no_grad():
            return {n: w.detach().clone() for n, w in self.now().items()}

    def voice(self) -> PolicyWeights:
        """What an engine speaks with."""
        return PolicyWeights(self.weights, self.adapter)

    def whole_adapter(self) -> Adapter:
        """The adapter that learns."""
        assert self.adapter is not None
        return self.adapter

    def is_finite(self) -> bool:
        """Whether all that learns is numbers still."""
        return all(bool(torch.isfinite(p).all()) for p in self.learned)

    def logps(self, sequences: Sequence[CallTokens], weights: Weights | None = None) -> list[NDArray[np.float64]]:
        """Log-probabilities of what was said, one array for each sequence; no gradients."""
        used = self.now() if weights is None else weights
        return self._fitting(sequences, lambda: self._read(sequences, used))

    def _read(self, sequences: Sequence[CallTokens], used: Weights) -> list[NDArray[np.float64]]:
        out: list[NDArray[np.float64]] = [np.empty(0)] * len(sequences)
        with torch.no_grad():
            found: list[tuple[list[int], Tensor]] = []
            for batch in self.watch.each("layout", self._batches(sequences)):
                with self.watch.part("layout"):
                    row = self._row(batch)
                with self._alone(row), self.watch.device_part("forward"):
                    found.append(([i for one in batch for i in one.calls], self._token_logps(used, row)))
        for calls, logps in found:  # all is asked for before anything is waited for
            ends = np.cumsum([len(sequences[i].said) for i in calls])
            for i, part in zip(calls, np.split(logps.double().cpu().numpy(), ends[:-1]), strict=True):
                out[i] = part
        return out

    def imitate(self, sequences: Sequence[CallTokens]) -> dict[str, float]:
        """One step towards saying what was said: the mean of -log p over its tokens."""
        count = sum(len(s.said) for s in sequences)

        def loss(logp: Tensor, _: Sequence[int]) -> tuple[Tensor, dict[str, Tensor]]:
            return -logp.sum() / count, {}

        return {"tokens": float(count)} | self._step(sequences, loss)

    def imitate_some(self, sequences: Sequence[CallTokens]) -> dict[str, float]:
        """Imitation of one's own best: the steps of an update, each on its part of the sequences."""
        reports = [self.imitate([sequences[i] for i in part]) for part in self._parts(len(sequences))]
        return _means(reports) | {"imitated": float(len(sequences))}

    def prefer(self, pairs: Sequence[tuple[CallTokens, CallTokens]], reference: Weights, beta: float) -> dict[str, float]:
        """Direct preference steps (DPO, arXiv 2305.18290): of each pair the first is to become likelier than the second.

            loss = -log sigmoid(beta [(log p - log ref)(first) - (log p - log ref)(second)]),  the mean over pairs

        The gradient is that of the two log-probabilities, weighed by how wrong the pair still is: the calls of a pair need
        not be in one micro-batch.
        """
        said = [one for pair in pairs for one in pair]
        before = np.array([x.sum() for x in self.logps(said, reference)]).reshape(-1, 2)
        reports = []
        for part in self._parts(len(pairs)):
            mine = [one for k in part for one in pairs[k]]
            now, was = np.array([x.sum() for x in self.logps(mine)]).reshape(-1, 2), before[part]
            margin = beta * ((now[:, 0] - was[:, 0]) - (now[:, 1] - was[:, 1]))
            pull = beta / (1 + np.exp(margin)) / len(part)
            weights = np.stack([-pull, pull], 1).reshape(-1)

            def loss(
                logp: Tensor, batch: Sequence[int], mine: list[CallTokens] = mine, weights: Any = weights
            ) -> tuple[Tensor, dict[str, Tensor]]:
                each = np.repeat(weights[list(batch)], [len(mine[i].said) for i in batch])
                return (on_device(each.astype(np.float32), logp.device) * logp).sum(), {}

            won, lost = ([torch.as_tensor(x[:, i]) for x in (now, was)] for i in (0, 1))
            value = dpo_loss(won[0], won[1], lost[0], lost[1], beta=beta)
            report = self._step(mine, loss)
            reports.append(report | {"loss": float(value.mean()), "preferred": float((margin > 0).mean())})
        return _means(reports) | {"pairs": float(len(pairs))}

    def _parts(self, count: int) -> list[NDArray[np.int64]]:
        return np.array_split(np.arange(count), min(self.options.steps, count)) if count else []

    def improve(
        self, sequences: Sequence[CallTokens], objective: Objective, reference: Weights | None = None
    ) -> dict[str, float]:
        """Clipped policy-gradient steps on what was sampled; tokens weigh the same, or what their calls say."""
        told = [s for s in sequences if s.advantages is not None and s.sampler is not None]
        if len(told) < len(sequences):
            raise InputError("a sequence without advantages or log-probabilities", fix="rows of sampled calls with credit")
        references = None if reference is None or not objective.beta else self.logps(told, reference)
        held = told[:: -(-len(told) // _JUDGED)] if told and self.options.kl_limit else []
        before, old = ([p.detach().clone() for p in self.learned], self.logps(held)) if held else ([], [])
        reports = []
        for part in (parts := self._parts(len(told))):
            # a part stands for the whole: its weights are as many times higher
            mine = [told[i] if told[i].weight is None else replace(told[i], weight=told[i].weight * len(parts)) for i in part]
            mine_reference = None if references is None else [references[i] for i in part]
            reports.append(self._policy_step(mine, objective, mine_reference))
        return _means(reports) | (self._hold(held, old, before) if held else {})

    def _hold(self, held: Sequence[CallTokens], old: Sequence[NDArray[np.float64]], before: Sequence[Tensor]) -> dict[str, float]:
        """Shorten an update that moved too far until it keeps the limit; after so many tries take it back.

            share <- share 0.95 sqrt(limit / moved)

        TRPO's length of a step, sqrt(2 delta / s'Fs), and its search along the line (arXiv 1502.05477): near the old weights KL
        is of the second degree, so the first try nearly always ends just below the limit. The KL is sampled (k3) on some of the
        calls that taught, between the learner before and after: what the engine rounds otherwise does not count. It departs in
        the path: a straight line from the old weights to what the optimiser made of them, and its moments stay as they are.
        """
        was_said, share = torch.as_tensor(np.concatenate(old)), 1.0
        for tries in range(_TRIES + 1):
            moved = float(kl(was_said - torch.as_tensor(np.concatenate(self.logps(held)))).mean())
            if moved <= self.options.kl_limit:
                break
            again = 0.0 if tries + 1 >= _TRIES else max(_LEAST_SHARE, _BELOW * math.sqrt(self.options.kl_limit / moved))
            with torch.no_grad():
                for now, was in zip(self.learned, before, strict=True):
                    now.lerp_(was, 1 - again) if again else now.copy_(was)
            share *= again
        return {"kl_after": moved, "step_kept": share}

    def _policy_step(
        self, sequences: list[CallTokens], objective: Objective, references: list[NDArray[np.float64]] | None
    ) -> dict[str, float]:
        count = sum(len(s.said) for s in sequences)
        device = self.network.device

        def column(batch: Sequence[int], values: Callable[[int], NDArray[np.float64]]) -> Tensor:
            return on_device(np.concatenate([values(i) for i in batch]).astype(np.float32), device)

        def loss(logp: Tensor, batch: Sequence[int]) -> tuple[Tensor, dict[str, Tensor]]:
            calls = np.repeat(np.arange(len(batch)), [len(sequences[i].said) for i in batch])
            sampler = column(batch, lambda i: _known(sequences[i].sampler))
            return objective(
                logp,
                column(batch, lambda i: _known(sequences[i].sampler if sequences[i].old is None else sequences[i].old)),
                column(batch, lambda i: _known(sequences[i].advantages)),
                column(batch, lambda i: np.full(len(sequences[i].said), 1 / count if (w := sequences[i].weight) is None else w)),
                on_device(calls, device),
                sampler=sampler,
                reference=None if references is None else column(batch, lambda i: references[i]),
            )

        return self._step(sequences, loss)

    # -- one step ----------------------------------------------------------------------------------------------------

    def _step(self, sequences: Sequence[CallTokens], loss: Loss) -> dict[str, float]:
        told = self._fitting(sequences, lambda: self._gradient(sequences, loss))
        norm = self._clipped()
        if not np.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            what, where = f"the gradient's size is {norm}", _names(sequences, range(len(sequences)))
            raise NotFinite(what, where=where, fix="a lower learning rate")
        with self.watch.device_part("optimiser"):
            self.optimizer.step()
        return told | {"gradient": norm, "micro_batch": float(self.options.tokens)}

    def _clipped(self) -> float:
        """The size of the gradient before it is cut to the limit."""
        return float(torch.nn.utils.clip_grad_norm_(self.learned, self.options.clip_norm, foreach=True))

    def _fitting(self, sequences: Sequence[CallTokens], made: Callable[[], _T]) -> _T:
        """What is made of the sequences, in micro-batches that fit into the GPU's memory."""
        while True:
            try:
                return made()
            except torch.OutOfMemoryError:
                self._halve(sequences)
            torch.cuda.empty_cache()

    def _halve(self, sequences: Sequence[CallTokens]) -> None:
        """Smaller micro-batches from now on, in which the longest call has room still."""
        longest = max(map(len, sequences))
        if self.options.tokens <= longest:
            what = f"the GPU's memory is too small for one call of {longest:,} tokens"
            raise Refused(what, fix="a shorter context, learn.recompute, adapters, or a smaller model") from None
        self.options = replace(self.options, tokens=max(longest, self.options.tokens // 2))

    def _gradient(self, sequences: Sequence[CallTokens], loss: Loss) -> dict[str, float]:
        """The gradient of the loss over all sequences, left at the parameters; the loss, and what else is said of it."""
        self.optimizer.zero_grad(set_to_none=True)
        made: list[tuple[list[int], dict[str, Tensor]]] = []
        for batch in self.watch.each("layout", self._batches(sequences)):
            calls = [i for one in batch for i in one.calls]
            with self.watch.part("layout"):
                row = self._row(batch)
            with self._alone(row):
                with self.watch.device_part("forward"):
                    value, report = loss(self._token_logps(self.now(), row), calls)
                with self.watch.device_part("backward"):
                    value.backward()
            made.append((calls, {"loss": value.detach()} | report))
        return self._told(sequences, made)

    def _told(self, sequences: Sequence[CallTokens], made: Sequence[tuple[list[int], dict[str, Tensor]]]) -> dict[str, float]:
        """What micro-batches say of themselves, read when all have been asked for: the device need not wait for the host."""
        count, told = sum(len(s.said) for s in sequences), {"loss": 0.0}
        for calls, report in made:
            values = dict(zip(report, torch.stack([v.float() for v in report.values()]).tolist(), strict=True))
            if not np.isfinite(values["loss"]):
                self.optimizer.zero_grad(set_to_none=True)
                what, where = f"the loss is {values['loss']}", _names(sequences, calls)
                raise NotFinite(what, where=where, fix="a lower learning rate")
            share = sum(len(sequences[i].said) for i in calls) / count
            for name, value in values.items():
                told[name] = told.get(name, 0.0) + (value if name == "loss" else value * share)
        return told

    def _batches(self, sequences: Sequence[CallTokens]) -> Iterator[list[ForestRow]]:
        """Rows up to `tokens`; on a CPU shorter ones, those of nearly one length together, since there they are padded."""
        calls, most = [(s.prompt, s.said) for s in sequences], self.options.tokens
        if self._is_gpu:
            yield from ([row] for row in forest_rows(calls, most))
            return
        batch: list[ForestRow] = []
        for row in sorted(forest_rows(calls, min(most, SQUARE), _LEAST_SHARED), key=len):
            if batch and (len(batch) + 1) * len(row) > most:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    @contextmanager
    def _alone(self, row: _Row) -> Iterator[None]:
        """Where rows of this length are met for the first time, what runs them is compiled and tried out: alone on the device."""
        kind = (len(row.ids), torch.is_grad_enabled())
        if not self._is_gpu or kind in self._compiled:
            yield
            return
        with ALONE:
            yield
        self._compiled.add(kind)

    @property
    def _is_gpu(self) -> bool:
        return self.network.device.type == "cuda"

    def _row(self, batch: Sequence[ForestRow]) -> _Row:
        """A micro-batch as the device reads it."""
        device, flat = self.network.device, np.concatenate([row.ids for row in batch])
        attend: Packed | Squares | LongRow
        if self._is_gpu:
            (row,) = batch
            length = row_length(len(row), self.options.tokens)
            flat = np.concatenate([flat, np.zeros(length - len(row), np.int64)])
            attend = long_row(row, length, device)
        elif all(len(row.calls) == 1 for row in batch):
            attend = Packed([len(row) for row in batch], device)
        else:
            attend = Squares(batch, device, self.network.dtype)
        starts = np.cumsum([len(row) for row in batch]) - [len(row) for row in batch]
        said, before = (
            np.concatenate([start + getattr(row, name) for start, row in zip(starts, batch, strict=True)])
            for name in ("said", "before")
        )
        places, which = np.unique(before, return_inverse=True)  # who says the same after the same is counted once
        return _Row(on_device(flat, device), attend, *(on_device(x, device) for x in (flat[said], places, which)))

    def _token_logps(self, weights: Weights, row: _Row, layers: Sequence[LayerCall] | None = None) -> Tensor:
        """float32 log-probabilities of the tokens said by the calls of a micro-batch, one after the other."""
        hidden = self.network.hidden_states(weights, row.ids, row.attend.positions, row.attend, layers)
        logits = self.network.logits(weights, hidden[row.before])
        logits = logits if self.options.temperature == 1.0 else logits / self.options.temperature
        return logits[row.which, row.said] - logits.logsumexp(-1)[row.which]


def with_old(learner: LanguageLearner, sequences: Sequence[CallTokens]) -> list[CallTokens]:
    """The sequences with log-probabilities under the learner's weights, so that the engine's rounding can be corrected for."""
    return [replace(s, old=old) for s, old in zip(sequences, learner.logps(sequences), strict=True)]


def less_kl(sequences: Sequence[CallTokens], references: Sequence[NDArray[np.float64]], weight: float) -> list[CallTokens]:
    """The sequences with a KL to the reference taken off their advantages: of each token, k1 of it and of the rest of its call.

        A_t <- A_t - weight sum_{l >= t} (log pi_old - log ref)_l

    The expected policy gradient of it is that of -weight KL(pi || ref) of the call.
    """
    out = []
    for one, reference in zip(sequences, references, strict=True):
        gap = _known(one.sampler if one.old is None else one.old) - reference
        out.append(replace(one, advantages=_known(one.advantages) - weight * np.cumsum(gap[::-1])[::-1]))
    return out


def _means(reports: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([r[name] for r in reports])) for name in reports[0]} if reports else {}


def _known(values: NDArray[np.float64] | None) -> NDArray[np.float64]:
    assert values is not None
    return values


def _names(sequences: Sequence[CallTokens], batch: Sequence[int]) -> str:
    names = [sequences[i].name for i in batch]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
