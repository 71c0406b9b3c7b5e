"""Alerts for language models: ways in which their training goes wrong while its reward looks fine.

    entropy_collapse   the model has become nearly certain of every word it writes, and was not before
    length_drift       answers are twice as long, or half as long, as they were
    malformed          more than one answer in twenty is no legal act
    too_long           more than one call in twenty has a prompt that does not fit, and is not answered
    mismatch           the engine's log-probabilities are not the learner's
    kl_jump            an update moved the policy far from what had sampled
    silent_role        a role that used to speak does not speak any more
    team_failed        of a team of one's own, more than one in twenty failed, or was lost
    zero_variance      all samples of most tasks earned the same: compared with each other they teach nothing

Always true: an alert is a function of the rows of metrics and alerts so far, so a run that resumes raises the same ones. None
changes anything. A code is not raised again within `AGAIN` updates.
"""

from __future__ import annotations

from collections.abc import Sequence

from counterpoint.lab.train.alert import Alert, Row, mean, recent_codes

AGAIN = 20
WINDOW = 5
_COLLAPSED = 0.01
_MALFORMED = 0.05
_MISMATCH = 0.05
_KL = 0.1


def language_alerts(metrics: Sequence[Row], alerts: Sequence[Row]) -> list[Alert]:
    """Alerts of the last row."""
    rows = [r for r in metrics if r.get("phase") == "learn"]
    if not rows:
        return []
    recent = recent_codes(alerts, metrics[-1]["update"], AGAIN)
    found = (look(rows) for look in (_entropy, _length, _malformed, _too_long, _mismatch, _kl, _silent, _flat, _failed))
    return [alert for alert in found if alert is not None and alert.code not in recent]


def _entropy(rows: Sequence[Row]) -> Alert | None:
    first, now = mean(rows[:WINDOW], "entropy"), mean(rows[-WINDOW:], "entropy")
    if len(rows) < 2 * WINDOW or not (now < _COLLAPSED and now < first / 4):
        return None
    what = f"surprise per token fell {first:.3g} -> {now:.3g}: samples of a task are all alike soon"
    return Alert("entropy_collapse", what, "a wider upper clip (learn.clip), a KL term (learn.beta), or stop here")


def _length(rows: Sequence[Row]) -> Alert | None:
    first, now = mean(rows[:WINDOW], "tokens_per_call"), mean(rows[-WINDOW:], "tokens_per_call")
    if len(rows) < 2 * WINDOW or not (now > 2 * first or now < first / 2):
        return None
    what = f"answers went from {first:.1f} to {now:.1f} tokens"
    return Alert("length_drift", what, "look at what became longer or shorter; a price on tokens (prices.token)")


def _malformed(rows: Sequence[Row]) -> Alert | None:
    now = mean(rows[-WINDOW:], "malformed")
    if not now > _MALFORMED:
        return None
    fix = "more imitation first, or a lower rate; counterpoint show has the error of each such call"
    return Alert("malformed", f"{now:.0%} of the answers are no legal act", fix)


def _too_long(rows: Sequence[Row]) -> Alert | None:
    now = mean(rows[-WINDOW:], "too_long")
    if not now > _MALFORMED:
        return None
    what = f"{now:.0%} of the prompts are longer than the context, and are not answered"
    return Alert("too_long", what, "a longer context (context=), smaller tasks, or fewer turns (limits.turns)")


def _mismatch(rows: Sequence[Row]) -> Alert | None:
    gap = rows[-1].get("mismatch")
    if not isinstance(gap, (int, float)) or not gap > _MISMATCH:
        return None
    what = f"log-probabilities of engine and learner differ by {gap:.3g} on average"
    return Alert("mismatch", what, "the correction (learn.cap) weighs it; float32 on both sides takes it away")


def _kl(rows: Sequence[Row]) -> Alert | None:
    kl = rows[-1].get("kl")
    if not isinstance(kl, (int, float)) or not kl > _KL:
        return None
    what = f"the policy moved {kl:.3g} nats per token within one update"
    return Alert("kl_jump", what, "a lower learn.lr, fewer learn.steps, or a learn.kl_limit")


def _silent(rows: Sequence[Row]) -> Alert | None:
    spoke = {role for r in rows[:-1] for role, n in (r.get("roles") or {}).items() if n}
    gone = sorted(spoke - {role for role, n in (rows[-1].get("roles") or {}).items() if n})
    if not gone:
        return None
    what = f"no agent plays {' or '.join(gone)} any more"
    return Alert("silent_role", what, "right where one agent is enough; else a cheaper spawn (prices.agent)")


def _flat(rows: Sequence[Row]) -> Alert | None:
    share = mean(rows[-WINDOW:], "flat_groups")
    if len(rows) < WINDOW or not share >= 0.5:
        return None
    what = f"in {share:.0%} of the tasks all samples earned the same"
    return Alert("zero_variance", what, "harder or more varied tasks, more samples, or a higher temperature")


def _failed(rows: Sequence[Row]) -> Alert | None:
    now, lost = rows[-1].get("failed") or 0.0, rows[-1].get("lost") or {}
    if not (now > _MALFORMED or lost):
        return None
    why = next(iter(lost or rows[-1].get("failures") or {}), "")
    what = f"{sum(lost.values())} rollouts were lost, {now:.0%} of the teams failed: {why}"
    return Alert("team_failed", what, "a team that raises earns 0; code that takes every answer teaches more")
