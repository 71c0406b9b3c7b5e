"""Names that say what is secret: where one ends in a text, and how much it says about its value.

A level is what a name asks of its value: a password may be any word, a token must not look like one, a key must look random.

Always true: one pattern of all words finds the ends of names in one pass; what stands before a word is looked at only where a
sign of assignment, a tag or a call follows.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from counterpoint.formats.masking.patterns import lazy
from counterpoint.formats.masking.tokens import trie

PASSWORD, SECRET, TOKEN, KEY = 4, 3, 2, 1

# The last word of a name, by level; from the rules named in `rules.SOURCES` (gl generic-api-key, ds keyword, sp
# sensitive-fields).
_WORDS: dict[int, tuple[str, ...]] = {
    PASSWORD: ("password", "passwd", "passwort", "passphrase", "passcode", "kennwort", "contraseña", "contrasena",
               "passe", "wachtwoord",
               "senha", "пароль", "密码", "密碼", "パスワード", "비밀번호", "heslo", "şifre", "pwd", "pswd", "psw", "pass", "psk",
               "pin", "phrase", "mnemonic", "passwords", "parola", "lösenord", "hasło"),
    SECRET: ("secret", "secrets", "apikey", "credential", "credentials", "creds", "totp", "key", "keys", "keydata",
             "key-data", "key_data",
             "connectionstring", "connection_string", "connection-string", "connection string", "connstr", "conn_str",
             "conn_string", "_auth", "webhook"),
    TOKEN: ("token", "tokens", "bearer", "jwt", "pat", "sas", "sig", "sid", "signature", "sessid", "sessionid",
            "session_id", "session-id", "session",
            "csrf", "xsrf", "verifier", "hmac", "otp", "cookie"),
    KEY: ("auth", "cred", "ticket", "hdnts"),
}  # fmt: skip
_LEVELS = {word: level for level, words in _WORDS.items() for word in words}
_TAIL = (
    r"(?:[ _.-]?(?:[0-9]{1,3}|old|new|prod|production|dev|staging|test|live|value|val|plain|plaintext|raw|b64|base64|encrypted"
    r"|primary|secondary|main|current|default|base)(?![a-z]))?"
)
_FOLLOWS = (
    r"(?=\\{0,8}[\"'`]?[\])]{0,2}(?:[ \t]{0,8}(?:[:=?!<>|]|->)|[ \t]{1,4}[\"']|\([ \t]{0,4}\\{0,8}[\"'`]|"
    r"[ \t]{1,3}(?:is|was|will)[ \t]"
    r"|[ \t]{0,4},[ \t]{0,4}\\{0,8}[\"'`]|\s{1,40}\\{0,8}[\"'`]?(?:value|val|default)\b|\s{0,4}\{))"
)
SPOKEN = frozenset({
    "password", "passwd", "passwort", "passphrase", "passcode", "kennwort", "contraseña", "contrasena", "passe", "wachtwoord",
        "senha", "пароль",
    "heslo", "pass", "parola", "lösenord", "hasło", "pwd", "密码", "密碼", "パスワード",
})  # fmt: skip
"""Names that sentences use."""
# What stands behind a name that is a field of a line, and behind one that is a word of a sentence.
_FIELD_ENDS = r"\\{0,4}[\"'`*]{0,2}[ \t]{0,40}(?:[,;|\t\r\n\]\0]|\\{1,4}[nrt]|</|\Z)|[ \t]{2}"
_LOOSE = lazy(
    f"(?P<word>{trie(list(_LEVELS))})(?P<tail>{_TAIL})(?:(?P<field>(?={_FIELD_ENDS}))|(?=[ \t]{{1,2}}\\S|[.,;!?)\"'`]))"
)
_ENDS = lazy(f"(?P<word>{trie(list(_LEVELS))})(?P<tail>{_TAIL}){_FOLLOWS}")
_FOREIGN_LETTERS = np.array([ord(word[0]) for word in _LEVELS if not word[0].isascii()], np.uint32)
SIGNED = frozenset({"signature", "sig", "hmac", "verifier"})
"""Words for what proves something; it is secret in an address only."""
NAME_WORDS = tuple(word for word in _LEVELS if word.isascii())
"""The words that end a name."""
_OPTION = lazy(f"(?P<word>{trie(list(_LEVELS))})(?P<tail>{_TAIL})(?=[ \\t]{{1,3}}\\S)")
_SETS = lazy(
    r"(?:env|setx?(?:[ \t]{1,4}--?[a-z-]{1,12}){0,5}|setenv|put|config(?:[ \t]+--?[a-z]+)*|password)[ \t]+[\w./:-]{0,40}\Z"
)
# Words that are the end of many others: a letter must not stand before them.
_SHORT = frozenset({
    "pwd", "pswd", "psw", "pass", "pin", "pat", "sas", "sig", "sid", "otp", "auth", "cred", "session", "passe", "jwt",
                    "cookie", "keys", "tokens", "senha", "heslo"})  # fmt: skip
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_APART = " _.-"
# What may stand before `pass` and `pwd` without a break.
_OWNERS = ("db", "my", "sql", "user", "admin", "root", "smtp", "mail", "ftp", "key", "store", "redis", "ssh", "pg",
           "postgres", "mongo", "ldap", "proxy",
           "login", "rabbitmq")  # fmt: skip
# Keys of these are secret.
_SECRET_KEYS = (
    "api", "access", "account", "acct", "app", "application", "auth", "client", "cloud", "consumer", "customer",
    "deploy", "encrypt", "encryption",
    "decrypt", "decryption", "function", "functions", "hmac", "jwt", "license", "licence", "master", "priv", "private",
    "root", "secret", "service",
    "session", "shared", "sign", "signing", "ssh", "storage", "subscription", "user", "webhook", "write", "admin",
    "server", "host", "preshared", "aes",
    "rsa", "des", "crypto", "cipher", "db", "database", "data", "trans", "transaction", "sas", "activation", "product",
    "vault", "integration", "ingest",
    "insert", "tsig", "rndc", "bot", "openai", "anthropic", "azure", "gcp", "aws", "google", "stripe", "github", "maps",
    "sendgrid", "datadog", "dd",
    "heroku", "algolia", "twilio", "mailgun", "mailchimp", "cloudflare", "hf", "wandb",
)  # fmt: skip
# Keys and tokens of these are public, or none: gl generic-api-key has the list of the most frequent.
_PUBLIC = frozenset({
    "public", "pub", "primary", "foreign", "sort", "cache", "partition", "hash", "dict", "group", "bucket",
    "idempotency", "natural", "hot", "index",
    "schema", "publishable", "row", "json", "column", "map", "item", "by", "next", "prev", "previous", "page",
    "nextpage", "continuation", "eos", "bos",
    "pad", "unk", "mask", "sep", "cls", "special", "stop", "start", "end", "max", "min", "num", "first", "last", "input",
    "output", "non", "is", "has",
    "no", "digital", "type", "mime", "code", "func", "method", "call", "wheel", "pgp", "gpg",
})  # fmt: skip
_PHRASES = ("seed", "mnemonic", "recovery", "backup", "secret", "wallet", "pass", "bip39")


class Name(NamedTuple):
    """Where a name's last word begins, where the name ends, and what it says."""

    start: int
    end: int
    level: int
    word: str


def name_at(text: str, low: str, at: int) -> Name | None:
    """The name whose last word begins at a place, if it says something and something follows."""
    match = _ENDS.match(low, at)
    if match is None and at > 0 and (option := _OPTION.match(low, at)) and (low[at - 1] in "-/" or _is_set(low, at)):
        match = option  # an option of a command, --password X, or of a file, ENV PASSWORD X
    return _name(text, low, match) if match else None


class Loose(NamedTuple):
    """A name without a sign behind it."""

    name: Name
    is_field: bool
    """Whether it may be a field of a line; otherwise it is a word of a sentence."""


def loose_at(text: str, low: str, at: int) -> Loose | None:
    """The name whose last word begins at a place, where it is a field of a table or a word that sentences use."""
    match = _LOOSE.match(low, at)
    if match is None or (match["field"] is None and match["word"] not in SPOKEN):
        return None
    name = _name(text, low, match)
    return Loose(name, match["field"] is not None) if name else None


def _is_set(low: str, at: int) -> bool:
    """Whether a command that sets something stands before a place."""
    return _SETS.search(low, max(0, at - 60), at) is not None


def foreign_names(text: str, low: str) -> list[Name]:
    """Names of other alphabets."""
    codes = np.frombuffer(low.encode("utf-32-le", "surrogatepass"), "<u4")
    places = np.flatnonzero(
        (codes[:, None] == _FOREIGN_LETTERS).any(axis=1) if len(codes) < 1000 else np.isin(codes, _FOREIGN_LETTERS, kind="table")
    )
    return [name for place in places.tolist() if (name := name_at(text, low, place))]


def _name(text: str, low: str, match: re.Match[str]) -> Name | None:
    before = low[max(0, match.start() - 24) : match.start()]
    if "::" in before and low[match.end() : match.end() + 1] in ('"', "'"):  # the name of a type: "AWS::IAM::AccessKey"
        return None
    level = _level(match["word"], before, text[match.start()].isupper())
    return Name(match.start(), match.end(), level, match["word"]) if level else None


def level_of(name: str) -> int:
    """What a whole name says of its value: 0 for nothing."""
    low = name.lower()[-60:]
    level = 0
    for match in _ENDS.finditer(low + "="):
        if match.end() == len(low) and match["word"] not in SIGNED:
            is_upper = name[-60:][match.start()].isupper()
            level = max(level, _level(match["word"], low[: match.start()], is_upper))
    return level


def _level(word: str, before: str, is_upper: bool) -> int:
    """The level of a name by its last word and what stands before; in camelCase an upper letter begins a word."""
    level = _LEVELS[word]
    is_inside = before[-1:].isalpha() and not is_upper
    stem = before.rstrip(_APART)
    if word in ("pass", "pwd"):
        return level if not is_inside or stem.endswith(_OWNERS) else 0
    if word == "phrase":
        return level if stem.endswith(_PHRASES) else 0
    if word.startswith("key"):
        return _key_level(stem, is_inside=is_inside)
    if word in ("ticket", "hdnts"):
        return level if before.endswith(("?", "&", "amp;", ";")) else 0
    if is_inside and word in _SHORT:
        return 0
    return 0 if level <= TOKEN and _last(stem) in _PUBLIC else level


def _key_level(stem: str, *, is_inside: bool) -> int:
    is_secret = stem.endswith(_SECRET_KEYS)
    if _last(stem) in _PUBLIC or (is_inside and not is_secret):
        return 0
    return SECRET if is_secret else KEY


def _last(stem: str) -> str:
    """The last word of what stands before."""
    return stem[len(stem.rstrip(_LETTERS)) :]
