"""verl's advantages as we computed them: `algorithm.adv_estimator=counterpoint`.

Always true: what `token_level_rewards` holds is the advantage, token by token; nothing is compared, normalised or discounted
again.
Loaded by verl itself, as the plug-in `counterpoint` of the group `verl.plugins`, in every process that imports verl.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est

from counterpoint.errors import InputError

NAME = "counterpoint"


def passed_on(token_level_rewards: Tensor, response_mask: Tensor, config: Any = None, **_: Any) -> tuple[Tensor, Tensor]:
    """The advantages and returns that the rewards of the tokens are already."""
    if token_level_rewards.shape != response_mask.shape:
        what = f"rewards of the shape {tuple(token_level_rewards.shape)} for a mask of {tuple(response_mask.shape)}"
        raise InputError(what, where="verl", fix="rewards per token: counterpoint.lab.trainers.verl.batch, or its agent loop")
    if config is not None and config.get("use_kl_in_reward", False):
        why = "verl takes the divergence off the rewards, which are advantages here"
        raise InputError("algorithm.use_kl_in_reward=True", why=why, fix="actor_rollout_ref.actor.use_kl_loss=True")
    if not bool(token_level_rewards.isfinite().all()):
        raise InputError("advantages are NaN or infinite", where="verl", fix="look at the credit of these traces")
    advantages = token_level_rewards * response_mask
    return advantages, advantages.clone()


register_adv_est(NAME)(passed_on)
