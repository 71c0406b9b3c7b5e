"""`Harness`: the frozen interface between a policy and a team: prompt templates and the action grammar, with a hash.

Always true: pi(. | o) = LLM(. | harness(o)), and actions are those of the grammar (survey.md section 2). A harness is data: the
same name, version and texts give the same hash, one changed letter gives another, and every trace carries it; a policy that was
trained through another harness is another policy. Rendering loses nothing but what is longer than the context, and says so
where it cut.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, Literal

from counterpoint.errors import NotFound, did_you_mean
from counterpoint.lab.lm.model import Call, Completion, Message
from counterpoint.lab.tasks import grammar
from counterpoint.lab.tasks.grammar import Malformed
from counterpoint.lab.tasks.task import Act, Choice, View, ViewItem

_HEADS = {
    "question": "Question from {by}:",
    "subtask": "Your part, given by {by}:",
    "brief": "Known to you alone:",
    "message": "Message from {by}:",
    "return": "{by} returned:",
    "result": "Result of {by}:",
    "note": "Note by {by}:",
    "error": "That was not accepted:",
    "operator": "The operator says:",
}
_CUT = "\n[... cut: the text is longer than the context ...]\n"
_LEFT_OUT = "[... {count} older messages left out: they are longer than the context ...]"
_TEXT = attrgetter("text")
_SHORT = 80
"""Characters of a message that is cut as far as it can be."""
_STEPS, _BLOCK = 8, 32
"""How many lengths a message can be cut to, and how many messages are left out at a time."""


@dataclass(frozen=True, kw_only=True)
class Harness:
    """Prompt templates and grammar of one training boundary."""

    name: str
    version: int
    speaks: Literal["text", "tools", "actions"] = "text"
    """Acts are lines of text, or function calls, or bare actions in a world: what is legal, then what the agent sees now."""
    system: str = (
        "You are {agent}, {role} in a team of agents that answers a question together.\n"
        "{about}\n"
        "Answer with exactly one line: one of the actions that are listed as legal, filled in where it has <...>."
    )
    roles: tuple[tuple[str, str], ...] = (
        (
            "orchestrator",
            "You split the work, spawn and brief workers, merge what they return, and stop when more costs more than it gives.",
        ),
        ("lead", "You split your part among your own workers, merge what they return, and return it."),
        ("planner", "You give the parts to the executor one by one, and stop when all are accepted."),
        ("worker", "You do your part with your tools, and return what was asked for in the format asked for."),
        ("executor", "You do each part with your tools, and mend it when the critic objects."),
        ("critic", "You check what the executor returned: return ACCEPT, or REJECT and why."),
        ("debater", "You state your verdict with your facts, listen to the others, and change your mind only for facts."),
        ("resolver", "You read what the debaters said and decide."),
        ("agent", "You work alone with your tools; a worker can be spawned for a part."),
    )
    ask: str = "Legal now:\n{legal}\nYour action:"
    tools_note: str = "Tools:\n{tools}"

    @cached_property
    def digest(self) -> str:
        """The hash of everything above."""
        text = json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def as_meta(self) -> dict[str, Any]:
        """What a trace carries."""
        return {"name": self.name, "version": self.version, "hash": self.digest}

    # -- prompts ---------------------------------------------------------------------------------------------------------

    def render(
        self, view: View, *, tools: Sequence[str] = (), context: int = 24_000, body: Sequence[Message] | None = None
    ) -> tuple[Message, ...]:
        """The prompt of a view: one message per thing seen, so that a recording keeps each text once.

        `body` is the messages of all that was seen, where somebody has kept them.
        """
        if self.speaks == "actions":
            return self._in_world(view, context)
        about = dict(self.roles).get(view.role, "")
        system = _system(self, view.agent, view.role, about, tuple(tools))
        legal = "\n".join(dict.fromkeys(grammar.label(c) for c in view.choices))
        ask = self.ask.format(legal=legal)
        said = [self.message(seen) for seen in view.seen] if body is None else body
        return (system, *_fitted(said, context - len(system.text) - len(ask)), Message("user", ask))

    def _in_world(self, view: View, context: int) -> tuple[Message, ...]:
        """The rules of the world, then what the agent sees below what it may do; what it has seen before is not in its view."""
        legal = grammar.bare_starts(view.choices)
        words = next((c.about for c in view.choices if c.text is None), "")
        every = ", ".join(start.rstrip(": \n") for start in legal)
        ask = self.ask.format(legal=f"one of: {every}" if legal else words)
        ask += f" (then : and {words})" if legal and words else ""
        rules = "\n".join(s.text.partition("\nAnswer format: ")[0] for s in view.seen if s.kind == "question")
        said = [
            Message("user", f"{ask}\n{s.text}") if s.kind == "result" else self.message(s)
            for s in view.seen
            if s.kind != "question"
        ]
        system = _system(self, view.agent, view.role, rules, ())
        return (system, *_fitted(said, context - len(system.text)))

    def message(self, seen: ViewItem) -> Message:
        """One thing seen, as a message."""
        if seen.kind == "own":
            return Message("assistant", seen.text)
        return Message("user", f"{_HEADS[seen.kind].format(by=seen.by)}\n{seen.text}")

    def call(self, view: View, *, seed: int, max_tokens: int, temperature: float, **prompt: Any) -> Call:
        """What the model is asked for a view; `prompt` as for `render`."""
        is_text = self.speaks != "tools"
        starts = grammar.bare_starts if self.speaks == "actions" else grammar.starts
        return Call(
            messages=self.render(view, **prompt),
            view=view,
            starts=starts(view.choices) if is_text else (),
            tools=() if is_text else grammar.functions(view.choices),
            max_tokens=max_tokens,
            temperature=temperature,
            stop=("\n",) if is_text else (),  # the templates of function calls have lines
            seed=seed,
        )

    def read(self, completion: Completion, choices: Sequence[Choice]) -> Act | Malformed:
        """The act in a completion."""
        if self.speaks == "tools":
            return grammar.read_calls(completion.tool_calls, completion.text, choices)
        if self.speaks == "actions":
            return grammar.read_bare(completion.text, choices)
        return grammar.read(completion.text, choices)


@lru_cache(maxsize=4096)
def _system(used: Harness, agent: str, role: str, about: str, tools: tuple[str, ...]) -> Message:
    """The first message, which an agent's prompts share."""
    text = used.system.format(agent=agent, role=role, about=about)
    if tools:
        text += "\n" + used.tools_note.format(tools="\n".join(f"- {line}" for line in tools))
    return Message("system", text)


def _fitted(messages: Sequence[Message], room: int) -> Sequence[Message]:
    """Messages that together fit: the longest are cut in the middle first, then the oldest but the first are left out.

    Both go in steps: an agent's next prompt begins as this one does, so that little of it is new to a cache or to a recording.
    """
    over = sum(map(len, map(_TEXT, messages))) - max(room, 0)
    if over <= 0:
        return messages
    out = list(messages)
    long = [i for i, m in enumerate(out) if len(m.text) > _SHORT + len(_CUT)]
    for i in sorted(long, key=lambda i: -len(out[i].text)):
        if over <= 0:
            break
        text = out[i].text
        step = max(_SHORT, len(text) // _STEPS)
        keep = max((len(text) - over - len(_CUT)) // step * step, _SHORT)
        half = keep // 2
        out[i] = Message(out[i].role, text[: keep - half] + _CUT + text[len(text) - half :])
        over -= len(text) - len(out[i].text)
    if over <= 0:
        return out
    over, gone, last = over + len(_LEFT_OUT) + 8, 1, len(out) - 2
    while gone < last and (over > 0 or (gone - 1) % _BLOCK):
        over, gone = over - len(out[gone].text), gone + 1
    return [out[0], Message("user", _LEFT_OUT.format(count=gone - 1)), *out[gone:]] if gone > 1 else out


HARNESSES = {
    "text": Harness(name="text", version=1),
    "tools": Harness(name="tools", version=1, speaks="tools"),
    "actions": Harness(name="actions", version=1, speaks="actions", system="{about}", roles=(), ask="Answer with {legal}"),
}
"""The shipped harnesses: acts as one line of text, as function calls, or (in a world of a package) as bare actions."""


def harness(name: str) -> Harness:
    """A shipped harness by name."""
    if name not in HARNESSES:
        raise NotFound(f"no harness named {name!r}", fix=did_you_mean(name, HARNESSES))
    return HARNESSES[name]
