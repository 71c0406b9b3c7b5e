"""A learner on several cards: each holds a part of the weights, gradients and moments, and learns from a part of the rows.

Always true: what it learns is what one card would learn, but for rounding. The loss is a sum over the tokens of an update, so the
gradients of the cards' rows add up to its gradient; every card makes as many micro-batches as any other, empty ones where it has
no rows left, so that all meet in every exchange. All of them know all that was told, so all decide the same: about a loss that is
no number, the limit in KL, the size of micro-batches.

Weights lie in shards by FSDP2 (`fully_shard`, arXiv 2304.11277) layer by layer; a layer is whole while it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from counterpoint.errors import Refused
from counterpoint.lab.lm.adapter import Adapter, PolicyWeights
from counterpoint.lab.lm.network import Attend, Network, Weights, sizes
from counterpoint.lab.train.lm.learner import CallTokens, LanguageLearner, Options
from counterpoint.lab.train.lm.memory import activation_bytes
from counterpoint.lab.train.lm.packing import ForestRow, forest_rows
from counterpoint.lab.train.lm.ranks import Ranks
from counterpoint.lab.train.lm.tensor_trees import each_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_T = TypeVar("_T")
_Method = TypeVar("_Method", bound=Callable[..., Any])
_LEAST = 128
"""Tokens of a micro-batch at least, however many processes there are."""
_NOTHING = forest_rows([(np.zeros(1, np.int64), np.zeros(1, np.int64))], 2)
"""A micro-batch that teaches nothing."""


def blank_weights(shape: Any) -> Weights:
    """Weights of the right sizes without any numbers: what every process but the first begins with."""
    return {name: torch.empty(size, device="meta") for name, size in sizes(shape).items()}


class _Layer(nn.Module):
    """One layer: its weights, and the adapter's."""

    def __init__(self, network: Network, place: int, scale: float) -> None:
        super().__init__()
        self._network, self._place, self._scale = network, place, scale

    def forward(self, h: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """[tokens, width] after it."""
        return self._network.again(self._once, h, turn, attend)

    def _once(self, h: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        own = {f"{self._place}.{name}": weight for name, weight in _adapted(dict(self.named_parameters()), self._scale).items()}
        return self._network.layer(own, self._place, h, turn, attend)


class _Model(nn.Module):
    """All of them, and the words."""

    def __init__(self, network: Network, scale: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(network, i, scale) for i in range(network.shape.layers))

    def forward(self, compute: Callable[[Weights, Sequence[Any]], Tensor]) -> Tensor:
        """What is computed of the words' own weights and of layers."""
        return compute(dict(self.named_parameters(recurse=False)), list(self.layers))


def _adapted(own: dict[str, Any], scale: float) -> Weights:
    """Weights by name, adapters added where there are any."""
    out: Weights = {}
    for name, weight in own.items():
        if name.endswith(("_a", "_b")) and name[:-2] in own:
            continue
        a, b = own.get(f"{name}_a"), own.get(f"{name}_b")
        out[name] = weight if a is None else (weight.float() + scale * (b @ a)).to(weight.dtype)
    return out


def _together(method: _Method) -> _Method:
    """A method that all processes compute, asked for by the first one where it leads them."""

    @wraps(method)
    def compute(self: ShardedLearner, *args: Any) -> Any:
        with self.ranks.together(self.name, method.__name__, args, self.options):
            return method(self, *args)

    return compute  # type: ignore[return-value]


class ShardedLearner(LanguageLearner):
    """A `LanguageLearner` whose weights and rows are divided among processes; each of them makes the same calls."""

    def __init__(
        self, network: Network, weights: Weights, options: Options, adapter: Adapter | None = None, *, ranks: Ranks,
        name: str = "",
    ) -> None:  # fmt: skip
        """Weights and adapter are those of the first process; the others may give blank ones, which say the sizes alone."""
        self.ranks, self.name = ranks, name
        self._model = _sharded(network, weights, adapter, ranks)
        own: Weights = {_plain(name): weight for name, weight in self._model.named_parameters()}
        shards = None
        if adapter is not None:
            a, b = ({name: own[f"{name}.{x}"] for name in adapter.a} for x in "ab")
            shards = Adapter(adapter.rank, adapter.scale, a, b)
        super().__init__(network, {name: own[name] for name in sizes(network.shape)}, options, shards)
        self._mine: list[list[ForestRow]] = []
        self._reference: list[Tensor] = []

    # -- what all of them are asked for

    imitate = _together(LanguageLearner.imitate)
    imitate_some = _together(LanguageLearner.imitate_some)
    prefer = _together(LanguageLearner.prefer)
    improve = _together(LanguageLearner.improve)
    set_rate = _together(LanguageLearner.set_rate)
    average = _together(LanguageLearner.average)
    swap = _together(LanguageLearner.swap)
    warm = _together(LanguageLearner.warm)

    @_together
    def logps(self, sequences: Sequence[CallTokens], weights: Weights | None = None) -> list[NDArray[np.float64]]:
        """Log-probabilities of what was said; with `weights`, those under the snapshot, whatever they are."""
        if weights is None:
            return self._fitting(sequences, lambda: self._read(sequences, {}))
        self._exchange()
        try:
            return self._fitting(sequences, lambda: self._read(sequences, {}))
        finally:
            self._exchange()

    @_together
    def snapshot(self) -> Weights:
        """Keep the weights as they are now, in shards: what is given back is empty and stands for them."""
        self._reference = [p.detach().clone() for p in self.learned]
        return {}

    def _exchange(self) -> None:
        """The snapshot in place of what learned, or back again."""
        with torch.no_grad():
            for kept, own in zip(self._reference, self.learned, strict=True):
                held = own.detach().clone()
                own.copy_(kept)
                kept.copy_(held)

    @_together
    def now(self) -> Weights:
        """The whole weights as they are now, adapter added, as the network computes with them: on the first process's CPU."""
        out: Weights = {}
        with torch.no_grad():
            for name, weight in self.weights.items():
                parts = {name: _whole(weight)}
                if self.adapter is not None and name in self.adapter.a:
                    parts |= {f"{name}_a": _whole(self.adapter.a[name]), f"{name}_b": _whole(self.adapter.b[name])}
                if self.ranks.is_first:
                    (whole,) = _adapted(parts, 0.0 if self.adapter is None else self.adapter.scale).values()
                    out[name] = whole.to("cpu", self.network.dtype)
        return out

    def voice(self) -> PolicyWeights:
        """What an engine speaks with: the whole weights, adapter added."""
        return PolicyWeights(self.now())

    @_together
    def whole_adapter(self) -> Adapter:
        """The adapter that learns."""
        assert self.adapter is not None
        a, b = ({name: _whole(t) for name, t in some.items()} for some in (self.adapter.a, self.adapter.b))
        return Adapter(self.adapter.rank, self.adapter.scale, a, b)

    @_together
    def is_finite(self) -> bool:
        """Whether all that learns is numbers still."""
        return all(self.ranks.gather(all(bool(torch.isfinite(_local(p)).all()) for p in self.learned)))

    @_together
    def state(self) -> dict[str, Any]:
        """What learned, and its optimizer, whole, as one card has it; of the first process alone."""
        kept: dict[str, Any] = {"learned": list(self.learned), "optimizer": self.optimizer.state_dict(), "mean": list(self.mean)}
        kept |= {"averaged": self.averaged, "reference": self._reference}
        found: dict[str, Any] = each_tensor(kept, self._kept)
        return found

    def _kept(self, value: Tensor) -> Tensor | None:
        """A tensor whole on the CPU of the first process: one after the other, so that none holds them all beside its own."""
        with torch.no_grad():
            whole = _whole(value.detach())
        return whole.to("cpu", copy=True) if self.ranks.is_first else None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state, of however many cards it was: the first process gives it, and each takes its shards."""
        with self.ranks.together(self.name, "restore", ({},), self.options), torch.no_grad():
            is_first = self.ranks.is_first
            told = self.ranks.of_first(each_tensor(dict(state), lambda t: t if t.ndim == 0 else None) if is_first else None)
            for k, own in enumerate(self.learned):
                own.copy_(self._shard(state["learned"][k] if is_first else None, own))
            moments = told["optimizer"]["state"]
            for k, name in [(i, name) for i, own in moments.items() for name, value in own.items() if value is None]:
                moments[k][name] = self._shard(state["optimizer"]["state"][k][name] if is_first else None, self.learned[k])
            self.optimizer.load_state_dict(told["optimizer"])
            self.mean, self._reference = (
                [self._shard(state[name][k] if is_first else None, self.learned[k]) for k in range(len(told.get(name, ())))]
                for name in ("mean", "reference")
            )
            self.averaged = told.get("averaged", 0)

    def _shard(self, whole: Tensor | None, like: Tensor) -> Tensor:
        """This process's part of what the first one has whole, cut as another tensor is."""
        assert isinstance(like, DTensor)
        sent = torch.empty(like.shape, dtype=like.dtype, device=self.network.device)
        if whole is not None:
            sent.copy_(whole)
        torch.distributed.broadcast(sent, 0)
        return distribute_tensor(sent, like.device_mesh, like.placements, src_data_rank=None)

    # -- one step

    def _fitting(self, sequences: Sequence[CallTokens], made: Callable[[], _T]) -> _T:
        """What is made of the sequences, in micro-batches for which every process has the memory.

        Each tries for the room of its largest one before anything is exchanged; where one has none, all halve them.
        """
        while True:
            self._mine = self._dealt(sequences)
            if not any(self.ranks.gather(self._is_short())):
                break
            self._halve(sequences)
        try:
            return made()
        except torch.OutOfMemoryError as error:
            what, why = "a card's memory ended in the middle of a micro-batch", str(error).splitlines()[0]
            raise Refused(what, why=why, fix=f"--set tokens={self.options.tokens // 2}, or learn.recompute=true") from error

    def _is_short(self) -> bool:
        """Whether this process lacks the memory that its largest micro-batch takes."""
        need = [(sum(map(len, batch)), sum(len(r.said) for r in batch)) for batch in self._mine]
        try:
            for tokens, said in {max(need), max(need, key=lambda x: x[1])}:
                self._take(self._bytes_of(tokens, said))
        except torch.OutOfMemoryError:
            return True
        return False

    def _bytes_of(self, tokens: int, said: int) -> int:
        net = self.network
        return activation_bytes(net.shape, tokens, said, each=net.dtype.itemsize, is_recomputed=net.is_recomputed)

    def _take(self, size: int) -> None:
        """Ask the device for so many bytes, and give them back; a CPU's memory is not asked for."""
        if self._is_gpu:
            torch.empty(size, dtype=torch.uint8, device=self.network.device)

    def _dealt(self, sequences: Sequence[CallTokens]) -> list[list[ForestRow]]:
        """This process's micro-batches: all of them dealt out by tokens, the largest first, to who has the fewest."""
        full = self.options
        rows = forest_rows([(s.prompt, s.said) for s in sequences], sum(map(len, sequences)))
        each = -(-sum(map(len, rows)) // self.ranks.size)
        self.options = replace(full, tokens=min(full.tokens, max(_LEAST, each)))
        try:
            batches = list(self._batches(sequences))
        finally:
            self.options = full
        most, dealt = -(-len(batches) // self.ranks.size), [list[list[ForestRow]]() for _ in range(self.ranks.size)]
        for batch in sorted(batches, key=lambda batch: -sum(map(len, batch))):
            free = [own for own in dealt if len(own) < most]
            min(free, key=lambda own: sum(len(row) for some in own for row in some)).append(batch)
        mine = dealt[self.ranks.rank]
        return mine + [_NOTHING] * (most - len(mine))

    def _read(self, sequences: Sequence[CallTokens], used: Weights) -> list[NDArray[np.float64]]:
        found: list[tuple[list[int], Any]] = []
        with torch.no_grad():
            for batch in self._mine:
                logps = self._token_logps(used, self._row(batch))
                calls = [] if batch is _NOTHING else [i for row in batch for i in row.calls]
                found.append((calls, logps))
        out: list[NDArray[np.float64]] = [np.empty(0)] * len(sequences)
        everybodys = self.ranks.gather([(calls, logps.double().cpu().numpy()) for calls, logps in found])
        for calls, values in [one for some in everybodys for one in some]:
            ends = np.cumsum([len(sequences[i].said) for i in calls])
            for i, part in zip(calls, np.split(values, ends[:-1]) if calls else (), strict=True):
                out[i] = part
        return out

    def _gradient(self, sequences: Sequence[CallTokens], loss: Any) -> dict[str, float]:
        self.optimizer.zero_grad(set_to_none=True)
        made: list[tuple[list[int], dict[str, Tensor]]] = []
        for batch in self._mine:
            with self.watch.part("layout"):
                row = self._row(batch)
            with self.watch.device_part("forward"):
                logps, calls = self._token_logps({}, row), [i for one in batch for i in one.calls]
                value, report = (0.0 * logps.sum(), {}) if batch is _NOTHING else loss(logps, calls)
            with self.watch.device_part("backward"):
                (value * self.ranks.size).backward()  # the exchange is a mean over processes, and the loss is a sum
            if batch is not _NOTHING:
                made.append((calls, {"loss": value.detach()} | report))
        return self._told(sequences, made)

    def _told(self, sequences: Sequence[CallTokens], made: Sequence[tuple[list[int], dict[str, Tensor]]]) -> dict[str, float]:
        """What the micro-batches of all processes say of themselves."""
        mine = [(calls, {name: float(value) for name, value in report.items()}) for calls, report in made]
        everybodys = [one for some in self.ranks.gather(mine) for one in some]
        return super()._told(sequences, [(c, {n: torch.tensor(x) for n, x in report.items()}) for c, report in everybodys])

    def _token_logps(self, weights: Weights, row: Any, layers: Any = None) -> Tensor:
        read = super()._token_logps
        logps: Tensor = self._model(lambda own, layers: read(own, row, layers))
        return logps

    def _clipped(self) -> float:
        norm: Any = torch.nn.utils.clip_grad_norm_(self.learned, self.options.clip_norm, foreach=True)
        return float(norm.full_tensor())


def _sharded(network: Network, weights: Weights, adapter: Adapter | None, ranks: Ranks) -> _Model:
    """The model in shards, with the numbers of the first process."""
    kind = torch.float32 if adapter is None else network.dtype
    with torch.device("meta"):
        model = _Model(network, 0.0 if adapter is None else adapter.scale)
        for name, size in sizes(network.shape).items():
            _put(model, name, nn.Parameter(torch.empty(size, dtype=kind), requires_grad=adapter is None))
        for name, tensor in ({} if adapter is None else adapter.as_tensors()).items():
            _put(model, name, nn.Parameter(torch.empty(tensor.shape)))
    # what an adapter is added to stands still, so it may lie as the network computes; what learns is computed with a copy of it
    policy = MixedPrecisionPolicy(param_dtype=network.dtype if adapter is None else None, cast_forward_inputs=False)
    if adapter is None:
        policy = MixedPrecisionPolicy(param_dtype=network.dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    mesh = ranks.mesh(network.device.type)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    # the words too: what lies whole after a pass would be what it was before, when shards change in place
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    model.to_empty(device=network.device)
    whole: dict[str, Any] = {}
    if ranks.is_first:
        whole = {_long(n): w.detach().to(kind) for n, w in weights.items() if n in sizes(network.shape)}
        whole |= {_long(n): t.detach() for n, t in ({} if adapter is None else adapter.as_tensors()).items()}
    set_model_state_dict(model, whole, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    return model


def _long(name: str) -> str:
    """The module's name of a weight of ours: layers.0.qkv_a of 0.qkv.a."""
    place, _, rest = name.partition(".")
    return f"layers.{place}.{rest.replace('.', '_')}" if rest else name


def _plain(name: str) -> str:
    """Ours of the module's."""
    _, _, rest = name.partition("layers.")
    own = rest or name
    return f"{own[:-2]}.{own[-1]}" if own.endswith(("_a", "_b")) else own


def _put(model: _Model, name: str, parameter: nn.Parameter) -> None:
    path, _, last = _long(name).rpartition(".")
    model.get_submodule(path).register_parameter(last, parameter)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
