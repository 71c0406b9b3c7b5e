"""The shape of a network: its sizes, and what its family computes otherwise than Llama does, from a folder's `config.json`.

Always true: what a configuration asks for and the networks do not compute is one clear error; nothing of it is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from counterpoint.errors import InputError

_OFTEN: dict[str, Any] = {"tie_word_embeddings": True, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh"}
_GEMMA2 = _OFTEN | {"sliding_window": 4096, "query_pre_attn_scalar": 256, "max_position_embeddings": 8192}
_FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 4096},
    "qwen2": {},
    "qwen3": {"head_dim": 128},
    "smollm3": {"tie_word_embeddings": True, "rope_theta": 2e6, "max_position_embeddings": 32_768},
    "gemma": _OFTEN | {"max_position_embeddings": 8192},
    "gemma2": _GEMMA2 | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3_text": _GEMMA2 | {"max_position_embeddings": 131_072, "rope_theta": 1e6},
}
"""What a configuration means where it is silent, by family."""
FAMILIES = tuple(_FAMILIES)
ELSEWHERE = "serve it with another program and use it as openai:NAME"
_SLIDING, _FULL = "sliding_attention", "full_attention"
_SHARING = 16
"""Queries of one key that the kernels hold."""


@dataclass(frozen=True)
class Rope:
    """How positions turn queries and keys."""

    theta: float = 10_000.0
    kind: str = "default"
    """default, linear (positions divided by `factor`), llama3 (low frequencies divided, Llama 3.1) or none (SmolLM3)."""
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192


class Sight(NamedTuple):
    """What the tokens of a layer see, and how."""

    window: int = 0
    """Of what stands before it a token sees so many, itself included; 0: all."""
    cap: float = 0.0
    """Scores stay below it: cap tanh(score / cap); 0: they are as they are."""


WHOLE = Sight()
"""All that stands before, as most families have it."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a network, and what its family does otherwise."""

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
    """Qwen3 and Gemma 3 normalise queries and keys, head by head."""
    is_tied: bool = True
    """Words are read and written by one table."""
    family: str = "llama"
    has_o_bias: bool = False
    ropes: tuple[Rope, ...] = ()
    """Each layer's own, where they differ."""
    windows: tuple[int, ...] = ()
    """What each layer's tokens see, as `Sight.window`; all where empty."""
    cap: float = 0.0
    """Of the scores, as `Sight.cap` (Gemma 2)."""
    word_cap: float = 0.0
    """Of the logits (Gemma 2)."""
    query_factor: float | None = None
    """By which queries are longer than attention takes them to be, where they are (Gemma 2 and 3)."""

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "kv_heads", "head_width", "width", "inner", "vocabulary", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name.replace('_', ' ')}: {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} keys and values")

    @property
    def is_gemma(self) -> bool:
        """Whether norms multiply by 1 + w, words are sqrt(width) long and gates are GELU (Gemma, arXiv 2403.08295)."""
        return self.family.startswith("gemma")

    @property
    def has_post_norms(self) -> bool:
        """Whether what a layer adds is normalised first (Gemma 2, arXiv 2408.00118)."""
        return self.family in ("gemma2", "gemma3_text")

    def rope_of(self, layer: int) -> Rope:
        """How positions turn a layer's queries and keys."""
        return self.ropes[layer] if self.ropes else self.rope

    def sight(self, layer: int) -> Sight:
        """What a layer's tokens see; a window as wide as the context is none."""
        window = self.windows[layer] if self.windows else 0
        return Sight(window if window < self.context else 0, self.cap)

    def require_kernels(self) -> None:
        """Raise where the kernels of a GPU would compute something else."""
        windows = {self.sight(i).window for i in range(self.layers)} - {0}
        why = (
            "norms by 1 + w and GELU" if self.is_gemma
            else f"a sliding window of {max(windows):,} tokens" if windows
            else f"{self.heads // self.kv_heads} queries of one key" if self.heads // self.kv_heads > _SHARING
            else None
        )  # fmt: skip
        if why is None:
            return
        fix = f"context={min(windows)}, or device=cpu" if windows and not self.is_gemma else "device=cpu"
        raise InputError(f"the GPU's kernels do not compute {self.family} models", why=why, fix=f"{fix}, or {ELSEWHERE}")

    @classmethod
    def of(cls, config: Mapping[str, Any], where: str | None = None) -> Shape:
        """From a `config.json` as transformers writes it; an unknown family is one clear error."""
        family = str(config.get("model_type"))
        if family not in _FAMILIES:
            raise _unknown(family, where)
        config = _FAMILIES[family] | dict(config)
        _check(config, family, where)
        heads, layers = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
        head_width = int(config.get("head_dim") or config["hidden_size"] // heads)
        has_bias = bool(config.get("attention_bias")) and family not in ("mistral", "qwen2")
        kinds = _kinds(config, family, layers, where)
        rope, ropes = _ropes(config, family, kinds, where)
        asked = float(config.get("query_pre_attn_scalar") or head_width)
        return cls(
            layers=layers,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_width=head_width,
            width=int(config["hidden_size"]),
            inner=int(config["intermediate_size"]),
            vocabulary=int(config["vocab_size"]),
            context=int(config.get("max_position_embeddings") or 2048),
            eps=float(config.get("rms_norm_eps", 1e-6)),
            rope=rope,
            has_qkv_bias=family == "qwen2" or has_bias,
            has_qk_norm=family in ("qwen3", "gemma3_text"),
            is_tied=bool(config.get("tie_word_embeddings", False)),
            family=family,
            has_o_bias=has_bias,
            ropes=ropes,
            windows=_windows(config, family, kinds),
            cap=float(config.get("attn_logit_softcapping") or 0.0),
            word_cap=float(config.get("final_logit_softcapping") or 0.0),
            query_factor=None if asked == head_width else (head_width / asked) ** 0.5,
        )


def _unknown(family: str, where: str | None) -> InputError:
    why, fix = f"the engine knows {', '.join(FAMILIES)}", ELSEWHERE
    if family == "gemma3":
        why, fix = "it reads pictures too", f"save its language model alone (gemma3_text), or {ELSEWHERE}"
    return InputError(f"the model family {family!r} is not supported", where=where, why=why, fix=fix)


def _check(config: Mapping[str, Any], family: str, where: str | None) -> None:
    """Raise where a configuration asks for what is not computed."""
    gate = config.get("hidden_activation" if family in ("gemma2", "gemma3_text") else "hidden_act")
    known = ("gelu", "gelu_pytorch_tanh", None) if family == "gemma" else ("gelu_pytorch_tanh",)
    if gate not in (known if family.startswith("gemma") else ("silu", None)):
        fix = f"a model with {'GELU by tanh' if family.startswith('gemma') else 'silu'}"
        raise InputError(f"the activation {gate!r} is not supported", where=where, fix=fix)
    turned = (config.get("rope_parameters") or {}).get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1
    asked = {"mlp_bias": config.get("mlp_bias"), "use_bidirectional_attention": config.get("use_bidirectional_attention")}
    for name, is_asked in (asked | {"partial_rotary_factor": turned != 1}).items():
        if is_asked:
            raise InputError(f"models with {name} are not supported", where=where, fix=ELSEWHERE)


def _kinds(config: Mapping[str, Any], family: str, layers: int, where: str | None) -> list[str]:
    """Whether each layer slides, where the family has a window."""
    if family in ("llama", "gemma", "mistral"):
        return [_SLIDING if family == "mistral" else _FULL] * layers
    kinds = config.get("layer_types")
    if kinds is None:
        every = 2 if family == "gemma2" else int(config.get("sliding_window_pattern") or 6)
        full = [(i + 1) % every == 0 for i in range(layers)]
        if family == "smollm3":
            full = _has_rope(config, layers)
        elif family in ("qwen2", "qwen3"):
            full = [i < int(config.get("max_window_layers", 28)) for i in range(layers)]
        return [_FULL if is_full else _SLIDING for is_full in full]
    if len(kinds) != layers or not set(kinds) <= {_SLIDING, _FULL}:
        what = f"layers of the kinds {', '.join(map(str, dict.fromkeys(kinds)))} are not supported"
        raise InputError(what, where=where, fix=f"{_SLIDING} or {_FULL} for each of the {layers} layers")
    return list(kinds)


def _windows(config: Mapping[str, Any], family: str, kinds: list[str]) -> tuple[int, ...]:
    """Each layer's window; none where no layer has one."""
    is_used = config.get("use_sliding_window", family in ("mistral", "gemma2", "gemma3_text"))
    window = int(config.get("sliding_window") or 0) if is_used else 0
    return tuple(window if kind == _SLIDING else 0 for kind in kinds) if window and _SLIDING in kinds else ()


def _has_rope(config: Mapping[str, Any], layers: int) -> list[bool]:
    """Which layers of SmolLM3 turn by positions."""
    listed = config.get("no_rope_layers")
    if listed is None:
        every = int(config.get("no_rope_layer_interval") or 4)
        return [(i + 1) % every != 0 for i in range(layers)]
    return [bool(listed[i]) for i in range(layers)]


def _ropes(config: Mapping[str, Any], family: str, kinds: list[str], where: str | None) -> tuple[Rope, tuple[Rope, ...]]:
    """The usual turning, and that of each layer where they differ."""
    told = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(config.get("rope_theta") or 10_000.0)
    if family == "gemma3_text":
        is_by_kind = any(isinstance(part, Mapping) for part in told.values())
        by_kind = told if is_by_kind else {_FULL: told}
        full = _rope(by_kind.get(_FULL) or {}, theta, where)
        local = _rope(by_kind.get(_SLIDING) or {}, float(config.get("rope_local_base_freq") or 10_000.0), where)
        return full, tuple(local if kind == _SLIDING else full for kind in kinds)
    rope = _rope(told, theta, where)
    if family != "smollm3":
        return rope, ()
    return rope, tuple(rope if has_rope else Rope(kind="none") for has_rope in _has_rope(config, len(kinds)))


def _rope(told: Mapping[str, Any], theta: float, where: str | None) -> Rope:
    kind = told.get("rope_type") or told.get("type") or "default"
    if kind not in ("default", "linear", "llama3"):
        raise InputError(f"the position scaling {kind!r} is not supported", where=where, fix="default, linear or llama3")
    return Rope(
        theta=float(told.get("rope_theta") or theta),
        kind=kind,
        factor=float(told.get("factor", 1.0)),
        low=float(told.get("low_freq_factor", 1.0)),
        high=float(told.get("high_freq_factor", 4.0)),
        original=int(told.get("original_max_position_embeddings", 8192)),
    )
