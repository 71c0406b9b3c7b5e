"""Learning in worlds with rules of their own: their decisions as rows, a network's score of each option, and what comes of it.

    pi(option) = softmax over the options of f(kind, state, option);   V(kind, state): the return to go

Always true: a row is one decision, whoever makes it, and all learn, by one network; numbers are read as sign(x) log(1 + |x|), so
that large ones do no harm. Rollouts, credit on traces, losses and evaluations are those of every other world. What a preset asks
of a TeamWorld (forks, trees, critics of its rows) is refused before anything is played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from torch.nn import functional as F

import counterpoint.registry as registry
from counterpoint.errors import Refused
from counterpoint.lab.train.learner import step_down
from counterpoint.lab.train.policies.choices import OPTION, VALUE
from counterpoint.lab.train.policies.choosing import choose_column
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.preset import Preset, named_preset
from counterpoint.lab.train.rollouts import Rollout, Table, TracedRollout
from counterpoint.lab.worlds.rules.decision import KINDS, Arrays, Decision, Place, Sizes, checked
from counterpoint.lab.worlds.rules.episodes import Due, Steps, ask, columns_of, play_episodes, trace_of, value_of
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace.keyed import purpose, uniform

_NOISE = purpose("learned option")
_TEAMWORLD_ONLY = ("forks", "keeps", "tries", "trial_every", "tree", "fixed_team", "goes_on", "alternate")
"""Fields of a preset that say what is done in a TeamWorld."""
_HAS = ("workers", "spawn")
"""What a preset may need of a world and a world with rules of its own may have; whether it does shows in its traces."""
_LOSSES = ("clip", "reinforce")
_LEAST = 1e-3


def has_own_rules(world: Any) -> bool:
    """Whether a world asks decisions in place of TeamWorld's arrays."""
    return not isinstance(world, TeamWorld)


def lack_of(preset: Preset) -> str | None:
    """What a preset asks that a world with rules of its own cannot give."""
    mechanism = registry.get("mechanism", preset.credit_name)
    if not preset.uses_traces:
        return f"credit {preset.credit_name} and loss {preset.loss_name} are computed on TeamWorld's rows"
    if preset.needs_replay:
        what = f"credit {preset.credit_name}" if "replay" in mechanism.needs else "a reward"
        return f"{what} replays TeamWorld's episodes"
    if preset.loss_name not in _LOSSES and ":" not in preset.loss_name:
        return f"loss {preset.loss_name} learns from TeamWorld's rows or from answers in words"
    own = [name for name in _TEAMWORLD_ONLY if getattr(preset, name)]
    if own:
        return f"{own[0]} is for a TeamWorld"
    others = [need for need in preset.needs if need not in _HAS]
    if others:
        return f"it needs {others[0]} of a TeamWorld"
    if any(given.get("share") or isinstance(given.get("weight"), Mapping) for given in preset.reward.values()):
        return "its rewards are shares of a TeamWorld's optimum, or fade by its spawns"
    return None if "network" in preset.learns else "it is for language models only"


def presets() -> list[str]:
    """The names of those that learn in a world with rules of its own."""
    return [name for name in registry.ids("preset") if lack_of(named_preset(name)) is None]


def refuse_preset(preset: Preset, name: str, world: Any) -> None:
    """Raise where a preset asks what a world with rules of its own cannot give."""
    lack = lack_of(preset)
    if lack is not None:
        fix = f"--preset grpo, or one of {', '.join(known for known in presets() if known != 'grpo')}"
        raise Refused(f"preset {name} cannot learn in {world.name}, a world with rules of its own", why=lack, fix=fix)


def sizes_of(world: Any) -> Sizes:
    """How many numbers the decisions of a world have: those of its first one."""
    env, place = world.env(), Place(world.name, 0, 0)
    ask(place, env.reset, 0)
    return checked(ask(place, env.decision), place).sizes


def heads(sizes: Sizes) -> dict[str, int]:
    """The heads of a network for such a world: how many numbers each reads."""
    return {OPTION: len(KINDS) + sizes.state + sizes.option, VALUE: len(KINDS) + sizes.state}


# -- playing -------------------------------------------------------------------------------------------------------------


def _rows(rows: Sequence[Arrays]) -> tuple[np.ndarray, np.ndarray]:
    """((R, K, F) kind, state and option of every option, (R, K) which there are)."""
    width = max(len(row.options) for row in rows)
    state, option = len(rows[0].state), rows[0].options.shape[1]
    x = np.zeros((len(rows), width, len(KINDS) + state + option), np.float32)
    mask = np.zeros((len(rows), width), np.bool_)
    for r, row in enumerate(rows):
        count = len(row.options)
        x[r, :, KINDS.index(row.decision.kind)] = 1
        x[r, :, len(KINDS) : len(KINDS) + state] = row.state
        x[r, :count, len(KINDS) + state :] = row.options
        mask[r, :count] = True
    return np.sign(x) * np.log1p(np.abs(x)), mask


class OptionPolicy:
    """A network that chooses among options; as a policy of a world it takes the likeliest."""

    def __init__(self, net: Network, sizes: Sizes, *, name: str = "learned", salts: np.ndarray | None = None) -> None:
        """`salts`: of episodes whose options are drawn."""
        self.net, self.sizes, self.name, self.salts = net, sizes, name, salts

    def choose(self, due: Due) -> tuple[np.ndarray, np.ndarray]:
        """An option of each decision, and its log-probability."""
        x, mask = _rows(due.rows)
        with torch.no_grad():
            logp = self.net.options(OPTION, torch.from_numpy(x), torch.from_numpy(mask)).numpy().astype(np.float64)
        u = None if self.salts is None else uniform(due.seeds, _NOISE, due.now, self.salts[due.at])
        choice = choose_column(logp, u)
        choice = np.where(mask[np.arange(len(choice)), choice], choice, logp.argmax(axis=1))
        return choice, np.take_along_axis(logp, choice[:, None], axis=1)[:, 0]

    def __call__(self, decision: Decision) -> int:
        """The number of the likeliest option."""
        row = checked(decision, Place("of the policy", 0, 0), self.sizes)
        one = np.zeros(1, np.int64)
        return int(OptionPolicy(self.net, self.sizes).choose(Due(one, [row], one, 0))[0][0])


def net_sizes(net: Network) -> Sizes:
    """The sizes that a network was made for."""
    widths = [int(next(net.extra[name].parameters()).shape[1]) for name in (OPTION, VALUE)]
    return Sizes(widths[1] - len(KINDS), widths[0] - widths[1])


def play_options(world: Any, net: Network, payload: Mapping[str, Any]) -> TracedRollout:
    """Rollouts of one job in a world with rules of its own: seeds, salts, log and name."""
    seeds, salts = np.asarray(payload["seeds"]), np.asarray(payload["salts"])
    policy = OptionPolicy(net, net_sizes(net), salts=salts)
    played = play_episodes(world, seeds, policy.choose, policy.sizes)
    traces = []
    if payload["log"]:
        for seed, salt, steps in zip(seeds.tolist(), salts.tolist(), played, strict=True):
            trace = trace_of(world, seed, payload["name"], steps)
            traces.append(msgspec.structs.replace(trace, trace_id=f"{trace.trace_id}-{salt}"))
    return TracedRollout(_rollout(played, seeds, salts), traces)


def _rollout(played: Sequence[Steps], seeds: np.ndarray, salts: np.ndarray) -> Rollout:
    longest = max(len(steps) for steps in played)
    so_far = np.zeros((longest + 1, len(played)))
    for ep, steps in enumerate(played):
        sums = np.cumsum([step.reward for step in steps])
        so_far[1 : 1 + len(sums), ep], so_far[1 + len(sums) :, ep] = sums, sums[-1]
    values = np.array([value_of(steps) for steps in played])
    columns = columns_of(played)
    columns |= {"quality": values, "cost_messages": np.zeros(len(played))}
    tables = {OPTION: _table(played)}
    return Rollout(None, seeds, salts, tables, so_far, values, columns, extra={"team": values.copy()})


def _table(played: Sequence[Steps]) -> Table:
    """One row for each decision, episode by episode."""
    steps = [step for some in played for step in some]
    x, mask = _rows([step.arrays for step in steps])
    who: list[int] = []
    for some in played:
        names = [step.arrays.decision.agent for step in some]
        order = {name: k for k, name in enumerate(dict.fromkeys(names))}
        who += [order[name] for name in names]
    return {
        "ep": np.repeat(np.arange(len(played)), [len(some) for some in played]),
        "round": np.concatenate([np.arange(len(some)) for some in played]),
        "agent": np.array(who, np.int64),
        "x": x,
        "mask": mask,
        "choice": np.array([step.choice for step in steps], np.int64),
        "logp": np.array([step.logp for step in steps], np.float64),
    }


def held_out_episodes(net: Network, world: Any, seeds: np.ndarray, *, name: str) -> tuple[np.ndarray, dict[str, np.ndarray], Any]:
    """(returns, columns, the trace of an episode by its place) of held-out seeds, each option the likeliest."""
    policy = OptionPolicy(net, net_sizes(net))
    played = play_episodes(world, seeds, policy.choose, policy.sizes)
    values = np.array([value_of(steps) for steps in played])
    columns = columns_of(played) | {"quality": values}
    return values, columns, lambda i: trace_of(world, int(seeds[i]), name, played[i])


# -- the critic ----------------------------------------------------------------------------------------------------------


def _states(net: Network, out: Rollout) -> torch.Tensor:
    """(R, kind and state) of every decision."""
    x = out.tables[OPTION]["x"][:, 0, : len(KINDS) + net_sizes(net).state]
    return torch.from_numpy(np.ascontiguousarray(x))


def fit_values(
    net: Network, optimizer: torch.optim.Optimizer, out: Rollout, rng: np.random.Generator, *, steps: int = 32, size: int = 512
) -> dict[str, float]:
    """Regress the critic on the returns to go, in units of their spread."""
    to_go = out.to_go(OPTION)
    spread = max(float(to_go.std()), _LEAST)
    net.team_scale.copy_(torch.tensor(spread if float(net.team_scale) == 1.0 else 0.9 * float(net.team_scale) + 0.1 * spread))
    x, y = _states(net, out), torch.from_numpy((to_go / float(net.team_scale)).astype(np.float32))
    total = 0.0
    for _ in range(steps):
        at = torch.from_numpy(rng.integers(0, len(y), min(size, len(y))))
        loss = F.mse_loss(net.extra[VALUE](x[at])[:, 0], y[at])
        step_down(optimizer, loss, "critic's")
        total += float(loss.detach())
    return {"critic_option": total / steps}


def prefix_values(net: Network, out: Rollout) -> np.ndarray:
    """(T + 1, E) V of the prefix at each decision: what was paid so far, and what the critic expects of the rest."""
    known, t = out.value_TE.copy(), out.tables[OPTION]
    with torch.no_grad():
        rest = net.extra[VALUE](_states(net, out))[:, 0].numpy().astype(np.float64)
    known[t["round"], t["ep"]] += rest * float(net.team_scale)
    return known
