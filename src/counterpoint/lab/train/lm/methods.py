"""A published method for language models: what a preset says, as settings of a run.

Always true: what the run's own settings say wins over the preset. A preset that only networks can learn is refused with the
reason. Regime A (sub-agents frozen) is an adapter for each role of which the orchestrator's alone learns, regime C an adapter
for each role, regime B one policy for all; `adapters = ""` gives every regime one set of weights, which is then a departure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import counterpoint.registry as registry
from counterpoint.errors import InputError, Refused, did_you_mean
from counterpoint.lab.train.preset import Preset, named_preset
from counterpoint.lab.worlds.packages import is_package_world
from counterpoint.rewards.paying import OURS
from counterpoint.rewards.reward import Reward
from counterpoint.rewards.schedules import scaffold_of, weight_at

_LOSSES = ("clip", "reinforce", "sft", "dpo")
_WEIGHTS = {"type": "token", "row": "token", "rollout": "rollout", "agent": "agent"}
_CLIP = (
    *("clip", "clip_high", "dual", "level", "log_max", "weigh", "mask_low", "mask_high", "pull", "kl", "kl_weight", "kl_in"),
    *("scale", "epochs", "entropy"),
)
"""Options of clipped steps that language models have; for the last three, which say how networks step, runs have settings."""
_LEVELS = {"decision": "token", "token": "token", "turn": "geometric", "sequence": "geometric"}


def with_preset(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Settings as given, with what the preset says where they say nothing."""
    preset = named_preset(name)
    if preset.loss_name == "clone":  # imitation and nothing after it
        more = {"imitate": {"steps": 300, **(given.get("imitate") or {})}}
        return {**given, **more, "learn": {**(given.get("learn") or {}), "updates": 0, "seconds": 0.0}}
    told = language_preset(preset, name)
    if preset.fixed_team:
        given = {**given, "task": _fixed_teams(given.get("task", ()), name)}
    told["learn"] = {**told["learn"], **(given.get("learn") or {})}
    return {**told, **{k: v for k, v in given.items() if k != "learn"}}


def without_preset(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Settings as given, without those that the preset sets: another one is to say them."""
    told = with_preset({}, name)
    learn = {key: value for key, value in (given.get("learn") or {}).items() if key not in told["learn"]}
    return {**{key: value for key, value in given.items() if key != "adapters" or "adapters" not in told}, "learn": learn}


def _fixed_teams(tasks: Any, name: str) -> Any:
    """The tasks, each with a topology in which nobody decides who is in the team; another one is refused."""
    if not isinstance(tasks, Sequence) or not all(isinstance(mix, Mapping) for mix in tasks):
        return tasks  # the settings say what is wrong with it
    fixed = [own for own in registry.ids("topology") if registry.get("topology", own).is_fixed]
    for mix in tasks:
        own = mix.get("topology", fixed[0])
        if isinstance(own, str) and not registry.get("topology", own).is_fixed:
            what = f"preset {name} is for a team that nobody spawns, and in topology {own} somebody does"
            raise Refused(what, where="task.topology", fix=f"topology = {' or '.join(fixed)}")
    return [mix if is_package_world(str(mix.get("name"))) else {"topology": fixed[0], **mix} for mix in tasks]


def language_preset(preset: Preset, name: str) -> dict[str, Any]:
    """What a preset sets: `adapters`, and keys of [learn]."""
    preset = preset.changed(preset.language)
    if "lm" not in preset.learns or preset.loss_name not in _LOSSES:
        why = "language models learn by clipped policy steps, imitation or preferences" if "lm" in preset.learns else None
        raise Refused(f"preset {name} is for networks only", why=why, fix="counterpoint train presets names those for `lm`")
    if preset.balance == "gradient":
        raise Refused(f"preset {name} balances rewards by gradient, which is for networks", fix="--set learn.balance=gdpo")
    options = dict(preset.credit[preset.credit_name])
    learn: dict[str, Any] = {
        "credit": [preset.credit_name],
        "options": {preset.credit_name: options} if options else {},
        "alternate": preset.alternate,
        **_loss(preset),
    }
    if preset.group > 1:
        learn["samples"] = preset.group
    if preset.tree:
        learn["tree"] = list(preset.tree)
    if dict(preset.reward) != {"team_outcome": {}}:
        learn |= {"reward": {k: dict(v) for k, v in preset.reward.items()}, "balance": preset.balance}
    if preset.regime == "A":
        learn["roles"] = ["orchestrator"]
    return {"adapters": "" if preset.regime == "B" else "role", "learn": learn}


def _loss(preset: Preset) -> dict[str, Any]:
    """The keys of [learn] that say what an update minimises."""
    given = dict(preset.loss[preset.loss_name])
    if preset.loss_name == "reinforce":
        return {"steps": int(given.get("steps", 1)), "cap": 0.0, "level": "none"}
    if preset.loss_name in ("sft", "dpo"):
        return {"loss": preset.loss_name} | ({"beta": float(given["beta"])} if "beta" in given else {})
    if strange := [name for name in given if name not in _CLIP]:
        raise Refused(f"language models have no loss option {' or '.join(strange)}", fix="a preset without it")
    low, high, ends = float(given.get("clip", 0.2)), given.get("clip_high"), (given.get("mask_low"), given.get("mask_high"))
    dual = [float(given["dual"])] if given.get("dual") else []
    told: dict[str, Any] = {"clip": [low, low if high is None else float(high), *dual]}
    told |= {"level": _LEVELS[given.get("level", "decision")]}
    told |= {"beta": float(given.get("kl_weight", 0.0)), "kl": given.get("kl", "k3")}
    told |= {"pull": float(given.get("pull", 0.0))}
    told |= {"weigh": "turn" if given.get("level") == "turn" else _WEIGHTS[given.get("weigh", "type")]}
    told |= {"log_max": float(given["log_max"])} if "log_max" in given else {}
    if ends != (None, None):
        told["mask"] = [-10.0 if ends[0] is None else ends[0], 10.0 if ends[1] is None else ends[1]]
    return told


def check_rewards(rewards: Mapping[str, Mapping[str, Any]], credit: Sequence[str]) -> None:
    """Raise where a reward or an option of it does not exist, or where it needs what teams of language models do not have."""
    for name, given in rewards.items():
        reward = registry.get("reward", name)
        if not isinstance(reward, Reward):
            raise InputError(f"{name!r} is not a reward", where="learn.reward", fix=did_you_mean(name, registry.ids("reward")))
        for option in given:
            if option not in (*reward.options, *OURS):
                fix = did_you_mean(option, [*reward.options, *OURS])
                raise InputError(f"reward {name} has no option {option!r}", where="learn.reward", fix=fix)
        if scaffold_of(given.get("weight"), name) is not None:
            what = f"the weight of {name} is driven by an indicator, which only networks have"
            raise InputError(what, where="learn.reward", fix="a number, or {from = a, to = b}")
        weight_at(given.get("weight", 1.0), 0.0, name)
    if rewards and not credit:
        raise InputError("no credit mechanism reads these rewards", where="learn.credit", fix="credit = ['group_relative']")
