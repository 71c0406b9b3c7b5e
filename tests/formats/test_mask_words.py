"""The words that masking listens to, one by one: each is heard where it stands, and those that stand for nobody and nothing stay."""

from __future__ import annotations

from collections import Counter

import pytest

from counterpoint.formats.masking import find, mask, masked_all
from counterpoint.formats.masking.base import CODE_JOINS, Scan, is_filler, is_long, is_random, is_scrambled, is_signed, view
from counterpoint.formats.masking.tokens import runs, trie
from counterpoint.trace import Trace

MIX = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0iL"
HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
KEY = "[masked:key:0001]"


@pytest.mark.parametrize("word", sorted({word for word, _ in find._FIXED}))
def test_every_fixed_word_is_found_where_it_stands(word: str) -> None:
    low = f"{'x' * 30} {word} y"
    found = [
        (place - before, handled)
        for place in find._SCAN.places(low)
        for handled, _, _, before in find._TRIGGERS[low[place : place + 4]].handlers
        if low.startswith(handled, place - before)
    ]
    assert (31, word) in found
    assert word in {handled for place in find._QUICK_SCAN.places(low) for handled, *_ in find._TRIGGERS[low[place : place + 4]].handlers}


def test_a_scan_finds_where_words_begin() -> None:
    """By four characters, so that `passing` may be a password until somebody looks again."""
    scan = Scan(["password", "key", "://"])
    assert scan.places("my password") == [3]
    assert scan.places("passing by: key, keyed key") == [0, 12, 23]
    assert scan.places("http://x ://") == [4, 9]
    assert scan.places("") == []


@pytest.mark.parametrize("word", [
    "reset", "reset-password", "reset_password", "resetpassword", "password-reset", "password_reset", "forgot-password", "set-password", "magic", "magic-link",
    "magic_link", "magiclink", "verify", "verify-email", "verify_email", "verification", "confirm", "confirmation", "confirm-email", "activate", "activation", "invite",
    "invites", "invitation", "invitations", "accept-invite", "accept-invitation", "login", "signin", "sign-in", "sign_in", "sso", "one-time-login", "otp", "recover",
    "recovery", "unlock", "passwordless", "unsubscribe", "token", "callback", "email-login", "join",
])  # fmt: skip
def test_a_link_lets_in_by_each_of_these(word: str) -> None:
    assert mask(f"see https://x.example/{word}/{MIX} now")[0] == f"see https://x.example/{word}/{KEY} now"
    assert mask(f"https://x.example/a{word}b/{MIX}x")[0] == f"https://x.example/a{word}b/{MIX}x"


@pytest.mark.parametrize("word", ["t", "c", "k", "h", "s", "hash", "magic", "invite", "link", "oobCode"])
def test_a_link_lets_in_by_a_part_of_its_query(word: str) -> None:
    assert mask(f"https://x.example/login?a=b&{word}={MIX}")[0] == f"https://x.example/login?a=b&{word}={KEY}"


@pytest.mark.parametrize(("vendor", "key"), [
    ("cohere.Client(", (MIX + MIX)[:40]), ("amplitude.init(", HEX), ("segment client ", MIX), ("analytics.load(", MIX), ("mistral client ", MIX), ("assemblyai key ", HEX),
    ("deepgram key ", HEX + "01234567"), ("algolia client ", HEX), ("mixpanel.init(", HEX), ("togetherai key ", HEX + HEX), ("ai21 key ", MIX),
    ("launchdarkly client ", "a1b2-" * 8),
])  # fmt: skip
def test_a_key_near_its_vendor_is_masked_and_shorter_ones_stay(vendor: str, key: str) -> None:
    key = key.rstrip("-") + ("c" if key.endswith("-") else "")
    assert mask(f"the {vendor}'{key}')")[0] == f"the {vendor}'{KEY}')"
    assert mask(f"the {vendor}'{key[:-1]}')")[0] == f"the {vendor}'{key[:-1]}')"


@pytest.mark.parametrize("folder", [
    "var", "usr", "export", "data", "mnt", "net", "nfs", "srv", "vol", "storage", "lustre", "gpfs", "cluster", "hpc", "scratch", "work", "private", "host", "hostfs",
    "rootfs", "nas", "shared", "fsx", "efs", "afs", "array",
])  # fmt: skip
def test_these_folders_hold_homes(folder: str) -> None:
    home = "home"
    assert mask(f"/{folder}/{home}/greta/x")[0] == f"/{folder}/{home}/[masked:path:0001]/x"
    assert mask(f"/{folder}/a1/{home}/greta/x")[0] == f"/{folder}/a1/{home}/[masked:path:0001]/x"
    assert mask(f"-{folder}-{home}-greta-x")[0] == f"-{folder}-{home}-[masked:path:0001]-x"
    assert mask(f"/q{folder}/{home}/greta/x")[0] == f"/q{folder}/{home}/greta/x"


@pytest.mark.parametrize("name", [
    "shared", "public", "default", "user", "users", "username", "runner", "runneradmin", "ubuntu", "vscode", "node", "root", "linuxbrew", "foo", "bar", "foobar", "baz", "xyz",
    "xxx", "you", "your", "me", "name", "someone", "somebody", "example", "test", "testuser", "path", "dir", "bin", "lib", "index.html", "joe", "yourname", "your-name", "python",
    "jovyan", "circleci", "travis", "build", "app", "guest", "all", "to",
])  # fmt: skip
def test_nobody_has_these_names(name: str) -> None:
    for text in ("see /home/" + f"{name}/x", "see /Users/" + f"{name}/x"):
        assert mask(text) == (text, Counter())


@pytest.mark.parametrize("top", ["png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "js", "ts", "tsx", "jsx", "mjs", "cjs", "css", "json", "html", "txt", "tgz", "gz", "zip",
                                 "whl", "yaml", "yml", "toml", "lock", "map"])  # fmt: skip
def test_a_file_is_no_address(top: str) -> None:
    assert mask(f"icon@big.{top}") == (f"icon@big.{top}", Counter())


@pytest.mark.parametrize("top", ["com", "org", "net", "edu", "gov", "io", "dev", "ai", "co", "de", "uk", "fr", "cn", "jp", "in", "eu", "info"])
def test_an_address_may_stand_before_a_bracket(top: str) -> None:
    assert mask(f"ann@mail.{top}(x)")[0] == "[masked:email:0001](x)"
    assert mask("q@k.transpose(x)")[0] == "q@k.transpose(x)"


@pytest.mark.parametrize("word", ["for", "to", "of", "on", "at", "in", "für", "fuer", "von", "zu", "zum", "zur", "vom", "am", "auf", "beim", "pour", "de", "du", "des", "da", "do",
                                  "para", "del", "di", "per", "voor", "van", "dla", "för", "till", "для", "от", "к"])  # fmt: skip
def test_a_password_is_of_something(word: str) -> None:
    assert mask(f"passcode {word} Box lautet walnut4two")[0] == f"passcode {word} Box lautet {KEY}"


@pytest.mark.parametrize("word", ["is", "was", "are", "were", "will be", "would be", "equals", "remains", "lautet", "ist", "war", "wird", "heißt", "heisst", "wäre", "est", "était",
                                  "es", "era", "é", "è", "är", "er", "jest", "это", "ist nun", "→", "->", "=>", "—", "–", "-"])  # fmt: skip
def test_a_password_is_said_to_be_something(word: str) -> None:
    assert mask(f"wachtwoord {word} walnut4two")[0] == f"wachtwoord {word} {KEY}"


@pytest.mark.parametrize("word", ["now", "currently", "just", "still", "simply", "again", "jetzt", "nun", "aktuell", "momentan", "neu", "maintenant", "ahora", "agora", "adesso", "nu",
                                  "set to", "changed to", "reset to", "updated to", "rotated to", "set as", "geändert auf", "geändert in", "gesetzt auf"])  # fmt: skip
def test_a_password_is_now_something(word: str) -> None:
    assert mask(f"das Kennwort ist {word} walnut4two")[0] == f"das Kennwort ist {word} {KEY}"


@pytest.mark.parametrize("word", ["the", "a", "my", "our", "your", "his", "her", "their", "das", "dein", "dem", "unser", "mein", "ihr", "le", "la", "el", "het", "ett"])
def test_a_password_is_said_before_its_name(word: str) -> None:
    assert mask(f"walnut4two is {word} password")[0] == f"{KEY} is {word} password"


@pytest.mark.parametrize("word", ["credentials", "credential", "creds", "Zugangsdaten", "Anmeldedaten", "login", "logins", "identifiants"])
def test_a_login_is_a_name_and_a_password(word: str) -> None:
    assert mask(f"{word}: ann / walnut4two")[0] == f"{word}: ann / {KEY}"
    assert mask(f"{word}: ann / walnut")[0] == f"{word}: ann / walnut"


@pytest.mark.parametrize("value", ["sha256", "utf-8", "base64", "python3.11", "http2", "oauth2", "md5", "gpt-4", "version2", "step-3", "rfc7617", "bcrypt12", "argon2", "aes256",
                                   "rsa4096", "2026-11-18", "12:30:45", "config1.py", "src/auth2/x", "ABC-1234", "#4711", "@user12", "item_12", "issue99", "level33"])  # fmt: skip
def test_what_a_sentence_about_passwords_says_is_no_password(value: str) -> None:
    text = f"the passphrase for it, hashed, {value} is the password"
    assert mask(text) == (text, Counter())


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "mysql", "mariadb", "mongodb", "mongodb+srv", "redis", "rediss", "amqp", "amqps", "mssql", "sqlserver", "oracle",
                                    "cockroachdb", "clickhouse", "snowflake", "ftp", "sftp", "smtp", "smtps", "ldap", "ldaps", "kafka", "nats", "couchbase", "cassandra"])  # fmt: skip
def test_a_database_has_its_password_in_its_address_slashes_too(scheme: str) -> None:
    assert mask(f"{scheme}://ann:wal/nut@db:5432/x")[0] == f"{scheme}://ann:{KEY}@db:5432/x"
    assert mask("https://ann:wal/nut@db:5432/x")[0] == "https://ann:wal/nut@db:5432/x"


@pytest.mark.parametrize("word", [
    "any", "array", "bool", "string", "none", "null", "undefined", "password", "secret", "token", "changeme", "example", "placeholder", "dummy", "todo", "tbd", "missing",
    "invalid", "expired", "hidden", "redacted", "masked", "required", "optional", "unknown", "unset", "bearer", "basic", "true", "false", "your-key-1", "xxxx1234", "****ab12",
    "<key-12>", "${KEY_1}", "$(cat k1)", "{{ key1 }}", "%(key1)s", "@KEY@", "my_password", "some-key", "fake123", "sample12", "not_set", "api_key_1", "aaaa",
])  # fmt: skip
def test_what_stands_for_a_value_is_none(word: str) -> None:
    assert is_filler(word)
    assert mask(f'client_secret = "{word}"')[1]["key"] == 0


def test_what_is_random() -> None:
    for value in ("aB3dE6g", "a1b2c3d4", MIX, HEX, "QwErTyUiOp"):
        assert is_random(value), value
    for value in ("password", "Password1", "getUserById", "HTTPServer", "a1", "12345678", "v1", "node-12", "MAX_VALUE", "x1", "Some_Word_Here"):
        assert not is_random(value), value
    assert not is_random("abcdefghijklm1nopqrstuvwxyz2abcdefghijk")  # a number in a long word, twice
    assert is_random("abcdefghijk1lmnopqrstuv2")
    assert not is_random("a" * 120 + "1B2c3D4e")  # only the beginning is looked at


def test_what_is_long_scrambled_or_signed() -> None:
    assert is_long("a" * 34 + "B1")
    assert not is_long("a" * 33 + "B1")
    assert not is_long("a" * 40 + "1")
    assert not is_long("A" * 40 + "1")
    assert not is_long("aB" * 20)
    assert not is_long("a_" * 20 + "B1")
    assert is_scrambled("wxoFPjTlZaMeDg")
    assert not is_scrambled("HowToVerifyAddress")
    assert not is_scrambled("wordsinlower")
    assert is_signed("Sommer!Regen")
    assert is_signed("kaktusoFcSv+AxR")
    assert is_signed("Regen?Tag")
    assert not is_signed("Regen?Tag", CODE_JOINS)
    assert not is_signed("Reg!Tag")  # short
    assert not is_signed("regen!sommer")
    assert not is_signed("REGEN!SOMMER")
    assert not is_signed("RegenSommer")
    assert not is_signed("RegenSommer!")
    assert not is_signed("Ctrl+Shift")
    assert not is_signed("firstName+lastName")
    assert not is_signed("config!.secretKey")
    assert not is_signed("getCtx+userPwd")
    assert is_signed("sommerDbc+Wmg")


def test_a_view_knows_its_places() -> None:
    assert view("plain") is None
    text = "ab%41cd"
    seen = view(text)
    assert seen is not None
    assert seen.text == "abAcd"
    assert seen.place(0, 2) == (0, 2)
    assert seen.place(2, 3) == (2, 5)
    assert seen.place(1, 4) == (1, 6)
    assert seen.place(4, 5) == (6, 7)
    for odd, plain in {"\\u0041": "A", "\\x41": "A", "\\u{41}": "A", "&#65;": "A", "&#x41;": "A", "&amp;": "&", "&quot;": '"', "&apos;": "'", "&lt;": "<", "&gt;": ">", "\\/": "/",
                       "%2541": "A", "\u200b": "", "\u00ad": "", "\ufeff": ""}.items():  # fmt: skip
        read = view(f"x{odd}y")
        assert read is not None, odd
        assert read.text == f"x{plain}y"
        assert read.place(0, len(read.text)) == (0, len(odd) + 2)
    far = view("%41" + "b" * 1000 + "%42")
    assert far is not None
    assert far.text == "A" + "b" * 400 + "\n\0\n" + "b" * 160 + "B"
    assert far.place(len(far.text) - 1, len(far.text)) == (1003, 1006)


def test_runs_and_tries() -> None:
    found = runs("ab-1 c2d3 ")
    assert (found.starts.tolist(), found.ends.tolist(), found.digits.tolist()) == ([0, 5], [4, 9], [1, 2])
    assert runs("").starts.tolist() == []
    assert runs(" a").ends.tolist() == [2]
    assert trie(["ab", "ac"]) == "a(?:b|c)"
    assert trie(["a", "ab"]) == "a(?:b)?"


@pytest.mark.parametrize("word", ["phone", "telephone", "mobile", "cell", "tel", "fax", "Telefon", "Handy", "mobil", "Rufnummer", "WhatsApp", "teléfono", "téléphone", "telefono"])
def test_a_number_is_called_by_each_of_these(word: str) -> None:
    assert mask(f"{word}: 030 1234567", is_personal=True)[0] == f"{word}: [masked:personal:0001]"
    assert mask(f"{word} number 030/1234567", is_personal=True)[0] == f"{word} number [masked:personal:0001]"
    assert mask(f"{word}: 0301", is_personal=True)[0] == f"{word}: 0301"


@pytest.mark.parametrize("name", ["path", "domain", "expires", "max-age", "samesite", "version", "comment", "priority", "theme", "lang", "locale", "consent"])
def test_what_a_cookie_says_about_itself_stays(name: str) -> None:
    assert mask(f"Set-Cookie: sid={MIX}; {name}=abc12345")[0] == f"Set-Cookie: sid={KEY}; {name}=abc12345"


@pytest.mark.parametrize("scheme", ["Bearer", "Basic", "Token", "Bot", "ApiKey", "Api-Key", "Negotiate", "NTLM", "SharedKey", "GoogleLogin", "Key", "Splunk", "GenieKey", "SSWS",
                                    "PVEAPIToken"])  # fmt: skip
def test_a_header_says_its_scheme_and_its_secret(scheme: str) -> None:
    assert mask(f"Authorization: {scheme} walnut-4two")[0] == f"Authorization: {scheme} {KEY}"


@pytest.mark.parametrize("head", ["Backup codes", "backup_codes", "Recovery codes", "recovery-codes", "Scratch codes", "Wiederherstellungscodes", "Notfallcodes", "Einmalcodes",
                                  "Codes de secours", "Códigos de recuperación"])  # fmt: skip
def test_codes_stand_behind_a_word_for_them(head: str) -> None:
    assert mask(f"{head}: 1234-5678, 8765-4321 and")[0] == f"{head}: [masked:key:0001], [masked:key:0002] and"
    assert mask(f"{head}: none-yet, nor-later")[0] == f"{head}: none-yet, nor-later"


def test_a_number_under_a_password_s_name_has_a_label() -> None:
    (new,) = masked_all([Trace(trace_id="t", task_id="t", events=[], meta={"pin": 12345678})]).traces
    assert new.meta == {"pin": KEY}


def test_an_attached_password_of_any_program() -> None:
    assert mask("tool -paB3dE6gH9j run")[0] == f"tool -p{KEY} run"
    assert mask("tool -pmy_1a2b3c4d run")[0] == "tool -pmy_1a2b3c4d run"


def test_a_head_of_a_table_alone_has_no_rows() -> None:
    for text in ("<th>Password</th>", "<tr><th>Password</th></tr>", "<td>x</td><th>Password</th> walnut4"):
        assert mask(text) == (text, Counter())


def test_a_token_of_airtable() -> None:
    assert mask(f"it is pat{MIX[:14]}.{HEX}{HEX} now")[0] == f"it is {KEY} now"
