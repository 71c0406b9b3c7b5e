"""Networks whose heads and critics say what a test wants them to say, so that what is made of it can be computed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from counterpoint.lab.train.policies.features import ITEM
from counterpoint.lab.train.policies.network import Network


def says(layer: nn.Module, *values: float) -> None:
    """Let a last layer say these numbers, whatever it sees."""
    with torch.no_grad():
        layer.weight.zero_()  # type: ignore[operator,union-attr]
        layer.bias.copy_(torch.tensor(values))  # type: ignore[operator,union-attr]


def known_net(
    *, q: Sequence[float] = (0.3, 0.6, 0.9), brief: Sequence[float] = (0.0,) * 4, work: float = 0.0, level: float = 0.1,
    purpose: Sequence[float] = (0.0,) * 4, going: float = 0.0, bias: float = 0.25,
) -> Network:  # fmt: skip
    """Every critic says its number; the critic that knows the draft's score says the score, in units, and `bias`."""
    torch.manual_seed(0)
    net = Network()
    says(net.item_critic[-1], *q, *brief, work, level, *[0.0] * 8)
    says(net.purpose, *purpose)
    says(net.team_critic[-1], going, *[0.0] * 8)
    says(net.query, *[0.0] * 8)
    with torch.no_grad():
        for layer, at in ((0, ITEM), (2, 0), (4, 0)):
            net.item_value[layer].weight.zero_()
            net.item_value[layer].bias.zero_()
            net.item_value[layer].weight[0, at] = 1.0
        net.item_value[4].bias[0] = bias
    return net


def item_x(*kinds: int) -> np.ndarray:
    """Features of items of which only the kind is said."""
    x = np.zeros((len(kinds), ITEM), np.float32)
    x[np.arange(len(kinds)), kinds] = 1
    return x
