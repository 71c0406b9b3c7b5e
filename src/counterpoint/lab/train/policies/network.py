"""The network: one head per sub-decision over item, agent, role and team rows, and critics of the prefix.

Always true: a head reads one row (and, for the pointer, one pair) at a time, and rows are pooled by means and log-counts, so
items and agents may be permuted and may be any number. Heads start near indifference: no optimum is built in. `apart` gives
every sub-decision an encoder of its own (regime C); otherwise the five share one for items and one for the team.

    O1 spawn        for each role: go ~ Bernoulli(gate), log size ~ Normal(mean, scale)
    O2 delegate     for each item: leave, answer, verify or next; then a pointer over free agents, softmax(query . key + w . pair)
    O3 communicate  size of the brief, by item; full return and broadcast, by team
    O4 aggregate    the rule, by team
    O5 stop         leave an item (above); stop the team
    workers         for each vote call: defer ~ Bernoulli (regimes B and C); `apart`, a network for each family
    option          in a world with rules of its own: a score for each option, from kind, state and option (`train/options.py`)
    extra           where the world has such a choice (`choices.py`): an act for each call, an attack, a proposal
    critics         V and Q of an item's future, a correction V of the team's, and the calls an item still takes;
                    V of what a worker is paid
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from counterpoint.lab.train.policies.choices import OPTION, SIZES, VALUE
from counterpoint.lab.train.policies.features import AGENT, ITEM, LATE, PAIR, ROLE, SEEN_BY_CRITIC, TEAM, WORKER
from counterpoint.lab.worlds.teamworld.config import KINDS, RULES

PURPOSES = ("leave", "answer", "verify", "next")
HEADS = ("stop", "spawn", "delegate", "communicate", "aggregate")
_WIDTH, _POINT = 48, 8
_READ = (OPTION, VALUE)
"""Heads that read as many numbers as the world says, and give one."""


def _mlp(n_in: int, n_out: int | None = None) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(n_in, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU()]
    if n_out is not None:
        layers.append(_small(nn.Linear(_WIDTH, n_out)))
    return nn.Sequential(*layers)


def _small(layer: nn.Linear, *biases: float) -> nn.Linear:
    """A last layer that starts at its biases: the first policy depends on nothing it sees."""
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.zeros_(layer.bias)
    if biases:
        with torch.no_grad():
            layer.bias.copy_(torch.tensor(biases))
    return layer


def _through(layers: nn.Module, x: Tensor) -> Tensor:
    """What the layers of `_mlp` make of x: the same operations as calling them, without a call for every layer's hooks."""
    first, _, second, *rest = layers._modules.values()
    x = torch.relu(_head(second, torch.relu(_head(first, x))))
    return _head(rest[1], x) if len(rest) > 1 else x


def _head(layer: Any, x: Tensor) -> Tensor:
    own = layer._parameters
    return F.linear(x, own["weight"], own["bias"])


class Network(nn.Module):
    """All heads and critics."""

    scale: Tensor
    round_scale: Tensor
    team_scale: Tensor

    def __init__(self, *, apart: bool = False, gate: float = 0.0, extra: Mapping[str, int] | None = None) -> None:
        """`extra`: further choices and the number of their options (`choices.heads_of`); of `OPTION` and `VALUE`, which have one
        output, how many numbers they read."""
        super().__init__()
        self.is_apart = apart
        self._acting: list[nn.Parameter] | None = None
        item, team = _mlp(ITEM), _mlp(TEAM)
        own = (lambda: _mlp(ITEM)) if apart else (lambda: item)
        mine = (lambda: _mlp(TEAM)) if apart else (lambda: team)
        self.for_purpose, self.for_brief, self.for_query = item, own(), own()
        self.for_stop, self.for_rule, self.for_talk = team, mine(), mine()
        self.purpose = _small(nn.Linear(_WIDTH, len(PURPOSES)), -1.5, 0.0, 0.0, 0.0)
        self.brief = _small(nn.Linear(_WIDTH, 4))
        self.query, self.key = _small(nn.Linear(_WIDTH, _POINT)), nn.Linear(AGENT, _POINT)
        self.pair = nn.Linear(PAIR, 1, bias=False)
        nn.init.zeros_(self.pair.weight)
        self.stop = _small(nn.Linear(_WIDTH, 1), -5.0)
        self.rule = _small(nn.Linear(_WIDTH, len(RULES)))
        self.talk = _small(nn.Linear(_WIDTH, 2), -2.0, -2.0)
        self.gate, self.size = _small(nn.Linear(ROLE, 1), gate), _small(nn.Linear(ROLE, 1), 0.7)
        with torch.no_grad():  # a team is spawned once, at first
            self.gate.weight[0, LATE] = -4.0
        self.log_scale = nn.Parameter(torch.tensor(-0.5))
        self.item_value, self.item_critic = _mlp(ITEM + 1, 1), _mlp(ITEM, 3 + 4 + 2 + _POINT)
        self.team_critic, self.point_key = _mlp(TEAM, 3 + len(RULES)), nn.Linear(AGENT, _POINT)
        self.point_pair = nn.Linear(PAIR, 1, bias=False)
        nn.init.zeros_(self.point_pair.weight)
        self.register_buffer("scale", torch.ones(len(KINDS)))  # spread of an item's return to go, by kind: the critics' unit
        self.register_buffer("round_scale", torch.ones(()))  # spread of what a round's rule and talk made of its calls
        self.register_buffer("team_scale", torch.ones(()))  # spread of the team's return to go per open item
        # drawn last, so that teams whose workers do not learn start as they always did
        self.worker = nn.ModuleList(_mlp(WORKER, 1) for _ in range(2 if apart else 1))
        self.worker_value = _mlp(SEEN_BY_CRITIC, 1)
        given = (extra or {}).items()
        self.extra = nn.ModuleDict({name: _mlp(n, 1) if name in _READ else _mlp(SIZES[name], n) for name, n in given})

    @staticmethod
    def of(weights: Mapping[str, Any], *, apart: bool) -> Network:
        """The network of these weights (tensors or arrays), with the further choices that they are for."""
        last = re.compile(r"extra\.(\w+)\.4\.bias")
        extra = {m[1]: len(value) for key, value in weights.items() if (m := last.fullmatch(key))}
        extra |= {name: int(weights[f"extra.{name}.0.weight"].shape[1]) for name in _READ if name in extra}
        net = Network(apart=apart, extra=extra)
        net.load_state_dict({k: v if isinstance(v, Tensor) else torch.tensor(v) for k, v in weights.items()})
        return net

    def twin(self) -> Network:
        """A copy that learns by itself."""
        return Network.of(self.state_dict(), apart=self.is_apart)

    def options(self, name: str, x: Tensor, mask: Tensor) -> Tensor:
        """(R, options) log-probabilities of a further choice; what the mask leaves out is very unlikely. Of `OPTION` x is
        (R, options, F)."""
        logits = self.extra[name](x)
        return (logits[..., 0] if name == OPTION else logits).masked_fill(~mask, -1e9).log_softmax(-1)

    def policy_parameters(self) -> list[nn.Parameter]:
        """What acts."""
        if self._acting is None:  # asked for at every step
            critic = {id(p) for p in self.critic_parameters()}
            self._acting = [p for p in self.parameters() if id(p) not in critic]
        return self._acting

    def critic_parameters(self) -> list[nn.Parameter]:
        """What judges."""
        own = [self.extra[VALUE]] if VALUE in self.extra else []
        critics = (*own, self.item_value, self.item_critic, self.team_critic, self.point_key, self.point_pair, self.worker_value)
        return [p for m in critics for p in m.parameters()]

    def judge_items(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Q of answer, verify, next (R, 3); of briefs (R, 4); log calls to go (R,); the critic's query (R, D); V (R,)."""
        q, brief, work, level, query = _through(self.item_critic, x).split([3, 4, 1, 1, _POINT], dim=-1)
        return q, brief, work[..., 0], query, level[..., 0]

    def judge_scored(self, x: Tensor) -> Tensor:
        """V (R,) of item rows with one number more: what the verifier says of the draft."""
        return _through(self.item_value, x).squeeze(-1)

    def judge_pairs(self, query: Tensor, agent_x: Tensor, pair_x: Tensor) -> Tensor:
        """What an agent adds to an item's Q."""
        return (query * _head(self.point_key, agent_x)).sum(-1) + _head(self.point_pair, pair_x)[..., 0]

    def judge_teams(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q of going on (the team's return to go per open item) (E,), of rules (E, 6), of full return and broadcast (E, 2)."""
        going, talk, rules = _through(self.team_critic, x).split([1, 2, len(RULES)], dim=-1)
        return going[..., 0], rules, talk

    def items(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Purpose logits (R, 4), brief logits (R, 4), queries (R, D)."""
        first, second, third = self.for_purpose, self.for_brief, self.for_query
        h = _through(first, x)
        brief = h if second is first else _through(second, x)
        query = h if third is first else _through(third, x)
        return _head(self.purpose, h), _head(self.brief, brief), _head(self.query, query)

    def keys(self, x: Tensor) -> Tensor:
        """(..., D) what agents are to queries."""
        return _head(self.key, x)

    def teams(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Stop logit (E,), rule logits (E, 6), logits of full return and broadcast (E, 2)."""
        first, second, third = self.for_stop, self.for_rule, self.for_talk
        h = _through(first, x)
        rule = h if second is first else _through(second, x)
        talk = h if third is first else _through(third, x)
        return _head(self.stop, h).squeeze(-1), _head(self.rule, rule), _head(self.talk, talk)

    def roles(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gate logits and mean log sizes of roles, shape without the last axis."""
        return _head(self.gate, x).squeeze(-1), _head(self.size, x).squeeze(-1)

    def workers(self, x: Tensor) -> Tensor:
        """Logits of deferring to the draft, (R,)."""
        logits = [_through(head, x)[..., 0] for head in self.worker]
        return logits[0] if len(logits) == 1 else torch.where(x[..., 1] > 0, logits[1], logits[0])
