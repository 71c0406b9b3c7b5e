"""A world of a package as a text task: the rules are the question, what everybody did is the answer, a replay is the checker.

Always true: `check` plays the package's own episode again from the seed and the actions in the answer, so that a score is what
the package pays, in the package's own unit: it is not bounded by 0 and 1. An answer that is no list of actions is the one action
of an episode with one agent, and otherwise an episode in which nobody acts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from counterpoint.lab.tasks import grammar
from counterpoint.lab.tasks.task import Act, Choice, Draw, Instance, Score, Subtask, View
from counterpoint.lab.worlds.packages import Episode, package_world
from counterpoint.lab.worlds.world import changed

_RULES = ("first",)


@dataclass(frozen=True)
class NoDials:
    """A package's world has its dials in its name."""


@dataclass
class Moves:
    """What everybody did: of each step the actions in the order of the turn, and the words of those who said some."""

    steps: list[list[str]] = field(default_factory=list)
    words: list[dict[str, str]] = field(default_factory=list)

    def add(self, actions: Mapping[str, str], words: Mapping[str, str]) -> None:
        """One more step."""
        self.steps.append(list(actions.values()))
        self.words.append(dict(words))

    def text(self, known: Sequence[str] | None) -> str:
        """As an answer: actions by their place in `known` where they stand there."""
        place = {action: i for i, action in enumerate(known or ())}
        out: dict[str, Any] = {"steps": [[place.get(a, a) for a in step] for step in self.steps]}
        if any(self.words):
            out["words"] = self.words
        return json.dumps(out, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def read(cls, answer: str, known: Sequence[str] | None) -> Moves | None:
        """What an answer says; None where it is none of ours."""
        try:
            plain = json.loads(answer)
            steps = [[known[a] if isinstance(a, int) and known else str(a) for a in step] for step in plain["steps"]]
            words = [{str(k): str(v) for k, v in said.items()} for said in plain.get("words", [])]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            return None
        return cls(steps, words)

    def play(self, episode: Episode, without: Collection[str] = ()) -> None:
        """Take these steps, as far as the episode goes; of the agents left out, with empty actions and no words."""
        for i, step in enumerate(self.steps):
            turn = episode.turn()
            if not turn:
                return
            actions = {agent: "" if agent in without else action for agent, action in zip(turn, step, strict=False)}
            words = self.words[i] if i < len(self.words) else {}
            episode.step(actions, {agent: said for agent, said in words.items() if agent not in without})


@dataclass(frozen=True)
class WorldTask:
    """The task of `PACKAGE:NAME`."""

    name: str
    config: NoDials = NoDials()
    rules: tuple[str, ...] = _RULES

    @cached_property
    def _first(self) -> Episode:
        """An episode that nobody plays: what is the same in all of them."""
        return package_world(self.name)

    @property
    def short(self) -> str:
        """The name, as an id may be."""
        return self.name.replace(":", "-").replace("/", "-")

    @property
    def version(self) -> str:
        """Of the package and of its adapter."""
        return self._first.version

    @property
    def is_solo(self) -> bool:
        """Whether one agent acts, so that any team may solve it together."""
        return self._first.is_solo

    @property
    def agents(self) -> tuple[str, ...]:
        """Who is in it."""
        return self._first.agents

    @property
    def actions(self) -> tuple[str, ...] | None:
        """Every action there is; None where any text is one."""
        return self._first.actions

    @property
    def no_fork(self) -> str:
        """Why a recorded episode cannot be replayed; empty: it can."""
        return self._first.forks

    def episode(self, seed: int) -> Episode:
        """A fresh episode of its own."""
        made = package_world(self.name)
        made.reset(seed)
        return made

    def replace(self, **changes: Any) -> WorldTask:
        """There is no dial to change."""
        changed(self.config, changes)
        return self

    def instance(self, seed: int) -> Instance:
        """The rules, and of a world with one agent what it sees first."""
        first = self._first
        question = first.rules or self.name
        if first.is_solo:
            first.reset(seed)
            question = "\n".join(filter(None, (first.rules, first.observe(first.agents[0]))))
        known = first.actions
        form = f"one of: {', '.join(known)}" if known and len(known) <= 16 else "one action"
        part = Subtask("all", "Do all of it.")
        return Instance(task=self.name, seed=seed, question=question, answer_format=form, subtasks=(part,))

    def check(self, instance: Instance, answer: str) -> Score:
        """What the package pays for these actions, and its measures."""
        episode = self.episode(instance.seed)
        moves = Moves.read(answer, episode.actions)
        if moves is None:
            moves = Moves([[answer]] if episode.is_solo and answer else [])
        moves.play(episode)
        return score_of(episode)

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        """The first return that says anything."""
        return next((text for text in texts if text.strip()), "")

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        """The player by hand of the package, which acts on what it sees; with chance 1 - skill, some other legal action."""
        mine = [c for c in view.choices if c.verb == "tool"]
        legal = None if any(c.target == grammar.ACT and c.text is None for c in mine) else tuple(map(grammar.bare, mine))
        last = next((s.text for s in reversed(view.seen) if s.kind in ("result", "question")), "")
        if legal and draw("slip") >= skill:
            action = legal[int(draw("other") * len(legal))]
        else:
            action = self._first.by_hand(last, legal or None, draw)
        return self._act(action, view.choices)

    def _act(self, action: str, choices: Sequence[Choice]) -> Act:
        for choice in choices:
            if choice.verb == "tool" and choice.target == grammar.ACT and choice.text in (None, action):
                return Act("tool", grammar.ACT, action)
            if choice.verb == "tool" and choice.target == action:
                return Act("tool", action, self._first.words_for(action))
        other = next((c for c in choices if c.verb in ("return", "stop", "message")), choices[-1])
        return Act(other.verb, other.target, action or "unknown")

    def truth_file(self, instance: Instance) -> str:
        """There is no truth beside the package's own rules."""
        return f"{self.name} {instance.seed}\n"


def score_of(episode: Episode) -> Score:
    """The score of an episode as it stands: the team's reward, the package's measures, what each agent was paid."""
    paid = {f"reward_{agent}": value for agent, value in episode.rewards.items()}
    parts = {**episode.measures(), "illegal": float(episode.illegal), **paid}
    return Score(float(episode.team_reward), bool(episode.is_solved), parts)


def world_task(name: str) -> WorldTask:
    """The task of `PACKAGE:NAME`; finding it imports the package."""
    return WorldTask(name)
