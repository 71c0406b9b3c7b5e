"""E3, collaboration: are messages new to those who get them, and does anybody read them?

Always true: only messages between agents of the team count; where no text is stored, equal `content_ref`s still show exact
repeats, and the share found is then "at least". A message with neither is not judged, and is not taken to be new.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.audits.facts import Facts
from counterpoint.audits.records import Measure, ids, standing
from counterpoint.audits.redundancy import THRESHOLD, repeats, repeats_by_embedding, repeats_by_similarity, shingles

Scope = Literal["team", "receiver", "pair"]
"""Against which earlier messages one is held: all; those its receiver got or sent; those between the same two agents."""


class Repeats(NamedTuple):
    """Of a list of events: which repeat an earlier one (event to the earlier event), and how many could be judged."""

    of: dict[int, int]
    judged: int
    by_text: int


def repeated(
    facts: Facts,
    numbers: list[int],
    *,
    scope: Scope = "team",
    threshold: float = THRESHOLD,
    k: int = 3,
    similarity: Callable[[str, str], float] | None = None,
    embed: Callable[[list[str]], NDArray[Any]] | None = None,
) -> Repeats:
    """Which of these events say what an earlier one said.

    By text: Jaccard of word k-shingles, or `embed` (n texts to an (n, d) array, cosine), or `similarity` of two texts. Events
    without a stored text are held against each other by equal `content_ref`.
    """
    texts = {i: text for i in numbers if (text := facts.text(i)) is not None}
    sets = {i: shingles(text, k) for i, text in texts.items()} if embed is None and similarity is None else {}
    vectors = dict(zip(texts, embed(list(texts.values())), strict=True)) if embed is not None and texts else {}
    refs = [i for i in numbers if i not in texts and facts.events[i].content_ref is not None]
    earlier_of: dict[int, int] = {}
    for group, own in _groups(facts, [i for i in numbers if i in texts], scope):
        if embed is not None:
            earlier = repeats_by_embedding(np.array([vectors[i] for i in group]), threshold)
        elif similarity is not None:
            earlier = repeats_by_similarity([texts[i] for i in group], similarity, threshold)
        else:
            earlier = repeats([sets[i] for i in group], threshold)
        earlier_of |= {i: group[j] for i, j in zip(group, earlier, strict=True) if j >= 0 and i in own}
    for group, own in _groups(facts, refs, scope):
        first: dict[str | None, int] = {}
        for i in group:
            j = first.setdefault(facts.events[i].content_ref, i)
            if j != i and i in own:
                earlier_of[i] = j
    return Repeats(dict(sorted(earlier_of.items(), key=lambda p: facts.team.place_E[p[0]])), len(texts) + len(refs), len(texts))


def _groups(facts: Facts, numbers: list[int], scope: Scope) -> list[tuple[list[int], set[int]]]:
    """The lists in which a repeat is looked for, and which of each list are judged there."""
    if scope == "team":
        return [(numbers, set(numbers))] if numbers else []
    groups: dict[Hashable, tuple[list[int], set[int]]] = {}
    for i in numbers:
        event = facts.events[i]
        sender, receiver = event.from_ or event.agent, event.to
        if scope == "pair":
            key: Hashable = frozenset((sender, receiver))
            group, own = groups.setdefault(key, ([], set()))
            group.append(i)
            own.add(i)
            continue
        # What an agent sent it knows as well as what it got, but only what it got is judged with it.
        for who in dict.fromkeys((receiver, sender)):
            group, own = groups.setdefault(who, ([], set()))
            group.append(i)
            if who == receiver:
                own.add(i)
    return list(groups.values())


def collaboration(
    facts: Facts,
    *,
    threshold: float = THRESHOLD,
    k: int = 3,
    similarity: Callable[[str, str], float] | None = None,
    embed: Callable[[list[str]], NDArray[Any]] | None = None,
) -> list[Measure]:
    """Message redundancy, over the team and per receiver, and the share of messages read (survey section 7, E3).

    Departure: "semantically duplicate" is word-shingle similarity unless `similarity` or `embed` is given. Per receiver is
    research.md section 7: what the receiver already had, so a broadcast is not redundant.
    """
    messages = facts.messages
    names = ("message_redundancy", "message_redundancy_receiver")
    if not messages:
        return [Measure.missing(name, "no message between agents") for name in (*names, "messages_read")]
    how = "embeddings" if embed else "a given similarity" if similarity else f"{k}-word shingles"
    out = []
    scopes: tuple[tuple[str, Scope], ...] = ((names[0], "team"), (names[1], "receiver"))
    for name, scope in scopes:
        repeats = repeated(facts, messages, scope=scope, threshold=threshold, k=k, similarity=similarity, embed=embed)
        out.append(_redundancy(facts, name, repeats, f"{how} >= {threshold:g}"))
    return [*out, _read(facts)]


def _redundancy(facts: Facts, name: str, repeats: Repeats, how: str) -> Measure:
    total = len(facts.messages)
    if not repeats.judged:
        return Measure.missing(name, f"none of {total:,} messages has a text or a content_ref")
    text = f"{len(repeats.of):,} of {total:,} messages; {repeats.by_text:,} by text ({how})"
    if repeats.judged > repeats.by_text:
        text += f", {repeats.judged - repeats.by_text:,} by equal content_ref only"
    if repeats.judged < total:
        text += f", {total - repeats.judged:,} have neither"
    status, bound = standing(repeats.by_text == total)
    return Measure.of(name, len(repeats.of) / total, text, status=status, bound=bound, events=ids(facts.trace, repeats.of))


def _read(facts: Facts) -> Measure:
    messages = facts.messages
    read = [i for i in messages if facts.read_E[i]]
    if not read and not bool(facts.read_E[facts.team.of_types(("return", "tool_result"))].any()):
        return Measure.missing("messages_read", "no edge says that an agent read another's message, return or result")
    unread = ids(facts.trace, [i for i in messages if not facts.read_E[i]])
    text = f"{len(read):,} of {len(messages):,} messages have an edge to another agent's event; events: the others"
    return Measure.of("messages_read", len(read) / len(messages), text, events=unread)
