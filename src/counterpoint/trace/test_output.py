"""What the output of a test runner says: whether the tests passed, and the line that sums them up.

Always true: of several runs in one output the last counts; an output in which nothing sums up says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TAIL = 4000
"""Characters at the end of an output in which a test run sums up."""

# Of each test runner the line that sums up: how many passed and how many did not, in any order.
_COUNTS = re.compile(r"(\d+) (passed|passing|failed|failing|failures?|errors?)\b", re.I)
_SUMMARY = re.compile(
    r"^(?:=+ .*\b\d+ (?:passed|failed|error).*"
    r"|\s*Tests?:? +.*\b\d+ (?:passed|failed).*"
    r"|test result: .*"
    r"|\s*\d+ (?:passing|failing)\b.*"
    r"|\d+ (?:passed|failed).* in [\d.]+.*)$",
    re.I | re.M,
)
_RAN = re.compile(r"^Ran \d+ tests? in .*\n+(OK|FAILED)\b.*", re.M)
_GO = re.compile(r"^(ok|FAIL)[ \t]+(\S+)[ \t]+(?:[\d.]+s\b|\(cached\)|\[(?:build|setup) failed\])", re.M)


def test_run(text: str) -> tuple[bool, str] | None:
    """Whether the last test run in an output passed, and the line that says so; None where there is none."""
    text = text[-_TAIL:]
    runs: list[tuple[int, bool, str]] = []
    for match in _SUMMARY.finditer(text):
        counts = [(int(n), word.lower()) for n, word in _COUNTS.findall(match[0])]
        failed = sum(n for n, word in counts if not word.startswith("pass"))
        if any(n for n, _ in counts):
            runs.append((match.start(), not failed, match[0]))
    runs += [(m.start(), m[1] == "OK", m[0].replace("\n", " ")) for m in _RAN.finditer(text)]
    runs += _go_run(text)
    if not runs:
        return None
    _, passed, line = max(runs)
    if passed and any(not ok for start, ok, _ in runs if start > max(runs)[0] - 200):
        # one suite of the same run failed
        return next((ok, summary) for start, ok, summary in sorted(runs, reverse=True) if not ok)
    return passed, line


def _go_run(text: str) -> Iterator[tuple[int, bool, str]]:
    """What Go says of its packages, which may have been run again: of each the last line counts, and one failure is enough."""
    last = {match[2]: match for match in _GO.finditer(text)}
    if last:
        newest = max(last.values(), key=re.Match.start)
        failed = next((match for match in last.values() if match[1] == "FAIL"), None)
        yield newest.start(), failed is None, (failed or newest)[0]


test_run.__test__ = False  # type: ignore[attr-defined]  # its name is no test's
