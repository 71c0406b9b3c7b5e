"""C3: a message against its siblings, said after the very same words; its value is its leaves' mean reward.

    A_i = r_i - mean_{j != i} r_j        r_i: mean terminal reward of the traces that continue from message i

Always true: a message is compared only with messages of the same agent after an identical transcript (same task). A sibling
counts once, however many traces replay it. A message without siblings gets 0, as in the released code (`singleton="refuse"`:
no row).

With a critic: `value_assisted` A_i = r_i - [(1 - alpha) LOO(r) + alpha LOO(Q)] (the code's default is alpha = 1);
`value_only`: A_i = Q_i - LOO(Q). `normalise` then divides the centred A by sqrt(var + 1e-8), ddof 0. `replay=False` merges
all parents into one group per agent and place, `baseline="mean"` has mean() for LOO() everywhere, which includes the message
itself: the paper's ablations.

`by="turn"` compares whole turns of the team after the same turns: what an orchestrator decides in a round is one message.

Source: C3 arXiv 2603.06859, official code. Departure: siblings are found by content, so equal texts are one sample (see
`sample`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.credits.groups import Convention, group_advantages, group_codes, group_stats, leave_one_out
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.rows import credit_of, keys_of, step_units, tree_of, values_of
from counterpoint.credits.shared_options import GroupKey, Q, SampleOf, StepBy
from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

Floats = NDArray[np.float64]
_ESTIMAND = "E[R | prefix, message] - mean over the sibling messages of the same prefix"


def sibling_advantages(
    values: ArrayLike,
    groups: ArrayLike,
    *,
    q: ArrayLike | None = None,
    alpha: float = 0.0,
    mode: str = "reward_only",
    baseline: str = "leave_one_out",
    normalise: bool = False,
) -> Floats:
    """Advantages inside sibling sets; NaN for a set of one."""
    r, code = np.asarray(values, np.float64), np.asarray(groups, np.int64)
    if mode not in ("reward_only", "value_only", "value_assisted"):
        raise InputError(f"no mode {mode!r}", fix="reward_only, value_only or value_assisted")
    if mode != "reward_only" and q is None:
        raise InputError(f"{mode} needs q, the critic's value of each sibling")
    if baseline not in ("leave_one_out", "mean"):
        raise InputError(f"no baseline {baseline!r}", fix="leave_one_out or mean")
    own = r if q is None or mode != "value_only" else np.asarray(q, np.float64)
    if baseline == "mean" and mode == "value_assisted" and q is not None:
        whole, judged = group_stats(r, code), group_stats(q, code)
        out = r - ((1 - alpha) * whole.mean + alpha * judged.mean)[whole.code]
        out[whole.size[whole.code] < 2] = np.nan
    elif baseline == "mean":
        out = group_advantages(own, code, Convention(scale="none"))
    elif mode == "value_assisted" and q is not None:
        out = r - ((1 - alpha) * leave_one_out(r, code) + alpha * leave_one_out(q, code))
    else:
        out = own - leave_one_out(own, code)
    if normalise:
        some = np.isfinite(out)
        out[some] = group_advantages(out[some], code[some], Convention(ddof=0, eps=1e-8, eps_at="inside"))
    return out


def _c3_credit(
    traces: Sequence[Trace],
    *,
    mode: str = "reward_only",
    q: Annotated[Any, Q] = None,
    alpha: float = 1.0,
    baseline: str = "leave_one_out",
    normalise: bool = False,
    replay: bool = True,
    singleton: str = "zero",
    key: GroupKey = "task_id",
    channel: Channel = "team",
    sample: SampleOf = None,
    by: StepBy = "action",
) -> Credit:
    if singleton not in ("zero", "refuse"):
        raise InputError(f"no rule {singleton!r} for a message without siblings", fix="zero or refuse")
    keys = keys_of(traces, key)
    tree = tree_of(traces, keys, [team_reward(t, channel) for t in traces], sample, by)
    once = [tree.steps[i] for i in tree.first_steps()]
    events = [traces[s.trace].events[s.place] for s in once]
    if replay:
        groups: list[Hashable] = [(s.parent, e.agent if by == "action" else "") for s, e in zip(once, events, strict=True)]
    else:
        groups = [(keys[s.trace], e.agent if by == "action" else "", s.depth) for s, e in zip(once, events, strict=True)]
    codes, _ = group_codes(groups)
    judged = None
    if mode != "reward_only":
        by_trace = {i: values_of(traces[i], q, "a critic Q of messages (q=)") for i in {s.trace for s in once}}
        judged = [float(by_trace[s.trace][e.id]) for s, e in zip(once, events, strict=True)]
    amounts = sibling_advantages(
        tree.value_N[[s.node for s in once]], codes, q=judged, alpha=alpha, mode=mode, baseline=baseline, normalise=normalise
    )
    if singleton == "zero":
        amounts = np.nan_to_num(amounts, nan=0.0)
    of_node = {s.node: a for s, a in zip(once, amounts.tolist(), strict=True)}
    rows = [(unit, of_node[step.node]) for step in tree.steps for unit in step_units(traces, step, by)]
    sizes = np.bincount(codes)
    notes = {"sibling sets": int((sizes > 1).sum()), "largest": int(sizes.max(initial=0)), "mode": mode, "singleton": singleton}
    why = "no sibling: nothing else was said after this prefix"
    return credit_of("c3", _ESTIMAND, traces, rows, why_not=why, fix="replay the prefix: several continuations", notes=notes)


c3 = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="siblings are independent samples of one policy given the same transcript",
    cost="several continuations per prefix (fan-out 2 x 4 in the paper), or a critic",
    additive=False,
    source="C3, arXiv 2603.06859; official code",
    run=_c3_credit,
    needs=("group", "contents"),
    example=lambda: Example(rollouts()),
)
