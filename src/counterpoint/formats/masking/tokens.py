"""Tokens of known vendors in a text, whole or broken across lines.

One pass over the bytes finds the runs that are long enough to be a token, one pattern of all beginnings looks through those,
and a rule is tried only behind its beginning; a rule that failed is not tried again in the same run.

Always true: the time is linear in the text, because every repetition in a rule is bounded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.formats.masking.base import SecretSpan, every, is_random, is_word_at

# -- Tokens that show whose they are: how each begins, what follows, and the public rule set that says so -------------
# The facts (beginnings, alphabets, lengths) are from rule sets that are maintained in public; `SOURCES` names them. Lengths are
# lower limits: what is longer is masked to its end, and what was cut off a little is masked too.
#
# Always true: a row is data, and every repetition in it is bounded, so that no text makes one slow.

SOURCES = {
    "gl": "gitleaks, config/gitleaks.toml",
    "ds": "detect-secrets, detect_secrets/plugins",
    "kf": "kingfisher, data/rules",
    "np": "noseyparker, builtin/rules",
    "sp": "secrets-patterns-db, datasets/high-confidence.yml",
    "doc": "the vendor's own pages about its tokens",
}
"""What the last word of a row means."""


class Rule(NamedTuple):
    """One kind of token."""

    id: str
    begins: str
    """Literals, separated by spaces; a token begins with one of them."""
    rest: str
    """A pattern of what follows: `@A` letters and digits, `@W` also - and _, `@H` hex, `@B` base64, `@T` base64 of both kinds."""
    source: str
    is_short: bool = False
    """Whether the beginning occurs inside words as well: after a letter, more is asked of what follows."""
    before: str = ""
    """A pattern of what stands before the literal and is part of the token."""


_UUID = "@H{8}-@H{4}-@H{4}-@H{4}-@H{12}"

RULES: tuple[Rule, ...] = (
    # -- models and their tools
    Rule("anthropic", "sk-ant-", "@W{16,300}", "gl"),
    Rule("openai", "sk-proj- sk-svcacct- sk-admin- sk-None-", "@W{16,300}", "gl"),
    Rule("openai-old", "sk-", "@A{20,200}", "gl", is_short=True),
    Rule("openrouter", "sk-or-", "@W{20,200}", "doc"),
    Rule("langfuse", "sk-lf- pk-lf-", "@W{16,60}", "doc"),
    Rule("langsmith", "lsv2_pt_ lsv2_sk_", "@W{20,100}", "doc"),
    Rule("hugging-face", "hf_ api_org_", "@A{30,60}", "gl", is_short=True),
    Rule("groq", "gsk_", "@A{20,80}", "np"),
    Rule("xai", "xai-", "@A{20,120}", "doc"),
    Rule("perplexity", "pplx-", "@A{20,80}", "gl"),
    Rule("nvidia", "nvapi-", "@W{20,120}", "doc"),
    Rule("tavily", "tvly-", "@W{16,80}", "np"),
    Rule("firecrawl", "fc-", "@H{32}", "np", is_short=True),
    Rule("jina", "jina_", "@A{32,100}", "np"),
    Rule("replicate", "r8_", "@A{30,60}", "doc", is_short=True),
    Rule("elevenlabs", "sk_", "@H{48}", "kf", is_short=True),
    Rule("pinecone", "pcsk_", "@W{20,120}", "kf"),
    Rule("cursor", "key_", "@H{64}", "kf", is_short=True),
    Rule("apify", "apify_api_", "@A{30,60}", "kf"),
    # -- code and packages
    Rule("github", "ghp_ gho_ ghu_ ghs_ ghr_", "@A{20,300}", "gl"),
    Rule("github-fine-grained", "github_pat_", "@W{20,120}", "gl"),
    Rule(
        "gitlab",
        "glpat- gldt- glffct- glft- glimt- glagent- gloas- glptt- glrt- glsoat- glcbt-",
        r"@W{16,320}(?:\.@A{2,40}){0,2}",
        "gl",
    ),
    Rule("gitlab-runner", "GR1348941", "@W{20,60}", "gl"),
    Rule("bitbucket", "ATBB", "@A{28,40}", "kf"),
    Rule("bitbucket-server", "BBDC-", "@B{30,60}", "kf"),
    Rule("atlassian", "ATATT3 ATCTT3", "[A-Za-z0-9_=-]{40,900}", "gl"),
    Rule("npm", "npm_", "@A{30,60}", "gl"),
    Rule("pypi", "pypi-AgE", "@W{40,1000}", "gl"),
    Rule("rubygems", "rubygems_", "@H{40,60}", "gl"),
    Rule("crates-io", "cio", "@A{32}", "np", is_short=True),
    Rule("nuget", "oy2", "[a-z0-9]{43}", "np", is_short=True),
    Rule("clojars", "CLOJARS_ clojars_", "@A{40,80}", "gl"),
    Rule("docker-hub", "dckr_pat_ dckr_oat_", "@W{20,60}", "np"),
    Rule("artifactory", "AKCp", "@A{60,90}", "gl"),
    Rule("artifactory-old", "AKC", "@A{20,90}", "ds", is_short=True),
    Rule("artifactory-reference", "cmVmd", "@A{55,70}", "gl", is_short=True),
    Rule("sourcegraph", "sgp_", "[A-Za-z0-9_]{32,100}", "gl"),
    Rule("circleci", "CCIPAT_ CCIPRJ_", "[A-Za-z0-9_]{40,90}", "kf"),
    Rule("buildkite", "bkua_", "@A{30,100}", "kf"),
    Rule("octopus", "API-", "[A-Z0-9]{25,40}", "gl", is_short=True),
    Rule("harness", "pat. sat.", r"@W{22}\.@A{24}\.@A{20}", "gl", is_short=True),
    Rule("sonar", "sqp_ squ_ sqa_", "@H{40}", "np"),
    Rule("shippo", "shippo_live_ shippo_test_", "@H{40}", "gl"),
    Rule("readme", "rdme_", "[a-z0-9]{40,80}", "gl"),
    Rule("postman", "PMAK-", "@H{24}-@H{34}", "gl"),
    Rule("pulumi", "pul-", "@H{40}", "gl", is_short=True),
    Rule("infracost", "ico-", "@A{32}", "gl", is_short=True),
    Rule("prefect", "pnu_", "@A{36}", "gl"),
    Rule("sentry", "sntrys_ sntryu_", "[A-Za-z0-9+/=_]{40,400}", "gl"),
    Rule("linear", "lin_api_ lin_oauth_", "@A{32,80}", "gl"),
    Rule("notion", "ntn_ secret_", "@A{40,60}", "gl"),
    Rule("figma", "figd_", "@W{20,60}", "kf"),
    Rule("airtable", "pat", r"@A{14}\.@H{64}", "kf", is_short=True),
    Rule("asana", "0/ 1/ 2/", r"(?:\d{12,20}(?:/\d{12,20})?:)?@H{32}(?![0-9A-Za-z])", "kf", is_short=True),
    Rule("typeform", "tfp_", "[A-Za-z0-9_.=-]{40,80}", "gl"),
    Rule("contentful", "CFPAT-", "@W{40,50}", "doc"),
    Rule("frame-io", "fio-u-", "[A-Za-z0-9_=-]{40,80}", "gl"),
    Rule("planetscale", "pscale_tkn_ pscale_oauth_ pscale_pw_", "[A-Za-z0-9_=.-]{30,80}", "gl"),
    Rule("supabase", "sbp_ sb_secret_ sb_publishable_", "@W{20,80}", "kf"),
    Rule("vercel", "vcp_ vci_ vca_ vcr_ vck_", "@W{30,80}", "kf"),
    Rule("netlify", "nfp_", "@A{36,60}", "kf"),
    Rule("fly-io", "fo1_ fm1a_ fm1r_ fm2_", "@T{40,900}={0,3}", "gl"),
    Rule("heroku", "HRKU-", "@W{30,80}", "gl"),
    Rule("doppler", "dp.pt. dp.ct. dp.st. dp.sa. dp.scim. dp.audit.", "[A-Za-z0-9_.-]{30,120}", "gl"),
    Rule("posthog", "phc_ phx_ phs_ pha_ phr_", "@W{36,60}", "kf"),
    Rule("maxmind", "_mmk", "(?![A-Za-z0-9])", "gl", before="@A{6}_@A{29}"),
    Rule("travis-and-jenkins", "jenkins_", "@H{34}", "np"),
    # -- clouds
    Rule("aws-key-id", "AKIA ASIA ABIA ACCA A3T AGPA AIDA AROA AIPA ANPA ANVA", "[A-Z0-9]{16,20}(?![a-z])", "np"),
    Rule("aws-bedrock", "ABSK bedrock-api-key-", "@B{40,200}={0,2}", "gl"),
    Rule("aws-mws", "amzn.mws.", _UUID, "np"),
    Rule("aws-appsync", "da2-", "[a-z0-9]{26}", "np", is_short=True),
    Rule("google-api-key", "AIza", "@W{30,60}", "gl"),
    Rule("google-oauth-secret", "GOCSPX-", "@W{20,60}", "kf"),
    Rule("google-access-token", "ya29.", "[A-Za-z0-9_.-]{20,2048}", "sp"),
    Rule("google-refresh-token", "1//0", "@W{30,200}", "kf"),
    Rule("azure-client-secret", "Q~", "[A-Za-z0-9_~.-]{31,40}", "gl", before=r"[A-Za-z0-9_~.]{3}\d"),
    Rule("azure-devops", "AZDO", "@A{4,5}(?![A-Za-z0-9])", "kf", before="@A{76}"),
    Rule(
        "azure-key",
        "+ASt +AMC +ABa +AEh +ARm +ASb AIoT APIM ACDb AzSe AzFu AzCa",
        "[A-Za-z0-9+/]{3,10}={1,2}(?![A-Za-z0-9+/])",
        "kf",
        before=r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{33,96}",
    ),
    Rule("alibaba", "LTAI", "@A{12,24}", "gl"),
    Rule("tencent", "AKID", "@A{32,40}", "kf"),
    Rule("digitalocean", "dop_v1_ doo_v1_ dor_v1_", "@H{40,80}", "gl"),
    Rule("cloudflare", "cfut_", "@W{36,70}", "kf"),
    Rule("cloudflare-origin-ca", "v1.0-", "@H{20,80}-@H{60,160}", "gl"),
    Rule("databricks", "dapi", r"@H{32}(?:-\d)?", "gl"),
    Rule("yandex", "AQVN YC", "@W{35,40}(?![A-Za-z0-9])", "gl", is_short=True),
    Rule("yandex-iam", "t1.", r"[A-Za-z0-9_-]{20,300}={0,2}\.@W{60,90}={0,2}", "gl", is_short=True),
    Rule("openshift", "sha256~", "@W{40,50}", "gl"),
    Rule("terraform-cloud", ".atlasv1.", "[A-Za-z0-9_=-]{40,90}", "gl", before="@A{14}"),
    Rule("vault", "hvs. hvb. hvr.", "@W{20,400}", "gl"),
    Rule("vault-old", "s.", "@A{24}(?![A-Za-z0-9_.(-])", "gl", is_short=True),
    Rule("age", "AGE-SECRET-KEY-1", "[A-Z0-9]{40,64}", "gl"),
    Rule("onepassword-service", "ops_eyJ", "@T{100,2000}={0,3}", "gl"),
    Rule(
        "onepassword-secret", "A3-", "[A-Z0-9]{6}-[A-Z0-9]{6}(?:[A-Z0-9]{5}|-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}", "gl", is_short=True
    ),
    Rule("tailscale", "tskey-", "[A-Za-z0-9]{2,12}-@W{12,80}", "kf"),
    Rule("dynatrace", "dt0c01.", r"@A{20,30}\.@A{40,80}", "gl"),
    Rule("new-relic", "NRAK- NRII- NRJS-", "@W{16,60}", "gl"),
    Rule("grafana", "glc_ glsa_ eyJrIjoi", "@T{30,400}={0,3}", "gl"),
    Rule("clickhouse", "4b1d", "@A{38}(?![A-Za-z0-9])", "gl", is_short=True),
    Rule("elastic", "essu_", "@T{30,200}={0,2}", "kf"),
    Rule("confluent", "cflt", "[A-Za-z0-9/+]{50,80}", "doc"),
    # -- talk and mail
    Rule("slack", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxe- xoxc- xoxe.xoxb- xoxe.xoxp- xapp-", "[A-Za-z0-9-]{10,400}", "gl"),
    Rule("slack-cookie", "xoxd-", "[A-Za-z0-9%/+=-]{40,600}", "kf"),
    Rule("slack-webhook", "hooks.slack.com/", "(?:services|workflows|triggers)/[A-Za-z0-9+/_-]{20,120}", "gl"),
    Rule("discord-webhook", "discord.com/api/ discordapp.com/api/", r"(?:v\d{1,2}/)?webhooks/\d{15,20}/@W{40,100}", "kf"),
    Rule("teams-webhook", ".webhook.office.com/ outlook.office.com/webhook", "[A-Za-z0-9@/_-]{60,300}", "gl"),
    Rule("google-chat-webhook", "chat.googleapis.com/v1/spaces/", r"[A-Za-z0-9/_-]{5,80}\?[A-Za-z0-9&=_%-]{20,300}", "doc"),
    Rule("zapier-webhook", "hooks.zapier.com/hooks/", "[A-Za-z0-9/_-]{12,80}", "doc"),
    Rule("feishu-webhook", "open.feishu.cn/open-apis/bot/ open.larksuite.com/open-apis/bot/", "[A-Za-z0-9/_-]{30,80}", "doc"),
    Rule("discord-mfa", "mfa.", "@W{40,120}", "kf", is_short=True),
    Rule("telegram-bot", ":A", "@W{34}(?![A-Za-z0-9_-])", "gl", before=r"\d{5,16}"),
    Rule("sendgrid", "SG.", r"@W{16,40}\.@W{16,60}", "gl", is_short=True),
    Rule("brevo", "xkeysib- xsmtpsib-", "@W{40,100}", "gl"),
    Rule("mailgun", "key- pubkey-", "@H{32}", "gl", is_short=True),
    Rule("mailchimp", "-us", r"\d{1,2}(?![A-Za-z0-9])", "gl", before="@H{32}"),
    Rule("resend", "re_", "@A{6,10}_@A{20,30}", "doc", is_short=True),
    Rule("twilio", "SK AC", "@H{32}(?![0-9A-Za-z])", "gl", is_short=True),
    Rule("firebase-messaging", "AAAA", "@W{7}:@W{120,200}", "kf", is_short=True),
    Rule("bip32", "xprv yprv zprv", "@A{90,120}", "doc"),
    # -- money, shops, people
    Rule("stripe", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ pk_live_", "@A{10,250}", "gl"),
    Rule("stripe-webhook", "whsec_", "[A-Za-z0-9+/=_-]{20,100}", "doc"),
    Rule("square", "sq0atp- sq0csp-", "@W{22,80}", "gl"),
    Rule("square-new", "EAAA", "@W{56,80}", "gl", is_short=True),
    Rule("braintree", "access_token$production$ access_token$sandbox$", r"[a-z0-9]{10,20}\$@H{32}", "sp"),
    Rule("plaid", "access-sandbox- access-development- access-production-", _UUID, "gl"),
    Rule("shopify", "shpat_ shpca_ shppa_ shpss_", "@A{30,60}", "gl"),
    Rule("facebook", "EAA", "@A{60,400}", "gl", is_short=True),
    Rule("facebook-app", "|", "@W{27,40}(?![A-Za-z0-9_-])", "gl", before=r"\d{15,16}"),
    Rule("flutterwave", "FLWSECK FLWPUBK", "(?:_TEST)?-@W{10,60}", "gl"),
    Rule("razorpay", "rzp_live_ rzp_test_", "@A{12,40}", "kf"),
    Rule("easypost", "EZAK EZTK", "@A{50,60}", "gl"),
    Rule("duffel", "duffel_test_ duffel_live_", "[A-Za-z0-9_=-]{30,60}", "gl"),
    Rule("gocardless-and-lob", "live_ test_", "@A{30,60}", "gl", is_short=True),
    Rule("settlemint", "sm_aat_ sm_pat_ sm_sat_", "@A{16,24}", "gl"),
    Rule("hubspot", "pat-na1- pat-na2- pat-eu1- pat-ap1-", _UUID, "doc"),
    Rule("okta", "00", "[A-Za-z]@W{39}(?![A-Za-z0-9_-])", "gl", is_short=True),
    Rule(
        "authress",
        "sc_ ext_ scauth_ authress_",
        r"[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,120}",
        "gl",
    ),
    Rule("adobe", "p8e-", "@A{32}", "gl", is_short=True),
    Rule("scalingo", "tk-us-", "@W{40,60}", "gl"),
    Rule("defined-networking", "dnkey-", "[A-Za-z0-9_=-]{40,90}", "gl"),
    Rule("intra42", "s-s4t2ud- s-s4t2af-", "@H{60,64}", "gl"),
    Rule("dropbox", "sl.", "[A-Za-z0-9_=-]{100,1500}", "gl", is_short=True),
    Rule("mapbox", "sk.eyJ pk.eyJ tk.eyJ", r"@W{30,200}\.@W{16,60}", "gl"),
    Rule("twitter-bearer", "AAAAAAAAAAAAAAAAAAAAA", "[A-Za-z0-9%]{60,120}(?![A-Za-z0-9+/=])", "gl", is_short=True),
    Rule("twitch-chat", "oauth:", "[a-z0-9]{30}(?![A-Za-z0-9])", "np"),
    # -- anybody's
    Rule("jwt", "eyJ", r"@W{8,8000}\.(?:@W{0,8000}\.)?@W{8,8000}(?:\.@W{0,8000}){0,3}", "gl"),
    Rule("jwt-base64", "ZXlK", "[A-Za-z0-9/_+-]{40,8000}={0,2}", "gl", is_short=True),
    Rule("openssh-body", "b3BlbnNzaC1rZXktdjE", "@B{16,8000}={0,2}", "np"),
    Rule(
        "password-hash",
        "$2a$ $2b$ $2x$ $2y$ $1$ $5$ $6$ $8$ $y$ $apr1$ $argon2id$ $argon2i$ $scrypt$",
        r"[./A-Za-z0-9=,+$]{20,200}",
        "np",
    ),
    Rule("password-hash-django", "pbkdf2_sha256$ pbkdf2_sha1$ bcrypt_sha256$ argon2$", r"[./A-Za-z0-9=,+$]{20,200}", "doc"),
)


Places = NDArray[np.intp]
_SHORTEST = 16
"""No token is shorter; a run of characters that is, is not looked at."""
# Tokens that have a fair chance of holding no digit.
_WITHOUT_DIGITS = ("AKIA", "ASIA", "hf_", "sk-")
_LEFT, _RIGHT = 100, 2100
_ALPHABET = {"@A": "[A-Za-z0-9]", "@W": "[A-Za-z0-9_-]", "@H": "[0-9A-Fa-f]", "@B": "[A-Za-z0-9+/]", "@T": "[A-Za-z0-9+/_-]"}
_IS_TOKEN = np.zeros(256, bool)
_IS_TOKEN[[ord(c) for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:/~+=$%|"]] = True
_MAY_BREAK = np.zeros(256, bool)
_MAY_BREAK[[ord(c) for c in "\n\r\\\"' "]] = True
_RUN = re.compile(r"[A-Za-z0-9_-]*+")
_HEX = "0123456789abcdefABCDEF"
_PICTURE = 2000
_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
# Rules that lines of base64 without a meaning of their own may fit.
_BLOBS = frozenset({"twitter-bearer"})
# Words that end in the beginning of a key: a task-..., a disk-...
_SK_WORDS = re.compile(r"(?:ta|di|ma|de|ri|fla|kio|aste?ri|du|hu|mu|tu|whi|bri|a|ba|ca|fri|obeli)\Z", re.IGNORECASE)
# A line break inside a token: its own, one written out, one of a string that goes on, or one of a quoted or commented text.
BREAK = re.compile(
    r"(?:[\"'`]?[ \t]{0,4}\\{0,2}\r?\n[ \t]{0,40}(?:[+>|#*][ \t]{0,4})?[\"'`]?|\\{1,4}r?\\{0,4}n|[\"']\s{0,8}[+.&]?\s{0,8}[\"'])"
)


def trie(words: Sequence[str]) -> str:
    """A pattern that matches the longest of some literals, and looks at a character once for all of them."""
    heads: dict[str, list[str]] = {}
    for word in words:
        if word:
            heads.setdefault(word[0], []).append(word[1:])
    branches = [re.escape(head) + trie(tails) for head, tails in sorted(heads.items())]
    body = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" if branches else ""
    return f"(?:{body})?" if body and "" in words else body


def _compiled(rule: Rule, begin: str) -> re.Pattern[str]:
    rest = f"{rule.before}{re.escape(begin)}{rule.rest}"
    for short, alphabet in _ALPHABET.items():
        rest = rest.replace(short, alphabet)
    return re.compile(re.sub(r"(?<!\\)([}])(?![+?])", r"\1+", rest) if not rule.before else rest)


_BY_BEGIN: dict[str, list[tuple[Rule, re.Pattern[str]]]] = {}
for _rule in RULES:
    for _begin in _rule.begins.split():
        _BY_BEGIN.setdefault(_begin, []).append((_rule, _compiled(_rule, _begin)))
_BEGINS = re.compile(trie(list(_BY_BEGIN)))
# What is tried behind a beginning: its own rules, and those of every shorter one that it starts with.
_TRIED = {begin: [pair for k in range(len(begin), 0, -1) for pair in _BY_BEGIN.get(begin[:k], ())] for begin in _BY_BEGIN}
_SHAPES = (("discord-bot", re.compile(r"[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,40}(?![\w.-])")),)


# The secret half of an AWS key has no form of its own, and is taken where it stands behind the first.
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")


def is_beginning(text: str, at: int) -> bool:
    """Whether a token that shows clearly whose it is begins at a place."""
    hit = _BEGINS.match(text, at)
    return hit is not None and any(
        pattern.match(text, at) for rule, pattern in _TRIED[hit[0]] if not rule.before and not rule.is_short
    )


class Runs(NamedTuple):
    """Runs of the characters that tokens are made of."""

    starts: Places
    ends: Places
    digits: Places
    """How many digits each has behind its first character."""
    codes: NDArray[np.uint8]
    """A byte for each character of the text."""


def runs(text: str) -> Runs:
    """Where runs of the characters of tokens begin and end."""
    codes = np.frombuffer(text.encode("latin-1", "replace"), np.uint8)
    inside = _IS_TOKEN[codes]
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    if len(inside) and inside[0]:
        edges = np.concatenate([[0], edges])
    if len(edges) % 2:
        edges = np.concatenate([edges, [len(inside)]])
    starts, ends = edges[::2], edges[1::2]
    digits = np.cumsum(codes - np.uint8(48) < 10, dtype=np.int32)
    return Runs(starts, ends, digits[ends - 1] - digits[starts], codes)


def tokens(text: str, found: Runs) -> list[SecretSpan]:
    """Every token that stands in one piece."""
    is_one = (found.ends - found.starts >= _SHORTEST) & (found.digits > 0)
    places = dict.fromkeys(zip(found.starts[is_one].tolist(), found.ends[is_one].tolist(), strict=True))
    for needle in _WITHOUT_DIGITS:
        for at in every(text, needle):
            k = int(np.searchsorted(found.starts, at, "right")) - 1
            places[int(found.starts[k]), int(found.ends[k])] = None
    return list(_in_pieces(text, [(start, _worth(text[start:end])) for start, end in sorted(places)]))


def _worth(run: str) -> str:
    """The part of a run that is worth a look: of a picture in base64, only its beginning."""
    return run[:200] if len(run) > _PICTURE and not run.strip(_BASE64) else run


def _in_pieces(text: str, pieces: list[tuple[int, str]]) -> Iterator[SecretSpan]:
    """Tokens that begin in pieces of a text, which are looked through as one."""
    joined = "\n".join(piece for _, piece in pieces)
    offsets, at = [], 0
    for _, piece in pieces:
        offsets.append(at)
        at += len(piece) + 1
    done = 0
    failed: dict[str, int] = {}
    hit = _BEGINS.search(joined)
    while hit:
        k = bisect_right(offsets, hit.start()) - 1
        place = pieces[k][0] + hit.start() - offsets[k]
        if place >= done and (span := _token(text, place, hit[0], failed)):
            done = span.end
            yield span
            if span.rule == "aws-key-id" and (half := _AWS_SECRET.search(text, span.end, span.end + 120)) and is_random(half[0]):
                yield SecretSpan(*half.span(), "key", "aws-secret-key", half[0])
        hit = _BEGINS.search(joined, hit.start() + 1)
    for rule, shape in _SHAPES:
        for shaped in shape.finditer(joined):
            k = bisect_right(offsets, shaped.start()) - 1
            start = pieces[k][0] + shaped.start() - offsets[k]
            if is_random(shaped[0]):
                yield SecretSpan(start, start + len(shaped[0]), "key", rule, shaped[0])


def _token(text: str, at: int, begin: str, failed: dict[str, int]) -> SecretSpan | None:
    for rule, pattern in _TRIED[begin]:
        if failed.get(rule.id, -1) > at:
            continue
        found = pattern.search(text, max(0, at - _LEFT), at + _RIGHT) if rule.before else pattern.match(text, at)
        if found is None or not found.start() <= at < found.end():
            if not rule.before:
                run = _RUN.match(text, at + len(begin))
                failed[rule.id] = run.end() if run else at + 1
            continue
        if _is_token(text, found, rule, begin):
            return SecretSpan(found.start(), found.end(), "key", rule.id, found[0])
    return None


def _is_token(text: str, found: re.Match[str], rule: Rule, begin: str) -> bool:
    body = found[0].removeprefix(begin)
    if begin[-1:].isalnum() and _is_blob(text, found.start()):
        return False
    if rule.id == "aws-key-id":
        return any(c.isdigit() for c in body) or not is_word_at(text, found.start())
    is_apart = not is_word_at(text, found.start()) and text[found.start() - 1 : found.start()] not in ("-", "_")
    is_clean = not rule.is_short or rule.id == "hugging-face" or (rule.id == "openai-old" and is_apart)
    is_solid = is_clean and len(body) >= 20 and len(set(body)) > 8 and not any(c in "_-./" for c in body)
    if not is_solid and not is_random(body) and not (len(set(body)) > 5 and any(c.isdigit() for c in body) and not rule.is_short):
        return False
    if not rule.is_short or not is_word_at(text, found.start()):
        return True
    before = text[max(0, found.start() - 8) : found.start()]
    if begin.startswith("sk") and _SK_WORDS.search(before):
        return False
    if not (is_solid or is_random(body)) or len(body) < 20 or text[found.end() : found.end() + 1].isalnum():
        return False
    if begin[0].isdigit() and (before[-1].isdigit() or (rule.id == "asana" and ":" not in body)):
        return False
    # A number in hex may hold the beginning of a key by chance.
    return begin[-1] in "-_./" or not (before[-1] in _HEX and all(c in _HEX for c in begin) and body.strip(_HEX) == "")


def _is_blob(text: str, at: int) -> bool:
    """Whether a long run of base64 goes on at a place: a picture, not a key behind a letter."""
    before = text[max(0, at - 80) : at]
    line = before.rstrip(" \t\r\n\"'\\b")[-32:] if before[-1:].isspace() or before[-1:] in ("'", '"') else before[-32:]
    return len(line) == 32 and not line.rstrip(_BASE64)


def broken_tokens(text: str, found: Runs, whole: Sequence[SecretSpan]) -> Iterator[SecretSpan]:
    """Every token that a line break, or the end of a string that goes on, cuts in two or more."""
    chains = list(_chains(text, found))
    if not chains:
        return
    ends = {span.start: span.end for span in whole}
    joined = "\n".join(chain[0] for chain in chains)
    at = 0
    for chain_text, parts in chains:
        for span in _in_pieces(joined, [(at, chain_text)]):
            start, end = span.start - at, min(span.end - at, len(chain_text))
            first, last = _part(parts, start), _part(parts, end - 1)
            if first == last or span.rule in _BLOBS:
                continue
            place = parts[first][1] + start - parts[first][0]
            tail = chain_text[parts[last][0] : end]
            if place in ends and ends[place] >= parts[first][2] and not is_tail(tail):
                continue  # whole on its own line, and a word follows
            yield SecretSpan(place, parts[last][1] + end - parts[last][0], "key", span.rule, chain_text[start:end])
        at += len(chain_text) + 1


def is_tail(value: str) -> bool:
    """Whether a piece on the next line looks like the rest of a secret rather than like the next word."""
    return len(value) >= 6 and is_random(value)


def _part(parts: list[tuple[int, int, int]], at: int) -> int:
    return bisect_right([part[0] for part in parts], at) - 1


def _chains(text: str, found: Runs) -> Iterator[tuple[str, list[tuple[int, int, int]]]]:
    """Runs that line breaks join: the joined text, and for each part its place there, its place in the text, and its end."""
    starts, ends, digits, codes = found
    if len(starts) < 2:
        return
    gap, sizes = starts[1:] - ends[:-1], ends - starts
    may = (gap <= 50) & (sizes[1:] + sizes[:-1] >= _SHORTEST) & (sizes[:-1] >= 2)
    if "hf_" not in text:  # whose letters may be without a digit
        may &= digits[1:] + digits[:-1] > 0
    may &= _MAY_BREAK[codes[ends[:-1]]]
    joins = []
    for k in np.flatnonzero(may).tolist():
        end, start = int(ends[k]), int(starts[k + 1])
        gone = BREAK.match(text, end)
        if gone and (gone.end() == start or (gone.end() == start + 1 and text[start] == "n")):
            joins.append((k, gone.end()))
    at = 0
    while at < len(joins):
        stop = at
        while stop + 1 < len(joins) and joins[stop + 1][0] == joins[stop][0] + 1:
            stop += 1
        places = [int(starts[joins[at][0]])] + [begin for _, begin in joins[at : stop + 1]]
        limits = [int(ends[joins[at][0]])] + [int(ends[k + 1]) for k, _ in joins[at : stop + 1]]
        parts, pieces, size = [], [], 0
        for begin, limit in zip(places, limits, strict=True):
            parts.append((size, begin, limit))
            pieces.append(text[begin:limit])
            size += limit - begin
        yield "".join(pieces), parts
        at = stop + 1
