"""What a GGUF file says before its weights: the sizes of its network, and what transformers passes over when it reads the file.

Always true: nothing of the weights is read but the divisors of positions; a file that is cut off, or holds what would be computed
otherwise than it means, is one clear error.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.lm.network import frequencies
from counterpoint.lab.lm.shape import ELSEWHERE, Rope

if TYPE_CHECKING:
    from numpy.typing import NDArray

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3")
_LARGE = {("gemma2", 46), ("gemma3", 62)}
"""The 27B models: their scores are divided by the root of another number than a head's width, which no field of a file says."""


class GgufHeader(NamedTuple):
    """Values by their names (of lists, how long they are), and each tensor by its name: its bytes or numbers, where they lie in
    the file, and how many numbers it has."""

    values: dict[str, Any]
    tensors: dict[str, NDArray[Any]]
    sizes: dict[str, int]

    @property
    def family(self) -> str:
        """The architecture."""
        return str(self.values.get("general.architecture"))

    def of(self, name: str, default: Any = None) -> Any:
        """A value of the architecture."""
        return self.values.get(f"{self.family}.{name}", default)


def read_header(path: Path) -> GgufHeader:
    """The header of a GGUF file whose weights are all there."""
    from gguf import GGUFReader, GGUFValueType

    try:
        reader = GGUFReader(path)
        values = {
            name: len(field.data) if field.types[0] == GGUFValueType.ARRAY else field.contents()
            for name, field in reader.fields.items()
            if not name.startswith("GGUF.")
        }
        tensors = {t.name: t.data for t in reader.tensors}
        sizes = {t.name: int(t.n_elements) for t in reader.tensors}
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError) as error:
        what, fix = "this GGUF file is damaged or cut off", "download it again"
        raise InputError(what, where=path.name, why=str(error) or None, fix=fix) from error
    return GgufHeader(values, tensors, sizes)


def parameters(header: GgufHeader) -> int:
    """How many numbers its weights are."""
    return sum(header.sizes.values())


def passed_over(path: Path, header: GgufHeader) -> dict[str, Any]:
    """What a configuration must say besides what transformers takes from the file."""
    family = header.family
    if family not in ARCHITECTURES:
        why, fix = f"of GGUF files, {', '.join(ARCHITECTURES)} are read", f"the transformers folder of the model, or {ELSEWHERE}"
        raise InputError(f"the architecture {family!r} is not supported", where=path.name, why=why, fix=fix)
    is_split, experts = int(header.values.get("split.count", 1)) > 1, int(header.of("expert_count", 0))
    if is_split or experts:
        what = "is a part of a model" if is_split else f"has {experts} experts, which are not supported"
        raise InputError(what, where=path.name, fix="one file for the whole model" if is_split else ELSEWHERE)
    out: dict[str, Any] = {}
    if width := header.of("attention.key_length"):
        out["head_dim"] = int(width)
    if family in ("gemma2", "gemma3"):
        out |= {n: float(header.of(n)) for n in ("attn_logit_softcapping", "final_logit_softcapping") if header.of(n)}
        of_heads = int(header.of("embedding_length")) // int(header.of("attention.head_count"))
        out["query_pre_attn_scalar"] = of_heads if (family, header.of("block_count")) in _LARGE else int(width or 256)
    elif (window := header.of("attention.sliding_window")) and window < header.of("context_length", 0):
        raise InputError("has a sliding window, which transformers does not read from GGUF files", where=path.name, fix=ELSEWHERE)
    return out | _positions(path, header)


def _positions(path: Path, header: GgufHeader) -> dict[str, Any]:
    """How positions are scaled: by one factor, or by the divisors of Llama 3."""
    kind, theta = header.of("rope.scaling.type", "none"), float(header.of("rope.freq_base", 10_000.0))
    if "rope_freqs.weight" in header.tensors:
        return {"rope_parameters": _by_divisors(path, header, theta)}
    if kind not in ("none", "linear"):
        raise InputError(f"the position scaling {kind!r} is not supported", where=path.name, fix=ELSEWHERE)
    factor = float(header.of("rope.scaling.factor", 1.0))
    if kind == "none" or factor == 1:
        return {}
    linear = {"rope_type": "linear", "factor": factor, "rope_theta": theta}
    if header.family != "gemma3":
        return {"rope_parameters": linear}
    near = {"rope_type": "default", "rope_theta": 10_000.0}
    return {"rope_parameters": {"full_attention": linear, "sliding_attention": near}}


def _by_divisors(path: Path, header: GgufHeader, theta: float) -> dict[str, Any]:
    """The settings of Llama 3 that a tensor of divisors was made with."""
    divisors = header.tensors["rope_freqs.weight"]
    found = divisors if divisors.dtype == np.float32 else np.ones(1, np.float32)
    rope = Rope(kind="llama3", factor=float(found.max()), theta=theta)
    plain, scaled = (frequencies(r, 2 * len(found)).numpy() for r in (Rope(theta=theta), rope))
    if not np.allclose(plain / found, scaled, rtol=1e-3, atol=0):
        raise InputError("scales positions in a way of its own", where=path.name, fix=ELSEWHERE)
    told = {"factor": rope.factor, "low_freq_factor": rope.low, "high_freq_factor": rope.high}
    return {"rope_type": "llama3", "rope_theta": theta, **told, "original_max_position_embeddings": rope.original}
