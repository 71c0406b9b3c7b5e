"""LangGraph and LangChain, recorded as they run: a callback handler.

    from counterpoint.recorder.adapters.langgraph import handler

    with counterpoint.record(task="demo") as rec:
        graph.invoke(question, config={"callbacks": [handler(rec)]})

What becomes what, as when a LangSmith export is imported, but that nodes are agents here: a node is spawned by its graph and
returns to it (run again, it is told to; each `Send` is an agent of its own), a router's `Send`s are a decision to
spawn, `Command(goto=X)` and `transfer_to_X` tools are messages to X; model calls are steps with their tokens, tools and
retrievers calls with untrusted results, an interrupt is a question to a human. Nodes called after parts of an agent (`agent`,
`tools`, `model`) are none.

Always true: a run is recorded when it begins and when it ends; other chains (prompts, parsers, routers) are wrappers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable
from typing import Any
from uuid import UUID

from counterpoint.errors import InputError
from counterpoint.recorder.adapters import Places, do, name_root
from counterpoint.recorder.conversation import answer_of, question_of
from counterpoint.recorder.keep import answer_note, ended, keep_question, keep_step
from counterpoint.recorder.lanes import Scope
from counterpoint.recorder.problems import error_text
from counterpoint.recorder.recording import Recording
from counterpoint.recorder.values import clean, text_of, usage_of
from counterpoint.trace import content_ref

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.runnables.config import var_child_runnable_config

    from counterpoint.recorder.adapters._langchain_calls import ToolRun, message_text, stand_in_for_calls, tool_value
except ImportError as error:
    raise InputError("LangGraph is not installed", fix="pip install langgraph") from error

PARTS = frozenset({"agent", "tools", "model", "call_model", "pre_model_hook", "post_model_hook", "generate_structured_response"})
_PLAIN = frozenset({"LangGraph", "CompiledStateGraph", "CompiledGraph", "RunnableSequence"})
_TRANSFER = re.compile(r"^(?:transfer|handoff|hand_off|delegate)_to_(.+)$")
_END = "__end__"


def handler(recording: Recording, *, parts: Collection[str] = PARTS, effects: Collection[str] = ()) -> BaseCallbackHandler:
    """A callback handler that records into `recording`; `parts` are names of nodes that are no agents of their own, `effects`
    of tools that a replay never calls without consent."""
    return _Handler(recording, frozenset(parts), frozenset(effects))


def _here() -> Hashable | None:
    config = var_child_runnable_config.get()
    return getattr((config or {}).get("callbacks"), "parent_run_id", None)


class _Handler(BaseCallbackHandler):
    run_inline = True  # in the order in which things happen, and not in a thread of its own

    def __init__(self, recording: Recording, parts: frozenset[str], effects: frozenset[str]) -> None:
        self._places, self._parts, self._effects = Places(recording, _here), parts, effects
        self._asked: dict[Hashable, ToolRun] = {}
        self._nodes: set[UUID] = set()
        self._tools: dict[UUID, str] = {}
        self._handoffs: dict[UUID, str] = {}

    # -- graphs and nodes ------------------------------------------------------------------------------------------------

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **about: Any
    ) -> None:
        """A graph, a node, or a wrapper begins."""
        scope = self._places.above(parent_run_id)
        name, meta = str(about.get("name") or ""), about.get("metadata") or {}
        is_node = meta.get("langgraph_node") == name and any(str(t).startswith("graph:step:") for t in about.get("tags") or ())
        if scope is not None and is_node and name not in self._parts and not name.startswith("__"):  # `__start__` only routes
            self._nodes.add(run_id)
            is_sent = (meta.get("langgraph_path") or ("",))[0] == "__pregel_push"  # each `Send` is an agent of its own
            step = {"langgraph_step": meta.get("langgraph_step")}
            scope = do(scope, "enter", name, name, _state_text(inputs), is_new=is_sent, extra=step)
        elif scope is not None and parent_run_id is None and scope.outer is None:
            called = meta.get("lc_agent_name") or (name if name not in _PLAIN else None)
            if isinstance(called, str) and called:
                name_root(scope, called)
            if text := _state_text(inputs):
                do(scope, "human", text)
        self._places.put(run_id, scope)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **about: Any) -> None:
        """A node gives its update, a router says where to go."""
        scope = self._places.take(run_id)
        if scope is None:
            return
        targets, sends = _goto(outputs)
        if sends:
            do(scope, "event", "orchestrator_decision", decision="spawn", text=", ".join(sends))
        self._go(scope, targets)
        if run_id in self._nodes:
            self._nodes.discard(run_id)
            update = getattr(outputs, "update", None) if targets or sends else outputs
            do(scope, "leave", _state_text(update), ok=True)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        """A node fails, or stops to ask a human, or speaks to the graph above it."""
        scope = self._places.take(run_id)
        if scope is None or run_id not in self._nodes:
            return
        self._nodes.discard(run_id)
        kind = type(error).__name__
        if kind in ("GraphInterrupt", "NodeInterrupt"):
            asked = "\n".join(_state_text(getattr(one, "value", one)) or "" for one in _list(error.args[0] if error.args else ()))
            do(scope, "human", asked, extra={"is_question": True})
            do(scope, "leave", None)
        elif kind == "ParentCommand":
            self._go(scope, _goto(error.args[0] if error.args else None)[0])
            do(scope, "leave", None, ok=True)
        else:
            do(scope, "leave", None, ok=False, error=error_text(error))

    def _go(self, scope: Scope, targets: list[str]) -> None:
        for name in targets:
            if name == _END:
                do(scope, "event", "orchestrator_decision", decision="stop")
            elif name != scope.lane.agent:
                do(scope, "message", name, None, extra={"is_handoff": True})

    # -- models ----------------------------------------------------------------------------------------------------------

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **about: Any
    ) -> None:
        """A chat model is called."""
        asked, meta = about.get("invocation_params") or {}, about.get("metadata") or {}
        names = (asked.get("model"), asked.get("model_name"), meta.get("ls_model_name"), about.get("name"), asked.get("_type"))
        model = next((n for n in names if isinstance(n, str) and n), "model")
        one = messages[0] if messages and len(messages) == 1 else None  # a list of messages, or a text, for each answer
        question = question_of((), (), {**asked, "messages": one})
        outer = self._places.above(parent_run_id)
        _wait(outer)
        scope = do(outer, "begin_step", question, model=model)
        self._places.put(run_id, scope)
        if scope is not None:
            text = message_text(messages[0] if isinstance(messages, list) and messages else messages)
            self._begun(run_id, ToolRun(scope, model, keep_question(scope, model, text)))

    def _begun(self, run_id: UUID, run: ToolRun) -> None:
        """A call has begun: in a replay it is answered by the recording."""
        self._asked[run_id] = run
        player = run.scope.session.player
        if player is not None and self._called not in player.finders:
            stand_in_for_calls(player, self._called)

    def _called(self, run: Any, asked: str | None, taken: set[str]) -> ToolRun | None:
        if run is not None or asked is None:
            return self._asked.get(_here() if run is None else run)
        waiting = (one for one in self._asked.values() if one.scope.event not in taken)  # a stream is not told which run it is
        return next((one for one in waiting if one.asked == content_ref(f"{one.name}\n{asked}")), None)

    on_llm_start = on_chat_model_start  # type: ignore[assignment]  # texts instead of messages

    def on_llm_end(self, response: Any, *, run_id: UUID, **about: Any) -> None:
        """It answers."""
        scope = self._places.take(run_id)
        if scope is None:
            return
        rows = getattr(response, "generations", None) or [[None]]
        last = rows[0][-1] if rows[0] else None
        message = getattr(last, "message", last)
        usage = usage_of(message) or usage_of((getattr(response, "llm_output", None) or {}).get("token_usage"))
        usage.pop("model", None)
        calls = [{"name": c.get("name"), "args": c.get("args")} for c in getattr(message, "tool_calls", None) or ()]
        fields = clean({**usage, "extra": {"tool_calls": calls} if calls else None}, scope.session.note)
        do(scope, "tell_call", None, answer_of(message))
        text = _state_text(message)
        self._asked.pop(run_id, None)
        scope.session.do(keep_step, scope, list(rows[0]), None, text)
        scope.outcome["extra"] = {**fields.pop("extra", {}), **scope.outcome["extra"]}
        do(scope, "end", text, ok=True, **fields)
        ended(scope)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        """It fails."""
        scope = self._places.take(run_id)
        self._asked.pop(run_id, None)
        if scope is not None:
            scope.session.do(keep_step, scope, None, error, None)
            do(scope, "end", None, ok=False, error=error_text(error))
            ended(scope)

    # -- tools -----------------------------------------------------------------------------------------------------------

    def on_tool_start(
        self, serialized: Any, input_str: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **about: Any
    ) -> None:
        """A tool is called; one that passes control on is a handoff."""
        scope = self._places.above(parent_run_id)
        name = str(about.get("name") or (serialized or {}).get("name") or "tool")
        if passed := _TRANSFER.match(name):
            self._handoffs[run_id] = passed[1]
            self._places.put(run_id, scope)
            return
        _wait(scope)
        self._tools[run_id], text = name, text_of(input_str)
        begun = do(scope, "begin", "tool_call", tool=name, text=text)
        self._places.put(run_id, begun)
        if begun is not None:
            asked = "" if text is None else content_ref(text)
            self._begun(run_id, ToolRun(begun, name, asked, name in self._effects))

    def on_tool_end(self, output: Any, *, run_id: UUID, given: Any = None, **about: Any) -> None:
        """It answers; `given` is what its own code gave, where that is not its text."""
        scope = self._places.take(run_id)
        passed, (targets, _) = self._handoffs.pop(run_id, None), _goto(output)
        if scope is None:
            return
        if passed is None:
            text = _state_text(getattr(output, "update", None) if targets else output)
            is_bad = getattr(output, "status", None) == "error"
            outcome = {"ok": not is_bad, "error": "tool error" if is_bad else None}
            outer = scope.outer
            self._asked.pop(run_id, None)
            scope.has_inner = scope.has_inner or type(output).__name__ == "Command"  # says where to go: code, not an answer
            kept = scope.session.do(answer_note, scope, *tool_value(output if given is None else given), text)
            do(scope, "end_call", text, tool=self._tools.pop(run_id, "tool"), result=kept, **outcome)
            ended(scope)
            if outer is not None:
                self._go(outer, targets)
        else:
            self._go(scope, targets or [passed])

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        """It fails."""
        scope, name = self._places.take(run_id), self._tools.pop(run_id, None)
        self._handoffs.pop(run_id, None)
        self._asked.pop(run_id, None)
        if name is not None and scope is not None:
            kept = scope.session.do(answer_note, scope, None, error, None)
            do(scope, "end_call", None, tool=name, ok=False, error=error_text(error), result=kept)
            ended(scope)

    def on_retriever_start(
        self, serialized: Any, query: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **about: Any
    ) -> None:
        """A retriever is asked."""
        self.on_tool_start(serialized, query, run_id=run_id, parent_run_id=parent_run_id, **about)

    def on_retriever_end(self, documents: Any, *, run_id: UUID, **about: Any) -> None:
        """It answers."""
        self.on_tool_end("\n\n".join(_state_text(d) or "" for d in _list(documents)), run_id=run_id, given=documents)

    on_retriever_error = on_tool_error


def _wait(scope: Scope | None) -> None:
    """A safe point: a pause holds the thread, and with it the loop; a stop ends the graph."""
    points = None if scope is None else scope.session.points
    if scope is not None and points is not None and (point := points.begin(scope, None)) is not None:
        point.passed((), {})


def _goto(value: Any) -> tuple[list[str], list[str]]:
    """Where control goes next: nodes by name, and nodes that are sent work of their own."""
    targets = _list(getattr(value, "goto", value))
    names = [one for one in targets if isinstance(one, str) and type(value).__name__ == "Command"]
    return names, [str(one.node) for one in targets if type(one).__name__ == "Send"]


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _state_text(value: Any) -> str | None:
    """The text of a state, a message, a document: of a list of messages the last."""
    if isinstance(value, dict) and isinstance(value.get("messages"), (list, tuple)) and value["messages"]:
        return _state_text(value["messages"][-1])
    for name in ("content", "page_content"):
        inner = getattr(value, name, None)
        if isinstance(inner, str):
            return text_of(inner)
        if isinstance(inner, list):
            return text_of("".join(str(p.get("text", "")) if isinstance(p, dict) else str(p) for p in inner))
    return text_of(value) if value not in ({}, []) else None
