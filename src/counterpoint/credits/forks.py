"""Forks of a trace in pairs: what a thing was worth, as the difference of two arms that share their noise, with its cost.

Always true: both arms keep every event before the fork. Replicate i of a coupled contrast uses one noise in both arms, of a fresh
contrast two independent ones; so both have the same mean, and the coupled one the smaller variance. Replicate 0 of an arm that
changes nothing is the recorded trace itself, as its run scored it (`credit.own_scores`), and costs no fork. Effect and standard
error of k replicates:

    d_i = R(a; seed_i) - R(b; seed_i)      effect = mean(d)      se = sd(d, ddof 1) / sqrt(k), none for k = 1

Noise shared between arms: common random numbers; for messages, docs/lab/research/message-credit.md and C3 (arXiv 2603.06859).
An event that the replay cannot fork is refused by itself, with the replay's reason; the others are still answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from counterpoint.credits.own_scores import beside_forks, unused
from counterpoint.display import tracked
from counterpoint.errors import InputError, NotFound, NotIdentified
from counterpoint.trace import Event, Trace
from counterpoint.trace.replay import Delete, Do, Fork, ManyReplay, Replay, Substitute
from counterpoint.trace.rows import Cost, Credit, CreditRow

# -- Which events are messages, and which of them somebody asks about -------------------------------------------------
# Always true: a message is an event of type message or return (a return is a worker's message to whoever spawned it); the order
# is the file's. An id that is not in any of the traces is one clear error, except where several traces are judged at once.

MESSAGES = ("message", "return")


def messages_of(trace: Trace, types: Collection[str] = MESSAGES, ids: Collection[str] | None = None) -> list[Event]:
    """The messages of a trace, of these types and among these ids."""
    wrong = set(types) - set(MESSAGES)
    if wrong:
        raise InputError(f"{sorted(wrong)[0]!r} is not a type of message", fix="message, return, or both")
    return [e for e in trace.events if e.type in types and (ids is None or e.id in ids)]


def check_ids(traces: Sequence[Trace], ids: Collection[str] | None) -> None:
    """Every id asked about is an event of some trace."""
    for at in ids or ():
        if not any(at in trace.index for trace in traces):
            raise NotFound(f"no event {at!r}", where=traces[0].trace_id, fix="ids of messages or returns")


class Contrast(NamedTuple):
    """Two arms at one event: the worth of doing `a` rather than `b`; None changes nothing."""

    at: str
    a: Do | None = None
    b: Do | None = None


class Effects(NamedTuple):
    """The effects of many contrasts in one trace, in their order; NaN where the replay refused."""

    effect_U: np.ndarray
    se_U: np.ndarray
    """NaN with one replicate."""
    refused: Mapping[int, str]
    """Place of a contrast to the reason why it was not answered."""
    cost: Cost


class PairCredit(NamedTuple):
    """Deletion credits of two messages, alone and together."""

    a: float
    b: float
    both: float
    interaction: float
    """c(ab) - c(a) - c(b)."""
    se: float | None
    """Of the interaction; None with one replicate."""
    cost: Cost


def needed(replay: Replay | None, what: str) -> Replay:
    """The replay, or the refusal when there is none."""
    if replay is None:
        raise NotIdentified(f"{what} asks what else would have happened", "give a replay: a simulator's world or a live team")
    if not isinstance(replay, Replay):
        raise InputError(f"{type(replay).__name__} is not a replay", fix="an object with fork(trace, at, do, seed)")
    return replay


def added(costs: Sequence[Cost]) -> Cost:
    """Costs in one sum."""
    return Cost(sum(c.forks for c in costs), sum(c.tokens for c in costs))


def paired(a_UK: np.ndarray, b_UK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of the paired differences of each row; the error of one pair is NaN."""
    d_UK = np.asarray(a_UK, np.float64) - np.asarray(b_UK, np.float64)
    k = d_UK.shape[1]
    se_U = d_UK.std(axis=1, ddof=1) / np.sqrt(k) if k > 1 else np.full(len(d_UK), np.nan)
    return d_UK.mean(axis=1), se_U


def two_arms(tau: float, propensity: float, *, is_taken: bool) -> float:
    """A(taken) = (1 - pi) tau, A(passed over) = -pi tau: mean zero under pi, whatever tau is."""
    return (1 - propensity) * tau if is_taken else -propensity * tau


def fork_seeds(seed: int, trace: Trace, count: int) -> list[int]:
    """Seeds that belong to this trace and this seed alone; below 2^62."""
    text = f"{seed}|{trace.trace_id}|"
    return [int.from_bytes(blake2b(f"{text}{i}".encode(), digest_size=8).digest(), "big") >> 2 for i in range(count)]


def effects(
    replay: Replay,
    trace: Trace,
    contrasts: Sequence[Contrast],
    *,
    k: int = 1,
    seed: int = 0,
    coupled: bool = True,
    channel: str = "team",
) -> Effects:
    """The effect of every contrast by k replicates, all forks of a trace in one call where the replay can do that."""
    if k < 1:
        raise InputError(f"k is {k}", fix="1 or more replicates")
    if channel not in trace.rewards:
        raise InputError(f"the trace has no reward {channel!r}", where=trace.trace_id, fix="score it first")
    if not contrasts:
        return Effects(np.zeros(0), np.zeros(0), {}, Cost())
    trace = beside_forks(trace, replay, contrasts[0].at, channel)
    seeds = fork_seeds(seed, trace, 2 * k)
    noise = (seeds[:k], seeds[:k] if coupled else seeds[k:])
    arms = [[[_fork(c.at, (c.a, c.b)[arm], i, noise[arm][i], coupled) for i in range(k)] for c in contrasts] for arm in (0, 1)]
    wanted = [(u, f) for arm in arms for u, row in enumerate(arm) for f in row if f is not None]
    values, refused = _answers(replay, trace, wanted, channel)
    rewards, recorded = iter(values), float(trace.rewards[channel])
    a_UK, b_UK = (np.array([[recorded if f is None else next(rewards) for f in row] for row in arm]) for arm in arms)
    effect_U, se_U = paired(a_UK, b_UK)
    after = _tokens_after(trace)
    ran = [f for u, f in wanted if u not in refused]
    return Effects(effect_U, se_U, refused, Cost(len(ran), sum(after[trace.index[f.at]] for f in ran)))


def fork_credit(
    mechanism: str,
    estimand: str,
    unit: str,
    traces: Sequence[Trace],
    replay: Replay | None,
    contrasts: Callable[[Trace], Mapping[str, Contrast]],
    *,
    k: int,
    seed: int,
    coupled: bool,
    channel: str,
) -> Credit:
    """Credit whose rows are effects: `contrasts` says what is asked of each unit id of a trace."""
    replay = needed(replay, mechanism)
    rows: list[CreditRow] = []
    silent: dict[tuple[int, str], str] = {}
    costs = []
    for i, trace in enumerate(tracked(traces, "traces forked")):
        asked = contrasts(trace)
        result = effects(replay, trace, list(asked.values()), k=k, seed=seed, coupled=coupled, channel=channel)
        costs.append(result.cost)
        for u, unit_id in enumerate(asked):
            if u in result.refused:
                silent[i, unit_id] = result.refused[u]
            else:
                se = None if k == 1 else float(result.se_U[u])
                rows.append(CreditRow(i, unit, unit_id, float(result.effect_U[u]), se))
    if silent and not rows:
        why = Counter(reason.removeprefix("not identified: ") for reason in silent.values()).most_common(1)[0][0]
        raise NotIdentified(why, "fork at events that this replay can change")
    noise = "coupled" if coupled else "fresh"
    return Credit(
        mechanism,
        estimand,
        False,
        tuple(t.trace_id for t in traces),
        tuple(rows),
        cost=added(costs),
        unidentified=silent,
        notes={"k": k, "noise": noise, "tokens": "of the recorded suffix, once per fork", **unused(traces, channel)},
    )


def message_credit(
    mechanism: str,
    estimand: str,
    do: Do,
    traces: Sequence[Trace],
    replay: Replay | None,
    *,
    types: Collection[str],
    ids: Collection[str] | None,
    k: int,
    seed: int,
    coupled: bool,
    channel: str,
) -> Credit:
    """Credit of messages: each as it was recorded against the same fork in which `do` was done to it."""
    check_ids(traces, ids)

    def by_event(trace: Trace) -> dict[str, Contrast]:
        return {e.id: Contrast(e.id, None, do) for e in messages_of(trace, types, ids)}

    return fork_credit(mechanism, estimand, "message", traces, replay, by_event, k=k, seed=seed, coupled=coupled, channel=channel)


def _fork(at: str, do: Do | None, i: int, seed: int, coupled: bool) -> Fork | None:
    """Replicate i of an arm; None is the recorded trace. Each replicate of a redraw is another draw."""
    if isinstance(do, Substitute) and do.value is None:
        do = replace(do, draw=do.draw + i)
    if i == 0 and (do is None or coupled):
        return None if do is None else Fork(at, do, None)
    return Fork(at, do, seed)


def _answers(
    replay: Replay, trace: Trace, wanted: Sequence[tuple[int, Fork]], channel: str
) -> tuple[list[float], dict[int, str]]:
    """The return of each fork, NaN with a reason for contrasts that the replay refuses."""
    try:
        return _returns(replay, trace, [f for _, f in wanted], channel), {}
    except (InputError, NotFound, NotIdentified):
        pass
    values, refused = [np.nan] * len(wanted), {}  # type: list[float], dict[int, str]
    for u in dict.fromkeys(u for u, _ in wanted):
        mine = [j for j, (v, _) in enumerate(wanted) if v == u]
        try:
            for j, value in zip(mine, _returns(replay, trace, [wanted[j][1] for j in mine], channel), strict=True):
                values[j] = value
        except (InputError, NotFound, NotIdentified) as error:
            refused[u] = error.one_line()
    return values, refused


def _returns(replay: Replay, trace: Trace, forks: list[Fork], channel: str) -> list[float]:
    if not forks:
        return []
    if channel == "team" and isinstance(replay, ManyReplay):
        return np.asarray(replay.returns(trace, forks), np.float64).tolist()
    out = [replay.fork(trace, f.at, f.do, f.seed) for f in forks]
    for fork in out:
        if channel not in fork.rewards:
            raise InputError(f"a fork has no reward {channel!r}", where=fork.trace_id, fix="a replay that scores its forks")
    return [float(fork.rewards[channel]) for fork in out]


def _tokens_after(trace: Trace) -> list[int]:
    """Tokens of each event and all that follow it in the file: what a fork there runs again, going by the record."""
    tokens = [(e.tokens_in or 0) + (e.tokens_out or 0) for e in trace.events]
    return list(accumulate(reversed(tokens)))[::-1]  # plain integers: a file may say any number


def pair_interaction(replay: Replay | None, trace: Trace, a: str, b: str, *, k: int = 1, seed: int = 0) -> PairCredit:
    """I(a, b) = c(ab) - c(a) - c(b), c being deletion credit: negative where either suffices, positive where both are needed.

    Both messages are part of the prefix: up to the later one the noise is the recorded one, after it each replicate has its own,
    shared by the four arms. Single deletion gives each of two sufficient messages nothing; the pair's credit shows them. The
    later message is found in the fork by its stable key; where the first one's deletion prevents it, nothing more is deleted.
    """
    replay = needed(replay, "a pair's interaction")
    for at in (a, b):
        if at not in trace.index:
            raise NotFound(f"no event {at!r}", where=trace.trace_id)
    early, late = sorted((a, b), key=lambda at: (trace.events[trace.index[at]].t, trace.index[at]))
    if early == late:
        raise InputError(f"{a!r} is named twice", fix="two different messages")
    trace = beside_forks(trace, replay, early, "team")
    without = replay.fork(trace, early, Delete())
    key = trace.events[trace.index[late]].key
    again = [e.id for e in without.events if (e.key == key if key is not None else e.id == late)]
    seeds: list[int | None] = [None, *fork_seeds(seed, trace, k - 1)]
    arms = [Fork(late, do, s) for do in (None, Delete()) for s in seeds]
    r00, r01 = np.array(_returns(replay, trace, arms, "team")).reshape(2, k)
    if again:
        arms = [Fork(again[0], do, s) for do in (None, Delete()) for s in seeds]
        r10, r11 = np.array(_returns(replay, without, arms, "team")).reshape(2, k)
    else:
        r10 = r11 = np.full(k, float(without.rewards["team"]))
    singles = {early: float((r00 - r10).mean()), late: float((r00 - r01).mean())}
    interaction, se = paired((r10 + r01)[None], (r11 + r00)[None])
    forks = 1 + (4 if again else 2) * k
    spent = Cost(forks, forks * _tokens_after(trace)[trace.index[early]])
    error = None if k == 1 else float(se[0])
    return PairCredit(singles[a], singles[b], float((r00 - r11).mean()), float(interaction[0]), error, spent)
