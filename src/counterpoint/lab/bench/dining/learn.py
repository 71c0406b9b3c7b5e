"""One small network for all philosophers, learned at a table of five from what the team as a whole was paid.

    pi(a | o) = softmax over what is possible of f(o),   f: two layers of 64 (tanh)

An update plays a group of tables, and follows the clipped policy gradient (clip 0.2, two epochs in four parts, Adam 3e-3 falling
to a tenth, an entropy bonus of 0.01 that ends with the run). Two credits, for the same budget of steps of tables:

    team   A = (R - mean R) / (std R + 1e-6) over the group: GRPO (arXiv 2402.03300), one advantage for every decision
    fork   team's loss, and beside it, for decisions (t, i) drawn by how undecided they were:  the table is copied before step t,
           i takes another action a' ~ pi(. | a' != a), everybody else goes on with the same draws to the end, and

               A(a) = (1 - pi(a)) (R - R'),   A(a') = -A(a),   each weighed by one over the chance of having been drawn

           which is the exact effect of one agent's one decision (COMA's difference, arXiv 1705.08926, by replay in place of a
           critic): tables are pure, so that a copy is exact. Steps of forks are charged.

The reward is ours: meals per step of the whole protocol times the package's fairness of them, less 1 for a deadlock, which ends
the episode. It is 0 for who does nothing.

Always true: a run is a function of its seed; it sees rewards and observations only; who eats waits (`Sight.possible`), so that
the package's flaw (`tables.py`) is not learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.bench.dining.memory import NUMBERED, PLAIN, Memory
from counterpoint.lab.bench.dining.tables import STEPS, Board, Tables, fairness
from counterpoint.lab.train.jobs import one_core
from counterpoint.lab.train.learner import step_down
from counterpoint.lab.train.training import Adam

CREDITS = ("team", "fork")
GROUP, FORKS = 32, 32
"""Tables of an update, and decisions of it that are forked."""
_RATE, _ENTROPY, _CLIP, _WIDTH = 3e-3, 0.01, 0.2, 64
Pay = Callable[["Group"], np.ndarray]


class Net(nn.Module):
    """Scores of the four actions."""

    def __init__(self, *, numbered: bool) -> None:
        super().__init__()
        self.numbered = numbered
        first = nn.Linear(NUMBERED if numbered else PLAIN, _WIDTH)
        self.layers = nn.Sequential(first, nn.Tanh(), nn.Linear(_WIDTH, _WIDTH), nn.Tanh(), nn.Linear(_WIDTH, 4))

    def forward(self, x: Tensor, possible: Tensor) -> Tensor:
        """(..., 4) log-probabilities."""
        scores: Tensor = self.layers(x)
        return scores.masked_fill(~possible, -1e9).log_softmax(-1)

    def log_probs(self, x: np.ndarray, possible: np.ndarray) -> np.ndarray:
        """The same, without a gradient."""
        with torch.no_grad():
            out: np.ndarray = self(torch.from_numpy(x), torch.from_numpy(possible)).numpy().astype(np.float64)
        return out


def draw(logp: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The action at each uniform number; the likeliest where rounding points past the last."""
    chosen = np.minimum((np.exp(logp).cumsum(axis=-1) < u[..., None]).sum(axis=-1), logp.shape[-1] - 1)
    there = np.take_along_axis(logp, chosen[..., None], axis=-1)[..., 0] > -1e8
    return np.where(there, chosen, logp.argmax(axis=-1))


@dataclass
class Group:
    """A group of tables after the last step, and each step of it."""

    tables: Tables
    draws: np.ndarray
    """(T, B, N)"""
    x: list[np.ndarray] = field(default_factory=list)
    possible: list[np.ndarray] = field(default_factory=list)
    logp: list[np.ndarray] = field(default_factory=list)
    actions: list[np.ndarray] = field(default_factory=list)
    live: list[np.ndarray] = field(default_factory=list)
    before: list[tuple[Tables, Memory]] = field(default_factory=list)
    """Tables and memories before each step: what a fork begins from."""

    @property
    def steps(self) -> int:
        """Steps of tables that were played."""
        return int(np.sum(self.live))


def meals_and_fairness(played: Group) -> np.ndarray:
    """(B,) what a table earns."""
    meals = played.tables.meals
    return meals.sum(axis=1) / STEPS * fairness(meals) - played.tables.is_dead


def act(net: Net, board: Board, seed: int, *, greedy: bool = False) -> None:
    """Play tables to the end with a network."""
    rng, memory = np.random.default_rng(seed), Memory(board.count, board.size)
    sight = board.sight()
    for step in range(STEPS):
        logp = net.log_probs(memory.numbers(sight, step, numbered=net.numbered), sight.possible)
        drawn = rng.random((board.count, board.size))
        actions = logp.argmax(axis=-1) if greedy else draw(logp, drawn)
        board.step(actions)
        before, sight = sight, board.sight()
        memory.update(before, actions, sight)


def play(net: Net, tables: Tables, draws: np.ndarray) -> Group:
    """Play tables to the end, and keep what a learner reads."""
    out, memory = Group(tables, draws), Memory(tables.count, tables.size)
    for step in range(STEPS):
        sight = tables.sight()
        x, possible = memory.numbers(sight, step, numbered=net.numbered), sight.possible
        logp = net.log_probs(x, possible)
        actions, every = draw(logp, draws[step]), np.arange(tables.count)
        out.before.append((tables.subset(every), memory.subset(every)))
        columns = (out.x, x), (out.possible, possible), (out.logp, logp), (out.actions, actions), (out.live, ~tables.is_dead)
        for column, value in columns:
            column.append(value)
        tables.step(actions)
        memory.update(sight, actions, tables.sight())
    return out


@dataclass(frozen=True)
class Rows:
    """Decisions to learn from."""

    x: np.ndarray
    possible: np.ndarray
    choice: np.ndarray
    old: np.ndarray
    advantage: np.ndarray


def team_rows(played: Group, paid: np.ndarray) -> Rows:
    """Every decision that had an alternative, with its table's advantage in the group."""
    possible = np.stack(played.possible)
    at = np.nonzero((possible.sum(axis=-1) > 1) & np.stack(played.live)[..., None])
    advantage = (paid - paid.mean()) / (paid.std(ddof=1) + 1e-6)
    choice = np.stack(played.actions)[at]
    return Rows(np.stack(played.x)[at], possible[at], choice, np.stack(played.logp)[(*at, choice)], advantage[at[1]])


def fork_rows(net: Net, played: Group, paid: np.ndarray, pay: Pay, rng: np.random.Generator, count: int) -> tuple[Rows, int]:
    """(both arms of some decisions with effects of size 1/2, the steps that their forks took)."""
    rows, steps = fork_effects(net, played, paid, pay, rng, count)
    size = rows.advantage[:count].std()
    return replace(rows, advantage=np.clip(rows.advantage / (size + 1e-6), -5, 5) / 2), steps


def fork_effects(net: Net, played: Group, paid: np.ndarray, pay: Pay, rng: np.random.Generator, count: int) -> tuple[Rows, int]:
    """(both arms of some decisions, with the effect over the chance that a draw is this one; the steps that their forks took)."""
    logp, possible = np.stack(played.logp), np.stack(played.possible)
    chance = np.exp(logp)
    doubt = -(chance * np.where(possible, logp, 0)).sum(axis=-1)
    weight = (possible.sum(axis=-1) > 1) * np.stack(played.live)[..., None] * (doubt + 0.02)
    weight = weight.reshape(-1)
    drawn = rng.choice(len(weight), size=count, p=weight / weight.sum())
    t, e, i = np.unravel_index(drawn, doubt.shape)
    own = np.stack(played.actions)[t, e, i]
    others = logp[t, e, i].copy()
    others[np.arange(count), own] = -1e9
    others -= np.log(np.exp(others - others.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)) + others.max(
        axis=1, keepdims=True
    )
    other = draw(others, rng.random(count))
    forked, steps = play_forks(net, played, t, e, i, other)
    ends = np.zeros(count)
    ends[forked[1]] = pay(Group(forked[0], played.draws))
    effect = (1 - chance[t, e, i, own]) * (paid[e] - ends) * weight.sum() / weight[drawn]
    x, can = np.stack(played.x)[t, e, i], possible[t, e, i]
    old = [logp[t, e, i, choice] for choice in (own, other)]
    both = Rows(*map(np.concatenate, ([x, x], [can, can], [own, other], old, [effect, -effect])))
    return both, steps


def play_forks(
    net: Net, played: Group, t: np.ndarray, e: np.ndarray, i: np.ndarray, other: np.ndarray
) -> tuple[tuple[Tables, np.ndarray], int]:
    """((the forks after the last step, which decision each is of), the steps they took); all go on side by side."""
    tables, memory, which, steps = Tables(0, played.tables.size), Memory(0, played.tables.size), np.zeros(0, np.int64), 0
    for step in range(int(t.min()), STEPS):
        new = np.flatnonzero(t == step)
        tables = tables.joined(played.before[step][0].subset(e[new]))
        memory = memory.joined(played.before[step][1].subset(e[new]))
        which = np.concatenate([which, new])
        sight = tables.sight()
        logp = net.log_probs(memory.numbers(sight, step, numbered=net.numbered), sight.possible)
        actions = draw(logp, played.draws[step][e[which]])
        now = np.flatnonzero(t[which] == step)
        actions[now] = played.actions[step][e[which[now]]]
        actions[now, i[which[now]]] = other[which[now]]
        steps += int((~tables.is_dead).sum())
        tables.step(actions)
        memory.update(sight, actions, tables.sight())
    return (tables, which), steps


def train(
    credit: str, budget: int, seed: int, *, numbered: bool = True, size: int = 5, pay: Pay = meals_and_fairness,
    group: int = GROUP,
) -> Net:  # fmt: skip
    """A network after `budget` steps of tables, those of forks included."""
    if credit not in CREDITS:
        raise InputError(f"no credit {credit!r} at the table", fix=did_you_mean(credit, CREDITS))
    one_core()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Net(numbered=numbered)
    optimizer, rng, spent = Adam(net.parameters(), lr=_RATE), np.random.default_rng(seed), 0
    while spent < budget:
        left = 1 - spent / budget
        optimizer.param_groups[0]["lr"] = _RATE * (0.1 + 0.9 * left)
        played = play(net, Tables(group, size), rng.random((STEPS, group, size)))
        paid = pay(played)
        spent += played.steps
        parts = [team_rows(played, paid)]
        if credit == "fork":
            rows, steps = fork_rows(net, played, paid, pay, rng, FORKS)
            spent += steps
            parts.append(rows)
        _follow(net, optimizer, parts, _ENTROPY * left, rng)
    return net


def _follow(net: Net, optimizer: torch.optim.Optimizer, parts: list[Rows], bonus: float, rng: np.random.Generator) -> None:
    """Two epochs of four steps down the losses of all parts, with an entropy bonus on the first one's rows."""
    for _ in range(2):
        cuts = [np.array_split(rng.permutation(len(rows.choice)), 4) for rows in parts]
        for k in range(4):
            loss = -bonus * _entropy(net, parts[0], cuts[0][k])
            for rows, cut in zip(parts, cuts, strict=True):
                loss = loss + _loss(net, rows, cut[k])
            step_down(optimizer, loss, "policy", net.parameters(), 1.0)


def _loss(net: Net, rows: Rows, at: np.ndarray) -> Tensor:
    """PPO's clipped loss of some rows."""
    logp = net(torch.from_numpy(rows.x[at]), torch.from_numpy(rows.possible[at]))
    own = logp.gather(1, torch.from_numpy(rows.choice[at])[:, None])[:, 0]
    ratio = (own - torch.from_numpy(rows.old[at].astype(np.float32))).exp()
    advantage = torch.from_numpy(rows.advantage[at].astype(np.float32))
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - _CLIP, 1 + _CLIP) * advantage).mean()


def score_gradient(net: Net, rows: Rows) -> np.ndarray:
    """sum over rows of advantage x grad log pi(choice), over all parameters: no clip, no scale."""
    logp = net(torch.from_numpy(rows.x), torch.from_numpy(rows.possible))
    own = logp.gather(1, torch.from_numpy(rows.choice)[:, None])[:, 0]
    found = torch.autograd.grad((own * torch.from_numpy(rows.advantage.astype(np.float32))).sum(), list(net.parameters()))
    return torch.cat([g.reshape(-1) for g in found]).numpy().astype(np.float64)


def _entropy(net: Net, rows: Rows, at: np.ndarray) -> Tensor:
    logp = net(torch.from_numpy(rows.x[at]), torch.from_numpy(rows.possible[at]))
    return -(logp.exp() * logp.clamp(min=-50)).sum(-1).mean()
