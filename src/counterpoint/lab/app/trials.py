"""What tries changes of a recorded run, and orders to a running one: the laboratory's answers to `counterpoint advise`.

Always true: nothing is tried here; a trial is made when it is asked for. A model that costs something is made only where it was
named anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterpoint.lab.app.replays import named_model, replay_of
from counterpoint.trace import Trace

if TYPE_CHECKING:
    from counterpoint.credits.advice import Trials
    from counterpoint.lab.team.order_trials import OrderTrials


def trials_of(
    trace: Trace,
    *,
    kinds: Collection[str] = (),
    models: Mapping[str, str] | None = None,
    say: Sequence[str] = (),
    seed: int = 0,
    model: Any = None,
    base_url: str | None = None,
    key_env: str | None = None,
    allow: Sequence[str] = (),
    budget_tokens: int | None = None,
) -> Trials | None:
    """What can try changes of this run; None where nothing can replay it. Of a team whose model costs something, it lists changes
    and prices, and tries them where the model is named again."""
    if isinstance(trace.meta.get("team"), dict):
        from counterpoint.lab.team.live_trials import KeptOpen, LiveTrials

        asked = {"model_name": model, "base_url": base_url, "key_env": key_env, "allow": allow}
        make = None if model is None else (lambda: named_model(trace, asked) if isinstance(model, str) else KeptOpen(model))
        more: dict[str, Any] = {"models": models, "say": say, "kinds": kinds, "seed": seed, "budget_tokens": budget_tokens}
        return LiveTrials(trace, make=make, allow=allow, **more)
    from counterpoint.lab.team.world_trials import WorldTrials
    from counterpoint.lab.worlds.teamworld.world import TeamWorld

    replay = replay_of(trace, allow=allow)
    return WorldTrials(trace, replay, kinds=kinds, seed=seed) if isinstance(replay, TeamWorld) else None


def order_trials(so_far: Trace, *, say: Sequence[str], agent: str, model: str | None, **live: Any) -> OrderTrials:
    """What plays a running team on with orders and without them; `model` answers what is not recorded yet."""
    from counterpoint.lab.team.order_trials import OrderTrials

    asked = {"model_name": model, **live, "allow": ()}
    return OrderTrials(so_far, make=None if model is None else (lambda: named_model(so_far, asked)), say=say, agent=agent)
