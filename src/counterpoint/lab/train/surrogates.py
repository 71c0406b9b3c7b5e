"""What a policy step of a network descends, row by row, and the options of such steps.

    clip, mask one loss per row (`objectives.py`);   + tau (log rho)^2                                               (PARL)
    level      rho of a turn or sequence = exp(mean over its rows of log rho); one advantage, the mean of its rows   (ReMA, GSPO)
    KL         k2 or k3 of pi against the reference network, as a term of the loss, or k1 to go taken off the advantages

Always true: with the defaults nothing here is asked for, and a step is PPO's of each decision. The batch is cut into `PARTS` by
episode, one step each, and the gradient's norm is at most `MAX_NORM`.

PPO arXiv 1707.06347, dual clip 1912.09729, PARL (Kimi K2.5) 2602.02276, ReMA 2503.09501, GSPO 2507.18071, CoMAS 2510.08529.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.credits.advantages import reward_to_go
from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.train.objectives import ESTIMATORS, check_kl, clip_loss, mask_loss, unit_means
from counterpoint.lab.train.policies.network import Network
from counterpoint.options import AboveOne, NonNegative, Positive, PositiveInt, PositiveOrInfinite

LEVELS = ("decision", "turn", "sequence", "none")
WEIGHTS = ("type", "row", "rollout", "agent")
PLACES = ("loss", "reward")
PARTS = 3
MAX_NORM = 0.5
_ROUNDS, _AGENTS = 100_000, 10_000


@dataclass(frozen=True)
class Steps:
    """How policy steps are made."""

    epochs: PositiveInt = 4
    """Passes over the batch."""
    clip: Positive = 0.2
    """Ratios are clipped at 1 - clip and 1 + clip_high."""
    clip_high: Positive | None = None
    """None: the same as `clip`."""
    dual: AboveOne | None = None
    """Bound of the loss where the advantage is negative (dual clip); None: none."""
    entropy: NonNegative = 0.005
    """Weight of the entropy bonus at the start; it falls to 0."""
    scale: bool = True
    """Divide advantages by their spread within a decision type and kind of item."""
    level: str = "decision"
    """What has one ratio: a `decision`, a `turn` (what an agent decided in a round), or a `sequence` (all that it decided);
    `none`: there is no ratio, and -A log pi is descended (REINFORCE)."""
    log_max: PositiveOrInfinite = 10.0
    """Log ratios are held at this from above."""
    weigh: str = "type"
    """The mean is over the rows of each decision `type`, then types are summed; or over all rows (`row`); or over the rows of
    each episode, then over episodes (`rollout`); or over those of each agent, then over the agents of an episode, then over
    episodes (`agent`). A turn or a sequence that has one ratio is one row."""
    mask_low: float | None = None
    """PARL's mask: rows whose log ratio is below this have no policy gradient; None with `mask_high` None: clipping."""
    mask_high: float | None = None
    """And above this."""
    pull: NonNegative = 0.0
    """tau of tau (log rho)^2."""
    kl: str = "k3"
    """Estimator of the KL to the reference, which is the network at the start."""
    kl_weight: NonNegative = 0.0
    """Weight of that KL; 0: no reference is kept."""
    kl_in: str = "loss"
    """Where it counts: in the `loss`, or in the `reward` (k1 of the agent's decisions from here on, off the advantage)."""
    kl_most: NonNegative | None = None
    """A part whose KL from the policy that played is above this makes no step (MARFT); None: every part does."""
    veto: NonNegative | None = None
    """Turns or sequences in which any decision's ratio is below this do not count; None: all do."""

    def __post_init__(self) -> None:
        for name, known in (("level", LEVELS), ("weigh", WEIGHTS), ("kl", ESTIMATORS), ("kl_in", PLACES)):
            if getattr(self, name) not in known:
                raise InputError(f"option {name} is {getattr(self, name)!r}", fix=did_you_mean(getattr(self, name), known))
        check_kl(self.kl, self.kl_in, self.kl_weight)

    @property
    def is_joint(self) -> bool:
        """Whether several decisions have one ratio."""
        return self.level in ("turn", "sequence")

    @property
    def is_plain(self) -> bool:
        """Whether a step is PPO's: one ratio per decision, means by decision type, no reference."""
        return not self.is_joint and self.weigh == "type" and not (self.kl_weight and self.kl_in == "loss")


def surrogate(log_ratio: Tensor, advantage: Tensor, o: Steps) -> Tensor:
    """What is descended, one entry per row (or turn, or sequence); without a ratio up to a constant, A times the old log pi."""
    if o.level == "none":
        return -advantage * log_ratio
    if o.mask_low is not None or o.mask_high is not None:
        low, high = (-10.0 if o.mask_low is None else o.mask_low), (10.0 if o.mask_high is None else o.mask_high)
        out = mask_loss(log_ratio, advantage, low=low, high=high)
    else:
        high = o.clip if o.clip_high is None else o.clip_high
        out = clip_loss(log_ratio.clamp(-10, o.log_max), advantage, low=o.clip, high=high, dual=o.dual)
    return out + o.pull * log_ratio**2 if o.pull else out


def unit_codes(ep: np.ndarray, now: np.ndarray, who: np.ndarray | int, level: str) -> np.ndarray:
    """The turn or sequence of each row, as one number; an agent has its own."""
    return (ep.astype(np.int64) * _ROUNDS + (now if level == "turn" else 0)) * _AGENTS + who


def joined_loss(
    log_ratio: Tensor, advantage: Tensor, ep: np.ndarray, unit: np.ndarray, o: Steps, who: np.ndarray | None = None
) -> Tensor:
    """The loss of rows of all decision types together: per unit where the level is above decisions, then means as `weigh` says.

    Units of an episode count equally, and episodes (turns: ReMA); sequences count equally (GSPO). `who` decided a row, for
    `weigh` "agent": a row weighs 1 / (rows of its agent x agents of its episode x episodes) (WideSeek-R1).
    """
    if not o.is_joint:
        own = surrogate(log_ratio, advantage, o)
        if o.weigh == "agent":
            return (own * _per_agent(ep, np.zeros_like(ep) if who is None else who)).sum()
        return own.mean() if o.weigh == "row" else (own * _per_episode(ep)).sum()
    names, first, code = np.unique(unit, return_index=True, return_inverse=True)
    at = torch.from_numpy(code)
    own = surrogate(unit_means(log_ratio, at, len(names)), unit_means(advantage, at, len(names)), o)
    if o.veto is not None:
        least = torch.full((len(names),), torch.inf).scatter_reduce(0, at, log_ratio.detach(), "amin")
        own = torch.where(least < float(np.log(o.veto)), 0.0, own)
    return own.mean() if o.level == "sequence" else (own * _per_episode(ep[first])).sum()


def _per_episode(ep: np.ndarray) -> Tensor:
    """(rows,) weights that give every episode the same, and its rows equal parts of it."""
    code = np.unique(ep, return_inverse=True)[1]
    count = np.bincount(code)
    return torch.from_numpy((1 / (count[code] * len(count))).astype(np.float32))


def _per_agent(ep: np.ndarray, who: np.ndarray) -> Tensor:
    """(rows,) weights that give every episode the same, its agents equal parts of it, and their rows equal parts of those."""
    seats, code = np.unique(np.stack([ep, who]), axis=1, return_inverse=True)
    code, episode = code.reshape(-1), np.unique(seats[0], return_inverse=True)[1]
    agents, rows = np.bincount(episode)[episode][code], np.bincount(code)[code]
    return torch.from_numpy((1 / (rows * agents * (episode.max(initial=-1) + 1))).astype(np.float32))


class Reference(nn.Module):
    """The network as it was when it was first asked for: what a KL is taken to. It is kept in checkpoints and never learns."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, Tensor] = {}

    def network(self, net: Network, *, anew: bool = False) -> Network:
        """The held network; the first time, or `anew`, it is a copy of the one given."""
        if anew or not self.held:
            self.held = {k: v.detach().clone() for k, v in net.state_dict().items()}
        return Network.of(self.held, apart=net.is_apart)

    def get_extra_state(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return dict(self.held)

    def set_extra_state(self, state: Any) -> None:
        """From a checkpoint."""
        self.held = dict(state)


def less_kl(
    advantages: Mapping[str, np.ndarray], places: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
    logp: Mapping[str, np.ndarray], ref: Mapping[str, np.ndarray], weight: float,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Advantages less weight * (sum over the agent's decisions from this round on of log pi / ref), CoMAS' form.

    `places`: for each decision type, (episode, round, agent) of its rows.
    """
    rounds: dict[str, np.ndarray] = {}
    cost: dict[int, float] = {}
    for name, (ep, now, who) in places.items():
        codes = unit_codes(ep, now, who, "turn")
        own = logp[name] - ref[name]
        for code, k1 in zip(codes.tolist(), own.reshape(len(codes), -1).sum(axis=1).tolist(), strict=True):
            cost[code] = cost.get(code, 0.0) + k1
    order = sorted(cost, key=lambda c: (c // _AGENTS // _ROUNDS, c % _AGENTS, c // _AGENTS % _ROUNDS))
    chain = [(c // _AGENTS // _ROUNDS) * _AGENTS + c % _AGENTS for c in order]
    to_go = dict(zip(order, reward_to_go([cost[c] for c in order], segments=chain).tolist(), strict=True)) if order else {}
    for name, (ep, now, who) in places.items():
        rounds[name] = np.array([to_go[c] for c in unit_codes(ep, now, who, "turn").tolist()])
    return {name: a - weight * rounds[name] if name in rounds else a for name, a in advantages.items()}
