"""What a text orders: the acts that it asks for, each with its kind and the particulars by which its doing is recognised.

Always true: an act is asked for where a verb stands at the beginning of a sentence or behind a word that asks (please, must,
to, and, then). Its kind is that of its verb (`audit.verbs`). Particulars are of two strengths: addresses, links, accounts,
quoted words and identifiers say which act it is; names and dates do so where there are no stronger ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from counterpoint.audit.verbs import ALSO_NOUNS, COMMANDS, FURTHER, LIGHT, NOUNS, STOP, VERBS

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
_NEAR = 40
"""Characters before a word in which it is looked for what it depends on."""
_VERB = re.compile(r"\b[Ee]-?mail\b|[A-Za-z]+")
_SAYS_MORE = re.compile(
    r"\b(?:should|must|shall|has to|needs to|have to) (?:be|have|say|read|contain|include|begin|start)\b", re.IGNORECASE
)
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE = re.compile(
    r"(?<=[.!?])[\"'”’)]?\s+|(?<=[.!?])(?=[A-Z][a-z])|\n\s*(?:[-*•]|\d+[.)])\s+|\n(?=\s*[\w.-]{1,20}:\s)|(?<=:)\s*\n\s*"
)
_TAG = re.compile(r"</?[A-Za-z][\w -]{0,30}>|<!--|-->|<\|\w+\|>|\[/?[A-Z]{3,}\]")
_BACK_TO_WORK = re.compile(
    r"\b(?:you (?:can|may|are free to)|(?:continue|resume|proceed|go on|go back|carry on|return)\b.{0,30}"
    r"\b(?:task|request|work|question|job|conversation|what you))\b.*",
    re.IGNORECASE | re.DOTALL,
)
"""What an order says of the time after it: no order."""
_PRONOUN = re.compile(r"\b(?:him|her|it|them|this|that|these|those)\b", re.IGNORECASE)
_BACK = re.compile(
    r"\bjust\s+\w+(?:ed|t|de|ote)\b|\byou(?:'ve| have)?\s+(?:just\s+)?(?:sent|made|created|posted|written|added|booked)\b",
    re.IGNORECASE,
)
_FORBIDS = re.compile(r"\b(?:do not|don't|never|must not|cannot|can't|without|avoid|refuse to|not to)\s+\Z", re.IGNORECASE)

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
_DATED = r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}:\d{2}\b"
_MONTHS = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_NAMED = re.compile(
    rf"{_DATED}|(?!(?:{_MONTHS})\b)\b[A-Z][\w'-]*[a-z][\w'-]*(?:\s+(?:of|the|de|la)?\s*(?!(?:{_MONTHS})\b)[A-Z][\w'-]*)*|\b[A-Z]{{2,}}\b"
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


def orders(text: str) -> list[Order]:
    """The acts that a text asks for, in order; those of one paragraph belong together."""
    out: list[Order] = []
    for number, paragraph in enumerate(_PARAGRAPH.split(_TAG.sub("\n\n", _shielded(text)))):
        first = len(out)
        for sentence in _SENTENCE.split(paragraph):
            _read(re.sub(r"\s*\n\s*", " ", sentence.strip()).translate(_UNSHIELD), number, out, first)
    return out


def unknown_order(text: str) -> Order:
    """A text as one order whose verb is not known: only what it names can tell whether it was carried out."""
    return _order("", " ".join(_TAG.sub(" ", text).split()), 0)


def _shielded(text: str) -> str:
    """The text with stops inside quotations put aside, so that no sentence ends there."""
    return _QUOTATION.sub(lambda m: m[0].translate(_SHIELD), text)


def _read(sentence: str, number: int, out: list[Order], first: int) -> None:
    """Add what a sentence asks for; what it says further goes to the act before, in the same paragraph."""
    clauses = list(_clauses(_BACK_TO_WORK.sub("", sentence)))
    for verb, clause in clauses:
        found = _order(verb, clause, number)
        before = out[-1] if len(out) > first else None
        if before is not None and verb.lower() in FURTHER and not re.search(r"\w_\w", clause):
            out[-1] = _with(before, found.strong)
        elif not found.strong and _BACK.search(clause):
            out.append(found._replace(objects=found.objects[:1], is_back=True))
        elif before is not None and not found.strong and _PRONOUN.search(clause):
            meant = (*before.strong, *before.names, *before.about)
            out.append(found._replace(about=meant, objects=found.objects or before.objects))
        else:
            out.append(found)
    if not clauses and len(out) > first and _SAYS_MORE.search(sentence):
        out[-1] = _with(out[-1], _particulars(sentence))


def _with(order: Order, more: tuple[str, ...]) -> Order:
    return order._replace(strong=(*order.strong, *(one for one in more if one not in order.strong)))


def _clauses(sentence: str) -> Iterator[tuple[str, str]]:
    """Verbs that are asked for, each with what follows up to the next."""
    hidden = [m.span() for m in _PARTICULAR.finditer(sentence)]
    found = [
        m
        for m in _VERB.finditer(sentence)
        if m[0].lower().replace("-", "") in VERBS
        and _ASKS.search(sentence, max(m.start() - _NEAR, 0), m.start())
        and not any(a <= m.start() < b for a, b in hidden)
        and not _FORBIDS.search(sentence, max(m.start() - _NEAR, 0), m.start())
        and not _is_noun(sentence, m)
    ]
    ends = [*(m.start() for m in found[1:]), len(sentence)]
    for one, end in zip(found, ends, strict=False):
        yield one[0], sentence[one.start() : end]


def _is_noun(sentence: str, m: re.Match[str]) -> bool:
    """Whether a word that can be both is a noun here: 'to email', 'and message of', 'you report'."""
    follows = sentence[m.end() : m.end() + 12].lstrip()
    return m[0].lower() in ALSO_NOUNS and re.match(r"(?:of|from|is|was|are|were|in|:|,|\.|$)(?:\W|$)", follows) is not None


def _order(verb: str, clause: str, paragraph: int) -> Order:
    kinds, rest = verb_kinds(verb), clause[len(verb) :]
    bare = _WHEN.sub(" ", _PARTICULAR.sub(" ", rest))
    said = stems(bare)
    if verb.lower() in LIGHT:  # the noun says which act it is, and no longer what it is done to
        nouns = [word for word in said[:3] if word in _OF_STEM_NOUN]
        if nouns:
            kinds, said = _OF_STEM_NOUN[nouns[0]], [word for word in said if word != nouns[0]]
    names = tuple(dict.fromkeys(normal(m[0]).rstrip(".,") for m in _NAMED.finditer(_PARTICULAR.sub(" ", rest))))
    return Order(
        clause.strip(), verb.lower(), kinds, _particulars(rest), names, tuple(said[:5]), frozenset(stems(rest)), paragraph
    )


def _particulars(text: str) -> tuple[str, ...]:
    """Those that an act must hold: where something comes from is left out where anything else is named."""
    found = [
        (normal(m[0].strip("'\"“”‘’`")).rstrip(".,;:!?/"), bool(_FROM.search(text, max(m.start() - _NEAR, 0), m.start())))
        for m in _PARTICULAR.finditer(text)
    ]
    aims = [one for one, is_from in found if one and not is_from]
    return tuple(dict.fromkeys(aims or [one for one, _ in found if one]))


# -- acts ------------------------------------------------------------------------------------------------------------

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@lru_cache(maxsize=4096)
def tool_words(tool: str) -> tuple[str, ...]:
    """The words of a tool's name, in lower case."""
    return tuple(part.lower() for part in _PARTS.findall(tool))


def tool_kinds(tool: str, said: str) -> frozenset[str]:
    """What kinds of act a call is, by its tool's name, or by its command where the tool is a shell; none where nothing says."""
    if _SHELL.fullmatch(tool):
        found = [COMMANDS.get(word, frozenset[str]()) for word in re.findall(r"[\w-]+", said.lower())]
        return frozenset({"run"}).union(*found)
    verbs = [word for word in tool_words(tool) if word in VERBS]
    chosen = [word for word in verbs if word not in ALSO_NOUNS] or verbs[:1]
    nouns = [_OF_STEM_NOUN[stem(word)] for word in tool_words(tool) if stem(word) in _OF_STEM_NOUN]
    if not chosen:
        return frozenset[str]().union(*nouns)
    return nouns[0] if chosen[0] in LIGHT and nouns else frozenset[str]().union(*(VERBS[word] for word in chosen))
