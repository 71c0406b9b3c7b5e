"""A mail desk of three roles in LangGraph: a reader, a checker and a router. It knows nothing of Counterpoint.

A mail comes in; the reader writes down what it is about, the checker looks at mail and line again, and the router, who does not
see the mail, names the department in front of the line. The scorer compares the four fields with the truth.
"""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

READER = "You read mails. Write one line: what they want | how many | which thing | which city"
CHECKER = "You check lines against mails. Write the line again, corrected where it is wrong."
ROUTER = (
    "You route lines: order goes to sales, return to depot, broken to repair. "
    "Write: department | how many | which thing | which city"
)


class Desk(TypedDict):
    """The state of one mail."""

    mail: str
    line: str
    answer: str


def graph(model: Any) -> Any:
    """The team, speaking with a model."""

    def say(system: str, text: str) -> str:
        return str(model.invoke([("system", system), ("user", text)]).content).strip()

    def reader(state: Desk) -> dict[str, str]:
        return {"line": say(READER, state["mail"])}

    def checker(state: Desk) -> dict[str, str]:
        return {"line": say(CHECKER, f"Mail: {state['mail']}\nLine: {state['line']}")}

    def router(state: Desk) -> dict[str, str]:
        return {"answer": say(ROUTER, state["line"])}

    made = StateGraph(Desk)
    for node in (reader, checker, router):
        made.add_node(node.__name__, node)
    made.add_edge(START, "reader")
    made.add_edge("reader", "checker")
    made.add_edge("checker", "router")
    made.add_edge("router", END)
    return made.compile()


def team(question: str) -> str:
    """One mail, answered with the model that the environment names."""
    model = ChatOpenAI(model="gpt-4o-mini", max_completion_tokens=32)
    answer: str = graph(model).invoke({"mail": question, "line": "", "answer": ""})["answer"]
    return answer


def score(answer: str, case: dict[str, Any]) -> float:
    """The share of the four fields that are right."""
    lines = answer.strip().splitlines()
    said = [part.strip().lower() for part in (lines[-1] if lines else "").split("|")]
    true = [part.strip().lower() for part in str(case["answer"]).split("|")]
    return sum(a == b for a, b in zip(said, true, strict=False)) / len(true) if len(said) == len(true) else 0.0
