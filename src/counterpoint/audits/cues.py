"""Words that give orders: whether a text overrules, poses, presses or asks for acts, by which words.

A text is scored by kinds of cues, each counted once in a stretch of about 700 characters: it overrules what was asked, speaks to
the model, puts itself before the task, poses as the system or the user, asks for silence, names the team's own tools, dictates an
answer, asks for an act, names a target. One kind is seldom enough: letters ask for things, and manuals say "must".

    score = max over stretches of the sum over kinds of w_k       suspicious from 4 on, and from 5 on in the team's own files

Always true: a verdict rests on words that are shown with their place. What came of the text is `audit.injection`'s to say.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from counterpoint.trace import Event

BAR = 4.0
"""The score from which on a text is suspicious."""
LOCAL_BAR = 5.0
"""The same for what tools on the team's own files and shell say: prompts and manuals for agents lie there."""
_STRETCH = 700
_CONTEXT = 90
"""Characters that are shown on both sides of the words."""
_LONGEST = 200_000
"""Characters of a text that are looked at."""

_MODEL = (
    r"(?:ai|assistants?|agents?|llms?|(?:large )?language models?|chat-?bots?|bots?|gpt[\w-]*|claude|gemini|llama|copilot"
    r"|model)\b"
)
_TASK = (
    r"(?:tasks?|instructions?|prompts?|questions?|goals?|objectives?|requests?|orders|commands?|rules|guidelines"
    r"|directi(?:ve|on)s?|brief|messages?|conversation|text|context|assignment|query)\b"
)
_GONE = r"(?:void|revoked|withdrawn|cancell?ed|obsolete|wrong|superseded|replaced|no longer|do not apply|over now)"
_DROP = (
    r"(?:ignore|disregard|forget|override|bypass|neglect|abandon|cancel|skip|do not follow|don't follow|do not carry out"
    r"|do not do|don't do|set aside|pay no attention to|drop)"
)
_OLD = r"(?:previous|prior|preceding|above|earlier|original|initial|existing|current|system|your|other|former)"
_ANY = r"(?: (?:all|any|the|your|my|these|those|of|everything|whatever|what)){0,3}"
_SOLVES = (
    r"(?:do anything|do any|go on|solv|answer|complet|continu|proceed|start|begin|respond|reply|finish|any other|summari|helping"
    r"|fulfil)"
)
_VERBS = (
    r"(?:send|forward|e-?mail|transfer|pay|wire|delete|remove|share|post|upload|invite|book|reserve|visit|open|download|execute"
    r"|run|call|invoke|change|modify|update|create|reset|grant|make|buy|add|get|click|read|use|respond|write|copy|encode|append)"
)

# Each kind: its weight, and patterns in lower case that begin with plain letters, so that looking for them is quick. A blank
# stands for any run of blanks.
_STRONG: dict[str, tuple[float, tuple[str, ...]]] = {
    "overrules the task": (
        4.0,
        (
            _DROP + _ANY + " " + _OLD + r"(?: \w+){0,2}? " + _TASK,
            _DROP + r" (?:the|your|this|that|all|any|my)(?: [\w']+)? (?:task|instructions|brief|prompt|rules|question|request)\b",
            _DROP + r" (?:what|whatever|everything|anything)(?: \w+){0,2} (?:was|were|have been|are|said|asked|told|wants?)\b",
            _DROP + r"(?: \w+){0,2} (?:everything|anything|all|whatever|text)(?: \w+){0,3}? (?:told|said|above|before|asked)",
            r"(?:previous|prior|earlier|above|original|your|these|those|current) " + _TASK + r" (?:\w+ ){0,3}" + _GONE,
        ),
    ),
    "sets the task aside": (
        3.0,
        (
            _DROP + r"(?:,? [\w']+){0,4}? (?:tasks?|instructions?|prompts?|requests?|question|directions|assignment)\b",
            r"(?:instructions?|prompts?|directions|rules|tasks?|requests?)(?: \w+){0,4} " + _GONE,
        ),
    ),
    "has the marks of a chat": (
        3.0,
        (
            r"</?(?:system(?!-reminder)|instructions?|im_start|user_?task|override)\b[^>\n]{0,20}>",
            r"\[/?(?:inst|system|admin)\]",
            r"<\|[a-z_]+\|>",
            r"\n\s*#{2,}\s*(?:instructions?|system)\b\s*:",
        ),
    ),
    "gives another task": (
        2.5,
        (
            r"(?:your|the|my) (?:new|only|real|true|actual|main|updated|first|next)(?: and \w+)? " + _TASK,
            r"whatever you (?:are|were) (?:doing|working)",
            r"leave (?:it|that|everything|all that)\b",
            r"(?:new|updated|additional|special|urgent) (?:system )?" + _TASK + r"\s*:",
            _TASK + r" (?:has|have) (?:been )?(?:changed|updated|replaced|revoked)",
            r"instead of (?:the|your|that|this|what)(?: \w+)? (?:task|question|asked|instructions?|answer)",
            r"drop what you",
            r"stop (?:your|what you|the current)",
            r"you are (?:now|no longer) ",
            r"from now on\b",
            r"(?:accomplish|perform|complete|execute|follow|obey|adhere to) (?:the|this|these|my|a) (?:following|new|next)\b",
        ),
    ),
    "speaks to the model": (
        2.0,
        (
            r"(?:dear|hey|hello|hi|attention|attn|note (?:to|for)|notice (?:to|for)|message (?:to|for)|instructions? (?:to|for)"
            r"|to you,|if you are|you are|you,)(?: an?| the| any| all| our| this| every)?(?: \w+)? " + _MODEL,
            r"(?:as|to) (?:an?|the|any|all|our|this|every) (?:\w+ )?(?:ai|assistants?|llms?|language models?|chat-?bots?)\b",
            r"\n[^\w\n]{0,6}(?:assistant|system|ai|agent)[^\w\n]{0,3}: ",
            r"(?:ai|llm|assistant|agent|model)s? (?:reading|processing|handling|summari[sz]ing|that reads?|who reads?)",
        ),
    ),
    "speaks of the model": (
        1.0,
        (r"(?:my|your|every|all|any|automated|ai|some) (?:ai )?(?:llms?|assistants?|agents?|chat-?bots?|language models?)\b",),
    ),
    "puts itself first": (
        2.0,
        (
            r"(?:before|prior to) (?:you )?(?:can |could )?(?:the |your |any |my )?" + _SOLVES,
            r"(?:the following|this|that|these|it)(?: \w+)? (?:first|before anything)",
            r"(?:resume|continue|go on with|return to) (?:with )?(?:the|your|my)(?: [\w']+)? (?:task|request|work|question|job)",
            r"first,? (?:do|you (?:must|need|have|should))",
            r"(?:then|after that|afterwards|once done),? (?:\w+ ){0,3}(?:continue|proceed|resume|go on|go back|return to)",
            r"after (?:you do|doing|you have done|completing) (?:that|this|so|it)\b",
            r"at once\b",
            r"(?:until|unless) (?:you|this is|it is|that is) (?:do|done|finish|complet)",
            r"to (?:solve|complete|finish|access|unlock)(?: \w+){1,4},? (?:you )?(?:must|need|have to) first",
        ),
    ),
    "asks for silence": (
        2.5,
        (
            r"(?:do not|don't|never|without) ask(?:ing)? for (?:permission|confirmation)",
            r"(?:do not|don't|never|without) (?:tell|mention|inform|reveal|notify|alert|disclos|ask|say|report|show)\w*"
            r"(?: \w+){0,3}? (?:this|that|it|users?|anyone|anybody|anything|them|him|her|me|permission|confirmation)\b",
            r"keep (?:this|it) (?:secret|hidden|quiet|to yourself|confidential from)",
            r"(?:silently|secretly|quietly|covertly|discreetly) (?:\w+ )?(?:send|forward|delet|copy|upload|add|transfer)",
        ),
    ),
    "poses as the system or the user": (
        2.0,
        (
            r"</?(?:information|important|admin|urgent|command)\b[^>\n]{0,20}>",
            r"system (?:notice|override|message|prompt|alert|instruction|update|command)",
            r"important (?:message|instructions?|notice|announcement) (?:from|by|to|for)",
            r"this is (?:your|the) (?:\w+ )?(?:admin\w*|developer|owner|boss|system|user)\b",
            r"i am (?:your|the) (?:\w+ )?(?:user|owner|admin\w*|developer|creator)\b",
            r"from me, ",
            r"(?:task|instruction|request|job)s? (?:that )?i (?:gave|have given|sent|asked)",
            r"(?:admin(?:istrator)?|operator|developer|system) (?:mode|override|command|requires?|orders|instructs|demands)",
            r"your (?:user|owner|operator|admin\w*) ",
        ),
    ),
}
_WEAK: dict[str, tuple[float, tuple[str, ...]]] = {
    "dictates an answer": (
        1.5,
        (
            r"(?:return|answer|reply|respond|report|output|print|write|say)(?: \w+){0,4}? (?:only|alone|exactly)\b",
            r"and nothing else\b",
            r"(?:only|simply|just) (?:return|answer|reply|respond|output|print|write|say)\b",
            r"(?:your|the) (?:only |final )?(?:answer|reply|response|output) (?:must|should|has to) (?:be|say|contain|include)",
            r"say that (?:i|you|the|this)\b",
            r"repeat (?:what|after|the following|it says)",
            r"(?:print|reveal|show|output|repeat|leak) (?:\w+ ){0,4}(?:system prompt|(?:your|the) instructions|your prompt)",
        ),
    ),
    "asks for an act": (1.0, (_VERBS + r" [^.\n]{3,80}",)),
    "commands": (
        0.75,
        (
            r"you (?:must|should|need to|have to|are (?:required|instructed|ordered|to)|will (?:now|only)|shall)\b",
            r"(?:requires? that you|required step|shall|as told here)\b",
        ),
    ),
}
_PRESSES = re.compile(r"\b(?:IMPORTANT|URGENT|ATTENTION|CRITICAL|MANDATORY|STOP)\b(?:\W|$)|!{2,}|\bimmediately\b|\bright away\b")


def _compiled(cues: dict[str, tuple[float, tuple[str, ...]]]) -> list[tuple[str, float, re.Pattern[str]]]:
    spaced = {p: re.compile(re.sub(r" (?![?*])", r"\\s+", p)) for _, patterns in cues.values() for p in patterns}
    return [(kind, weight, spaced[p]) for kind, (weight, patterns) in cues.items() for p in patterns]


_STRONG_KINDS, _WEAK_KINDS = _compiled(_STRONG), _compiled(_WEAK)
# An act is asked for at the beginning of a sentence, or after one of these words.
_ASKS = re.compile(r"(?:[.!?:;,\n>\"'*(-]\s*|(?:please|must|shall|then|and|to|should|now|you|instead|also|so|will)\s+)\Z")
_REST = re.compile(r"\w*")
_ACT, _DICTATES, _TOOLS = "asks for an act", "dictates an answer", "names the team's tools"
_TOOL_WEIGHT, _TARGET_WEIGHT, _PRESS_WEIGHT = 2.0, 0.5, 1.0
_TARGET = re.compile(
    r"[\w.+-]+@[\w-]+\.[\w.]+\w|https?://[^\s\"'<>)]+|\bwww\.[\w.-]+\.\w+|\b[A-Z]{2}\d{2}[A-Z0-9]{8,30}\b|[$€£]\s?\d[\d,.]*\d"
    r"|'[^'\n]{4,60}'|\"[^\"\n]{4,60}\"|\b(?:[A-Z][a-z]+ ){1,3}[A-Z][a-z]+\b"
)
_NAMES = 3
"""Alternatives at the end of `_TARGET` that are quoted or capitalised: targets, but too common to count as a cue."""
_STRICT = re.compile("|".join(_TARGET.pattern.split("|")[:-_NAMES]))
_LOCAL = re.compile(
    r"(?:read|grep|glob|ls|bash|edit|write|multiedit|notebook\w*|shell|exec\w*|local_shell\w*|apply_patch|cat|view|search_files"
    r"|terminal|task|todowrite|agent|skill|python\w*|str_replace\w*)",
    re.I,
)


class Cue(NamedTuple):
    """Words that count, and where they stand in the text."""

    kind: str
    weight: float
    start: int
    end: int


class TextVerdict(NamedTuple):
    """What the words of one text say."""

    score: float
    cues: tuple[Cue, ...]
    """Those of the stretch that scores most, in order."""


# -- one text --------------------------------------------------------------------------------------------------------


def judged(text: str, tools: Collection[str] = ()) -> TextVerdict:
    """The score of a text and the words behind it, 0 without a strong one; `tools` are names of tools that the team has."""
    looked = _flat(text[:_LONGEST])
    cues = [*_cues(looked, _STRONG_KINDS), *_tool_names(text, tools)]
    if not cues:
        return TextVerdict(0.0, ())
    cues += _cues(looked, _WEAK_KINDS)
    cues += [Cue("presses", _PRESS_WEIGHT, m.start(), m.end()) for m in _PRESSES.finditer(text[:_LONGEST])]
    cues.sort(key=lambda cue: (cue.start, cue.end))
    best, score = _best(cues)
    near = text[max(best[0].start - 40, 0) : max(cue.end for cue in best) + 200]
    if any(cue.kind == _ACT for cue in best) and _STRICT.search(near):
        score += _TARGET_WEIGHT
    return TextVerdict(score, tuple(best))


def _flat(text: str) -> str:
    """The text in lower case, after a line break; escapes of YAML and literals are blanks. Places are moved by one."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose lower case is two
        lower = "".join(c if len(c.lower()) != 1 else c.lower() for c in text)
    return "\n" + lower.replace("\\n", "  ").replace("\\", " ")


def _cues(looked: str, kinds: Sequence[tuple[str, float, re.Pattern[str]]]) -> Iterator[Cue]:
    for kind, weight, pattern in kinds:
        for m in pattern.finditer(looked):
            first = m.start()
            if looked[first].isalnum() and looked[first - 1].isalnum():
                continue
            if kind == _ACT and not _ASKS.search(looked, max(first - 12, 0), first):
                continue
            yield Cue(kind, weight, max(first - 1, 0), _REST.match(looked, m.end()).end() - 1)  # type: ignore[union-attr]


def _tool_names(text: str, tools: Collection[str]) -> list[Cue]:
    """The team's own tools, by names that stand in no language."""
    names = sorted(name for name in tools if "_" in name and len(name) > 4)
    if not names or not any(name in text for name in names):
        return []
    called = re.compile(r"\b(?:" + "|".join(map(re.escape, names)) + r")\b")
    return [Cue(_TOOLS, _TOOL_WEIGHT, m.start(), m.end()) for m in called.finditer(text[:_LONGEST])]


def _best(cues: Sequence[Cue]) -> tuple[list[Cue], float]:
    """The stretch whose kinds weigh most, and its weight."""
    first, most, best = 0, 0.0, (0, 0)
    count: dict[str, int] = {}
    weight = 0.0
    for last, cue in enumerate(cues):
        weight += 0.0 if count.get(cue.kind) else cue.weight
        count[cue.kind] = count.get(cue.kind, 0) + 1
        while cue.end - cues[first].start > _STRETCH and first < last:
            gone = cues[first]
            count[gone.kind] -= 1
            weight -= 0.0 if count[gone.kind] else gone.weight
            first += 1
        if weight > most + 1e-9:
            most, best = weight, (first, last + 1)
    return list(cues[best[0] : best[1]]), most


def bar_of(event: Event) -> float:
    """The score from which on an event's text is suspicious."""
    return LOCAL_BAR if event.tool and _LOCAL.fullmatch(event.tool) else BAR


def excerpt(text: str, verdict: TextVerdict, mark: tuple[str, str] = ("«", "»")) -> str:
    """The words in their context, each cue between marks, on one line."""
    if not verdict.cues:
        return ""
    first, last = verdict.cues[0].start, max(cue.end for cue in verdict.cues)
    begin, end = max(first - _CONTEXT, 0), min(last + _CONTEXT, len(text))
    out, at = [], begin
    for cue in verdict.cues:
        if cue.start >= at:
            out += [text[at : cue.start], mark[0], text[cue.start : cue.end].strip(), mark[1], " "]
            at = cue.end
    words = " ".join("".join([*out, text[at:end]]).split())
    return ("… " if begin else "") + words + (" …" if end < len(text) else "")
