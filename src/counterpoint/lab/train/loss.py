"""What a loss is: one update of the learner from what was played, with options of its own.

Always true: the options of a loss are the fields of a dataclass, each with a default; an option that it does not have is one
clear error with a suggestion, before anything is played. A loss changes the learner it is given, and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.train.learner import Balancer
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.spawn_critic import SpawnCritic
from counterpoint.lab.train.spawn_head import SpawnGradient
from counterpoint.options import check_options
from counterpoint.trace import Trace
from counterpoint.trace.rows import Credit


class Learner(Protocol):
    """What a loss is given: the network with its optimizers, credit, and how far the run is."""

    net: Network
    policy: torch.optim.Optimizer
    """Of the heads, and of the loss's own module."""
    module: torch.nn.Module | None
    """What `Loss.module` made; None where it makes nothing."""
    spawning: SpawnGradient
    teams: SpawnCritic
    update: int
    """How many were made before."""
    credit: Credit | None
    """What `advantages` found on traces, with its notes; None before, and where rows are enough."""

    @property
    def progress(self) -> float:
        """0 at the start of the run, 1 at its end."""

    @property
    def is_sized(self) -> bool:
        """Whether the sizes of teams are set by trials from now on."""

    def rng(self, purpose: int) -> np.random.Generator:
        """Randomness of this update, by a number for what it is used for."""

    def fit_critics(self, out: Rollout, *, keep: int = 96, lam: float = 0.95, steps: int = 16) -> dict[str, float]:
        """Fit the critics on the last rollouts; what to report."""

    def advantages(self, out: Rollout, traces: Sequence[Trace]) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Advantages of the preset's credit by decision type, critics fitted first where it rests on them; what to report."""

    def outcomes(self, out: Rollout, traces: Sequence[Trace]) -> np.ndarray:
        """(E,) what the preset's rewards pay the team for each episode."""

    def balancer(self, out: Rollout, traces: Sequence[Trace]) -> Balancer | None:
        """With balance "gradient": what follows each reward's own gradient, for `learner.update`; else None."""

    def teach_workers(self, out: Rollout, advantages: dict[str, np.ndarray]) -> dict[str, float]:
        """Add advantages of the sub-agents' decisions, where they learn; what to report."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One loss."""

    source: str
    """Paper, with arXiv id."""
    takes: type[Any]
    """A frozen dataclass: every option with its default and what it means."""
    learn: Callable[[Learner, Any, Rollout, Sequence[Trace]], dict[str, float]]
    """(learner, options, rollout, traces) -> what to report: `loss`, and names that begin with kl_, entropy_ or critic_."""
    balances: bool = False
    """Whether it hands `Learner.balancer` on to `learner.update`, so that balance "gradient" means something."""
    sees: str = "episode"
    """The finest feedback that it reads beside the credit: one of `credits.mechanism.FEEDBACK`."""
    own_credit: tuple[str, ...] = ()
    """Where it learns from the rewards of rollout rows itself: the credit mechanisms that a preset with it may name."""
    module: Callable[[], torch.nn.Module] | None = None
    """Makes weights of its own, which are learned with the policy's and kept in checkpoints."""

    @property
    def options(self) -> list[str]:
        """The names of the options."""
        return [f.name for f in dataclasses.fields(self.takes)]

    def resolved(self, given: Mapping[str, Any]) -> Any:
        """The options as a record; one that it does not have, or of another type, is an error that says so."""
        for name in given:
            if name not in self.options:
                raise InputError(f"no option {name!r}", fix=did_you_mean(name, self.options))
        check_options(self.takes, given, where="loss")
        return self.takes(**given)
