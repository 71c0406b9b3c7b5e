"""Further choices that only some worlds have: acts of workers, the attack of a second side, a proposer's dials.

Always true: each is one of a few options, drawn from a head of its own, and recorded row by row like any other decision; a world
without such a choice has no such head, and a network for it is what it always was. A worker sees its family, its own answer, the
draft, and what others said in public; the second side sees what the orchestrator sees, and the proposer sees the world's size.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from counterpoint.lab.train.policies.features import TEAM
from counterpoint.lab.worlds.teamworld.action import Calls
from counterpoint.lab.worlds.teamworld.acts import peers, possible
from counterpoint.lab.worlds.teamworld.config import ACTS, ATTACKS, KINDS, Config
from counterpoint.lab.worlds.teamworld.observation import Observation

ACT, ATTACK, PROPOSAL = 20, TEAM + 3, 3
SIZES = {"act": ACT, "attack": ATTACK, "proposal": PROPOSAL}
"""Numbers that each choice rests on."""
DIALS = 3
OPTION, VALUE = "option", "option_value"
"""Heads of a network for a world with rules of its own, which says how many numbers each reads (`train/options.py`)."""
_VOTE = KINDS.index("vote")


def heads_of(config: Config, *, workers: bool) -> dict[str, int]:
    """The choices of a world, and how many options each has. How workers deliberate is theirs, so that only `workers` who learn
    have that choice; who talks to whom is part of how a team is led (O3)."""
    out = {}
    if config.acts == "communicate" or (config.acts == "deliberate" and workers):
        out["act"] = len(ACTS[config.acts])
    if config.opponent_rounds:
        out["attack"] = 1 + len(ATTACKS)
    if config.proposer:
        out["proposal"] = DIALS**2
    return out


def act_rows(obs: Observation, c: Calls) -> tuple[np.ndarray, np.ndarray]:
    """((R, ACT) what the worker of each call on a question sees, (R, acts) what it can do).

    In words: family (2), specialty, calls taken, no answer yet, agrees with the draft, differs from it; votes for and against its
    answer (the draft's, without one) of its own family and of the other, their margin; confidence or scores for and against;
    calls on the question, how late it is, how many have answered; the board for and against; the size of the team. Where answers
    are not public, votes and confidence are left out.
    """
    seen, at = obs.of("vote"), np.arange(len(c))
    item = c.item - seen.first_item
    known = peers(seen, c.ep, item, c.agent)
    tally, draft = seen.tally[c.ep, item].astype(np.int64), seen.answer[c.ep, item].astype(np.int64)
    mask = possible(obs.config, known, tally.any(axis=(1, 2)), c.agent)
    mine, family = np.where(known.own >= 0, known.own, draft), obs.family[c.ep, c.agent].astype(np.int64)
    x = np.zeros((len(c), ACT), np.float32)
    x[at, family] = 1
    x[:, 2] = obs.type[c.ep, c.agent] == obs.item_type[c.ep, c.item]
    x[:, 3] = np.log1p(obs.taken[c.ep, c.agent]) / 3
    x[:, 4] = known.own < 0
    x[:, 5] = (known.own >= 0) & (known.own == draft)
    x[:, 6] = (known.own >= 0) & (known.own != draft)
    if obs.config.acts == "deliberate":
        for k, f in enumerate((family, 1 - family)):
            x[:, 7 + 2 * k], x[:, 8 + 2 * k] = tally[at, f, mine] / 4, tally[at, f, 1 - mine] / 4
        votes, trust = tally.sum(axis=1), seen.confidence[c.ep, item]
        x[:, 11] = (votes[at, mine] - votes[at, 1 - mine]) / (1.0 + votes.sum(axis=1))
        x[:, 12], x[:, 13] = trust[at, mine] / 4, trust[at, 1 - mine] / 4
    x[:, 14] = obs.calls[c.ep, c.item] / 8
    x[:, 15] = min(obs.round, 40) / 100
    x[:, 16] = (known.answer >= 0).sum(axis=1) / 4
    for k, says in enumerate((mine, 1 - mine)):
        x[:, 17 + k] = (known.board & (known.answer == says[:, None])).sum(axis=1) / 4
    x[:, 19] = 1 / obs.alive[c.ep].sum(axis=1)
    return x, mask


def attack_rows(obs: Observation, team: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """((E, ATTACK) the team's row and how often the second side may still attack, (E, attacks) what it can do)."""
    left = obs.attacks_left
    more = np.stack([left > 0, np.log1p(left) / 2, 1 / (1.0 + left)], axis=1).astype(np.float32)
    mask = np.ones((obs.episodes, 1 + len(ATTACKS)), np.bool_)
    mask[left <= 0, 1:] = False
    return np.concatenate([team, more], axis=1), mask


def proposal_rows(obs: Observation) -> tuple[np.ndarray, np.ndarray]:
    """((E, PROPOSAL) how many questions and judges there are, (E, dials) every setting)."""
    x = np.tile(np.array([1.0, np.log1p(obs.config.vote_items) / 4, obs.config.judges / 3], np.float32), (obs.episodes, 1))
    return x, np.ones((obs.episodes, DIALS**2), np.bool_)


def of_questions(obs: Observation, calls: Calls) -> np.ndarray:
    """Places of the calls of workers on questions."""
    return np.flatnonzero((obs.kind[calls.item] == _VOTE) & (calls.agent != 0))


def item_row(t: Mapping[str, np.ndarray], item: Mapping[str, np.ndarray]) -> np.ndarray:
    """Which item row the call of each row belongs to."""
    called = np.flatnonzero(item["agent"] >= 0)
    sizes = [int(item[n].max(initial=0)) + 1 for n in ("round", "item", "agent")]
    place = lambda a: ((a["ep"] * sizes[0] + a["round"]) * sizes[1] + a["item"]) * sizes[2] + a["agent"]  # noqa: E731
    keys = place(item)[called]
    order = np.argsort(keys)
    return called[order[np.searchsorted(keys[order], place(t))]]
