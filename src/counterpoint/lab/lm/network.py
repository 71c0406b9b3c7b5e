"""Decoder networks of the Llama family (Llama, SmolLM2, Mistral, Qwen2, Qwen2.5, Qwen3) as functions over a dict of weights.

Always true: tokens of many sequences stand in one row without padding; who sees whom is the business of `attend`, which is given
queries, keys and values layer by layer. So reading a prompt, writing the next token and learning are one code path.

    h' = h + W_o attend(rope(norm(W_q x)), rope(norm(W_k x)), W_v x),   x = rms(h)     (Llama, arXiv 2302.13971; GQA 2305.13245)
    h  = h' + W_down (silu(W_gate y) * W_up y),                         y = rms(h')
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from counterpoint.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Weights = dict[str, "Tensor"]
Attend = Callable[[int, "Tensor", "Tensor", "Tensor"], "Tensor"]
"""(layer, queries [tokens, heads, width], keys [tokens, kv heads, width], values) -> [tokens, heads, width]"""
LayerCall = Callable[["Tensor", "tuple[Tensor, Tensor]", Attend], "Tensor"]
"""([tokens, width], cos and sin of their positions, attend) -> [tokens, width] after one layer"""

LINEAR = ("qkv", "o", "gate_up", "down")
"""The linear maps of a layer, by our names."""
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True)
class Rope:
    """How positions turn queries and keys."""

    theta: float = 10_000.0
    kind: str = "default"
    """default, linear (positions divided by `factor`) or llama3 (low frequencies divided, Llama 3.1)."""
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192


@dataclass(frozen=True)
class Shape:
    """The sizes of a network."""

    layers: int
    heads: int
    kv_heads: int
    head_width: int
    width: int
    inner: int
    vocabulary: int
    context: int
    eps: float
    rope: Rope
    has_qkv_bias: bool = False
    """Qwen2 adds a bias to queries, keys and values."""
    has_qk_norm: bool = False
    """Qwen3 normalises queries and keys, head by head."""
    is_tied: bool = True
    """Words are read and written by one table."""

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "kv_heads", "head_width", "width", "inner", "vocabulary", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name.replace('_', ' ')}: {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} keys and values")

    @classmethod
    def of(cls, config: Mapping[str, Any], where: str | None = None) -> Shape:
        """From a `config.json` as transformers writes it; an unknown family is one clear error."""
        family = str(config.get("model_type"))
        if family not in FAMILIES:
            why = f"the engine knows {', '.join(FAMILIES)}"
            fix = "serve it with another program and use it as openai:NAME"
            raise InputError(f"the model family {family!r} is not supported", where=where, why=why, fix=fix)
        window = config.get("sliding_window") if config.get("use_sliding_window", family == "mistral") else None
        if window is not None:
            raise InputError(
                "models with sliding-window attention are not supported", where=where, fix="a model that reads all of its context"
            )
        if config.get("hidden_act", "silu") != "silu":
            raise InputError(f"the activation {config['hidden_act']!r} is not supported", where=where, fix="a model with silu")
        heads = int(config["num_attention_heads"])
        return cls(
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_width=int(config.get("head_dim") or config["hidden_size"] // heads),
            width=int(config["hidden_size"]),
            inner=int(config["intermediate_size"]),
            vocabulary=int(config["vocab_size"]),
            context=int(config.get("max_position_embeddings") or 2048),
            eps=float(config.get("rms_norm_eps", 1e-6)),
            rope=_rope(config, where),
            has_qkv_bias=family == "qwen2" or bool(config.get("attention_bias")),
            has_qk_norm=family == "qwen3",
            is_tied=bool(config.get("tie_word_embeddings", False)),
        )


def _rope(config: Mapping[str, Any], where: str | None) -> Rope:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "linear", "llama3"):
        raise InputError(f"the position scaling {kind!r} is not supported", where=where, fix="default, linear or llama3")
    return Rope(
        theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0),
        kind=kind,
        factor=float(rope.get("factor", 1.0)),
        low=float(rope.get("low_freq_factor", 1.0)),
        high=float(rope.get("high_freq_factor", 4.0)),
        original=int(rope.get("original_max_position_embeddings", 8192)),
    )


# -- weights ---------------------------------------------------------------------------------------------------------------


def _names(shape: Shape) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Our name of a weight, and the names in a transformers folder whose tensors it joins, row under row."""
    yield "words", ("model.embed_tokens.weight",)
    yield "norm", ("model.norm.weight",)
    if not shape.is_tied:
        yield "out", ("lm_head.weight",)
    for i in range(shape.layers):
        at = f"model.layers.{i}."
        yield f"{i}.norm1", (f"{at}input_layernorm.weight",)
        yield f"{i}.norm2", (f"{at}post_attention_layernorm.weight",)
        yield f"{i}.qkv", tuple(f"{at}self_attn.{x}_proj.weight" for x in "qkv")
        if shape.has_qkv_bias:
            yield f"{i}.qkv_bias", tuple(f"{at}self_attn.{x}_proj.bias" for x in "qkv")
        if shape.has_qk_norm:
            yield f"{i}.q_norm", (f"{at}self_attn.q_norm.weight",)
            yield f"{i}.k_norm", (f"{at}self_attn.k_norm.weight",)
        yield f"{i}.o", (f"{at}self_attn.o_proj.weight",)
        yield f"{i}.gate_up", (f"{at}mlp.gate_proj.weight", f"{at}mlp.up_proj.weight")
        yield f"{i}.down", (f"{at}mlp.down_proj.weight",)


def sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """How large each weight is, by our names."""
    s, heads, joined = shape, shape.heads * shape.head_width, (shape.heads + 2 * shape.kv_heads) * shape.head_width
    layer = {
        "norm1": (s.width,), "norm2": (s.width,), "qkv": (joined, s.width), "qkv_bias": (joined,), "q_norm": (s.head_width,),
        "k_norm": (s.head_width,), "o": (s.width, heads), "gate_up": (2 * s.inner, s.width), "down": (s.width, s.inner),
    }  # fmt: skip
    ends = {"words": (s.vocabulary, s.width), "out": (s.vocabulary, s.width), "norm": (s.width,)}
    return {name: ends[name] if name in ends else layer[name.partition(".")[2]] for name, _ in _names(shape)}


def shape_of(folder: Path) -> Shape:
    """The shape that a transformers folder's `config.json` tells."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        if not isinstance(config, dict):
            raise ValueError("no object of names and values")
        return Shape.of(config, folder.name)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise InputError(f"config.json cannot be read: {error}", where=folder.name, fix="a transformers folder") from error


def read(folder: Path, *, device: str = "cpu", dtype: torch.dtype | None = None) -> tuple[Shape, Weights]:
    """The shape and the weights of a transformers folder (`config.json`, `*.safetensors`)."""
    import torch
    from safetensors import safe_open

    shape = shape_of(folder)
    tensors: dict[str, Any] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            tensors |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a dict
    layers = {int(name.split(".")[2]) for name in tensors if name.startswith("model.layers.")}
    if layers and max(layers) >= shape.layers:
        what = f"the weights have {max(layers) + 1} layers, and config.json says {shape.layers}"
        raise InputError(what, where=folder.name, fix="a whole transformers folder")
    weights: Weights = {}
    for name, parts in _names(shape):
        weights[name] = _joined(parts, tensors, folder.name).to(device=device, dtype=dtype or torch.float32).contiguous()
        for part in parts:
            del tensors[part]  # a large model is not held twice
    return shape, weights


def of_transformers(shape: Shape, tensors: Mapping[str, Tensor], where: str | None = None) -> Weights:
    """Weights by the names of a transformers model, by ours."""
    return {name: _joined(parts, tensors, where) for name, parts in _names(shape)}


def _joined(parts: tuple[str, ...], tensors: Mapping[str, Tensor], where: str | None) -> Tensor:
    import torch

    if missing := [part for part in parts if part not in tensors]:
        raise InputError(f"the weights lack {missing[0]}", where=where, fix="a whole transformers folder")
    return torch.cat([tensors[part] for part in parts])


def as_transformers(shape: Shape, weights: Weights) -> Weights:
    """The same weights by the names of a transformers folder."""
    out: Weights = {}
    heads = [shape.heads * shape.head_width, shape.kv_heads * shape.head_width, shape.kv_heads * shape.head_width]
    for name, parts in _names(shape):
        sizes = heads if "qkv" in name else [shape.inner] * 2 if "gate_up" in name else [len(weights[name])]
        out |= dict(zip(parts, (t.contiguous() for t in weights[name].split(sizes)), strict=True))
    return out


# -- computing -------------------------------------------------------------------------------------------------------------


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    y = x.float()
    return (y * (y.pow(2).mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype) * weight.to(x.dtype)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    from torch.nn.functional import linear

    return linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


class _Layer(NamedTuple):
    """Weights of one layer, in the order in which they are used."""

    norm1: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Tensor
    norm2: Tensor
    gate_up: Tensor
    down: Tensor


def _before(h: Tensor, w: _Layer, turn: tuple[Tensor, Tensor], s: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of a layer."""
    joined = _linear(_rms(h, w.norm1, s.eps), w.qkv, w.qkv_bias)
    q, k, v = joined.view(h.shape[0], -1, s.head_width).split([s.heads, s.kv_heads, s.kv_heads], dim=1)
    if w.q_norm is not None and w.k_norm is not None:
        q, k = _rms(q, w.q_norm, s.eps), _rms(k, w.k_norm, s.eps)
    return _turned(q, *turn), _turned(k, *turn), v


def _after(h: Tensor, attention: Tensor, w: _Layer, s: Shape) -> Tensor:
    """What a layer adds once it has looked."""
    from torch.nn.functional import silu

    h = h + _linear(attention, w.o)
    gate, up = _linear(_rms(h, w.norm2, s.eps), w.gate_up).chunk(2, dim=-1)
    return h + _linear(silu(gate) * up, w.down)


def _looked(q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
    """Attention in one long row, block by block (FlexAttention, arXiv 2412.05496): what the mask leaves out is not computed.

    The mask may cut those that ask into parts, which are a batch over the same keys.
    """
    from torch.nn.attention.flex_attention import flex_attention

    parts = mask.kv_num_blocks.shape[0]
    asking = q.view(parts, -1, *q.shape[1:]).transpose(1, 2).contiguous()
    k, v = (x[None].transpose(1, 2).contiguous() for x in (k, v))
    attention: Any = flex_attention(asking, k, v, block_mask=mask, enable_gqa=True)
    out: Tensor = attention.transpose(1, 2).reshape(q.shape)
    return out


def _layer(h: Tensor, w: _Layer, turn: tuple[Tensor, Tensor], s: Shape, mask: Any) -> Tensor:
    """A whole layer over one long row."""
    q, k, v = _before(h, w, turn, s)
    return _after(h, _looked(q, k, v, mask).reshape(len(h), -1), w, s)


class Network:
    """What a shape computes, over weights that are given each time."""

    def __init__(
        self,
        shape: Shape,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        is_compiled: bool = False,
        is_recomputed: bool = False,
    ) -> None:
        """`is_compiled`: fuse what stands between two products, which takes a minute at first and pays on a GPU.

        `is_recomputed`: of a layer only what it is given is kept for the way back, where it is computed once more (gradient
        checkpointing, arXiv 1604.06174).
        """
        import torch

        self.shape, self.device, self.dtype = shape, torch.device(device), dtype or torch.float32
        self.is_recomputed = is_recomputed
        self._turns: tuple[Tensor, Tensor] | None = None
        self._before: Any = torch.compile(_before, dynamic=True) if is_compiled else _before
        self._after: Any = torch.compile(_after, dynamic=True) if is_compiled else _after
        self._layer: Any = torch.compile(_layer, dynamic=False) if is_compiled else _layer

    def turns(self) -> tuple[Tensor, Tensor]:
        """cos and sin of every position's angles, float32 [context, width / 2]."""
        import torch

        if self._turns is None:
            at = torch.arange(self.shape.context, device=self.device, dtype=torch.float32)
            angles = at[:, None] * frequencies(self.shape).to(self.device)[None]
            self._turns = angles.cos().contiguous(), angles.sin().contiguous()
        return self._turns

    def hidden_states(
        self, weights: Weights, ids: Tensor, positions: Tensor, attend: Attend, layers: Sequence[LayerCall] | None = None
    ) -> Tensor:
        """The last layer's [tokens, width] before the final norm; `layers` compute in place of those of `weights`."""
        from torch.nn.functional import embedding

        h = embedding(ids, weights["words"]).to(self.dtype)
        cos, sin = (table[positions][:, None] for table in self.turns())
        for i in range(self.shape.layers):
            if layers is not None:
                h = layers[i](h, (cos, sin), attend)
            else:
                h = self.again(self.layer, weights, i, h, (cos, sin), attend)
        return h

    def layer(self, weights: Weights, i: int, h: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """[tokens, width] after one layer."""
        w = _Layer(*(weights.get(f"{i}.{name}") for name in _Layer._fields))  # type: ignore[arg-type]
        if isinstance(attend, LongRow):
            whole: Tensor = self._layer(h, w, turn, self.shape, attend.mask)
            return whole
        q, k, v = self._before(h, w, turn, self.shape)
        out: Tensor = self._after(h, attend(i, q, k, v).reshape(len(h), -1), w, self.shape)
        return out

    def again(self, compute: Callable[..., Tensor], *args: Any) -> Tensor:
        """What it computes, once more on the way back where layers are recomputed."""
        import torch
        from torch.utils.checkpoint import checkpoint

        if not (self.is_recomputed and torch.is_grad_enabled()):
            return compute(*args)
        out: Tensor = checkpoint(compute, *args, use_reentrant=False, preserve_rng_state=False)
        return out

    def logits(self, weights: Weights, hidden: Tensor) -> Tensor:
        """float32 [tokens, vocabulary] of rows of `hidden`."""
        x = _rms(hidden, weights["norm"], self.shape.eps)
        return _linear(x, weights["words" if self.shape.is_tied else "out"]).float()


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    import torch

    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def frequencies(shape: Shape) -> Tensor:
    """Radians per position of each pair of a head's numbers, [width / 2]."""
    import torch

    rope = shape.rope
    base = 1.0 / rope.theta ** (torch.arange(0, shape.head_width, 2, dtype=torch.float32) / shape.head_width)
    if rope.kind == "linear":
        return base / rope.factor
    if rope.kind == "llama3":
        turns = rope.original * base / (2 * math.pi)
        smooth = ((turns - rope.low) / (rope.high - rope.low)).clamp(0, 1)
        return base * smooth + base / rope.factor * (1 - smooth)
    return base


class Packed:
    """`attend` for whole sequences that stand one after the other: each token sees its own sequence up to itself."""

    def __init__(self, lengths: list[int], device: str | torch.device = "cpu") -> None:
        import torch

        self.lengths, self.longest = lengths, max(lengths)
        at = torch.arange(self.longest, device=device)[None]
        real = at < torch.tensor(lengths, device=device)[:, None]
        self.positions = at.expand(len(lengths), -1)[real]
        self.at = real.flatten().nonzero()[:, 0]
        """Where a padded square holds each token."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from torch.nn.functional import scaled_dot_product_attention

        out = scaled_dot_product_attention(self._square(q), self._square(k), self._square(v), is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(0, 1).index_select(0, self.at)

    def _square(self, x: Tensor) -> Tensor:
        rows = len(self.lengths)
        padded = x.new_zeros((rows * self.longest, *x.shape[1:])).index_copy(0, self.at, x)
        return padded.view(rows, self.longest, *x.shape[1:]).transpose(1, 2)


class LongRow:
    """`attend` for whole rows of blocks, on a GPU: which tokens see which is said by a block mask."""

    def __init__(self, mask: Any, positions: Tensor) -> None:
        self.mask, self.positions = mask, positions

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _looked(q, k, v, self.mask)
