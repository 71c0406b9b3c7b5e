"""A run on disk: settings, what it is, metrics, evaluations, alerts, checkpoints, traces.

    runs/NAME/
      run.toml            every setting, resolved; written once, and open to a change by hand, which is told (`notes`)
      about.json          what it is: world, seed, versions, status, what was spent (replaced whole at each change)
      metrics.jsonl       one row per update; episodes, forks, calls, decisions, charged are totals so far
      evals.jsonl         one row per evaluation on the held-out seeds, one number per task in each list
      alerts.jsonl        {"update", "code", "what", "traces", "fix"}
      checkpoints/        000120.pt; `last` and `best` name one, after it is complete; the newest three and the best stay
      store/              traces of samples

Always true: every file here but run.toml has a sum that is compared when it is read (`_sums`). The folder appears whole or not
at all; after a kill or a full disk everything before the last row can be read, and one process at a time writes. `calls` counts
every call that was paid for, those of forks included; `charged`, what the budget was charged: calls and rounds, at least 1 per
episode (rows of older versions, which charged calls alone, have none). An evaluation may carry, beside its lists, `stops` =
{"reference": [...], "name": "optimum"} (the round in which another policy stops each task; beside "rounds") and `width` =
[{"size": N, "agents": [...], "reference": x}] (team sizes by task size); plots show them.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np

from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.files import put, read_plain, read_toml
from counterpoint.lab.train.checked_lines import (
    Lines,
    Rows,
    file_with_sum,
    file_without_sum,
    json_bytes,
    name_with_sum,
    name_without_sum,
    object_with_sum,
    object_without_sum,
    read_rows,
    translate_errors,
)
from counterpoint.lab.train.settings import toml_text

FORMAT = 1
STATUSES = ("running", "finished", "interrupted", "failed")
TOTALS = ("episodes", "forks", "calls", "decisions", "charged")
_REQUIRED = ("preset", "world", "world_version", "world_config", "seed")
_FILES = ("metrics", "evals", "alerts")
_KEPT = 3
SUMS = "sums"
"""The key of about.json that says that everything here has a sum."""
_ABOUT = b"about.json"
_RESTORE = "restore it from a copy; the rows and checkpoints beside it are as they were"


def check_format(found: Any, where: str | os.PathLike[str]) -> None:
    """Raise unless this is the format that we read; for runs, and for what a checkpoint says of itself."""
    if found != FORMAT:
        said = "of no stated format" if found is None else f"of format {found}"
        fix = "use the version of Counterpoint that wrote it: about.json names it"
        raise InputError(f"is {said}; this version reads format {FORMAT}", where=os.fspath(where), fix=fix)


def charged(totals: Mapping[str, Any]) -> int:
    """What a run's budget was charged; runs of older versions, and of language models, are charged their calls alone."""
    return totals.get("charged", totals.get("calls")) or 0


def _totals(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: row.get(name) or 0 for name in TOTALS} | {"charged": charged(row)}


def format_of(path: str | os.PathLike[str]) -> Any:
    """The format that a run says it has, without opening it."""
    return _read_about(Path(path)).get("format")


def _read_about(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise NotFound("there is no run here", where=os.fspath(path), fix="counterpoint train makes one")
    file = path / "about.json"
    if not path.is_dir() or not file.is_file():
        raise InputError(
            "is not a run: it has no about.json", where=os.fspath(path), fix="name a folder that counterpoint train made"
        )
    data = read_plain(file).rstrip(b"\n")
    body, last = object_without_sum(data, _ABOUT, os.fspath(file), is_summed=False, fix=_RESTORE)
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", where=os.fspath(file), fix=_RESTORE) from error
    if not isinstance(found, dict):
        raise InputError("is not a JSON object", where=os.fspath(file), fix=_RESTORE)
    if last == _ABOUT and SUMS in found:
        raise InputError("is damaged: its checksum is missing", where=os.fspath(file), fix=_RESTORE)
    return found


def _about_bytes(about: Mapping[str, Any]) -> bytes:
    body = json_bytes(about)
    return (object_with_sum(body, _ABOUT)[0] if SUMS in about else body) + b"\n"


def _versions() -> dict[str, str | None]:
    """Asked of the installer: nothing is imported for it."""

    def one(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    return {
        "counterpoint": one("counterpoint"),
        "python": platform.python_version(),
        "numpy": one("numpy"),
        "torch": one("torch"),
    }


def flat_settings(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Settings with their tables as names with dots: learn.lr."""
    out: dict[str, Any] = {}
    for name, value in settings.items():
        is_table = isinstance(value, Mapping) and len(value) > 0  # an empty one is a value
        out |= flat_settings(value, f"{before}{name}.") if is_table else {f"{before}{name}": value}
    return out


class RunFolder:
    """One run. `create` makes it, `open` reads it, `open(..., write=True)` goes on with it."""

    def __init__(self, path: Path, about: dict[str, Any], *, write: bool) -> None:
        """Use `create` or `open`."""
        self.path, self._about = path, about
        self._lines: dict[str, Lines] = {}
        try:
            for name in _FILES if write else ():
                self._lines[name] = Lines(path / f"{name}.jsonl", run=path, is_summed=self.is_summed)
                self._read(name)  # what is missing is told before anything is written
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: Mapping[str, Any], about: Mapping[str, Any]) -> RunFolder:
        """A new run. `about` gives preset, world, world_version, world_config and seed, and may give more."""
        path = Path(path)
        fix = f"another name, or resume it: counterpoint train resume {path}"
        taken = InputError("exists already and is not empty", where=os.fspath(path), fix=fix)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise taken
        missing = [name for name in _REQUIRED if name not in about]
        if missing:
            raise InputError(f"a run needs {', '.join(missing)}", where="about", fix="state every one: " + ", ".join(_REQUIRED))
        started = datetime.now(UTC).isoformat(timespec="seconds")
        first = {"format": FORMAT, SUMS: 1, "run": path.name, "versions": _versions(), "started_at": started, "status": "running"}
        text = toml_text(config)
        full = {**first, "updates": 0, "spent": dict.fromkeys(TOTALS, 0), **about, "settings": tomllib.loads(text)}
        with translate_errors(path, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # made beside its place and renamed: a kill in between leaves no half of a run
            draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
            try:
                (draft / "checkpoints").mkdir()
                put([(draft / "run.toml", text.encode()), (draft / "about.json", _about_bytes(full))])
                for name in _FILES:
                    (draft / f"{name}.jsonl").touch()
                draft.chmod(0o755)
                os.rename(draft, path)
            except BaseException as error:
                shutil.rmtree(draft, ignore_errors=True)
                if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    raise taken from error  # another process was quicker
                raise
        return cls(path, _read_about(path), write=True)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, write: bool = False) -> RunFolder:
        """A run that is there; with `write` the torn last lines are cut and nobody else may write."""
        path = Path(path)
        about = _read_about(path)
        check_format(about.get("format"), path)
        missing = [name for name in (*_REQUIRED, "status") if name not in about]
        if missing:
            raise InputError(f"does not say {', '.join(missing)}", where=os.fspath(path / "about.json"), fix="restart the run")
        return cls(path, about, write=write)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let others write. The status stays what it was."""
        for lines in self._lines.values():
            lines.close()
        self._lines = {}

    # -- what it is ------------------------------------------------------------------------------------------------------

    @property
    def about(self) -> dict[str, Any]:
        """What the run says of itself, as of when it was opened or last changed here; a copy."""
        return dict(self._about)

    @property
    def is_summed(self) -> bool:
        """Whether its files have sums: those of runs that older versions began have none."""
        return SUMS in self._about

    def notes(self) -> list[str]:
        """What to know before going on with it: no sums, settings that were changed by hand, a checkpoint that is gone."""
        out = [] if self.is_summed else ["it was begun by an older version and has no sums: damage would not be noticed"]
        then, now = self._about.get("settings"), self.config()
        if isinstance(then, dict):
            then, now = flat_settings(then), flat_settings(now)
            differ = [k for k in sorted({*then, *now}) if then.get(k) != now.get(k)]
            out += [f"run.toml was changed since the run began: {k} is {now.get(k)!r}, was {then.get(k)!r}" for k in differ]
        last, found = self._pointed("last"), self.latest_checkpoint()
        if last is not None and (found is None or last != found.name):
            left = f"it goes on from {found.name}" if found else "it begins again"
            out.append(f"checkpoint {last} is gone: {left}, and trains the updates since then again")
        rows = {row["update"] for row in self.metrics()}
        if rows and last is None and found is None:
            out.append("there is no checkpoint: it begins again")
        made = int(found.stem) if found else 0
        if lost := [update for update in range(1, made + 1) if update not in rows]:
            what = f"metrics.jsonl lacks {len(lost)} of {made} rows, the first of update {lost[0]}"
            out.append(f"{what}: they are lost, what was learned is not")
        return out

    @property
    def store_path(self) -> Path:
        """Where its sample traces are."""
        return self.path / "store"

    def config(self) -> dict[str, Any]:
        """Every setting, as in run.toml."""
        file = self.path / "run.toml"
        try:
            return read_toml(file, fix="restore the file; about.json has the settings it began with")
        except FileNotFoundError as error:
            raise InputError("is missing", where=os.fspath(file), fix="restore the file, or restart the run") from error

    def spending(self) -> dict[str, int]:
        """Its totals: its own statement once finished, else those of the last update."""
        rows = self.metrics() if self._about["status"] != "finished" else []
        source = rows[-1] if rows else self._about.get("spent") or {}
        return _totals(source)

    def is_collapsed(self) -> bool:
        """Whether the team ended up calling nobody: under one call per held-out episode in the last tenth of its updates."""
        rows = [row for row in self.evals() if row.get("calls_made")]
        late = [row for row in rows if row["update"] >= 0.9 * rows[-1]["update"]]
        made = [calls for row in late for calls in row["calls_made"] if calls is not None]
        return bool(made) and rows[-1]["update"] > 0 and sum(made) < len(made)

    def change(self, **changes: Any) -> None:
        """Other values in about.json, all at once; readers see the old ones or the new ones."""
        self._writer("metrics")
        full = {**self._about, **changes}
        with translate_errors(self.path / "about.json", self.path):
            put([(self.path / "about.json", _about_bytes(full))])
        self._about = msgspec.json.decode(json_bytes(full))

    def set_status(self, status: str, *, why: str | None = None, **changes: Any) -> None:
        """Running, finished, interrupted or failed (with `why`); further changes go along."""
        if status not in STATUSES:
            raise InputError(f"no status {status!r}", fix="one of " + ", ".join(STATUSES))
        for lines in self._lines.values():
            lines.sync()
        self._about.pop("why", None)
        if self.is_summed and "rows" not in changes:
            changes["rows"] = {name: lines.end for name, lines in self._lines.items()}
        self.change(status=status, **({} if why is None else {"why": why}), **changes)

    # -- rows ------------------------------------------------------------------------------------------------------------

    def _writer(self, name: str) -> Lines:
        if name not in self._lines:
            raise Refused("is open for reading only", where=os.fspath(self.path), fix="RunFolder.open(path, write=True)")
        return self._lines[name]

    def _append(self, name: str, row: Mapping[str, Any], *, after: int) -> None:
        """`after` is the least step from the last row's update: 1 where an update has one row."""
        lines, update = self._writer(name), row.get("update")
        if not isinstance(update, int) or update < 0:
            raise InputError(f"a row needs its update, not {update!r}", where=os.fspath(lines.path))
        last = None if lines.last is None else lines.last.get("update", 0)
        if last is not None and update < last + after:
            raise InputError(
                f"update {update} comes after update {last}", where=os.fspath(lines.path), fix="go back with resume(k)"
            )
        lines.append(row)

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """The row of one update: its number, the totals so far, and any further columns."""
        missing = [name for name in TOTALS if name not in row and name != "charged"]
        if missing:
            raise InputError(f"a row of metrics needs {', '.join(missing)}", where=os.fspath(self.path / "metrics.jsonl"))
        self._append("metrics", row, after=1)

    def append_eval(self, row: Mapping[str, Any]) -> None:
        """One evaluation: `first_seed`, and `values` and further lists with one number per held-out task."""
        where = os.fspath(self.path / "evals.jsonl")
        if "first_seed" not in row or "values" not in row:
            raise InputError("an evaluation needs first_seed and values", where=where)
        tasks = len(row["values"])
        wrong = [n for n in ("agents", "rounds", "calls_made") if n in row and len(row[n]) != tasks]
        if wrong:
            raise InputError(f"{wrong[0]} has {len(row[wrong[0]])} numbers for {tasks} tasks", where=where, fix="one per task")
        self._append("evals", row, after=0)

    def append_alert(self, row: Mapping[str, Any]) -> None:
        """Something to look at: update, code, what, traces, fix."""
        missing = [name for name in ("code", "what") if name not in row]
        if missing:
            raise InputError(f"an alert needs {', '.join(missing)}", where=os.fspath(self.path / "alerts.jsonl"))
        self._append("alerts", row, after=0)

    def _read(self, name: str) -> list[dict[str, Any]]:
        """The rows; all that were there when about.json was last written are there still."""
        path = self.path / f"{name}.jsonl"
        found = read_rows(path, is_summed=self.is_summed)
        if self._are_missing(name, found, self._about):
            self._about = _read_about(self.path)  # or the run has gone back since it was opened
            found = read_rows(path, is_summed=self.is_summed)
            if self._are_missing(name, found, self._about):
                count = self._about["rows"][name][0]
                left = min(len(found.rows), count)
                what = f"verification failed: {count:,} rows were written, {left:,} remain, or some changed"
                raise InputError(what, where=os.fspath(path), fix="restore the file from a copy, or restart the run")
        return found.rows

    @staticmethod
    def _are_missing(name: str, found: Rows, about: Mapping[str, Any]) -> bool:
        count, last = (about.get("rows") or {}).get(name) or (0, "")
        return bool(count) and (len(found.rows) < count or found.sums[count - 1].decode() != last)

    def metrics(self) -> list[dict[str, Any]]:
        """Every row of metrics."""
        return self._read("metrics")

    def evals(self) -> list[dict[str, Any]]:
        """Every evaluation."""
        return self._read("evals")

    def alerts(self) -> list[dict[str, Any]]:
        """Every alert."""
        return self._read("alerts")

    def columns(self, *names: str) -> dict[str, np.ndarray]:
        """Columns of the metrics as float64, `entropy.spawn` for one inside another; NaN where a row has none."""
        rows = self.metrics()
        return {name: np.array([_number(row, name) for row in rows], dtype=np.float64) for name in names}

    def resume(self, update: int) -> None:
        """Go back to the end of an update: later rows and checkpoints are dropped, the run is running again."""
        # First that fewer rows will be there, then the cut: whatever comes between, none is missed.
        self.change(**({"rows": {name: self._writer(name).end_at(update) for name in _FILES}} if self.is_summed else {}))
        for name in _FILES:
            self._writer(name).cut(update)
        for path in self._checkpoints():
            if int(path.stem) > update:
                path.unlink()
        left = self._checkpoints()
        if left:
            with translate_errors(left[-1], self.path):
                put([(self.path / "checkpoints" / "last", self._pointer(left[-1]))])
        last = self._lines["metrics"].last
        spent = _totals(last or {})
        self.set_status("running", updates=update, spent=spent)

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def add_checkpoint(self, update: int, data: bytes, *, is_best: bool = False) -> Path:
        """Keep the state after an update: the file, then the name in `last` (and `best`), then the oldest go."""
        for lines in (self._writer(name) for name in _FILES):
            lines.sync()
        folder = self.path / "checkpoints"
        path = folder / f"{update:06d}.pt"
        with translate_errors(path, self.path):
            put([(path, file_with_sum(data) if self.is_summed else data)])
            put([(folder / name, self._pointer(path)) for name in ("last", *(["best"] if is_best else []))])
            kept = {*self._checkpoints()[-_KEPT:], self.best_checkpoint()}
            for old in set(self._checkpoints()) - kept:
                old.unlink()
        return path

    def _checkpoints(self) -> list[Path]:
        """All, the oldest first."""
        found = (p for p in (self.path / "checkpoints").glob("*.pt") if re.fullmatch(r"\d+", p.stem))
        return sorted(found, key=lambda p: int(p.stem))

    def read_checkpoint(self, path: Path) -> bytes:
        """The bytes of a checkpoint, compared with their sum; an error says which older one can be gone on from."""
        older = [p for p in self._checkpoints() if int(p.stem) < int(path.stem)]
        back = f"the run then goes on from {older[-1].name}" if older else "the run then begins again"
        fix = f"set it aside (mv {path} {path}.broken) and resume: {back}, and trains the updates since then again"
        return file_without_sum(read_plain(path), os.fspath(path), is_summed=self.is_summed, fix=fix)

    def _pointer(self, path: Path) -> bytes:
        return name_with_sum(path.name) if self.is_summed else path.name.encode() + b"\n"

    def _pointed(self, name: str) -> str | None:
        """What `last` or `best` names, whether it is there or not."""
        file = self.path / "checkpoints" / name
        try:
            return Path(name_without_sum(read_plain(file), os.fspath(file))).name
        except FileNotFoundError:
            return None

    def _named(self, name: str) -> Path | None:
        found = self._pointed(name)
        path = self.path / "checkpoints" / found if found else None
        return path if path is not None and path.is_file() else None

    def latest_checkpoint(self) -> Path | None:
        """The newest complete one; None before the first."""
        return self._named("last") or next(reversed(self._checkpoints()), None)

    def best_checkpoint(self) -> Path | None:
        """The one that was the best when it was added; None where none was."""
        return self._named("best")


def _number(row: Any, name: str) -> float:
    for part in name.split("."):
        row = row.get(part) if isinstance(row, Mapping) else None
    return float(row) if isinstance(row, (int, float)) else float("nan")
