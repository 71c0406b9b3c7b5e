"""plugin_name keeps the contract of a reward, and pays what was computed by hand."""

import math

from counterpoint.app.templates.reward import plugin_name
from counterpoint.testing import check_reward
from counterpoint.trace.example import rollouts


def test_it_keeps_the_contract() -> None:
    check_reward(plugin_name)


def test_a_payment_by_hand() -> None:
    paid = {signal.unit_id: signal.value for signal in plugin_name(rollouts()[0], price=0.5)}
    assert math.isclose(paid["w2"], -0.5 * (4 + 4))  # one message and one return, four tokens each
