"""plugin_name: every agent pays for the tokens that it wrote.

    r_a = -price tokens_a

Always true: one row of unit agent for every agent that wrote a token; an agent that wrote none has no row, which is not 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from counterpoint.rewards.reward import Reward
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal


def _score(trace: Trace, *, price: float = 0.001) -> Iterator[Signal]:
    written: Counter[str] = Counter()
    for event in trace.events:
        written[event.agent] += event.tokens_out or 0
    for agent, tokens in written.items():
        if tokens:
            yield Signal("agent", agent, "R2", -price * tokens)


plugin_name = Reward(
    family="R2",
    unit="agent",
    source="an example of how a reward is written",
    score=_score,
    example=lambda: Example(rollouts(), {"price": 0.01}),
)


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a reward, and pays what was computed by hand."""

import math

# from here import plugin_name
from counterpoint.testing import check_reward
from counterpoint.trace.example import rollouts


def test_it_keeps_the_contract() -> None:
    check_reward(plugin_name)


def test_a_payment_by_hand() -> None:
    paid = {signal.unit_id: signal.value for signal in plugin_name(rollouts()[0], price=0.5)}
    assert math.isclose(paid["w2"], -0.5 * (4 + 4))  # one message and one return, four tokens each
