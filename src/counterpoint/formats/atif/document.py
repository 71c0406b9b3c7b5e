"""A trace as one ATIF document: the trajectory of its first agent, with those of all others inside the ones that spawned them.

A step of an agent is one call of its model, with the tool calls that follow from it and their results; what an agent was told
is a step of the user or of the system before it. A spawn is a tool call whose result refers to the sub-agent's trajectory and
holds what it returned. What somebody in the team said to it is a step of the user too, whose `extra` names the event.

Always true: steps are numbered from 1, each call has an id of its own in its document and each result names a call of its step; a
trajectory is referred to once at most; what is unknown is absent. The same trace gives the same bytes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from counterpoint.errors import InvalidTrace
from counterpoint.formats.importing.values import number
from counterpoint.trace import Event, Trace
from counterpoint.trace.keys import BEGAN, PROJECT, TITLE
from counterpoint.trace.model_calls import Ints, model_call, prompt_ids_of
from counterpoint.trace.quantities import counted_tokens, has_times
from counterpoint.trace.vocabulary import OUTSIDE_ROLES

OURS = "counterpoint"
"""The key in `extra` of what only we say: who acts and what else came of it."""
_NEST = 40
_LATEST = 253402300799.0
_STEPS = frozenset({"orchestrator_decision", "message", "aggregate", "return"})
_OUTSIDE = frozenset({"user", "system", "memory"})
_DETAILS = {"tokens_cache_write": "cache_creation_input_tokens", "tokens_reasoning": "reasoning_tokens"}
_TOTALS = {"prompt_tokens": "total_prompt_tokens", "completion_tokens": "total_completion_tokens",
           "cached_tokens": "total_cached_tokens", "cost_usd": "total_cost_usd"}  # fmt: skip
Fields = dict[str, Any]


def document_of(trace: Trace, version: str) -> bytes:
    """The document of a trace, as this version of the format has it."""
    team = _Team(trace, f"ATIF-v{version}")
    try:
        return (json.dumps(team.document(), ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n").encode()
    except UnicodeEncodeError as error:
        raise InvalidTrace("a text holds half of a surrogate pair, which no JSON file can carry", why=str(error)) from error


class _Team:
    """A trace, looked at by agent."""

    def __init__(self, trace: Trace, version: str) -> None:
        self.trace, self.version = trace, version
        order = sorted(range(len(trace.events)), key=lambda i: (trace.events[i].t, i))
        self.place = {trace.events[i].id: k for k, i in enumerate(order)}
        self.events = {e.id: e for e in trace.events}
        members = trace.members or frozenset(trace.agents)
        self.acts: dict[str, list[Event]] = {agent: [] for agent in trace.agents if agent in members}
        self.foreign: list[Event] = []
        for event in (trace.events[i] for i in order):
            self.acts.get(event.agent, self.foreign).append(event)
        self.reads: dict[str, list[str]] = defaultdict(list)
        self.calls: dict[str, str] = {}
        for edge in trace.edges:
            if edge.src in self.events and edge.dst in self.events and edge.type != "temporal":
                self.reads[edge.dst].append(edge.src)
                if edge.type == "tool_dependency":
                    self.calls.setdefault(edge.dst, edge.src)
        agents = {e.id: e.agent for e in trace.events}
        self.quoted = {src for dst, some in self.reads.items() for src in some if agents[src] != agents[dst]}
        """Events that somebody else read."""
        self.spawns = self._spawns()
        self.children: dict[str, list[str]] = defaultdict(list)
        for child, spawn in self.spawns.items():
            self.children[spawn.agent].append(child)
        self.returns = self._returns()
        self.prompts: dict[str, Ints] = prompt_ids_of(trace)
        self.zero = self._zero()
        self.absent = self.late = self.unsaid = 0

    def _spawns(self) -> dict[str, Event]:
        """Agent to the event that made it; none that would make it its own ancestor."""
        spawns: dict[str, Event] = {}
        for event in sorted((e for e in self.trace.events if e.type == "spawn"), key=lambda e: self.place[e.id]):
            child = event.to
            if not child or child in spawns or event.agent not in self.acts:
                continue
            above, depth = event.agent, 0
            while above != child and above in spawns:
                above, depth = spawns[above].agent, depth + 1
            if above != child and depth < _NEST:
                spawns[child] = event
                self.acts.setdefault(child, [])
        return spawns

    def _returns(self) -> dict[str, Event]:
        """Agent to its last return to the one that spawned it."""
        found = {}
        for agent, spawn in self.spawns.items():
            back = [e for e in self.acts[agent] if e.type == "return" and e.to in (None, spawn.agent)]
            if back:
                found[agent] = back[-1]
        return found

    def _zero(self) -> float | None:
        """When the trace began, seconds since the epoch; None where nobody says."""
        if not has_times(self.trace.meta):
            return None
        dated = next((float(e.at) - float(e.t) for e in self.trace.events if e.at is not None), None)
        return number(self.trace.meta.get(BEGAN)) if dated is None else dated

    def timestamp(self, event: Event, *, is_end: bool = False) -> str | None:
        """When an event happened, or was over."""
        if self.zero is None:
            return None
        at = float(event.at) if event.at is not None else self.zero + float(event.t)
        at += float(event.dur or 0) if is_end else 0.0
        return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z") if 0 <= at < _LATEST else None

    def text(self, event: Event) -> str:
        """The words of an event; those that are absent are counted."""
        text = self.trace.text(event)
        self.absent += text is None and event.content_ref is not None
        return text or ""

    def name(self, agent: str) -> str:
        """The id of an agent's trajectory: no other document of any run has it."""
        return f"{self.trace.trace_id}/{agent}"

    def document(self) -> Fields:
        """The whole trace."""
        roots = [agent for agent in self.acts if agent not in self.spawns]
        leads = [agent for agent in roots if self.children[agent]]
        first = (leads or roots or [self.trace.trace_id])[0]
        self.acts.setdefault(first, [])
        inside = [self._trajectory(agent) for agent in roots if agent != first]
        whole = self._trajectory(first)
        whole["trajectory_id"] = self.trace.trace_id
        about: Fields = {"agent": first, "task": self.trace.task_id, "system": self.trace.system, "topology": self.trace.topology}
        about |= {name: self.trace.meta.get(name) for name in (TITLE, PROJECT)}
        if self.trace.costs.get("tokens", 0) > counted_tokens(self.trace.events):
            about["tokens"] = self.trace.costs["tokens"]
        whole["extra"] = {OURS: {k: v for k, v in about.items() if v is not None}}
        if self.trace.rewards:
            whole["extra"]["rewards"] = dict(self.trace.rewards)
        if self.trace.costs.get("cost_usd", 0) > sum(e.cost_usd or 0 for e in self.trace.events):
            whole["final_metrics"]["total_cost_usd"] = self.trace.costs["cost_usd"]  # what the run says beyond its steps
        if inside:
            whole["subagent_trajectories"] = [*whole.pop("subagent_trajectories", []), *inside]
        tail = ("final_metrics", "extra", "subagent_trajectories")
        head = {k: v for k, v in whole.items() if k not in tail}
        return {**head, "notes": self._notes(len(inside)), **{k: whole[k] for k in tail if k in whole}}

    def _notes(self, unlinked: int) -> str:
        """What of this trace is not in its document."""
        lost = {
            "spawned by nobody, so that no step refers to them": unlinked,
            "results that stand with their calls, though later steps came first": self.late,
            "texts that are absent": self.absent,
            "ends of agents, and events of no kind that a step has": self.unsaid,
        }
        told = [f"{n} {what}" for what, n in lost.items() if n]
        edges = f"{len(self.trace.edges)} edges are the order of steps, references and results"
        return "; ".join([f"Written by Counterpoint from a trace of {len(self.trace.events)} events: {edges}", *told]) + "."

    def _trajectory(self, agent: str) -> Fields:
        steps = _Steps(self, agent).steps
        own = self.acts[agent]
        spawn = self.spawns.get(agent)
        role = (spawn.role if spawn else None) or next((e.role for e in own if e.role and e.type != "spawn"), None)
        models = list(dict.fromkeys(step.get("model_name", "") for step in steps if step.get("llm_call_count")))
        about: Fields = {"name": role or agent, "version": "unknown"}
        if models and all(models):
            about["model_name"] = models[0]
        if tools := self._tools(own):
            about["tool_definitions"] = tools
        out: Fields = {"schema_version": self.version, "session_id": self.trace.trace_id, "trajectory_id": self.name(agent)}
        out |= {"agent": about, "steps": steps, "final_metrics": _totals(steps), "extra": {OURS: {"agent": agent}}}
        if self.children[agent]:
            out["subagent_trajectories"] = [self._trajectory(child) for child in self.children[agent]]
        return out

    def _tools(self, own: list[Event]) -> list[Any]:
        """The tools that the agent's model was offered last, where that was recorded."""
        refs = [str(note["tools"]) for e in own if (note := model_call(e)) is not None and "tools" in note]
        text = self.trace.contents.get(refs[-1]) if refs else None
        try:
            value = json.loads(text or "null")
        except (ValueError, RecursionError):
            return []
        return value if isinstance(value, list) and all(isinstance(item, dict) for item in value) else []


def _totals(steps: list[Fields]) -> Fields:
    """The sums of a trajectory's own steps; a sum of nothing is absent."""
    out: Fields = {}
    for name, total in _TOTALS.items():
        values = [step["metrics"][name] for step in steps if name in step.get("metrics", {})]
        if values:
            out[total] = round(sum(values), 12) if name == "cost_usd" else sum(values)
    return {**out, "total_steps": len(steps)}


class _Steps:
    """The trajectory of one agent in the making."""

    def __init__(self, team: _Team, agent: str) -> None:
        self.team, self.agent = team, agent
        self.steps: list[Fields] = []
        self._open: Fields | None = None
        """The agent's latest step, while calls may still follow from it."""
        self._call_of: dict[str, tuple[Fields, str]] = {}
        """Event of a call to its step and its id there."""
        self._results: set[str] = set()
        """Results that came since the agent's latest step began."""
        self._sub_agents: dict[int, list[Fields]] = {}
        """Step to the results that refer to sub-agents, which come after all others."""
        self._ids: set[str] = set()
        self._said = ""
        own = team.acts[agent]
        heard = self._heard(own)
        if (spawn := team.spawns.get(agent)) is not None:
            self._told("user", spawn, {"spawned_by": spawn.agent})
            heard.pop(spawn.id, None)
        by_reader: dict[str | None, list[str]] = defaultdict(list)
        for name in sorted(heard, key=team.place.__getitem__):
            by_reader[heard[name]].append(name)
        for event in own:
            for name in by_reader.get(event.id, ()):
                self._hear(team.events[name])
            self._act(event)
        for name in by_reader.get(None, ()):
            self._hear(team.events[name])
        if not self.steps:
            self._put({"source": "system", "message": "", "extra": {OURS: {"note": "this agent did nothing"}}})
        for number_, results in self._sub_agents.items():
            self.steps[number_ - 1].setdefault("observation", {"results": []})["results"] += results

    def _heard(self, own: list[Event]) -> dict[str, str | None]:
        """What others said to the agent, each with the first event of its own that comes after: None where none does."""
        out: dict[str, str | None] = {}
        for event in own:
            for name in [] if event.type == "tool_result" else self.team.reads[event.id]:
                if self.team.events[name].agent != self.agent:
                    out.setdefault(name, event.id)
        told = [e for e in self.team.foreign if e.to == self.agent and e.type in ("message", "human_intervention")]
        for event in told:
            later = (e.id for e in own if self.team.place[e.id] > self.team.place[event.id])
            out.setdefault(event.id, next(later, None))
        return out

    # -- hearing ---------------------------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        """Something from somebody else: words, or a return that stands in the result of its spawn."""
        if event.type == "return" and (spawn := self.team.spawns.get(event.agent)) and spawn.agent == self.agent:
            if self.team.returns.get(event.agent) is not event:
                self._told("user", event, {"from": event.agent, "event": event.id})
        elif event.type == "human_intervention":
            self._told("user", event, {"person": event.agent, "event": event.id})
        elif event.type in _STEPS and event.agent in self.team.acts and not _is_from_outside(event):
            if self.team.trace.text(event):
                self._told("user", event, {"from": event.agent, "event": event.id})
        elif event.type == "message":
            is_user = event.source == "user"
            self._told("user" if is_user else "system", event, {"person" if is_user else "from": event.agent})
        elif event.type == "safety_event":
            self._told("system", event, {"type": event.type, "from": event.agent})

    def _told(self, source: str, event: Event, ours: Fields) -> None:
        self._open = None
        words = self.team.text(event) or (event.error or "" if event.type == "safety_event" else "")
        step = {"timestamp": self.team.timestamp(event), "source": source, "message": words}
        self._put({**step, "extra": {OURS: ours} if ours else None})

    def _put(self, fields: Fields) -> Fields:
        step = {"step_id": len(self.steps) + 1, **{k: v for k, v in fields.items() if v is not None}}
        self._results = set()
        self.steps.append(step)
        return step

    # -- acting ----------------------------------------------------------------------------------------------------------

    def _act(self, event: Event) -> None:
        if event.type == "tool_call":
            self._call(event, event.tool or "tool", _arguments(self.team.text(event)))
        elif event.type == "spawn":
            self._spawn(event)
        elif event.type == "tool_result":
            self._result(event)
        elif event.type == "safety_event" and not _is_model_step(event):
            self._told("system", event, {"type": event.type})
        elif event.type == "human_intervention" or _is_from_outside(event):
            is_user = event.source in (None, "user")
            self._told("user" if is_user else "system", event, {"person": event.agent} if is_user else {})
        elif event.type in _STEPS or event.type == "safety_event":
            self._speak(event)
        else:
            self.team.unsaid += 1

    def _speak(self, event: Event) -> None:
        """Words of the agent. A return that only says again what its last step said is no step."""
        text = self.team.text(event)
        if event.type == "return" and text in ("", self._said) and not _is_model_step(event) and self.steps:
            return
        self._said = text
        ours: Fields = {"type": event.type, "decision": event.decision}
        if event.to and not (event.extra or {}).get("aloud"):
            ours |= {"to": event.to}
        if event.id in self.team.quoted:
            ours |= {"event": event.id}
        self._open = self._agent_step(event, text, {k: v for k, v in ours.items() if v is not None})

    def _agent_step(self, event: Event, text: str, ours: Fields) -> Fields:
        extra = event.extra or {}
        thinking = self.team.trace.contents.get(str(extra.get("thinking_ref"))) if "thinking_ref" in extra else None
        if extra.get("is_thinking") is True:
            text, thinking = "", text
        step: Fields = {
            "timestamp": self.team.timestamp(event, is_end=True),
            "source": "agent",
            "model_name": event.model,
            "message": text,
        }
        if event.ok is False:
            ours |= {"error": event.error or "failed"}
        if _is_model_step(event):
            step |= {"reasoning_content": thinking or None, "metrics": self._metrics(event), "llm_call_count": 1}
        return self._put({**step, "extra": {OURS: ours} if ours else None})

    def _metrics(self, event: Event) -> Fields | None:
        extra, note = event.extra or {}, model_call(event) or {}
        out: Fields = {"prompt_tokens": event.tokens_in, "completion_tokens": event.tokens_out}
        out |= {"cached_tokens": extra.get("tokens_cache_read"), "cost_usd": event.cost_usd}
        prompt = self.team.prompts.get(event.id)
        out["prompt_token_ids"] = None if prompt is None else prompt.tolist()
        out["completion_token_ids"], out["logprobs"] = note.get("token_ids"), note.get("logps")
        more = {name: extra[key] for key, name in _DETAILS.items() if key in extra}
        if event.logp is not None and out["logprobs"] is None:
            more["logp"] = event.logp
        return {k: v for k, v in {**out, "extra": more or None}.items() if v is not None} or None

    # -- calls -----------------------------------------------------------------------------------------------------------

    def _call(self, event: Event, tool: str, arguments: Fields) -> tuple[Fields, str]:
        """A call joins the step that it follows from, where nothing that it read came in since; gives its step and its id."""
        step, is_model = self._open, _is_model_step(event)
        is_later = not self._results.isdisjoint(self.team.reads[event.id])
        if step is None or is_later or (is_model and ("metrics" in step or "tool_calls" in step)):
            step = self._agent_step(event, "", {})
            step.setdefault("llm_call_count", 0)
        elif is_model:
            step |= {k: v for k, v in {"metrics": self._metrics(event), "llm_call_count": 1}.items() if v is not None}
        name = event.id.removeprefix(f"{self.agent}/")
        while name in self._ids:
            name += "~"
        self._ids.add(name)
        call: Fields = {"tool_call_id": name, "function_name": tool, "arguments": arguments}
        step.setdefault("tool_calls", []).append(call)
        self._open, self._call_of[event.id] = step, (step, name)
        return step, name

    def _result(self, event: Event) -> None:
        called = self._call_of.get(self.team.calls.get(event.id, ""))
        own: Fields = {"content": self.team.text(event)}
        if called is None:  # nobody says which call it answers
            step = self._open or self._put(
                {"timestamp": self.team.timestamp(event), "source": "agent", "message": "", "llm_call_count": 0}
            )
            own["extra"] = {OURS: {"tool": event.tool}}
        else:
            step = called[0]
            own = {"source_call_id": called[1], **own}
            self.team.late += step is not self.steps[-1]
        if event.ok is False:
            own["extra"] = {**own.get("extra", {}), "is_error": True, "error": event.error or "failed"}
        self._results.add(event.id)
        step.setdefault("observation", {"results": []})["results"].append(own)

    def _spawn(self, event: Event) -> None:
        tool = (event.extra or {}).get("tool_name")
        text = self.team.text(event)
        stated = self.team.trace.contents.get(str((event.extra or {}).get("arguments_ref")))
        arguments = _arguments(stated if stated is not None else text, "prompt")
        is_first = event.to is not None and self.team.spawns.get(event.to) is event
        step, name = self._call(event, tool if isinstance(tool, str) and tool else "spawn", arguments)
        result: Fields = {"source_call_id": name}
        if is_first and event.to is not None:
            back = self.team.returns.get(event.to)
            result["content"] = self.team.text(back) if back is not None else None
            result["subagent_trajectory_ref"] = [
                {"trajectory_id": self.team.name(event.to), "session_id": self.team.trace.trace_id}
            ]
            result["extra"] = {OURS: {"returned": False}} if back is None else None
        else:
            result |= {"content": event.error or "", "extra": {OURS: {"type": "spawn"}}}
            made = {"type": "spawn", "to": event.to, "error": event.error, "ok": event.ok}
            step["tool_calls"][-1]["extra"] = {OURS: {k: v for k, v in made.items() if v is not None}}
        known = {k: v for k, v in result.items() if v is not None}
        self._sub_agents.setdefault(step["step_id"], []).append(known)


def _is_from_outside(event: Event) -> bool:
    """Whether words that stand under an agent are not its own: a user's or the system's, and no model's."""
    return event.source in _OUTSIDE and (event.role is None or event.role in OUTSIDE_ROLES) and not _is_model_step(event)


def _is_model_step(event: Event) -> bool:
    """Whether a model spoke in it."""
    known = (event.model, event.tokens_in, event.tokens_out, event.cost_usd, event.logp)
    return any(value is not None for value in known) or model_call(event) is not None


def _arguments(text: str, name: str = "input") -> Fields:
    """A call's text as the object that the format wants."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {name: text}
