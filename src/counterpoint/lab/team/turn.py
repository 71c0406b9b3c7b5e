"""One turn of an agent: prompt, model or recording, reading, repair or refusal, and the event that carries it.

Always true: each answer of a model is one event, opened before the model is asked and closed with what it chose; its extra holds
the call (address, prompt, completion, token ids and log-probs), so the trace alone can answer the same call again.

An answer that is no legal act is an event with `ok: false` and what was wrong, and is asked for again `limits.repairs` times;
then the act is None. A prompt that is too long for the model is an event too: the agent's prompts are cut to half of it from then
on, and it is asked once more. Where spawning or stopping was offered and something else was chosen, a `noop` event stands for
what was passed over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from counterpoint.lab.lm.model import BudgetExhausted, Call, Completion, Message, ModelFailed
from counterpoint.lab.tasks import grammar
from counterpoint.lab.tasks.grammar import Malformed
from counterpoint.lab.tasks.task import Act, Choice, View, ViewItem
from counterpoint.lab.team.edits import PASSED, forced
from counterpoint.lab.team.memory import call_note, prompt_note
from counterpoint.lab.team.state import AgentState
from counterpoint.trace import content_ref
from counterpoint.trace.replay import Delete, Force, Insert, Substitute

_MODEL = "model: "
_REF = attrgetter("ref")
_TOO_LONG = f"{_MODEL}too long"
_DECIDES = {"spawn", "delegate", "aggregate", "stop"}
_DECISION = {
    "spawn": "spawn",
    "delegate": "delegate",
    "message": "communicate",
    "aggregate": "aggregate",
    "stop": "stop",
    "return": "stop",
    "noop": "noop",
}


@dataclass(frozen=True)
class TurnResult:
    """What came of a turn: the act (None where none is legal) and the event that carries it (None where it was deleted)."""

    act: Act | None
    event: str | None
    error: str | None = None


@dataclass
class _Thought:
    completion: Completion
    note: dict[str, Any]
    dur: float


async def choose(agent: AgentState, purpose: str, choices: Sequence[Choice], *, key: str, item: str | None) -> TurnResult:
    """Ask until the answer is legal, or repairs are used up."""
    agent.turn += 1
    chosen = TurnResult(None, None, "not asked")
    for repair in range(agent.team.limits.repairs + 1):
        name = key if repair == 0 else f"{key}|repair {repair}"
        chosen = await _attempt(agent, purpose, choices, name, item)
        if chosen.error == _TOO_LONG:
            chosen = await _attempt(agent, purpose, choices, f"{name}|shorter", item)
        if chosen.act is not None or str(chosen.error).startswith(_MODEL):
            break  # a model that failed has been asked as often as its own retries allow
    return chosen


async def _attempt(agent: AgentState, purpose: str, choices: Sequence[Choice], key: str, item: str | None) -> TurnResult:
    team, recorder = agent.team, agent.team.recorder
    is_decision = any(c.verb in _DECIDES for c in choices)
    event = recorder.open(
        agent.name,
        "orchestrator_decision" if is_decision else "message",
        key=key,
        reads=agent.take_unread(),
        role=agent.role,
        turn=agent.turn,
        task=item,
        model=team.model.name,
        policy=team.model.version,
        options=list(dict.fromkeys(grammar.label(c) for c in choices)),
    )
    if team.watch is not None:
        team.watch("thinks", agent, {"id": event, "task": item})
    view = View(agent.name, agent.role, purpose, tuple(agent.seen), tuple(choices))
    try:
        thought = await _think(agent, view, key)
    except ModelFailed as failed:
        return _model_failed(agent, event, failed, is_decision)
    read = team.harness.read(thought.completion, choices)
    read = _edited(agent, key, read, choices)
    if isinstance(read, Malformed):
        return _refused(agent, event, read, thought, is_decision)
    return _accepted(agent, event, read, thought, choices, key, is_decision)


async def _think(agent: AgentState, view: View, key: str) -> _Thought:
    """The completion: recorded where this very call is, else the model's."""
    team, limits = agent.team, agent.team.limits
    seed = team.edits.seed(key)
    tools = (
        [f"{t.name}: {t.about}" for t in team.toolbox.offered(agent.role)] if any(c.verb == "tool" for c in view.choices) else []
    )
    call = team.harness.call(
        view,
        seed=seed,
        max_tokens=limits.max_tokens,
        temperature=limits.temperature,
        tools=tools,
        context=agent.room or limits.context,
        body=agent.body(),
    )
    address = call.key(team.model.name, team.model.version)
    recalled = team.memory.find(address)
    if recalled is not None:
        team.badges[key] = "recorded"
        team.calls["recorded"] += 1
        if isinstance(recalled.answer, ModelFailed):
            raise _failed_call(agent, call, address, recalled.answer.again(), recalled.dur)
        assert isinstance(recalled.answer, Completion)
        return _Thought(recalled.answer, _note(agent, call, address, recalled.answer, key), recalled.dur)
    team.badges[key] = "re-run"
    team.calls["re-run"] += 1
    begin = time.monotonic()
    try:
        completion = await team.model.complete(call)
    except ModelFailed as failed:
        raise _failed_call(agent, call, address, failed, None) from None
    took = completion.extra.get("seconds", time.monotonic() - begin)
    return _Thought(completion, _note(agent, call, address, completion, key), float(took))


def _failed_call(agent: AgentState, call: Call, address: str, failed: ModelFailed, seconds: float | None) -> ModelFailed:
    """A failure with the call that it belongs to; after a prompt that was too long the agent's prompts are half as long."""
    failed.seconds = seconds
    if failed.kind == "too long":
        agent.room = max(1, sum(len(m.text) for m in call.messages) // 2)
    if failed.kind != "budget":  # another run may have a larger one
        failed.note = {"address": address, "seed": call.seed, "prompt": _kept(agent, call)[1]}
    return failed


def _kept(agent: AgentState, call: Call) -> tuple[list[str], dict[str, Any]]:
    """A prompt by reference, and only what the agent's last prompt did not begin with; its texts are kept once."""
    refs = list(map(_REF, call.messages))
    prompt = prompt_note(refs, agent.last_prompt)
    prompt["more"] = [_text_note(agent, message) for message in call.messages[prompt.get("first", 0) :]]
    return refs, prompt


def _text_note(agent: AgentState, message: Message) -> str | list[str]:
    """The reference of a message's text; or, where all but its first line is what an event said, that line and the reference
    of the rest."""
    team = agent.team
    if message.ref in team.kept:
        return message.ref
    head, is_long, body = message.text.partition("\n")
    if is_long and (ref := content_ref(body)) in team.recorder.texts:
        return [head, ref]
    team.kept.add(message.ref)
    team.recorder.sink.content(message.text)
    return message.ref


def _note(agent: AgentState, call: Call, address: str, completion: Completion, key: str) -> dict[str, Any]:
    """The call as the event keeps it."""
    refs, prompt = _kept(agent, call)
    note = call_note(address, call.seed, completion, agent.team.recorder.sink.content(completion.text), prompt)
    if completion.prompt_ids is not None:
        note["prompt_ids"] = agent.team.prompts.note(agent.name, completion.prompt_ids)
    agent.last_prompt = key, refs
    return note


def _keep_prompt(agent: AgentState, event: str, thought: _Thought) -> None:
    """The call is recorded: later prompts are written by what they have in common with it."""
    done = thought.completion
    if done.prompt_ids is not None:
        agent.team.prompts.add(agent.name, event, thought.note["prompt_ids"], done.prompt_ids, done.token_ids)


def _edited(agent: AgentState, key: str, read: Act | Malformed, choices: Sequence[Choice]) -> Act | Malformed:
    """The act after a fork's edit of this event."""
    do = agent.team.edits.at(key)
    is_decision = any(c.verb in _DECIDES for c in choices)
    if isinstance(do, Force):
        return forced(do.action, choices)
    if isinstance(do, Delete) and is_decision:
        return Act("noop")
    if isinstance(do, Substitute) and do.value is not None:
        if isinstance(read, Malformed) or is_decision:
            return grammar.read(str(do.value), choices)
        return Act(read.verb, read.target, str(do.value))
    return read


# -- the end of a turn ---------------------------------------------------------------------------------------------------


def _fields(thought: _Thought) -> dict[str, Any]:
    done = thought.completion
    spent = {"tokens_in": done.tokens_in, "tokens_out": done.tokens_out, "cost_usd": done.cost_usd, "dur": thought.dur}
    return spent if done.policy is None else spent | {"policy": done.policy}


def _model_failed(agent: AgentState, event: str, failed: ModelFailed, is_decision: bool) -> TurnResult:
    note: dict[str, Any] = {**failed.note, "failed": failed.kind, "what": failed.one_line()}
    extra: dict[str, Any] = {"call": note} | ({} if is_decision else {"aloud": True})
    error, decision = f"{_MODEL}{failed.kind}", "noop" if is_decision else None
    agent.team.recorder.close(
        event, ok=False, error=error, text=failed.one_line(), decision=decision, extra=extra, dur=failed.seconds
    )
    if isinstance(failed, BudgetExhausted):
        raise failed
    agent.unread.append((event, "causal"))
    if agent.parent is None:
        agent.team.failure = failed.one_line()
    return TurnResult(None, event, error)


def _refused(agent: AgentState, event: str, read: Malformed, thought: _Thought, is_decision: bool) -> TurnResult:
    extra: dict[str, Any] = {"call": thought.note} | ({} if is_decision else {"aloud": True})
    error = f"malformed: {read.why}"
    agent.team.recorder.close(
        event, ok=False, error=error, text=read.text, decision="noop" if is_decision else None, extra=extra, **_fields(thought)
    )
    _keep_prompt(agent, event, thought)
    agent.hear(ViewItem("own", agent.name, read.text or "(nothing)"), event, "causal")
    agent.hear(ViewItem("error", agent.name, f"{read.why}. Legal: one line, one of the actions listed."), event, "causal")
    return TurnResult(None, event, error)


def _accepted(
    agent: AgentState, event: str, act: Act, thought: _Thought, choices: Sequence[Choice], key: str, is_decision: bool
) -> TurnResult:
    team, do = agent.team, agent.team.edits.at(key)
    own = "return" in act.verb and agent.parent is not None and agent.role not in ("lead", "orchestrator")
    text, planted = act.text, None
    if own:
        text, planted = agent.with_planted(act.text)
        if isinstance(do, Substitute) and do.value is not None:  # an edit is the whole of what is said
            text, planted = act.text, None
    if isinstance(do, Delete) and not is_decision:
        agent.unread = team.recorder.drop(event) + agent.unread
        agent.last_prompt = None  # nothing can refer to a call that never happened
        agent.seen.append(ViewItem("error", agent.name, "(nothing came of it)"))
        return TurnResult(Act(act.verb, act.target, "" if act.verb == "return" else text), None, "deleted")
    is_forced = isinstance(do, Delete | Force) or (isinstance(do, Substitute) and do.value is not None)
    drawn = {"policy": "forced"} if is_forced else {"logp": _logp(thought.completion, act, choices)}
    fields = _fields(thought) | _kind(agent, act, is_decision) | drawn | {"ok": True}
    extra: dict[str, Any] = {"call": thought.note}
    extra |= {"edited": True} if do is not None and not isinstance(do, Insert) else {}
    if planted:  # the adversary's own mark, as in the simulators: what follows from it can be told exactly
        extra, fields = extra | {"planted": planted}, fields | {"trusted": False, "source": "peer"}
    said = text if not is_decision or act.verb in ("stop", "return") else grammar.write(act)
    team.recorder.close(event, text=said, extra=extra, **fields)
    _keep_prompt(agent, event, thought)
    if team.watch is not None:
        team.watch("acts", agent, {"id": event, "act": act, **fields})
    agent.hear(ViewItem("own", agent.name, grammar.write(act)), event, "causal")
    if is_decision:
        _passed_over(agent, event, act, thought.completion, choices, key)
    if isinstance(do, Insert):
        team.insert(do, event, key)
    if own and team.gate is not None:  # what it said is recorded; what comes of it is what passes
        text = team.gate.filter_return(agent.name, text)
    return TurnResult(Act(act.verb, act.target, text), event)


def _kind(agent: AgentState, act: Act, is_decision: bool) -> dict[str, Any]:
    """The fields that say what kind of event the act is."""
    if act.verb == "tool":
        return {"type": "tool_call", "tool": act.target}
    if is_decision:
        return {"decision": _DECISION[act.verb]}
    if act.verb == "return":
        return {"type": "return", "from_": agent.name, "to": agent.parent.name if agent.parent else None}
    return {"from_": agent.name, "to": act.target or None}


def _logp(done: Completion, act: Act, choices: Sequence[Choice]) -> float | None:
    """Log-probability of the chosen action under the policy: of all its tokens, those of its start among them; where the model
    tells no tokens, of the start that was taken."""
    if done.logps is not None:
        return sum(done.logps)
    if done.start_logps is None:
        return None
    at = _start_of(act, choices)
    return None if at is None else done.start_logps[at]


def _start_of(act: Act, choices: Sequence[Choice]) -> int | None:
    """The place, among the starts, of the choice that an act takes."""
    found = grammar.matching(act, choices)
    if found is None:
        return None
    return grammar.starts(choices).index(grammar.starts([choices[found]])[0])


def _passed_over(agent: AgentState, event: str, act: Act, done: Completion, choices: Sequence[Choice], key: str) -> None:
    """A noop for spawning and for stopping, where they were offered and not taken: not acting has its own place for credit."""
    every = grammar.starts(choices)
    for verb in ("spawn", "stop"):
        mine = [c for c in choices if c.verb == verb]
        if not mine or act.verb in (verb, "noop" if verb == "spawn" else verb):
            continue
        logp = None
        if done.start_logps is not None:
            chance = sum(math.exp(done.start_logps[every.index(s)]) for s in grammar.starts(mine))
            logp = math.log(max(1.0 - chance, 1e-12))
        agent.team.recorder.event(
            agent.name,
            "orchestrator_decision",
            key=f"{key}{PASSED}{verb}",
            reads=[(event, "causal")],
            role=agent.role,
            turn=agent.turn,
            decision="noop",
            options=[verb, "noop"],
            logp=logp,
            policy=agent.team.model.version,
            extra={"sub_decision": verb, "of": event},
        )
