"""Forks for the command line and the page: what was asked as an edit, who can follow it, and what became of each event.

Always true: a trace that nothing can replay is `NotIdentified`, with what would help; an effect is paired on one fresh noise.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.errors import CounterpointError, InputError, NotFound, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.replay import Delete, Do, Force, Fork, ManyReplay, Substitute

if TYPE_CHECKING:
    from counterpoint.audits.blast import Blast
    from counterpoint.audits.diff import Diff


_RECORDED = "fork a trace of `counterpoint record` or `counterpoint world run NAME --store`; .jsonl keeps what it takes"


# -- Who can fork a trace: the world that made it, or the recording of the live team, found by what the trace says of itself --
# Always true: a trace that neither a shipped world nor a live team made has no replay here; whoever needs one says so
# (`NotIdentified`) and names what would help. An endpoint is never asked because a trace names it: only a model that is named
# anew. Code that a trace names is imported where `allow` names it too, and else `Refused`.


def replay_of(trace: Trace, *, model: Any = None, allow: Collection[str] = ()) -> Any:
    """The world whose trace this is, or its recording, as a `Replay`; None where there is none."""
    if isinstance(trace.meta.get("team"), dict):
        from counterpoint.lab.team.live_replay import LiveReplay
        from counterpoint.lab.team.session import Spec

        Spec.of(trace.meta["team"]).check_consent(allow, where=trace.trace_id, with_model=False, is_fork=True)
        return LiveReplay(model=model, allow=tuple(allow))
    name = trace.meta.get("world")
    if not isinstance(name, str):
        return None
    registry.check_consent([name], allow, where=trace.trace_id)
    from counterpoint.lab.worlds.world import world

    try:
        return world(name)
    except NotFound:
        return None


class OwnReplays:
    """A replay of traces that different worlds or teams made: each is forked by its own."""

    def __init__(self, by_maker: Mapping[str, Any]) -> None:
        self._by_maker = by_maker

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """The trace that would have come about, had `do` been done at event id `at`."""
        made: Trace = self._of(trace).fork(trace, at, do, seed)
        return made

    def forks(self, trace: Trace, forks: Sequence[Fork]) -> list[Trace]:
        """The same, of many forks of one trace."""
        own = self._of(trace)
        many = getattr(own, "forks", None) if isinstance(trace.meta.get("team"), dict) else None
        return list(many(trace, forks)) if many else [own.fork(trace, f.at, f.do, f.seed) for f in forks]

    def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
        """The team reward of each fork, in the order given."""
        own = self._of(trace)
        if isinstance(own, ManyReplay):
            return own.returns(trace, forks)
        return np.array([t.rewards["team"] for t in self.forks(trace, forks)], np.float64)

    def _of(self, trace: Trace) -> Any:
        found = self._by_maker.get(_maker(trace))
        if found is None:
            raise NotIdentified("nothing says how this team would have gone on", _RECORDED, where=trace.trace_id)
        return found


def own_replays(traces: Sequence[Trace], replay: Callable[[Trace], Any]) -> Any:
    """What forks all of these traces, each by the world or team that made it; None where nothing forks any of them."""
    one_of = {_maker(trace): trace for trace in reversed(traces)}
    by_maker = {maker: replay(trace) for maker, trace in reversed(one_of.items())}
    kinds = list(by_maker.values())
    if all(found is kinds[0] for found in kinds):
        return kinds[0]
    return OwnReplays(by_maker)


def _maker(trace: Trace) -> str:
    """Which world or recorded team made a trace: traces of one maker are forked by one replay."""
    team = trace.meta.get("team")
    if isinstance(team, dict):
        return json.dumps(team, sort_keys=True, default=str)
    name = trace.meta.get("world")
    return f"world {name}" if isinstance(name, str) else ""


# -- Whether a trace can be forked, and what it was forked from -------------------------------------------------------
# Always true: looking at a trace imports no code that the trace names: the page never allows any, so only shipped worlds,
# tasks, topologies and tools are looked up, by their plain names.


def world_of(trace: Trace) -> Any:
    """The shipped world that made the trace, as a `Replay`; None where there is none, or where a trace names other code."""
    try:
        return replay_of(trace)
    except CounterpointError:
        return None


def free_replay(trace: Trace) -> ManyReplay | None:
    """The shipped world that made the trace, which can fork it without asking a model; None where there is none."""
    found = None if isinstance(trace.meta.get("team"), dict) else world_of(trace)
    return found if isinstance(found, ManyReplay) else None


def last_merge(trace: Trace) -> Any:
    """The last merge of a recorded live team, to be made again without a model; None where a trace is no such recording."""
    if not isinstance(trace.meta.get("team"), dict):
        return None
    from counterpoint.lab.team.remerge import Remerge
    from counterpoint.lab.team.session import Spec

    Spec.of(trace.meta["team"]).check_consent((), where=trace.trace_id, with_model=False, is_fork=True)
    return Remerge(trace)


def can_fork(trace: Trace) -> bool:
    """Whether an edit of this trace can be followed."""
    return isinstance(world_of(trace), ManyReplay)


def fork_refusal(trace: Trace) -> str | None:
    """Why the page cannot fork a trace, in a sentence; None where it can."""
    if can_fork(trace):
        return None
    if isinstance(trace.meta.get("import"), dict):
        return "This trace was imported: Counterpoint cannot run that team again, so nobody knows how it would have continued."
    if isinstance(trace.meta.get("team"), dict) or isinstance(trace.meta.get("world"), str):
        return "This trace names code that is not part of Counterpoint, and the page runs none; counterpoint fork --allow can."
    return "This trace does not say which simulated world or recorded team made it, so it cannot be run again."


def parent_of(trace: Trace) -> str | None:
    """The trace that this one was forked from: the simulator adds `-ID` for every edit, the recorder says so in `meta`."""
    said = trace.meta.get("parent")
    if isinstance(said, str):
        return said
    edits = trace.meta.get("edits")
    last = edits[-1] if isinstance(edits, list) and edits else None
    tag = f"-{last['id']}" if isinstance(last, dict) and isinstance(last.get("id"), str) else None
    return trace.trace_id.removesuffix(tag) if tag and trace.trace_id.endswith(tag) else None


def edit(is_deleted: bool, substitute: str | None, force: str | None) -> Do:
    """The one edit that was asked for."""
    if is_deleted + (substitute is not None) + (force is not None) != 1:
        raise InputError("one edit at a time", fix="give one of --delete, --substitute VALUE and --force JSON")
    if is_deleted:
        return Delete()
    try:
        value = json.loads(force if force is not None else substitute or "")
    except ValueError:
        value = substitute
    if force is None:
        return Substitute(value)
    if not isinstance(value, dict):
        raise InputError(f"no JSON object: {force!r}", where="--force", fix="as in --force '{\"spawn\": 2}'")
    return Force(value)


def named_model(trace: Trace, live: Mapping[str, Any]) -> Any:
    """The model that was named for changed calls of a live team; None leaves them to what the trace names."""
    if live["model_name"] is None:
        return None
    from counterpoint.lab.team.session import Spec, make_model

    spec = Spec.of(trace.meta.get("team") or {})
    spec.check_consent(live["allow"], where=trace.trace_id, with_model=False, is_fork=True)
    options = {name: live[name] for name in ("base_url", "key_env") if live[name] is not None}
    return make_model(live["model_name"], spec.make_task(), **options)


def replay_for(trace: Trace, *, model: Any = None, allow: Sequence[str] = ()) -> ManyReplay:
    """The world that made the trace, or the recording of its team; `model` answers what a recording cannot."""
    found, name = replay_of(trace, model=model, allow=allow), trace.meta.get("world")
    if found is None:
        what = f"its world {name!r} is not here" if isinstance(name, str) else "nothing says how this team would have gone on"
        raise NotIdentified(what, _RECORDED, where=trace.trace_id)
    if not isinstance(found, ManyReplay):
        fix = "fork a trace of a TeamWorld: W1, W2, D, P, V, A or M"
        raise NotIdentified(f"the world {name} cannot fork", fix, where=trace.trace_id)
    return found


def effect_of(replay: ManyReplay, trace: Trace, at: str, do: Do, seed: int, samples: int) -> dict[str, Any]:
    """Team reward with the edit less without it, on the same fresh noise."""
    from counterpoint.lab.bench.claim import mean_interval

    seeds = range(seed, seed + samples)
    values = replay.returns(trace, [Fork(at, d, s) for d in (do, None) for s in seeds])
    mean, low, high = mean_interval((values[:samples] - values[samples:]).tolist())
    return {"mean": mean, "low": low, "high": high, "samples": samples, "seed": seed}


def counts(found: Diff, blast: Blast | None, forked: Trace | None = None) -> dict[str, int]:
    """How many events were taken over, run again, came and went; a live fork says of each event how it came by it."""
    told = Counter(badge for badge in _told(forked).values()) if forked is not None else None
    if told:
        return {name: told[name] for name in ("reused", "recorded", "re-run", "simulated")} | {"gone": len(found.gone)}
    out = {"reused": found.same, "re-run": len(found.changed), "new": len(found.new), "gone": len(found.gone)}
    if blast is not None:
        again = int(blast.reran.sum()) - len(found.gone)
        out |= {"reused": len(blast.reran) - int(blast.reran.sum()), "re-run": max(again, 0)}
    return out


def badges(original: Trace, forked: Trace, at: str) -> dict[str, str]:
    """Each event of a fork by its id: `reused` as recorded, `re-run` on what had changed, `simulated` where it is new."""
    told = _told(forked)
    if told:
        return told
    from counterpoint.audits.blast import blast_radius
    from counterpoint.audits.diff import aligned

    blast = blast_radius(original, forked, at)
    again = dict(zip(aligned(original.events), blast.reran.tolist(), strict=True))
    words = {None: "simulated", True: "re-run", False: "reused"}
    return {event.id: words[again.get(key)] for key, event in zip(aligned(forked.events), forked.events, strict=True)}


def _told(forked: Trace) -> dict[str, str]:
    """The badges that a live fork carries in its events; empty for a simulated one."""
    return {e.id: str(e.extra["badge"]) for e in forked.events if e.extra and "badge" in e.extra}
