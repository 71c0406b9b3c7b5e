"""Foreign values: what a number, a date or a text is taken for."""

from __future__ import annotations

from typing import Any

import pytest

from counterpoint.formats.importing.values import clean_object, seconds


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("1704101960743156144", 1704101960.743156),  # its first digits are a day of the year 1704
        ("1781524800000000000", 1781524800.0),
        ("1704101960", 1704101960.0),
        (1704101960743, 1704101960.743),
        ("20240101", 1704067200.0),
        ("2024-01-01T00:00:00.5Z", 1704067200.5),
        ("2024-01-01 02:00:00+02:00", 1704067200.0),
        ("2024-01-01T00:00:00.123456789Z", 1704067200.123456),
        ("soon", None),
        ("", None),
        (True, None),
    ],
)
def test_a_moment_of_any_unit(value: Any, wanted: float | None) -> None:
    found = seconds(value)
    assert found == (None if wanted is None else pytest.approx(wanted, abs=1e-6))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (b'{"a": 1}\n', {"a": 1}),
        (b"{}", {}),
        (b"[1]", None),  # no object: whoever wants to know why asks `decode`
        (b'{"a": NaN}', None),
        (b'{"a": "\xff"}', None),
        (b'{"a": 1}{"b": 2}', None),
        (b'{"a": 1', None),
        (b"\xef\xbb\xbf{}", None),
        (b"[" * 100_000, None),
    ],
)
def test_an_object_is_clean_or_none(line: bytes, wanted: dict[str, Any] | None) -> None:
    assert clean_object(line) == wanted
