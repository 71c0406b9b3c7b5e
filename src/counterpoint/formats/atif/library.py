"""The trajectories of some files, and which of them refers to which.

Always true: references are only compared with the names and ids of the files at hand; one that fits several trajectories, or
none, leads nowhere.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from counterpoint.formats.atif.document import OURS
from counterpoint.formats.importing.values import as_dict, as_list, string

DEEPEST = 50
"""Levels of trajectories inside each other that are read."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


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
    def ours(self) -> dict[str, Any]:
        """What our own exporter says of it."""
        return ours_in(self.data)

    @property
    def agent(self) -> str | None:
        """Whose trajectory it is, where our own exporter wrote it."""
        return string(self.ours.get("agent"))

    @property
    def model(self) -> str | None:
        """The model of the steps that name none."""
        return string(as_dict(self.data.get("agent")).get("model_name"))

    @property
    def has_run_scoped_sessions(self) -> bool:
        """Whether session ids name runs and not trajectories (since v1.7)."""
        version = _VERSION.search(str(self.data.get("schema_version")))
        return version is not None and (int(version[1]), int(version[2])) >= (1, 7)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps that are objects."""
        return [s for s in as_list(self.data.get("steps")) if isinstance(s, dict)]


@dataclass(frozen=True)
class Target:
    """What a reference leads to, and by which rule.

    Since v1.7 siblings share a session id, so that a link by it is inferred and not stated.
    """

    child: Trajectory
    rule: str
    is_stated: bool = True


def ours_in(record: Any) -> dict[str, Any]:
    """What our own exporter says of a document, a step or a result."""
    return as_dict(as_dict(as_dict(record).get("extra")).get(OURS))


def documents(data: Any, file: str, within: Trajectory | None = None, depth: int = 0) -> Iterator[Trajectory]:
    """A document as a trajectory, those inside it hung on it."""
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        return
    trajectory = Trajectory(data, file, within)
    if depth < DEEPEST:
        for item in as_list(data.get("subagent_trajectories")):
            trajectory.inside += documents(item, file, trajectory, depth + 1)
    yield trajectory


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
        for trajectory in self.top:
            self._files.setdefault(posixpath.normpath(trajectory.file), []).append(trajectory)

    def find(self, ref: dict[str, Any], parent: Trajectory) -> Target | None:
        """What a reference of a trajectory leads to."""
        name, path, session = (string(ref.get(k)) for k in ("trajectory_id", "trajectory_path", "session_id"))
        if name and (child := _only(t for t in [*parent.inside, *self.top] if t.id == name and t is not parent)):
            return Target(child, "trajectory_id")
        if path and (child := self.at(path, parent)):
            return Target(child, "trajectory_path")
        if session and not name:
            child = _only(t for t in [*parent.inside, *self.top] if t.session == session and t is not parent)
            return Target(child, "session_id", not parent.has_run_scoped_sessions) if child else None
        return None

    def at(self, path: str, parent: Trajectory) -> Trajectory | None:
        """The trajectory in the file of a path, from the folder of the one that names it; or in that folder, by its last part."""
        folder = posixpath.dirname(parent.file)
        for name in (posixpath.join(folder, path), posixpath.join(folder, posixpath.basename(path))):
            match = _only(t for t in self._files.get(posixpath.normpath(name), ()) if t is not parent)
            if match is not None:
                return match
        return None

    def roots(self) -> list[Trajectory]:
        """Those that no other refers to; the first of all where they refer to each other in a circle."""
        led: set[int] = set()
        for trajectory in all_of(self.top):
            led |= {id(f.child) for step in trajectory.steps for _, ref in references(step) if (f := self.find(ref, trajectory))}
            if path := string(trajectory.data.get("continued_trajectory_ref")):
                led |= {id(child) for child in [self.at(path, trajectory)] if child}
        return [t for t in self.top if id(t) not in led] or self.top[:1]


def all_of(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    for trajectory in trajectories:
        yield trajectory
        yield from all_of(trajectory.inside)


def _only(trajectories: Iterable[Trajectory]) -> Trajectory | None:
    some = list(trajectories)
    return some[0] if len(some) == 1 else None
