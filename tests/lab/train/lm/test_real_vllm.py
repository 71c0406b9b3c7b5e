"""Runs against a real vLLM: `COUNTERPOINT_VLLM=path/to/vllm python -m pytest tests/lab/train/lm/test_real_vllm.py`.

The server is started here, with a tiny model whose table of words is not tied: vLLM's CPU build keeps a packed copy of a tied one
when weights are reloaded (0.32.0), which `check_server` refuses.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytest.importorskip("httpx")

from tests.lm_help import TEXTS  # noqa: E402
from tests.served_help import config  # noqa: E402
from tests.tiny_help import make_tiny  # noqa: E402

from counterpoint.lab.lm.adapter import PolicyWeights  # noqa: E402
from counterpoint.lab.lm.engine import Ask  # noqa: E402
from counterpoint.lab.lm.network import Network, read, shape_of  # noqa: E402
from counterpoint.lab.lm.served.engine import ModelPlace, ServedEngine, server_of  # noqa: E402
from counterpoint.lab.lm.served.launch import VLLM_ENV, vllm_executable, vllm_server  # noqa: E402
from counterpoint.lab.train.lm.learner import CallTokens, LanguageLearner, Options  # noqa: E402
from counterpoint.lab.train.lm.run import train_language  # noqa: E402

VLLM = vllm_executable() if VLLM_ENV in os.environ else None
pytestmark = pytest.mark.skipif(VLLM is None, reason=f"{VLLM_ENV} names no vllm executable")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads of 32, the narrowest that vLLM's CPU build has; words are read by one table and written by another."""
    from safetensors.torch import load_file, save_file

    torch.set_num_threads(1)
    folder = make_tiny(tmp_path_factory.mktemp("tiny"), texts=TEXTS, words=512, spread=0.08, context=2048, width=128)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    about = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(about))
    return folder


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    how = [
        "--enforce-eager", "--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "32", "--max-num-batched-tokens",
        "32768", "--enable-lora", "--logprobs-mode", "processed_logprobs",
    ]  # fmt: skip
    assert VLLM is not None
    with vllm_server(VLLM, model, how, VLLM_CPU_KVCACHE_SPACE="1") as address:
        yield address


def an_engine(url: str, model: Path, folder: Path) -> ServedEngine:
    found = server_of(f"vllm:{url}")
    assert found is not None
    return ServedEngine(*found, ModelPlace(shape_of(model), model, folder, "float32"), ends=[2], context=512)


def said_and_gap(url: str, model: Path, weights: dict[str, Any], tmp_path: Path) -> tuple[list[tuple[int, ...]], float]:
    """What the server says greedily, and how far its log-probabilities are from those of these weights at most."""
    engine = an_engine(url, model, tmp_path / "engine")
    random = np.random.default_rng(0)
    prompts = [random.integers(3, 300, 40) for _ in range(8)]
    try:
        said = engine.run([Ask(prompt=p.tolist(), most=16, temperature=0.0) for p in prompts])
    finally:
        engine.close()
    learner = LanguageLearner(Network(shape_of(model)), weights, Options(tokens=8192))
    calls = [CallTokens("", p.astype(np.int32), np.array(a.token_ids, np.int32)) for p, a in zip(prompts, said, strict=True)]
    gap = np.abs(np.concatenate(learner.logps(calls)) - np.concatenate([a.logps for a in said])).max()
    return [a.token_ids for a in said], float(gap)


def test_all_weights_learn_and_the_server_has_them(url: str, model: Path, tmp_path: Path) -> None:
    _, weights = read(model)
    before, gap = said_and_gap(url, model, weights, tmp_path)
    assert gap < 0.02
    run = train_language(tmp_path / "run", config(model, engine=f"vllm:{url}", learn={"lr": 2e-2, "temperature": 0.8}))
    rows = [row for row in run.metrics() if row["sequences"]]
    assert any(row["gradient"] > 0 for row in rows)
    assert max(row["mismatch"] for row in rows) < 0.01
    _, made = read(run.path / "model")
    after, gap = said_and_gap(url, model, made, tmp_path)
    assert gap < 0.02
    assert after != before
    told = said_and_gap(url, model, read(model)[1], tmp_path)[1]
    assert told > 0.1  # they are not those that it began with


def test_an_adapter_learns_beside_the_model(url: str, model: Path, tmp_path: Path) -> None:
    engine = an_engine(url, model, tmp_path / "engine")
    engine.load({"": PolicyWeights(read(model)[1])})  # whoever learned before has left its own
    engine.close()
    told = config(model, engine=f"vllm:{url}", adapters="shared", learn={"lr": 2e-2})
    run = train_language(tmp_path / "run", told)
    rows = [row for row in run.metrics() if row["sequences"]]
    assert any(row["gradient"] > 0 for row in rows)
    assert max(row["mismatch"] for row in rows) < 0.01
