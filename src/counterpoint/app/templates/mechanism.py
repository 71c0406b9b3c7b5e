"""plugin_name: the team reward, shared by the tokens that each agent wrote.

    c_a = R tokens_a / sum over agents of tokens

Always true: the rows of a trace sum to its team reward; a trace in which nobody wrote a token has no answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.errors import NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, CreditRow

_ESTIMAND = "the team reward times the agent's share of the tokens written"


def _run(traces: Sequence[Trace], *, channel: str = "team") -> Credit:
    rewards = [team_reward(trace, channel) for trace in traces]
    rows: list[CreditRow] = []
    for i, trace in enumerate(traces):
        written: Counter[str] = Counter()
        for event in trace.events:
            written[event.agent] += event.tokens_out or 0
        if not written.total():
            raise NotIdentified("no event has output tokens", "record tokens_out", where=trace.trace_id)
        rows += [CreditRow(i, "agent", agent, rewards[i] * n / written.total()) for agent, n in written.items()]
    trace_ids = tuple(trace.trace_id for trace in traces)
    return Credit("plugin_name", _ESTIMAND, True, trace_ids, tuple(rows), declared=np.array(rewards))


plugin_name = Mechanism(
    unit="agent",
    estimand=_ESTIMAND,
    assumptions="who writes more does more",
    cost="nothing",
    additive=True,
    source="an example of how a mechanism is written",
    run=_run,
    example=lambda: Example(rollouts()),
)


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a credit mechanism, and gives a number that was computed by hand."""

import math

# from here import plugin_name
from counterpoint.testing import check_mechanism
from counterpoint.trace.example import rollouts


def test_it_keeps_the_contract() -> None:
    check_mechanism(plugin_name)


def test_a_share_by_hand() -> None:
    first = rollouts()[0]  # its reward is 1; the lead wrote 2 + 6 + 2 + 6 + 2 tokens, the workers 11, 8 and 8
    assert math.isclose(plugin_name(first).of(0)["lead"], 18 / 45)
