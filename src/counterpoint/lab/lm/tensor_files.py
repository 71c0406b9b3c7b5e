"""Weights in files: a model folder read with all that must fit together, and tensors written with the system's own errors.

Always true: what is read has the sizes that its config.json tells and a tokenizer that belongs to it, or is one clear error.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from counterpoint.errors import InputError
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.network import Shape, Weights, check_unread, parts_of, read, shape_of, sizes

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_FIX = "a folder as `save_pretrained` writes it: config.json, *.safetensors, tokenizer.json"


def check_headers(folder: Path) -> None:
    """Raise where a folder lacks its tokenizer, or a file of weights is cut off: what can be told without reading it all."""
    from safetensors import SafetensorError, safe_open

    if not (folder / "tokenizer.json").is_file():
        raise InputError("has no tokenizer.json", where=folder.name, fix=_FIX)
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            where = f"{folder.name}/{file.name}"
            raise InputError("these weights cannot be loaded", where=where, why=str(error), fix=_FIX) from error


def check_folder(folder: Path) -> Shape:
    """The shape of a transformers folder whose files can be loaded, by their headers: no weight is read."""
    from safetensors import safe_open

    shape = shape_of(folder)
    check_headers(folder)
    sides: dict[str, list[int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as opened:
            sides |= {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118 - not a dict
    wanted = sizes(shape)
    for name, parts in parts_of(shape).items():
        if missing := [part for part in parts if part not in sides]:
            raise InputError(f"the weights lack {missing[0]}", where=folder.name, fix=_FIX)
        size = (sum(sides[part][0] for part in parts), *sides[parts[0]][1:])
        if size != wanted[name]:
            what = f"{parts[0]} is {_by(size)} in the weights, and {_by(wanted[name])} by config.json"
            raise InputError(what, where=folder.name, fix=_FIX)
    check_unread(shape, sides, folder.name)
    check_words(Chat.read(folder), shape, folder.name)
    return shape


def check_words(chat: Chat, shape: Shape, where: str) -> None:
    """Raise where a tokenizer has tokens that its model has not."""
    if chat.size > shape.vocabulary:
        what = f"the tokenizer has {chat.size:,} tokens and the model {shape.vocabulary:,}"
        raise InputError(what, where=where, fix="a tokenizer that belongs to the model")


def read_folder(folder: Path, name: str, *, device: str = "cpu", dtype: torch.dtype | None = None) -> tuple[Chat, Shape, Weights]:
    """The tokenizer, the shape and the weights of a transformers folder; `name` is what a warning calls it."""
    from safetensors import SafetensorError

    try:
        chat = Chat.read(folder)
        shape, weights = read(folder, device=device, dtype=dtype)
    except (SafetensorError, OSError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError("these weights cannot be loaded", where=folder.name, why=first, fix=_FIX) from error
    for key, size in sizes(shape).items():
        if tuple(weights[key].shape) != size:
            what = f"{key} is {_by(tuple(weights[key].shape))} in the weights, and {_by(size)} by config.json"
            raise InputError(what, where=folder.name, fix=_FIX)
    check_words(chat, shape, folder.name)
    if chat.template is None:
        # Base models have none, and can learn to act with any rendering: said aloud, not refused.
        logging.getLogger("counterpoint").warning("%s has no chat template: prompts are lines of `role: text`", name)
    return chat, shape, weights


def _by(size: tuple[int, ...]) -> str:
    return " by ".join(map(str, size))


def save_tensors(tensors: Mapping[str, Tensor], file: Path, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file; what the system refuses (a full disk) is an `OSError`, as for any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), file, dict(metadata))
    except SafetensorError as error:
        match = re.search(r"os error (\d+)", str(error))
        if match is None:
            raise
        raise OSError(int(match[1]), os.strerror(int(match[1])), os.fspath(file)) from error
