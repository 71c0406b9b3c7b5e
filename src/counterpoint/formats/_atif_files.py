"""ATIF trajectories and what they refer to: sub-agents inside the document or in other files, and continuations.

References are only compared with the names and ids of the files at hand: no path that a trajectory names is ever opened.

Always true: a reference that fits several trajectories, or none, is None; since v1.7 a session id is shared by siblings and is
no reference of its own, so that a link by it is a conclusion.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import as_dict, as_list, decode, string

_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_DEEPEST = 50


@dataclass(eq=False)
class Trajectory:
    """One document, in a file or inside another."""

    data: dict[str, Any]
    file: str
    within: Trajectory | None = None
    inside: list[Trajectory] = field(default_factory=list)

    @property
    def id(self) -> str | None:
        """The document's own id."""
        return string(self.data.get("trajectory_id"))

    @property
    def session(self) -> str | None:
        """The run's id, which sub-agents may share."""
        return string(self.data.get("session_id"))

    @property
    def has_run_scoped_sessions(self) -> bool:
        """Whether session ids name runs and not trajectories (since v1.7)."""
        found = _VERSION.search(str(self.data.get("schema_version")))
        return found is not None and (int(found[1]), int(found[2])) >= (1, 7)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps that are objects."""
        return [s for s in as_list(self.data.get("steps")) if isinstance(s, dict)]


@dataclass(frozen=True)
class Found:
    """What a reference leads to, and by which rule."""

    child: Trajectory
    rule: str
    is_stated: bool = True


def documents(data: Any, file: str, within: Trajectory | None = None, depth: int = 0) -> Iterator[Trajectory]:
    """A document as a trajectory, those inside it hung on it."""
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        return
    made = Trajectory(data, file, within)
    if depth < _DEEPEST:
        for item in as_list(data.get("subagent_trajectories")):
            made.inside += documents(item, file, made, depth + 1)
    yield made


def references(step: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each result of a step that refers to sub-agents, with each reference."""
    for result in as_list(as_dict(step.get("observation")).get("results")):
        for ref in _refs(as_dict(result).get("subagent_trajectory_ref")):
            yield result, ref


def _refs(raw: Any) -> list[dict[str, Any]]:
    items = raw if isinstance(raw, list) else [raw]
    named = [{"trajectory_path": item} if isinstance(item, str) else item for item in items]
    return [item for item in named if isinstance(item, dict) and item]


class Library:
    """All trajectories of a session."""

    def __init__(self, trajectories: Iterable[Trajectory]) -> None:
        self.top = list(trajectories)
        self._files: dict[str, list[Trajectory]] = {}
        for made in self.top:
            self._files.setdefault(posixpath.normpath(made.file), []).append(made)

    def find(self, ref: dict[str, Any], parent: Trajectory) -> Found | None:
        """What a reference of a trajectory leads to."""
        name, path, session = (string(ref.get(k)) for k in ("trajectory_id", "trajectory_path", "session_id"))
        if name and (found := _only(t for t in [*parent.inside, *self.top] if t.id == name and t is not parent)):
            return Found(found, "trajectory_id")
        if path and (found := self.at(path, parent)):
            return Found(found, "trajectory_path")
        if session and not name:
            found = _only(t for t in [*parent.inside, *self.top] if t.session == session and t is not parent)
            return Found(found, "session_id", not parent.has_run_scoped_sessions) if found else None
        return None

    def at(self, path: str, parent: Trajectory) -> Trajectory | None:
        """The trajectory in the file of a path, from the folder of the one that names it; or in that folder, by its last part."""
        folder = posixpath.dirname(parent.file)
        for name in (posixpath.join(folder, path), posixpath.join(folder, posixpath.basename(path))):
            found = _only(t for t in self._files.get(posixpath.normpath(name), ()) if t is not parent)
            if found is not None:
                return found
        return None

    def roots(self) -> list[Trajectory]:
        """Those that no other refers to; the first of all where they refer to each other in a circle."""
        led: set[int] = set()
        for made in _all(self.top):
            led |= {id(f.child) for step in made.steps for _, ref in references(step) if (f := self.find(ref, made))}
            if path := string(made.data.get("continued_trajectory_ref")):
                led |= {id(found) for found in [self.at(path, made)] if found}
        return [t for t in self.top if id(t) not in led] or self.top[:1]


def _all(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    for made in trajectories:
        yield made
        yield from _all(made.inside)


def _only(found: Iterable[Trajectory]) -> Trajectory | None:
    some = list(found)
    return some[0] if len(some) == 1 else None


def group(files: Sequence[File]) -> Iterable[Session]:
    """Files that refer to each other are one session, named by the first of them."""
    made = {file.name: list(_light(file)) for file in files}
    library = Library(t for found in made.values() for t in found)
    home = {file.name: file.name for file in files}

    def root(name: str) -> str:
        while home[name] != name:
            home[name] = home[home[name]]
            name = home[name]
        return name

    for one in _all(library.top):
        led = [f.child for step in one.steps for _, ref in references(step) if (f := library.find(ref, one))]
        if path := string(one.data.get("continued_trajectory_ref")):
            led += [t for t in [library.at(path, one)] if t]
        for other in led:
            first, second = sorted((root(one.file), root(other.file)))
            home[second] = first
    together: dict[str, list[File]] = {}
    for file in files:
        together.setdefault(root(file.name), []).append(file)
    return [Session(key, found) for key, found in sorted(together.items())]


def _light(file: File) -> Iterator[Trajectory]:
    """The trajectories of a file with nothing but their references; what cannot be read is counted when it is read in earnest."""
    try:
        whole = decode(file.data())
    except InputError:
        whole = _lines(file)
    for item in whole if isinstance(whole, list) else [whole]:
        yield from documents(_thin(item), file.name)


def _lines(file: File) -> list[Any]:
    out = []
    try:
        for _, line in file.lines():
            try:
                out.append(decode(line or b""))
            except InputError:
                continue
    except InputError:
        pass
    return out


def _thin(data: Any, depth: int = 0) -> Any:
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        return None
    names = ("schema_version", "trajectory_id", "session_id", "continued_trajectory_ref")
    refs = [ref for step in data["steps"] if isinstance(step, dict) for _, ref in references(step)]
    inside = as_list(data.get("subagent_trajectories")) if depth < _DEEPEST else []
    return {
        **{name: data[name] for name in names if name in data},
        "steps": [{"observation": {"results": [{"subagent_trajectory_ref": refs}]}}] if refs else [],
        "subagent_trajectories": [_thin(item, depth + 1) for item in inside],
    }
