"""Secrets that a word before them gives away and whose own form says little: seeds of one-time passwords, backup codes, keys of
wallets, cookies of Erlang, keys of vendors without a beginning of their own, links that let somebody in, values of settings
that are named earlier in a command.

Always true: each is looked for only where its words stand, and reads a bounded number of characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from counterpoint.formats.masking.assignments import is_secret
from counterpoint.formats.masking.base import SecretSpan, has_digit, is_filler, is_random, is_scrambled
from counterpoint.formats.masking.names import PASSWORD, TOKEN, level_of
from counterpoint.formats.masking.patterns import lazy

Found = Iterator[SecretSpan]


def _span(match: re.Match[str], rule: str) -> SecretSpan:
    return SecretSpan(*match.span("value"), "key", rule, match["value"])


def _match(pattern: re.Pattern[str], rule: str, ask: Callable[[str], bool] | None = None) -> Callable[[str, int], Found]:
    def found_in(text: str, at: int) -> Found:
        match = pattern.match(text, at)
        if match and not is_filler(match["value"]) and (ask is None or ask(match["value"])):
            yield _span(match, rule)

    return found_in


# -- one-time passwords and backup codes ---------------------------------------------------------------------------------------

_SEED = lazy(
    r"(?:totp|2fa|mfa|otp|authenticator|two[- ]factor)[\w \-.\"'`(:=\{,\\>]{0,48}?[ \"'`(:=>]"
    r"(?P<value>(?:[A-Za-z2-7]{4}[ -]){3,15}[A-Za-z2-7]{4}|[A-Z2-7]{16,64}|[a-z2-7]{16,64})(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_MIGRATION = lazy(r"otpauth-migration://[a-z]{1,20}\?data=(?P<value>[A-Za-z0-9+/%=_-]{20,4000})", re.IGNORECASE)
_CODE_HEAD = lazy(
    r"[\w -]{0,24}(?:codes?|codigos?|códigos?|secours|recuperación)\b(?:[ \t]{1,2}[\w()-]{1,16}){0,4}?[ \t]{0,2}(?P<sign>[:=]|"
    r"\b(?:are|is|sind|lauten|"
    r"lautet)\b:?|(?=\s{0,2}(?:\r?\n|\\n)))\\{0,4}[\"'`]?",
    re.IGNORECASE,
)
_BETWEEN = lazy(r"(?:[\s,;|\"'`\[\](){}]|\\{1,4}[nrt]|\d{1,2}[.)][ \t]|[-*•][ \t]){0,24}+")
_CODE = lazy(r"[A-Za-z0-9]{4,12}(?:-[A-Za-z0-9]{3,12}){0,5}+(?![\w/.@-])")
_DAY = lazy(r"(?:19|20)\d\d(?:-\d\d-\d\d)?")


def _is_seed(value: str) -> bool:
    """Whether base32 is a seed: words have no digits, and a seed hardly ever has none."""
    bare = re.sub("[ -]", "", value)
    return (
        len(bare) >= 16 and (bare.isupper() or bare.islower()) and sum(c.isdigit() for c in bare) >= (1 if bare == value else 2)
    )


def _codes(text: str, at: int) -> Found:
    """A list of codes behind a word for them."""
    head = _CODE_HEAD.match(text, at)
    if head is None:
        return
    listed: list[re.Match[str]] = []
    place = head.end()
    while len(listed) < 40:
        gone = _BETWEEN.match(text, place)
        code = _CODE.match(text, gone.end() if gone else place)
        if code is None or not has_digit(code[0]) or len(code[0]) < 6 or _DAY.fullmatch(code[0]):
            break
        listed.append(code)
        place = code.end()
    if len(listed) > 1 or (listed and head["sign"]):
        yield from (SecretSpan(*code.span(), "key", "backup-code", code[0]) for code in listed)


# -- wallets -------------------------------------------------------------------------------------------------------------------

_WALLET = lazy(
    r"(?:wallet|from_key|fromsecretkey|fromprivatekey|privatekeytoaccount|importprivkey|privatekey|accounts)\\{0,4}[\"'`]?\s{0,"
    r"4}[:=]?\s{0,4}[(\[ ]"
    r"\s{0,8}(?:[\w.]{1,40}\(\s{0,4}){0,2}\\{0,4}[\"'`]?(?P<value>(?:0x)?[0-9a-fA-F]{64}|[1-9A-HJ-NP-Za-km-z]{50,90})(?![A-Za-z"
    r"0-9])",
    re.IGNORECASE,
)
_BYTES = lazy(
    r"(?:id\.json|keypair|secret_?key|private_?key|solana)[^\[\n]{0,40}\n?[^\[\n]{0,20}\[\s{0,4}(?P<value>\d{1,3}(?:,\s{0,2}\d{"
    r"1,3}){63})\s{0,4}\]",
    re.IGNORECASE,
)
_WALLET_SECRET = lazy(
    r"(?:wallet|solana|keypair|phantom)[\w \"'`.-]{0,30}?(?:secret|private)[\w \"'`.-]{0,12}[:=][ \t]{0,4}\\{0,4}[\"'`]?"
    r"(?P<value>(?:0x)?[0-9a-fA-F]{64}|[1-9A-HJ-NP-Za-km-z]{50,90})(?![A-Za-z0-9])",
    re.IGNORECASE,
)


# -- cookies of Erlang ---------------------------------------------------------------------------------------------------------

_ERLANG = lazy(
    r"(?:-setcookie|--cookie|set_cookie|erlang[._ -]cookie|release_cookie)\\{0,4}[\"'`]?(?:[ \t]{1,3}(?:is|=|:)|[ \t]{0,3}[:=(,"
    r"])?\s{0,8}(?:node\(\)\s{0,2},\s{0,2})?"
    r":?\\{0,4}[\"'`]?(?P<value>[A-Za-z0-9_-]{8,255})(?![\w.=(/-])",
    re.IGNORECASE,
)


def _is_cookie(value: str) -> bool:
    return (value.isalpha() and value.isupper() and len(value) >= 16) or (len(value) >= 12 and is_random(value))


# -- vendors whose keys have no beginning of their own -------------------------------------------------------------------------

_GAP = r"[\w .:=\"'`(\[{,\\/-]{0,40}?[ \"'`(=:]"
_NEAR: dict[str, str] = {
    "cohere": "[A-Za-z0-9]{40}",
    "amplitude": "[0-9a-f]{32}",
    "segment": "[A-Za-z0-9]{32}",
    "analytics.load": "[A-Za-z0-9]{32}",
    "mistral": "[A-Za-z0-9]{32}",
    "assemblyai": "[0-9a-f]{32}",
    "deepgram": "[0-9a-f]{40}",
    "algolia": "[0-9a-f]{32}",
    "mixpanel": "[0-9a-f]{32}",
    "launchdarkly": "[a-z0-9_=-]{40}",
    "togetherai": "[0-9a-f]{64}",
    "ai21": "[A-Za-z0-9]{32}",
}
"""A vendor's word, and the form of the key that may stand near it (kingfisher, gitleaks)."""
_NEAR_PATTERNS = {
    word: lazy(rf"{re.escape(word)}{_GAP}(?P<value>{form})(?![A-Za-z0-9_-])", re.IGNORECASE) for word, form in _NEAR.items()
}
_ASKS = lazy(r"key|token|secret|auth|init|client|load|api|\(", re.IGNORECASE)


def _near(word: str) -> Callable[[str, int], Found]:
    pattern = _NEAR_PATTERNS[word]

    def found_in(text: str, at: int) -> Found:
        match = pattern.match(text, at)
        if match and is_random(match["value"]) and _ASKS.search(text, at, match.start("value")):
            yield _span(match, "near-vendor")

    return found_in


# -- links that let somebody in ------------------------------------------------------------------------------------------------

_LETS_IN = (
    "reset", "reset-password", "reset_password", "resetpassword", "password-reset", "password_reset", "forgot-password",
        "set-password", "magic",
    "magic-link", "magic_link", "magiclink", "verify", "verify-email", "verify_email", "verification", "confirm", "confirmation",
        "confirm-email", "activate",
    "activation", "invite", "invites", "invitation", "invitations", "accept-invite", "accept-invitation", "login", "signin",
        "sign-in", "sign_in",
    "sso", "one-time-login", "otp", "recover", "recovery", "unlock", "passwordless", "unsubscribe", "token", "callback",
        "email-login", "join",
)  # fmt: skip
_LINK = lazy(
    rf"://[^\s\"'`<>\\]{{1,300}}?/(?:{'|'.join(sorted(_LETS_IN, key=len, reverse=True))})(?:/[\w=-]{{1,12}})?"
    rf"(?:/|[^\s\"'`<>\\?]{{0,60}}\?(?:[\w.-]{{1,20}}=[^\s&\"'`<>\\]{{0,60}}&){{0,6}}(?:t|c|k|h|s|hash|magic|invite|link|oobcod"
    rf"e)=)"
    rf"(?P<value>[A-Za-z0-9_.~%-]{{16,400}})(?![A-Za-z0-9_~%])",
    re.IGNORECASE,
)
_UUID = lazy(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def _link(text: str, at: int) -> Found:
    match = _LINK.match(text, at)
    value = match["value"].rstrip(".") if match else ""
    is_chance = is_scrambled(value) or ((is_random(value) or _UUID.fullmatch(value)) and sum(c.isdigit() for c in value) > 2)
    if match and is_chance:
        yield SecretSpan(match.start("value"), match.start("value") + len(value), "key", "link-that-lets-in", value)


_SENTRY = lazy(r"://(?P<public>[0-9a-f]{32}):(?P<value>[0-9a-f]{32})@(?=[\w.-]{1,200}/)", re.IGNORECASE)


def _sentry(text: str, at: int) -> Found:
    """Both halves of an old address of Sentry."""
    if match := _SENTRY.match(text, at):
        yield SecretSpan(*match.span("public"), "key", "sentry-dsn", match["public"])
        yield _span(match, "sentry-dsn")


# -- commands ------------------------------------------------------------------------------------------------------------------

_GIVEN = lazy(
    r"(?:--value|--body|--secret-string|--plaintext|--string-value|-b)(?:[ \t]{1,4}|=)?\\{0,4}[\"']?(?P<value>[^\s\"'\\<>|;]{4,"
    r"400})"
)
_DIRECTIVE = lazy(
    r"(?:requirepass|masterauth|sasl_passwd|ldap_bind_pw|bindpw)[ \t]{1,8}\\{0,4}[\"']?(?P<value>[^\s\"'\\<>]{4,200})"
)
_WORD = lazy(r"[A-Za-z0-9_./:-]{2,80}")
_CRYPT = lazy(
    r"(?:crypt|password|old_password|md5|sha1|sha2|hashpw|generate_password_hash|make_password)\(\s{0,4}b?\\{0,4}[\"'](?P<value"
    r">[^\"'\\\n]{4,100})\\{0,4}[\"']",
    re.IGNORECASE,
)


def _argument(text: str, at: int) -> Found:
    """A value that is an argument of its own, behind the name of what is set."""
    match = _GIVEN.match(text, at)
    if match is None or is_filler(match["value"]) or text[at - 1 : at] not in (" ", "\t", "\n", '"', "'"):
        return
    line = text[max(0, at - 300, text.rfind("\n", max(0, at - 300), at) + 1) : at]
    level = (
        PASSWORD if match[0].startswith("--secret-string") else max((level_of(word) for word in _WORD.findall(line)), default=0)
    )
    if level >= TOKEN and is_secret(match["value"], level, is_quoted=True):
        yield _span(match, "command-line")


def _is_password(value: str) -> bool:
    return has_digit(value) and is_secret(value, PASSWORD, is_quoted=True)


_TABLE: tuple[tuple[str, Callable[[str, int], Found]], ...] = (
    ("totp|2fa|mfa|otp |otp_|authenticator|two-factor|two factor", _match(_SEED, "totp-seed", _is_seed)),
    ("otpauth-migration", _match(_MIGRATION, "otpauth")),
    ("backup code|backup-code|backup_code|recovery code|recovery-code|recovery_code|scratch code|scratch_code|wiederherstellung"
     "scode|notfallcode|einmalcode|"
     "codes de secours|códigos de|codici di", _codes),
    ("wallet|from_key(|fromsecretkey|fromprivatekey|privatekeytoaccount|importprivkey|accounts",
     _match(_WALLET, "wallet-key", has_digit)),
    ("wallet|solana|keypair|phantom", _match(_WALLET_SECRET, "wallet-key", has_digit)),
    ("id.json|keypair|secret_key|secretkey|private_key|privatekey|solana", _match(_BYTES, "wallet-key")),
    ("-setcookie|--cookie|set_cookie|erlang.cookie|erlang_cookie|erlang cookie|erlang-cookie|release_cookie", _match(_ERLANG,
        "erlang-cookie", _is_cookie)),
    *((word, _near(word)) for word in _NEAR),
    ("://", _link),
    ("://", _sentry),
    ("--value|--body|--secret-string|--plaintext|--string-value|-b ", _argument),
    ("requirepass|masterauth|sasl_passwd|bindpw", _match(_DIRECTIVE, "command-line")),
    ("crypt(|password(|hashpw(|generate_password_hash(|make_password(", _match(_CRYPT, "sql-password", _is_password)),
)  # fmt: skip
SEEDS: tuple[tuple[str, Callable[[str, int], Found]], ...] = tuple(
    (word, handler) for words, handler in _TABLE for word in words.split("|")
)
"""A fixed word in lower case, and what looks for the secret behind it."""
