"""Each agent's share of the team reward: the best answer that one trace can give alone, for a picture.

Always true: what is shown adds up: agents plus `unassigned` are the team reward. The ledger where drafts are scored, else even
shares, which judge nobody; a trace without a team reward has no answer. The name of the mechanism goes with the numbers.
"""

from __future__ import annotations

import math

import counterpoint.registry as registry
from counterpoint.credit.mechanism import team_reward
from counterpoint.errors import CounterpointError
from counterpoint.trace import Trace
from counterpoint.trace.rows import Shares

_METHODS = ("ledger", "uniform")


def agent_shares(trace: Trace) -> Shares | None:
    """Each agent's share of the team reward, or None where the trace has none or nobody acts."""
    if "team" not in trace.rewards:
        return None
    for method in _METHODS:
        try:
            agents = registry.get("credit", method)([trace], unit="agent").of(0, "agent")
            reward = team_reward(trace, "team")
        except CounterpointError:  # not identified from this trace alone: the next one asks for less
            continue
        if agents:
            return Shares(method, reward, agents, reward - math.fsum(agents.values()))
    return None
