"""Decoder networks of the Llama family (Llama, SmolLM, Mistral, Qwen, Gemma) as functions over a dict of weights.

Always true: tokens of many sequences stand in one row without padding; who sees whom is the business of `attend`, which is given
queries, keys and values layer by layer. So reading a prompt, writing the next token and learning are one code path.

    h' = h + W_o attend(rope(norm(W_q x)), rope(norm(W_k x)), W_v x),   x = rms(h)     (Llama, arXiv 2302.13971; GQA 2305.13245)
    h  = h' + W_down (silu(W_gate y) * W_up y),                         y = rms(h')

What a family does otherwise is in its `Shape`.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from counterpoint.errors import InputError
from counterpoint.lab.lm.shape import ELSEWHERE, WHOLE, Rope, Shape, Sight

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Weights = dict[str, "Tensor"]
Attend = Callable[[int, "Tensor", "Tensor", "Tensor", Sight], "Tensor"]
"""(layer, queries [tokens, heads, width], keys [tokens, kv heads, width], values, what is seen) -> [tokens, heads, width]"""
LayerCall = Callable[["Tensor", "tuple[Tensor, Tensor]", Attend], "Tensor"]
"""([tokens, width], cos and sin of their positions, attend) -> [tokens, width] after one layer"""
LINEAR = ("qkv", "o", "gate_up", "down")
"""The linear maps of a layer, by our names."""
ALONE = threading.Lock()
"""Of this process's GPU: held by who captures a graph, and by who compiles, which waits for the whole device. Both are rare."""

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
        if shape.has_post_norms:
            yield f"{i}.after1", (f"{at}post_attention_layernorm.weight",)
            yield f"{i}.after2", (f"{at}post_feedforward_layernorm.weight",)
        yield f"{i}.norm2", (f"{at}{'pre_feedforward' if shape.has_post_norms else 'post_attention'}_layernorm.weight",)
        yield f"{i}.qkv", tuple(f"{at}self_attn.{x}_proj.weight" for x in "qkv")
        if shape.has_qkv_bias:
            yield f"{i}.qkv_bias", tuple(f"{at}self_attn.{x}_proj.bias" for x in "qkv")
        if shape.has_qk_norm:
            yield f"{i}.q_norm", (f"{at}self_attn.q_norm.weight",)
            yield f"{i}.k_norm", (f"{at}self_attn.k_norm.weight",)
        yield f"{i}.o", (f"{at}self_attn.o_proj.weight",)
        if shape.has_o_bias:
            yield f"{i}.o_bias", (f"{at}self_attn.o_proj.bias",)
        yield f"{i}.gate_up", (f"{at}mlp.gate_proj.weight", f"{at}mlp.up_proj.weight")
        yield f"{i}.down", (f"{at}mlp.down_proj.weight",)


def sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """How large each weight is, by our names."""
    s, heads, joined = shape, shape.heads * shape.head_width, (shape.heads + 2 * shape.kv_heads) * shape.head_width
    layer = {
        "norm1": (s.width,), "norm2": (s.width,), "qkv": (joined, s.width), "qkv_bias": (joined,), "q_norm": (s.head_width,),
        "k_norm": (s.head_width,), "o": (s.width, heads), "o_bias": (s.width,), "after1": (s.width,), "after2": (s.width,),
        "gate_up": (2 * s.inner, s.width), "down": (s.width, s.inner),
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
    check_unread(shape, tensors, folder.name)
    return shape, weights


def check_unread(shape: Shape, names: Iterable[str], where: str) -> None:
    """Raise where a network of this shape would pass over weights of a folder: biases, norms, scales of quantised weights."""
    known = {part for _, parts in _names(shape) for part in parts} | {"lm_head.weight"}
    for name in sorted(names):
        if name not in known and name.startswith(("model.", "lm_head.")) and not name.endswith(".inv_freq"):
            what, why = f"the weights hold {name}, which would be passed over", f"config.json says {shape.family}"
            raise InputError(what, where=where, why=why, fix=ELSEWHERE)


def parts_of(shape: Shape) -> dict[str, tuple[str, ...]]:
    """Of each of our weights, the tensors of a transformers folder that it joins."""
    return dict(_names(shape))


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


def _rms(x: Tensor, weight: Tensor, s: Shape) -> Tensor:
    y = x.float()
    y = y * (y.pow(2).mean(-1, keepdim=True) + s.eps).rsqrt()
    if s.is_gemma:
        return (y * (1.0 + weight.float())).to(x.dtype)
    return y.to(x.dtype) * weight.to(x.dtype)


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
    o_bias: Tensor | None
    after1: Tensor | None
    norm2: Tensor
    gate_up: Tensor
    down: Tensor
    after2: Tensor | None


def _before(h: Tensor, w: _Layer, turn: tuple[Tensor, Tensor], s: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of a layer."""
    joined = _linear(_rms(h, w.norm1, s), w.qkv, w.qkv_bias)
    q, k, v = joined.view(h.shape[0], -1, s.head_width).split([s.heads, s.kv_heads, s.kv_heads], dim=1)
    if w.q_norm is not None and w.k_norm is not None:
        q, k = _rms(q, w.q_norm, s), _rms(k, w.k_norm, s)
    q = _turned(q, *turn)
    return q if s.query_factor is None else q * s.query_factor, _turned(k, *turn), v


def _after(h: Tensor, attention: Tensor, w: _Layer, s: Shape) -> Tensor:
    """What a layer adds once it has looked."""
    from torch.nn.functional import gelu, silu

    added = _linear(attention, w.o, w.o_bias)
    h = h + (added if w.after1 is None else _rms(added, w.after1, s))
    gate, up = _linear(_rms(h, w.norm2, s), w.gate_up).chunk(2, dim=-1)
    added = _linear((gelu(gate, approximate="tanh") if s.is_gemma else silu(gate)) * up, w.down)
    return h + (added if w.after2 is None else _rms(added, w.after2, s))


def look(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, cap: float = 0.0) -> Tensor:
    """Attention of [rows, heads, tokens, width] under a mask that says who is seen, or is added to the scores."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    if not cap:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    groups = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(groups, 1).mT / math.sqrt(q.shape[-1])
    scores = cap * (scores / cap).tanh()
    scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.float().softmax(-1).to(v.dtype) @ v.repeat_interleave(groups, 1)


def visible(asking: Tensor, asked: Tensor, window: int) -> Tensor:
    """Which places see which, bool [asking, asked]: those up to themselves, no further back than the window."""
    back = asking[:, None] - asked[None]
    return (back >= 0) & (back < window) if window else back >= 0


def _looked(q: Tensor, k: Tensor, v: Tensor, mask: Any, sight: Sight | None, positions: Tensor) -> Tensor:
    """Attention in one long row, block by block (FlexAttention, arXiv 2412.05496): what the mask leaves out is not computed.

    The mask may cut those that ask into parts, which are a batch over the same keys. A window is of positions, since in a forest
    what stands between two tokens may belong to others.
    """
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    parts = mask.kv_num_blocks.shape[0]
    asking = q.view(parts, -1, *q.shape[1:]).transpose(1, 2).contiguous()
    k, v = (x[None].transpose(1, 2).contiguous() for x in (k, v))
    size = asking.shape[2]

    def bent(score: Tensor, part: Tensor, head: Tensor, at: Tensor, asked: Tensor) -> Tensor:
        assert sight is not None
        score = sight.cap * torch.tanh(score / sight.cap) if sight.cap else score
        if not sight.window:
            return score
        return torch.where(positions[part * size + at] - positions[asked] < sight.window, score, -torch.inf)

    attention: Any = flex_attention(asking, k, v, score_mod=None if sight is None else bent, block_mask=mask, enable_gqa=True)
    out: Tensor = attention.transpose(1, 2).reshape(q.shape)
    return out


def _layer(
    h: Tensor, w: _Layer, turn: tuple[Tensor, Tensor], s: Shape, mask: Any, sight: Sight | None, positions: Tensor
) -> Tensor:
    """A whole layer over one long row."""
    q, k, v = _before(h, w, turn, s)
    return _after(h, _looked(q, k, v, mask, sight, positions).reshape(len(h), -1), w, s)


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
        self._turns: dict[Rope, tuple[Tensor, Tensor]] = {}
        self._before: Any = torch.compile(_before, dynamic=True) if is_compiled else _before
        self._after: Any = torch.compile(_after, dynamic=True) if is_compiled else _after
        self._layer: Any = torch.compile(_layer, dynamic=False) if is_compiled else _layer

    def turns(self, layer: int = 0) -> tuple[Tensor, Tensor]:
        """cos and sin of every position's angles in a layer, float32 [context, width / 2]."""
        import torch

        rope = self.shape.rope_of(layer)
        if rope not in self._turns:
            at = torch.arange(self.shape.context, device=self.device, dtype=torch.float32)
            angles = at[:, None] * frequencies(rope, self.shape.head_width).to(self.device)[None]
            self._turns[rope] = angles.cos().contiguous(), angles.sin().contiguous()
        return self._turns[rope]

    def hidden_states(
        self, weights: Weights, ids: Tensor, positions: Tensor, attend: Attend, layers: Sequence[LayerCall] | None = None
    ) -> Tensor:
        """The last layer's [tokens, width] before the final norm; `layers` compute in place of those of `weights`."""
        from torch.nn.functional import embedding

        h = embedding(ids, weights["words"]).to(self.dtype)
        s = self.shape
        if s.is_gemma:
            h = h * h.new_tensor(math.sqrt(s.width))
        turned = {s.rope_of(i): tuple(table[positions][:, None] for table in self.turns(i)) for i in range(s.layers)}
        for i in range(s.layers):
            turn: Any = turned[s.rope_of(i)]
            h = layers[i](h, turn, attend) if layers is not None else self.again(self.layer, weights, i, h, turn, attend)
        return h

    def layer(self, weights: Weights, i: int, h: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """[tokens, width] after one layer."""
        w, s = _Layer(*(weights.get(f"{i}.{name}") for name in _Layer._fields)), self.shape  # type: ignore[arg-type]
        sight = s.sight(i)
        if isinstance(attend, LongRow):
            whole: Tensor = self._layer(h, w, turn, s, attend.mask, sight if any(sight) else None, attend.positions)
            return whole
        q, k, v = self._before(h, w, turn, s)
        out: Tensor = self._after(h, attend(i, q, k, v, sight).reshape(len(h), -1), w, s)
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
        s = self.shape
        x = _linear(_rms(hidden, weights["norm"], s), weights["words" if s.is_tied else "out"]).float()
        return s.word_cap * (x / s.word_cap).tanh() if s.word_cap else x


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    import torch

    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def frequencies(rope: Rope, width: int) -> Tensor:
    """Radians per position of each pair of a head's numbers, [width / 2]."""
    import torch

    base = 1.0 / rope.theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    if rope.kind == "none":
        return torch.zeros_like(base)
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

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, sight: Sight = WHOLE) -> Tensor:
        import torch
        from torch.nn.functional import scaled_dot_product_attention

        q, k, v = self._square(q), self._square(k), self._square(v)
        if any(sight):
            at = torch.arange(self.longest, device=q.device)
            out = look(q, k, v, visible(at, at, sight.window), sight.cap)
        else:
            out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(0, 1).index_select(0, self.at)

    def _square(self, x: Tensor) -> Tensor:
        rows = len(self.lengths)
        padded = x.new_zeros((rows * self.longest, *x.shape[1:])).index_copy(0, self.at, x)
        return padded.view(rows, self.longest, *x.shape[1:]).transpose(1, 2)


class LongRow:
    """`attend` for whole rows of blocks, on a GPU: which tokens see which is said by a block mask."""

    def __init__(self, mask: Any, positions: Tensor) -> None:
        self.mask, self.positions = mask, positions

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, sight: Sight = WHOLE) -> Tensor:
        return _looked(q, k, v, self.mask, sight if any(sight) else None, self.positions)
