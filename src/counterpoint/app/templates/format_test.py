"""plugin_name keeps the contract of a format, and reads what was counted by hand."""

from counterpoint.app.templates.format import plugin_name
from counterpoint.testing import check_format

SAMPLE = b"""{"chat": "c1", "who": "ann", "to": "bob", "says": "What is 6 times 7?"}
{"chat": "c1", "who": "bob", "to": "ann", "says": "42"}
{"chat": "c2", "who": "ann", "says": "Hello, all."}
"""


def test_it_keeps_the_contract() -> None:
    check_format(plugin_name, {"talk.chat.jsonl": SAMPLE})


def test_two_chats_by_hand() -> None:
    assert plugin_name.read is not None
    first, second = plugin_name.read(SAMPLE)
    assert [(e.agent, e.to, first.text(e)) for e in first.events][1] == ("bob", "ann", "42")
    assert (len(first.events), len(second.events)) == (2, 1)
