"""Weights that somebody has as a file or a folder, checked and put among those of this machine under a name.

Always true: the model appears whole or not at all; what is given is not changed; one that is there is never written over, but for
one that is damaged and the same.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.lm.conversion import convert, place_folder
from counterpoint.lab.lm.gguf_header import parameters, passed_over, read_header
from counterpoint.lab.lm.tensor_files import check_folder
from counterpoint.lab.lm.weights import (
    INSTALLABLE,
    MANIFEST,
    SHIPPED,
    Source,
    damaged,
    find,
    manifest,
    models_folder,
    require_extra,
    sha256,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_SUM = re.compile(r"[0-9a-f]{64}")
_TAKEN = (".safetensors", ".json", ".jinja", ".txt", ".model")
_BYTES_PER_PARAMETER = 2


def add(
    path: Path, name: str | None = None, sums: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
) -> tuple[str, bool]:
    """The name of the model, and whether it was put there just now; `sums`: SHA-256 of the GGUF file, or of each weights file."""
    if not path.exists():
        raise NotFound("no such file or folder", where=str(path), fix="a .gguf file, or a transformers folder")
    source = find(str(path.resolve()))
    if source.layers:
        fix = f"it is used by its path, local:{path}; `counterpoint models export` adds the adapters to their model"
        raise InputError("adapters are no model", where=source.name, fix=fix)
    called = _called(name or source.name)
    files = [source.path] if source.is_gguf else sorted(p for p in source.path.iterdir() if p.is_file() and p.suffix in _TAKEN)
    digests = {p.name: _told(p, say) for p in files if p.name != MANIFEST}
    _check_sums({n: digest for n, digest in digests.items() if n.endswith((".gguf", ".safetensors"))}, sums, source.name)
    target = models_folder() / called
    if target.exists() and _is_there(target, source, digests):
        return called, False
    require_extra(gguf=source.is_gguf)
    if source.is_gguf:
        header = read_header(source.path)
        passed_over(source.path, header)
        need = parameters(header) * _BYTES_PER_PARAMETER
        say(f"converting {source.path.stat().st_size / 1e6:,.0f} MB to {need / 1e6:,.0f} MB of plain weights")
        about = {"source": f"file {source.path.name}", "licence": header.values.get("general.license")}
        convert(source.path, target, about, need_bytes=need)
    else:
        check_folder(source.path)
        size = sum(p.stat().st_size for p in files)
        say(f"copying {size / 1e6:,.0f} MB")
        about = {"source": f"folder {source.name}", "licence": None}
        place_folder(target, about, size, lambda draft: _copy(source, digests, draft))
    return called, True


def _called(name: str) -> str:
    """The name, where a model may have it."""
    known = {n for k in INSTALLABLE.values() for n in (k.name, k.folder.lower())} | {p.name for p in SHIPPED.iterdir()}
    if not _NAME.fullmatch(name):
        raise InputError(f"a model cannot be named {name!r}", fix="--name with letters, digits and . _ + -")
    if name.lower() in known:
        raise InputError(f"{name} is the name of a model that comes otherwise", fix="--name with another")
    return name


def _told(file: Path, say: Callable[[str], None]) -> str:
    say(f"reading {file.name}")
    return sha256(file)


def _check_sums(digests: dict[str, str], sums: Sequence[str], where: str) -> None:
    """Raise where a file's sum is none of those that were named, or one that was named is no file's."""
    asked = [text.lower().removeprefix("sha256:") for text in sums]
    if bad := [text for text in asked if not _SUM.fullmatch(text)]:
        raise InputError(f"{bad[0]!r} is no SHA-256", where="--sha256", fix="64 hexadecimal digits")
    if not asked:
        return
    wrong = [n for n, digest in digests.items() if digest not in asked]
    if wrong:
        why = f"{wrong[0]} has {digests[wrong[0]]}"
        fix = "get the file again, or correct --sha256" + (", once for each file of weights" if len(digests) > 1 else "")
        raise InputError("the SHA-256 is another one", where=where, why=why, fix=fix)
    if extra := [text for text in asked if text not in digests.values()]:
        raise InputError(f"no file has the SHA-256 {extra[0]}", where=where, fix="a sum for each file of weights")


def _is_there(target: Path, source: Source, digests: dict[str, str]) -> bool:
    """Whether the same model is there and whole; another one under that name is refused."""
    about = manifest(target)
    same = about.get("file_sha256") == digests[source.path.name] if source.is_gguf else about.get("sha256") == digests
    if not same:
        what = f"a model named {target.name} is there already, from {about.get('source') or 'elsewhere'}"
        raise InputError(what, where=str(source.name), fix="--name with another")
    return damaged(target) == []


def _copy(source: Source, digests: dict[str, Any], draft: Path) -> None:
    for name in digests:
        shutil.copyfile(source.path / name, draft / name)
