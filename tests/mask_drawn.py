"""Secrets drawn anew for every seed: forms as templates, values by chance. Nothing here is a secret.

A form is a line: what stands between « and » is secret and must be gone, the rest may stay. `{A20}` is as in `mask_kinds.made`; `{pw}` is a password
of letters, digits and signs, `{pl}` a word and digits, `{ps}` words and a number, `{user}` a person, `{w}` a word. `\\n` is a line break. `DEVELOPED` are the
forms that the rules were written with; `HELD_OUT` were written before the rules and are only counted by the tests.
"""

from __future__ import annotations

import base64
import random
import re
from typing import NamedTuple

from mask_kinds import made

WORDS = ["amber", "basil", "cobalt", "dahlia", "ember", "falcon", "garnet", "hazel", "indigo", "jasper", "kestrel", "lupine", "maple", "nectar", "onyx", "pewter", "quartz", "russet", "saffron", "tundra", "umber", "violet", "willow", "yarrow", "zephyr"]
PEOPLE = ["anneke", "bjorn", "carla", "dmitri", "elif", "farid", "greta", "hiroshi", "ingrid", "jolanda", "kwame", "leonie", "mateo", "nadia", "oskar", "petra", "rashid", "svenja", "tomasz", "ulrike"]
SIGNS = "!#%*+?@"


_PLACE = re.compile(r"\{((?:b64|hex):[^{}]+|(?:[ABCDHLUWX]\d+|user|w|pl|pw|ps|b32s?|up20|dj|wif|bytes64|b58x88|der8|derec|der)(?:~\d)?)\}")


class Drawn(NamedTuple):
    """A text, and what must not be left of it."""

    form: str
    text: str
    secrets: list[str]


def _value(kind: str, rng: random.Random) -> str:
    if kind == "user":
        return rng.choice(PEOPLE)
    if kind == "w":
        return rng.choice(WORDS)
    if kind == "pl":
        return rng.choice(WORDS) + str(rng.randrange(10, 9999))
    if kind == "pw":
        return made("{A5}", str(rng.random())) + rng.choice(SIGNS) + made("{C2}{D2}", str(rng.random()))
    if kind == "ps":
        return f"{rng.choice(WORDS).title()} {rng.choice(WORDS)} {rng.randrange(10, 99)} {rng.choice(WORDS)}"
    if kind == "b32":
        return "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for _ in range(32))
    if kind == "b32s":
        return " ".join("".join(rng.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(4)) for _ in range(8))
    if kind == "up20":
        return "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(20))
    if kind == "dj":
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz0123456789!@#$%^&*(-_=+)") for _ in range(24))
    if kind == "wif":
        return _wif(rng)
    if kind == "bytes64":
        return ",".join(str(rng.randrange(256)) for _ in range(64))
    if kind == "b58x88":
        return "".join(rng.choice("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz") for _ in range(87))
    if kind.startswith("der"):
        return base64.b64encode(bytes.fromhex({"der": "308204a40201000282010100", "der8": "308204be020100300d06092a864886f70d0101010500048204a8", "derec": "30770201010420"}[kind]) + rng.randbytes(150)).decode().rstrip("=")
    if kind.startswith(("b64:", "hex:")):
        plain = filled(kind[4:].replace("<", "{").replace(">", "}").replace("((", "\x7b").replace("))", "\x7d"), rng)[0]
        return base64.b64encode(plain.encode()).decode() if kind[0] == "b" else plain.encode().hex()
    return made("{" + kind + "}", str(rng.random()))


def _wif(rng: random.Random) -> str:
    from hashlib import sha256

    body = b"\x80" + rng.randbytes(32) + rng.choice([b"", b"\x01"])
    n, out = int.from_bytes(body + sha256(sha256(body).digest()).digest()[:4], "big"), ""
    while n:
        n, k = divmod(n, 58)
        out = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"[k] + out
    return out


def filled(form: str, rng: random.Random) -> tuple[str, list[str]]:
    """The text of a form and its secrets."""
    again: dict[str, str] = {}

    def value(found: re.Match[str]) -> str:
        name, _, mark = found[1].partition("~")  # {pw~1} is the same value wherever it stands
        return again.setdefault(found[1], _value(name, rng)) if mark else _value(name, rng)

    text = _PLACE.sub(value, form.replace("\\n", "\n").replace("\\t", "\t"))
    return re.sub("[«»]", "", text), re.findall("«([^»]*)»", text)


def drawn(forms: list[str], seed: int) -> list[Drawn]:
    """Every form, with values of a seed."""
    return [Drawn(form, *filled(form, random.Random(f"{seed} {form}"))) for form in forms]


def _lines(text: str) -> list[str]:
    return [line for line in text.strip().splitlines() if line and not line.startswith("// ")]


DEVELOPED = _lines(r"""
// keys of newer vendors
the key is «fw_{A24}» today
the key is «pa-{W43}» today
the key is «llx-{A48}» today
modal token set --token-id «ak-{A22}» --token-secret «as-{A22}»
the key is «e2b_{H40}» today
the key is «bb_live_{W27}» today
the key is «ak_{A20}» of composio
COMPOSIO x-consumer: «ck_{A20}»
the key is «sk-helicone-{L7}-{L7}-{L7}-{L7}» today
the key is «rnd_{A28}» today
the key is «napi_{L64}» today
postgresql://neondb_owner:«npg_{A12}»@ep-cool-{w}-1234.eu-central-1.aws.neon.tech/neondb
the password «npg_{A12}» of the branch
the key is «sdk-{H8}-{H4}-{H4}-{H4}-{H12}» today
the key is «api-{H8}-{H4}-{H4}-{H4}-{H12}» today
the key is «secret-{A43}» of statsig
the key is «console-{A43}» today
co = cohere.Client("«{A40}»")
cohere key «{A40}»
amplitude.init("«{H32}»", null)
amplitude api key «{H32}» and go
analytics.load("«{A32}»")
segment write key «{A32}»
the key is «sgp_{A64}» today
QdrantClient(url="https://x.cloud.qdrant.io", api_key="«{H36}|{W50}»")
qdrant: «{H8}-{H4}-{H4}-{H4}-{H12}|{W48}»
the key is «csk-{L48}» today
the key is «tgp_v1_{W43}» today
the key is «wandb_v1_{A40}_{A20}» today
the key is «lmnr_{A40}» today
the key is «pk_live_{A40}» of clerk
the key is «sk_car_{A22}» today
the key is «rpa_{U36}» today
the key is «m0-{A40}» of mem0
the key is «ls__{H32}» today
the key is «cal_live_{H32}» today
the key is «tr_dev_{A20}» today
// wallets
new ethers.Wallet("«0x{H64}»", provider)
accounts: ["«0x{H64}»"],
cast send 0x{H40} --private-key «0x{H64}»
private key: «{H64}»
bitcoin-cli importprivkey «{wif}»
swept «{wif}» into the wallet
cat ~/.config/solana/id.json\n[«{bytes64}»]
Keypair.fromSecretKey(bs58.decode("«{b58x88}»"))
wallet secret: «{b58x88}»
Account.from_key('«{H64}»')
// erlang
erl -name a@b -setcookie «{up20}» -hidden
RABBITMQ_ERLANG_COOKIE=«{up20}»
RELEASE_COOKIE: «{up20}»
$ cat ~/.erlang.cookie\n«{up20}»\n
erlang:set_cookie(node(), '«{up20}»').
Node.set_cookie(:«{up20}»)
// over two lines
SECRET_KEY = (\n    "«django-insecure-{dj}»"\n    "«{dj}»"\n)
SECRET_KEY = \\n    '«{dj}»'
secret_key_base:\n    «{H64}{H64}»
secret_key_base: >\n    «{H64}{H64}»
config.secret_key_base =\n  "«{H64}»"
password:\n  «{pl}»\nport: 1
api_key =\n    "«{A32}»"
// terraform and its like
variable "db_password" {\n  type    = string\n  default = "«{pl}»"\n}
variable "api_token" {\n  description = "of the {w} service"\n  type        = string\n  sensitive   = true\n  default     = "«{A30}»"\n}
Parameters:\n  DbPassword:\n    Type: String\n    NoEcho: true\n    Default: «{pl}»\n
// shells
set -x DB_PASSWORD «{pl}»
set -gx OPENAI_API_KEY «{A30}»
set --export --global GITHUB_TOKEN «{A36}»
setenv DB_PASSWORD «{pl}»
$env:DB_PASSWORD = '«{pw}»'
[Environment]::SetEnvironmentVariable("DB_PASSWORD", "«{pw}»", "User")
aws ssm put-parameter --name /{w}/db/password --type SecureString --value «{pl}»
gh secret set DEPLOY_TOKEN --body "«{A30}»"
az keyvault secret set --vault-name x --name db-password --value «{pw}»
redis-cli config set requirepass «{pl}»
requirepass «{pl}»
consul kv put {w}/db/password «{pl}»
// values with spaces
DB_PASSWORD="«{ps}»"
password: "«my {w} has 2 {w}»"
WIFI_PASSPHRASE='«{ps}»'
Password: «{ps}»
passphrase = «{w} {w} {w} {w} {w}»
// named by a header
user,password\n{user},«{pl~1}»\n{user},«{pw~1}»\n
id;login;passwort;rolle\n1;{user};«{pl~1}»;admin\n2;{user};«{pw~1}»;gast\n
name\tapi_key\n{w}\t«{A32}»\n
| user | password |\n|------|----------|\n| {user} | «{pl}» |\n| {user} | «{pw}» |\n
 id | login | password\n----+-------+----------\n  1 | {user} | «{pl}»\n(1 row)
+----+----------+\n| id | password |\n+----+----------+\n|  1 | «{pl}» |\n+----+----------+
USER       PASSWORD    ROLE\n{user}     «{pl}»     admin\n
"email","access_token"\n"a","«{A32}»"\n
user,password,note\\n{user},«{pl~1}»,x\\n
<tr><th>User</th><th>Password</th></tr>\n<tr><td>{user}</td><td>«{pl}»</td></tr>
{"columns": ["user", "password"], "rows": [["{user}", "«{pl~1}»"], ["{user}", "«{pw~1}»"]]}
// sql
INSERT INTO users (id, name, password) VALUES (1, '{user}', '«{pl}»');
insert into accounts(email, passwd, active) values ('x', '«{pw}»', 1), ('y', '«{pl}»', 0)
COPY users (id, name, password) FROM stdin;\n1\t{user}\t«{pl}»\n2\t{user}\t«{pw}»\n\\.\n
cur.execute("INSERT INTO users (name, password) VALUES (?, ?)", ("{user}", "«{pl}»"))
SELECT crypt('«{pw}»', gen_salt('bf'))
SET PASSWORD FOR 'x'@'h' = PASSWORD('«{pw}»');
// prose
the password for the {w} box is «{pl}», keep it
use «{pl}» as the password
log in as {user} with password «{pl}»
sign in with the password «{pw}» please
the root password was changed to «{pl}»
my password: it's «{pl}»
«{pl}» is the admin password
das Passwort lautet «{pl}»
das Kennwort für {w} ist «{pl}»
melde dich mit dem Passwort «{pl}» an
«{pl}» ist das Passwort
Zugangsdaten: {user} / «{pl}»
credentials: {user} / «{pw}»
login {user}, password «{pl}»
le mot de passe est «{pl}»
la contraseña es «{pl}»
la password è «{pl}»
a senha é «{pl}»
// links
https://app.{w}.io/reset-password/«{A32}»
https://{w}.io/auth/magic-link/«{A40}»?next=/
https://{w}.io/users/password/edit?reset_password_token=«{A20}»
https://{w}.io/accounts/reset/MQ/«{L6}-{H32}»/
https://{w}.io/invite/«{A24}»
https://{w}.io/verify?oobCode=«{A40}»&mode=x
https://{w}.io/login?magic=«{A30}»
https://{w}.io/confirm/«{H40}»
https://us02web.zoom.us/j/81234567890?pwd=«{A32}»
https://join.slack.com/t/{w}/shared_invite/«zt-{A10}-{W22}»
// sentry
https://«{H32}»:«{H32}»@sentry.io/12345
dsn: http://«{H32}»:«{H32}»@sentry.{w}.org/2
// wrapped and joined
it is «{b64:ghp_<A36>}» in base64
it is «{b64:sk-ant-api03-<W60>}» in base64
config: «{b64:password=<A12>9}»
it is «{hex:ghp_<A36>}» in hex
key = "«ghp_»" + "«{A18}»" + "«{A18}»"
key = "«sk-ant-»" "«{A20}»" "«{A20}»"
$key = 'sk_live_' . '«{A24}»';
// keys without a header
«{der}»\n«{B64}»\n«{B64}»\n
key: «{derec}»
the file said\n«{der8}»\n«{B64}»\n
// totp and backup codes
TOTP seed: «{b32}»
pyotp.TOTP("«{b32}»")
oathtool --totp -b «{b32}»
2FA setup key: «{b32s}»
mfa_secret: «{b32}»
otpauth-migration://offline?data=«{A60}»
Backup codes:\n«{D4}-{D4}»\n«{D4}-{D4}»\n«{D4}-{D4}»\n
Recovery codes: «{L5}-{L5}», «{L5}-{L5}», «{L5}-{L5}»
Wiederherstellungscodes:\n1. «{L8}»\n2. «{L8}»\n3. «{L8}»
// people
/var/home/«{user}»/src/x.py
/Volumes/Data/Users/«{user}»/x
/export/home/«{user}»/bin
/run/media/«{user}»/stick
/media/«{user}»/DISK/x
cd ~«{user}»/work
projects/-home-«{user}»-code/x.jsonl
"-Users-«{user}»-src-app"
C--Users-«{user}»-code
-var-home-«{user}»-code
/usr/home/«{user}»/x
\\\\server\\Users\\«{user}»\\x
C:\\Documents and Settings\\«{user}»\\x
/nfs/home/«{user}»/data
https://{w}.edu/~«{user}»/papers
""")

HELD_OUT = _lines(r"""
// keys of newer vendors
curl -H "X: «fw_{A22}»" https://x
VOYAGE «al-{W43}»
parse("«llx-{A44}»")
"id": "«ak-{A22}»", "s": "«as-{A22}»"
export E=«e2b_{H40}»
bb = «bb_test_{W27}»
x(«pk-helicone-{L7}-{L7}-{L7}-{L7}»)
render «rnd_{A32}»
neon «napi_{L64}»
ld «mob-{H8}-{H4}-{H4}-{H4}-{H12}»
statsig.initialize("«secret-{A40}»")
cohere.ClientV2(api_key="«{A40}»")
Amplitude('«{H32}»')
new Analytics({ writeKey: '«{A32}»' })
cerebras «csk-{L48}»
runpod «rpa_{U40}»
the token «dckr_oat_{A32}»
the token «shpua_{H32}»
the token «glrtr-{W27}»
the token «sntryu_{H64}»
the token «xoxe-1-{U60}»
the token «pscale_oauth_{W40}»
the token «ATOA{A40}»
the token «hvs.{A24}»
the token «lin_wh_{A40}»
the token «sbp_oauth_{H40}»
the token «whsec_{A40}»
the token «nvapi-{W60}»
the token «tskey-client-{A12}-{A30}»
the token «AGPA{U16}»
the token «figo_{A40}»
the token «ntn_{D11}{A35}»
the token «pat-eu1-{H8}-{H4}-{H4}-{H4}-{H12}»
the token «cfat_{A40}»
the token «sk-svcacct-{W60}»
// wallets
const wallet = new Wallet('«0x{H64}»');
PRIVATE_KEY=«0x{H64}»
forge script x --private-key=«{H64}»
paper wallet «{wif}»
web3.eth.accounts.privateKeyToAccount("«0x{H64}»")
SOLANA_KEYPAIR=[«{bytes64}»]
"secretKey": "«{b58x88}»"
// erlang
iex --sname x --cookie «{up20}» -S mix
ERLANG_COOKIE: '«{up20}»'
rabbitmq: erlang cookie is «{up20}»
// over two lines
SECRET_KEY = \\n    "«django-insecure-{dj}{dj}»"
"secret_key":\n    "«{A40}»",
jwt_secret: |\n  «{A48}»\n
token = (\n  "«{A20}»"\n  "«{A20}»"\n)
production:\n  secret_key_base:\n    «{H64}»\n
// terraform and its like
variable "admin_pass" {\n  default = "«{pw}»"\n  type = string\n}
variable "master_password"\n{\n  description = "x"\n  default     = "«{pl}»"\n}
  AdminPassword:\n    Description: of {w}\n    Type: String\n    Default: "«{pw}»"
// shells
set -Ux STRIPE_SECRET «{A30}»
set -xg PGPASSWORD «{pl}»
set -lx API_TOKEN «{H40}»
setx DB_PASSWORD "«{pw}»"
aws secretsmanager create-secret --name {w} --secret-string «{pl}»
etcdctl put /{w}/password «{pl}»
vercel env add; gh secret set API_KEY -b«{A32}»
heroku config:set SECRET_TOKEN=«{A40}»
masterauth «{pl}»
// values with spaces
export SMTP_PASS="«{ps}»"
"db_password": "«{ps}»"
Passwort: «{ps}»
wifi password = «{ps}»
// named by a header
username;secret;team\n{user};«{A24}»;x\n
email,pin,pass\nx,1,«{pl}»\n
Name\tPasswort\tOrt\n{user}\t«{pl}»\tUlm\n
| host | user | pw | password |\n|:--|:--|--:|:--|\n| {w} | {user} | 1 | «{pl}» |\n
 name | secret_key\n------+------------\n {w} | «{A40}»\n
HOST        TOKEN                                     AGE\n{w}   «{A40}»  3d\n
"Nutzer";"Kennwort"\n"{user}";"«{pw}»"\n
login,password\r\n{user},«{pl~1}»\r\n
name,token\n{w},«{H40}»\n{w},«{H40}»\n
{"header": ["name", "api_key"], "data": [["x", "«{A32}»"]]}
<table><tr><th>login</th><th>passwd</th></tr><tr><td>{user}</td><td>«{pw}»</td></tr></table>
// sql
INSERT INTO `users` (`login`,`pass`) VALUES ('{user}','«{pl}»');
INSERT INTO public.service ("name", "api_key") VALUES\n  ('a', '«{A32}»'),\n  ('b', '«{A32}»');
REPLACE INTO t (password, id) VALUES ('«{pw}»', 3)
db.run('INSERT INTO u (mail, password) VALUES ($1, $2)', ['x', '«{pl}»'])
COPY public.u (token, id) FROM stdin;\n«{A32}»\t1\n\\.
// prose
password of the {w} account: «{pl}»
the new password will be «{pl}» from now on
her password is now «{pl}»
try «{pl}» as password
I set the password to «{pl}»
we agreed on the passphrase «{pl}» yesterday
Das neue Passwort ist jetzt «{pl}»
Passwort für den {w}-Server: «{pl}»
Bitte nutze «{pl}» als Passwort
mit Benutzer {user} und Kennwort «{pl}»
Mein Passwort heißt «{pl}»
mot de passe : «{pl}»
el nombre es {user} y la contraseña es «{pw}»
het wachtwoord is «{pl}»
пароль «{pl}» для входа
user {user} pass «{pl}»
// links
http://{w}.org/password/reset/«{H64}»?email=x
https://{w}.io/auth/verify-email/«{A32}»
https://{w}.io/accept-invitation/«{A22}»
https://{w}.io/signin/«{A48}»
https://{w}.io/activate/«{H8}-{H4}-{H4}-{H4}-{H12}»
https://{w}.io/passwordless/callback?t=«{A32}»
https://{w}.io/x?invite_token=«{A24}»
/api/auth/callback/email?token=«{H64}»
// sentry
SENTRY_DSN=https://«{H32}»:«{H32}»@o12.ingest.sentry.io/77
// wrapped and joined
echo «{b64:AKIA<U16>}» | base64 -d
data:\n  key: «{b64:glpat-<W20>}»
«{hex:sk_live_<A24>}»
it is «{b64:(("password": "<A14>7"))}»
const k = '«xoxb-»' + '«{D12}-{D12}-»' + '«{A24}»'
token = "«glpat-»" \\n        "«{W20}»"
// keys without a header
k8s: «{derec}»
BODY\n«{der8}»\n«{B64}»\n«{B64}»\nEND
// totp and backup codes
totp_secret = "«{b32}»"
authenticator key «{b32s}» for the app
Two-factor secret: «{b32}»
new OTPAuth.TOTP({ secret: "«{b32}»" })
scratch codes: «{D8}» «{D8}» «{D8}» «{D8}»
Your recovery codes are\n- «{L4}-{L4}-{L4}»\n- «{L4}-{L4}-{L4}»\n
Backup-Codes: «{D8}», «{D8}», «{D8}»
// people
/data/home/«{user}»/x
/Volumes/Macintosh HD/Users/«{user}»/Desktop
ls ~«{user}»/.ssh
~/.claude/projects/-var-home-«{user}»-app/x
-Users-«{user}»-Documents-x
D--Users-«{user}»-src
/mnt/nas/home/«{user}»/x
/lustre/home/«{user}»/run
file:///var/home/«{user}»/a
/System/Volumes/Data/Users/«{user}»/x
""")

HARMLESS = _lines(r"""
// hashes, ids, numbers
commit {H40}
Merge {H7} into {H7}
sha256:{H64}
md5 {H32}  file.iso
index {H7}..{H7} 100644
{H8}-{H4}-{H4}-{H4}-{H12}
"session_id": "{H8}-{H4}-{H4}-{H4}-{H12}"
"uuid":"{H8}-{H4}-{H4}-{H4}-{H12}","parentUuid":null
toolu_01{A22}
call_{A24}
chatcmpl-{A29}
"request_id": "req_011{A21}"
"id": "msg_01{A22}"
integrity sha512-{B86}==
etag: "{H32}"
trace_id={H32} span_id={H16}
tx 0x{H64} was mined
https://etherscan.io/tx/0x{H64}
0x{H40} is the contract
docker pull x@sha256:{H64}
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA{B200}
https://github.com/o/r/commit/{H40}
https://github.com/o/r/blob/{H40}/src/login/reset.py
https://huggingface.co/o/m/resolve/{H40}/config.json
font: url(data:font/woff2;base64,d09GMgABAAAAA{B200})
go.sum h1:{B43}=
"resolved": "https://registry.npmjs.org/x/-/x-1.0.0.tgz", "integrity": "sha512-{B86}=="
2026-11-18T12:{D2}:{D2}.{D3}Z
build {D8}-{D4}
serial {U4}-{U4}-{U4}
nonce {D12}
[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]
pixels: [{bytes64}]
embedding [0.{D6}, -0.{D6}, 0.{D6}, 0.{D6}]
order no {D10} of {w}
1Z{U16} is on its way
ISBN 978-3-16-148410-0
version 1.{D2}.{D1}-rc{D1}
// tables
model,tokens,cost\ngpt,{D5},0.{D2}\nclaude,{D6},1.{D2}\n
name,token_count\n{w},{D4}\n{w},{D4}\n
| test | pass | fail |\n|---|---|---|\n| {w} | {D2} | {D1} |\n
| Parameter | Type | Note |\n|---|---|---|\n| password | string | the {w} of it |\n| token | string | of {w} |\n
| Key | Action |\n|---|---|\n| Ctrl+C | copy |\n| F5 | {w} |\n
key,value\n{w},{D4}\n{w},{w}\n
id,name,age\n1,{user},{D2}\n2,{user},{D2}\n
STEP   TOKENS   TIME\n1      {D5}    0.{D2}\n2      {D5}    0.{D2}\n
field,type\npassword,varchar(255)\ntoken,text\n
| method | password reset | sso |\n|--|--|--|\n| {w} | yes | no |\n
host | session | state\n-----+---------+------\n{w} | {D2} | open\n
user,password\n{user},********\n{user},<hidden>\n
CREATE TABLE users (id int, name text, password text);
INSERT INTO users (id, name, password) VALUES (?, ?, ?)
INSERT INTO users (name, password) VALUES (:name, :password)
INSERT INTO stats (run, tokens) VALUES (1, {D5}), (2, {D5})
SELECT id, password FROM users WHERE name = ?
COPY t (id, tokens) FROM stdin;\n1\t{D5}\n\\.
// code
password = getpass()
password = getpass.getpass("Password: ")
passwd = input("password? ")
token = tokenizer.encode({w})
def set_password(self, password: str) -> None:
if not password: raise ValueError("password is required")
const { password, token } = req.body;
export const resetPassword = async (token: string) => {}
self.token = token
secret = secrets.token_hex(32)
api_key = os.getenv("{w}_API_KEY")
SECRET_KEY = env("SECRET_KEY")
variable "db_password" {\n  type      = string\n  sensitive = true\n}
variable "region" {\n  type    = string\n  default = "eu-central-1"\n}
variable "instance_count" {\n  default = {D1}\n}
set -x
set -x; make {w}
set -e -x PATH /usr/bin
set -gx PATH $HOME/bin $PATH
set -gx EDITOR {w}
wallet = Wallet.create_random()
cookies = session.cookies.get_dict()
erl -sname {w} -noshell
password:\n  type: string\n  minLength: {D1}
password:\n  required: true\n
secret:\n  secretName: {w}-tls\n
key: "{w}"\nvalue: "{w}"
headers = {"Authorization": f"Bearer {token}"}
parser.add_argument("--password", help="the password of the {w}")
// prose
the password is required for {w}
your password must be at least {D1} characters long
the password for the {w} is stored in the vault
I forgot the password, reset it in the {w} settings
use a password manager for {w}
the token is counted by the {w}
the tokens for this run were {D5}
das Passwort ist erforderlich
das Passwort wurde geändert, siehe {w}
Bitte gib dein Passwort ein
backup codes are not enabled for {w}
the recovery code of {w} was generated in 2026
a password is 12 characters at least
password reset for {w} was sent
Login failed: wrong password for {w}
the secret to good {w} is patience
the key to {w} is practice
it passed with 12 tokens per second
// links and folders
https://{w}.io/login/oauth/authorize
https://{w}.io/docs/reset-password
https://{w}.io/docs/authentication/verify-email-addresses
https://{w}.io/invite/friends
https://docs.{w}.io/auth/sso/configuration-guide-for-admins
/usr/share/{w}/home/index.html
/app/home/{w}/page.tsx
src/pages/home/{w}.tsx
~/work/{w}
HEAD~1/{w}
about ~5 minutes or ~{w} of it
~{D2} MB/s
/media/images/{w}.png
/static/media/{w}.{H8}.svg
https://{w}.io/users/{D4}
/Volumes/Data/{w}
/var/home-assistant/{w}
my-home-{w}-page
the-Users-guide-to-{w}
lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod {w} incididunt
{b64:lorem ipsum dolor sit amet, consectetur adipiscing elit}
{hex:lorem ipsum dolor sit amet}
""")
