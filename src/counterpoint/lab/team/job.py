"""What a team of a person's own code is asked: `team(job)`, or `team(question: str)`.

Always true: a function whose first parameter says that it is a text gets the question alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from counterpoint.recorder.recording import Recording


@dataclass(frozen=True)
class Job:
    """What a team is asked."""

    question: str
    answer_format: str
    parts: Mapping[str, str]
    """A natural split of the work: name to what is to be done."""
    tools: Mapping[str, Callable[[str], str]]
    """By name; each takes a text and gives one. They are recorded, once: also where a framework's adapter records them."""
    about: Mapping[str, str]
    """What each tool does and how it is asked."""
    recording: Recording
    """Of this run: its decorators and `acting` say who did what."""
    briefs: tuple[str, ...] = ()
    """What only one agent may know at first: the n-th goes to whoever works on the n-th part. Empty in most tasks."""
    case: Mapping[str, Any] = field(default_factory=dict)
    """Of a case of your own all of its line but the answer."""


def takes_text(team: Any) -> bool:
    """Whether a function says that it takes a text: it is asked the question, and not handed a job."""
    try:
        first = next(iter(inspect.signature(team).parameters.values()), None)
    except (TypeError, ValueError):  # of a built-in
        return False
    return first is not None and first.annotation in (str, "str")


def takes(function: Any, count: int) -> bool:
    """Whether a function can be called with so many arguments, as far as it says."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # of a built-in, which does not say
        return True
    return True
