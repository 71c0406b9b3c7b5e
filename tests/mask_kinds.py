"""Kinds of secrets, made from their public shapes when a test runs: nothing here is one, and no scanner finds one in this file.

Each kind is a text with one secret in it. `FORMS` are ways to write a token that was plain; `PLACES` are places of a trace.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec.structs import replace

from counterpoint.trace import Edge, Event, Trace, content_ref

UPPER, LOWER, DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "0123456789"
ALPHABETS = {"A": UPPER + LOWER + DIGITS, "W": UPPER + LOWER + DIGITS + "_-", "H": DIGITS + "abcdef", "U": UPPER + DIGITS, "L": LOWER + DIGITS,
             "B": UPPER + LOWER + DIGITS + "+/", "D": DIGITS, "C": LOWER, "X": UPPER + LOWER}  # fmt: skip


class Kind(NamedTuple):
    """A kind of secret: its name, a text that holds it, and what must be gone."""

    name: str
    text: str
    secret: str


def made(shape: str, seed: str) -> str:
    """A token of a shape: `ghp_{A36}` is a literal and 36 letters and digits; the same shape and seed make the same token."""
    rng = random.Random(f"{shape} {seed}")
    out, rest = "", shape
    while rest:
        head, brace, rest = rest.partition("{")
        out += head
        if brace:
            inside, _, rest = rest.partition("}")
            letters, count = ALPHABETS[inside[0]], int(inside[1:])
            piece = [rng.choice(letters) for _ in range(count)]
            if count >= 8 and inside[0] in "AWUL":  # no token of chance alone lacks them all
                piece[1], piece[count // 2], piece[-2] = rng.choice(DIGITS), rng.choice(DIGITS), rng.choice(DIGITS)
            if count >= 4:
                piece[0], piece[-1] = (rng.choice([c for c in letters if c.isalnum()]) for _ in range(2))
            out += "".join(piece)
    return out


# Names and shapes, from gitleaks, kingfisher, noseyparker, detect-secrets and secrets-patterns-db.
TOKENS: dict[str, str] = dict(
    line.split(maxsplit=1)
    for line in """
anthropic-api sk-ant-api03-{W93}AA
anthropic-admin sk-ant-admin01-{W93}AA
openai-old sk-{A20}T3BlbkFJ{A20}
openai-project sk-proj-{W74}T3BlbkFJ{W74}
openai-service sk-svcacct-{W58}T3BlbkFJ{W58}
deepseek sk-{H32}
openrouter sk-or-v1-{H64}
langsmith lsv2_pt_{H32}_{H10}
hugging-face hf_{X34}
groq gsk_{A52}
xai xai-{A80}
perplexity pplx-{A48}
nvidia nvapi-{W64}
tavily tvly-{A32}
firecrawl fc-{H32}
jina jina_{A60}
replicate r8_{A37}
elevenlabs sk_{H48}
pinecone pcsk_{A6}_{A63}
cursor key_{H64}
github-pat ghp_{A36}
github-oauth gho_{A36}
github-user ghu_{A36}
github-server ghs_{A36}
github-refresh ghr_{A36}
github-fine-grained github_pat_{A22}_{A59}
gitlab-pat glpat-{W20}
gitlab-pat-routable glpat-{W27}.{L9}
gitlab-deploy gldt-{W20}
gitlab-runner glrt-{W20}
gitlab-trigger glptt-{H40}
gitlab-job glcbt-{A5}_{W20}
gitlab-feed glft-{W20}
gitlab-agent glagent-{W50}
gitlab-oauth gloas-{W64}
gitlab-scim glsoat-{W20}
gitlab-mail glimt-{W25}
gitlab-registration GR1348941{W20}
bitbucket-app ATBB{A24}{H8}
bitbucket-server BBDC-{B44}
atlassian ATATT3{W186}
npm npm_{A36}
pypi pypi-AgEIcHlwaS5vcmc{W60}
rubygems rubygems_{H48}
clojars CLOJARS_{L60}
docker-hub dckr_pat_{W27}
artifactory AKCp{A69}
artifactory-reference cmVmd{A59}
sourcegraph sgp_{H16}_{H40}
circleci CCIPAT_{A22}_{H40}
buildkite bkua_{H40}
octopus API-{U26}
sonar squ_{H40}
shippo shippo_live_{H40}
readme rdme_{L70}
postman PMAK-{H24}-{H34}
pulumi pul-{H40}
infracost ico-{A32}
prefect pnu_{A36}
sentry-user sntryu_{H64}
sentry-org sntrys_eyJpYXQiO{B40}
linear lin_api_{A40}
notion ntn_{D11}{A35}
notion-old secret_{A43}
figma figd_{W40}
airtable pat{A14}.{H64}
asana 2/{D16}/{D16}:{H32}
typeform tfp_{W59}
frame-io fio-u-{W64}
planetscale pscale_tkn_{W43}
planetscale-password pscale_pw_{W43}
supabase sbp_{H40}
supabase-secret sb_secret_{W31}
vercel vcp_{A56}
netlify nfp_{A40}
fly-io fm2_{B120}
heroku HRKU-AA{W58}
doppler dp.pt.{A43}
posthog phx_{A47}
maxmind {A6}_{A29}_mmk
aws-key AKIA{U16}
aws-temporary ASIA{U16}
aws-bedrock ABSK{B108}
aws-mws amzn.mws.{H8}-{H4}-{H4}-{H4}-{H12}
aws-appsync da2-{L26}
google-api AIza{W35}
google-secret GOCSPX-{W28}
google-access ya29.{W80}
google-refresh 1//0{W60}
azure-client-secret {A3}8Q~{A34}
azure-devops {A76}AZDO{A4}
azure-storage {B76}+ASt{B6}==
alibaba LTAI{A20}
tencent AKID{A32}
digitalocean dop_v1_{H64}
digitalocean-oauth doo_v1_{H64}
digitalocean-refresh dor_v1_{H64}
cloudflare cfut_{W41}
cloudflare-origin v1.0-{H24}-{H146}
databricks dapi{H32}
openshift sha256~{W43}
terraform {A14}.atlasv1.{W64}
vault-service hvs.{W95}
vault-batch hvb.{W140}
vault-old s.{A24}
age AGE-SECRET-KEY-1{U58}
onepassword-service ops_eyJ{B260}
onepassword-secret A3-{U6}-{U11}-{U5}-{U5}-{U5}
tailscale tskey-auth-{A12}-{A32}
dynatrace dt0c01.{U24}.{U64}
new-relic NRAK-{U27}
new-relic-insert NRII-{W32}
grafana-cloud glc_{B40}
grafana-service glsa_{A32}_{H8}
clickhouse 4b1d{A38}
slack-bot xoxb-{D12}-{D12}-{A24}
slack-user xoxp-{D12}-{D12}-{D12}-{H32}
slack-app xapp-1-{U11}-{D13}-{H64}
slack-config xoxe.xoxp-1-{U163}
slack-legacy xoxs-{D10}-{D10}-{D10}-{H16}
slack-cookie xoxd-{A120}
slack-webhook https://hooks.slack.com/services/T{U8}/B{U10}/{A24}
slack-workflow https://hooks.slack.com/workflows/T{U8}/A{U10}/{D18}/{A24}
discord-webhook https://discord.com/api/webhooks/{D18}/{W68}
discord-bot M{A23}.{A6}.{W27}
teams-webhook https://x.webhook.office.com/webhookb2/{H8}-{H4}-{H4}-{H4}-{H12}@{H8}-{H4}-{H4}-{H4}-{H12}/IncomingWebhook/{H32}/{H8}-{H4}-{H4}-{H4}-{H12}
zapier-webhook https://hooks.zapier.com/hooks/catch/{D7}/{L7}
telegram-bot {D10}:AA{W33}
sendgrid SG.{W22}.{W43}
brevo xkeysib-{H64}-{A16}
mailgun key-{H32}
mailchimp {H32}-us12
resend re_{A8}_{A24}
twilio SK{H32}
stripe sk_live_{A24}
stripe-test sk_test_{A24}
stripe-restricted rk_live_{A24}
stripe-webhook whsec_{A32}
square sq0atp-{W22}
square-secret sq0csp-{W43}
braintree access_token$production${L16}${H32}
plaid access-production-{H8}-{H4}-{H4}-{H4}-{H12}
shopify shpat_{H32}
shopify-secret shpss_{H32}
facebook EAACEdEose0cBA{A80}
flutterwave FLWSECK_TEST-{H32}-X
razorpay rzp_live_{A14}
easypost EZAK{A54}
duffel duffel_live_{W43}
hubspot pat-na1-{H8}-{H4}-{H4}-{H4}-{H12}
okta 00{X1}{W39}
adobe p8e-{A32}
scalingo tk-us-{W48}
intra42 s-s4t2ud-{H64}
mapbox sk.eyJ{A60}.{A22}
settlemint sm_pat_{A16}
jwt eyJhbGciOiJIUzI1NiJ9.eyJ{W60}.{W43}
jwt-base64 ZXlKaGJHY2lPaU{A80}
bcrypt $2b$12${A53}
sha512crypt $6${A8}${A86}
argon2 $argon2id$v=19$m=65536,t=3,p=4${A22}${A43}
django-hash pbkdf2_sha256$260000${A22}${A43}
""".strip().splitlines()
)


def tokens() -> Iterator[Kind]:
    """Every token, in a sentence."""
    for name, shape in TOKENS.items():
        token = made(shape, name)
        yield Kind(name, f"it is {token} for now", token)


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def written() -> Iterator[Kind]:
    """Secrets of no form of their own, which their surroundings give away."""
    p, q, t = made("{A6}", "pw") + "7x!", made("{C5}", "pw2") + "42", made("{A32}", "token")
    h, long, b40 = made("{H32}", "hex"), made("{A64}", "long"), made("{B40}", "aws")
    uuid = made("{H8}-{H4}-{H4}-{H4}-{H12}", "uuid")
    words = "orbit velvet cactus planet ribbon timber walnut guitar meadow copper harbor lantern"
    pem = made("{B64}", "pem1") + "\n" + made("{B64}", "pem2") + "\n" + made("{B64}", "pem3")
    one = pem.split("\n")[1]
    rows: dict[str, tuple[str, str]] = {
        "password-equals": (f"password={q}", q), "password-colon": (f"password: {q}", q), "password-quoted": (f'password = "{p}"', p),
        "password-single": (f"db_password = '{p}'", p), "password-json": (json.dumps({"password": p}), p), "password-yaml": (f"db:\n  password: {q}\n  port: 1", q),
        "password-toml": (f'[db]\npassword = "{p}"', p), "password-ini": (f"[db]\npasswd={p}", p), "password-hcl": (f'variable "x" {{\n  password = "{p}"\n}}', p),
        "password-xml": (f"<db><password>{p}</password></db>", p), "password-attribute": (f'<add key="Password" value="{p}" />', p),
        "password-python": (f'connect(host="h", password="{p}")', p), "password-js": (f"const dbPassword = '{p}';", p), "password-php": (f"'password' => '{p}',", p),
        "password-go": (f'password := "{p}"', p), "password-java": (f'ds.setPassword("{p}");', p), "password-typed": (f'password: str = "{p}"', p),
        "password-env": (f"DB_PASSWORD={p}", p), "password-export": (f"export PGPASSWORD={p}", p), "password-docker": (f"docker run -e MYSQL_ROOT_PASSWORD={p} mysql", p),
        "password-letters": ("DB_PASSWORD=correcthorse", "correcthorse"), "password-spaces": ('"passphrase": "correct horse battery staple"', "horse battery"),
        "password-is": (f"the password is {q}", q), "password-german": (f"Passwort: {q}", q), "password-spanish": (f"contraseña: {q}", q), "password-russian": (f"пароль: {q}", q),
        "password-chinese": (f"密码: {q}", q), "password-japanese": (f"パスワード: {q}", q), "password-list": (f'[("password", "{p}")]', p),
        "password-camel": (f'"userPassword":"{p}"', p), "password-kebab": (f"admin-password: {q}", q), "password-numbered": (f"PASSWORD2={p}", p), "pwd": (f"Uid=sa;Pwd={q};", q),
        "pass-env": (f"SMTP_PASS={p}", p), "kubernetes-env": (f"- name: DB_PASSWORD\n  value: {q}\n", q), "named-json": (json.dumps({"name": "DB_PASSWORD", "value": p}), p),
        "passphrase": (f"ssh_passphrase={p}", p), "pin": (f"pin: {made('{D6}', 'pin')}", made("{D6}", "pin")),
        "api-key": (f"api_key={t}", t), "api-key-header": (f"X-API-Key: {t}", t), "api-key-camel": (f'apiKey: "{t}"', t), "api-key-words": (f"API key: {t}", t), "api-key-hex": (f"DATADOG_API_KEY={h}", h),
        "api-key-uuid": (f"HEROKU_API_KEY={uuid}", uuid), "aws-secret": (f"aws_secret_access_key = {b40}", b40), "aws-session": (f"AWS_SESSION_TOKEN={long * 8}", long),
        "azure-account": (f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={made('{B86}', 'az')}==;EndpointSuffix=core.windows.net", made("{B86}", "az")),
        "azure-bus": (f"Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=r;SharedAccessKey={made('{B43}', 'bus')}=", made("{B43}", "bus")),
        "azure-sas": (f"https://x.blob.core.windows.net/c/f?sv=2022-11-02&sr=b&sig={quote(made('{B43}', 'sas') + '=', safe='')}", quote(made("{B43}", "sas"), safe="")),
        "aws-presigned": (f"https://b.s3.amazonaws.com/k?X-Amz-Credential=x&X-Amz-Signature={made('{H64}', 'amz')}", made("{H64}", "amz")),
        "client-secret": (json.dumps({"client_secret": t}), t), "client-secret-letters": ('client_secret = "qwertyuiopasdfgh"', "qwertyuiopasdfgh"), "refresh-token": (f'"refresh_token": "{t}"', t),
        "access-token-url": (f"https://h/p?access_token={t}&x=1", t), "token-url": (f"GET /v1?token={h} HTTP/1.1", h), "oauth-code": (f"https://h/cb?code={t}&x=1", t), "secret-key-django": (f"SECRET_KEY = 'django-insecure-{t}'", t),
        "jwt-secret": (f"JWT_SECRET={t}", t), "signing-key": (f"signing_key: {t}", t), "encryption-key": (f"ENCRYPTION_KEY={long}", long), "webhook-secret": (f"WEBHOOK_SECRET={t}", t), "session-cookie": (f"sessionid={t}", t),
        "bearer": (f"Authorization: Bearer {t}", t), "bearer-curl": (f"curl -H 'Authorization: Bearer {t}' https://h", t), "bearer-json": (json.dumps({"Authorization": f"Bearer {t}"}), t), "token-header": (f"Authorization: token {h}", h),
        "basic": (f"Authorization: Basic {_b64('alice:' + p)}", _b64("alice:" + p)), "basic-bare": (f"uses Basic {_b64('alice:' + p)} there", _b64("alice:" + p)), "proxy-basic": (f"Proxy-Authorization: Basic {_b64('a:' + p)}", _b64("a:" + p)),
        "digest": (f'Authorization: Digest username="a", nonce="{h}", response="{made("{H32}", "dg")}"', made("{H32}", "dg")), "x-auth-token": (f"X-Auth-Token: {t}", t), "private-token": (f"PRIVATE-TOKEN: {t}", t),
        "cookie": (f"Cookie: theme=dark; sid={t}; x=1", t), "set-cookie": (f"Set-Cookie: auth={t}; Path=/; HttpOnly", t), "cookie-php": (f"Cookie: PHPSESSID={made('{L26}', 'php')}", made("{L26}", "php")), "cookie-jar": (f".h.org\tTRUE\t/\tFALSE\t1999999999\tsid\t{t}", t),
        "postgres-url": (f"postgres://alice:{q}@db:5432/x", q), "postgres-at": (f"postgresql://alice:pa@{q}@db.host/x", q), "mysql-url": (f"mysql+pymysql://root:{p}@h/x", p), "mongo-url": (f"mongodb+srv://u:{p}@c.mongodb.net", p),
        "redis-url": (f"redis://:{q}@h:6379/0", q), "amqp-url": (f"amqp://u:{p}@mq:5672/", p), "https-url": (f"https://u:{p}@h.org/x.git", p), "git-token-url": (f"https://{t}@github.com/o/r.git", t), "ftp-url": (f"ftp://u:{p}@h/", p), "url-slash": (f"postgres://u:ab/{q}@h/x", q),
        "ado-net": (f"Server=h;Database=d;User Id=sa;Password={q};", q), "jdbc": (f"jdbc:mysql://h/x?user=root&password={q}", q), "odbc": (f"Driver={{x}};Uid=u;Pwd={q};", q), "dsn": (f"host=h user=u password={q} dbname=d", q),
        "curl-u": (f"curl -u alice:{p} https://h", p), "curl-user": (f"curl --user alice:{p} https://h", p), "curl-u-quoted": (f"curl -u 'alice:{p}' https://h", p), "option-password": (f"tool --password {q} run", q), "option-password-letters": ("tool --password sesameopen run", "sesameopen"), "option-equals": (f"tool --password={p}", p),
        "option-token": (f"gh --token {t}", t), "option-api-key": (f"tool --api-key {t}", t), "mysql-p": (f"mysql -u root -p{q} db", q), "mysqldump-p": (f"mysqldump -uroot -p'{p}' db", p), "sshpass": (f"sshpass -p {q} ssh a@h", q), "docker-login": (f"docker login -u a -p {p} h", p), "redis-cli": (f"redis-cli -h h -a {q}", q),
        "sqlcmd": (f"sqlcmd -S h -U sa -P {p}", p), "ldapsearch": (f"ldapsearch -D cn=a -w {q} -b x", q), "openssl-pass": (f"openssl enc -k {q} -in a", q), "smbclient": (f"smbclient //h/s -U alice%{p}", p), "any-p": (f"backup -pS3{t} x", t), "echo-docker": (f"echo {t} | docker login -u a --password-stdin", t),
        "netrc": (f"machine h.org login alice password {q}", q), "netrc-lines": (f"machine h.org\n  login alice\n  password {q}\n", q), "pgpass": (f"db.host:5432:app:alice:{q}", q), "pgpass-star": (f"*:*:*:alice:{q}", q), "htpasswd": (f"alice:$apr1${made('{A8}', 'h')}${made('{A22}', 'h2')}", made("{A22}", "h2")), "ldap-hash": (f"userPassword: {{SSHA}}{made('{B32}', 'l')}", made("{B32}", "l")),
        "npmrc": (f"//registry.npmjs.org/:_authToken={uuid}", uuid), "npmrc-auth": (f"_auth={_b64('alice:' + p)}", _b64("alice:" + p)), "pypirc": (f"[pypi]\nusername = a\npassword = {p}", p), "docker-config": (json.dumps({"auths": {"h": {"auth": _b64("alice:" + p)}}}), _b64("alice:" + p)), "kubeconfig-token": (f"users:\n- user:\n    token: {t}", t),
        "kubeconfig-key": (f"    client-key-data: {_b64('-----BEGIN RSA PRIVATE KEY-----' + pem)}", _b64("-----BEGIN RSA PRIVATE KEY-----" + pem)[60:]), "sql-create": (f"CREATE USER a IDENTIFIED BY '{p}';", p), "sql-password": (f"ALTER ROLE a WITH PASSWORD '{p}';", p), "php-connect": (f'mysqli_connect("h", "root", "{p}")', p),
        "pem-rsa": (f"-----BEGIN RSA PRIVATE KEY-----\n{pem}\n-----END RSA PRIVATE KEY-----", one), "pem-openssh": (f"-----BEGIN OPENSSH PRIVATE KEY-----\n{pem}\n-----END OPENSSH PRIVATE KEY-----", one), "pem-cut": (f"-----BEGIN EC PRIVATE KEY-----\n{pem}", one), "pem-tail": (f"{pem}\n-----END RSA PRIVATE KEY-----", one),
        "pem-json": (json.dumps({"private_key": f"-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----\n"}), one), "pem-encrypted": (f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{pem}\n-----END ENCRYPTED PRIVATE KEY-----", one), "pgp": (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: x\n\n{pem}\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----", one),
        "pgp-message": (f"-----BEGIN PGP MESSAGE-----\n\n{pem}\n-----END PGP MESSAGE-----", one), "ssh2": (f"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{pem}\n---- END SSH2 ENCRYPTED PRIVATE KEY ----", one), "putty": (f"PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 3\n{pem}\nPrivate-MAC: {made('{H40}', 'mac')}", one),
        "jwk": (json.dumps({"kty": "RSA", "n": "x", "d": long}), long), "wireguard": (f"PrivateKey = {made('{B43}', 'wg')}=", made("{B43}", "wg")), "ansible-vault": (f"$ANSIBLE_VAULT;1.1;AES256\n{made('{H80}', 'av')}\n{made('{H80}', 'aw')}", made("{H80}", "aw")),
        "seed-phrase": (f"seed phrase: {words}", words[10:40]), "mnemonic": (f'mnemonic = "{words}"', words[10:40]), "recovery": (f"recovery phrase is {words}", words[10:40]), "vault-login": (f"vault login {t}", t), "credentials": (f'credentials: "{t}"', t), "connection-string": (f"CONNECTION_STRING={t}", t),
        "escaped-name": (f"pass\\u0077ord={q}", q), "escaped-name-hex": (f"p\\x61ssword={q}", q), "entity-name": (f"pass&#119;ord={q}", q), "percent-name": (f"pass%77ord={q}", q), "percent-assigned": (f"password%3D{q}", q), "hidden-name": (f"pass\u200bword={q}", q), "quoted-twice": (json.dumps(json.dumps({"password": p})), p),
        "hidden-value": (f"api_key={t[:9]}\u200b{t[9:]}", t[9:]), "cut-value": (f"api_key={t[:16]}\n{t[16:]}", t[16:]), "cut-quoted": (f'token = "{t[:16]}" \\\n  "{t[16:]}"', t[16:]),
    }  # fmt: skip
    for name, (text, secret) in rows.items():
        yield Kind(name, text, secret)


KINDS = [*tokens(), *written()]

ZERO = "\u200b"


def _split(token: str, at: int, mark: str) -> str:
    return token[:at] + mark + token[at:]


FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda token: token,
    "after a letter": lambda token: "x" + token,
    "after a word": lambda token: "token" + token,
    "after a hyphen": lambda token: "my-" + token,
    "after an underscore": lambda token: "k_" + token,
    "in quotes": lambda token: f'"{token}"',
    "in json": lambda token: json.dumps({"a": f"x\n{token}\ny"}),
    "in json twice": lambda token: json.dumps(json.dumps({"a": f"x\n{token}\ny"})),
    "percent-encoded": lambda token: quote(token, safe=""),
    "percent-encoded whole": lambda token: "".join(f"%{ord(c):02X}" for c in token),
    "percent-encoded marks": lambda token: "".join(c if c.isalnum() else f"%{ord(c):02x}" for c in token),
    "escaped": lambda token: "".join(f"\\u{ord(c):04x}" if k % 3 == 0 else c for k, c in enumerate(token)),
    "entities": lambda token: "".join(f"&#{ord(c)};" if not c.isalnum() else c for c in token),
    "zero width": lambda token: _split(token, len(token) // 2, ZERO),
    "zero width everywhere": lambda token: ZERO.join(token),
    "soft hyphen": lambda token: _split(token, len(token) // 3, "\u00ad"),
    "line break": lambda token: _split(token, len(token) // 2, "\n"),
    "line break and indent": lambda token: _split(token, len(token) // 2, "\n    "),
    "line break, written out": lambda token: _split(token, len(token) // 2, "\\n"),
    "continued": lambda token: _split(token, len(token) // 2, "\\\n"),
    "string that goes on": lambda token: f'"{_split(token, len(token) // 2, chr(34) + chr(10) + "  " + chr(34))}"',
    "before a comma": lambda token: f"[{token}, 1]",
    "in markdown": lambda token: f"`{token}`",
}
"""How a token may be written."""


def pieces(token: str, form: str) -> list[str]:
    """What must not be left of a token in a form: its halves, each in their spelling."""
    half = len(token) // 2
    shown = FORMS[form]
    if form in ("percent-encoded", "percent-encoded whole", "percent-encoded marks", "escaped", "entities", "zero width everywhere"):
        return [shown(token)]
    return [token] if half < 6 else [token[:half], token[half:]]


def trace_with(text: str) -> dict[str, Trace]:
    """A trace for every place that a text may stand in."""
    said = "nothing here"
    first = Event(id="e1", t=0, type="message", agent="a", to="b", content_ref=content_ref(said))
    second = Event(id="e2", t=1, type="message", agent="b")
    plain = Trace(trace_id="t", task_id="q", events=[first, second], edges=[Edge("e1", "e2", "causal")], contents={content_ref(said): said})

    def event(**changes: Any) -> Trace:
        return replace(plain, events=[replace(first, **changes), second])

    fields = ("agent", "role", "from_", "to", "tool", "model", "task", "policy", "key", "error", "content_ref")
    return {
        **{f"event.{field}": event(**{field: text}) for field in fields},
        "event.id": replace(plain, events=[replace(first, id=text), second], edges=[Edge(text, "e2", "causal")]),
        "event.options": event(options=["stop", text]), "event.reward": event(reward={text: 1}), "event.extra": event(extra={"a": {"b": [1, text]}}),
        "event.extra names": event(extra={text: 1, "a": {text: 2}}), "event.extra lists": event(extra={"a": [[text], {"b": text}]}),
        "trace_id": replace(plain, trace_id=text), "task_id": replace(plain, task_id=text), "system": replace(plain, system=text),
        "rewards": replace(plain, rewards={text: 1}), "costs": replace(plain, costs={"tokens": 0, text: 1}), "metrics": replace(plain, metrics={text: 1}),
        "meta": replace(plain, meta={"a": [{"b": text}]}), "meta names": replace(plain, meta={"a": {text: 1}}),
        "contents": replace(plain, events=[replace(first, content_ref=content_ref(text)), second], contents={content_ref(text): text}),
        "contents refs": replace(plain, events=[replace(first, content_ref=text), second], contents={text: said}),
        "edges": replace(plain, events=[replace(first, id=text), replace(second, id=text + "2")], edges=[Edge(text, text + "2", "causal")]),
    }  # fmt: skip
