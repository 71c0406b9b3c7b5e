"""Masking: how fast texts are looked through, how many ordinary lines are taken for secrets, and what a kept library finds.

Three questions, all in one run. Speed: the Python sources of the standard library and real logs, against writing the same
texts as JSON
and, where it is installed, against detect-secrets. False positives: keys and home folders per 5,000 lines of those sources
(addresses of
authors are addresses). Recall: the kinds of `tests/mask_kinds.py`, ours and theirs.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from _timing import arguments, interleaved, report, row

from counterpoint.formats.masking import mask
from counterpoint.formats.masking.find import spans
from mask_kinds import KINDS

LOGS = Path(__file__).parent.parent.parent / "shared" / "data" / "logs"
ALLOWED = 1.0
"""False positives per 5,000 lines."""


def sources(limit: int) -> list[str]:
    """The standard library and what is installed, tests too; at most so many characters."""
    paths = sysconfig.get_paths()
    files = [*sorted(Path(paths["stdlib"]).rglob("*.py")), *sorted(Path(paths["purelib"]).rglob("*.py"))]
    return _read(list(dict.fromkeys(files)), limit)


def logs(limit: int) -> list[str]:
    """Real logs of agents, where they are at hand."""
    return _read([path for path in sorted(LOGS.rglob("*")) if path.is_file() and path.suffix in (".json", ".jsonl")], limit)


def _read(files: list[Path], limit: int) -> list[str]:
    texts, size = [], 0
    for path in files[:: max(1, len(files) // 2000)]:
        text = path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size < 3_000_000 else ""
        size += len(text)
        if size > limit:
            break
        texts.append(text)
    return texts


def detect_secrets() -> Any:
    """What detect-secrets with all its plug-ins and filters finds in a text, or None where it is not installed."""
    try:
        from detect_secrets import SecretsCollection
        from detect_secrets.settings import default_settings
    except ImportError:
        return None

    def found(text: str) -> list[str]:
        with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8", errors="replace") as file, default_settings():
            file.write(text)
            file.flush()
            secrets = SecretsCollection()
            secrets.scan_file(file.name)
            return [secret.secret_value or "" for _, secret in secrets]

    return found


def rates(name: str, texts: list[str], repeats: int) -> Iterator[dict[str, Any]]:
    """Megabytes a second, ours against a peer's on the same texts."""
    size = sum(map(len, texts)) / 1e6
    took = interleaved({
        "ours": lambda: [spans(text) for text in texts],
        "quick": lambda: [spans(text, is_quick=True) for text in texts],
        "json": lambda: [json.dumps(text) for text in texts],
    }, repeats, "cpu")  # fmt: skip
    yield row(f"{name}: look through", size / took["ours"], size / took["json"], "MB/s", is_rate=True)
    yield row(f"{name}: look through at import", size / took["quick"], size / took["json"], "MB/s", is_rate=True)
    scan = detect_secrets()
    if scan is not None:
        few = [text[:20_000] for text in texts[:10]]
        took = interleaved(
            {"ours": lambda: [spans(text) for text in few], "theirs": lambda: [scan(text) for text in few]}, 1, "cpu"
        )
        lines = sum(text.count("\n") for text in few)
        yield row(
            f"{name}: lines, against detect-secrets",
            lines / took["ours"],
            lines / took["theirs"],
            "lines/s",
            is_rate=True,
            target=10,
        )


def mistakes(name: str, texts: list[str]) -> Iterator[dict[str, Any]]:
    """What is taken for a key or a home folder in ordinary texts, per 5,000 lines."""
    lines = sum(text.count("\n") + 1 for text in texts)
    found = Counter(span.kind for text in texts for span in spans(text))
    per = 5_000 / lines
    yield row(f"{name}: keys in {lines:,} lines", found["key"], None, "found")
    yield row(f"{name}: keys and paths", (found["key"] + found["path"]) * per, None, "per 5,000 lines", limit=ALLOWED)


def recall() -> Iterator[dict[str, Any]]:
    """How many of our kinds are found."""
    ours = sum(kind.secret not in mask(kind.text)[0] for kind in KINDS)
    scan = detect_secrets()
    theirs = None if scan is None else float(sum(_is_gone(kind.text, kind.secret, scan(kind.text)) for kind in KINDS))
    yield row(f"kinds found of {len(KINDS)}", ours, theirs, "kinds", is_rate=True, target=1)


def _is_gone(text: str, secret: str, found: list[str]) -> bool:
    """Whether nothing of a secret would be left if what was found were taken out."""
    for value in filter(None, found):
        text = text.replace(value, "")
    return secret not in text


def main() -> None:
    options = arguments(__doc__)
    limit = 4_000_000 if options.quick else 20_000_000
    code, real = sources(limit), logs(limit)
    rows = [*rates("sources", code, 1 if options.quick else 3), *mistakes("sources", code), *recall()]
    if real:
        rows += rates("logs", real, 1 if options.quick else 3)
    report("masking", rows, as_json=options.json)


if __name__ == "__main__":
    main()
