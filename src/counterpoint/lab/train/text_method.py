"""Methods whose learned thing is text: they play teams with other words, ask a model what to change, and log every score.

Always true: no weight changes and no gain is claimed: a run is a log of what was played, asked and scored. A team is played
with its roles' prompts exchanged (`Harness.roles`) and nothing else. A reviewer that fails or cannot be read costs a call and
changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from counterpoint.errors import InputError
from counterpoint.lab.lm.model import Call, Completion, Message, Model, ModelFailed
from counterpoint.lab.team.harness import HARNESSES
from counterpoint.lab.team.session import Spec, assemble, make_model, play_to_trace
from counterpoint.lab.team.state import Limits
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder, WallClock
from counterpoint.trace import Trace

_CHARACTERS = 4  # of a token, about: what a trace is cut to


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """One run of a text method."""

    task: str = "ledger_hunt"
    config: Mapping[str, Any] = field(default_factory=dict)
    """Dials of the task."""
    topology: str = "centralized"
    model: str = "fake"
    """Who plays the team: `fake:0.9`, `local:NAME`, `openai:NAME`."""
    reviewer: str = "fake"
    """Who reads, judges and rewrites: `fake` (fixed answers, for trying it out), or a model as above."""
    iterations: int = 2
    batch: int = 2
    """Tasks per iteration."""
    seed: int = 0
    width: int = 3
    """Workers that an agent may have."""

    def __post_init__(self) -> None:
        for name in ("iterations", "batch", "width"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", fix="1 or more")

    def spec(self, seed: int, *, topology: str | None = None, width: int | None = None) -> Spec:
        """A team on one task."""
        shape, limits = topology or self.topology, Limits(width=width or self.width)
        return Spec(task=self.task, config=self.config, seed=seed, topology=shape, model=self.model, limits=limits)


@dataclass
class TextLog:
    """What a run did."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """One per iteration: its scores, and calls and tokens so far."""
    prompts: dict[str, str] = field(default_factory=dict)
    """Role to the text that was reached."""
    library: list[dict[str, Any]] = field(default_factory=list)
    """Insights with their use (HERA)."""


class FakeReviewer:
    """Fixed answers to what text methods ask: a verdict for every name after "Names:", a line more for every text to rewrite."""

    name, version, is_instant = "fake-reviewer", "1", True

    async def complete(self, call: Call) -> Completion:
        """By the last message."""
        text = call.messages[-1].text
        names = re.search(r"^Names: (.*)$", text, re.M)
        if names:
            answer = json.dumps({n: f"{n} should say which part it did" for n in names[1].split(", ")})
        elif "Text to rewrite:" in text:
            answer = text.partition("Text to rewrite:\n")[2].strip() + "\nSay which part you did."
        elif "Choose a team" in text:
            answer = json.dumps({"topology": "centralized", "width": 2})
        elif "Which answer" in text:
            answer = "1"
        else:
            answer = "Name the part before the result."
        return Completion(text=answer, tokens_in=len(text.split()), tokens_out=len(answer.split()))

    async def close(self) -> None:
        """Nothing to let go of."""


class Asker:
    """Asks a reviewer, and counts."""

    def __init__(self, model: Model, seed: int = 0) -> None:
        self.model, self.seed, self.calls, self.tokens, self.failed = model, seed, 0, 0, 0

    async def ask(self, system: str, text: str, *, most: int) -> str | None:
        """The answer, without blanks around it; None where the model failed or said nothing."""
        self.calls += 1
        word = hashlib.blake2b(f"{self.seed}|{self.calls}".encode(), digest_size=6).digest()
        messages = (Message("system", system), Message("user", text))
        try:
            done = await self.model.complete(
                Call(messages=messages, max_tokens=most, stop=(), seed=int.from_bytes(word, "big"), temperature=0.7)
            )
        except ModelFailed:
            self.failed += 1
            return None
        self.tokens += (done.tokens_in or 0) + (done.tokens_out or 0)
        return done.text.strip() or None


def json_in(text: str | None) -> dict[str, Any] | None:
    """The first JSON object in an answer; None where there is none."""
    for start in [m.start() for m in re.finditer(r"\{", text or "")]:
        try:
            found, _ = json.JSONDecoder().raw_decode((text or "")[start:])
        except ValueError:
            continue
        return found if isinstance(found, dict) else None
    return None


def prompts_of() -> dict[str, str]:
    """Role to its prompt as shipped."""
    return dict(HARNESSES["text"].roles)


def trace_lines(trace: Trace, *, tokens: int) -> str:
    """A trace as lines of text, the middle cut out where it is longer than so many tokens."""
    lines = [f"{e.agent} ({e.role or e.type}) {e.type}: {' '.join((trace.text(e) or '').split())}" for e in trace.events]
    text, most = "\n".join(lines), tokens * _CHARACTERS
    return text if len(text) <= most else f"{text[: most // 2]}\n[...]\n{text[-most // 2 :]}"


class Teams:
    """Plays teams of one run; the model is made once."""

    def __init__(self, settings: TextSettings) -> None:
        self.settings, self.tokens, self.played = settings, 0, 0
        self.model = make_model(settings.model, settings.spec(0).make_task())

    async def play(self, spec: Spec, prompts: Mapping[str, str]) -> Trace:
        """One team on one task, with these prompts."""
        task, sink = spec.make_task(), MemorySink()
        clock = LogicalClock() if getattr(self.model, "is_instant", False) else WallClock()
        team = assemble(spec, task, task.instance(spec.seed), self.model, Recorder(sink, clock))
        team.harness = replace(team.harness, roles=tuple(prompts.items()))
        trace = await play_to_trace(team, spec, sink, trace_id=f"{spec.task}-{spec.topology}-{spec.seed}-{self.played}")
        self.played += 1
        self.tokens += tokens_of(trace)
        return trace

    async def close(self) -> None:
        """Let the model go."""
        await self.model.close()


def tokens_of(trace: Trace) -> int:
    """What a team read and wrote."""
    return int(sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in trace.events))


def score_of(trace: Trace) -> float:
    """How good its answer was, in 0..1."""
    return float(trace.rewards.get("team", 0.0))


def reviewer_of(settings: TextSettings) -> Model:
    """Who is asked."""
    if settings.reviewer == "fake":
        return FakeReviewer()
    return make_model(settings.reviewer, settings.spec(0).make_task())


def row_of(iteration: int, scores: Sequence[float], asker: Asker, teams: Teams, **more: Any) -> dict[str, Any]:
    """One line of the log."""
    return {
        "iteration": iteration, "score": sum(scores) / len(scores) if scores else None, "teams": teams.played,
        "calls": asker.calls, "failed_calls": asker.failed, "tokens": teams.tokens + asker.tokens, **more,
    }  # fmt: skip
