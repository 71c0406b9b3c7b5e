"""Damages to the files of a store, and what its readers say about them: for tests/store/test_damages.py, and as a program for many.

    python tests/damages.py 2000 0      two thousand damages with seed 0: a table by kind of file and of damage

A damage is *said* when every answer that differs comes with an error or a word about it, *harmless* when all answers are the
same, *silent* when one differs without a word. Each reader is asked for itself: one that is told does not excuse another.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from counterpoint.app.cli import main
from counterpoint.errors import CounterpointError, NotFound
from counterpoint.store import Store
from counterpoint.store.annotations import Change, Dataset
from counterpoint.store.verify import verify
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event
from counterpoint.trace.annotation import Annotation

BLOCK = 512


class Told(NamedTuple):
    """An answer, and whether something was said about damage."""

    answer: Any
    is_said: bool


# -- a store with every kind of file -----------------------------------------------------------------------------------


def make(folder: Path) -> None:
    """A store with two checkpoints, commits after them, parts, a hot file, annotations, a collection, and open runs."""
    with Store(folder) as store:
        for size in (4, 5, 6, 7, 8):
            for i in range(12):
                store.add(_trace(i, size + i % 3), source=f"made:{i}")
        for i in (1, 5):
            store.remove(f"t{i}")
        store.compact(grace_s=0)
        for i in (0, 12, 13):
            store.add(_trace(i, 9), source=f"made:{i}")
        store.remove("t9")
        for i in (2, 3):
            store.annotate([Annotation(id=f"a{i}", trace_id=f"t{i}", name="note", text="look", by="me", at=float(i))])
        made = Dataset(name="mine", ids=("t2", "t3"), by="me", at=1.0)
        store.change_datasets(lambda known: [Change(dataset=made)])
        store.hot()
        for name, events, every in (("young", 0, 1), ("short", 3, 1), ("long", 60, 4), ("open", 25, 25)):
            with store.record(name, task_id="demo") as run:
                for k in range(events):
                    run.event(Event(id=f"e{k}", t=k, type="message", agent=f"a{k % 3}", tokens_out=k, tool="grep"))
                    if k:
                        run.edge(f"e{k - 1}", f"e{k}", "causal")
                    if k % every == every - 1:
                        run.sync()


def _trace(i: int, events: int) -> Any:
    return replace(synthetic_trace(3, events, seed=i), trace_id=f"t{i}")


def kind_of(file: Path, folder: Path) -> str:
    """Which kind of file it is, in the words of docs/store.md."""
    place = file.relative_to(folder)
    if place.parts[0] == "lake":
        return "lake " + file.name.split(".")[1]
    return f"{place.parts[0]} {file.suffix}" if len(place.parts) > 1 else place.name


def files_of(folder: Path) -> list[Path]:
    """Every file of a store."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


# -- damages -----------------------------------------------------------------------------------------------------------


def _flip(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: len(data) - rng.choice([1, 2, rng.randint(1, len(data)), min(len(data), BLOCK)])]


def _cut_line(data: bytes, rng: random.Random) -> bytes:
    """As far as the end of a line, so that what is left looks whole."""
    ends = [place + 1 for place, byte in enumerate(data[:-1]) if byte == 10]
    return data[: rng.choice(ends)] if ends else b""


def _zero_end(data: bytes, rng: random.Random) -> bytes:
    return data[:-BLOCK] + bytes(min(BLOCK, len(data)))


def _block(data: bytes, rng: random.Random) -> int:
    return BLOCK * rng.randrange((len(data) + BLOCK - 1) // BLOCK)


def _zero(data: bytes, rng: random.Random) -> bytes:
    begin = _block(data, rng)
    return data[:begin] + bytes(len(data[begin : begin + BLOCK])) + data[begin + BLOCK :]


def _swap(data: bytes, rng: random.Random) -> bytes:
    first, second = sorted((_block(data, rng), _block(data, rng)))
    if second - first < BLOCK:
        return data
    one, other = data[first : first + BLOCK], data[second : second + BLOCK]
    return data[:first] + other + data[first + BLOCK : second] + one + data[second + BLOCK :]


def _double(data: bytes, rng: random.Random) -> bytes:
    begin = _block(data, rng)
    return data[: begin + BLOCK] + data[begin:]


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "a bit": _flip,
    "the end cut": _cut,
    "cut at a line": _cut_line,
    "last 512 zero": _zero_end,
    "a block zero": _zero,
    "blocks swapped": _swap,
    "a block twice": _double,
    "deleted": lambda data, rng: None,
}


# -- readers -----------------------------------------------------------------------------------------------------------


def _ls(folder: Path) -> Told:
    """What `counterpoint ls` prints."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(["ls", "--json", "--newest", "0", "--store", str(folder)])
        except SystemExit as end:
            code = end.code
    # When a file was last written is no part of what was acknowledged.
    rows = [{**json.loads(line), "added": None} for line in out.getvalue().splitlines()]
    return Told(sorted(rows, key=lambda row: str(row.get("id"))), bool(code) or "damaged" in err.getvalue())


def _said(ask: Callable[[], Any]) -> Told:
    try:
        return Told(ask(), False)
    except CounterpointError:
        return Told(None, True)


def answers(folder: Path) -> dict[str, Told]:
    """What every reader says: of the folder as it lies there, and after it was opened for writing."""
    found = {"ls": _ls(folder)}
    for way in ("reading", "writing"):
        try:
            store = Store(folder, create=False, read_only=way == "reading")
        except CounterpointError:
            found |= {f"{way} {what}": Told(None, True) for what in (*_ASKED[way], *_IDS)}
            continue
        with store:
            found |= {f"{way} {name}": told for name, told in _traces(store).items()}
            for what, ask in _ASKED[way].items():
                found[f"{way} {what}"] = ask(store)
    found["ls after"] = _ls(folder)
    return found


def _traces(store: Store) -> dict[str, Told]:
    """Every trace that is, or was, in the store."""
    return {name: _said(lambda name=name: _found(store, name)) for name in _IDS}  # type: ignore[misc]


def _found(store: Store, name: str) -> Any:
    try:
        return store.get(name)
    except NotFound:
        return "no such trace"


_IDS = [*(f"t{i}" for i in range(14)), "young", "short", "long", "open"]
_SQL = "select trace_id, count(*), sum(tokens_out), min(agent) from events group by 1 order by 1"


def _open(store: Store) -> Told:
    ids = _said(store.open_ids)
    return Told(ids.answer, ids.is_said or bool(store.damaged))


def _hot(store: Store) -> Told:
    return _said(lambda: repr(store.hot().sample(9, np.random.default_rng(0)).events.to_pylist()))


_ASKED: dict[str, dict[str, Callable[[Store], Told]]] = {
    "reading": {"open": _open, "hot": _hot},
    "writing": {
        "open": _open,
        "sql": lambda store: _said(lambda: store.sql(_SQL).rows),
        "notes": lambda store: _said(lambda: [store.annotations(), store.datasets()]),
    },
}


def judged(before: dict[str, Told], now: dict[str, Told]) -> tuple[str, list[str]]:
    """Whether a damage was said, harmless or silent, and which readers it misled."""
    misled, is_said = [], False
    for what, told in now.items():
        is_said |= told.is_said
        if told.answer != before[what].answer and not told.is_said:
            misled.append(what)
    return ("silent" if misled else "said" if is_said else "harmless"), misled


# -- trying ------------------------------------------------------------------------------------------------------------


class Trial(NamedTuple):
    """One damage and what became of it."""

    file: str
    kind: str
    damage: str
    verdict: str
    misled: list[str]
    is_seen: bool
    """Whether `verify` sees it."""


def trials(whole: Path, count: int, seed: int) -> list[Trial]:
    """Damages to copies of a store: kinds of files in turn, then a file, a kind of damage, and a place in it."""
    rng = random.Random(seed)
    before = answers_of_copy(whole, lambda copy: None)
    by_kind: dict[str, list[Path]] = {}
    for file in files_of(whole):
        by_kind.setdefault(kind_of(file, whole), []).append(file)
    found, kinds = [], sorted(by_kind)
    while len(found) < count:
        kind = kinds[len(found) % len(kinds)]
        file, damage = rng.choice(by_kind[kind]), rng.choice(list(DAMAGES))
        data = file.read_bytes()
        changed = DAMAGES[damage](data, rng)
        if changed == data:
            continue
        seen: list[bool] = []
        now = answers_of_copy(whole, lambda copy, f=file, c=changed, s=seen: _damage(whole, copy, f, c, s))  # type: ignore[misc]
        verdict, misled = judged(before, now)
        found.append(Trial(file.relative_to(whole).as_posix(), kind, damage, verdict, misled, seen[0]))
    return found


def answers_of_copy(whole: Path, change: Callable[[Path], None]) -> dict[str, Told]:
    """What the readers say of a copy that was changed."""
    with tempfile.TemporaryDirectory(dir=whole.parent) as place:
        copy = Path(shutil.copytree(whole, Path(place) / "store"))
        change(copy)
        return answers(copy)


def _damage(whole: Path, copy: Path, file: Path, changed: bytes | None, seen: list[bool]) -> None:
    target = copy / file.relative_to(whole)
    if changed is None:
        target.unlink()
    else:
        target.write_bytes(changed)
    try:
        seen.append(bool(verify(copy).faults))
    except CounterpointError:
        seen.append(True)


def main_() -> None:
    count, seed = (int(sys.argv[1]) if len(sys.argv) > 1 else 200), (int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    with tempfile.TemporaryDirectory() as place:
        make(Path(place) / "store")
        found = trials(Path(place) / "store", count, seed)
    for by in ("kind", "damage"):
        tally = Counter((getattr(trial, by), trial.verdict) for trial in found)
        print(f"{by:24} said harmless silent")
        for name in sorted({key for key, _ in tally}):
            print(f"{name:24} {tally[name, 'said']:4} {tally[name, 'harmless']:8} {tally[name, 'silent']:6}")
    for trial in found:
        if trial.verdict == "silent":
            print("silent:", *trial)


if __name__ == "__main__":
    main_()
