"""Pages that installed packages add to the viewer: runs, comparisons and benches are the laboratory's.

Always true: nothing of the viewer names such a page. Its package answers the hook `pages` with a list of `Page`; its addresses,
its questions under `/api/`, what `counterpoint view FOLDER` opens, its line in the navigation and its TypeScript shapes follow.
`web/src/pages/Name.tsx` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

import counterpoint.registry as registry
from counterpoint.errors import InputError

if TYPE_CHECKING:
    from counterpoint.app.viewer.collection import Collection

Words = Mapping[str, str]


class Question(NamedTuple):
    """One address under `/api/`."""

    answer: Callable[[Collection, Words], Any]
    """What it says, as shapes, from what is on view and the words behind the `?`."""
    version: Callable[[Collection, Words], str] | None = None
    """Another one when the answer may be another one, so that it is made once; None: it is made every time."""


def _no_folders(collection: Collection) -> Mapping[str, Path]:
    return {}


class Page(NamedTuple):
    """One page."""

    id: str
    name: str
    """What the navigation says."""
    addresses: tuple[str, ...]
    """The first words of its addresses, the one that links have first."""
    questions: Mapping[str, Question]
    """By what comes after `/api/`."""
    shapes: tuple[type[msgspec.Struct], ...]
    """The shapes of the answers."""
    opens: Callable[[Collection, Path], str | None]
    """The address to begin with where `counterpoint view` is given this folder alone; None where it holds nothing of the page."""
    folders: Callable[[Collection], Mapping[str, Path]] = _no_folders
    """The folders on view that have an address, by the id in it."""
    stores: Callable[[Collection], Mapping[str, Path]] = _no_folders
    """Stores of traces by name: a trace in one is asked for as `NAME:ID`."""
    home: str = ""
    """A folder of the working folder that is looked into where nobody names one."""

    def id_of(self, collection: Collection, name: str) -> str:
        """The id of the one folder with this name; else the name as it is."""
        known = self.folders(collection)
        near = [one for one, path in known.items() if path.name == name]
        return near[0] if name not in known and len(near) == 1 else name


def pages() -> list[Page]:
    """Every page that an installed package adds, in the order of the navigation."""
    return [page for hook in registry.hooks("pages") for page in hook()]


def word(words: Words, name: str, address: str) -> str:
    """A word that a question cannot do without."""
    if not words.get(name):
        raise InputError(f"{name} is missing", where=address, fix=f"as in ?{name}=...")
    return words[name]
