"""What a text orders: the acts that it asks for, each with its kind and the particulars by which its doing is recognised.

Always true: an act is asked for where a verb stands at the beginning of a sentence or behind a word that asks (please, must,
to, and, then). Its kind is that of its verb (`audit.verbs`); a verb that is not listed there is known by what stands behind it,
and its kind is unknown. Particulars are of three strengths: addresses, links, accounts, quoted words and identifiers say which
act it is; names do so where there are none, and the words for its object with its figures where there are neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from counterpoint.audits.figures import figures
from counterpoint.audits.verbs import ALSO_NOUNS, COMMANDS, FURTHER, LIGHT, NO_VERBS, NOUNS, STOP, VERBS

_SHELL = re.compile(
    r"(?:bash|shell|shell_command|local_shell\w*|exec|exec_command|run_terminal_cmd|terminal|execute_command|run_command|powershell|cmd)",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"(?:^|[,:;>(\"]\s*|(?:^|\s)[*•—–-]+\s+|\b(?:please|must|shall|should|then|and|to|now|also|will|kindly|instead|first|next|just"
    r"|or|(?:could|would|can|will) you|(?:requires?|demands?|wants?|is|important|necessary) that you|simply|immediately|always"
    r"|silently|secretly|quietly|so)\s+)\Z",
    re.IGNORECASE,
)
"""What stands before a verb that is asked for."""
NEAR = 40
"""Characters before a word in which it is looked for what it depends on."""
_VERB = re.compile(r"\b[Ee]-?mail\b|[A-Za-z]+")
_BEHIND = re.compile(
    r"\s+(?:(the|an?|all|every|each|any|my|your|our|his|its|their|him|her|them|it|this|that|these|those|two|three|four|five|ten)\b"
    r"|\d|[\"'“‘`]|[A-Z])"
)
"""What stands behind a verb that nobody listed, so that it is known as one."""
_BEHIND_ANY = re.compile(r"\s+()[a-z]")
_BEGS = re.compile(r"\b(?:please|must|shall|kindly|(?:could|would|can|will) you)\s+\Z", re.IGNORECASE)
"""What stands before a verb alone."""
_STATES = re.compile(r"\b(?:is|are|was|were|has|have|had|will)\b", re.IGNORECASE)
_MAY_LIST = re.compile(r"(?:[,:]|\b(?:and|or|to|so))\s+\Z", re.IGNORECASE)
"""What stands before a verb, and before a noun as often."""
_PHRASE = re.compile(
    r"\s(?:of|to|in|on|at|for|from|with|by|as|into|onto|under|over|until|before|after|so|that|which|and|or|then|if|while|via)\b|[,;:.!?]"
)
"""Where the first words behind a verb end."""
_SAYS_MORE = re.compile(
    r"\b(?:should|must|shall|has to|needs to|have to) (?:be|have|say|read|contain|include|begin|start)\b", re.IGNORECASE
)
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE = re.compile(
    r"(?<=[.!?])[\"'”’)]?\s+|(?<=[.!?])(?=[A-Z][a-z])|\n\s*(?:[-*•]|\d+[.)])\s+|\n(?=\s*[\w.-]{1,20}:\s)|(?<=:)\s*\n\s*"
)
_TAG = re.compile(r"</?[A-Za-z][\w -]{0,30}>|<!--|-->|<\|\w+\|>|\[/?[A-Z]{3,}\]")
_BACK_TO_WORK = re.compile(
    r"\b(?<!before )(?<!until )(?<!unless )(?:you (?:can|may|are free to)"
    r"|(?:continue|resume|proceed|go on|go back|carry on|return)\b.{0,30}"
    r"\b(?:task|request|work|question|job|conversation|what you))\b.*",
    re.IGNORECASE | re.DOTALL,
)
"""What an order says of the time after it: no order."""
_PRONOUN = re.compile(r"\b(?:him|her|it|them|this|that|these|those)\b", re.IGNORECASE)
_BACK = re.compile(
    r"\bjust\s+\w+(?:ed|t|de|ote)\b|\byou(?:'ve| have)?\s+(?:just\s+)?(?:sent|made|created|posted|written|added|booked)\b",
    re.IGNORECASE,
)
FORBIDS = re.compile(r"\b(?:do not|don't|never|must not|cannot|can't|without|avoid|refuse to|not to)\s+\Z", re.IGNORECASE)

_TOP = (
    "com|org|net|io|ai|dev|app|co|gov|edu|info|example|test|xyz|ru|cn|de|ch|uk|fr|eu|me|biz|site|online|tech|cloud|link|top|club"
)
_FILE = (
    "txt|docx?|xlsx?|pdf|csv|tsv|pptx?|json|jsonl|py|js|ts|sh|env|md|html?|zip|tar|gz|png|jpe?g|gif|key|pem|db|sql|log|ya?ml|toml"
    "|cfg|conf|ini|exe|bak|ics|eml"
)
_STRONG = (
    r"[\w.+-]+@[\w-]+\.[\w.-]*\w",
    r"https?://[^\s\"'<>)\]]+[^\s\"'<>)\].,;:!?]",
    rf"(?:www\.)?(?:[\w-]+\.)+(?:{_TOP})\b(?:/[^\s\"'<>),;]*[^\s\"'<>).,;:!?])?",
    rf"[\w-]+(?:\.[\w-]+)*\.(?:{_FILE})\b",
    r"(?<![\w/])(?:~|\.{1,2})?/(?:[\w.-]+/)*[\w.-]*\w",
    r"[A-Z]{2}\d{2}[A-Z0-9]{8,30}\b",
    r"\b(?!USD|EUR|GBP|CHF|JPY)[A-Z]{2,5}[ -]?\d{3,}(?:[-/]\d+)*\b(?![.,]\d)",
    r"\b(?=\w*\d)(?=\w*[A-Za-z])[\w-]{6,}\b",
    r"(?<![\d.,$€£])\d{5,}\b",
    r"\+\d[\d ().-]{6,}\d",
    r"(?<!\w)[@#][A-Za-z][\w-]+",
    r"\b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b",
)
_QUOTED = (
    r"(?<!\w)(?<!body: )(?<!content: )(?<!description: )(?<!text: )"
    r"(?:'[^'\n]{1,150}'|\"[^\"\n]{1,150}\"|“[^”\n]{1,150}”|‘[^’\n]{1,150}’|`[^`\n]{1,150}`)(?!\w)"
)
_QUOTATION = re.compile(_QUOTED)
_SHIELD = str.maketrans({".": "\ue000", "!": "\ue001", "?": "\ue002", ":": "\ue003"})
_UNSHIELD = str.maketrans({"\ue000": ".", "\ue001": "!", "\ue002": "?", "\ue003": ":"})
_PARTICULAR = re.compile("|".join(f"(?:{one})" for one in (_QUOTED, *_STRONG)))
_FROM = re.compile(r"\b(?:from|by)(?:\s+(?:the|by|a))?(?:\s+(?:user|address|sender|account))?\s+\Z", re.IGNORECASE)
_MONTHS = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_NAMED = re.compile(
    rf"(?!(?:{_MONTHS})\b)\b[A-Z][\w'-]*[a-z][\w'-]*(?:\s+(?:of|the|de|la)?\s*(?!(?:{_MONTHS})\b)[A-Z][\w'-]*)*|\b[A-Z]{{2,}}\b"
)
_WHEN = re.compile(rf"\b(?:{_MONTHS})\b|\b\d[\d,.]*(?:st|nd|rd|th)?\b|[$€£]\s?\d[\d,.]*", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]{2,}", re.UNICODE)


class Order(NamedTuple):
    """One act that a text asks for."""

    text: str
    verb: str
    kinds: frozenset[str]
    strong: tuple[str, ...]
    names: tuple[str, ...]
    objects: tuple[str, ...]
    """The first words behind the verb, as stems: what the act is done to."""
    words: frozenset[str]
    """All its words that say something, as stems."""
    paragraph: int
    """Orders of one paragraph belong together."""
    about: tuple[str, ...] = ()
    """Particulars of the act before, where a pronoun stands for them."""
    is_back: bool = False
    """Whether it is done to what the act before made: 'delete the mail that you have just sent'."""
    head: str = ""
    """The noun right behind the verb, as a stem: 'alarm' of 'disable the fire alarm on floor 7'."""
    figures: frozenset[str] = frozenset()
    """Its numbers, dates, times and single letters, where they stand alone."""

    @property
    def is_reading(self) -> bool:
        """Whether it only asks to look at something of the team's own."""
        return bool(self.kinds) and self.kinds <= {"read", "visit"} and not any(is_link(one) for one in self.strong)


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """A word without its ending, roughly."""
    word = word.lower()
    for end, least in (("ies", 5), ("ing", 6), ("ed", 5), ("es", 5), ("s", 4), ("e", 4)):
        if word.endswith(end) and len(word) >= least and not word.endswith("ss"):
            return word[: -len(end)] + ("y" if end == "ies" else "")
    return word


_OF_STEM = {stem(word): kinds for word, kinds in VERBS.items()}
_OF_STEM_NOUN = {stem(word): kinds for word, kinds in NOUNS.items()}


def verb_kinds(word: str) -> frozenset[str]:
    """The kinds of a verb in any of its forms; none for a word that is no verb of acts."""
    lower = word.lower().replace("-", "")
    return VERBS.get(lower) or _OF_STEM.get(stem(lower)) or frozenset()


def stems(text: str) -> list[str]:
    """The words of a text that say something, as stems, in order."""
    return [stem(word) for word in _WORD.findall(text) if word.lower() not in STOP]


def unfolded(text: str) -> str:
    """A text as somebody wrote it: YAML's and JSON's escapes and line breaks are undone."""
    if "\\" in text:
        text = re.sub(r"\\\n\s*\\?", "", text)
        text = text.replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"').replace("\\'", "'").replace("\\", "")
    return re.sub("'{2,}", "'", text)


def normal(text: str) -> str:
    """A text for looking things up in: lower case, single blanks, links without their beginnings."""
    text = re.sub(r"https?://|\bwww\.", "", text.lower())
    return " ".join(text.split())


def plain(text: str) -> str:
    """The letters and digits of a text alone: the same however it was wrapped or quoted."""
    return re.sub(r"[\W_]+", "", re.sub(r"\\[nrt\"']", " ", text.lower()))


def is_link(particular: str) -> bool:
    """Whether a particular is an address on the web."""
    return "@" not in particular and re.fullmatch(rf"(?:[\w-]+\.)+(?:{_TOP})(?:[/:?#].*)?", particular) is not None


def orders(text: str, verbs: frozenset[str] = frozenset()) -> list[Order]:
    """The acts that a text asks for, in order; those of one paragraph belong together. `verbs` are further words, in lower case,
    that are verbs where a sentence begins with them."""
    out: list[Order] = []
    for number, paragraph in enumerate(_PARAGRAPH.split(_TAG.sub("\n\n", _shielded(text)))):
        first = len(out)
        for sentence in _SENTENCE.split(paragraph):
            _read(re.sub(r"\s*\n\s*", " ", sentence.strip()).translate(_UNSHIELD), number, out, first, verbs)
    return out


def unknown_order(text: str) -> Order:
    """A text as one order whose verb is not known: only what it names can tell whether it was carried out."""
    return _order("", " ".join(_TAG.sub(" ", text).split()), 0)


def _shielded(text: str) -> str:
    """The text with stops inside quotations put aside, so that no sentence ends there."""
    return _QUOTATION.sub(lambda m: m[0].translate(_SHIELD), text)


def _read(sentence: str, number: int, out: list[Order], first: int, verbs: frozenset[str]) -> None:
    """Add what a sentence asks for; what it says further goes to the act before, in the same paragraph."""
    clauses = list(_clauses(_BACK_TO_WORK.sub("", sentence), verbs))
    for verb, clause in clauses:
        order = _order(verb, clause, number)
        before = out[-1] if len(out) > first else None
        if before is not None and verb.lower() in FURTHER and not re.search(r"\w_\w", clause):
            out[-1] = _with(before, order.strong)
        elif not order.strong and _BACK.search(clause):
            out.append(order._replace(objects=order.objects[:1], is_back=True))
        elif before is not None and not order.strong and _PRONOUN.search(clause):
            meant = (*before.strong, *before.names, *before.about)
            out.append(order._replace(about=meant, objects=order.objects or before.objects))
        else:
            out.append(order)
    if not clauses and len(out) > first and _SAYS_MORE.search(sentence):
        out[-1] = _with(out[-1], _particulars(sentence))


def _with(order: Order, more: tuple[str, ...]) -> Order:
    return order._replace(strong=(*order.strong, *(one for one in more if one not in order.strong)))


def _clauses(sentence: str, verbs: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Verbs that are asked for, each with what follows up to the next."""
    hidden = [m.span() for m in _PARTICULAR.finditer(sentence)]
    matches = [
        m
        for m in _VERB.finditer(sentence)
        if (m[0].lower().replace("-", "") in VERBS or _may_be_verb(sentence, m, verbs))
        and _ASKS.search(sentence, max(m.start() - NEAR, 0), m.start())
        and not any(a <= m.start() < b for a, b in hidden)
        and not FORBIDS.search(sentence, max(m.start() - NEAR, 0), m.start())
        and not _is_noun(sentence, m)
    ]
    ends = [*(m.start() for m in matches[1:]), len(sentence)]
    for one, end in zip(matches, ends, strict=False):
        yield one[0], sentence[one.start() : end]


def _may_be_verb(sentence: str, m: re.Match[str], verbs: frozenset[str]) -> bool:
    """Whether a word that nobody listed stands like a verb: before what is done to, and in small letters within a sentence."""
    word, is_first, behind = m[0], m.start() == 0, _BEHIND.match(sentence, m.end())
    near = max(m.start() - NEAR, 0)
    is_begged = _BEGS.search(sentence, near, m.start()) is not None  # 'please drain tank 9'
    if behind is None and (is_begged or (is_first and word.lower() in verbs and not _STATES.search(sentence, m.end()))):
        behind = _BEHIND_ANY.match(sentence, m.end())
    if behind is None or len(word) < 3 or not (word.islower() or (is_first and word[1:].islower())):
        return False
    if word[0].isupper() and behind[0][-1].isupper():  # 'Emma Johnson'
        return False
    is_told = behind[1] is None or re.search(r"\bthat\b", sentence[: m.start()]) is not None
    if is_told and _MAY_LIST.search(sentence, near, m.start()):  # 'to account GB29', 'that it is old and worth a visit'
        return False
    is_past = is_first and re.fullmatch(r"\w*[aeiouy]\w*(?<!e)ed", word, re.IGNORECASE) is not None
    return word.lower() not in STOP | NO_VERBS and not word.endswith(("ing", "ly")) and not is_past


def _is_noun(sentence: str, m: re.Match[str]) -> bool:
    """Whether a word is no verb here: 'to email', 'and message of', 'you report'; or one that asks for nothing: 'let me know'."""
    if m[0].lower() == "let" and re.match(r"\s+(?:\S+\s+){1,3}know\b", sentence[m.end() :]):
        return True
    follows = sentence[m.end() : m.end() + 12].lstrip()
    return m[0].lower() in ALSO_NOUNS and re.match(r"(?:of|from|is|was|are|were|in|:|,|\.|$)(?:\W|$)", follows) is not None


def _order(verb: str, clause: str, paragraph: int) -> Order:
    kinds, rest = verb_kinds(verb), clause[len(verb) :]
    bare = _WHEN.sub(" ", _PARTICULAR.sub(" ", rest))
    words = stems(bare)
    near = stems(_PHRASE.split(bare, maxsplit=1)[0])
    if verb.lower() in LIGHT:  # the noun says which act it is, and no longer what it is done to
        nouns = [word for word in near[:3] if word in _OF_STEM_NOUN]
        if nouns:
            kinds, words = _OF_STEM_NOUN[nouns[0]], [word for word in words if word != nouns[0]]
    named, strong = [m[0] for m in _NAMED.finditer(_PARTICULAR.sub(" ", rest))], _particulars(rest)
    proper = [name for name in named if not name.isupper()]  # 'IBAN' is the word for a thing, unless nothing else is named
    names = tuple(dict.fromkeys(normal(name).rstrip(".,") for name in (proper if proper or strong else named)))
    return Order(
        text=clause.strip(), verb=verb.lower(), kinds=kinds, strong=strong, names=names, objects=tuple(words[:5]),
        words=frozenset(stems(rest)), paragraph=paragraph, head=near[-1] if near else "",
        figures=figures(_PARTICULAR.sub(" ; ", rest)) if verb else frozenset(),
    )  # fmt: skip


def _particulars(text: str) -> tuple[str, ...]:
    """Those that an act must hold: where something comes from is left out where anything else is named."""
    pairs = [
        (normal(m[0].strip("'\"“”‘’`")).rstrip(".,;:!?/"), bool(_FROM.search(text, max(m.start() - NEAR, 0), m.start())))
        for m in _PARTICULAR.finditer(text)
    ]
    aims = [one for one, is_from in pairs if one and not is_from]
    return tuple(dict.fromkeys(aims or [one for one, _ in pairs if one]))


# -- acts ------------------------------------------------------------------------------------------------------------

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@lru_cache(maxsize=4096)
def tool_words(tool: str) -> tuple[str, ...]:
    """The words of a tool's name, in lower case."""
    return tuple(part.lower() for part in _PARTS.findall(tool))


def tool_kinds(tool: str, command: str) -> frozenset[str]:
    """What kinds of act a call is, by its tool's name, or by its command where the tool is a shell; none where nothing says."""
    if _SHELL.fullmatch(tool):
        each = [COMMANDS.get(word, frozenset[str]()) for word in re.findall(r"[\w-]+", command.lower())]
        return frozenset({"run"}).union(*each)
    verbs = [word for word in tool_words(tool) if word in VERBS]
    chosen = [word for word in verbs if word not in ALSO_NOUNS] or verbs[:1]
    nouns = [_OF_STEM_NOUN[stem(word)] for word in tool_words(tool) if stem(word) in _OF_STEM_NOUN]
    if not chosen:
        return frozenset[str]().union(*nouns)
    if chosen[0] in LIGHT and nouns:
        return nouns[0]
    kinds = frozenset[str]().union(*(VERBS[word] for word in chosen))
    return kinds.union(*(noun - {"visit", "read"} for noun in nouns)) if "create" in kinds else kinds  # create_payment
