"""A small network for the agents of each role, and a critic of the whole team: MAPPO (arXiv 2103.01955) on many worlds at once.

    pi(a | o_i, i) = softmax over i's actions of f_role(o_i, i),   V(o_1 .. o_N, t),   all two layers of 64 (ReLU)

What is seen is in units of its spread in random play, for each role; layers begin orthogonal, scores near zero. An update plays a
group of episodes and follows the clipped policy gradient, with one advantage for all agents of a step:

    d_t = r_t + g V_{t+1} - V_t,    A_t = d_t + g l A_{t+1},    g = 0.99, l = 0.95, V = 0 after the last step

standardised over the group; clip 0.2, epochs of whole groups, Adam falling to a tenth, an entropy bonus that ends with the run.
Rewards are in units of the spread of the first group's returns. Steps of random play count.

Always true: a run is a function of its seed; it sees observations and what is paid alone; a step is one of a whole team, so that
steps are counted as papers count them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.lab.bench.dining.learn import draw
from counterpoint.lab.bench.particles.fields import STEPS, Field, PackageField
from counterpoint.lab.train.jobs import one_core
from counterpoint.lab.train.learner import step_down
from counterpoint.lab.train.training import Adam

GROUP = 128
_ENTROPY, _CLIP, _WIDTH, _EPOCHS, _GAMMA, _LAM = 0.01, 0.2, 64, 15, 0.99, 0.95
_AT_CHANCE, _FAINT = 128, 0.01
"""Episodes of random play that give the units of what is seen; how small the scores begin."""
_LEAST = 1e-6


def _layers(first: int, last: int, gain: float) -> nn.Sequential:
    layers = [nn.Linear(first, _WIDTH), nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, last)]
    for layer, by in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, by)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def units(field: Field, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(N, F) means and spreads of what the agents of a role see in random play; of what never varies there the spread is 1."""
    field.begin(_AT_CHANCE, rng)
    seen = []
    for _ in range(STEPS):
        seen.append(field.sight())
        field.step(np.where(field.possible, rng.random((_AT_CHANCE, field.agents, 5)), -1.0).argmax(axis=-1))
    at = np.concatenate(seen)
    mine = [at[:, [i for i, other in enumerate(field.roles) if other == role]].reshape(-1, field.width) for role in field.roles]
    means, spreads = (np.stack([of(rows, axis=0) for rows in mine]) for of in (np.mean, np.std))
    return means, np.where(spreads > _LEAST, spreads, 1.0)


class Net(nn.Module):
    """Scores of the actions, by a network for each role, and the critic."""

    means: Tensor
    spreads: Tensor

    def __init__(self, field: Field, rng: np.random.Generator) -> None:
        super().__init__()
        for name, numbers in zip(("means", "spreads"), units(field, rng), strict=True):
            self.register_buffer(name, torch.from_numpy(numbers.astype(np.float32)))
        self.roles = field.roles
        self.actors = nn.ModuleList(_layers(field.width, 5, _FAINT) for _ in range(max(field.roles) + 1))
        self.critic = _layers(field.agents * field.width + 1, 1, 1.0)
        self.possible = torch.from_numpy(field.possible)

    def forward(self, x: Tensor) -> Tensor:
        """(..., N, 5) log-probabilities."""
        x = (x - self.means) / self.spreads
        scores = torch.stack([self.actors[role](x[..., i, :]) for i, role in enumerate(self.roles)], dim=-2)
        return scores.masked_fill(~self.possible, -1e9).log_softmax(-1)

    def values(self, x: Tensor, t: Tensor) -> Tensor:
        """(...) what is still to come, of all that is seen and the step."""
        x = (x - self.means) / self.spreads
        out: Tensor = self.critic(torch.cat([x.flatten(-2), t[..., None]], dim=-1))[..., 0]
        return out

    def log_probs(self, x: np.ndarray) -> np.ndarray:
        """Log-probabilities without a gradient."""
        with torch.no_grad():
            out: np.ndarray = self(torch.from_numpy(x)).numpy().astype(np.float64)
        return out


def train(field: Field, budget: int, seed: int, *, rate: float, tell: Callable[[int, float, Net], None] | None = None) -> Net:
    """A network after `budget` steps of a team, some of them by chance; `tell` hears steps, the group's mean return and the
    network after each update."""
    one_core()
    rng, spent, spread = np.random.default_rng(seed), _AT_CHANCE * STEPS, 0.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Net(field, rng)
    optimizer = Adam(net.parameters(), lr=rate)
    while spent < budget:
        left = 1 - spent / budget
        optimizer.param_groups[0]["lr"] = rate * (0.1 + 0.9 * left)
        x, actions, logp, paid = _played(net, field, GROUP, rng)
        spread = spread or float(paid.sum(axis=0).std())
        _follow(net, optimizer, (x, actions, logp, paid / spread), _ENTROPY * left)
        spent += GROUP * STEPS
        if tell is not None:
            tell(spent, float(paid.sum(axis=0).mean()), net)
    return net


def _played(net: Net, field: Field, group: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """(T, B, N, F) what was seen, (T, B, N) actions and their log-probabilities, (T, B) what was paid."""
    field.begin(group, rng)
    columns: tuple[list[np.ndarray], ...] = ([], [], [], [])
    for _ in range(STEPS):
        x = field.sight()
        logp = net.log_probs(x)
        actions = draw(logp, rng.random(logp.shape[:-1]))
        own = np.take_along_axis(logp, actions[..., None], axis=-1)[..., 0]
        for column, value in zip(columns, (x, actions, own, field.step(actions)), strict=True):
            column.append(value)
    return tuple(np.stack(column) for column in columns)


def advantages(paid: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(T, B) generalised advantages; nothing comes after the last step."""
    out, after = np.zeros_like(paid), np.zeros(paid.shape[1])
    for t in reversed(range(len(paid))):
        then = values[t + 1] if t + 1 < len(paid) else 0.0
        after = paid[t] + _GAMMA * then - values[t] + _GAMMA * _LAM * after
        out[t] = after
    return out


def _follow(net: Net, optimizer: torch.optim.Optimizer, played: tuple[np.ndarray, ...], bonus: float) -> None:
    """Some epochs down the clipped loss, the critic's squared error and the entropy bonus."""
    x, actions, old, paid = played
    t = np.broadcast_to((np.arange(STEPS, dtype=np.float32) / STEPS)[:, None], paid.shape)
    tensors = torch.from_numpy(x), torch.from_numpy(t.copy())
    with torch.no_grad():
        values = net.values(*tensors).numpy().astype(np.float64)
    gain = advantages(paid, values)
    told = torch.from_numpy((gain + values).astype(np.float32)).flatten()
    gain = (gain - gain.mean()) / (gain.std() + 1e-5)
    rows = *(part.flatten(0, 1) for part in tensors), torch.from_numpy(actions).flatten(0, 1)
    before = torch.from_numpy(old.astype(np.float32)).flatten(0, 1)
    advantage = torch.from_numpy(gain.astype(np.float32)).flatten()[:, None]
    for _ in range(_EPOCHS):
        logp = net(rows[0])
        ratio = (logp.gather(-1, rows[2][..., None])[..., 0] - before).exp()
        policy = torch.minimum(ratio * advantage, ratio.clamp(1 - _CLIP, 1 + _CLIP) * advantage).mean()
        entropy = -(logp.exp() * logp.clamp(min=-50)).sum(-1).mean()
        error = (net.values(rows[0], rows[1]) - told).square().mean()
        step_down(optimizer, error / 2 - policy - bonus * entropy, "team", net.parameters(), 10.0)


def returns(net: Net, field: Field, count: int, seed: int) -> np.ndarray:
    """(B,) returns of unseen episodes, each action the likeliest."""
    field.begin(count, np.random.default_rng(seed))
    out = np.zeros(count)
    for _ in range(STEPS):
        out += field.step(net.log_probs(field.sight()).argmax(axis=-1))
    return out


def returns_in_package(net: Net, name: str, seeds: range) -> np.ndarray:
    """(B,) what papers would call the returns of episodes of the package itself, each action the likeliest."""
    board = PackageField(name, seeds)
    for _ in range(STEPS):
        board.step(net.log_probs(board.sight()).argmax(axis=-1))
    return board.returns()
