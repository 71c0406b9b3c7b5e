"""A team in LangGraph on the bench: a reader for each part (Send), each a loop of model and tools, and a writer.

    counterpoint bench run short --team examples/bench/langgraph_team.py:team

The model is whatever OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL say (`examples/bench/endpoint.py` is one without weights).
All of the bench in it is the last function: tools come from the job, and one callback records.
"""

from __future__ import annotations

import json
import operator
import os
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Send
from openai import OpenAI

from counterpoint.recorder.adapters.langgraph import handler


class Endpoint(BaseChatModel):
    """Chat completions through the `openai` package; `langchain_openai.ChatOpenAI` does the same and more."""

    client: Any
    model: str

    @property
    def _llm_type(self) -> str:
        return self.model

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        """The model with tools on offer."""
        return self.bind(tools=[convert_to_openai_tool(t) for t in tools], **more)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
        said = self.client.chat.completions.create(model=self.model, messages=convert_to_openai_messages(messages), **more)
        found, usage = said.choices[0].message, said.usage
        asked = [(c.id, c.function) for c in found.tool_calls or ()]
        calls = [{"id": id_, "name": f.name, "args": json.loads(f.arguments or "{}")} for id_, f in asked]
        told = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens, "total_tokens": usage.total_tokens}
        message = AIMessage(found.content or "", tool_calls=calls, usage_metadata=told)
        return ChatResult(generations=[ChatGeneration(message=message)])


class Work(TypedDict):
    """What the nodes share."""

    question: str
    notes: Annotated[list[str], operator.add]
    answer: str


class Part(TypedDict):
    """What a reader is sent."""

    text: str
    brief: str


def graph(job: Any, model: BaseChatModel) -> Any:
    """The team of a job."""
    make = StructuredTool.from_function
    tools = [make(_tool(job.tools[name]), name=name, description=about) for name, about in job.about.items()]
    reading = StateGraph(MessagesState)
    with_tools = model.bind_tools(tools) if tools else model
    reading.add_node("agent", lambda state: {"messages": [with_tools.invoke(state["messages"])]})
    reading.add_node("tools", ToolNode(tools))
    reading.add_edge(START, "agent")
    reading.add_conditional_edges("agent", tools_condition)
    reading.add_edge("tools", "agent")
    reads = reading.compile()

    def fan_out(state: Work) -> list[Send]:
        briefs = job.briefs or ("",)
        return [Send("reader", Part(text=t, brief=briefs[i % len(briefs)])) for i, t in enumerate(job.parts.values())]

    def reader(part: Part) -> dict[str, Any]:
        asked = f"{job.question}\nYour part: {part['text']}" + (f"\nWhat you know:\n{part['brief']}" if part["brief"] else "")
        said = [SystemMessage("Work on your part with the tools, and answer with what you found alone."), HumanMessage(asked)]
        return {"notes": [reads.invoke({"messages": said})["messages"][-1].text]}

    def writer(state: Work) -> dict[str, Any]:
        told = f"Put these findings together.\n{state['question']}\nThe answer is written as {job.answer_format}."
        return {"answer": model.invoke([HumanMessage(told), *map(HumanMessage, state["notes"])]).text}

    team = StateGraph(Work)
    team.add_node(reader)
    team.add_node(writer)
    team.add_conditional_edges(START, fan_out, ["reader"])
    team.add_edge("reader", "writer")
    return team.compile()


def _tool(call: Any) -> Any:
    def tool(text: str) -> str:
        return str(call(text))

    return tool


def team(job: Any) -> str:
    """What the bench calls."""
    with OpenAI(max_retries=5) as client:
        made = graph(job, Endpoint(client=client, model=os.environ.get("OPENAI_MODEL", "gpt-5-mini")))
        config = {"callbacks": [handler(job.recording)], "recursion_limit": 100_000, "max_concurrency": 8}
        return str(made.invoke({"question": job.question, "notes": []}, config=config)["answer"])
