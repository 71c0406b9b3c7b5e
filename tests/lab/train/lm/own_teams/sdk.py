"""A team of the OpenAI Agents SDK: two agents one after the other, the first with a tool."""

from agents import Agent, Runner, function_tool


@function_tool
def lookup(word: str) -> str:
    """Look a word up."""
    return f"found {word}"


scout = Agent(name="scout", instructions="You are a scout.", model="gpt-4o-mini", tools=[lookup])
writer = Agent(name="writer", instructions="You merge.", model="gpt-4o-mini")


async def team(question: str) -> str:
    found = await Runner.run(scout, question)
    return str((await Runner.run(writer, str(found.final_output))).final_output)
