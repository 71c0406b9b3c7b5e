"""ATIF, the agent trajectory format of Harbor: steps, tool calls, observations, and sub-agents by reference.

A step of the agent is a step of its lane, its tool calls are tool calls, its observations are their answers. A result that
refers to a sub-agent's trajectory makes its call a spawn: the trajectory, inside the document or in another file, is that
agent, and the result is its return. A continuation goes on in the same lane, without the steps it copied.

References are only compared with the names and ids of the files at hand: no path that a trajectory names is ever opened.

What is lost: token ids, log-probabilities per token (their sum is kept), images, tool definitions of sub-agents.

Always true: a trajectory is played once; a sub-agent that cannot be found is reported as missing, and its answer is kept; a
reference that fits several trajectories, or none, leads nowhere.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import arguments_text
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, decode, number, seconds, string, text_of
from counterpoint.trace import Trace
from counterpoint.trace.keys import TOOLS

_DEEPEST = 50


def _sniff(head: bytes) -> bool:
    if b'"ATIF' not in head:
        return False
    return first_keys(head).get("schema_version", b"")[:5] == b'"ATIF'


def _read(session: Session) -> Iterator[Trace]:
    library = _Library(t for file in session.files for item in _items(session, file) for t in _documents(item, file.name))
    for root in library.roots() if library.top else ():
        try:
            yield from _TrajectoryTree(session, library, root).draft.traces()
        except RecursionError:
            session.report.broke(root.file, None, "is nested too deeply")


def _items(session: Session, file: File) -> Iterator[Any]:
    """The documents of a file: one, a list, or one per line."""
    try:
        whole = decode(file.data())
    except InputError:
        yield from (record for _, record in session.records(file))
        return
    session.report.records += 1
    yield from whole if isinstance(whole, list) else [whole]


class _TrajectoryTree:
    """The trajectories that hang on one root, on their way into a draft."""

    def __init__(self, session: Session, library: _Library, root: _Trajectory) -> None:
        self.library = library
        run = None if root.id or root.session else run_of(root.data)
        name = root.id or root.session or f"trajectory-{run}"
        asked = next((text_of(s.get("message")) for s in root.steps if s.get("source") == "user"), "")
        task = f"task-{sha256(asked.encode('utf-8', 'replace')).hexdigest()[:12]}" if asked else name
        self.draft: Draft = session.draft(
            name, task, system=string(as_dict(root.data.get("agent")).get("name")) or "atif", run=run
        )
        if stated := as_list(as_dict(root.data.get("agent")).get("tool_definitions")):
            self.draft.meta[TOOLS] = stated
        self.draft.meta["agent"] = {
            k: v for k, v in as_dict(root.data.get("agent")).items() if k in ("name", "version", "model_name")
        }
        self._played: set[int] = set()
        self._promised: set[int] = set()  # trajectories that a spawn will play
        self._briefed_spawns: set[str] = set()  # spawns whose agent has read its words
        self._names: set[str] = set()
        self._copied = 0
        self._play(root, self._lane(root, name, leads=True), None, 0)
        for trajectory in root.inside:
            if id(trajectory) not in self._played:
                lane = self._lane(trajectory, trajectory.id or trajectory.session or f"{name}/sub")
                self.draft.report.loose(f"the agent {lane.agent}: no step refers to its trajectory")
                self.draft.unspawned.add(lane.agent)
                self._play(trajectory, lane, None, 1)
        self._finish(root)

    def _lane(self, trajectory: _Trajectory, name: str, *, leads: bool = False) -> Lane:
        unique, k = name, 2
        while unique in self._names:
            unique, k = f"{name}~{k}", k + 1
        self._names.add(unique)
        return self.draft.lane(unique, role=string(as_dict(trajectory.data.get("agent")).get("name")), leads=leads)

    def _finish(self, root: _Trajectory) -> None:
        if self._copied:
            self.draft.meta["copied_steps"] = self._copied
        totals = as_dict(root.data.get("final_metrics"))
        wanted = (count(totals.get("total_prompt_tokens")) or 0) + (count(totals.get("total_completion_tokens")) or 0)
        stated = sum((row.get("tokens_in") or 0) + (row.get("tokens_out") or 0) for row in self.draft.rows.values())
        if wanted > stated:
            self.draft.report.lacks["tokens that the trajectory counts and no step states"] += wanted - stated
        for place in (as_dict(totals.get("extra")), as_dict(root.data.get("extra"))):
            if (reward := number(place.get("reward"))) is not None:
                self.draft.rewards["team"] = reward
            self.draft.rewards.update({k: v for k, v in as_dict(place.get("rewards")).items() if number(v) is not None})

    # -- a trajectory ----------------------------------------------------------------------------------------------------

    def _play(self, trajectory: _Trajectory, lane: Lane, parent: str | None, depth: int) -> None:
        part = 0
        while id(trajectory) not in self._played:
            self._played.add(id(trajectory))
            prefix = lane.agent if part == 0 else f"{lane.agent}+{part}"
            for k, step in enumerate(trajectory.steps):
                if step.get("is_copied_context") is True:
                    self._copied += 1
                else:
                    self._step(trajectory, lane, step, f"{prefix}/{step.get('step_id', k + 1)}", parent, depth)
            path = string(trajectory.data.get("continued_trajectory_ref"))
            following = self.library.at(path, trajectory) if path else None
            if path and following is None:
                self.draft.report.lacks["the trajectory that goes on from a part of one"] += 1
            if following is None:
                return
            trajectory, part = following, part + 1

    def _step(self, trajectory: _Trajectory, lane: Lane, step: dict[str, Any], key: str, parent: str | None, depth: int) -> None:
        at, text = seconds(step.get("timestamp")), text_of(step.get("message"))
        source = step.get("source")
        extra = {"step_extra": step["extra"]} if as_dict(step.get("extra")) else None
        if source == "agent":
            self._acts(trajectory, lane, step, key, at, text, extra)
        elif source == "user" and parent is not None:
            self._told_by_parent(lane, key, at, text, parent)
        elif source == "user":
            lane.prompt(text, at=at, id=key, extra=extra)
        elif source == "system":
            if text:
                lane.prompt(text, by="system", source="system", at=at, id=key, extra=extra)
        else:
            self.draft.report.unknown[f"step of {source}"] += 1
        self._observe(trajectory, lane, step, key, at, depth)

    def _told_by_parent(self, lane: Lane, key: str, at: float | None, text: str, parent: str) -> None:
        """A sub-agent's user is the agent that made it; its first words are those of the spawn."""
        spawn = next((event for event, kind in lane.heard if kind == "spawn"), None) if lane.last is None else None
        if spawn is not None and spawn not in self._briefed_spawns:
            self._briefed_spawns.add(spawn)
            ref = self.draft.rows[spawn].get("content_ref")
            if ref is not None and self.draft.contents[ref] != text:
                self.draft.set(spawn, extra={"arguments_ref": ref})
            self.draft.set(spawn, text=text)
            return
        event = lane.prompt(text, by=parent, source="peer", at=at, id=key)
        self.draft.edge(spawn or self.draft.lane(parent).last, event, "causal")

    def _acts(
        self,
        trajectory: _Trajectory,
        lane: Lane,
        step: dict[str, Any],
        key: str,
        at: float | None,
        text: str,
        extra: dict[str, Any] | None,
    ) -> None:
        metrics = as_dict(step.get("metrics"))
        usage = Usage.openai(metrics)
        if usage is None and step.get("llm_call_count") != 0:
            self.draft.report.lacks["tokens of some steps"] += 1
        logprobs = [p for value in as_list(metrics.get("logprobs")) if (p := number(value)) is not None]
        calls = [c for c in as_list(step.get("tool_calls")) if isinstance(c, dict)]
        lane.step(
            id=key,
            at=self._began(lane, at),
            end=at,
            text=text,
            thinking=text_of(step.get("reasoning_content") or ""),
            usage=usage,
            cost_usd=number(metrics.get("cost_usd")),
            logp=sum(logprobs) if logprobs else None,
            model=string(step.get("model_name")) or string(as_dict(trajectory.data.get("agent")).get("model_name")),
            only_calls=bool(calls),
            extra=extra,
        )
        spawning = {string(result.get("source_call_id")) for result, _ in _references(step)}
        for k, call in enumerate(calls):
            name = string(call.get("tool_call_id"))
            if name is None or name not in spawning:
                tool = string(call.get("function_name")) or "tool"
                event = f"{lane.agent}/{name}" if name else f"{key}/call{k}"
                lane.call(tool, arguments_text(call.get("arguments")), call=name, at=at, id=event)

    def _began(self, lane: Lane, end: float | None) -> float | None:
        """A step's timestamp is when it was done; it began when all that it read was there."""
        read = [self.draft.rows[e] for e in [*(event for event, _ in lane.heard), *([lane.last] if lane.last else [])]]
        known = [row["at"] + (row.get("dur") or 0.0) for row in read if row["at"] is not None]
        return end if not known or end is None else min(max(known), end)

    # -- observations ----------------------------------------------------------------------------------------------------

    def _observe(self, trajectory: _Trajectory, lane: Lane, step: dict[str, Any], key: str, at: float | None, depth: int) -> None:
        calls = {c.get("tool_call_id"): c for c in as_list(step.get("tool_calls")) if isinstance(c, dict)}
        made_now: list[tuple[Lane, str, _Trajectory | None, dict[str, Any]]] = []
        # All that a step spawns is spawned before the first of them is played: they may have worked side by side.
        for k, (result, ref) in enumerate(_references(step)):
            call = as_dict(calls.get(result.get("source_call_id")))
            made_now.append((*self._spawn(trajectory, lane, ref, call, f"{key}/spawn{k}", at, depth), result))
        for child, spawn, target, result in made_now:
            if target is not None:
                self._play(target, child, lane.agent, depth + 1)
            back = self.draft.rows[child.last]["at"] if child.last else None
            child.returns(lane.agent, text_of(result.get("content")), at=back, id=f"{spawn}/return")
        for k, result in enumerate(as_list(as_dict(step.get("observation")).get("results"))):
            if isinstance(result, dict) and not result.get("subagent_trajectory_ref"):
                lane.result(string(result.get("source_call_id")), text_of(result.get("content")), id=f"{key}/result{k}")

    def _spawn(
        self, parent: _Trajectory, lane: Lane, ref: dict[str, Any], call: dict[str, Any], key: str, at: float | None, depth: int
    ) -> tuple[Lane, str, _Trajectory | None]:
        target = self.library.find(ref, parent)
        session, path = string(ref.get("session_id")), string(ref.get("trajectory_path"))
        # A session id that siblings share is the last name to take.
        others = (path, session) if parent.has_run_scoped_sessions else (session, path)
        named = string(ref.get("trajectory_id")) or (target.child.id if target else None) or others[0] or others[1] or key
        is_new = target is not None and id(target.child) not in self._played | self._promised and depth < _DEEPEST
        leads_to = target.child if target is not None and is_new else None
        child = self._lane(leads_to or _Trajectory({}, ""), named)
        extra = {"tool_name": string(call.get("function_name")), "call_id": string(call.get("tool_call_id"))}
        text = arguments_text(call.get("arguments"))
        spawn = lane.spawn(child.agent, role=child.role, text=text, at=at, id=key, extra=extra)
        if target is None or leads_to is None:
            self.draft.report.loose(f"the sub-agent {named}: its trajectory is not among the files, or not the only one")
        else:
            self._promised.add(id(leads_to))
            self.draft.report.linked(target.rule, exact=target.is_stated)
        return child, spawn, leads_to


# -- which trajectory refers to which ------------------------------------------------------------------------------------------


_VERSION = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(eq=False)
class _Trajectory:
    """One document, in a file or inside another."""

    data: dict[str, Any]
    file: str
    within: _Trajectory | None = None
    inside: list[_Trajectory] = field(default_factory=list)

    @property
    def id(self) -> str | None:
        """The document's own id."""
        return string(self.data.get("trajectory_id"))

    @property
    def session(self) -> str | None:
        """The run's id, which sub-agents may share."""
        return string(self.data.get("session_id"))

    @property
    def has_run_scoped_sessions(self) -> bool:
        """Whether session ids name runs and not trajectories (since v1.7)."""
        version = _VERSION.search(str(self.data.get("schema_version")))
        return version is not None and (int(version[1]), int(version[2])) >= (1, 7)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps that are objects."""
        return [s for s in as_list(self.data.get("steps")) if isinstance(s, dict)]


@dataclass(frozen=True)
class _Target:
    """What a reference leads to, and by which rule.

    Since v1.7 siblings share a session id, so that a link by it is inferred and not stated.
    """

    child: _Trajectory
    rule: str
    is_stated: bool = True


def _documents(data: Any, file: str, within: _Trajectory | None = None, depth: int = 0) -> Iterator[_Trajectory]:
    """A document as a trajectory, those inside it hung on it."""
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        return
    trajectory = _Trajectory(data, file, within)
    if depth < _DEEPEST:
        for item in as_list(data.get("subagent_trajectories")):
            trajectory.inside += _documents(item, file, trajectory, depth + 1)
    yield trajectory


def _references(step: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each result of a step that refers to sub-agents, with each reference."""
    for result in as_list(as_dict(step.get("observation")).get("results")):
        for ref in _refs(as_dict(result).get("subagent_trajectory_ref")):
            yield result, ref


def _refs(raw: Any) -> list[dict[str, Any]]:
    items = raw if isinstance(raw, list) else [raw]
    named = [{"trajectory_path": item} if isinstance(item, str) else item for item in items]
    return [item for item in named if isinstance(item, dict) and item]


class _Library:
    """All trajectories of a session."""

    def __init__(self, trajectories: Iterable[_Trajectory]) -> None:
        self.top = list(trajectories)
        self._files: dict[str, list[_Trajectory]] = {}
        for trajectory in self.top:
            self._files.setdefault(posixpath.normpath(trajectory.file), []).append(trajectory)

    def find(self, ref: dict[str, Any], parent: _Trajectory) -> _Target | None:
        """What a reference of a trajectory leads to."""
        name, path, session = (string(ref.get(k)) for k in ("trajectory_id", "trajectory_path", "session_id"))
        if name and (child := _only(t for t in [*parent.inside, *self.top] if t.id == name and t is not parent)):
            return _Target(child, "trajectory_id")
        if path and (child := self.at(path, parent)):
            return _Target(child, "trajectory_path")
        if session and not name:
            child = _only(t for t in [*parent.inside, *self.top] if t.session == session and t is not parent)
            return _Target(child, "session_id", not parent.has_run_scoped_sessions) if child else None
        return None

    def at(self, path: str, parent: _Trajectory) -> _Trajectory | None:
        """The trajectory in the file of a path, from the folder of the one that names it; or in that folder, by its last part."""
        folder = posixpath.dirname(parent.file)
        for name in (posixpath.join(folder, path), posixpath.join(folder, posixpath.basename(path))):
            match = _only(t for t in self._files.get(posixpath.normpath(name), ()) if t is not parent)
            if match is not None:
                return match
        return None

    def roots(self) -> list[_Trajectory]:
        """Those that no other refers to; the first of all where they refer to each other in a circle."""
        led: set[int] = set()
        for trajectory in _all(self.top):
            led |= {id(f.child) for step in trajectory.steps for _, ref in _references(step) if (f := self.find(ref, trajectory))}
            if path := string(trajectory.data.get("continued_trajectory_ref")):
                led |= {id(child) for child in [self.at(path, trajectory)] if child}
        return [t for t in self.top if id(t) not in led] or self.top[:1]


def _all(trajectories: Iterable[_Trajectory]) -> Iterator[_Trajectory]:
    for trajectory in trajectories:
        yield trajectory
        yield from _all(trajectory.inside)


def _only(trajectories: Iterable[_Trajectory]) -> _Trajectory | None:
    some = list(trajectories)
    return some[0] if len(some) == 1 else None


def _group(files: Sequence[File]) -> Iterable[Session]:
    """Files that refer to each other are one session, named by the first of them."""
    by_file = {file.name: list(_light(file)) for file in files}
    library = _Library(t for some in by_file.values() for t in some)
    home = {file.name: file.name for file in files}

    def root(name: str) -> str:
        while home[name] != name:
            home[name] = home[home[name]]
            name = home[name]
        return name

    for one in _all(library.top):
        led = [f.child for step in one.steps for _, ref in _references(step) if (f := library.find(ref, one))]
        if path := string(one.data.get("continued_trajectory_ref")):
            led += [t for t in [library.at(path, one)] if t]
        for other in led:
            first, second = sorted((root(one.file), root(other.file)))
            home[second] = first
    together: dict[str, list[File]] = {}
    for file in files:
        together.setdefault(root(file.name), []).append(file)
    return [Session(key, some) for key, some in sorted(together.items())]


def _light(file: File) -> Iterator[_Trajectory]:
    """The trajectories of a file, with their references and nothing else; what cannot be read is counted later, by `_items`."""
    try:
        whole = decode(file.data())
    except InputError:
        whole = _lines(file)
    for item in whole if isinstance(whole, list) else [whole]:
        yield from _documents(_thin(item), file.name)


def _lines(file: File) -> list[Any]:
    out = []
    try:
        for _, line in file.lines():
            try:
                out.append(decode(line or b""))
            except InputError:
                continue
    except InputError:
        pass
    return out


def _thin(data: Any, depth: int = 0) -> Any:
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        return None
    names = ("schema_version", "trajectory_id", "session_id", "continued_trajectory_ref")
    refs = [ref for step in data["steps"] if isinstance(step, dict) for _, ref in _references(step)]
    inside = as_list(data.get("subagent_trajectories")) if depth < _DEEPEST else []
    return {
        **{name: data[name] for name in names if name in data},
        "steps": [{"observation": {"results": [{"subagent_trajectory_ref": refs}]}}] if refs else [],
        "subagent_trajectories": [_thin(item, depth + 1) for item in inside],
    }


atif = Importer(
    suffixes=(".trajectory.json",),
    sniff=_sniff,
    signs=("schema_version", "session_id", "agent", "steps", "step_id", "source"),
    system="atif",
    read_session=_read,
    group=_group,
    becomes={
        "step of the agent": ("orchestrator_decision", "message", "aggregate", "tool_call"),
        "step of the user": ("human_intervention",),
        "step of the system": ("message",),
        "observation": ("tool_result",),
        "subagent_trajectory_ref": ("spawn", "return"),
    },
    versions="1.0 to 1.8",
    exact="tokens, cost, sub-agents, rewards",
    lost="token ids, log-probabilities per token, images, tools of sub-agents, the task's name",
)
