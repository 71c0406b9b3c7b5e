"""QMIX and VDN over the five sub-decisions: a monotone mix of the heads' utilities is the team's value.

    q_i(a)   = tau * logit_i(a), the mean over what head i decided in the round;   behaviour = softmax(q_i / tau)
    Q_tot    = |w2(s)| . elu(q |W1(s)| + b1(s)) + V(s)      (QMIX; W1, b1, w2, V are networks of the team's features s)
    Q_tot    = sum_i q_i + V(s)                             (VDN)
    target   = r_t + gamma [(1 - lam) max_a Q_tot(s_{t+1}, a) + lam target_{t+1}],  0 after the end;   loss: squared error

Always true: Q_tot never falls when a utility rises, so the best joint choice is the best choice of every head; the rewards r_t
of an episode add up to its return, less what was there at the start. Means over rows make the mix indifferent to how many
items and agents there are. The target network is the network at the start of the update. Nothing here reads a file or a clock.

Sources: QMIX arXiv 1803.11485, VDN 1706.05296, pymarl; Agent Q-Mix arXiv 2604.00344 (temporal differences over orchestration
rounds). Departures: agents are sub-decisions, not workers (the set of workers changes, a mixer's width does not); behaviour is
a softmax whose temperature falls, not epsilon-greedy; the batch just played takes the place of the replay buffer; the number
of agents of a spawn is a Gaussian, whose utility is -z^2/2; VDN has a level V(s) too, because logits have none; no recurrent
network: features hold the past.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from counterpoint.credits.advantages import td_lambda
from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.train.learner import advance, clear, finite
from counterpoint.lab.train.loss import Learner, Loss
from counterpoint.lab.train.policies.features import TEAM
from counterpoint.lab.train.policies.network import HEADS, Network
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.options import NonNegativeInt, Positive, PositiveInt, Share
from counterpoint.trace import Trace

Table = Mapping[str, np.ndarray]
_MAX_NORM = 10.0  # of the gradient
_MIXES = ("qmix", "vdn")


@dataclass(frozen=True)
class Options:
    """How the mix is learned."""

    mix: str = "qmix"
    """`qmix`, or `vdn`: a plain sum."""
    gamma: Share = 0.99
    """Per round."""
    lam: Share = 0.0
    """Of TD(lambda): 0 is one step, as in the paper."""
    tau_from: Positive = 1.0
    """Temperature of the behaviour at the start."""
    tau_to: Positive = 0.2
    """And at the end; it falls geometrically."""
    epochs: PositiveInt = 8
    """Steps on the batch."""
    warm: NonNegativeInt = 0
    """Updates in which only the mix learns, so that utilities need not make up for a level that it does not know yet."""
    each_step: bool = False
    """Whether what the preset's rewards pay is written to every round, as Agent Q-Mix' release does, and not to the last alone;
    for rewards other than the team's return, which is what a round added to it."""
    shaped: bool = False
    """Whether such rewards come with a potential, the value of the draft so far in their own spread (Ng, Harada, Russell 1999):
    it changes no best policy, and tells a round early what it was good for."""
    drop_last: bool = False
    """Whether the last round of an episode is never fitted, as in that release."""

    def __post_init__(self) -> None:
        if self.mix not in _MIXES:
            raise InputError(f"option mix is {self.mix!r}", fix=did_you_mean(self.mix, _MIXES))


class Mixer(nn.Module):
    """A monotone mix of one utility per sub-decision, its weights made from the team's features."""

    unit: Tensor

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.w1, self.b1 = nn.Linear(TEAM, len(HEADS) * hidden), nn.Linear(TEAM, hidden)
        self.w2 = nn.Linear(TEAM, hidden)
        self.level = nn.Sequential(nn.Linear(TEAM, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.first = nn.Parameter(torch.zeros(TEAM))  # the state before anybody is there
        self.register_buffer("unit", torch.ones(()))  # spread of returns per item: the mix's unit

    def states(self, beats: Beats) -> Tensor:
        """(B, TEAM) the team's features; one learned row where none were recorded."""
        return torch.where(torch.from_numpy(beats.seen)[:, None], torch.from_numpy(beats.x), self.first)

    def weights(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """W1 (B, heads, hidden), b1 (B, hidden), w2 (B, hidden) and V (B,); W1 and w2 enter as absolute values."""
        w2 = self.w2(x)
        return self.w1(x).reshape(len(x), len(HEADS), -1), self.b1(x), w2, self.level(x)[:, 0]

    def forward(self, q: Tensor, x: Tensor, *, mix: str = "qmix") -> Tensor:
        """(B,) Q_tot of utilities (B, heads) in states (B, TEAM)."""
        if mix == "vdn":
            return q.sum(-1) + self.level(x)[:, 0]
        w1, b1, w2, level = self.weights(x)
        hidden = F.elu((q[:, :, None] * w1.abs()).sum(1) + b1)
        return (hidden * w2.abs()).sum(-1) + level


@dataclass(frozen=True)
class Beats:
    """The rounds of all episodes, episode by episode, in the order of time."""

    ep: np.ndarray
    round: np.ndarray
    x: np.ndarray
    """(B, TEAM)"""
    seen: np.ndarray
    """Where the team's features were recorded: not in a first round in which nobody could be called yet."""
    reward: np.ndarray
    """What the round added to the value of the draft, less its costs."""
    last: np.ndarray

    def place(self, t: Table, rounds: int) -> np.ndarray:
        """The beat of every row of a table."""
        return np.searchsorted(self.ep * rounds + self.round, t["ep"] * rounds + t["round"])


def beats_of(out: Rollout) -> Beats:
    """The rounds in which something was decided."""
    rounds = len(out.value_TE)
    tables = [out.tables[n] for n in ("stop", "spawn", "item", "rule") if n in out.tables]
    code = np.unique(np.concatenate([t["ep"] * rounds + t["round"] for t in tables]))
    ep, now = code // rounds, code % rounds
    last = np.append(np.diff(ep) != 0, True)
    after = np.where(last, out.values[ep], out.value_TE[np.append(now[1:], 0), ep])
    x, seen = np.zeros((len(code), TEAM), np.float32), np.zeros(len(code), np.bool_)
    for name in ("rule", "stop"):
        if name in out.tables:
            t = out.tables[name]
            at = np.searchsorted(code, t["ep"] * rounds + t["round"])
            x[at], seen[at] = t["x"], True
    return Beats(ep, now, x, seen, after - out.value_TE[now, ep], last)


class _Part:
    """Rows that count in one head's utility: to which beat each belongs, and how many that has."""

    def __init__(self, head: str, t: Table, beats: Beats, rounds: int, rows: np.ndarray | None = None) -> None:
        if rows is not None:
            t = {"ep": t["ep"][rows], "round": t["round"][rows]}
        self.at, size = torch.from_numpy(beats.place(t, rounds)), len(beats.ep)
        self.count = torch.zeros(size).index_add(0, self.at, torch.ones(len(self.at))).clamp_min(1)
        self.one = F.one_hot(torch.tensor(HEADS.index(head)), len(HEADS)).float()

    def mean(self, each: Tensor) -> Tensor:
        """(B, heads) the means over the rows of each beat, in the head's column."""
        return (torch.zeros(len(self.count)).index_add(0, self.at, each) / self.count)[:, None] * self.one


class Utilities:
    """Means of utilities by beat and head. What no network changes is worked out once: all steps on a batch share it."""

    def __init__(self, out: Rollout, beats: Beats) -> None:
        rounds, self.size = len(out.value_TE), len(beats.ep)
        self.tables: dict[str, dict[str, Tensor]] = {}
        self.parts: dict[str, _Part] = {}
        for name, heads in _HEADS.items():
            if name in out.tables:
                t = out.tables[name]
                self.tables[name] = {k: torch.from_numpy(t[k]) for k in _READ[name] if k in t}
                self.parts |= {f"{name} {head}": _Part(head, t, beats, rounds) for head in heads}
        if "item" in out.tables:
            self._told(out, beats, rounds)

    def _told(self, out: Rollout, beats: Beats, rounds: int) -> None:
        """The item rows that were briefed, and those with agents to choose among."""
        t, candidates = out.tables["item"], out.tables.get("candidate")
        told = np.flatnonzero(t["agent"] > 0)
        if len(told):
            self.tables["brief"] = {"rows": torch.from_numpy(told), "choice": torch.from_numpy(t["brief"][told])}
            self.parts["brief"] = _Part("communicate", t, beats, rounds, told)
        if candidates is not None:
            some, picked = np.unique(candidates["row"]), np.flatnonzero(candidates["picked"])
            about = {"some": some, "picked": picked, "whose": candidates["row"][picked]}
            about |= {k: candidates[k] for k in ("row", "agent_x", "pair_x")}
            self.tables["candidate"] = {k: torch.from_numpy(v) for k, v in about.items()}
            self.parts["candidate"] = _Part("delegate", t, beats, rounds, some)

    def choice(self, net: Network) -> Tensor:
        """(B, heads) of what was chosen."""
        return self._summed(net, best=False)

    def best(self, net: Network) -> Tensor:
        """(B, heads) of the best choice."""
        return self._summed(net, best=True)

    def _summed(self, net: Network, *, best: bool) -> Tensor:
        total = torch.zeros(self.size, len(HEADS))
        for name, each in self._each(net, best=best):
            total = total + self.parts[name].mean(each)
        return total

    def _each(self, net: Network, *, best: bool) -> Iterator[tuple[str, Tensor]]:
        """(part, utility of each of its rows), in the order in which they are added."""
        tables = self.tables
        if "stop" in tables:
            t = tables["stop"]
            logit = net.teams(t["x"])[0]
            yield "stop stop", F.relu(logit) if best else logit * t["choice"]
        if "spawn" in tables:
            t = tables["spawn"]
            gate, size = net.roles(t["x"])
            z = (t["size"].float() - size) / net.log_scale.exp()
            yield "spawn spawn", F.relu(gate) if best else t["choice"] * (gate - 0.5 * z**2)
        if "item" in tables:
            yield from self._items(net, best=best)
        if "rule" in tables:
            t = tables["rule"]
            _, rule, talk = net.teams(t["x"])
            yield "rule aggregate", rule.max(-1).values if best else _picked(rule, t["choice"])
            yield "rule communicate", F.relu(talk).sum(-1) if best else (talk * t["talk"]).sum(-1)
        if "act" in tables:
            t = tables["act"]
            each = net.extra["act"](t["x"])
            yield "act communicate", _most(each, t["mask"]) if best else _picked(each, t["choice"])

    def _items(self, net: Network, *, best: bool) -> Iterator[tuple[str, Tensor]]:
        t = self.tables["item"]
        purpose, brief, query = net.items(t["x"])
        yield "item delegate", _most(purpose, t["mask"]) if best else _picked(purpose, t["choice"])
        if told := self.tables.get("brief"):
            said = brief.index_select(0, told["rows"])
            yield "brief", said.max(-1).values if best else _picked(said, told["choice"])
        if among := self.tables.get("candidate"):
            row, rows = among["row"], len(t["x"])
            if best:
                score = (query.index_select(0, row) * net.key(among["agent_x"])).sum(-1) + net.pair(among["pair_x"])[:, 0]
                whole = torch.full((rows,), -torch.inf).scatter_reduce(0, row, score, "amax")
            else:
                whole = torch.zeros(rows).index_add(0, among["whose"], _PickedScores.of(net, query, among))
            yield "candidate", whole.index_select(0, among["some"])


class _PickedScores(torch.autograd.Function):
    """Scores of the candidates that were picked: query . key(agent) + w . pair, of one candidate in many.

    Their gradients are summed over all candidates, with zeros for the others: so they are rounded as those of a pass over all.
    """

    @staticmethod
    def of(net: Network, query: Tensor, among: Mapping[str, Tensor]) -> Tensor:
        """The scores, in the order of the candidates."""
        parts = (among["picked"], among["whose"], among["agent_x"], among["pair_x"])
        out: Tensor = _PickedScores.apply(query, net.key.weight, net.key.bias, net.pair.weight, *parts)
        return out

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, bias: Tensor, pair: Tensor, picked: Tensor, whose: Tensor, agent_x: Tensor,
        pair_x: Tensor,
    ) -> Tensor:  # fmt: skip
        asks = query.index_select(0, whose)
        answers = F.linear(agent_x.index_select(0, picked), key, bias)
        ctx.save_for_backward(asks, answers, picked, whose, agent_x, pair_x)
        ctx.rows = len(query)
        return (asks * answers).sum(-1) + F.linear(pair_x.index_select(0, picked), pair)[:, 0]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        asks, answers, picked, whose, agent_x, pair_x = ctx.saved_tensors
        to_query = torch.zeros(ctx.rows, asks.shape[1]).index_add_(0, whose, slope[:, None] * answers)
        of_keys = torch.zeros(len(agent_x), asks.shape[1]).index_copy_(0, picked, slope[:, None] * asks)
        of_pairs = torch.zeros(len(pair_x), 1).index_copy_(0, picked, slope[:, None])
        return to_query, of_keys.t().mm(agent_x), of_keys.sum(0), of_pairs.t().mm(pair_x), None, None, None, None


_HEADS = {
    "stop": ("stop",), "spawn": ("spawn",), "item": ("delegate",), "rule": ("aggregate", "communicate"), "act": ("communicate",)
}  # fmt: skip
_READ = {
    "stop": ("x", "choice"), "spawn": ("x", "choice", "size"), "item": ("x", "choice", "mask"), "rule": ("x", "choice", "talk"),
    "act": ("x", "choice", "mask"),
}  # fmt: skip


def _picked(each: Tensor, choice: Tensor) -> Tensor:
    return each.gather(1, choice[:, None])[:, 0]


def _most(each: Tensor, mask: Tensor) -> Tensor:
    return each.masked_fill(~mask, -torch.inf).max(-1).values


def utilities(net: Network, out: Rollout, beats: Beats, tau: float) -> tuple[Tensor, Tensor]:
    """(B, heads) utilities of what was chosen, and of the best choice."""
    found = Utilities(out, beats)
    return tau * found.choice(net), tau * found.best(net)


def learn(
    net: Network, mixer: Mixer, optimizer: torch.optim.Optimizer, out: Rollout, o: Options, *, progress: float,
    paid: np.ndarray | None = None, waits: bool = False,
) -> dict[str, float]:  # fmt: skip
    """Steps of temporal-difference learning on one batch, all of which is used at once; `paid`: (E,) rewards of whole episodes
    that take the place of what each round added to the return."""
    tau = o.tau_from * (o.tau_to / o.tau_from) ** progress
    beats = beats_of(out)
    _measure(mixer, out, paid=paid)
    gained = beats.reward / out.config.items if paid is None else paid[beats.ep] * (beats.last | o.each_step)
    if paid is not None and o.shaped:
        gained = gained + _potential(out, beats, paid, o.gamma)
    reward = gained / float(mixer.unit)
    found = Utilities(out, beats)
    with torch.no_grad():  # the target network is the one of now: it stays while the steps are made
        best = mixer(tau * found.best(net), mixer.states(beats), mix=o.mix)
        finite(best.sum(), "TD")  # the last step of the update before may have made the network no number
    ahead = np.where(beats.last, 0.0, np.append(best.numpy()[1:], 0.0)).astype(np.float64)
    y = td_lambda(reward, ahead, gamma=o.gamma, lam=o.lam, done=beats.last, segments=beats.ep)
    fitted = torch.from_numpy(np.flatnonzero(~(beats.last & o.drop_last)))
    target = torch.from_numpy(y.astype(np.float32))[fitted]
    parameters = [*net.policy_parameters(), *mixer.parameters()]
    for _ in range(o.epochs):
        total = mixer(tau * found.choice(net), mixer.states(beats), mix=o.mix)
        loss = F.mse_loss(total[fitted], target)
        clear(optimizer)
        finite(loss, "TD").backward()
        if waits:
            for p in net.parameters():
                p.grad = None
        torch.nn.utils.clip_grad_norm_(parameters, _MAX_NORM)
        advance(optimizer)
    return {"loss": float(loss.detach()), "tau": tau, "q_tot": float(total.mean().detach())}


def _potential(out: Rollout, beats: Beats, paid: np.ndarray, gamma: float) -> np.ndarray:
    """gamma Phi' - Phi of each round, Phi the value of the draft with the level and spread of what is paid; 0 after the end."""
    unit = float(paid.std() / max(float(out.values.std()), 1e-9))
    now = float(paid.mean()) + unit * (out.value_TE[beats.round, beats.ep] - float(out.values.mean()))
    return gamma * np.where(beats.last, 0.0, np.append(now[1:], 0.0)) - now


def _measure(mixer: Mixer, out: Rollout, share: float = 0.2, *, paid: np.ndarray | None = None) -> None:
    """Keep the spread of returns per item, or of what was paid, as a running mean."""
    returns = (out.values - out.value_TE[0]) / out.config.items if paid is None else paid
    spread = max(float(returns.std()), 1e-3)
    old = float(mixer.unit)
    mixer.unit.copy_(torch.tensor(spread if old == 1.0 else (1 - share) * old + share * spread))


def _learn(learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace]) -> dict[str, float]:
    stats = learner.fit_critics(out, steps=8)
    assert isinstance(learner.module, Mixer)
    paid = learner.outcomes(out, traces) if traces else None
    waits = learner.update < o.warm
    return stats | learn(learner.net, learner.module, learner.policy, out, o, progress=learner.progress, paid=paid, waits=waits)


td = Loss(
    source="QMIX arXiv 1803.11485, VDN 1706.05296, pymarl; Agent Q-Mix arXiv 2604.00344",
    takes=Options,
    sees="round",
    own_credit=("qmix", "vdn"),
    learn=_learn,
    module=Mixer,
)
