"""Record a LangGraph graph: nodes as agents, a fan-out with Send, a model and a tool, through one callback.

Run it: python examples/record_langgraph.py [FOLDER]
"""

from __future__ import annotations

import operator
import sys
from typing import Annotated, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send

from counterpoint import problems, record
from counterpoint.recorder.adapters.langgraph import handler


class State(TypedDict):
    """What the nodes share."""

    question: str
    notes: Annotated[list[str], operator.add]
    answer: str


class Fake(BaseChatModel):
    """A model that answers with the facts of what it is told, and states its tokens as a real one does."""

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _generate(self, messages, stop=None, run_manager=None, **more) -> ChatResult:
        words = str(messages[-1].content).split()
        facts = [word for word in words if any(c.isdigit() for c in word)] or ["nothing"]
        usage = {"input_tokens": len(words), "output_tokens": len(facts), "total_tokens": len(words) + len(facts)}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(" ".join(facts), usage_metadata=usage))])


PAGES = {"the opening": "It opened in 1932.", "the length": "It is 503 m long."}
model = Fake()


@tool
def search(words: str) -> str:
    """Search the archive."""
    return PAGES[words]


def plan(state: State) -> dict:
    """Think about the question."""
    return {"notes": [model.invoke(state["question"]).text]}


def fan_out(state: State) -> list[Send]:
    """One reader for each thing that is asked."""
    return [Send("reader", {"question": part}) for part in ("the opening", "the length")]


def reader(state: State) -> dict:
    """Find one thing out."""
    page = search.invoke(state["question"])
    return {"notes": [model.invoke(page).text]}


def gather(state: State) -> Command:
    """Enough is known: over to the writer."""
    return Command(goto="writer")


def writer(state: State) -> dict:
    """Answer."""
    return {"answer": model.invoke(" / ".join(state["notes"])).text}


def graph() -> StateGraph:
    """The team."""
    team = StateGraph(State)
    team.add_node(plan)
    team.add_node(reader)
    team.add_node(gather, destinations=("writer",))
    team.add_node(writer)
    team.add_edge(START, "plan")
    team.add_conditional_edges("plan", fan_out, ["reader"])
    team.add_edge("reader", "gather")
    team.add_edge("writer", END)
    return team


def main(folder: str = "traces") -> None:
    """Run the graph as ever, with one more callback."""
    with record(folder, task="bridge", topology="centralized", system="langgraph") as rec:
        state = {"question": "When did it open, and how long is it?", "notes": []}
        end = graph().compile().invoke(state, config={"callbacks": [handler(rec)]})
        rec.reward(team=1.0 if "503" in end["answer"] else 0.0)
    trace = rec.trace
    print(trace, "problems:", [str(p) for p in problems(trace)] + rec.problems)
    print(f"{trace.costs['tokens']:g} tokens; agents: {', '.join(trace.agents)}")
    print(f"next: counterpoint show {trace.trace_id} --store {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
