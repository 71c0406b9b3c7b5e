"""A team of the OpenAI Agents SDK on the bench: a lead whose tool is a reader, asked for all parts at once.

    counterpoint bench run short --team examples/bench/openai_agents_team.py:team

The model is whatever OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL say (`examples/bench/endpoint.py` is one without weights).
All of the bench in it is the last function: tools come from the job, and one processor records.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from agents import Agent, FunctionTool, OpenAIChatCompletionsModel, Runner, set_trace_processors
from openai import AsyncOpenAI

from counterpoint.recorder.adapters.openai_agents import processor

_TURNS = 100_000


def tool(name: str, about: str, call: Any) -> FunctionTool:
    """A tool of the job as one of the SDK's."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": False}

    async def invoke(context: Any, arguments: str) -> str:
        return str(await asyncio.to_thread(call, json.loads(arguments)["text"]))

    return FunctionTool(name=name, description=about, params_json_schema=schema, on_invoke_tool=invoke)


def lead(job: Any, model: Any) -> Agent:
    """The team of a job."""
    tools = [tool(name, about, job.tools[name]) for name, about in job.about.items()]
    does = "Work on your part with the tools, and answer with what you found alone."
    reader = Agent(name="reader", instructions=does, model=model, tools=tools)
    ask = reader.as_tool("ask_reader", "A reader works on one part and says what it found.", max_turns=_TURNS)
    leads = f"Give each part to a reader, then put together what they found. The answer is written as {job.answer_format}."
    return Agent(name="lead", instructions=leads, model=model, tools=[ask])


async def team(job: Any) -> str:
    """What the bench calls."""
    set_trace_processors([processor(job.recording)])
    async with AsyncOpenAI(max_retries=5) as client:
        model = OpenAIChatCompletionsModel(model=os.environ.get("OPENAI_MODEL", "gpt-5-mini"), openai_client=client)
        briefs = [f"\nWhat you know:\n{text}" for text in job.briefs] or [""]
        parts = [f"{name}: {text}{briefs[i % len(briefs)]}" for i, (name, text) in enumerate(job.parts.items())]
        asked = f"{job.question}\nThe parts:\n" + "\n".join(parts)
        return str((await Runner.run(lead(job, model), asked, max_turns=_TURNS)).final_output)
