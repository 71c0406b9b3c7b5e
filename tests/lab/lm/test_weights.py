"""Weights on the machine: found by name or path, listed, checked, and installed whole or not at all."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from counterpoint.errors import CounterpointError, InputError, NotFound, install
from counterpoint.lab.app.cli.models import models
from counterpoint.lab.lm import conversion
from counterpoint.lab.lm.weights import INSTALLABLE, MANIFEST, Source, damaged, find, listed, models_folder, sha256

SMALL = INSTALLABLE["smollm2-135m"]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "kept"
    monkeypatch.setenv("COUNTERPOINT_MODELS", str(folder))
    return folder


def some_weights(folder: Path, *, of: dict[str, list[int]] | None = None) -> Path:
    """A folder that looks like a model: a real safetensors header over zeros."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "transformers_version": "1"}))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in (of or {"a": [3, 4], "b": [5]}).items():
        size = 2
        for side in shape:
            size *= side
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))
    return folder


def written_down(folder: Path) -> Path:
    said = {"source": "file x.gguf", "licence": "MIT", "sha256": {p.name: sha256(p) for p in folder.iterdir()}}
    (folder / MANIFEST).write_text(json.dumps(said))
    return folder


def test_the_folder_is_the_users_cache_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert models_folder() == tmp_path / "kept"
    monkeypatch.delenv("COUNTERPOINT_MODELS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models_folder() == tmp_path / "counterpoint" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert models_folder() == tmp_path / "me" / ".cache" / "counterpoint" / "models"


def test_weights_are_found_by_name_by_folder_and_by_file(kept: Path, tmp_path: Path) -> None:
    some_weights(kept / SMALL.folder)
    some_weights(kept / "mine")
    elsewhere = some_weights(tmp_path / "elsewhere")
    packed = tmp_path / "small.Q4.gguf"
    packed.write_bytes(b"GGUF" + bytes(60))
    assert find("smollm2-135m").name == find("SmolLM2-135M").name == SMALL.folder
    assert find("mine").path == kept / "mine"
    assert find(str(elsewhere)).name == "elsewhere"
    assert (find(str(packed)).name, find(str(packed)).is_gguf) == ("small.Q4", True)


def test_what_is_not_there_is_named_with_what_would_work(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="counterpoint models install smollm2-135m"):
        find("smollm2-135m")
    with pytest.raises(NotFound, match="did you mean 'smollm2-135m'"):
        find("smolm-135m")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"config.json and weights missing"):
        find(str(tmp_path / "empty"))
    (tmp_path / "empty" / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"name the file: empty/m.gguf"):
        find(str(tmp_path / "empty"))
    (tmp_path / "no.gguf").write_bytes(b"PK\3\4")
    with pytest.raises(InputError, match="not a GGUF file"):
        find(str(tmp_path / "no.gguf"))
    with pytest.raises(InputError, match="needs a name"):
        find("")


def test_the_digest_is_of_the_weights_and_not_of_the_place_or_the_library(tmp_path: Path) -> None:
    one, two = some_weights(tmp_path / "one", of={"a": [999, 999]}), some_weights(tmp_path / "two", of={"a": [999, 999]})
    (two / "config.json").write_text(json.dumps({"transformers_version": "2", "model_type": "llama"}))
    written_down(two)
    assert Source(one).digest() == Source(two).digest()
    data = bytearray((two / "model.safetensors").read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 40_000] = b"\1" * 40_000
    (two / "model.safetensors").write_bytes(data)
    assert Source(one).digest() != Source(two).digest()
    (one / "tokenizer.json").write_text("{}")
    assert Source(one).digest() != Source(some_weights(tmp_path / "three", of={"a": [999, 999]})).digest()


def test_listing_counts_parameters_and_shows_what_could_be_installed(kept: Path) -> None:
    written_down(some_weights(kept / "mine"))
    (kept / ".draft-1-x").mkdir()
    mine, small, _ = listed()  # the third comes with the package
    assert (mine.name, mine.state, mine.parameters, mine.dtype, mine.licence) == ("mine", "ready", 17, "bf16", "MIT")
    assert small.name == "smollm2-135m"
    assert small.state in {"not installed", "in the package"}
    assert small.licence == "Apache-2.0"


def test_a_changed_file_is_damage_and_no_digest_is_no_verdict(kept: Path) -> None:
    folder = some_weights(kept / "mine")
    assert damaged(folder) is None
    written_down(folder)
    assert damaged(folder) == []
    (folder / "config.json").write_text("{}")
    assert damaged(folder) == ["config.json"]


# -- the command ---------------------------------------------------------------------------------------------------------


def test_the_command_lists_shows_and_says_damage(kept: Path) -> None:
    written_down(some_weights(kept / "mine"))
    run = CliRunner()
    rows = [json.loads(line) for line in run.invoke(models, ["--json"]).stdout.splitlines()]
    assert [r["model"] for r in rows] == ["mine", "smollm2-135m", "smollm2-135m-ledger"]
    assert "17" in run.invoke(models, []).stdout
    whole = run.invoke(models, ["show", "mine", "--json"])
    assert (whole.exit_code, json.loads(whole.stdout)["damaged"]) == (0, [])
    assert json.loads(whole.stdout)["version"] == Source(kept / "mine").digest()
    (kept / "mine" / "config.json").write_text("{}")
    broken = run.invoke(models, ["show", "mine"])
    assert broken.exit_code == 4
    assert "damaged: config.json" in broken.stdout


def test_weights_that_are_cut_off_are_not_ready(kept: Path) -> None:
    file = some_weights(kept / "mine") / "model.safetensors"
    whole = file.read_bytes()
    for data, why in ((whole[:-4], f"is cut off: {len(whole) - 4:,} of {len(whole):,} bytes"), (whole[:40], "is no safetensors file")):
        file.write_bytes(data)
        (found,) = (row for row in listed() if row.name == "mine")
        assert (found.state, found.source) == ("cannot be read", f"model.safetensors {why}")
        shown = CliRunner().invoke(models, ["show", "mine"])
        assert shown.exit_code == 4
        assert why in shown.stdout
        assert "copy the files again" in shown.stderr


def test_an_unknown_name_is_not_found() -> None:
    for args in (["show", "smolm2"], ["install", "smollm3-135m"]):
        result = CliRunner().invoke(models, args)
        assert isinstance(result.exception, NotFound)
        assert "smollm2-135m" in (result.exception.fix or "")


# -- installing ----------------------------------------------------------------------------------------------------------


def test_without_the_extra_the_fix_is_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in ("torch", "gguf") else real(name, *a))
    with pytest.raises(InputError, match="need torch.*" + re.escape(install("llm"))):
        conversion.require_extra()
    with pytest.raises(InputError, match="need torch and gguf"):
        conversion.require_extra(gguf=True)


def test_without_an_index_pip_says_why_and_nothing_is_left(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "require_extra", lambda **_: None)
    monkeypatch.setitem(INSTALLABLE, "far", replace(SMALL, name="far", package="counterpoint-no-such-package", module="no_such_module"))
    for name, value in {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(CounterpointError, match="could not be installed") as raised:
        conversion.install("far")
    assert "ERROR" in (raised.value.why or "")
    assert not kept.exists()


def test_a_damaged_package_is_refused_before_anything_is_made_of_it(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "require_extra", lambda **_: None)
    (tmp_path / "fake_package").mkdir()
    (tmp_path / "fake_package" / "__init__.py").write_text("raise ImportError('never imported')")
    (tmp_path / "fake_package" / "w.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(INSTALLABLE, "bad", replace(SMALL, name="bad", module="fake_package", file="w.gguf"))
    with pytest.raises(CounterpointError, match="packed weights are damaged"):
        conversion.install("bad")
    assert not kept.exists()


def test_a_full_disk_is_seen_before_the_work(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "require_extra", lambda **_: None)
    (tmp_path / "w.gguf").write_bytes(b"GGUF")
    with pytest.raises(CounterpointError, match="no space left"):
        conversion.convert(tmp_path / "w.gguf", kept / "w", {}, need_bytes=10**18)
    assert not list(kept.iterdir())


_KILLED = """
import os, signal, sys
from pathlib import Path
from counterpoint.lab.lm import conversion as c

def write(packed, draft):
    (draft / "config.json").write_text("{}")
    (draft / "model.safetensors").write_bytes(bytes(1000))
    if sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)

c.require_extra, c._write = (lambda **_: None), write
c.convert(Path(sys.argv[1]), c.models_folder() / "w", {"source": "here", "licence": None})
"""


def test_a_conversion_that_is_killed_leaves_nothing_that_looks_like_weights(kept: Path, tmp_path: Path) -> None:
    packed = tmp_path / "w.gguf"
    packed.write_bytes(b"GGUF")
    run = [sys.executable, "-c", _KILLED, str(packed)]
    assert subprocess.run([*run, "kill"], check=False).returncode == -signal.SIGKILL
    assert len(list(kept.iterdir())) == 1
    assert [f.name for f in listed()] == ["smollm2-135m", "smollm2-135m-ledger"]
    subprocess.run([*run, "whole"], check=True)
    assert [p.name for p in kept.iterdir()] == ["w"]
    assert damaged(kept / "w") == []
    assert {p.stat().st_mode & 0o400 for p in (kept / "w").iterdir()} == {0o400}
