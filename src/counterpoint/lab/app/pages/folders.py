"""What the laboratory's pages find in the folders on view: runs, races and results, each by its path as the user would write it.

Always true: a name asked for is looked up among what is on view and never becomes a path; reading changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from counterpoint.app.viewer.collection import Collection, is_store, path_id
from counterpoint.errors import NotFound, did_you_mean


def is_run(path: Path) -> bool:
    """Whether a folder is a run of `counterpoint train`, and no results of `counterpoint bench run`."""
    return (path / "about.json").is_file() and not (path / "rows.jsonl").is_file()


def runs(collection: Collection) -> dict[str, Path]:
    """Every run on view."""
    return collection.recent("runs", lambda: _by_id(path for root in collection.folders for path in _runs_under(root)))


def run_stores(collection: Collection) -> dict[str, Path]:
    """The stores of the traces that runs kept."""
    return {run_id: path / "store" for run_id, path in runs(collection).items()}


def races(collection: Collection) -> dict[str, Path]:
    """Every race on view, and the rows that come with the package."""
    from counterpoint.lab.bench.race.rows import RELEASED, RaceFolder

    def find() -> dict[str, Path]:
        shipped = {"released" if plan == "screening" else f"released-{plan}": path for plan, path in RELEASED.items()}
        mine = _by_id(path for root in collection.folders for path in _folders_under(root) if RaceFolder.is_at(path))
        out = {f"./{name}" if name in shipped else name: path for name, path in mine.items()}
        return out | {name: path for name, path in shipped.items() if path.is_file()}

    return collection.recent("races", find)


def results(collection: Collection) -> dict[str, Path]:
    """Every folder of results of `counterpoint bench run` on view."""
    from counterpoint.lab.bench.scorecard.rows import BenchFolder

    return _by_id(path for root in collection.folders for path in _folders_under(root) if BenchFolder.is_at(path))


def folder_of(known: Mapping[str, Path], name: str, what: str) -> Path:
    """One of them by its id."""
    if name not in known:
        raise NotFound(f"no {what} {name!r} here", fix=did_you_mean(name, known))
    return known[name]


def _by_id(paths: Iterable[Path]) -> dict[str, Path]:
    return {path_id(path): path for path in paths}


def _runs_under(root: Path) -> list[Path]:
    """The root when it is a run, else the runs in it and in its folders."""
    if is_run(root):
        return [root]
    out: list[Path] = []
    with suppress(OSError):
        for child in sorted(root.iterdir()):
            if is_run(child):
                out.append(child)
            elif child.is_dir() and not child.name.startswith(".") and not is_store(child):
                with suppress(OSError):
                    out += [path for path in sorted(child.iterdir()) if is_run(path)]
    return out


def _folders_under(root: Path) -> list[Path]:
    """The root, and the folders in it."""
    with suppress(OSError):
        return [root, *(child for child in sorted(root.iterdir()) if child.is_dir())]
    return [root]
