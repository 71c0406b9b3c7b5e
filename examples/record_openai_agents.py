"""Record a team of the OpenAI Agents SDK: a handoff, function tools and an agent as a tool. No network: the model is a fake.

Run it: python examples/record_openai_agents.py [FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_trace_processors
from agents.tracing import generation_span
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from counterpoint import problems, record
from counterpoint.recorder.adapters.openai_agents import processor


def says(text: str) -> list[Any]:
    """An answer in words."""
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return [ResponseOutputMessage(id="m1", type="message", role="assistant", status="completed", content=[part])]


def calls(*names_and_arguments: tuple[str, str]) -> list[Any]:
    """An answer that calls tools."""
    return [
        ResponseFunctionToolCall(type="function_call", name=name, arguments=arguments, call_id=f"{name}-{i}")
        for i, (name, arguments) in enumerate(names_and_arguments)
    ]


class Script(Model):
    """A model that gives its answers one after the other, and traces itself as the SDK's own models do."""

    def __init__(self, *answers: list[Any]) -> None:
        self.answers = list(answers)

    async def get_response(
        self, system_instructions, input, model_settings, tools, output_schema, handoffs, tracing, **more
    ) -> ModelResponse:
        """The next answer."""
        asked = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        with generation_span(model="script-1", input=asked, disabled=tracing.is_disabled()) as span:
            output, usage = self.answers.pop(0), Usage(requests=1, input_tokens=30, output_tokens=6, total_tokens=36)
            span.span_data.output = [item.model_dump() for item in output]
            span.span_data.usage = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Not here."""
        raise NotImplementedError


@function_tool
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order}: a lamp, arrived broken"


def team() -> Agent:
    """Triage hands over to refunds, who look the order up and ask an expert."""
    expert = Agent(name="Expert", model=Script(says("Broken on arrival: refund it.")))
    asks = calls(("look_up", '{"order": "7"}'), ("ask_expert", '{"input": "A broken lamp?"}'))
    refunds = Agent(
        name="Refunds", model=Script(asks, says("Order 7 is refunded.")), tools=[look_up, expert.as_tool("ask_expert", "Ask.")]
    )
    return Agent(name="Triage", model=Script(calls(("transfer_to_refunds", "{}"))), handoffs=[refunds])


def main(folder: str = "traces") -> None:
    """Run the team as ever, with our processor in the place of the one that sends traces away."""
    with record(folder, task="refund", topology="mixed", system="openai-agents") as rec:
        set_trace_processors([processor(rec)])
        result = Runner.run_sync(team(), "My lamp came broken. Order 7.")
        rec.reward(team=1.0 if "refunded" in str(result.final_output) else 0.0)
    trace = rec.trace
    print(trace, "problems:", [str(p) for p in problems(trace)] + rec.problems)
    print(f"{trace.costs['tokens']:g} tokens; agents: {', '.join(trace.agents)}")
    print(f"next: counterpoint show {trace.trace_id} --store {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
