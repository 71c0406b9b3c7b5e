"""Forks for the command line and the page: what was asked as an edit, who can follow it, and what became of each event.

Always true: a trace that nothing can replay is `NotIdentified`, with what would help; an effect is paired on one fresh noise.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.errors import CounterpointError, InputError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.keys import REPLAY
from counterpoint.trace.replay import Delete, Do, Force, Fork, ManyReplay, Substitute
from counterpoint.trace.statistics import mean_ends

if TYPE_CHECKING:
    from counterpoint.audits.blast import Blast
    from counterpoint.audits.diff import Diff


_RECORDED = "fork a trace of `counterpoint play` or `counterpoint play --world NAME`; .jsonl keeps what it takes"


# -- Who can fork a trace: the world that made it, or the recording of the live team, found by what the trace says of itself --
# Always true: what plays a team again is asked of installed packages (`registry.hooks`). A trace that none of them can play has
# no replay; whoever needs one says so (`NotIdentified`) and names what would help. An endpoint is never asked because a trace
# names it: only a model that is named anew. Code that a trace names is imported where `allow` names it too, and else `Refused`.


def replay_of(trace: Trace, *, model: Any = None, allow: Collection[str] = (), team: Any = None) -> Any:
    """The world whose trace this is, or its recording, as a `Replay`; None where nothing that is installed has one.

    `team`, a `FILE:FUNCTION`, is a person's own code, which is run again over its recording."""
    if team is not None:
        from counterpoint.recorder.team_replay import TeamReplay

        return TeamReplay(team, allow=allow, model=model)
    return registry.answer("replay_of", trace, model=model, allow=allow)


def is_log(trace: Trace) -> bool:
    """Whether a trace says of no world, team or code that it could run it again: it was imported, or put together."""
    return not (isinstance(trace.meta.get("team"), dict) or isinstance(trace.meta.get("world"), str) or REPLAY in trace.meta)


def log_replay(trace: Trace, model: Any, *, tools: str, cap: Mapping[str, Any], allow: Collection[str] = ()) -> Any:
    """What lets a model answer anew in a logged session; the laboratory has the models."""
    found = registry.answer("replay_of", trace, model=model, allow=allow, log={"tools": tools, "caps": cap})
    if found is None:
        raise NotIdentified("no installed package asks a model", "pip install with the laboratory", where=trace.trace_id)
    return found


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
            raise NotIdentified("nothing says how this team would have continued", _RECORDED, where=trace.trace_id)
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
    return f"world {name}" if isinstance(name, str) else "code" if REPLAY in trace.meta else ""


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
    return registry.answer("last_merge", trace)


def can_fork(trace: Trace) -> bool:
    """Whether an edit of this trace can be followed."""
    return isinstance(world_of(trace), ManyReplay)


def fork_refusal(trace: Trace) -> str | None:
    """Why the page cannot fork a trace, in a sentence; None where it can."""
    if can_fork(trace):
        return None
    if isinstance(trace.meta.get("import"), dict):
        return "This trace was imported: Counterpoint cannot run that team again, so nobody knows how it would have continued."
    if REPLAY in trace.meta:
        return "Your own code made this trace, and the page runs none; counterpoint fork --team my.py:team does."
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


def edit(do: str | None, substitute: str | None, decide: str | None) -> Do:
    """The one edit of the command line; `do` is delete, redraw or edit, whose text is then the substitute."""
    if (do in ("delete", "redraw")) + (substitute is not None) + (decide is not None) != 1:
        raise InputError("one edit at a time", fix="name one of --do, --substitute VALUE and --decide JSON")
    if do in ("delete", "redraw"):
        return Delete() if do == "delete" else Substitute()
    try:
        value = json.loads(decide if decide is not None else substitute or "")
    except ValueError:
        value = substitute
    if decide is None:
        return Substitute(value)
    if not isinstance(value, dict):
        raise InputError(f"no JSON object: {decide!r}", where="--decide", fix="as in --decide '{\"spawn\": 2}'")
    return Force(value)


def named_model(trace: Trace, live: Mapping[str, Any]) -> Any:
    """The model that was named for changed calls of a live team; None leaves them to what the trace names.

    Of a person's own team it is a function of theirs, by its name, as the team is."""
    if live["model_name"] is None or live.get("team") is not None:
        return live["model_name"]
    return registry.hook("named_model", "a live team is played")(trace, live)


def replay_for(trace: Trace, *, model: Any = None, allow: Sequence[str] = (), team: Any = None) -> ManyReplay:
    """The world that made the trace, or the recording of its team; `model` answers what a recording cannot."""
    found, name = replay_of(trace, model=model, allow=allow, team=team), trace.meta.get("world")
    if found is None:
        what = "nothing says how this team would have continued"
        if REPLAY in trace.meta:
            fix = "--team my.py:team, the function that ran it, runs it again over its recording"
            raise NotIdentified(what, fix, where=trace.trace_id)
        if isinstance(trace.meta.get("team"), dict):
            what = "no installed package plays its team again"
        elif isinstance(name, str):
            what = f"its world {name!r} is not here"
        raise NotIdentified(what, _RECORDED, where=trace.trace_id)
    if not isinstance(found, ManyReplay):
        fix = "fork a trace of a TeamWorld: W1, W2, D, P, V, A or M"
        raise NotIdentified(f"the world {name} cannot fork", fix, where=trace.trace_id)
    return found


def effect_of(replay: ManyReplay, trace: Trace, at: str, do: Do, seed: int, samples: int) -> dict[str, Any]:
    """Team reward with the edit less without it, on the same fresh noise."""
    if samples < 1:
        raise InputError("there are no samples to take the mean of", where="samples", fix="1 or more")
    seeds = range(seed, seed + samples)
    values = replay.returns(trace, [Fork(at, d, s) for d in (do, None) for s in seeds])
    gains = (values[:samples] - values[samples:]).tolist()
    is_finite = all(map(math.isfinite, gains))
    low, high = mean_ends(gains) if is_finite else (None, None)
    mean = math.fsum(gains) / samples if is_finite else math.nan
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
