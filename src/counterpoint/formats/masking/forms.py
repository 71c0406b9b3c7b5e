"""Secrets that a notation gives away: headers, addresses, command lines, cookies, password files, pairs of names and values.

The notations are public: RFC 3986, 6265, 7235, the manuals of curl, mysql, ssh, PostgreSQL and netrc.

Always true: each form is looked for only where its fixed words stand, reads a bounded number of characters, and goes on after
what it found.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator

from counterpoint.formats.masking.assignments import is_secret
from counterpoint.formats.masking.base import SecretSpan, every, has_digit, is_filler, is_random
from counterpoint.formats.masking.names import TOKEN
from counterpoint.formats.masking.patterns import lazy

Found = Iterator[SecretSpan]
_QUOTE = r"\\{0,8}[\"'`]?"


def _span(match: re.Match[str], group: int | str, rule: str) -> SecretSpan:
    return SecretSpan(*match.span(group), "key", rule, match[group])


# -- headers -------------------------------------------------------------------------------------------------------------------

_SCHEME = (
    r"(?:(?:Bearer|Basic|Token|Bot|ApiKey|Api-Key|Digest|Negotiate|NTLM|OAuth|"
    r"SharedKey|SharedAccessSignature|AWS4-HMAC-SHA256|GoogleLogin|Key|Splunk|GenieKey|SSWS|PVEAPIToken)\s{1,4})?"
)
_AUTHORIZATION = lazy(
    rf"authorization{_QUOTE}\]?[ \t]{{0,4}}(?:[:=,]|=>)[ \t]{{0,4}}{_QUOTE}(?P<scheme>{_SCHEME})(?P<value>[^\"'`\\\r\n<>{{"
    rf"}}]{{6,2000}})",
    re.IGNORECASE,
)
_BEARER = lazy(r"bearer(?:\s|%20|\+){1,4}(?P<value>[A-Za-z0-9._~+/=-]{16,4000})", re.IGNORECASE)
_BASIC = lazy(r"basic(?:\s|%20|\+){1,4}(?P<value>[A-Za-z0-9+/_-]{8,600}={0,2})", re.IGNORECASE)
_COOKIE = lazy(
    rf"(?:set-)?cookie2?{_QUOTE}[ \t]{{0,4}}[:=][ \t]{{0,4}}{_QUOTE}(?P<value>[^\"'`\r\n<>]{{6,4000}})", re.IGNORECASE
)
_PAIR = lazy(r"(?P<name>[A-Za-z0-9_.$\-]{1,80})=(?P<value>[^;,\s\"'\\]{6,2000})")
_ATTRIBUTE = frozenset(
    {"path", "domain", "expires", "max-age", "samesite", "version", "comment", "priority", "theme", "lang", "locale", "consent"}
)
_DIRECTIVE = lazy(
    r"(?P<name>response|signature|credential|oauth_token|oauth_signature|mac|hash|nonce|cnonce|"
    r"auth|token)=\\{0,8}[\"']?(?P<value>[^\s,\"'\\]{6,500})",
    re.I,
)


def _authorization(text: str, at: int) -> Found:
    match = _AUTHORIZATION.match(text, at)
    if not match or "::" in text[max(0, at - 24) : at]:
        return
    value = match["value"].strip()
    if match["scheme"].strip().lower() in ("digest", "aws4-hmac-sha256", "oauth") or ("=" in value[:40] and "," in value):
        yield from (
            _span(part, "value", "authorization")
            for part in _DIRECTIVE.finditer(text, match.start("value"), match.end("value") + 400)
        )
        return
    word = value.split()[0] if value.split() else ""
    has_scheme = bool(match["scheme"])
    if (
        has_scheme
        and len(word) >= 6
        and not is_filler(word)
        and (has_digit(word) or is_random(word) or (len(word) >= 16 and word.isalnum()))
    ) or (not has_scheme and is_secret(word, TOKEN, is_quoted=True)):
        start = match.start("value") + match["value"].index(word)
        yield SecretSpan(start, start + len(word), "key", "authorization", word)


def _bearer(text: str, at: int) -> Found:
    match = _BEARER.match(text, at)
    if match and has_digit(match["value"]) and not is_filler(match["value"]):
        yield _span(match, "value", "bearer")


def _basic(text: str, at: int) -> Found:
    match = _BASIC.match(text, at)
    if match and _is_pair(match["value"]):
        yield _span(match, "value", "basic-auth")


def _is_pair(value: str) -> bool:
    """Whether base64 holds `name:password`."""
    try:
        plain = base64.b64decode(
            value + "=" * (-len(value) % 4), altchars=b"-_" if "-" in value or "_" in value else None
        ).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in plain and plain.isprintable()


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return is_random(value) or value.endswith("=")


def _cookie(text: str, at: int) -> Found:
    match = _COOKIE.match(text, at)
    if not match:
        return
    for pair in _PAIR.finditer(text, match.start("value"), match.end("value")):
        value = pair["value"]
        if pair["name"].lower() not in _ATTRIBUTE and not is_filler(value) and (has_digit(value) or is_random(value)):
            yield _span(pair, "value", "cookie")


# -- addresses -----------------------------------------------------------------------------------------------------------------

_USER = r"://(?P<user>[^\s/:@\"'`\\<>\[\]]{0,128}):"
_HOST = r"@(?=[A-Za-z0-9_.\[%-]{1,255}(?:[:/?#,\s\"'`\\)\]}>;]|\Z))"
_IN_URL = lazy(_USER + r"(?P<value>[^\s/\"'`\\<>]{1,300})" + _HOST)
_IN_DATABASE = lazy(_USER + r"(?P<value>[^\s\"'`\\<>]{1,300})" + _HOST)
_DATABASES = ("postgres", "postgresql", "mysql", "mariadb", "mongodb", "mongodb+srv", "redis", "rediss", "amqp", "amqps",
              "mssql", "sqlserver", "oracle",
              "cockroachdb", "clickhouse", "snowflake", "ftp", "sftp", "smtp", "smtps", "ldap", "ldaps", "kafka", "nats",
              "couchbase", "cassandra")  # fmt: skip
_CODE = lazy(
    r"[?&](?:code|assertion|samlresponse|samlrequest|state|code_verifier|key|hash)=(?P<value>[^\s&\"'`\\<>#;)]{16,4000"
    r"})",
    re.IGNORECASE,
)
_TOKEN_URL = lazy(r"://(?P<value>[A-Za-z0-9_~.%+-]{16,255})@[A-Za-z0-9.-]{3,255}")


def _url(text: str, at: int) -> Found:
    scheme = text[max(0, at - 16) : at].lower()
    is_database = scheme.endswith(_DATABASES)
    match = (_IN_DATABASE if is_database else _IN_URL).match(text, at)
    if match:
        value = match["value"]
        if (
            not is_filler(value)
            and not (value.isdigit() and not match["user"])
            and value.lower() not in ("pass", "password", "user", "pw")
        ):
            yield _span(match, "value", "url-password")
            return
    match = _TOKEN_URL.match(text, at)
    if match and is_random(match["value"]):
        yield _span(match, "value", "url-token")


# -- command lines -------------------------------------------------------------------------------------------------------------

_ARGUMENT = r"(?P<open>\\{0,8}[\"']?)(?P<value>[^\s\"'`\\<>]{3,200})"
_USER_PASSWORD = lazy(
    r"(?:(?<![\w-])-u|--user|--proxy-user|(?<![\w-])-U|--creds?|--auth|--basic-auth|(?<![\w-])-a)(?:[ \t]{1,4}|"
    r"=)?\\{0,8}[\"']?(?P<user>[^\s:\"'%/\\]{1,80})[:%](?P<value>[^\s\"'\\]{3,200})"
)
_USER_QUOTED = lazy(
    r"(?:(?<![\w-])-u|--user|--proxy-user)[ \t=]{0,4}\\{0,8}(?P<open>[\"'])[^\s:\"'\\]{1,80}:(?P<value>[^\"'\\\n]{3,200})("
    r"?P=open)"
)
_P_OPTION = lazy(rf"(?<![\w-])(?:-p|--pass|-pw|-P)[ \t]{{0,4}}{_ARGUMENT}")
_P_ATTACHED = lazy(rf"(?<![\w-])-p{_ARGUMENT}")
_A_OPTION = lazy(rf"(?<![\w-])(?:-a|--pass|-w|-k|-K|-W)[ \t]{{1,4}}{_ARGUMENT}")
_SLASH_OPTION = lazy(r"/(?:p|pass|password|rp)[: ](?P<value>[^\s\"'`\\<>]{3,200})", re.IGNORECASE)
_PASS_ARG = lazy(r"(?:-pass(?:in|out)?[ \t]{1,4}|(?<=\s))pass:(?P<value>[^\s\"'`\\<>]{3,200})")
_LFTP = lazy(r"(?<![\w-])-u[ \t]{1,4}[^\s,\"']{1,80},(?P<value>[^\s\"'\\]{3,200})")
_SQLPLUS = lazy(r"[ \t](?P<user>[A-Za-z]\w{0,40})/(?P<value>[^\s@/\"']{3,100})@[\w.:/-]{2,255}")
_HTPASSWD = lazy(
    r"[ \t]-[a-zA-Z]{0,4}b[a-zA-Z]{0,4}[ \t]{1,8}(?:\S{1,200}[ \t]{1,8})?[^\s-]\S{0,200}[ \t]{1,8}(?P<value>[^\s\"'|"
    r";]{3,100})"
)
_ECHO = lazy(
    r"(?:echo|printf)[ \t]{1,8}(?:-n[ \t]{1,8}|'%s'[ \t]{1,8}|\"%s\"[ \t]{1,8})?[\"']?(?P<value>[^\s\"'|"
    r";$`]{4,200})[\"']?[ \t]{0,8}\|[ \t]{0,8}(?:sudo[ \t]{1,8}-S|docker[ \t]{1,8}login|passwd|"
    r"chpasswd|openssl|gh[ \t]{1,8}auth|gpg)"
)
_LOGIN = lazy(
    r"(?:vault[ \t]{1,8}login|npm[ \t]{1,8}token|heroku[ \t]{1,8}auth:token|ngrok[ \t]{1,8}(?:config[ \t]{1,8}add-)?authto"
    r"ken|wandb[ \t]{1,8}login|doctl[ \t]{1,8}auth)[ \t]{1,8}(?:--?\S{1,200}[ \t]{1,8}){0,3}(?P<value>[A-Za-z0-9._-]{12,20"
    r"0})"
)
_TOOLS: dict[str, tuple[re.Pattern[str], ...]] = {
    tool: patterns
    for tools, patterns in (
        ("mysql|mariadb|mycli|7z |unrar|rar ", (_P_ATTACHED,)),
        ("sshpass|docker login|podman login|mongo|zip |unzip |cqlsh|az login|sqlcmd|bcp |plink|pscp|helm registry", (_P_OPTION,)),
        ("oc login|kinit|wget|cadaver|ipmitool|psexec|crackmapexec|evil-winrm|gpg |influx", (_P_OPTION,)),
        ("redis-cli|ldap|snmp", (_A_OPTION,)),
        ("openssl", (_PASS_ARG, _A_OPTION)),
        ("xfreerdp|schtasks|cmdkey", (_SLASH_OPTION,)),
        ("curl", (_USER_QUOTED, _USER_PASSWORD)),
        ("smbclient|rpcclient", (_USER_PASSWORD,)),
        ("lftp", (_LFTP,)),
        ("sqlplus", (_SQLPLUS,)),
        ("htpasswd", (_HTPASSWD,)),
    )
    for tool in tools.split("|")
}
# Tools whose -p often means something else.
_OTHER_P = ("wget", "gpg ", "zip ", "docker login")
_NOT_P = lazy(r"\d{1,5}(?::\d{1,5})?(?:/\w+)?|[a-z]{1,12}|\S*[/:,]\S*|-\S*")


def _user_password(text: str, at: int) -> Found:
    """`-u name:password`, of curl and many others."""
    match = _USER_PASSWORD.match(text, at)
    if (
        match
        and not is_filler(match["value"])
        and not match["value"].startswith(("//", "\\"))
        and not (match["value"].isdigit() and len(match["value"]) < 6)
    ):
        yield _span(match, "value", "user-and-password")


def _command(tool: str) -> Callable[[str, int], Found]:
    def found_in(text: str, at: int) -> Found:
        if at and ((text[at - 1].isalnum() and text[at - 2 : at] not in ("\\n", "\\t")) or text[at - 1] in "_."):
            return
        end = at + 400
        for stop in ("\n", "\0"):
            place = text.find(stop, at, end)
            while place > 0 and text[place - 1] == "\\":
                place = text.find(stop, place + 1, end)
            end = place if place >= 0 else end
        for pattern in _TOOLS[tool]:
            is_doubtful = (pattern is _P_ATTACHED and tool not in ("mysql", "mariadb")) or tool in _OTHER_P
            for match in pattern.finditer(text, at + len(tool.rstrip()), end):
                value = match["value"]
                if not is_filler(value) and not value.startswith("-") and not (is_doubtful and _NOT_P.fullmatch(value)):
                    yield _span(match, "value", "command-line")

    return found_in


def attached(text: str) -> Found:
    """`-pX` of any program, where X is what only a password looks like."""
    for at in every(text, " -p"):
        match = _P_ATTACHED.match(text, at + 1)
        if (
            match
            and len(match["value"]) >= 8
            and is_random(match["value"])
            and not _NOT_P.fullmatch(match["value"])
            and not is_filler(match["value"])
        ):
            yield _span(match, "value", "command-line")


def _match(pattern: re.Pattern[str], rule: str, ask: Callable[[str], bool] | None = None) -> Callable[[str, int], Found]:
    def found_in(text: str, at: int) -> Found:
        match = pattern.match(text, at)
        if match and not is_filler(match["value"]) and (ask is None or ask(match["value"])):
            yield _span(match, "value", rule)

    return found_in


# -- files ---------------------------------------------------------------------------------------------------------------------

_NETRC = lazy(
    r"(?:machine\s{1,8}\S{1,200}|default)\s{1,20}(?:(?:login|account|user)\s{1,20}\S{1,200}\s{1,20}){0,2}password\s{1,20}["
    r"\"']?(?P<value>[^\s\"'\\]{2,300})"
)
_NETRC_LOGIN = lazy(r"login\s{1,20}\S{1,200}\s{1,20}password\s{1,20}[\"']?(?P<value>[^\s\"'\\]{2,300})")
_NETRC_FIRST = lazy(r"password\s{1,20}(?P<value>[^\s\"'\\]{2,300})\s{1,20}login\s")
_PGPASS = lazy(
    r"(?P<host>[A-Za-z0-9_.*\[\]-]{1,200}):(?P<port>\*|\d{4,5}):(?P<base>[^:\s\"']{1,64}):(?P<user>[^:\s\"']{1,64}):(?P<va"
    r"lue>(?:[^\s:\"'\\]|\\[:\\]){3,200})(?=\s|\Z|[\"'`\\\0])"
)
_SHADOW = lazy(r"[a-z_][a-z0-9_-]{0,31}:(?P<value>[./A-Za-z0-9]{13}):\d{4,6}:")
_JAR = lazy(r"\t(?:TRUE|FALSE)\t[^\t\n]{1,200}\t(?:TRUE|FALSE)\t\d{1,20}\t[^\t\n]{1,200}\t(?P<value>[^\t\n\r]{4,4000})")
_IDENTIFIED = lazy(
    r"identified(?:\s{1,4}with\s{1,4}\S{1,60})?\s{1,4}by\s{1,4}(?:password\s{1,4})?\\{0,8}[\"'](?P<value>[^\"'\\\n]{3,200}"
    r")",
    re.IGNORECASE,
)
_AUTH_FIELD = lazy(rf"_?auth{_QUOTE}[ \t]{{0,4}}[:=][ \t]{{0,4}}{_QUOTE}(?P<value>[A-Za-z0-9+/]{{8,600}}={{0,2}})")
_JWK = lazy(
    r"\\{0,8}[\"'](?:d|p|q|dp|dq|qi|k)\\{0,8}[\"']\s{0,4}:\s{0,4}\\{0,8}[\"'](?P<value>[A-Za-z0-9_-]{20,2000})\\{0,8}[\"']"
)
_CONNECT = lazy(
    r"connect\s{0,4}\(\s{0,4}[\"'][^\"'\n]{1,200}[\"']\s{0,4},\s{0,4}[\"'][^\"'\n]{1,100}[\"']\s{0,4},\s{0,4}[\"'](?P<valu"
    r"e>[^\"'\n]{4,128})[\"']"
)
_LDAP_HASH = lazy(
    r"\{s?(?:sha|md5|smd5|sha256|sha512|crypt|ssha|ssha256|ssha512)\}(?P<value>[A-Za-z0-9+/$.]{13,200}={0,2})", re.IGNORECASE
)
_ANSIBLE = lazy(
    r"\$ANSIBLE_VAULT;[\d.]{1,8};AES\d{0,3}(?:;\w{1,40})?(?:\s{1,20}|\\n\s{0,20})(?P<value>(?:[0-9a-f]{20,90}(?:\s{0,20}|"
    r"\\n\s{0,20})){1,400})"
)
_SEED = lazy(
    r"(?:seed|mnemonic|recovery|backup|secret)[ _-]?(?:phrase|words?)?(?:\s{0,2}(?:is|are))?\\{0,8}[\"'`]?\s{0,4}[:=]?\s{0"
    r",4}\\{0,8}[\"'`(\[]?(?P<value>[a-z]{3,8}(?:[ ,]{1,2}[a-z]{3,8}){11,23})(?![a-z ]{2,3})",
    re.IGNORECASE,
)


_PORT = lazy(r":(?:\*|\d{4,5}):")


def pgpass(text: str) -> Found:
    """Lines of .pgpass; no messages of a compiler, which have a line, a column and words."""
    for port in _PORT.finditer(text):
        begin = max(text.rfind(mark, max(0, port.start() - 200), port.start()) for mark in "\n\0 \"'`") + 1
        match = _PGPASS.match(text, begin)
        if match and match.start("port") == port.start() + 1 and not match["base"].isdigit() and not is_filler(match["value"]):
            yield _span(match, "value", "pgpass")


def _jwk(text: str, at: int) -> Found:
    begin, end = text.rfind("{", max(0, at - 4000), at), text.find("}", at, at + 8000)
    if begin >= 0:
        for match in _JWK.finditer(text, begin, end if end > 0 else min(len(text), at + 8000)):
            yield _span(match, "value", "jwk")


_SECURE_STRING = lazy(
    r"convertto-securestring\s{1,4}(?:-string\s{1,4})?\\{0,8}[\"'](?P<value>[^\"'\n]{4,200})", re.IGNORECASE
)
_NET_USER = lazy(r"net\s{1,4}user\s{1,4}[^\s/]{1,60}\s{1,4}(?P<value>[^\s/*][^\s]{3,100})", re.IGNORECASE)
_OTPAUTH = lazy(r"otpauth://[^\s\"']{0,200}?[?&]secret=(?P<value>[A-Za-z2-7]{16,128})", re.IGNORECASE)
_AUTH_PLAIN = lazy(r"auth(?:\s{1,4}|=)(?:plain|login|xoauth2)\s{1,4}(?P<value>[A-Za-z0-9+/]{8,2000}={0,2})", re.IGNORECASE)
_CISCO = lazy(r"(?:password|secret|key-string|community)\s{1,4}[0-9]\s{1,4}(?P<value>[^\s\"']{6,200})", re.IGNORECASE)
_PASSWORD_FOR = lazy(
    r"pass(?:word|phrase)\s{1,2}for\s{1,2}[^\n]{1,120}?:[ \t]{1,3}(?P<value>[^\s\"'`<>\\]{4,200})", re.IGNORECASE
)
_ADD_MASK = lazy(r"::add-mask::(?P<value>[^\s\"'\\]{4,400})")
_HERE = lazy(r"<<<\s{0,2}\\{0,8}[\"']?(?P<value>[^\s\"'$\\]{4,200})")


_TUPLE = lazy(
    r"(?:auth|login|credentials?|creds|basicauth|signin)(?:\s{0,3}[=:])?\s{0,3}(?:[A-Za-z.]{0,40}\(|"
    r"\[)\s{0,20}[\"'][^\"'\n]{1,100}[\"']\s{0,4},\s{0,20}[\"'](?P<value>[^\s\"']{4,200})[\"']",
    re.IGNORECASE,
)
_ORACLE = lazy(r"oracle:thin:[^\s/@]{1,60}/(?P<value>[^\s@\"']{3,100})@", re.IGNORECASE)


def _is_phrase(value: str) -> bool:
    return len(re.findall(r"[a-z]+", value)) in (12, 15, 18, 21, 24)


_SEEDS = "seed|mnemonic|recovery|backup|secret"
_CODES = "code|assertion|samlresponse|samlrequest|state|code_verifier|key|hash"
_TABLE: tuple[tuple[str, Callable[[str, int], Found]], ...] = (
    ("authorization", _authorization),
    ("bearer |bearer%20|bearer+", _bearer),
    ("basic |basic%20", _basic),
    ("cookie|set-cookie", _cookie),
    ("://", _url),
    ("-u |-u'|-u\"|-u=|-a |--user|--proxy-user|--creds|--auth", _user_password),
    ("|".join(f"{mark}{name}=" for mark in "?&" for name in _CODES.split("|")), _match(_CODE, "url-parameter", is_random)),
    ("machine |machine\n", _match(_NETRC, "netrc")),
    ("login ", _match(_NETRC_LOGIN, "netrc")),
    ("password ", _match(_NETRC_FIRST, "netrc")),
    ("\ttrue\t|\tfalse\t", _match(_JAR, "cookie-jar")),
    ("identified ", _match(_IDENTIFIED, "sql-password")),
    ("auth|_auth", _match(_AUTH_FIELD, "docker-auth", _is_pair)),
    ("auth|login(|credential|basicauth", _match(_TUPLE, "user-and-password", has_digit)),
    ("kty", _jwk),
    ("connect(|connect (", _match(_CONNECT, "database-call")),
    ("oracle:thin", _match(_ORACLE, "url-password")),
    ("{sha|{ssha|{smd5|{md5}|{crypt", _match(_LDAP_HASH, "password-hash")),
    ("$ansible_vault", _match(_ANSIBLE, "ansible-vault")),
    (_SEEDS, _match(_SEED, "seed-phrase", _is_phrase)),
    ("echo |printf ", _match(_ECHO, "command-line")),
    ("vault login|heroku auth|ngrok |wandb login|npm token", _match(_LOGIN, "command-line")),
    ("convertto-securestring", _match(_SECURE_STRING, "command-line")),
    ("net user", _match(_NET_USER, "command-line", has_digit)),
    ('<<< |<<<"', _match(_HERE, "command-line", has_digit)),
    ("otpauth://", _match(_OTPAUTH, "otpauth")),
    ("auth plain|auth login|auth=plain", _match(_AUTH_PLAIN, "smtp-auth", _is_base64)),
    ("password 7|password 5|secret 5|secret 9", _match(_CISCO, "router-password")),
    ("password for |passphrase for ", _match(_PASSWORD_FOR, "prompt", has_digit)),
    ("::add-mask::", _match(_ADD_MASK, "actions-mask")),
)
FORMS: tuple[tuple[str, Callable[[str, int], Found]], ...] = (
    *((word, handler) for words, handler in _TABLE for word in words.split("|")),
    *((tool, _command(tool)) for tool in _TOOLS),
)
"""A fixed word in lower case, and what looks for the secret that it gives away."""
