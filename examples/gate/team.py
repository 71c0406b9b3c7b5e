"""A small team: a lead that asks a reader for each page, and a model that answers from what was read."""

from __future__ import annotations

from counterpoint import record

PAGES = {
    "bridge": "The bridge opened in 1932.",
    "tower": "The tower has 1710 steps.",
    "river": "The river is 2850 km long.",
    "island": "On the island live 364 people.",
    "mountain": "The mountain was first climbed in 1786.",
    "lake": "The lake is 254 m deep.",
}
rec = record(task="facts", agent="lead", topology="centralized", system="example")


@rec.tool
def read(page: str) -> str:
    """A tool: what it gives is from outside the team."""
    return PAGES[page]


@rec.model(name="fake-model")
def ask(prompt: str) -> str:
    """A model, which finds the number; a real one says its tokens in its answer, and has a price."""
    words = [word.strip(".") for word in prompt.split()]
    rec.tell(tokens_in=len(words), tokens_out=1, cost_usd=0.0002 * len(words))
    return next((word for word in words if word.isdigit()), "unknown")


@rec.agent(role="reader")
def reader(page: str) -> str:
    """A sub-agent for a page."""
    return ask(f"Which number is in this? {read(page)}")


@rec.agent
def lead(page: str) -> str:
    """The orchestrator."""
    return ask(f"Answer in one number: {reader(page)}")
