"""A team of Pydantic AI, which no recorder of ours knows."""

from pydantic_ai import Agent

scout = Agent("openai-chat:gpt-4o-mini", instructions="You are a scout.")
writer = Agent("openai-chat:gpt-4o-mini", instructions="You merge.")


async def team(question: str) -> str:
    return (await writer.run((await scout.run(question)).output)).output
