"""`cpt.fork` and `cpt.diff`: one event changed, and what came of it; two traces side by side.

Always true: the trace that is given is not touched, and nothing is stored; with one fork no effect is claimed, an interval needs
`samples`, which pair the run with and without the edit on the same fresh noise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from counterpoint.app.api.inputs import one_trace
from counterpoint.app.forks import badges, counts, effect_of, is_log, log_replay, named_model, replay_for
from counterpoint.audits.blast import Blast, blast_radius
from counterpoint.audits.diff import Diff
from counterpoint.audits.diff import diff as compared
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.outcome import as_recorded
from counterpoint.trace.replay import Do
from counterpoint.trace.tabular import Tabular

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import StorePlace


@dataclass(frozen=True)
class Forked(Tabular):
    """A fork: the new trace, what differs, how far the edit reached and, where samples were asked for, its effect."""

    TABLE: ClassVar = {"event": "string", "t": "double", "agent": "string", "type": "string", "badge": "string"}

    original: Trace
    """As its run scored itself."""
    trace: Trace
    at: str
    diff: Diff
    blast: Blast | None
    """What could depend on the event and what changed; None with fresh noise, where everything after it may differ."""
    effect: dict[str, Any] | None
    """Team reward with the edit less without it: mean, low, high, samples, seed."""

    @property
    def counts(self) -> dict[str, int]:
        """How many events were taken over, run again, came and went."""
        return counts(self.diff, self.blast, self.trace)

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per event of the fork: reused as recorded, re-run on what had changed, or simulated."""
        said = badges(self.original, self.trace, self.at)
        return ((e.id, float(e.t), e.agent, e.type, said.get(e.id)) for e in self.trace.events)

    def row_count(self) -> int:
        """How many events the fork has."""
        return len(self.trace.events)

    def caption(self) -> str:
        """What was forked where, and what came of it."""
        before, after = self.original.rewards.get("team"), self.trace.rewards.get("team")
        told = ", ".join(f"{name} {count:,}" for name, count in self.counts.items())
        mean = "" if self.effect is None else f"; effect {self.effect['mean']:+.4g}"
        return f"{self.trace.trace_id}: {self.original.trace_id} forked at {self.at}; {told}; team {before} -> {after}{mean}"


def fork(
    trace: Trace | str | os.PathLike[str],
    at: str,
    do: Do | None = None,
    *,
    seed: int | None = None,
    samples: int | None = None,
    store: StorePlace = None,
    model: Any = None,
    base_url: str | None = None,
    key_env: str | None = None,
    allow: Sequence[str] = (),
    team: Any = None,
    tools: str = "stop",
    cap: Mapping[str, float] | None = None,
) -> Forked:
    """Change the event `at` of a simulated or live run and let everybody react; of a logged session, let `model` answer anew.

    `do` is `cpt.Delete()`, `cpt.Substitute(value)`, `cpt.Insert(value)` or `cpt.Force({"spawn": 2})`; None changes nothing, so
    that with a `seed` the rest is resampled. `samples` estimates the effect on the team reward over fresh continuations.
    `model` (a name such as `openai:NAME`, or a model) answers changed calls of a live team; `allow` names irreversible tools,
    and code that the trace names, that may run. `team` is the function that ran a recorded team of your own (or `FILE:FUNCTION`):
    it runs again over its recording, and `model` is then a function that new model calls ask. In an imported session the model
    answers from the turn at `at` on; `tools` says who answers calls that the recording does not (`stop`, `model`, `python`), and
    `cap` what it may take (`calls`, 20 unless told; `tokens`, `usd`, `seconds`). `cpt.save(forked.trace, FILE)`
    keeps the fork. A person's score is of the run as it was: the fork does not have it, and the rewards before and after are
    those that the world or the team's task gives.

    >>> import counterpoint as cpt
    >>> trace = cpt.world("W1", vote_items=12).run("reference", [0], log=True).trace(0)
    >>> at = next(event.id for event in trace.events if event.type == "message")
    >>> forked = cpt.fork(trace, at, cpt.Delete())
    >>> forked.diff.is_same, sum(forked.counts.values()) >= len(forked.trace.events)
    (False, True)
    """
    if samples is not None and do is None:
        raise InputError("samples compare an edit with none", where="samples", fix="do=cpt.Delete(), or no samples")
    loaded = as_recorded(one_trace(trace, store))
    if isinstance(model, str):
        model = named_model(loaded, {"model_name": model, "base_url": base_url, "key_env": key_env, "allow": allow, "team": team})
    if is_log(loaded) and team is None:
        return _log_fork(loaded, at, do, seed, samples, log_plan(loaded, model, tools=tools, cap=cap, allow=allow))
    replay = replay_for(loaded, model=model, allow=allow, team=team)
    forked = replay.fork(loaded, at, do, seed)
    blast = blast_radius(loaded, forked, at) if seed is None else None
    effect = None if samples is None or do is None else effect_of(replay, loaded, at, do, seed or 0, samples)
    return Forked(loaded, forked, at, compared(loaded, forked), blast, effect)


def log_plan(loaded: Trace, model: Any, *, tools: str, cap: Mapping[str, float] | None, allow: Sequence[str]) -> Any:
    """What answers anew in a logged session: its `plan` says what that may take, its `fork` does it."""
    if model is None:
        fix = "--model openai:NAME or anthropic:NAME lets a model answer anew from there (--dry-run shows what it reads)"
        raise NotIdentified("nothing says how this team would have continued", fix, where=loaded.trace_id)
    return log_replay(loaded, model, tools=tools, cap=cap or {}, allow=allow)


def _log_fork(loaded: Trace, at: str, do: Do | None, seed: int | None, samples: int | None, replay: Any) -> Forked:
    if samples is not None:
        fix = "fork it once, and compare the two; an effect needs a trace of `counterpoint play`"
        raise InputError("a logged session has no score, so no effect is estimated", where="samples", fix=fix)
    forked = replay.fork(loaded, at, do, seed)
    return Forked(loaded, forked, at, compared(loaded, forked), None, None)


def diff(a: Trace | str | os.PathLike[str], b: Trace | str | os.PathLike[str], *, store: StorePlace = None) -> Diff:
    """Compare two traces, such as a run and its fork: the first divergence, what changed, came and went.

    >>> import counterpoint as cpt
    >>> world = cpt.world("W1", vote_items=12)
    >>> a, b = (world.run("reference", [seed], log=True).trace(0) for seed in (0, 1))
    >>> cpt.diff(a, a).is_same, cpt.diff(a, b).is_same
    (True, False)
    """
    return compared(one_trace(a, store), one_trace(b, store))
