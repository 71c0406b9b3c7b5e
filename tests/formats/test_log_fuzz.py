"""Samples of every source, damaged by chance: a little of what `tests/log_fuzz.py` does for as long as you like."""

from __future__ import annotations

import random

import pytest

from log_fuzz import HARMFUL, HARMLESS, Findings, corpus, fuzz, takers


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_logs_are_read_or_refused_and_never_another_source_s(seed: int) -> None:
    files = [(name, data) for name, data in corpus() if 0 < len(data) < 20_000]
    findings = Findings()
    fuzz(findings, seed, random.Random(seed).sample(files, 60))
    assert findings.failures == {}
    assert findings.done["traces"] > 40  # else nothing was read


def test_the_fuzz_sees_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that raises, and a file that goes to another source after a harmless change."""
    name, data = next((name, data) for name, data in corpus() if takers(data)[:1] == ["acp"])
    findings = Findings()
    for kinds in (HARMLESS, HARMFUL):
        for kind in kinds:
            monkeypatch.setitem(kinds, kind, lambda rng, data: data)
    monkeypatch.setattr("log_fuzz.problems", lambda trace: 1 / 0)
    owners = iter([["amp"], ["acp"], ["acp"], ["acp"], ["acp"]])
    monkeypatch.setattr("log_fuzz.takers", lambda data: next(owners))
    fuzz(findings, 1, [(name, data)])
    assert sorted(findings.failures) == ["['amp'] went to acp", "acp raised ZeroDivisionError at <lambda>"]


def test_the_same_seed_makes_the_same_damage() -> None:
    data = b'{"a":1,"b":[{"c":2}]}\n{"d":3}\n'
    for damage in (*HARMLESS.values(), *HARMFUL.values()):
        assert damage(random.Random(7), data) == damage(random.Random(7), data)
