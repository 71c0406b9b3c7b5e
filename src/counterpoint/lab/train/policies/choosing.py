"""How the further choices of a round are made (`choices.py`): from their heads, or as they were made before.

Always true: what is here is a part of `TeamPolicy`, which is given as `policy`: its noise, its record, and what it follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from counterpoint.lab.train.policies import choices
from counterpoint.lab.worlds.teamworld.action import Calls
from counterpoint.lab.worlds.teamworld.observation import Observation


def choose_column(logp: np.ndarray, u: np.ndarray | None) -> np.ndarray:
    """One column per row: by the uniform numbers, or the likeliest."""
    if u is None:
        return logp.argmax(axis=-1)
    return np.minimum(np.add.reduce(np.exp(logp).cumsum(axis=-1) < u[..., None], axis=-1), logp.shape[-1] - 1)


def _choose(
    policy: Any, obs: Observation, name: str, rows: tuple[np.ndarray, np.ndarray], u: np.ndarray | None, told: np.ndarray | None,
    **columns: Any,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(what is chosen, its log-probability) from a head of `choices.py`; `told` was chosen before."""
    x, mask = rows
    logp = policy.net.options(name, torch.from_numpy(x), torch.from_numpy(mask)).numpy().astype(np.float64)
    choice = choose_column(logp, u) if told is None else told
    own = np.take_along_axis(logp, choice[:, None], axis=1)[:, 0]
    if policy.record is not None and len(choice):
        policy.record.add(name, round=obs.round, x=x, mask=mask, choice=choice, logp=own, **columns)
    return choice, own


def choose_acts(policy: Any, obs: Observation, calls: Calls, logp: np.ndarray) -> None:
    """What workers do with their questions (O3 where that is how they talk to each other), written into the calls."""
    at = choices.of_questions(obs, calls) if "act" in policy.net.extra and len(calls) else np.zeros(0, np.int64)
    if not len(at):
        return
    c, told = calls.where(at), None
    if policy.now is not None:
        t = policy.now.extra.get("act", {})
        keys = zip(*(t[n].tolist() for n in ("ep", "item", "agent")), strict=True) if t else ()
        before = dict(zip(keys, t["choice"].tolist() if t else (), strict=True))
        told = np.array([before.get(key, 0) for key in zip(c.ep.tolist(), c.item.tolist(), c.agent.tolist(), strict=True)])
    u = policy.noise(obs, "communicate", 1, np.arange(obs.config.items)[None])
    u = None if u is None else u[c.ep, c.item]
    act, own = _choose(policy, obs, "act", choices.act_rows(obs, c), u, told, ep=c.ep, item=c.item, agent=c.agent)
    calls.act = np.zeros(len(calls), np.int64)
    calls.act[at] = act
    logp[:, 3] += np.bincount(c.ep, own, obs.episodes)


def choose_beside(policy: Any, obs: Observation, team: np.ndarray) -> dict[str, Any]:
    """What the second side and the proposer do, as parts of the action; no part of the team's log-probabilities."""
    out: dict[str, np.ndarray] = {}
    for name, place in (("attack", "aggregate"), ("proposal", "spawn")):
        if name not in policy.net.extra or (name == "proposal" and obs.round > 0):
            continue
        x, mask = choices.attack_rows(obs, team) if name == "attack" else choices.proposal_rows(obs)
        ep, told, u = np.flatnonzero(obs.running), None, policy.noise(obs, place, 4)
        if policy.now is not None:
            told = np.zeros(obs.episodes, np.int64)
            t = policy.now.extra.get(name, {})
            if t:
                told[t["ep"]] = t["choice"]
        rows = x[ep], mask[ep]
        some = _choose(policy, obs, name, rows, None if u is None else u[ep], None if told is None else told[ep], ep=ep)[0]
        chosen = np.zeros(obs.episodes, np.int64)
        chosen[ep] = some
        out[name] = chosen if name == "attack" else np.stack(np.divmod(chosen, choices.DIALS), axis=1)
    return out
