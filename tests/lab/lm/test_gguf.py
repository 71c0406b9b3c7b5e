"""GGUF files of every family that has them: the network is the one that the file was made of, or the file is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

if not all(map(find_spec, ("torch", "transformers", "gguf"))):
    pytest.skip("needs the llm extra", allow_module_level=True)

import torch

from counterpoint.errors import InputError
from counterpoint.lab.app.cli.models import models
from counterpoint.lab.lm.gguf_header import passed_over, read_header
from counterpoint.lab.lm.network import Network, Packed, read
from counterpoint.lab.lm.weights import find, sha256
from families_help import LLAMA3, SIZES

CONVERTS = pytest.mark.skipif(find_spec("accelerate") is None, reason="needs accelerate, of the llm extra")
EIGHT = {**LLAMA3, "original_max_position_embeddings": 8192}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 7, "pad_token_id": None, "eos_token_id": None, "bos_token_id": None}
SEVEN = {**SIZES, "num_hidden_layers": 7}
LINEAR = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}
CONFIGS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "llama": ("llama", lambda t: t.LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama 3": ("llama", lambda t: t.LlamaConfig(**SIZES, rope_parameters=EIGHT)),
    "linear": ("llama", lambda t: t.LlamaConfig(**SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0})),
    "qwen2": ("qwen2", lambda t: t.Qwen2Config(**SIZES)),
    "qwen3": ("qwen3", lambda t: t.Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True)),
    "gemma2": ("gemma2", lambda t: t.Gemma2Config(**SIZES, **GEMMA, attn_logit_softcapping=3.0, final_logit_softcapping=5.0)),
    "gemma3": ("gemma3", lambda t: t.Gemma3TextConfig(**SEVEN, **GEMMA, rope_parameters=LINEAR)),
}


def model_of(name: str) -> Any:
    """A model of drawn weights that 16 bits hold exactly."""
    import transformers

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name][1](transformers), attn_implementation="eager").eval()
    for weight in model.parameters():
        weight.data = (torch.randint(-24, 25, weight.shape) / 64).float()
    return model


def write_gguf(name: str, model: Any, file: Path, without: str = "none", **change: Any) -> Path:
    """As llama.cpp's converter writes it; `without`: a tensor that is left out; `change`: other fields of the architecture."""
    import gguf

    arch, config, tensors = CONFIGS[name][0], model.config, dict(model.state_dict())
    writer = gguf.GGUFWriter(file, arch)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    fields = {
        "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size, "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size, "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads, "rope.freq_base": float(rope["rope_theta"]),
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps), "vocab_size": config.vocab_size,
    }  # fmt: skip
    if getattr(config, "head_dim", None):
        fields["attention.key_length"] = config.head_dim
    if arch.startswith("gemma"):
        fields["attention.sliding_window"] = config.sliding_window
        fields |= {n: v for n in ("attn_logit_softcapping", "final_logit_softcapping") if (v := getattr(config, n))}
    if rope["rope_type"] == "linear":
        fields |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    for key, value in (fields | change).items():
        kind = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)]
        kind(key if key.startswith("split.") else f"{arch}.{key}", value)
    add_words(writer, arch)
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", divisors(config))
    names = gguf.get_tensor_name_map(next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch), config.num_hidden_layers)
    for own, tensor in tensors.items():
        if own == without or (own == "lm_head.weight" and config.tie_word_embeddings):
            continue
        array = tensor.numpy() + (1 if arch.startswith("gemma") and "norm" in own else 0)
        if arch == "llama" and ("q_proj" in own or "k_proj" in own):
            heads = config.num_attention_heads if "q_proj" in own else config.num_key_value_heads
            array = array.reshape(heads, 2, len(array) // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(names.get_name(own, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def divisors(config: Any) -> np.ndarray:
    """What llama.cpp divides the frequencies of Llama 3 by."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    width = config.hidden_size // config.num_attention_heads
    plain = 1.0 / config.rope_parameters["rope_theta"] ** (np.arange(0, width, 2, dtype=np.float32) / width)
    return (plain / ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0].numpy()).astype(np.float32)


def add_words(writer: Any, arch: str) -> None:
    """A tokeniser of single letters."""
    letters = [chr(i) for i in range(33, 33 + 90)]
    if arch.startswith("gemma"):
        tokens = ["<pad>", "<eos>", "<bos>", "<unk>", *letters[:92], "▁"]
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([-float(i) for i in range(len(tokens))])
        writer.add_token_types([3, 3, 3, 2, *[1] * (len(tokens) - 4)])
        writer.add_unk_token_id(3)
    else:
        tokens = ["<|end|>", "<|im_start|>", *letters, "Ġ", "Ċ", "ab"]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("default")
        writer.add_token_types([3, 3, *[1] * (len(tokens) - 2)])
        writer.add_token_merges(["a b"])
    writer.add_token_list(tokens)
    writer.add_eos_token_id(1 if arch.startswith("gemma") else 0)
    writer.add_bos_token_id(2 if arch.startswith("gemma") else 1)


@CONVERTS
@pytest.mark.parametrize("name", CONFIGS)
def test_a_file_becomes_the_network_it_was_made_of(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_MODELS", str(tmp_path / "kept"))
    model = model_of(name)
    file = write_gguf(name, model, tmp_path / "small.F32.gguf")
    done = CliRunner().invoke(models, ["add", str(file), "--name", "mine", "--sha256", sha256(file)], catch_exceptions=False)
    assert done.exit_code == 0
    assert CliRunner().invoke(models, ["add", str(file), "--name", "mine"]).stdout.startswith("mine is there already, and whole")
    shape, weights = read(find("mine").path)
    ids, packed = torch.randint(4, 90, (40,), generator=torch.Generator().manual_seed(1)), Packed([40])
    network = Network(shape)
    got = network.logits(weights, network.hidden_states(weights, ids, packed.positions, packed))
    with torch.no_grad():
        wanted = model(input_ids=ids[None]).logits[0]
    assert torch.allclose(got, wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))


@CONVERTS
def test_weights_that_a_file_lacks_are_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_MODELS", str(tmp_path / "kept"))
    lacks = "model.layers.1.mlp.up_proj.weight"
    file = write_gguf("qwen2", model_of("qwen2"), tmp_path / "m.gguf", without=lacks)
    done = CliRunner().invoke(models, ["add", str(file)])
    assert isinstance(done.exception, InputError)
    assert done.exception.what == f"the weights lack {lacks}"
    assert not list((tmp_path / "kept").iterdir())


def refused(file: Path) -> InputError:
    with pytest.raises(InputError) as raised:
        passed_over(file, read_header(file))
    assert raised.value.where == file.name
    return raised.value


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}, "the position scaling 'yarn' is not supported"),
        ({"expert_count": 8}, "has 8 experts"),
        ({"attention.sliding_window": 64}, "has a sliding window"),
        ({"split.count": 3}, "is a part of a model"),
    ],
)
def test_what_would_be_computed_otherwise_is_refused(change: dict[str, Any], what: str, tmp_path: Path) -> None:
    assert refused(write_gguf("llama", model_of("llama"), tmp_path / "m.gguf", **change)).what.startswith(what)


def test_divisors_that_are_not_llamas_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "divisors", lambda config: np.array([1, 2, 3, 8], np.float32))
    assert refused(write_gguf("llama 3", model_of("llama 3"), tmp_path / "m.gguf")).what == "scales positions in a way of its own"


def test_scores_of_the_largest_gemma_are_divided_by_another_number(tmp_path: Path) -> None:
    model = model_of("gemma2")
    large = write_gguf("gemma2", model, tmp_path / "large.gguf", block_count=46)
    small = write_gguf("gemma2", model, tmp_path / "small.gguf")
    assert passed_over(large, read_header(large))["query_pre_attn_scalar"] == 8
    assert passed_over(small, read_header(small))["query_pre_attn_scalar"] == 16


def test_a_file_that_is_cut_off_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = write_gguf("qwen2", model_of("qwen2"), tmp_path / "m.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in (10, 60, 300, 2000, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:length])
        assert "cut off" in refused(cut).what, length
    cut.write_bytes(whole)
    assert passed_over(cut, read_header(cut)) == {}
    cut.write_bytes(b"GGUF" + struct.pack("<IQQ", 9, 1, 1))
    assert "damaged" in refused(cut).what


def test_an_unknown_architecture_is_refused_with_what_would_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gguf

    monkeypatch.setenv("COUNTERPOINT_MODELS", str(tmp_path / "kept"))
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "mamba")
    writer.add_tensor("t", np.zeros((2, 2), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    error = refused(tmp_path / "odd.gguf")
    assert error.what == "the architecture 'mamba' is not supported"
    assert "llama, qwen2, qwen3" in str(error.why)
