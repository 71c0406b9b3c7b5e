"""A team in LangGraph: two nodes at once, one of which asks twice at once, and a third that streams."""

import asyncio
import operator
from typing import Annotated, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

llm = ChatOpenAI(model="gpt-4o-mini", max_tokens=6)


class State(TypedDict):
    question: str
    notes: Annotated[list, operator.add]
    answer: str


def scout(state: State) -> dict:
    return {"notes": [llm.invoke([("system", "You are a scout."), ("user", state["question"])]).content]}


async def critic(state: State) -> dict:
    asked = [[("system", "You are a critic."), ("user", f"{state['question']} {k}")] for k in range(2)]
    return {"notes": [one.content for one in await asyncio.gather(*(llm.ainvoke(one) for one in asked))]}


def writer(state: State) -> dict:
    return {"answer": "".join(piece.content for piece in llm.stream([("system", "You merge."), ("user", str(state["notes"]))]))}


graph = StateGraph(State)
for node in (scout, critic, writer):
    graph.add_node(node.__name__, node)
graph.add_edge(START, "scout")
graph.add_edge(START, "critic")
graph.add_edge(["scout", "critic"], "writer")
graph.add_edge("writer", END)
app = graph.compile()


async def team(question: str) -> str:
    return (await app.ainvoke({"question": question, "notes": [], "answer": ""}))["answer"]
