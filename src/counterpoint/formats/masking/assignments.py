"""Values that are given to a name which says that they are secret: `password = "..."`, in any notation.

Code is no value: a call, a variable or a type after `password =` stays, and so do templates and the words that stand for a
value in documentation.

Always true: a value is at most `_LONGEST` characters, and each name is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from counterpoint.formats.masking.base import CODE_JOINS, SecretSpan, has_digit, is_filler, is_long, is_random, is_signed
from counterpoint.formats.masking.names import KEY, PASSWORD, SECRET, SIGNED, TOKEN, Name
from counterpoint.formats.masking.patterns import lazy

_LONGEST = 4096
_TRIES = 8
"""Names in one word, as in a=b=c=d, that are tried before the rest of the word is given up."""
_RULES = {KEY: "named-key", TOKEN: "named-token", SECRET: "named-secret", PASSWORD: "named-password"}

_OPEN = r"(?P<open>\\{0,8}(?:\"\"\"|'''|[\"'`]))"
_CLOSED = r"(?:\\{0,8}[\"'`])?[\])]{0,2}"
_EOL = r"(?:\r?\n|\\{1,4}n)"
# A value on the next line: in quotes, also behind a bracket or a backslash; a block of YAML; a word that has the line to itself.
_BLOCK = (
    rf"(?:\(?[ \t]{{0,4}}\\{{0,2}}{_EOL}[ \t]{{0,40}}(?=\\{{0,8}}[\"'])|[|>][-+]?[ \t]{{0,2}}{_EOL}[ \t]{{1,40}}"
    rf"|{_EOL}[ \t]{{2,40}}(?=[^\s\"'`:{{}}()\[\],#\\-][^\s\"'`:{{}}()\[\],\\]{{5,400}}[ \t]{{0,4}}(?:{_EOL}|\Z)))?"
)
_TYPE = r"(?::[ \t]{0,2}[A-Za-z_][\w.]{0,30}(?:\[\w{1,20}\])?[ \t]{0,2}(?:\|[ \t]?None[ \t]?)?(?==[ \t]{0,4}[^\s=]))?"
# How a name gets its value: by a sign, beside it in a pair, as the next argument, as a call, between tags, or as the next word.
_SIGN = lazy(rf"{_CLOSED}[ \t]{{0,8}}{_TYPE}(?P<sign>:=|=>|={{1,3}}|!={{1,2}}|\?=|<-|->|:)(?P<space>[ \t]{{0,40}}{_BLOCK})")
_VALUE_NAME = r"\\{0,8}[\"'`]?(?:value|val|default|content)\\{0,8}[\"'`]?[ \t]{0,4}[:=][ \t]{0,4}"
_BESIDE = lazy(rf"\\{{0,8}}[\"'`]?[ \t]{{0,4}},?\s{{0,40}}{_VALUE_NAME}", re.IGNORECASE)
_NEXT = lazy(r"\\{0,8}[\"'`][ \t]{0,4},[ \t]{0,4}(?=\\{0,8}[\"'`])")
_CALL = lazy(r"\([ \t]{0,4}(?=\\{0,8}[\"'`])")
_CALLED = lazy(r"(?:set_?|with_?|use_?|\.)\Z", re.IGNORECASE)
_TAGS = lazy(
    r"[\"']?(?:[ \t][^<>\n]{0,80})?>[ \t]{0,4}(?:<!\[CDATA\[)?(?P<value>[^<>\n]{3,400}?)[ \t]{0,4}(?:\]\]>)?(?:</|"
    r"&lt;/)"
)
_IS = lazy(r"[ \t]{1,3}(?:is|was|will be)[ \t]{0,2}:?[ \t]{1,3}(?=\S)", re.IGNORECASE)
_QUOTED_NEXT = lazy(r"[ \t]{1,4}(?=['\"])")
_START = lazy(r"(?:[bBfFrRuUL@N]{1,2}|\$)?" + _OPEN)
_BARE = lazy(r"[^\s\"'`<>,;&|(){}\[\]\\]{3,4096}")
_WIDE = lazy(r"[^\s\"'`<>\\]{3,4096}")
_COLON = lazy(rf"{_CLOSED}[ \t]{{0,8}}:[ \t]{{1,8}}(?P<value>[^\s\"'`<>\\]{{8,200}})(?=[ \t]{{0,4}}(?:{_EOL}|\0|\Z))")
_SETS = lazy(
    r"(?:^|[\s\"'])(?:ENV|setx?(?:[ \t]{1,4}--?[a-z-]{1,12}){0,5}|SetEnv|setenv|put|config(?:[ \t]+--?[a-z]+)*(?:[ \t]+set)?)"
    r"[ \t]+[\w./:-]{0,40}\Z",
    re.IGNORECASE,
)
# Settings of a thing whose name is secret, line by line, up to what it is by default: Terraform, CloudFormation, OpenAPI.
_SETTINGS = lazy(rf"\\{{0,4}}[\"']?\s{{0,4}}[{{:][ \t]{{0,4}}{_EOL}")
_A_SETTING = lazy(
    rf"[ \t]{{0,40}}(?P<name>[A-Za-z][\w-]{{0,40}})[ \t]{{0,40}}[:=][ \t]{{0,40}}(?P<rest>[^\n{{}}\\]{{0,200}}+{_EOL})?")
_SETTINGS_MOST = 8
# A string that goes on in the next one, by a sign or by nothing.
_GOES_ON = lazy(
    rf"\\{{0,8}}[\"'`][ \t]{{0,8}}(?:[+.&\\][ \t]{{0,8}})?(?:{_EOL}[ \t]{{0,40}})?(?:[+.&][ \t]{{0,8}})?(?=[fbru]?\\{{0,8}}[\"'"
    rf"])")
_LINE = lazy(
    r"[^\s\"'`,;|<>{}()=\[\]\\]{1,40}(?: [^\s\"'`,;|<>{}()=\[\]\\]{1,40}){1,7}(?=[ \t]{0,4}(?:\r?\n|\\{1,4}n|\0|\Z))")
_FLAG = lazy(r"(?:^|[\s\"'`(,\[])(?:--?|/)(?:[A-Za-z][A-Za-z0-9-]{0,30}-)?\Z|(?:^|[\s\"'`(,\[])-[a-zA-Z]{1,20}\Z")
# The beginning of a line of a settings file, or of a shell's variable.
_ENV = lazy(
    r"(?:^|[\s\"'`\0])(?P<set>(?:export|set|setenv|env|ENV|ARG|-e|--env|declare -x)[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-"
    r"]{0,60})\Z"
)
_BRACED = lazy(r"\{(?P<value>[^{}\s\"']{4,100})\};")
_PHRASE_WORDS = ("passphrase", "phrase", "mnemonic")
_PHRASE = lazy(r"(?P<value>[a-z]{3,12}(?:[ -][a-z]{3,12}){3,23})[ \t]{0,4}(?=[\r\n\0\"'`,;.]|\Z)")
_OPENED = lazy(r"[\[({]{1,2}\s{0,20}(?=\\{0,8}[\"'`])")
_TYPE_NAME = lazy(r"[\w.]*(?:Key|Token|Secret|Password|Credentials?|Str|Bytes|Type|Config|Session)")
_YAML = lazy(r"[a-z]{6,40}[0-9]{0,4}[ \t]{0,20}(?=\r?\n|\Z|\0)")
_YAML_NAME = " -_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_CODE = lazy(
    r"[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)+|[A-Za-z_$][\w$.]*[(\[{].*|[-+]?\d+(?:\.\d+)?[a-zA-Z%]{0,3"
    r"}|!?[A-Za-z_$][A-Za-z_$]*|@\w+.*|&\w+"
    r"|\*+[\w.]*|[\w.]*(?:Key|Token|Secret|Password|Credentials?|Str|Bytes|Type|Config|Session)|"
    r"/\S*/[gimsuy]*|.*[)\]}]|[A-Z][A-Z0-9_]*"
)
_PATH = lazy(
    r"(?:~|\.{1,2})?/[\w.@+-]*(?:/[\w.@+-]*)*|[A-Za-z]:[\\/].*|(?:[\w.@+-]+/)+[\w.@+-]*"
    r"|[\w.-]+\.(?:json|ya?ml|toml|txt|py|js|ts|html?|md|pem|key|crt|conf|cfg|ini|xml|csv|com|org|net|io|dev|exe|dll|so)"
)
_URL = lazy(r"[a-zA-Z][a-zA-Z0-9+.-]{1,20}://")
_WORDS = lazy(r"[A-Za-z]{1,15}(?:[ _.:/-](?:[A-Za-z]{1,15}|\d{1,4}))*[.!?:]?")
_DATE = lazy(r"\d{1,4}[-/.:]\d{1,2}[-/.:]\d{1,4}\S*|v?\d+(?:\.\d+)+\S{0,8}|(?:0x)?[0-9a-fA-F]{0,8}|\d+")
_SPACE = lazy(r"\s")
_ALPHA = lazy(r"[^\W\d_]")
_PLAIN = lazy(r"[A-Za-z0-9_+/=.~:%|-]+")
_HEX = lazy(r"[0-9a-f]{32,128}|[0-9A-F]{32,128}")
_UUID = lazy(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
# What runs and conversations are named by: no session of a browser.
_ID = lazy(
    r"[\w-]{0,40}[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{32}|[a-z]{2,12}[_-][A-Za-z0-9]{10,40}|"
    r"[0-9A-HJKMNP-TV-Z]{26}"
)
_SENTENCE = frozenset(
    [
        "enter",
        "must",
        "please",
        "should",
        "required",
        "characters",
        "character",
        "least",
        "invalid",
        "password",
        "passphrase",
        "your",
        "the",
        "is",
        "are",
        "incorrect",
        "wrong",
        "expired",
        "failed",
    ]
)
_LENGTHS = frozenset(
    ["minimum", "maximum", "min", "max", "length", "chars", "digits", "letters", "string", "optional", "zeichen", "days", "hash"]
)
_STOP = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "do",
        "enter",
        "expired",
        "failed",
        "field",
        "file",
        "for",
        "from",
        "has",
        "have",
        "if",
        "in",
        "input",
        "invalid",
        "is",
        "it",
        "its",
        "must",
        "my",
        "no",
        "not",
        "of",
        "on",
        "or",
        "please",
        "prompt",
        "required",
        "should",
        "so",
        "that",
        "the",
        "this",
        "to",
        "type",
        "use",
        "used",
        "user",
        "was",
        "when",
        "where",
        "which",
        "will",
        "with",
        "you",
        "your",
        "option",
        "options",
        "argument",
        "arguments",
        "args",
        "flag",
        "flags",
        "parameter",
        "parameters",
        "authentication",
        "based",
        "manager",
    ]
)


def assignments(text: str, named: Iterable[Name]) -> Iterator[SecretSpan]:
    """Every value that a name gives away."""
    done, word_end, tries = -1, -1, 0
    for name in named:
        if name.end < done or name.end >= len(text):
            continue
        place = _value_span(text, name)
        if place and not _is_harmless(text, name, place):
            start, done = place
            yield SecretSpan(start, done, "key", _RULES[name.level], text[start:done])
            for part in list(_rest(text, done)):
                yield SecretSpan(*part, "key", _RULES[name.level], text[slice(*part)])
                done = part[1]
            continue
        word = _WIDE.match(text, name.end + 1)
        tries = tries + 1 if word and word.end() == word_end else 0
        word_end = word.end() if word else -1
        done = word_end if tries >= _TRIES else done


def _rest(text: str, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a string that goes on in other strings."""
    while match := _GOES_ON.match(text, end):
        opened = _START.match(text, match.end())
        end = text.find(opened["open"], opened.end(), opened.end() + _LONGEST) if opened else -1
        if opened is None or end < opened.end() + 4 or "\n" in text[opened.end() : end] or is_filler(text[opened.end() : end]):
            return
        yield opened.end(), end


def _is_harmless(text: str, name: Name, place: tuple[int, int]) -> bool:
    """Whether a value is the id of a session of agents, or the signature that a model puts under its thoughts.

    In an address or a cookie such values are secrets.
    """
    is_given = "=" in text[name.end : place[0]]
    if name.word in SIGNED:
        return not (is_given and place[1] - place[0] >= 16 and is_random(text[slice(*place)]))
    return not is_given and name.word.startswith("session") and _ID.fullmatch(text, *place) is not None


def _value_span(text: str, name: Name) -> tuple[int, int] | None:
    """Where the value of a name is."""
    at, level = name.end, name.level
    if name.word in ("pass", "pwd") and text[at] == ")":
        return None
    if match := _SIGN.match(text, at):
        if braced := _BRACED.match(text, match.end()) if level == PASSWORD else None:
            return braced.span("value") if has_digit(braced["value"]) else None
        if name.word in _PHRASE_WORDS and (phrase := _PHRASE.match(text, match.end())) and _is_phrase(phrase["value"]):
            return phrase.span("value")
        if level == PASSWORD and (line := _words(text, name, match)):
            return line
        if level >= SECRET and (signed := _signed(text, at)):
            return signed
        place = _value(text, match.end(), level, is_wide=_is_setting(text, name, match) or _is_yaml(text, name, match))
        return place or _default(text, at, level)
    if text[at : at + 4].lstrip("\\\"' \t\n")[:1] == "{":
        return _default(text, at, level)
    if match := _BESIDE.match(text, at):
        return _value(text, match.end(), level, is_wide=False)
    if level >= SECRET and name.word not in ("pass", "pwd", "pin") and (match := _NEXT.match(text, at)):
        place = _quoted(text, match.end(), level)
        return place if place and (is_random if name.word == "key" else has_digit)(text[slice(*place)]) else None
    before = text[max(0, name.start - 60) : name.start]
    if text[at] == "(" and (match := _CALL.match(text, at)):
        return _quoted(text, match.end(), level) if _CALLED.search(before) else None
    if "<" in before and (match := _TAGS.match(text, at)):
        return match.span("value") if is_secret(match["value"].strip(), level, is_quoted=True) else None
    if text[at] not in " \t":
        return None
    if option := _option(text, before, at, level):
        return option
    if level >= TOKEN and name.word != "pass" and (match := _IS.match(text, at)):
        return _value(text, match.end(), level, is_wide=False)
    if level >= SECRET and name.word != "pass" and (match := _QUOTED_NEXT.match(text, at)):
        place = _quoted(text, match.end(), level)
        return place if place and (level == PASSWORD or is_random(text[slice(*place)])) else None
    return None


def _is_setting(text: str, name: Name, sign: re.Match[str]) -> bool:
    """Whether the name is a variable of a shell or of a settings file: then all up to the next blank is its value."""
    if sign["sign"] != "=" or sign["space"] or sign.start("sign") != name.end:
        return False
    match = _ENV.search(text[max(0, name.start - 80) : name.end].rpartition("\n")[2])
    return match is not None and (
        match["set"] is not None or match["name"].isupper() or text[sign.end() : sign.end() + 1].isalnum()
    )


def _is_yaml(text: str, name: Name, sign: re.Match[str]) -> bool:
    """Whether a line is a name, a colon, and one word in lower case, as in settings; types and variables are no such words."""
    if name.level != PASSWORD or sign["sign"] != ":" or not sign["space"]:
        return False
    before = text[max(0, name.start - 60) : name.start].rpartition("\n")[2]
    return _YAML.match(text, sign.end()) is not None and before.strip(_YAML_NAME) == ""


def _words(text: str, name: Name, sign: re.Match[str]) -> tuple[int, int] | None:
    """Several words that have the rest of a line to themselves, where the name begins it."""
    before = text[max(0, name.start - 40) : name.start].rpartition("\n")[2]
    match = _LINE.match(text, sign.end()) if before.strip(_YAML_NAME) == "" else None
    words = match[0].lower().split(" ") if match else []
    is_said = any(word.strip(".:!?") in _STOP or word.strip(".:!?") in _LENGTHS for word in words)
    return match.span() if match and not is_said and _is_phrase(match[0]) else None


def _signed(text: str, at: int) -> tuple[int, int] | None:
    """The rest of a line behind a colon and a blank, where a sign would end it or make a type of its beginning."""
    match = _COLON.match(text, at)
    value = match["value"].rstrip(".,;:)") if match else ""
    if match is None or not is_signed(value, CODE_JOINS) or is_filler(value):
        return None
    return match.start("value"), match.start("value") + len(value)


def _default(text: str, at: int, level: int) -> tuple[int, int] | None:
    """What a thing with settings of its own is by default."""
    match = _SETTINGS.match(text, at)
    for _ in range(_SETTINGS_MOST if match else 0):
        match = _A_SETTING.match(text, match.end()) if match else None
        if match and match["name"].lower() in ("default", "value"):
            start = match.start("rest") if match["rest"] is not None else match.end()
            return _value(text, start, level, is_wide=level == PASSWORD)
        if match is None or match["rest"] is None:
            return None
    return None


def _option(text: str, before: str, at: int, level: int) -> tuple[int, int] | None:
    """`--password X`: the next word, whatever it is, if it is no option, no template and no word of a sentence."""
    if level < TOKEN or not (_FLAG.search(before) or _SETS.search(before)):
        return None
    start = at + 1
    if _START.match(text, start):
        return _quoted(text, start, level)
    value = _WIDE.match(text, start)
    word = value[0].rstrip(".,;:)") if value else ""
    if len(word) < 4 or word.lower() in _STOP or word.startswith(("-", "|", "&", "=", ">")) or word.isupper() or is_filler(word):
        return None
    if level < PASSWORD and not has_digit(word) and not is_random(word):
        return None
    return start, start + len(word)


def _value(text: str, at: int, level: int, *, is_wide: bool) -> tuple[int, int] | None:
    if opened := _OPENED.match(text, at):
        return _quoted(text, opened.end(), level) if text[at] != "(" else None
    if _START.match(text, at):
        return _quoted(text, at, level)
    match = (_WIDE if is_wide else _BARE).match(text, at)
    if match is None or (not is_wide and text[match.end() : match.end() + 1] in ("(", "[", "{")):
        return None
    value = match[0].rstrip(".,;:)")
    return (
        (at, at + len(value))
        if is_secret(value, level, is_quoted=False, is_wide=is_wide and len(value) == len(match[0]))
        else None
    )


def _quoted(text: str, at: int, level: int) -> tuple[int, int] | None:
    match = _START.match(text, at)
    if match is None:
        return None
    start, mark = match.end(), match["open"]
    end = text.find(mark, start, start + _LONGEST)
    while end > 0 and text[end - 1] == "\\" and text[end - 2] != "\\" and not mark.startswith("\\"):
        end = text.find(mark, end + 1, start + _LONGEST)
    if end < 0:  # the text was cut off, or the quote is no quote
        rest = _WIDE.match(text, start)
        end = rest.end() if rest else start
    value = text[start:end]
    return (start, end) if "\n" not in value and is_secret(value, level, is_quoted=True) else None


def is_secret(value: str, level: int, *, is_quoted: bool, is_wide: bool = False) -> bool:
    """Whether a value under a name of that level is a secret."""
    size = len(value)
    if size < (4 if level == PASSWORD else 8) or is_filler(value) or _URL.match(value):
        return False
    if _SPACE.search(value):
        return level == PASSWORD and is_quoted and _is_phrase(value)
    chance = is_random(value)
    if size > 400:
        return chance and _PLAIN.fullmatch(value) is not None
    if _PATH.fullmatch(value) and not (size >= 30 and chance) and not (level == SECRET and is_long(value)):
        return False
    if (
        not is_quoted
        and not is_wide
        and _CODE.fullmatch(value)
        and not (chance and (value.isalnum() or _is_mixed(value)) and not _TYPE_NAME.fullmatch(value))
        and not (level >= SECRET and is_signed(value, CODE_JOINS))
    ):
        return level == PASSWORD and value.isdigit() and size >= 6
    if level == PASSWORD:
        return _is_password(value, is_quoted=is_quoted, is_wide=is_wide)
    if _DATE.fullmatch(value) or not _ALPHA.search(value):
        return False
    if level == SECRET and is_wide and size >= 16 and not has_digit(value):
        return is_signed(value, "") or (not _WORDS.fullmatch(value) and _PLAIN.fullmatch(value) is not None)
    if level == SECRET:
        return (
            (has_digit(value) and (is_quoted or not _WORDS.fullmatch(value)))
            or (is_quoted and (chance or (size >= 12 and value.isalnum())))
            or is_signed(value, "" if is_wide else "+&" if is_quoted else CODE_JOINS)
        )
    if level == TOKEN and is_quoted and is_signed(value, CODE_JOINS):
        return True
    if not _PLAIN.fullmatch(value) or _WORDS.fullmatch(value):
        return chance and size >= 16 and value.isalnum() and (is_quoted or has_digit(value))
    if level == TOKEN:
        return chance or (is_quoted and has_digit(value) and not any(c in "_./" for c in value))
    return has_digit(value) and size >= 20 and chance and not _HEX.fullmatch(value) and not _UUID.fullmatch(value)


def _is_mixed(value: str) -> bool:
    """Whether a dotted value is no name of code: long, with letters of both cases and digits all over."""
    return (
        len(value) >= 20
        and value.count(".") < 2
        and sum(c.isdigit() for c in value) >= 3
        and not value.islower()
        and "_" not in value
    )


def _is_password(value: str, *, is_quoted: bool, is_wide: bool) -> bool:
    if is_quoted:
        return not _URL.search(value)
    if is_wide:
        return not (_CODE.fullmatch(value) and (value.isupper() or any(c in "()[]{}_" for c in value)))
    return (
        len(value) >= 6
        and (has_digit(value) or is_random(value) or any(c in "!@#$%^*?~+=" for c in value))
        and not _DATE.fullmatch(value)
    )


def _is_phrase(value: str) -> bool:
    """Whether some words are a passphrase and no sentence about one."""
    words = [word.lower().strip(".,:;!?") for word in re.split(r"[\s-]+", value)]
    if len(words) > 24 or any(word in _SENTENCE for word in words):
        return False
    if len(words) >= 3 and all(word.isalpha() for word in words):
        return value.islower() and not any(word in _STOP for word in words)
    return len(words) < 7 and (has_digit(value) or any(is_signed(word, "+&") for word in value.split()))
