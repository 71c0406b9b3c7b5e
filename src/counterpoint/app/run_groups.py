"""Which runs are meant: `RUN`, a pattern, `LABEL=` before either, a run that is open, or a label with any of these.

Always true: nothing is written; a name that matches no run is `NotFound`; the order is the order of the arguments, and inside
a pattern the order of the paths. Runs of one label are its training seeds.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.errors import InputError, NotFound, Refused

if TYPE_CHECKING:
    from counterpoint.bench.comparison import Group

# Where `counterpoint train` puts runs; `plot NAME` finds runs/NAME.
_HOME = "runs"
_LABELLED = re.compile(r"([\w.+-]+)=(.+)", re.S)


def groups_of(runs: Iterable[Any]) -> list[Group]:
    """The named runs, opened and grouped: by the label given, else by the preset that each run states."""
    return grouped([pair for run in runs for pair in _folders(run)])


def _folders(run: Any) -> list[tuple[str | None, Path]]:
    """The label and the folders that something stands for: a name, a path, a run, several, or labels with these."""
    if isinstance(run, str):
        return _paths(run)
    if isinstance(run, os.PathLike):
        return [(None, Path(run))]
    if isinstance(run, Mapping):
        return [(label, path) for label, inside in run.items() for _, path in _folders(inside)]
    if isinstance(run, Iterable):
        return [pair for one in run for pair in _folders(one)]
    path = getattr(run, "path", None)
    if not isinstance(path, Path):
        raise InputError(f"a {type(run).__name__} is no run", fix="name a folder of counterpoint train")
    return [(None, path)]


def grouped(found: Sequence[tuple[str | None, Path]]) -> list[Group]:
    """Runs of these folders; those of one label are one group, and no two of them have the same training seed."""
    from counterpoint.bench.comparison import Group
    from counterpoint.train.folder import RunFolder

    _one_format([path for _, path in found])
    groups: dict[str, Group] = {}
    seen: dict[Path, str] = {}
    for label, path in found:
        run = RunFolder.open(path)
        key = label or str(run.about["preset"])
        place = path.resolve()
        if seen.setdefault(place, key) != key:
            raise InputError(f"is on two sides, {seen[place]} and {key}", where=os.fspath(path), fix="name it once")
        group = groups.setdefault(key, Group(key))
        if all(run.path.resolve() != place for run in group.runs):
            group.runs.append(run)
    for group in groups.values():
        twice = [s for s in group.seeds if group.seeds.count(s) > 1]
        if twice:
            where = ", ".join(os.fspath(r.path) for r in group.runs if r.about["seed"] == twice[0])
            fix = "name one of them, or give each its own LABEL="
            raise InputError(f"several runs of {group.label} have training seed {twice[0]}", where=where, fix=fix)
    return list(groups.values())


def _paths(name: str) -> list[tuple[str | None, Path]]:
    """The label and the folders that an argument stands for."""
    label, text = None, name
    labelled = _LABELLED.fullmatch(name)
    if labelled and not Path(name).exists():
        label, text = labelled[1], labelled[2]
    text = os.path.expanduser(text)
    for candidate in (text, os.path.join(_HOME, text)):
        if Path(candidate).exists():
            return [(label, Path(candidate))]
    matches = sorted(p for p in glob.glob(text) if os.path.isdir(p))
    if not matches:
        raise NotFound("there is no run here", where=text, fix="counterpoint train makes runs, in ./runs unless told otherwise")
    return [(label, Path(match)) for match in matches]


def _one_format(paths: Sequence[Path]) -> None:
    from counterpoint.train.folder import format_of

    formats = {path: format_of(path) for path in paths}
    if len(set(map(str, formats.values()))) > 1:
        first, other = next((a, b) for a in paths for b in paths if formats[a] != formats[b])
        what = f"not comparable: {first} is a run of format {formats[first]}, {other} of format {formats[other]}"
        raise Refused(what, fix="train both with one version of Counterpoint")
