"""Without TRL the claim about it is refused and says how to get it; with it, tests/lab/trainers runs it."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from counterpoint.errors import InputError, Refused
from counterpoint.lab.bench.claims.under_trl import under_trl


@pytest.mark.skipif(find_spec("trl") is not None, reason="TRL is here")
def test_where_trl_is_not_installed_the_claim_says_so() -> None:
    with pytest.raises(Refused, match=r"learns with TRL, and trl is not installed.*make trainers"):
        next(under_trl(seed=0, seeds=1))


def test_it_needs_a_run() -> None:
    with pytest.raises(InputError, match="seeds is at least 1, not 0"):
        next(under_trl(seed=0, seeds=0))
