"""Advice, never a refusal: nothing was gained for long, or a stop rule that was learned from old sessions would stop here.

A gain is a change of a file that worked, or something completed on the list of things to do. Time since a person last spoke is
cut into rounds; the number of gains so far is what a rule knows at each.

Always true: a call never waits for a rule: it is asked in a process of its own, and its answer is told with a later call; what is
learned at a round does not look at later ones.
"""

from __future__ import annotations

import os
import sys

from counterpoint.guard.limits import MARK, GuardLimits
from counterpoint.guard.quick_json import dumps, loads
from counterpoint.guard.state import GuardState, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from counterpoint.guard.stop_rule import Rule

ROUND_MINUTES = 5.0


def advice(state: GuardState, limits: GuardLimits, now: float) -> dict[str, str]:
    """What to tell the main agent, by a name under which it is told once."""
    tally, settings = state.tally, limits.advice
    if tally.prompt_at is None:
        return {}
    quiet = max(0.0, now - max([tally.prompt_at, *tally.gains[-1:]])) / 60
    notices = state.notes.get("told", [])
    out = {}
    name = f"quiet@{tally.gains[-1] if tally.gains else tally.prompt_at}"
    if quiet >= settings.get("quiet_minutes", float("inf")) and name not in notices:
        out[name] = f"{MARK} advice: nothing has been changed or completed for {quiet:.0f} minutes. {_DO}"
    name = f"rule@{tally.prompt_at}"
    if settings.get("rule") and state.path is not None and name not in notices:
        stop = _stop_advice(state, settings, now)
        if stop is not None:
            since = f", and nothing has been changed or completed for {quiet:.0f} minutes" if quiet >= 1 else ""
            what = f"a stop rule learned from {stop.get('traces', 'older')} runs would stop here{since}"
            out[name] = f"{MARK} advice: {what}. {_DO}"
    return out


_DO = "Going on may not pay: consider finishing with what you have, or asking the user. This is advice; nothing was refused."


def rounds_of(gains: Iterable[float], begin: float, end: float, round_s: float) -> list[int]:
    """How many gains there were by the end of each round."""
    count = int(max(0.0, end - begin) // round_s) + 1
    out = [0] * count
    for at in gains:
        out[min(count - 1, int(max(0.0, at - begin) // round_s))] += 1
    total = 0
    for k, n in enumerate(out):
        total += n
        out[k] = total
    return out


def _stop_advice(state: GuardState, settings: dict[str, Any], now: float) -> dict[str, Any] | None:
    """What the rule said if it would stop; at each new round it is asked again, and answers with a later call."""
    tally, path = state.tally, f"{state.path}.advice"
    assert tally.prompt_at is not None
    minutes = float(settings.get("round_minutes", ROUND_MINUTES))
    known = rounds_of(tally.gains, tally.prompt_at, now, minutes * 60)
    asked = [tally.prompt_at, len(known)]
    if len(known) > 1 and state.notes.get("asked") != asked:
        state.notes["asked"] = asked
        question = dumps([tally.prompt_at, minutes, known])
        _start([sys.executable, "-m", "counterpoint.guard.advice", path, settings["rule"], question])
    try:
        with open(path, "rb") as file:
            reply = loads(file.read())
    except (OSError, ValueError):
        return None
    return reply if reply.get("prompt_at") == tally.prompt_at and reply.get("stops") else None


def _start(words: list[str]) -> None:
    """Run something on its own: it holds none of our streams, and nobody waits for it."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    os.posix_spawn(words[0], words, environment, file_actions=null, setsid=True)


def main(path: str, rule_file: str, question: str) -> None:
    """Ask a rule: with the file for its answer, its own, and prompt, minutes of a round and gains so far as JSON."""
    from counterpoint.guard.stop_rule import load_rule

    prompt_at, minutes, known = loads(question)
    try:
        rule = load_rule(rule_file)
        stops = would_stop(rule, known, minutes)
        out = {"prompt_at": prompt_at, "stops": stops, "traces": rule.about.get("traces")}
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(dumps(out))
        os.replace(f"{path}.new", path)
    except Exception as error:
        log(f"no advice: {error}")


def would_stop(rule: Rule, known: Sequence[float], minutes: float) -> bool:
    """Whether a rule stops in the last of these rounds; one that was learned from rounds of another length is refused."""
    import numpy as np

    from counterpoint.errors import Refused
    from counterpoint.guard.stop_paths import features_of

    learned = dict(rule.about.get("config") or {}).get("round_minutes")
    if learned is not None and learned != minutes:
        raise Refused(f"the rule was learned with rounds of {learned} minutes, not {minutes}", fix="set advice.round_minutes")
    at = min(len(known), rule.horizon + 1) - 1
    features = features_of(np.array([known[: at + 1]], dtype=float))
    return bool(rule.policy()(at, features[:, at])[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
