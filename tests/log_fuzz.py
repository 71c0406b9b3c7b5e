"""Log files damaged and rearranged by chance, and what must hold of every importer whatever it is given.

A long run by hand, from the repository's root: `python tests/log_fuzz.py SEED SECONDS [FOLDER ...]`.

Always true: the same seed makes the same files.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterpoint.app.discover import importers
from counterpoint.errors import InputError
from counterpoint.formats.importer import Importer
from counterpoint.formats.importing.files import HEAD, File
from counterpoint.trace.check import problems
from logs import SAMPLES

_LARGEST = 200_000
_JOINED = "joined"
_VALUES: tuple[Any, ...] = (None, True, 0, -1, 1e308, 2**70, "", "x", "\ud800", [], {}, [None], {"a": 1}, [[]], "1", [1, "a", {}])
Damage = Callable[[random.Random, bytes], bytes]


@dataclass
class Findings:
    """What a run of the fuzz found: how often it did what, and the first of each kind of failure."""

    done: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    slowest: tuple[float, str] = (0.0, "")
    is_told: bool = False
    """Whether a failure is written to stderr when it is found."""

    def fail(self, kind: str, what: str) -> None:
        """A failure."""
        self.done[f"FAILED {kind}"] += 1
        if kind not in self.failures and self.is_told:
            sys.stderr.write(f"## {kind}\n{what[-2000:]}\n")
        self.failures.setdefault(kind, what)


def corpus(folders: Iterable[Path] = (SAMPLES,)) -> list[tuple[str, bytes]]:
    """Name and bytes of all files, the long ones up to a whole line."""
    found = []
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            with path.open("rb") as stream:
                data = stream.read(_LARGEST)
            if len(data) == _LARGEST:
                data = data[: data.rfind(b"\n") + 1] or data
            found.append((path.relative_to(folder).as_posix(), data))
    return found


def takers(data: bytes) -> list[str]:
    """Who says that it knows the file, the highest rank first."""
    return [name for name, one in importers().items() if one.sniff(data[:HEAD])] if data else []


# -- JSON in a file -----------------------------------------------------------------------------------------------------------


def _values(data: bytes) -> tuple[list[Any], bool] | None:
    """The document of a file, or the values on its lines; None where it is no JSON."""
    try:
        return [json.loads(data)], False
    except (ValueError, RecursionError):
        pass
    lines = []
    for line in data.split(b"\n"):
        try:
            lines += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError):
            lines.append(line)
    return (lines, True) if any(not isinstance(line, bytes) for line in lines) else None


def _bytes(values: list[Any], *, are_lines: bool, **options: Any) -> bytes:
    texts = [v if isinstance(v, bytes) else json.dumps(v, **options).encode("utf-8", "surrogatepass") for v in values]
    return b"\n".join(texts) + (b"\n" if are_lines else b"")


def _places(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Every object in a value."""
    if depth > 40:
        return
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _places(inner, depth + 1)


def _changed(change: Callable[[random.Random, dict[str, Any]], None]) -> Damage:
    """A damage to one to three objects of a file that is JSON."""

    def damage(rng: random.Random, data: bytes) -> bytes:
        found = _values(data)
        if found is None:
            return data
        objects = [o for value in found[0] for o in _places(value) if o]
        for one in rng.sample(objects, min(len(objects), rng.randint(1, 3))):
            if one:
                change(rng, one)
        return _bytes(found[0], are_lines=found[1])

    return damage


def _drop(rng: random.Random, one: dict[str, Any]) -> None:
    del one[rng.choice(list(one))]


def _rename(rng: random.Random, one: dict[str, Any]) -> None:
    key = rng.choice(list(one))
    one[rng.choice([key + "_", key.upper(), key[::-1], "type", "id"])] = one.pop(key)


def _retype(rng: random.Random, one: dict[str, Any]) -> None:
    one[rng.choice(list(one))] = rng.choice(_VALUES)


def _reordered(rng: random.Random, data: bytes) -> bytes:
    found = _values(data)
    if found is None:
        return data
    for one in (o for value in found[0] for o in _places(value)):
        items = list(one.items())
        rng.shuffle(items)
        one.clear()
        one.update(items)
    return _bytes(found[0], are_lines=found[1])


def _spaced(rng: random.Random, data: bytes) -> bytes:
    found = _values(data)
    if found is None:
        return data
    options: dict[str, Any] = {"separators": rng.choice([(",", ":"), (" , ", " : "), (", ", ": ")])}
    if not found[1] and rng.random() < 0.5:
        options["indent"] = rng.choice([1, 4, "\t"])
    lead = b"" if found[1] else rng.choice([b"", b"\n", b" \n\t"])
    return lead + _bytes(found[0], are_lines=found[1], **options)


def _doubled_key(rng: random.Random, data: bytes) -> bytes:
    at = data.find(b"{", rng.randrange(len(data)) if data else 0)
    return data if at < 0 else data[: at + 1] + b'"type":"x","id":1,"type":[],' + data[at + 1 :]


def _cut(rng: random.Random, data: bytes) -> bytes:
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return rng.choice([data[:a], data[a:], data[:a] + data[b:]])


def _flipped(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        if out:
            out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def _swapped(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def _repeated(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    return b"\n".join([*lines[:at], *lines[at : at + 3], *lines[at:]])


def _wrapped(rng: random.Random, data: bytes) -> bytes:
    found = _values(data)
    if found is None:
        return b"[" + data + b"]"
    whole = [v for v in found[0] if not isinstance(v, bytes)]
    value: Any = rng.choice([whole, [whole], {"data": whole}, {"messages": whole}, {"events": whole, "id": "x"}])
    return _bytes([value], are_lines=False)


def _prefixed(rng: random.Random, data: bytes) -> bytes:
    return rng.choice([b"\xef\xbb\xbf", b"\x00\x00", b"log: ", b"{}\n", b"[]\n", b"null\n", b"\n\n", b'{"type":"x"}\n', b"data: "]) + data


HARMLESS: dict[str, Damage] = {"reordered": _reordered, "spaced": _spaced, "key dropped": _changed(_drop)}
HARMFUL: dict[str, Damage] = {
    "keys renamed": _changed(_rename), "types changed": _changed(_retype), "key doubled": _doubled_key, "cut": _cut,
    "bytes flipped": _flipped, "lines swapped": _swapped, "lines repeated": _repeated, "wrapped": _wrapped, "prefixed": _prefixed,
}  # fmt: skip


# -- what must hold -----------------------------------------------------------------------------------------------------------


def look(findings: Findings, name: str, data: bytes, before: list[str], kind: str, *, is_harmless: bool) -> None:
    """One damaged file: whose it is, and that whoever takes it reads it or says why not."""
    started = time.process_time()
    known = importers()
    try:
        found = takers(data)
    except Exception:
        findings.fail(f"sniff raised, {kind}", f"{name}: {traceback.format_exc()}")
        return
    findings.done[kind] += 1
    if found:
        equal = [other for other in found if known[other].rank == known[found[0]].rank]
        if len(equal) > 1 and kind == _JOINED:
            findings.done["joined: two of equal rank know it"] += 1  # it is of two systems
        elif len(equal) > 1 and not set(equal) <= set(before):
            findings.fail(f"two of equal rank: {equal}", f"{name} after {kind}, before {before}")
        if is_harmless and (not before or found[0] != before[0]):
            findings.fail(f"{before[:1]} went to {found[0]}", f"{name} after {kind}")
        _read(findings, known[found[0]], found[0], f"{name} after {kind}", File.of(data, name))
    elif is_harmless and before:
        findings.done[f"nobody's, {kind}"] += 1
    spent = time.process_time() - started
    if spent > findings.slowest[0]:
        findings.slowest = spent, f"{name} after {kind}"


def _read(findings: Findings, importer: Importer, owner: str, what: str, file: File) -> None:
    try:
        for session in importer.group([file]):
            for trace in importer.read_session(session):
                findings.done["traces"] += 1
                wrong = [str(p) for p in problems(trace) if p.severity == "error"]
                if wrong:
                    findings.fail(f"{owner} unsound", f"{what}: {wrong[:2]}")
    except InputError:
        findings.done["refused"] += 1
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        findings.fail(f"{owner} raised {type(error).__name__} at {place.name}", f"{what}: {traceback.format_exc()}")


def fuzz(findings: Findings, seed: int, files: list[tuple[str, bytes]]) -> None:
    """Each file damaged once in a harmless way, once in a harmful one, and some put together with another."""
    rng = random.Random(seed)
    for name, data in files:
        before = takers(data)
        for kinds, is_harmless in ((HARMLESS, True), (HARMFUL, False)):
            kind = rng.choice(list(kinds))
            look(findings, name, kinds[kind](rng, data), before, kind, is_harmless=is_harmless)
        if rng.random() < 0.3:
            other = rng.choice(files)[1]
            look(findings, name, data.rstrip(b"\n") + b"\n" + other, [*before, *takers(other)], _JOINED, is_harmless=False)


if __name__ == "__main__":
    seed, seconds, *folders = sys.argv[1:]
    found, ends, number = Findings(is_told=True), time.monotonic() + float(seconds), int(seed)
    while time.monotonic() < ends:
        files = corpus([Path(folder) for folder in folders] or [SAMPLES])
        random.Random(number).shuffle(files)
        for some in (files[k : k + 50] for k in range(0, len(files), 50)):
            if time.monotonic() < ends:
                fuzz(found, number, some)
                number += 1
    sys.stdout.write(f"{json.dumps(dict(sorted(found.done.items())), indent=1)}\nslowest {found.slowest}, next seed {number}\n")
