"""The events of OpenHands before its SDK: actions and the observations that they caused, and runs of its evaluations.

`Story` takes such events, in order, and gives dialogues; `traces_of_run` reads one line of an evaluation's `output.jsonl`.

Always true: actions of one model response are one step; what happens between a delegation and its end is the delegate's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Session, run_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, number, seconds, string, text_of
from counterpoint.trace import Trace

_NOTES = frozenset({"recall", "null", "change_agent_state", "agent_state_changed", "pause", "resume", "stop", "loop_recovery"})
_OTHERS = frozenset({"initialize", "start", "summarize", "condensation_request", "server_ready", "success", "task_tracking"})
_ASIDE = frozenset({"thought", "blocking", "hidden", "confirmation_state", "is_confirmed"})
_TOLD = "stated for the run: on its last step"
_LESS = "tokens that the run states and none of its calls does"


def flat(history: list[Any]) -> Iterator[dict[str, Any]]:
    """The events of a history, which older evaluations kept as pairs of an action and its observation."""
    for one in history:
        yield from map(as_dict, one if isinstance(one, list) else [one])


class Story:
    """Actions and observations on their way to dialogues."""

    def __init__(self, *, is_evaluation: bool = False) -> None:
        self.dialogues = {MAIN: Dialogue()}
        self.left_out: Counter[str] = Counter()
        self._is_evaluation = is_evaluation
        self._agents = [MAIN]
        """Who is at work: the innermost delegate last."""
        self._steps: dict[str, Entry] = {}
        """Response id to its step."""
        self._calls: dict[Any, tuple[str, str]] = {}
        """Event id of an action to the id of its call, and its tool."""
        self._totals: dict[str, tuple[int, int, int, int]] = {}
        self._cost = 0.0
        self._was_asked = False

    @property
    def _entries(self) -> list[Entry]:
        return self.dialogues[self._agents[-1]].entries

    def event(self, event: dict[str, Any], order: int) -> bool:
        """Take an event; False where its kind is not known."""
        name, at = f"e{event.get('id', order)}", seconds(event.get("timestamp"))
        kind = string(event.get("action")) or string(event.get("observation"))
        if kind is None or ("action" in event and not isinstance(event.get("args", {}), dict)):
            return False
        if kind in _NOTES or (kind in _OTHERS and "tool_call_metadata" not in event):
            self.left_out[kind] += 1
        elif "observation" in event:
            self._observed(event, kind, name, at)
        else:
            self._acted(event, kind, name, at)
        return True

    def _acted(self, event: dict[str, Any], kind: str, name: str, at: float | None) -> None:
        args, source = as_dict(event.get("args")), event.get("source")
        if kind == "system":
            self._entries.append(Entry("system", text_of(args.get("content")), name, at))
        elif kind == "condensation":
            text = text_of(args.get("summary") or "")
            self._entries.append(Entry("user", text, name, at, by="client", extra={"is_compaction": True}))
        elif kind == "message" and source == "user":
            by = "harness" if self._is_evaluation and self._was_asked else None
            self._was_asked = True
            self._entries.append(Entry("user", text_of(args.get("content")), name, at, by=by))
        elif source == "user" or source == "environment":
            self._entries.append(Entry("user", f"! {text_of(args.get('command') or args)}", name, at))
        else:
            self._stepped(event, kind, name, at)

    def _stepped(self, event: dict[str, Any], kind: str, name: str, at: float | None) -> None:
        args, called = as_dict(event.get("args")), as_dict(event.get("tool_call_metadata"))
        response = as_dict(called.get("model_response"))
        known = string(response.get("id"))
        said = as_dict(as_dict(next(iter(as_list(response.get("choices"))), {})).get("message"))
        entry = self._steps.get(known) if known else None
        if entry is None:
            text = text_of(args.get("thought") or args.get("content") or said.get("content") or "")
            entry = Entry("assistant", text, name, at, text_of(said.get("reasoning_content") or ""))
            entry.model = string(response.get("model"))
            entry.usage = Usage.openai(response.get("usage"))
            self._entries.append(entry)
            self._steps.update({known: entry} if known else {})
        self._metered(entry, as_dict(event.get("llm_metrics")))
        if kind in ("finish", "reject") or (kind == "message" and not called):
            words = (args.get("final_thought"), args.get("thought"), args.get("reason"), event.get("message"))
            entry.text = entry.text or next((t for word in words if (t := text_of(word or ""))), "")
            entry.stop_reason = kind if kind != "message" else None
            return
        call = string(called.get("tool_call_id")) or f"{name}.call"
        tool = string(called.get("function_name")) or kind
        asked = next(
            (as_dict(c.get("function")) for c in map(as_dict, as_list(said.get("tool_calls"))) if c.get("id") == call), {}
        )
        given = asked.get("arguments") or {k: v for k, v in args.items() if k not in _ASIDE}
        entry.calls.append(Call(call, tool, given))
        self._calls[_key(event.get("id"))] = call, tool
        if kind == "delegate":
            agent = f"{string(args.get('agent')) or 'delegate'}-{len(self.dialogues)}"
            self.dialogues[agent] = Dialogue(agent, role=string(args.get("agent")), call=call, rule="the delegation")
            task = text_of(as_dict(args.get("inputs")).get("task") or args.get("inputs") or "")
            self.dialogues[agent].entries.append(Entry("user", task))
            self._agents.append(agent)

    def _metered(self, entry: Entry, metrics: dict[str, Any]) -> None:
        """Sums of the run so far: what they grew by is this step's, where its response says nothing."""
        got = as_dict(metrics.get("accumulated_token_usage"))
        names = ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens")
        if "prompt_tokens" in got:
            agent = self._agents[-1]
            before, now = self._totals.get(agent, (0, 0, 0, 0)), tuple(count(got.get(n)) or 0 for n in names)
            into, out, read, wrote = (max(b - a, 0) for a, b in zip(before, now, strict=True))
            self._totals[agent] = now[0], now[1], now[2], now[3]
            if entry.usage is None and (into or out):
                entry.usage = Usage.whole(into, out, cached=read, written=wrote)
            entry.model = entry.model or string(got.get("model"))
        cost = number(metrics.get("accumulated_cost")) or 0.0
        if cost > self._cost:
            entry.cost, self._cost = (entry.cost or 0.0) + cost - self._cost, cost

    def _observed(self, event: dict[str, Any], kind: str, name: str, at: float | None) -> None:
        if kind == "delegate" and len(self._agents) > 1:
            self._agents.pop()
        called, extras = as_dict(event.get("tool_call_metadata")), as_dict(event.get("extras"))
        call, tool = self._calls.get(_key(event.get("cause")), (string(called.get("tool_call_id")), kind))
        text = text_of(event.get("content") or extras.get("outputs") or "")
        code = as_dict(extras.get("metadata")).get("exit_code", extras.get("exit_code"))
        ok = _is_ok(event, kind, text, code)
        if call is None:
            role = "error" if kind == "error" else "user"
            self._entries.append(Entry(role, text or text_of(event.get("message") or ""), name, at, by="client"))
            return
        extra = {"is_rejected": True} if kind == "user_rejected" else {"exit_code": code} if count(code) is not None else {}
        error = (text[:500] or "error") if ok is False else None
        self._entries.append(Entry("tool", at=at, answers=[Answer(text, call, tool, ok, error, at, extra)]))



def _key(value: Any) -> Any:
    """The id of an event, a number or a text; what is neither names none."""
    return value if isinstance(value, int | str) else None


def _is_ok(event: dict[str, Any], kind: str, text: str, code: Any) -> bool | None:
    """Whether what an action did succeeded: by its exit code, else by what the event says; -1 is a command that runs on."""
    if kind in ("error", "user_rejected") or text.startswith(("ERROR:", "[An error occurred")):
        return False
    if isinstance(code, int) and not isinstance(code, bool):
        return None if code == -1 else code == 0
    return event["success"] if isinstance(event.get("success"), bool) else True


def traces_of_run(session: Session, run: dict[str, Any], where: str) -> Iterator[Trace]:
    """The trace of one run of an evaluation whose history is made of actions and observations."""
    story, unknown = Story(is_evaluation=True), Counter[str]()
    events = list(flat(as_list(run.get("history")) or as_list(run.get("trajectory"))))
    for order, event in enumerate(events):
        if not story.event(event, order):
            unknown[f"event with {', '.join(sorted(map(str, event))[:3])}"] += 1
    require_half(where, len(events), unknown)
    session.report.unknown.update(unknown)
    own = run_of(run)
    name = string(run.get("instance_id")) or f"run-{own}"
    draft = session.draft(name, name, system="openhands", run=own)
    metrics = as_dict(run.get("metrics"))
    _settle(draft, story, metrics)
    play(draft, list(story.dialogues.values()))
    about(draft, run, story.left_out)
    yield from draft.traces()


def _settle(draft: Draft, story: Story, metrics: dict[str, Any]) -> None:
    """Totals of the run: on its last step, where no step has tokens of its own; else what is missing is told."""
    got = as_dict(metrics.get("accumulated_token_usage"))
    cached = {"cached": got.get("cache_read_tokens"), "written": got.get("cache_write_tokens")}
    total = Usage.whole(got.get("prompt_tokens"), got.get("completion_tokens"), **cached)
    steps = [e for d in story.dialogues.values() for e in d.entries if e.role == "assistant"]
    stated = sum(e.usage.input + e.usage.output for e in steps if e.usage)
    if total and steps and not stated:
        steps[-1].usage, steps[-1].extra = total, {**steps[-1].extra, "tokens_of": "the run"}
        draft.report.lacks[f"tokens of each call: {_TOLD}"] += 1
    elif total and total.input + total.output > stated:
        draft.report.lacks[_LESS] += total.input + total.output - stated
    if cost := number(metrics.get("accumulated_cost")):
        draft.costs["cost_usd"] = cost


def about(draft: Draft, run: dict[str, Any], left_out: Counter[str]) -> None:
    """What an evaluation says of a run: its model, its patch, its error, and whether it solved its task."""
    result = as_dict(run.get("test_result"))
    solved = as_dict(result.get("report")).get("resolved", result.get("resolved", run.get("resolved")))
    if isinstance(solved, bool):
        draft.rewards["team"] = float(solved)
    if patch := string(result.get("git_patch")) or string(run.get("git_patch")):
        draft.meta["submission"] = draft.text(patch)
    if error := string(run.get("error")):
        draft.meta["error"] = error
    if left_out:
        draft.meta["left_out"] = dict(sorted(left_out.items()))
    draft.lane(MAIN).stops()
