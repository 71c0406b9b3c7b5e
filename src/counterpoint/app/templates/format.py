"""plugin_name: chats as JSON lines, one message in each.

    {"chat": "c1", "who": "ann", "to": "bob", "says": "..."}

Always true: a chat is a trace, a line is a message; a line that cannot be read is counted, and the rest goes on. What is lost:
nothing of these four keys; times and tokens are not in the source.
"""

from __future__ import annotations

from collections.abc import Iterator

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session
from counterpoint.trace import Trace


def _read(session: Session) -> Iterator[Trace]:
    chats: dict[str, Draft] = {}
    for file in session.files:
        for line, record in session.records(file):
            if not {"chat", "who", "says"} <= record.keys():
                session.report.broke(file.name, line, "a line without chat, who or says")
                continue
            name, who = str(record["chat"]), str(record["who"])
            if name not in chats:
                chats[name] = session.draft(name, name, system="plugin_name")
            to = str(record.get("to") or "all")
            chats[name].event("message", who, id=f"line{line}", from_=who, to=to, text=str(record["says"]))
    for draft in chats.values():
        yield from draft.traces()


_EXAMPLE = b"""{"chat": "c1", "who": "ann", "to": "bob", "says": "What is 6 times 7?"}
{"chat": "c1", "who": "bob", "to": "ann", "says": "42"}
{"chat": "c2", "who": "ann", "says": "Hello, all."}
"""

plugin_name = Importer(
    system="plugin_name",
    suffixes=(".chat.jsonl",),
    sniff=lambda head: head.startswith(b'{"chat"'),
    read_session=_read,
    becomes={"line": ("message",)},
    example=lambda: {"talk.chat.jsonl": _EXAMPLE},
    keeps=("contents", "meta"),
    versions="any",
    exact="who said what, in order",
    lost="nothing of the four keys; times and tokens are not in the source",
)


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a format, and reads what was counted by hand."""

# from here import plugin_name
from counterpoint.testing import check_format


def test_it_keeps_the_contract() -> None:
    check_format(plugin_name)


def test_two_chats_by_hand() -> None:
    assert plugin_name.read is not None
    assert plugin_name.example is not None
    first, second = plugin_name.read(*plugin_name.example().values())
    assert [(e.agent, e.to, first.text(e)) for e in first.events][1] == ("bob", "ann", "42")
    assert (len(first.events), len(second.events)) == (2, 1)
