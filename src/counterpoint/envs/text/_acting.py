"""How a worker for fake models says what it wants with the actions that it is offered.

Always true: an act is one of the view's choices, with the text of the worker where the choice leaves it open; where nothing
that fits is offered the act is the first choice, or doing nothing. Texts are one line, as the action grammar wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from counterpoint.envs.task import Act, Choice, Seen, View

T = TypeVar("T")
OTHERS = ("message", "return", "note", "result", "brief", "operator")
_SHOWN = 4  # how many problems a critic names


def _act(choice: Choice, text: str) -> Act:
    return Act(choice.verb, choice.target, " ".join(text.split()) if choice.text is None else choice.text)


def _offers(view: View, verb: str, target: str | None = None) -> list[Choice]:
    return [c for c in view.choices if c.verb == verb and target in (None, c.target)]


def use(view: View, tool: str, text: str) -> Act | None:
    """A call of a tool, where it is offered."""
    found = [c for c in _offers(view, "tool", tool) if c.text is None]
    return Act("tool", tool, text) if found else None


def is_final(view: View) -> bool:
    """Whether what is said now is the team's answer, and not a part for others."""
    return not _offers(view, "return") and not (view.purpose == "debate" and _offers(view, "message"))


def _unsaid(view: View) -> list[Choice]:
    """Peers that have not been told anything since this agent last heard something."""
    since: list[Seen] = []
    for seen in view.seen:
        since = [*since, seen] if seen.kind in ("own", "error") else []
    told = " ".join(seen.text for seen in since)
    return [c for c in _offers(view, "message") if not c.target or f"{c.target}:" not in told]


def answer(view: View, text: str) -> Act:
    """Say an answer: to peers in a debate, as a return or the team's answer otherwise."""
    offers = _unsaid(view) if view.purpose == "debate" else []
    for verb in ("return", "stop", "message"):
        offers += _offers(view, verb)
    offers += view.choices
    free = [c for c in offers if c.text is None] or offers
    return _act(free[0], text) if free else Act("noop")


def judged(view: View, problems: Sequence[str], is_slip: bool) -> Act:
    """A critic's word: ACCEPT, or REJECT with the problems; a slip turns it round."""
    found = list(problems)[:_SHOWN]
    if is_slip:
        found = [] if found else ["something in it looks wrong"]
    text = "REJECT " + "; ".join(found) if found else "ACCEPT"
    fixed = [c for c in view.choices if c.text is not None and c.text.upper().startswith(text[:6])]
    is_open = any(c.text is None and c.verb in ("return", "stop", "message") for c in view.choices)
    return _act(fixed[0], text) if fixed and not is_open else answer(view, text)


def subtask(view: View) -> str:
    """The text of the sub-task that was given last; empty for an agent that works on the whole question."""
    given = [seen.text for seen in view.seen if seen.kind == "subtask"]
    return given[-1] if given else ""


def heard(view: View, read: Callable[[str], T | None], kinds: Iterable[str] = OTHERS) -> list[tuple[str, T]]:
    """What a reader finds in the texts that the agent has seen of others, oldest first, each with who said it."""
    wanted = set(kinds)
    found = [(seen.by, read(seen.text)) for seen in view.seen if seen.kind in wanted]
    return [(by, value) for by, value in found if value]
