"""plugin_name keeps the contract of a credit mechanism, and gives a number that was computed by hand."""

import math

from counterpoint.app.templates.credit import plugin_name
from counterpoint.testing import check_credit
from counterpoint.trace.example import rollouts


def test_it_keeps_the_contract() -> None:
    check_credit(plugin_name)


def test_a_share_by_hand() -> None:
    first = rollouts()[0]  # its reward is 1; the lead wrote 2 + 6 + 2 + 6 + 2 tokens, the workers 11, 8 and 8
    assert math.isclose(plugin_name(first).of(0)["lead"], 18 / 45)
