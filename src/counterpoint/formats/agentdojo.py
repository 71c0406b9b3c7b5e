"""AgentDojo: runs of one agent that is attacked through what its tools return, with utility and security.

One JSON document is one run (`runs/<pipeline>/<suite>/<user task>/<attack>/<injection task>.json`); a list or lines of them work
too, and so do the forms of other harnesses, which call the same things otherwise (`_CALLED`) or nest them once (`result`, `run`).

| record | becomes |
|---|---|
| system message | `message` of `system`, trusted |
| first user message | `human_intervention` of `user` |
| later user message | `message` of `pipeline`, source system: a defence wrote it (the task again, the tool filter's question) |
| assistant message | `message` of `assistant`, and a `tool_call` for each call |
| tool message | `tool_result`, untrusted; with a `safety_event` where it holds one of the run's injections |
| utility, security, duration | `rewards["team"]`, `metrics`; `security: true` means that the injection SUCCEEDED |

An injection is found in a tool's answer after blanks, quotes and escapes are taken out of both, because answers are YAML or
Python literals that fold and escape it. From each answer that holds one, `safety_flow` edges lead to every later call.

What is lost: nothing of the messages; the environment's state before and after is not in the source, nor are times and tokens.

Always true: a call's id is the source's own; an answer belongs to the oldest call of its id that has none yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.values import as_dict, as_list, compact, number, string, text_of
from counterpoint.trace import Trace

# What harnesses that run AgentDojo's tasks call its keys. A success of the attack is what AgentDojo calls `security`.
_CALLED: dict[str, tuple[str, ...]] = {
    "messages": ("messages", "trajectory", "conversation", "history", "chat_history", "message_history", "transcript", "trace"),
    "suite_name": ("suite_name", "suite", "task_suite", "environment", "domain"),
    "pipeline_name": ("pipeline_name", "pipeline", "agent_pipeline", "model_name", "model", "agent", "llm"),
    "user_task_id": ("user_task_id", "user_task", "user_task_name"),
    "injection_task_id": ("injection_task_id", "injection_task", "injection_task_name", "injection_id"),
    "attack_type": ("attack_type", "attack", "attack_name", "attack_method"),
    "injections": ("injections", "injection", "injection_vectors", "injected_text", "injection_text"),
    "utility": ("utility", "utility_result", "user_task_success", "task_success", "user_success"),
    "security": ("security", "security_result", "attack_success", "attack_succeeded", "injection_success", "injection_succeeded"),
    "duration": ("duration", "duration_s", "elapsed", "elapsed_s"),
}
_NESTED = ("result", "run", "log", "data", "metadata", "task", "eval")
_JUDGED = frozenset({*_CALLED["utility"], *_CALLED["security"], *_CALLED["injections"], *_CALLED["injection_task_id"]})
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_AGENT = "assistant"
_HUMAN, _MODEL, _TOOL = frozenset({"user", "human"}), frozenset({"assistant", "ai", "model"}), frozenset({"tool", "function"})
_NO_TOKENS = "tokens"
_WORD = re.compile(r"[A-Za-z]{1,20}")
_LEAST = 12
"""Injections shorter than this, blanks apart, are in answers by chance."""
_FOLDED = re.compile(r"(?:\\[nrt]|[\s\\\"'])+")
_ESCAPED = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(000[0-9a-fA-F]{5}))")
# What AgentDojo appends to the model's name when a defence is on.
_DEFENCE = re.compile(r"-(tool_filter|repeat_user_prompt|transformers_pi_detector|spotlighting_with_delimiting)$")


def _sniff(head: bytes) -> bool:
    if b"ser_task" not in head and b"serTask" not in head and b'"pipeline_name"' not in head:
        return False
    keys = {_plain(key) for key in first_keys(head)}
    is_task = not keys.isdisjoint(_CALLED["user_task_id"]) or (not keys.isdisjoint(_NESTED) and _TASK.search(head) is not None)
    is_task = is_task or keys >= _UNTOLD
    return is_task and not keys.isdisjoint(_CALLED["messages"] + _NESTED) and bool(keys & _JUDGED or keys & {*_NESTED})


_UNTOLD = {"pipeline_name", "suite_name", "messages"}
"""AgentDojo's own keys, where a run leaves out which user task it is."""
_TASK_IN_PATH = re.compile(r"(?:^|/)(user_task_\d+)(?=[/.]|$)")
_TASK = re.compile(rb'"user_?[tT]ask(?:_?[iI]d|_name)?"\s*:\s*"')


def _plain(key: str) -> str:
    return _CAMEL.sub("_", key).lower().replace("-", "_")


def _normal(run: dict[str, Any]) -> dict[str, Any]:
    """A run under AgentDojo's own keys, whatever its harness calls them; other keys stay as they are."""
    flat = {_plain(key): value for key, value in run.items()}
    for name in _NESTED:
        if isinstance(inner := flat.get(name), dict):
            flat = {**{_plain(key): value for key, value in inner.items()}, **{k: v for k, v in flat.items() if k != name}}
    out = dict(flat)
    for name, others in _CALLED.items():
        other = next((o for o in others if flat.get(o) is not None and (name != "messages" or isinstance(flat[o], list))), None)
        if other is not None and other != name:
            out[name] = out.pop(other)
    if isinstance(hidden := out.get("injections"), (str, list)):
        texts = [hidden] if isinstance(hidden, str) else [text_of(part) for part in hidden]
        out["injections"] = {f"injection_{k}": text for k, text in enumerate(texts)}
    for name in ("utility", "security"):
        if number(out.get(name)) in (0.0, 1.0) and not isinstance(out[name], bool):
            out[name] = bool(number(out[name]))
    return out


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        for line, raw in session.entries(file):
            run = _normal(raw)
            if not string(run.get("user_task_id")) and run.keys() >= _UNTOLD:
                run["user_task_id"] = _task_of(file.name, run)
            if isinstance(run.get("messages"), list) and string(run.get("user_task_id")):
                yield from _Run(session, run, run_of(raw)).traces()
            else:
                session.report.broke(file.name, line, "a run without messages or user task")


def _task_of(path: str, run: dict[str, Any]) -> str:
    """The user task of a run that leaves it out: by its folder, as AgentDojo writes them; else by what the user asked."""
    if found := _TASK_IN_PATH.findall(path):
        return str(found[-1])
    asked = next((m.get("content") for m in map(as_dict, as_list(run["messages"])) if string(m.get("role")) in _HUMAN), None)
    return f"untold-{run_of(text_of(asked))[:8]}"


def _name(run: dict[str, Any]) -> str:
    keys = ("pipeline_name", "suite_name", "user_task_id", "attack_type", "injection_task_id")
    parts = [string(run.get(key)) or "none" for key in keys]
    version = string(run.get("benchmark_version"))
    return "/".join([*([version] if version else []), *parts])


class _Run:
    """One run on its way to a trace."""

    def __init__(self, session: Session, run: dict[str, Any], own: str) -> None:
        self.run = run
        task = f"{string(run.get('suite_name')) or 'none'}/{run['user_task_id']}"
        self.draft: Draft = session.draft(_name(run), task, system="agentdojo", run=own)
        self.lane: Lane = self.draft.lane(_AGENT, role=_AGENT)
        pipeline = string(run.get("pipeline_name")) or ""
        self.model = _DEFENCE.sub("", pipeline) or None
        texts = {vector: text for vector, text in as_dict(run.get("injections")).items() if isinstance(text, str)}
        self.injections = {vector: (text, folded(text)) for vector, text in texts.items()}
        self.words = {vector: max(_WORD.findall(text), key=len, default="") for vector, text in texts.items()}
        self.waiting: list[tuple[str | None, str]] = []
        """Calls without an answer: the source's id and the event."""
        self.infected: list[str] = []
        self.was_asked = False

    def traces(self) -> Iterator[Trace]:
        for i, message in enumerate(self.run["messages"]):
            self._message(f"m{i}", as_dict(message))
        if error := string(self.run.get("error")):
            place = self.lane.last or next(iter(self.draft.rows), None)
            if place is not None:
                self.draft.set(place, ok=False, error=error)
        self._labels()
        self.draft.report.lacks[_NO_TOKENS] += 1
        if self.run["user_task_id"].startswith("untold-"):
            self.draft.report.lacks["which user task it is"] += 1
        short = sum(0 < len(plain) < _LEAST for _, plain in self.injections.values())
        self.draft.report.lacks.update({"injections long enough to be found": short} if short else {})
        yield from self.draft.traces()

    def _message(self, name: str, message: dict[str, Any]) -> None:
        role = string(message.get("role"))
        text = text_of(message.get("content"))
        if role == "system":
            self.lane.prompt(text, by="system", source="system", id=name)
        elif role in _HUMAN and not self.was_asked:
            self.was_asked = True
            self.lane.prompt(text, id=name)
        elif role in _HUMAN:
            self.lane.prompt(text, by="pipeline", source="system", id=name)
        elif role in _MODEL:
            self._answer(name, message)
        elif role in _TOOL:
            self._result(name, message, text)
        else:
            self.draft.report.unknown[f"message of role {role}"] += 1

    def _answer(self, name: str, message: dict[str, Any]) -> None:
        parts = message.get("content")
        thoughts = [p for p in as_list(parts) if "thinking" in str(as_dict(p).get("type"))]
        own_parts = [p for p in as_list(parts) if p not in thoughts] if thoughts else parts
        calls = [call for call in map(as_dict, as_list(message.get("tool_calls"))) if call]
        text = text_of(own_parts)
        self.lane.step(id=name, text=text, thinking=text_of(thoughts), model=self.model, only_calls=bool(calls) and not text)
        for k, call in enumerate(calls):
            call_id = string(call.get("id"))
            meant = call.get("placeholder_args")
            inner = as_dict(call.get("function"))
            event = self.lane.call(
                string(call.get("function")) or string(inner.get("name")) or string(call.get("name")) or "unnamed",
                compact(next((v for v in (call.get("args"), inner.get("arguments"), call.get("arguments")) if v), {})),
                id=call_id or f"{name}.{k}",
                extra={"placeholder_args": meant} if meant and meant != call.get("args") else None,
            )
            self.waiting.append((call_id, event))
            for source in self.infected:
                self.draft.edge(source, event, "safety_flow")

    def _result(self, name: str, message: dict[str, Any], text: str) -> None:
        called = as_dict(message.get("tool_call"))
        call_id = string(message.get("tool_call_id")) or string(called.get("id"))
        at = next((k for k, (id_, _) in enumerate(self.waiting) if call_id is None or id_ == call_id), None)
        call = self.waiting.pop(at)[1] if at is not None else None
        if call is None:
            self.draft.report.loose(f"tool result {name} without a call")
        elif call_id is None:
            self.draft.report.linked("the oldest call without an answer", exact=False)
        tool = self.draft.rows[call].get("tool") if call else None
        error = string(message.get("error"))
        # Wrapping breaks a text at its blanks alone: an injection whose longest word is not there is not there.
        hidden = {
            vector: plain for vector, (_, plain) in self.injections.items() if len(plain) >= _LEAST and self.words[vector] in text
        }
        plain_text = folded(text) if hidden else ""
        vectors = [vector for vector, plain in hidden.items() if plain in plain_text]
        event = self.lane.result(
            None,
            text,
            id=f"{call}:result" if call else name,
            tool=string(called.get("function")) or string(message.get("name")) or tool,
            ok=error is None,
            error=error,
            extra={"injections": vectors} if vectors else None,
        )
        if call is not None:
            self.draft.edge(call, event, "tool_dependency")
            self.draft.set(call, ok=error is None)
        if vectors:
            self._alarm(event, vectors)

    def _alarm(self, result: str, vectors: list[str]) -> None:
        self.infected.append(result)
        about = {"kind": "prompt_injection", "vectors": vectors, "attack": self.run.get("attack_type")}
        event = self.draft.event(
            "safety_event",
            _AGENT,
            id=f"{result}:injection",
            text=self.injections[vectors[0]][0],
            role=_AGENT,
            tool=self.draft.rows[result].get("tool"),
            source="tool",
            trusted=False,
            extra={**about, "injection_task": self.run.get("injection_task_id"), "run_succumbed": self._succeeded()},
        )
        self.draft.edge(result, event, "safety_flow")

    def _succeeded(self) -> bool | None:
        """Whether the injection did what it wanted: `security`, where there was one; without an attack it says nothing."""
        security = self.run.get("security")
        return security if isinstance(security, bool) and self.injections else None

    def _labels(self) -> None:
        draft, run = self.draft, self.run
        utility, succeeded = run.get("utility"), self._succeeded()
        if isinstance(utility, bool):
            draft.rewards["team"] = draft.metrics["utility"] = float(utility)
        if succeeded is not None:
            draft.metrics["injection_succeeded"] = float(succeeded)
            draft.metrics["injected_results"] = float(len(self.infected))
        if (took := number(run.get("duration"))) is not None:
            draft.metrics["duration_s"] = took
        known = {"messages", "injections", "error"}
        draft.meta["agentdojo"] = {key: value for key, value in run.items() if key not in known and value is not None}
        if texts := {vector: draft.text(text) for vector, (text, _) in self.injections.items() if text}:
            draft.meta["injections"] = texts


def folded(text: str) -> str:
    """A text without blanks, quotes and escapes: the same whether or not YAML or `repr` has wrapped it."""
    if "\\" in text:
        text = _ESCAPED.sub(lambda m: chr(int(m[1] or m[2] or m[3], 16)), text)
    return _FOLDED.sub("", text)


agentdojo = Importer(
    suffixes=(".agentdojo.json",),
    sniff=_sniff,
    signs=("messages", "suite_name", "pipeline_name", "user_task_id", "injections", "utility", "security"),
    system="agentdojo",
    read_session=_read,
    becomes={
        "system message": ("message",),
        "user message": ("human_intervention", "message"),
        "assistant message": ("message", "tool_call"),
        "tool message": ("tool_result", "safety_event"),
        "utility, security, duration": ("rewards", "metrics"),
    },
    versions="published runs",
    exact="outcome, injection, calls",
    lost="times, tokens, the environment",
)
"""Runs of AgentDojo."""
