"""The search language is read alike by the server and by the page (`web/tests/search.test.ts` reads the same cases)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from counterpoint.app.search import EVENT_FIELDS, EVENT_FLAGS, terms
from counterpoint.errors import InputError

CASES = json.loads((Path(__file__).parent / "query_terms.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["query"])
def test_a_query_is_read_as_the_table_says(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(InputError, match=case["error"]):
            terms(case["query"], EVENT_FIELDS, EVENT_FLAGS)
    else:
        assert [list(term) for term in terms(case["query"], EVENT_FIELDS, EVENT_FLAGS)] == case["terms"]
