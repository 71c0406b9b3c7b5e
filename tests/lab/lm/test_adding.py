"""`counterpoint models add`: what somebody has becomes a model with a name, or one clear error and nothing."""

from __future__ import annotations

import asyncio
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

if not all(map(find_spec, ("torch", "safetensors", "tokenizers", "jinja2"))):
    pytest.skip("needs the llm extra", allow_module_level=True)

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.app.cli.models import models
from counterpoint.lab.lm.model import Call, Message
from counterpoint.lab.lm.models.local import local
from counterpoint.lab.lm.weights import find, sha256
from tiny_help import make_tiny


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COUNTERPOINT_MODELS", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("weights") / "tiny")


def added(*args: Any) -> Result:
    return CliRunner().invoke(models, ["add", *map(str, args)])


def refused(kept: Path, *args: Any, kind: type[Exception] = InputError) -> Any:
    """The error of an addition that leaves nothing."""
    before = sorted(kept.iterdir()) if kept.exists() else []
    error = added(*args).exception
    assert isinstance(error, kind), error
    assert (sorted(kept.iterdir()) if kept.exists() else []) == before
    return error


def test_a_folder_gets_a_name_and_answers_by_it(kept: Path, tiny: Path) -> None:
    done = added(tiny, "--name", "mine", "--sha256", sha256(tiny / "model.safetensors"), "--json")
    row = json.loads(done.stdout)
    assert (done.exit_code, row["model"], row["state"], row["source"], row["new"]) == (0, "mine", "ready", "folder tiny", True)
    assert find("mine").path == kept / "mine"
    model = local("mine")
    answer = asyncio.run(model.complete(Call(messages=(Message("user", "s3?"),), max_tokens=4)))
    asyncio.run(model.close())
    assert answer.tokens_out
    assert find("mine").weights_digest() == find(str(tiny)).weights_digest()


def test_the_same_again_changes_nothing_and_repairs_what_is_damaged(kept: Path, tiny: Path) -> None:
    assert "tiny is added" in added(tiny).stdout
    at = (kept / "tiny" / "model.safetensors").stat().st_mtime_ns
    assert "there already, and whole" in added(tiny).stdout
    assert (kept / "tiny" / "model.safetensors").stat().st_mtime_ns == at
    (kept / "tiny" / "config.json").write_text("{}")
    assert "tiny is added" in added(tiny).stdout
    assert CliRunner().invoke(models, ["show", "tiny"]).exit_code == 0


def test_another_model_does_not_take_a_name(kept: Path, tiny: Path, tmp_path: Path) -> None:
    added(tiny)
    other = make_tiny(tmp_path / "tiny", seed=1)
    error = refused(kept, other)
    assert error.what == "a model named tiny is there already, from folder tiny"
    assert error.fix == "--name with another"
    assert added(other, "--name", "tiny-2").exit_code == 0
    for name in ("smollm2-135m", "SmolLM2-135M-Instruct", "smollm2-135m-ledger"):
        assert "comes otherwise" in refused(kept, tiny, "--name", name).what
    for name in ("../x", ".hidden", "a b"):
        assert "cannot be named" in refused(kept, tiny, "--name", name).what


def test_a_wrong_sum_is_refused_before_anything_is_written(kept: Path, tiny: Path) -> None:
    error = refused(kept, tiny, "--sha256", "0" * 64)
    assert (error.what, error.where) == ("the SHA-256 is another one", "tiny")
    assert sha256(tiny / "model.safetensors") in error.why
    assert refused(kept, tiny, "--sha256", "abc").where == "--sha256"
    own = sha256(tiny / "model.safetensors")
    assert "no file has the SHA-256 000" in refused(kept, tiny, "--sha256", own, "--sha256", "0" * 64).what
    assert added(tiny, "--sha256", f"sha256:{own.upper()}").exit_code == 0


def test_what_is_no_model_is_refused(kept: Path, tiny: Path, tmp_path: Path) -> None:
    assert refused(kept, tmp_path / "nothing", kind=NotFound).what == "no such file or folder"
    odd = tmp_path / "odd.gguf"
    odd.write_bytes(b"PK\3\4")
    assert refused(kept, odd).what == "not a GGUF file"
    cut = shutil.copytree(tiny, tmp_path / "cut")
    (cut / "model.safetensors").write_bytes((tiny / "model.safetensors").read_bytes()[:-100])
    assert refused(kept, cut).what == "these weights cannot be loaded"
    config = json.loads((tiny / "config.json").read_text())
    for change, what in (
        ({"model_type": "mamba"}, "the model family 'mamba' is not supported"),
        ({"num_hidden_layers": 1}, "the weights hold model.layers.1.input_layernorm.weight, which would be passed over"),
        ({"num_hidden_layers": 3}, "the weights lack model.layers.2.input_layernorm.weight"),
        ({"intermediate_size": 65}, "model.layers.0.mlp.gate_proj.weight is 128 by 32 in the weights, and 130 by 32 by config.json"),
        ({"model_type": "qwen2"}, "the weights lack model.layers.0.self_attn.q_proj.bias"),
        ({"vocab_size": 3}, "model.embed_tokens.weight is 330 by 32"),
    ):
        other = shutil.copytree(tiny, tmp_path / "other", dirs_exist_ok=True)
        (other / "config.json").write_text(json.dumps(config | change))
        assert refused(kept, other).what.startswith(what)
    (other / "config.json").write_text(json.dumps(config))
    (other / "tokenizer.json").unlink()
    assert refused(kept, other).what == "has no tokenizer.json"


def test_adapters_are_no_model(kept: Path, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.safetensors").write_bytes(b"")
    (tmp_path / "run" / "model.json").write_text(json.dumps({"base": str(tiny), "adapters": {"shared": "a.safetensors"}}))
    assert refused(kept, tmp_path / "run").what == "adapters are no model"
