"""Which store a command works on: `--store DIR`, else the one of `store/place.py`.

Always true: a command that only reads never makes a store; one that is not there is `NotFound`, with what would make it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from counterpoint.app.load_save import store_path
from counterpoint.errors import NotFound

if TYPE_CHECKING:
    from counterpoint.store import Store
    from counterpoint.store.listing import Listing

store_option = click.option(
    "--store",
    "store",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The store's folder (default: $COUNTERPOINT_STORE, or the project's ./traces, or yours in ~/.local/share).",
)


prices_option = click.option(
    "--prices", metavar="FILE", type=click.Path(path_type=Path), help="TOML of prices per model; reprices the models it names."
)


def open_store(store: str | os.PathLike[str] | None = None, *, create: bool = False, read_only: bool = False) -> Store:
    """The store, opened; `NotFound` when it is not there and `create` is not set."""
    from counterpoint.store import Store

    path = store_path(store)
    if not create:
        _check_there(path)
    return Store(path, create=create, read_only=read_only)


def list_store(store: str | os.PathLike[str] | None = None) -> Listing:
    """The list of the store; no lake is opened."""
    from counterpoint.store.listing import list_folder

    path = store_path(store)
    _check_there(path)
    return list_folder(path)


def _check_there(path: Path) -> None:
    if not path.exists():
        fix = "name one with --store DIR; `counterpoint import` makes one of your sessions"
        raise NotFound("there is no store here", where=os.fspath(path), fix=fix)
