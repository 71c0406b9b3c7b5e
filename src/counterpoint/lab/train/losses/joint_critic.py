"""One critic of the team's state and all its acts, for actors that ascend it and for counterfactuals.

    critic   Q_i(x, a_1..a_n) -> y = r + gamma (1 - done) Q_i'(x', a'),  a' of the target policy;   TD(lambda) with `lam`
    ascend   head i descends  -Q_i(x, a_1, .., pi_i(x), .., a_n) + penalty * logits^2                            (MADDPG)
    coma     A(decision) = Q(x, a) - sum_b pi(b) Q(x, a with b in this decision's place);  -A log pi             (COMA)
    shapley  phi_i = mean over orders of psi(x, acts of i and of those before it, i);  sum_i phi_i -> y;  head i descends -phi_i
             with its own acts relaxed                                                                             (SQDDPG)

Always true: the n agents are the five sub-decisions, as in `td`; an act is the mean over what the head decided in the round of
one-hot choices (of the batch) or of probabilities (relaxed: what gradients flow through). Whom a call goes to enters as the
features of that agent. Target networks follow by `polyak` after every step of the critic and are kept in checkpoints.

MADDPG arXiv 1706.02275 (gamma 0.95, polyak 0.01, penalty 1e-3), COMA arXiv 1705.08926 (lambda 0.8), SQDDPG arXiv 1907.05707,
all read as code. Departures: the batch just played takes the place of the replay buffer; probabilities, not Gumbel samples,
are ascended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from counterpoint.credits.advantages import td_lambda
from counterpoint.credits.mechanisms.coma import counterfactual_advantages
from counterpoint.credits.mechanisms.shapley_q import drawn_orders
from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.train.learner import finite, update
from counterpoint.lab.train.loss import Learner, Loss
from counterpoint.lab.train.losses.td import Beats, beats_of
from counterpoint.lab.train.policies.features import AGENT, PAIR, TEAM
from counterpoint.lab.train.policies.network import HEADS, PURPOSES, Network
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.surrogates import MAX_NORM, Reference, Steps
from counterpoint.lab.worlds.teamworld.config import RULES
from counterpoint.options import NonNegative, NonNegativeInt, PositiveInt, Share
from counterpoint.trace import Trace

Table = Mapping[str, np.ndarray]
_ENTROPY = 0.005  # weight of the entropy bonus (`coma`) at the start; it falls to 0
_ACTORS = ("ascend", "coma", "shapley")
_WIDTHS = {"stop": 1, "spawn": 2, "delegate": len(PURPOSES) + AGENT + PAIR, "communicate": 4 + 2, "aggregate": len(RULES)}
_STARTS = dict(zip(HEADS, np.cumsum([0, *(_WIDTHS[h] for h in HEADS)]).tolist(), strict=False))
ACTS = sum(_WIDTHS.values())


@dataclass(frozen=True)
class Options:
    """How critic and actors learn."""

    actor: str = "ascend"
    """`ascend`, `coma` or `shapley`."""
    gamma: Share = 0.95
    """Per round."""
    lam: Share = 0.0
    """Of the critic's TD(lambda) targets: 0 is one step."""
    polyak: Share = 0.01
    """Share of the network that its target takes over after every step."""
    penalty: NonNegative = 1e-3
    """On squared logits, where actors ascend the critic."""
    orders: PositiveInt = 4
    """Sampled orders per update (`shapley`)."""
    warm: NonNegativeInt = 0
    """Updates in which the critic learns and actors wait."""
    epochs: PositiveInt = 24
    """Steps of the critic on the batch; actors that ascend it make half as many."""

    def __post_init__(self) -> None:
        if self.actor not in _ACTORS:
            raise InputError(f"option actor is {self.actor!r}", fix=did_you_mean(self.actor, _ACTORS))


class JointCritic(nn.Module):
    """Q_i of all heads, or marginals psi; with target networks of itself and of the policy."""

    unit: Tensor

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.net, self.target = (_critic(hidden) for _ in range(2))
        self.target.load_state_dict(self.net.state_dict())
        self.first = nn.Parameter(torch.zeros(TEAM))  # the state before anybody is there
        self.register_buffer("unit", torch.ones(()))  # spread of returns per item
        self.policy = Reference()

    def values(self, x: Tensor, acts: Tensor, present: Tensor | None = None, *, target: bool = False) -> Tensor:
        """(B, heads) of states and acts; where a head is not `present`, its acts are left out (`shapley`)."""
        mask = torch.ones(len(acts), len(HEADS)) if present is None else present
        wide = torch.repeat_interleave(mask, torch.tensor([_WIDTHS[h] for h in HEADS]), dim=1)
        out: Tensor = (self.target if target else self.net)(torch.cat([x, acts * wide, mask], dim=1))
        return out

    def states(self, beats: Beats) -> Tensor:
        """(B, TEAM) the team's features; one learned row where none were recorded."""
        return torch.where(torch.from_numpy(beats.seen)[:, None], torch.from_numpy(beats.x), self.first)

    @torch.no_grad()
    def follow(self, share: float) -> None:
        """The target critic takes over a share of the critic."""
        for then, now in zip(self.target.parameters(), self.net.parameters(), strict=True):
            then.lerp_(now, share)

    @torch.no_grad()
    def follow_policy(self, net: Network, share: float) -> None:
        """And the target policy of the policy."""
        if not self.policy.held:
            self.policy.network(net)
        for name, now in net.state_dict().items():
            self.policy.held[name].lerp_(now, share)


def _critic(hidden: int) -> nn.Sequential:
    last = nn.Linear(hidden, len(HEADS))
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    sizes = TEAM + ACTS + len(HEADS)
    return nn.Sequential(nn.Linear(sizes, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), last)


class Acts:
    """What every head did in every round, as a mean of vectors: of choices, or of the policy's probabilities.

    `rows` keeps, by decision type, where a single decision stands in it: (beat, first column, weight of one row).
    """

    def __init__(self, out: Rollout, beats: Beats) -> None:
        self._out, self._beats, self._rounds = out, beats, len(out.value_TE)
        self.rows: dict[str, tuple[np.ndarray, int, np.ndarray]] = {}
        self.logits: list[Tensor] = []

    def _add(self, total: Tensor, name: str, t: Table, column: int, vectors: Tensor, rows: np.ndarray | None = None) -> Tensor:
        """The mean of the vectors over the rows of each beat, at their columns."""
        own = t if rows is None else {"ep": t["ep"][rows], "round": t["round"][rows]}
        at = self._beats.place(own, self._rounds)
        share = (1 / np.bincount(at, minlength=len(self._beats.ep))[at]).astype(np.float32)
        self.rows[name] = (at, column, share)
        wide = F.pad(vectors * torch.from_numpy(share)[:, None], (column, ACTS - column - vectors.shape[1]))
        return total.index_add(0, torch.from_numpy(at), wide)

    def matrix(self, net: Network, *, relaxed: bool) -> Tensor:
        """(B, ACTS) of all heads."""
        tables, total = self._out.tables, torch.zeros(len(self._beats.ep), ACTS)
        self.logits = []
        if "stop" in tables:
            t = tables["stop"]
            logit = net.teams(torch.from_numpy(t["x"]))[0]
            total = self._add(total, "stop", t, _STARTS["stop"], self._yes(logit, t["choice"], relaxed)[:, None])
        if "spawn" in tables:
            t = tables["spawn"]
            gate, size = net.roles(torch.from_numpy(t["x"]))
            go = self._yes(gate, t["choice"], relaxed)
            wish = size if relaxed else torch.from_numpy(t["size"].astype(np.float32))
            total = self._add(total, "spawn", t, _STARTS["spawn"], torch.stack([go, go * wish], dim=1))
        if "rule" in tables:
            t, start = tables["rule"], _STARTS["communicate"] + 4
            _, rule, talk = net.teams(torch.from_numpy(t["x"]))
            total = self._add(total, "rule", t, _STARTS["aggregate"], self._one(rule, t["choice"], relaxed))
            total = self._add(total, "talk", t, start, self._yes(talk, t["talk"], relaxed))
        return self._items(net, total, relaxed=relaxed) if "item" in tables else total

    def _items(self, net: Network, total: Tensor, *, relaxed: bool) -> Tensor:
        t, candidates = self._out.tables["item"], self._out.tables.get("candidate")
        purpose, brief, query = net.items(torch.from_numpy(t["x"]))
        masked = purpose.masked_fill(~torch.from_numpy(t["mask"]), -1e9)
        self.logits.append(purpose)
        total = self._add(total, "item", t, _STARTS["delegate"], _one_of(masked, t["choice"], relaxed))
        told = np.flatnonzero(t["agent"] > 0)
        if len(told):
            total = self._add(
                total, "brief", t, _STARTS["communicate"], self._one(brief[told], t["brief"][told], relaxed), told
            )  # fmt: skip
        if candidates is not None and len(candidates["row"]):
            chance, about = pointer(net, query, candidates, relaxed=relaxed)
            row = torch.from_numpy(candidates["row"])
            some = np.unique(candidates["row"])
            mixed = torch.zeros(len(t["ep"]), AGENT + PAIR).index_add(0, row, chance[:, None] * about)
            total = self._add(total, "point", t, _STARTS["delegate"] + len(PURPOSES), mixed[some], some)
        return total

    def _yes(self, logit: Tensor, choice: np.ndarray, relaxed: bool) -> Tensor:
        self.logits.append(logit)
        return torch.sigmoid(logit) if relaxed else torch.from_numpy(choice.astype(np.float32))

    def _one(self, logits: Tensor, choice: np.ndarray, relaxed: bool) -> Tensor:
        self.logits.append(logits)
        return _one_of(logits, choice, relaxed)

    def squared_logits(self) -> Tensor:
        """The mean square of all logits of the last `matrix`."""
        return torch.cat([x.reshape(-1) for x in self.logits]).square().mean()


def _one_of(logits: Tensor, choice: np.ndarray, relaxed: bool) -> Tensor:
    return logits.softmax(-1) if relaxed else F.one_hot(torch.from_numpy(choice), logits.shape[-1]).float()


def pointer(net: Network, query: Tensor, candidates: Table, *, relaxed: bool) -> tuple[Tensor, Tensor]:
    """(chance of each candidate, or 1 for the one picked; its features)."""
    row, agent_x = torch.from_numpy(candidates["row"]), torch.from_numpy(candidates["agent_x"])
    pair_x = torch.from_numpy(candidates["pair_x"])
    about = torch.cat([agent_x, pair_x], dim=1)
    if not relaxed:
        return torch.from_numpy(candidates["picked"].astype(np.float32)), about
    score = (query.index_select(0, row) * net.key(agent_x)).sum(-1) + net.pair(pair_x)[:, 0]
    top = torch.full((len(query),), -torch.inf).scatter_reduce(0, row, score.detach(), "amax")
    weight = torch.exp(score - top[row])
    return weight / torch.zeros(len(query)).index_add(0, row, weight)[row], about


# -- critic


def targets(critic: JointCritic, out: Rollout, beats: Beats, taken: Tensor, ahead: Tensor, o: Options) -> Tensor:
    """(B, heads) what Q_i (or, in their sum, the marginals) should say."""
    _measure(critic, out)
    reward = beats.reward / out.config.items / float(critic.unit)
    with torch.no_grad():
        x = critic.states(beats)
        acts = taken if o.actor == "coma" else ahead  # COMA's critic is of the policy that played
        if o.actor == "shapley":
            q = _marginals(critic, x, acts, _orders(np.random.default_rng(0), o), target=True).sum(1, keepdim=True)
        else:
            q = critic.values(x, acts, target=True)
    later = np.where(beats.last[:, None], 0.0, np.append(q.numpy()[1:], np.zeros_like(q.numpy()[:1]), axis=0))
    columns = [
        td_lambda(reward, later[:, i].astype(np.float64), gamma=o.gamma, lam=o.lam, done=beats.last, segments=beats.ep)
        for i in range(later.shape[1])
    ]
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.float32))


def _measure(critic: JointCritic, out: Rollout, share: float = 0.2) -> None:
    """Keep the spread of returns per item, as a running mean."""
    spread = max(float(((out.values - out.value_TE[0]) / out.config.items).std()), 1e-3)
    old = float(critic.unit)
    critic.unit.copy_(torch.tensor(spread if old == 1.0 else (1 - share) * old + share * spread))


def _orders(rng: np.random.Generator, o: Options) -> np.ndarray:
    return drawn_orders(len(HEADS), o.orders, rng)


def _marginals(
    critic: JointCritic, x: Tensor, acts: Tensor, orders: np.ndarray, *, target: bool = False, only: int | None = None
) -> Tensor:  # fmt: skip
    """(B, heads) phi: means over orders of the marginal of a head after those before it; with `only`, (B, 1) of one head."""
    columns = []
    for head in range(len(HEADS)) if only is None else [only]:
        found = torch.zeros(len(acts))
        for order in orders:
            present = torch.zeros(len(HEADS))
            present[order[: int(np.flatnonzero(order == head)[0]) + 1]] = 1
            found = found + critic.values(x, acts, present.expand(len(acts), -1), target=target)[:, head] / len(orders)
        columns.append(found)
    return torch.stack(columns, dim=1)


def _fit(learner: Learner, o: Options, critic: JointCritic, beats: Beats, taken: Tensor, y: Tensor) -> float:
    orders = _orders(learner.rng(7), o)
    for _ in range(o.epochs):
        x = critic.states(beats)
        if o.actor == "shapley":
            loss = F.mse_loss(_marginals(critic, x, taken, orders).sum(1), y[:, 0])
        else:
            loss = F.mse_loss(critic.values(x, taken), y)
        learner.policy.zero_grad()
        finite(loss, "joint critic's").backward()
        torch.nn.utils.clip_grad_norm_(critic.parameters(), 10.0)
        learner.policy.step()
        critic.follow(o.polyak)
    return float(loss.detach())


# -- actors


def _own(taken: Tensor, relaxed: Tensor, head: str) -> Tensor:
    """The acts of the batch, the policy's own in the place of one head's."""
    start, wide = _STARTS[head], _WIDTHS[head]
    return torch.cat([taken[:, :start], relaxed[:, start : start + wide], taken[:, start + wide :]], dim=1)


def _ascend(learner: Learner, o: Options, critic: JointCritic, out: Rollout, beats: Beats, taken: Tensor) -> float:
    acts, orders = Acts(out, beats), _orders(learner.rng(8), o)
    for _ in range(o.epochs // 2):
        relaxed, x = acts.matrix(learner.net, relaxed=True), critic.states(beats).detach()
        values = []
        for i, head in enumerate(HEADS):
            mine = _own(taken, relaxed, head)
            if o.actor == "shapley":
                values.append(_marginals(critic, x, mine, orders, only=i).mean())
            else:
                values.append(critic.values(x, mine)[:, i].mean())
        loss = -torch.stack(values).sum() + o.penalty * acts.squared_logits()
        learner.policy.zero_grad()
        finite(loss, "actors'").backward()
        for p in critic.parameters():
            p.grad = None  # the critic is ascended, not moved
        torch.nn.utils.clip_grad_norm_(learner.net.policy_parameters(), MAX_NORM)
        learner.policy.step()
        critic.follow_policy(learner.net, o.polyak)
    return float(loss.detach())


def coma_advantages(net: Network, critic: JointCritic, out: Rollout, beats: Beats) -> dict[str, np.ndarray]:
    """Advantages of every decision against what the policy would have done in its place, all else as it was."""
    acts = Acts(out, beats)
    with torch.no_grad():
        taken, x = acts.matrix(net, relaxed=False), critic.states(beats)
        logits = _logits(net, out.tables)
        found: dict[str, np.ndarray] = {}
        for name, (at, column, share) in acts.rows.items():
            if name == "point":
                continue
            t = out.tables["item" if name == "brief" else "rule" if name == "talk" else name]
            rows = np.flatnonzero(t["agent"] > 0) if name == "brief" else np.arange(len(t["ep"]))
            choice = t["talk"] if name == "talk" else t["brief" if name == "brief" else "choice"]
            place = (torch.from_numpy(at), column, torch.from_numpy(share))
            chosen = choice[rows].reshape(len(rows), -1)
            own = [
                _counterfactual(critic, x, taken, place, k, part, chosen[:, k]) for k, part in enumerate(logits[name])
            ]  # fmt: skip
            found[name] = np.zeros(len(t["ep"])) if name == "brief" else np.mean(own, axis=0)
            if name == "brief":
                found[name][rows] = own[0]
        if "item" in found:
            found["point"] = _pointed(net, critic, out, x, taken, acts)
    return found


def _logits(net: Network, tables: Mapping[str, Table]) -> dict[str, list[Tensor]]:
    """Logits of the alternatives of every decision type; talk is two decisions."""
    out: dict[str, list[Tensor]] = {}
    for name in ("stop", "rule"):
        if name in tables:
            stop, rule, talk = net.teams(torch.from_numpy(tables[name]["x"]))
            talks = [_binary(talk[:, k]) for k in (0, 1)]
            out |= {"stop": [_binary(stop)]} if name == "stop" else {"rule": [rule], "talk": talks}
    if "spawn" in tables:
        out["spawn"] = [_binary(net.roles(torch.from_numpy(tables["spawn"]["x"]))[0])]
    if "item" in tables:
        t = tables["item"]
        purpose, brief, _ = net.items(torch.from_numpy(t["x"]))
        out["item"] = [purpose.masked_fill(~torch.from_numpy(t["mask"]), -1e9)]
        out["brief"] = [brief[np.flatnonzero(t["agent"] > 0)]]
    return out


def _binary(logit: Tensor) -> Tensor:
    return torch.stack([torch.zeros_like(logit), logit], dim=-1)


def _counterfactual(
    critic: JointCritic, x: Tensor, taken: Tensor, place: tuple[Tensor, int, Tensor], k: int, logits: Tensor, choice: np.ndarray
) -> np.ndarray:  # fmt: skip
    """(R,) A of one column of a decision type: Q of each alternative with all else as it was, against the policy's mean."""
    at, column, share = place
    base, q = taken[at], []
    is_binary = logits.shape[1] == 2
    chosen = torch.from_numpy(choice.astype(np.int64))
    for option in range(logits.shape[1]):
        other = base.clone()
        if is_binary:
            other[:, column + k] += share * (option - chosen.float())
        else:
            other[torch.arange(len(at)), column + chosen] -= share
            other[:, column + option] += share
        q.append(critic.values(x[at], other)[:, 0])
    advantages = counterfactual_advantages(torch.stack(q, 1).numpy().astype(np.float64), _chances(logits))
    return np.asarray(advantages[np.arange(len(choice)), choice.astype(np.int64)])


def _chances(logits: Tensor) -> np.ndarray:
    p = logits.double().softmax(-1).numpy()
    return np.asarray(p / p.sum(-1, keepdims=True))


def _pointed(net: Network, critic: JointCritic, out: Rollout, x: Tensor, taken: Tensor, acts: Acts) -> np.ndarray:
    """(item rows,) A of whom a call went to, against the other candidates."""
    t, candidates = out.tables["item"], out.tables.get("candidate")
    found = np.zeros(len(t["ep"]))
    if candidates is None or "point" not in acts.rows:
        return found
    chance, about = pointer(net, net.items(torch.from_numpy(t["x"]))[2], candidates, relaxed=True)
    at, column, share = acts.rows["point"]
    some = np.unique(candidates["row"])
    of = np.searchsorted(some, candidates["row"])
    picked = torch.zeros(len(some), about.shape[1]).index_add(
        0, torch.from_numpy(of), about * torch.from_numpy(candidates["picked"].astype(np.float32))[:, None]
    )
    change = (about - picked[torch.from_numpy(of)]) * torch.from_numpy(share[of])[:, None]
    other = taken[torch.from_numpy(at[of])] + F.pad(change, (column, ACTS - column - change.shape[1]))
    q = critic.values(x[torch.from_numpy(at[of])], other)[:, 0].numpy().astype(np.float64)
    p = chance.numpy().astype(np.float64)
    mean = np.bincount(of, p * q, len(some))
    own = np.bincount(of, candidates["picked"] * q, len(some))
    found[some] = own - mean
    return found


def _learn(learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace]) -> dict[str, float]:
    stats = learner.fit_critics(out, keep=1, steps=4)
    critic, beats = learner.module, beats_of(out)
    assert isinstance(critic, JointCritic)
    with torch.no_grad():
        taken = Acts(out, beats).matrix(learner.net, relaxed=False)
        ahead = Acts(out, beats).matrix(critic.policy.network(learner.net), relaxed=True)
    fitted = _fit(learner, o, critic, beats, taken, targets(critic, out, beats, taken, ahead, o))
    if learner.update < o.warm:
        return stats | {"critic_joint": fitted, "loss": 0.0}
    if o.actor != "coma":
        return stats | {"critic_joint": fitted, "loss": _ascend(learner, o, critic, out, beats, taken)}
    advantages = coma_advantages(learner.net, critic, out, beats)
    steps = Steps(epochs=1, entropy=_ENTROPY * (1 - learner.progress))
    told = update(learner.net, learner.policy, out.tables, advantages, len(out.values), steps, learner.rng(1), parts=1)
    return stats | {"critic_joint": fitted} | told


joint_critic = Loss(
    source="MADDPG, arXiv 1706.02275; COMA, arXiv 1705.08926; SQDDPG, arXiv 1907.05707",
    takes=Options,
    sees="round",
    own_credit=("coma", "shapley_q", "uniform"),
    learn=_learn,
    module=JointCritic,
)
