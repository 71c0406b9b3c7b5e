"""plugin_name: a model that says the same line at every turn: `RETURN: ` and the words it was made with.

Always true: nothing is drawn, so the same call gives the same text; tokens are counted as words.
"""

from __future__ import annotations

from typing import Any

from counterpoint.lab.lm.model import Call, Completion


class OneLine:
    """One line for every call."""

    is_instant = True

    def __init__(self, words: str) -> None:
        self.name, self.version = "plugin_name", "1"
        self._text = f"RETURN: {words}"

    async def complete(self, call: Call) -> Completion:
        """The line."""
        return Completion(text=self._text, tokens_in=sum(m.words for m in call.messages), tokens_out=len(self._text.split()))

    async def close(self) -> None:
        """Nothing to let go of."""


def plugin_name(words: str = "42", **options: Any) -> OneLine:
    """A model that always returns the same words: `plugin_name:WORDS`."""
    return OneLine(words)


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a model, and answers what was written by hand."""

import asyncio

# from here import plugin_name
from counterpoint.lab.lm.model import Call, Message
from counterpoint.lab.testing import check_model


def test_it_keeps_the_contract() -> None:
    check_model(plugin_name)


def test_a_line_by_hand() -> None:
    answer = asyncio.run(plugin_name("six times seven").complete(Call(messages=(Message("user", "What is 42?"),))))
    assert (answer.text, answer.tokens_in, answer.tokens_out) == ("RETURN: six times seven", 3, 4)
