"""ATIF, the agent trajectory format of Harbor: steps, tool calls, observations, and sub-agents by reference.

A step of the agent is a step of its lane, its tool calls are tool calls, its observations are their answers. A result that
refers to a sub-agent's trajectory makes its call a spawn: the trajectory, inside the document or in another file, is that
agent, and the result is its return. A continuation goes on in the same lane, without the steps it copied.

References are only compared with the names and ids of the files at hand: no path that a trajectory names is ever opened.

What is lost: images, sounds, tool definitions of sub-agents. `document.py` writes a trace in this form; what it adds in `extra`
comes back.

Always true: a trajectory is played once; a sub-agent that cannot be found is reported as missing, and its answer is kept; a
reference that fits several trajectories, or none, leads nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.atif.document import document_of
from counterpoint.formats.atif.library import DEEPEST, Library, Trajectory, all_of, documents, ours_in, references
from counterpoint.formats.draft import Draft, one_line
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import arguments_text
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, decode, number, seconds, string, text_of
from counterpoint.trace import Trace
from counterpoint.trace.keys import PROJECT, TITLE, TOOLS
from counterpoint.trace.vocabulary import TOPOLOGIES

_NEWEST = "1.8"


def _sniff(head: bytes) -> bool:
    if b'"ATIF' not in head:
        return False
    return first_keys(head).get("schema_version", b"")[:5] == b'"ATIF'


def _read(session: Session) -> Iterator[Trace]:
    library = Library(t for file in session.files for item in _items(session, file) for t in documents(item, file.name))
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

    def __init__(self, session: Session, library: Library, root: Trajectory) -> None:
        self.library = library
        run = None if root.id or root.session else run_of(root.data)
        name = root.id or root.session or f"trajectory-{run}"
        asked = next((text_of(s.get("message")) for s in root.steps if s.get("source") == "user"), "")
        task = f"task-{sha256(asked.encode('utf-8', 'replace')).hexdigest()[:12]}" if asked else name
        ours, system = root.ours, string(as_dict(root.data.get("agent")).get("name")) or "atif"
        task, system = string(ours.get("task")) or task, string(ours.get("system")) or system
        self.draft: Draft = session.draft(name, task, system=system, run=run)
        if ours.get("topology") in TOPOLOGIES:
            self.draft.topology = str(ours["topology"])
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
        self._has_costs = False
        self._spoken: dict[str, str] = {}
        """What an event that was exported is called here, where somebody else read it."""
        self._read: list[tuple[str, str]] = []
        """Exported events with the step that read them."""
        self._unread: dict[str, list[str]] = {}
        """Agent to the exported events that its next step reads."""
        self._play(root, self._lane(root, root.agent or name, leads=True), None, 0)
        for trajectory in root.inside:
            if id(trajectory) not in self._played:
                lane = self._lane(trajectory, trajectory.agent or trajectory.id or trajectory.session or f"{name}/sub")
                self.draft.report.loose(f"the agent {lane.agent}: no step refers to its trajectory")
                self.draft.unspawned.add(lane.agent)
                self._play(trajectory, lane, None, 1)
        self._finish(root)

    def _lane(self, trajectory: Trajectory, name: str, *, leads: bool = False) -> Lane:
        unique, k = name, 2
        while unique in self._names:
            unique, k = f"{name}~{k}", k + 1
        self._names.add(unique)
        return self.draft.lane(unique, role=string(as_dict(trajectory.data.get("agent")).get("name")), leads=leads)

    def _finish(self, root: Trajectory) -> None:
        for said, reader in self._read:
            self.draft.edge(self._spoken.get(said), reader, "message")
        if self._copied:
            self.draft.meta["copied_steps"] = self._copied
        totals = as_dict(root.data.get("final_metrics"))
        wanted = (count(totals.get("total_prompt_tokens")) or 0) + (count(totals.get("total_completion_tokens")) or 0)
        stated = sum((row.get("tokens_in") or 0) + (row.get("tokens_out") or 0) for row in self.draft.rows.values())
        if wanted > stated:
            self.draft.report.lacks["tokens that the trajectory counts and no step states"] += wanted - stated
        if whole := max(wanted, count(root.ours.get("tokens")) or 0):
            self.draft.costs["tokens"] = whole
        self.draft.meta |= {name: one_line(words) for name in (TITLE, PROJECT) if (words := string(root.ours.get(name)))}
        if (cost := number(totals.get("total_cost_usd"))) is not None:
            if not self._has_costs:
                self.draft.own_cost(cost)
            self.draft.costs["cost_usd"] = cost
        for place in (as_dict(totals.get("extra")), as_dict(root.data.get("extra"))):
            if (reward := number(place.get("reward"))) is not None:
                self.draft.rewards["team"] = reward
            self.draft.rewards.update({k: v for k, v in as_dict(place.get("rewards")).items() if number(v) is not None})

    # -- a trajectory ----------------------------------------------------------------------------------------------------

    def _play(self, trajectory: Trajectory, lane: Lane, parent: str | None, depth: int) -> None:
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

    def _step(self, trajectory: Trajectory, lane: Lane, step: dict[str, Any], key: str, parent: str | None, depth: int) -> None:
        at, text = seconds(step.get("timestamp")), text_of(step.get("message"))
        source = step.get("source")
        extra = {"step_extra": step["extra"]} if as_dict(step.get("extra")) else None
        ours = ours_in(step)
        if source == "agent":
            self._acts(trajectory, lane, step, key, at, text, extra)
        elif source == "user" and string(ours.get("event")) and ("person" not in ours or str(ours["event"]) in self._spoken):
            self._unread.setdefault(lane.agent, []).append(str(ours["event"]))  # the words of another step in the document
        elif source == "user" and parent is not None and "person" not in ours:
            self._told_by_parent(lane, key, at, text, parent)
        elif source == "user":
            asked = lane.prompt(text, by=string(ours.get("person")) or "user", at=at, id=key, extra=extra)
            self._spoken |= {str(ours["event"]): asked} if string(ours.get("event")) else {}
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
        trajectory: Trajectory,
        lane: Lane,
        step: dict[str, Any],
        key: str,
        at: float | None,
        text: str,
        extra: dict[str, Any] | None,
    ) -> None:
        metrics = as_dict(step.get("metrics"))
        usage = _usage(metrics)
        if usage is None and step.get("llm_call_count") != 0:
            self.draft.report.lacks["tokens of some steps"] += 1
        cost = number(metrics.get("cost_usd"))
        self._has_costs = self._has_costs or cost is not None
        logprobs = [p for value in as_list(metrics.get("logprobs")) if (p := number(value)) is not None]
        logp = sum(logprobs) if logprobs else number(as_dict(metrics.get("extra")).get("logp"))
        calls = [c for c in as_list(step.get("tool_calls")) if isinstance(c, dict)]
        is_dispatch = step.get("llm_call_count") == 0
        leads, lane.leads = lane.leads, lane.leads and not is_dispatch  # what no model chose is no decision of the leader
        said = lane.step(
            id=key,
            at=self._began(lane, at),
            end=at,
            text=text,
            thinking=text_of(step.get("reasoning_content") or ""),
            usage=usage,
            cost_usd=cost,
            logp=logp,
            model=string(step.get("model_name")) or (None if is_dispatch else trajectory.model),
            only_calls=bool(calls),
            extra={**(extra or {}), **_call_note(metrics)} or None,
        )
        lane.leads = leads
        spawning = {string(result.get("source_call_id")) for result, _ in references(step)}
        for k, call in enumerate(calls):
            name = string(call.get("tool_call_id"))
            if ours_in(call).get("type") == "spawn":
                self._tries(lane, call, f"{lane.agent}/{name}", at)
            elif name is None or name not in spawning:
                tool = string(call.get("function_name")) or "tool"
                event = f"{lane.agent}/{name}" if name else f"{key}/call{k}"
                made = lane.call(tool, arguments_text(call.get("arguments")), call=name, at=at, id=event)
                said = said or made
        if said is not None:
            if name := string(ours_in(step).get("event")):
                self._spoken[name] = said
            self._read += [(source, said) for source in self._unread.pop(lane.agent, ())]

    def _tries(self, lane: Lane, call: dict[str, Any], id: str, at: float | None) -> None:
        """A spawn without a trajectory: nobody was made, or somebody who was there already."""
        ours, text = ours_in(call), arguments_text(call.get("arguments"))
        extra = {"tool_name": string(call.get("function_name")), "call_id": string(call.get("tool_call_id"))}
        child = string(ours.get("to"))
        lane.spawn(child, text=text, at=at, id=id, extra=extra, ok=ours.get("ok"), error=string(ours.get("error")))

    def _began(self, lane: Lane, end: float | None) -> float | None:
        """A step's timestamp is when it was done; it began when all that it read was there."""
        read = [self.draft.rows[e] for e in [*(event for event, _ in lane.heard), *([lane.last] if lane.last else [])]]
        known = [row["at"] + (row.get("dur") or 0.0) for row in read if row["at"] is not None]
        return end if not known or end is None else min(max(known), end)

    # -- observations ----------------------------------------------------------------------------------------------------

    def _observe(self, trajectory: Trajectory, lane: Lane, step: dict[str, Any], key: str, at: float | None, depth: int) -> None:
        calls = {c.get("tool_call_id"): c for c in as_list(step.get("tool_calls")) if isinstance(c, dict)}
        made_now: list[tuple[Lane, str, Trajectory | None, dict[str, Any]]] = []
        # All that a step spawns is spawned before the first of them is played: they may have worked side by side.
        for k, (result, ref) in enumerate(references(step)):
            call = as_dict(calls.get(result.get("source_call_id")))
            made_now.append((*self._spawn(trajectory, lane, ref, call, f"{key}/spawn{k}", at, depth), result))
        for child, spawn, target, result in made_now:
            if target is not None:
                self._play(target, child, lane.agent, depth + 1)
            back = self.draft.rows[child.last]["at"] if child.last else None
            if ours_in(result).get("returned") is False:
                continue
            child.returns(lane.agent, text_of(result.get("content")), at=back, id=f"{spawn}/return")
        for k, result in enumerate(as_list(as_dict(step.get("observation")).get("results"))):
            is_spawn = ours_in(result).get("type") == "spawn"
            if isinstance(result, dict) and not result.get("subagent_trajectory_ref") and not is_spawn:
                name, more, text = (
                    string(result.get("source_call_id")),
                    as_dict(result.get("extra")),
                    text_of(result.get("content")),
                )
                ok, error = (False, string(more.get("error"))) if more.get("is_error") is True else (None, None)
                lane.result(name, text, id=f"{key}/result{k}", tool=string(ours_in(result).get("tool")), ok=ok, error=error)

    def _spawn(
        self, parent: Trajectory, lane: Lane, ref: dict[str, Any], call: dict[str, Any], key: str, at: float | None, depth: int
    ) -> tuple[Lane, str, Trajectory | None]:
        target = self.library.find(ref, parent)
        session, path = string(ref.get("session_id")), string(ref.get("trajectory_path"))
        # A session id that siblings share is the last name to take.
        others = (path, session) if parent.has_run_scoped_sessions else (session, path)
        own = target.child.agent if target else None
        named = own or string(ref.get("trajectory_id")) or (target.child.id if target else None) or others[0] or others[1] or key
        is_new = target is not None and id(target.child) not in self._played | self._promised and depth < DEEPEST
        leads_to = target.child if target is not None and is_new else None
        child = self._lane(leads_to or Trajectory({}, ""), named)
        extra = {"tool_name": string(call.get("function_name")), "call_id": string(call.get("tool_call_id"))}
        text = arguments_text(call.get("arguments"))
        spawn = lane.spawn(child.agent, role=child.role, text=text, at=at, id=key, extra=extra)
        if target is None or leads_to is None:
            self.draft.report.loose(f"the sub-agent {named}: its trajectory is not among the files, or not the only one")
        else:
            self._promised.add(id(leads_to))
            self.draft.report.linked(target.rule, exact=target.is_stated)
        return child, spawn, leads_to


def _usage(metrics: dict[str, Any]) -> Usage | None:
    """The tokens of a step; what parts of them were has no field of its own and stands in `extra`."""
    more = as_dict(metrics.get("extra"))
    usage = Usage.openai(metrics)
    if usage is None or not (count(more.get("reasoning_tokens")) or count(more.get("cache_creation_input_tokens"))):
        return usage
    written, reasoning = (
        usage.cache_write or more.get("cache_creation_input_tokens"),
        usage.reasoning or more.get("reasoning_tokens"),
    )
    return Usage.whole(usage.input, usage.output, cached=usage.cache_read, written=written, reasoning=reasoning)


def _call_note(metrics: dict[str, Any]) -> dict[str, Any]:
    """The token ids and log-probabilities of a step, as an event keeps them; nothing where a value is none."""
    logps = [float(p) if p.__class__ is int else p for p in as_list(metrics.get("logprobs"))]
    kept = {
        "prompt_ids": as_list(metrics.get("prompt_token_ids")),
        "token_ids": as_list(metrics.get("completion_token_ids")),
        "logps": logps if all(number(p) is not None for p in logps) else [],
    }
    ids = [i for name in ("prompt_ids", "token_ids") for i in kept[name]]
    if not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < 1 << 31 for i in ids):
        return {}
    if kept["token_ids"] and kept["logps"] and len(kept["token_ids"]) != len(kept["logps"]):
        del kept["logps"]
    note = {name: values for name, values in kept.items() if values}
    return {"call": note} if note else {}


def _group(files: Sequence[File]) -> Iterable[Session]:
    """Files that refer to each other are one session, named by the first of them."""
    by_file = {file.name: list(_light(file)) for file in files}
    library = Library(t for some in by_file.values() for t in some)
    home = {file.name: file.name for file in files}

    def root(name: str) -> str:
        while home[name] != name:
            home[name] = home[home[name]]
            name = home[name]
        return name

    for one in all_of(library.top):
        led = [f.child for step in one.steps for _, ref in references(step) if (f := library.find(ref, one))]
        if path := string(one.data.get("continued_trajectory_ref")):
            led += [t for t in [library.at(path, one)] if t]
        for other in led:
            first, second = sorted((root(one.file), root(other.file)))
            home[second] = first
    together: dict[str, list[File]] = {}
    for file in files:
        together.setdefault(root(file.name), []).append(file)
    return [Session(key, some) for key, some in sorted(together.items())]


def _light(file: File) -> Iterator[Trajectory]:
    """The trajectories of a file, with their references and nothing else; what cannot be read is counted later, by `_items`."""
    try:
        whole = decode(file.data())
    except InputError:
        whole = _lines(file)
    for item in whole if isinstance(whole, list) else [whole]:
        yield from documents(_thin(item), file.name)


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
    refs = [ref for step in data["steps"] if isinstance(step, dict) for _, ref in references(step)]
    inside = as_list(data.get("subagent_trajectories")) if depth < DEEPEST else []
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
    lost="images, sounds, tools of sub-agents; edges but calls, results, spawns, returns and what was said",
    write=partial(document_of, version=_NEWEST),
    writes_too={version: partial(document_of, version=version) for version in ("1.7", _NEWEST)},
    fields={
        "document": (
            "schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics", "extra",
            "subagent_trajectories",
        ),
        "step": (
            "step_id", "timestamp", "source", "model_name", "message", "reasoning_content", "tool_calls", "observation",
            "metrics", "extra", "llm_call_count",
        ),
        "metrics": (
            "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "prompt_token_ids", "completion_token_ids",
            "logprobs", "extra",
        ),
    },
    keeps=("contents",),
)  # fmt: skip
