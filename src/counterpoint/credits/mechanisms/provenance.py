"""Provenance: how much of the final result each agent was the first to say.

The result of a trace is its answers: the lead's last words before the user speaks again, and its last words. Each of their N
words has one origin. Word i is covered by up to four windows of four words; of those that stand in an earlier event from which
information edges lead to the answer, one that a tool printed first counts, else the one that stands in the fewest such events,
and the first of these events in the story is the origin. A word that no such window covers is looked for alone if it is rare:
a number, a name, an identifier.

    c_u = |{i : the origin of word i is an event of u}| / N        traced = sum over members u of c_u
    traced + printed + given + unlinked + new = 1

`printed` stood first in what a tool brought; `given` was first said by the user or the system; `unlinked` stands earlier in the
trace, but no recorded edge leads from there to the answer (unread, or not recorded); `new` was first said in the answer itself.
Nobody is paid for what a tool printed, nor for warnings and tracebacks that a program wrote into an agent's words: these are no
words of the agent, and none of the result.

Always true: rows are at least 0 and sum to `traced`; what no edge leads from gets 0, and changes no row. A share says where words
stood first. It is observed, and no cause: who found the right question, or checked an answer, may get nothing.

Source: ours; windows of words after Broder, On the resemblance and containment of documents (1997). Departures: containment in
one direction, first occurrence only, and no sampling of windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.shared_options import Unit
from counterpoint.errors import InputError, NotFound, NotIdentified, did_you_mean
from counterpoint.trace import Graph, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, CreditRow
from counterpoint.trace.team import TraceTeam, team_of
from counterpoint.trace.vocabulary import EDGE_TYPES

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
_ESTIMAND = "share of the result's words that appear first in the unit's words, of all it could read"
_WORDS = 4
"""Words in a window."""
_SPOKEN = ("message", "return", "aggregate", "orchestrator_decision")
_SIGN_OFF = frozenset({"terminate", "terminated", "exit"})
"""Words that end a conversation and say nothing."""
_TEMPORAL = EDGE_TYPES.index("temporal")
# Scripts without blanks between words: every character is a word.
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_TO_LOWER = "".join(chr(c).lower() if chr(c).isalnum() or chr(c) == "_" else " " for c in range(128))
"""ASCII to its lower case, and to a blank where it is in no word."""
_OPENS = re.compile(r"(?:\A|[.!?:;|>\n]|[*#-])[\s\"'`(*\[]*$")
"""What stands before the first word of a sentence, a line or a table's cell."""
_PRINTED = re.compile(
    r"^\S*:\d+: \w*Warning: .*(?:\n[ \t]+\S.*)?$"
    r"|^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*\S.*$"
    r"|^\(node:\d+\) .*Warning:.*$",
    re.M,
)
"""What a program writes of itself: Python's and Node's warnings, and tracebacks."""
_CHUNK = 1 << 20
"""Characters that are looked through at once."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case: runs of letters, digits and underscores."""
    return text.translate(_TO_LOWER).split() if text.isascii() else _WORD.findall(text.lower())


def own_words(text: str) -> str:
    """A text without the warnings and tracebacks that a program wrote into it."""
    return _PRINTED.sub("", text) if "Warning: " in text or "Traceback (" in text else text


class Origins(NamedTuple):
    """Where the words of a trace's result appear first. Counts of words."""

    results: tuple[int, ...]
    """The events that are the result, in the story's order."""
    words: int
    by_event: Mapping[int, int]
    """Event of a member to the words that it was first to say."""
    printed: int
    given: int
    unlinked: int
    new: int
    matched: Mapping[int, tuple[str, ...]]
    """Event to some of the longest runs of words that the result has from it, as the result says them."""

    @property
    def traced(self) -> int:
        """Words whose origin is an event of a member."""
        return self.words - self.printed - self.given - self.unlinked - self.new


# -- what the result is ----------------------------------------------------------------------------------------------


def results_of(trace: Trace, team: TraceTeam) -> list[int]:
    """The answers of a trace: the lead's last words before the user speaks again, and its last words.

    The lead is `TraceTeam.main`, and what is returned to it counts as said; in a team in which nobody spawned anybody all members
    talk as equals. Words are messages, returns, aggregates and decisions with a text.
    """
    if team.main is None:
        return []
    is_led, lead = bool((team.parent_A >= 0).any()), team.names[team.main]
    spoken: list[list[int]] = [[]]
    agents, is_member = team.agent_E.tolist(), team.is_member_A.tolist()
    for i in team.order_E.tolist():
        event, a = trace.events[i], agents[i]
        if event.type == "human_intervention":
            spoken.append([])
        elif event.type in _SPOKEN and is_member[a] and (not is_led or a == team.main or event.to == lead):
            spoken[-1].append(i)
    last = (
        next((i for i in reversed(own) if _says_something(own_words(trace.text(trace.events[i]) or ""))), None) for own in spoken
    )
    return [i for i in last if i is not None]


def _says_something(text: str) -> bool:
    words = words_of(text)
    return bool(words) and not _SIGN_OFF.issuperset(words)


def information(team: TraceTeam) -> Graph:
    """The graph of what may have been read: a `temporal` edge between two agents says when, not what was read."""
    graph, agent_E = team.trace.graph, team.agent_E
    keep = (graph.edge_type != _TEMPORAL) | (agent_E[graph.src] == agent_E[graph.dst])
    return graph if bool(keep.all()) else Graph(graph.n, graph.src[keep], graph.dst[keep], order=graph.order)


# -- where its words stand -------------------------------------------------------------------------------------------


class _Result:
    """The words of the answers as numbers: 0 between answers, and for every word that no answer has."""

    def __init__(self, texts: Sequence[str]) -> None:
        word_lists = [words_of(text) for text in texts]
        self.number = {word: k for k, word in enumerate(dict.fromkeys(w for words in word_lists for w in words), 1)}
        self.words = list(self.number)
        self.size = max(1, min(_WORDS, max(map(len, word_lists), default=1)))
        self.ids = [np.array([self.number[w] for w in words], np.int64) for words in word_lists]
        self.codes = [_windows(ids, self.size) for ids in self.ids]
        self.known = np.unique(np.concatenate([*self.codes, np.empty(0, np.uint64)]))
        """The windows of all answers, each once, as sorted codes."""
        telling = {word for text in texts for word in _telling(text)}
        self.tells_W = np.array([False, *(word in telling for word in self.words)], np.bool_)
        """Which words may be looked for alone."""


def _telling(text: str) -> Iterator[str]:
    """Words that tell by themselves where they come from: numbers, identifiers, and names (a capital inside a sentence)."""
    for match in _WORD.finditer(text):
        word = match[0]
        is_name = word[0].isupper() and not _OPENS.search(text, max(match.start() - 8, 0), match.start())
        if len(word) > 1 and (is_name or any(c.isdigit() or c == "_" or c.isupper() for c in word[1:])):
            yield word.lower()


def _windows(ids: Ints, size: int) -> NDArray[np.uint64]:
    """A code for the window that begins at each word; equal windows have equal codes."""
    count = max(len(ids) - size + 1, 0)
    out = np.zeros(count, np.uint64)
    for k in range(size):
        out = (out + ids[k : k + count].astype(np.uint64)) * _MIX
        out ^= out >> np.uint64(29)
    return out


class _Hits(NamedTuple):
    """Which windows and which single words of the result stand in which texts: pairs, as two arrays each."""

    window: Ints
    window_text: Ints
    word: Ints
    word_text: Ints


def _look_through(texts: Sequence[str], result: _Result) -> _Hits:
    """One pass through all texts."""
    get, size = result.number.get, result.size
    pairs: list[list[Ints]] = [[], [], [], []]
    for first, last in _chunks(texts):
        sequence: list[int] = []
        ends = []
        for text in texts[first:last]:
            sequence += [get(w, 0) for w in words_of(text)]
            sequence.append(0)
            ends.append(len(sequence))
        ids = np.array(sequence, np.int64)
        text_W = np.repeat(np.arange(first, last), np.diff(ends, prepend=0))
        known = ids > 0
        whole = np.lib.stride_tricks.sliding_window_view(known, size).all(axis=1) if len(ids) >= size else known[:0]
        at = np.flatnonzero(whole)
        codes = _windows(ids, size)[at]
        place = np.searchsorted(result.known, codes)
        place[place == len(result.known)] = 0
        hit = result.known[place] == codes if len(result.known) else np.zeros(len(codes), np.bool_)
        single = np.flatnonzero(result.tells_W[ids])
        for k, (what, text) in enumerate(((place[hit], text_W[at[hit]]), (ids[single], text_W[single]))):
            hits = np.unique(what * len(texts) + text)
            pairs[2 * k].append(hits // len(texts))
            pairs[2 * k + 1].append(hits % len(texts))
    return _Hits(*(np.concatenate([*column, np.empty(0, np.int64)]) for column in pairs))


def _chunks(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Neighbouring texts of about a million characters together."""
    first = size = 0
    for k, text in enumerate(texts):
        size += len(text)
        if size >= _CHUNK:
            yield first, k + 1
            first, size = k + 1, 0
    if first < len(texts):
        yield first, len(texts)


# -- the origin of every word ----------------------------------------------------------------------------------------


class _Sources:
    """The events that have a text, in the story's order, and what of the result stands in each."""

    def __init__(self, trace: Trace, team: TraceTeam, result: _Result) -> None:
        with_text = [i for i in team.order_E.tolist() if trace.text(trace.events[i])]
        refs = {ref: k for k, ref in enumerate(dict.fromkeys(trace.events[i].content_ref or "" for i in with_text))}
        text_S = np.array([refs[trace.events[i].content_ref or ""] for i in with_text], np.int64)
        self.event_S: Ints = np.array(with_text, np.int64)
        self.is_tools_S = [trace.events[i].type == "tool_result" for i in with_text]
        hits = _look_through([own_words(trace.contents[ref]) for ref in refs], result)
        by_text = np.argsort(text_S, kind="stable")
        first = np.searchsorted(text_S[by_text], np.arange(len(refs) + 1))
        self.windows = _spread(hits.window, hits.window_text, by_text, first)
        self.singles = _spread(hits.word, hits.word_text, by_text, first)

    def firsts(self, pairs: tuple[Ints, Ints], keep_S: Mask, wanted: Ints) -> dict[int, tuple[int, int]]:
        """Window (or word) to the number of kept sources that have it, and the first of them, for those wanted."""
        what, source = pairs
        keep = keep_S[source] & np.isin(what, wanted)
        keys, at, count = np.unique(what[keep], return_index=True, return_counts=True)
        return dict(zip(keys.tolist(), zip(count.tolist(), source[keep][at].tolist(), strict=True), strict=True))


def _spread(what: Ints, text: Ints, by_text: Ints, first: Ints) -> tuple[Ints, Ints]:
    """Pairs with texts as pairs with the sources that have these texts, by what and then in the story's order."""
    count = first[text + 1] - first[text]
    start = np.repeat(first[text], count)
    within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    source = by_text[start + within]
    spread = np.repeat(what, count)
    order = np.lexsort((source, spread))
    return spread[order], source[order]


def origins(trace: Trace, *, result: str | None = None) -> Origins:
    """Where the words of the result appear first; `NotIdentified` where nothing was said, or the texts are not here."""
    team = team_of(trace)
    answers = _named(trace, result) if result is not None else results_of(trace, team)
    texts = [own_words(trace.text(trace.events[i]) or "") for i in answers]
    known = _Result(texts)
    if not known.words:
        fix = "import the log with its texts" if not trace.contents else "name the result: result=EVENT"
        raise NotIdentified("the trace has no result in words", fix, where=trace.trace_id)
    sources = _Sources(trace, team, known)
    info = information(team)
    reached_E = Graph(info.n, info.dst, info.src, order=np.ascontiguousarray(info.order[::-1])).reached_by(answers)
    counts: dict[int, int] = {}
    rest = {"printed": 0, "given": 0, "unlinked": 0, "new": 0}
    runs: dict[int, list[str]] = {}
    for j, answer in enumerate(answers):
        linked_S, loose_S = _readable(trace, team, sources, answer, j, reached_E)
        origin = _origins_of(known, sources, j, linked_S)
        loose = _origins_of(known, sources, j, loose_S)
        names: list[int] = []
        for o, other in zip(origin, loose, strict=True):
            event = int(sources.event_S[o]) if o >= 0 else -1
            is_ours = event >= 0 and _is_ours(trace, team, event)
            names.append(event if is_ours else -1)
            if is_ours:
                counts[event] = counts.get(event, 0) + 1
            else:
                is_tools = o >= 0 and trace.events[event].type == "tool_result"
                rest["printed" if is_tools else "given" if o >= 0 else "unlinked" if other >= 0 else "new"] += 1
        _note_runs(runs, names, words_of(texts[j]))
    best = {event: tuple(sorted(quotes, key=lambda s: -len(s))[:3]) for event, quotes in runs.items()}
    total = sum(len(ids) for ids in known.ids)
    return Origins(tuple(answers), total, counts, **rest, matched=best)


def _named(trace: Trace, result: str) -> list[int]:
    if result not in trace.index:
        raise NotFound(f"no event {result!r}", where=trace.trace_id, fix=did_you_mean(result, list(trace.index)[:5000]))
    return [trace.index[result]]


def _is_ours(trace: Trace, team: TraceTeam, event: int) -> bool:
    kind = trace.events[event].type
    return bool(team.is_member_A[team.agent_E[event]]) and kind not in ("human_intervention", "tool_result")


def _readable(
    trace: Trace, team: TraceTeam, sources: _Sources, answer: int, j: int, reached_E: Sequence[int]
) -> tuple[Mask, Mask]:
    """The sources that may have been read for an answer, and those before it from which no edge leads there.

    The same words of the same agent are the answer itself, recorded twice.
    """
    event_S = sources.event_S
    before_S = team.place_E[event_S] < team.place_E[answer]
    own = trace.text(trace.events[answer])
    same = [
        int(s)
        for s in np.flatnonzero(before_S & (team.agent_E[event_S] == team.agent_E[answer]))
        if trace.events[event_S[s]].type in _SPOKEN and trace.text(trace.events[event_S[s]]) == own
    ]
    before_S[same] = False
    linked = np.fromiter((reached_E[i] >> j & 1 for i in event_S.tolist()), np.bool_, len(event_S))
    return before_S & linked, before_S & ~linked


def _origins_of(result: _Result, sources: _Sources, j: int, keep_S: Mask) -> list[int]:
    """For each word of an answer the source that said it first, -1 for none."""
    ids, codes, size = result.ids[j], result.codes[j], result.size
    window_P = np.searchsorted(result.known, codes)
    first = sources.firsts(sources.windows, keep_S, np.unique(window_P))
    rare = max(8, int(keep_S.sum()) // 20)
    alone = {
        w: hit
        for w, hit in sources.firsts(sources.singles, keep_S, np.unique(ids[result.tells_W[ids]])).items()
        if hit[0] <= rare
    }
    windows, out = window_P.tolist(), []
    for i, word in enumerate(ids.tolist()):
        covering = [first[w] for w in windows[max(i - size + 1, 0) : i + 1] if w in first]
        if size < 3:  # a result of one or two words: these stand anywhere, unless they are rare
            covering = [hit for hit in covering if hit[0] <= rare and word in alone]
        printed = [hit for hit in covering if sources.is_tools_S[hit[1]]]  # it stays the tool's, whoever goes on from there
        best = min(printed or covering) if covering else alone.get(word)
        out.append(-1 if best is None else best[1])
    return out


def _note_runs(runs: dict[int, list[str]], names: list[int], words: list[str]) -> None:
    """Neighbouring words of one origin as one run of words."""
    cuts = [0, *(k for k, (a, b) in enumerate(pairwise(names), 1) if a != b), len(names)]
    for a, b in pairwise(cuts):
        if b > a and names[a] >= 0:
            runs.setdefault(names[a], []).append(" ".join(words[a : min(b, a + 24)]))


# -- the mechanism ---------------------------------------------------------------------------------------------------


def _provenance_credit(traces: list[Trace], *, result: str | None = None, unit: Unit = "all") -> Credit:
    if unit not in ("all", "agent", "message"):
        raise InputError(f"no rows for unit {unit!r}", fix="agent, message or all")
    rows: list[CreditRow] = []
    declared, notes = [], []
    for k, trace in enumerate(traces):
        team = team_of(trace)
        traced = origins(trace, result=result)
        by_agent = dict.fromkeys(_speakers(trace, team), 0)
        for event, count in traced.by_event.items():
            by_agent[team.names[team.agent_E[event]]] += count
        if unit != "message":
            rows += [CreditRow(k, "agent", name, count / traced.words) for name, count in by_agent.items()]
        if unit != "agent":
            rows += [CreditRow(k, "message", trace.events[e].id, n / traced.words) for e, n in sorted(traced.by_event.items())]
        declared.append(traced.traced / traced.words)
        notes.append(_about(trace, team, traced, by_agent))
    ids = tuple(t.trace_id for t in traces)
    about = {"words": _WORDS, "traces": notes}
    return Credit("provenance", _ESTIMAND, True, ids, tuple(rows), np.array(declared), notes=about)


def _speakers(trace: Trace, team: TraceTeam) -> list[str]:
    """Members whose words, or whose tools' words, are in the record, in the story's order."""
    speakers = dict.fromkeys(int(team.agent_E[i]) for i in team.order_E.tolist() if trace.text(trace.events[i]))
    return [team.names[a] for a in speakers if team.is_member_A[a]]


def _about(trace: Trace, team: TraceTeam, traced: Origins, by_agent: Mapping[str, int]) -> dict[str, Any]:
    """What the rows leave out: the parts of the result that nobody in the team said first, and who is not in it."""
    info = information(team)
    crossing = team.agent_E[info.src] != team.agent_E[info.dst]
    read = set(team.agent_E[info.src[crossing]].tolist())
    authors = {int(team.agent_E[i]) for i in traced.results}
    quiet = [name for name in by_agent if team.number[name] not in authors]
    return {
        "result": [trace.events[i].id for i in traced.results],
        "words": traced.words,
        "traced": traced.traced / traced.words,
        "printed": traced.printed / traced.words,
        "given": traced.given / traced.words,
        "unlinked": traced.unlinked / traced.words,
        "new": traced.new / traced.words,
        "unused": [name for name in quiet if not by_agent[name]],
        "unread": [name for name in quiet if team.number[name] not in read],
        "matched": {trace.events[e].id: list(runs) for e, runs in traced.matched.items()},
    }


def _example() -> Example:
    """Rollouts that end with what the workers returned, in the lead's words and theirs."""
    out = []
    for trace in rollouts():
        words = "; ".join(trace.text(e) or "" for e in trace.events if e.type == "return")
        last = replace(trace.events[-1], content_ref="answer")
        out.append(replace(trace, events=[*trace.events[:-1], last], contents={**trace.contents, "answer": f"We heard: {words}"}))
    return Example(out)


provenance = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="texts are recorded, and edges say what was read; the same words are taken from where they stood first",
    cost="nothing",
    additive=True,
    source="ours; windows of words after Broder (1997), On the resemblance and containment of documents",
    run=_provenance_credit,
    needs=("contents",),
    example=_example,
)
