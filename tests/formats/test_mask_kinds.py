"""Our own list of secrets, from public rules: every kind, every way to write it, every place of a trace, every way out. None leaks."""

from __future__ import annotations

import json
import re
from types import ModuleType
from typing import Any

import pytest

from counterpoint import registry
from counterpoint.formats import masking
from counterpoint.formats.masking import assignments, base, find, forms, mask, masked_all, names, tokens
from counterpoint.formats.masking.rules import RULES, SOURCES
from counterpoint.trace import Trace
from counterpoint.trace.lines import encode_lines
from mask_kinds import FORMS, KINDS, TOKENS, made, pieces, trace_with

MODULES = (masking, assignments, base, find, forms, names, tokens)


def test_there_are_enough_kinds() -> None:
    assert len(KINDS) >= 300
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert len(TOKENS) * len(FORMS) >= 3_700


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_no_kind_leaks(kind: Any) -> None:
    assert kind.secret in kind.text
    new, found = mask(kind.text)
    assert kind.secret not in new
    assert found["key"] >= 1
    assert mask(new)[1].total() == 0


@pytest.mark.parametrize("form", FORMS)
def test_no_form_leaks(form: str) -> None:
    left = {}
    for name, shape in TOKENS.items():
        token = made(shape, f"{name} {form}")
        new = mask(f"it is {FORMS[form](token)} now")[0]
        if any(piece in new for piece in pieces(token, form)) or not (new.startswith("it is ") and new.endswith(" now")):
            left[name] = new
    assert left == {}


@pytest.mark.parametrize("place", trace_with("x"))
def test_no_place_leaks(place: str) -> None:
    """All kinds at once: as many traces leave together, and a secret that one has is masked in all, so each stands alone too."""
    left = []
    for k, kind in enumerate(KINDS):
        if k % 4 == 0 or "pem" in kind.name:
            done = masked_all([trace_with(kind.text)[place]])
            if _holds(encode_lines(done.traces[0]).decode(), kind.secret) or not done.where:
                left.append(kind.name)
    assert left == []


def _holds(data: str, secret: str) -> bool:
    return secret in data or json.dumps(secret, ensure_ascii=False)[1:-1] in data or json.dumps(secret)[1:-1] in data


def _written(trace: Trace) -> dict[str, bytes]:
    out = {}
    for name in registry.ids("format"):
        format_ = registry.get("format", name)
        if format_.write is not None:
            out[name] = format_.write(trace)
        elif format_.write_tables is not None and name == "csv":
            out |= {f"{name} {file}": table.data for file, table in format_.write_tables([trace]).items()}
    return out


@pytest.mark.parametrize("name", ["github-pat", "aws-key", "password-env", "postgres-url", "curl-u", "mysql-p"])
def test_no_target_leaks(name: str) -> None:
    kind = next(kind for kind in KINDS if kind.name == name)
    for place, trace in trace_with(kind.text).items():
        (new,) = masked_all([trace]).traces
        for target, data in _written(new).items():
            assert not _holds(data.decode("utf-8", "replace"), kind.secret), (place, target)


def test_the_report_says_where_and_not_what() -> None:
    for kind in KINDS[::23]:
        for place, trace in trace_with(kind.text).items():
            where = masked_all([trace]).where
            assert where, (kind.name, place)
            assert not any(_holds(" ".join(row), kind.secret) for row in where)


def test_rules_are_data_with_a_source() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert {rule.source for rule in RULES} <= set(SOURCES)
    assert len(RULES) >= 120


# Patterns that are asked of one value of bounded length, as a whole.
_OF_A_VALUE = {"_CODE", "_PATH", "_WORDS", "_DATE", "_PLAIN", "_TEMPLATE", "_NAMED", "_NOT_P", "_COMMON", "LABEL", "_FLAG", "_ENV", "_TYPE_NAME", "_URL",
               "_LINE", "_SETS", "_LAST"}  # fmt: skip


def _patterns(module: ModuleType) -> list[tuple[str, re.Pattern[str]]]:
    found = [(name, value) for name, value in vars(module).items() if isinstance(value, re.Pattern)]
    if module is tokens:
        found += [(rule.id, pattern) for pairs in tokens._BY_BEGIN.values() for rule, pattern in pairs]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_repetitions_are_bounded(module: ModuleType) -> None:
    """By this the time is linear: a pattern that is tried at a place reads a bounded number of characters, or never goes back."""
    unbounded = re.compile(r"(?<!\\)(?:[*+](?![+])|\{\d+,\}(?![+]))")
    for name, pattern in _patterns(module):
        if name in _OF_A_VALUE:
            continue
        plain = re.sub(r"\\.", "", pattern.pattern)
        plain = re.sub(r"\[\^?\]?[^\]]*\]", "C", plain)
        plain = re.sub(r"(?:[*+]|\{\d*,?\d*\})\+", "", plain)
        assert not unbounded.search(plain), (module.__name__, name, pattern.pattern)
