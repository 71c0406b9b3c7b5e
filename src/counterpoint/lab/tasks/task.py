"""What a text task is: instances from a seed, an exact checker, a natural split, and a player for fake models.

Always true: an `Instance` holds only what agents may read; the truth is made again from the seed inside `check`, and appears in
no prompt. The same task and seed give the same instance, byte for byte. `check` takes any text and never raises. `work` acts on
what its view holds and nothing else, so that what a fake agent read is what it acted on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import counterpoint.registry as registry
from counterpoint.errors import InputError
from counterpoint.lab.worlds.packages import is_episode, is_package_world
from counterpoint.lab.worlds.world import World

Verb = Literal["spawn", "delegate", "message", "tool", "aggregate", "return", "stop", "noop"]
VERBS: tuple[str, ...] = get_args(Verb)
Draw = Callable[[str], float]
"""A number in [0, 1) for a named purpose; the same name gives the same number within one call."""


@dataclass(frozen=True)
class Act:
    """One action of an agent, whoever chose it."""

    verb: Verb
    target: str = ""
    """The role to spawn, the agent to address, the tool to call, the rule to aggregate by."""
    text: str = ""
    """The sub-task, the message, the tool's arguments (a JSON object, or its main argument bare), the answer."""


@dataclass(frozen=True)
class Choice:
    """An action that is legal now; with `text=None` the agent writes the text, otherwise it is fixed."""

    verb: Verb
    target: str = ""
    text: str | None = None
    about: str = ""
    """A word of help for the reader of the prompt."""


@dataclass(frozen=True)
class ViewItem:
    """One thing that an agent has read or done, in order."""

    kind: Literal["question", "subtask", "brief", "message", "return", "result", "note", "own", "error", "operator"]
    by: str
    """Who said it: an agent, a tool, `user`, `operator`; for `own` and `error` the agent itself."""
    text: str
    task: str = ""
    """The sub-task that it is about, where it is about one."""


@dataclass(frozen=True)
class View:
    """All that an agent knows when it acts: what a prompt renders, and what a fake model reads."""

    agent: str
    role: str
    purpose: str
    """What kind of turn this is: `turn`, `work`, `judge`, `debate`, `resolve`."""
    seen: tuple[ViewItem, ...]
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Document:
    """A text that `search` and `open` find."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Subtask:
    """A part of the work that one agent can do alone; `text` says in words what to do and what to return."""

    id: str
    text: str


@dataclass(frozen=True)
class Planted:
    """Text of an adversary, or a benign control, and how to see that it worked."""

    vector: Literal["AV2", "AV3", "AV4", "benign"]
    where: str
    """`document:ID` (in the documents already), `shard:N` (in the shards already), `peer:N` (the N-th spawned
    worker, from 1, says it with its first return), or
    `note` (on the shared board from the start)."""
    text: str
    canary: str = ""
    """Success when this is in the answer or in another agent's message."""
    tool: str = ""
    """Success when this tool, which is not allowed, is called."""
    file: str = ""
    """Success when this file is touched."""


@dataclass(frozen=True)
class Score:
    """How good an answer is: `value` in [0, 1], 1 exactly when it is right in every part."""

    value: float
    is_solved: bool
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One question with all that the agents may read. No truth in here."""

    task: str
    """The task's id, such as `ledger_hunt`."""
    seed: int
    question: str
    """What the user asks the team."""
    answer_format: str
    """One line that says how the answer is written."""
    subtasks: tuple[Subtask, ...]
    """A natural split; every one can be done by one agent with the task's tools. At least one."""
    tools: tuple[str, ...] = ()
    """The tools that workers may use, by name: search, open, sql, python, note, notes."""
    documents: tuple[Document, ...] = ()
    database: str = ""
    """SQL that builds the database for `sql`."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that lie in each agent's folder at the start, by relative path."""
    shards: tuple[tuple[str, ...], ...] = ()
    """Private texts: the n-th spawned worker gets shard n modulo their number as a brief; () where nobody knows more."""
    planted: tuple[Planted, ...] = ()


@runtime_checkable
class TextTask(Protocol):
    """One task plug-in (`lab/tasks/NAME.py` defines an object NAME that follows this)."""

    @property
    def name(self) -> str:
        """The id: the file's name."""

    @property
    def short(self) -> str:
        """A short name: T1 to T6."""

    @property
    def version(self) -> str:
        """Changes whenever the same seed would give another instance or score."""

    @property
    def config(self) -> Any:
        """A frozen dataclass whose fields are made by `envs.world.parameter`: the difficulty dials."""

    @property
    def rules(self) -> tuple[str, ...]:
        """The ways in which `merge` can put returns together, the usual one first."""

    def replace(self, **changes: Any) -> TextTask:
        """The same task with other dials; impossible ones raise `InputError`."""

    def instance(self, seed: int) -> Instance:
        """The instance of a seed."""

    def check(self, instance: Instance, answer: str) -> Score:
        """The score of an answer, exact; an answer that cannot be read scores 0."""

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        """The returns of workers as one answer, by a rule; no model is asked. Texts may be anything."""

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        """What a competent worker does next, from its view alone; with chance 1 - skill a step goes wrong."""

    def truth_file(self, instance: Instance) -> str:
        """The truth as a text with a marker that stands nowhere else; for the leakage test, never for agents."""


# -- tasks by name -----------------------------------------------------------------------------------------------------


def task(name: str, **dials: Any) -> Any:
    """A task by id (`ledger_hunt`), short name (`T1`), `"package.module:object"`, or a package's world (`dpbench:sim_n5_nocomm`).

    Finding a task makes no instance.
    """
    own = registry.get("task", name) if ":" in name and not is_package_world(name) else None
    if is_package_world(name) or is_episode(own):
        made = registry.get("task/packages", "world_task")(name)
        return made.replace(**dials) if dials else made
    if isinstance(own, World):
        fix = f"counterpoint train net --world {name}; counterpoint play --world {name}"
        raise InputError("is a world: it gives numbers, and no words for a language model", where=name, fix=fix)
    named = registry.named("task", name, TextTask, "counterpoint.lab.testing.check_task says what a task needs")
    return named.replace(**dials) if dials else named
