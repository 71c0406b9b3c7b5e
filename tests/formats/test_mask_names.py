"""What a name says of its value: a table of names by level, and where a name ends in a text."""

from __future__ import annotations

import base64

import pytest

from counterpoint.formats.masking import mask
from counterpoint.formats.masking.names import (
    KEY,
    NAME_WORDS,
    PASSWORD,
    SECRET,
    SIGNED,
    TOKEN,
    foreign_names,
    level_of,
    loose_at,
    name_at,
)

LEVELS = {
    PASSWORD: "password PASSWORD db_password dbPassword userPasswd wifi-passphrase Passwort kennwort contraseña senha пароль 密码 pwd dbpwd smtp_pass mypass "
    "PGPASSWORD password2 password_old PASSWORD_PROD keypass storepass psk door_pin seed_phrase recovery-phrase mnemonic root.password lösenord hasło parola",
    SECRET: "secret client_secret api_key apiKey API-KEY access_key private_key signing.key ssh_key service_account_key stripe_key credentials creds totp apikey "
    "connection_string connstr webhook encryption_key openai_key secret_key_base hmac_key dbkey db_keys client-key-data secrets",
    TOKEN: "token access_token refreshToken bearer jwt github_pat sas sid session_id sessionid phpsessid csrf xsrf otp cookie id_tokens auth_session",
    KEY: "key some_key other.key auth x-auth cred keys my_keys",
    0: "primary_key public_key publicKey foreign-key sort_key cache_key max_tokens min_tokens eos_token next_token page_token is_token monkey turkey hotkey keyboard "
    "path bypass compass passed spin basin phrase catchphrase ticket hdnts name user value signature sig hmac verifier compat unsaid trepass tokens_max key_name "
    "password_hash_rounds token_count wheel_key output_token special_tokens pgp_key column_key",
}  # fmt: skip


@pytest.mark.parametrize(("level", "name"), [(level, name) for level, names in LEVELS.items() for name in names.split()])
def test_a_name_has_its_level(level: int, name: str) -> None:
    assert level_of(name) == level


def test_levels_are_in_order_and_words_have_one() -> None:
    assert PASSWORD > SECRET > TOKEN > KEY > 0
    assert {"password", "token", "key", "secret", "auth"} <= set(NAME_WORDS)
    assert all(word.isascii() for word in NAME_WORDS)
    assert {"signature", "hmac"} <= SIGNED


@pytest.mark.parametrize(
    ("text", "at", "end", "level"),
    [
        ("password=x", 0, 8, PASSWORD), ("db_password: x", 3, 11, PASSWORD), ("api_key = x", 4, 7, SECRET), ("token -> x", 0, 5, TOKEN),
        ('"password2": x', 1, 10, PASSWORD), ("--password x", 2, 10, PASSWORD), ("ENV PASSWORD x", 4, 12, PASSWORD), ("set -gx API_KEY x", 12, 15, SECRET),
        ("consul kv put a/password x", 16, 24, PASSWORD), ("the password is x", 4, 12, PASSWORD), ('variable "db_password" {', 13, 21, PASSWORD),
        ('ticket=x', 0, 0, 0), ("?ticket=x", 1, 7, KEY), ("password x", 0, 0, 0), ("passwords", 0, 0, 0), ('"AWS::IAM::AccessKey": x', 17, 0, 0),
        ("bypass=x", 2, 0, 0), ("a password, b", 2, 0, 0), ("sortkey=x", 4, 0, 0), ("userKey=x", 4, 7, SECRET),
    ],
)  # fmt: skip
def test_where_a_name_ends(text: str, at: int, end: int, level: int) -> None:
    found = name_at(text, text.lower(), at)
    assert (found.end, found.level, found.start) == (end, level, at) if found else end == 0


@pytest.mark.parametrize(
    ("text", "at", "is_field"),
    [
        ("user,password\nx", 5, True), ("password,user", 0, True), ("| password |", 2, True), ("password", 0, True), ('"password";"x"', 1, True),
        ("PASSWORD  ROLE", 0, True), ("password\\nx", 0, True), ("<th>Password</th>", 4, True), ("the password of it", 4, False), ("password.", 0, False),
    ],
)  # fmt: skip
def test_a_name_without_a_sign_is_a_field_or_a_word(text: str, at: int, is_field: bool) -> None:
    found = loose_at(text, text.lower(), at)
    assert found is not None
    assert (found.name.start, found.name.level, found.is_field) == (at, PASSWORD, is_field)


@pytest.mark.parametrize("text", ["passwordless", "passworded x", "monkey,x", "primary_key,x"])
def test_a_part_of_another_word_is_no_field(text: str) -> None:
    at = text.find("key") if "key" in text else 0
    assert loose_at(text, text, at) is None


def test_names_of_other_alphabets() -> None:
    for text in ("пароль: abc", "x" * 2000 + " пароль: abc", "密码: abc"):
        (found,) = foreign_names(text, text)
        assert text[found.start : found.end] in ("пароль", "密码")
        assert found.level == PASSWORD
    assert foreign_names("привет: abc", "привет: abc") == []


def test_the_level_decides_what_is_masked() -> None:
    """A password may be a word, a secret has a digit, a token is no word, a key is long and random."""
    mixed = "aB3dE6gH9jK2mN5pQ8sT1vW4"
    said = {name: mask(f'{name} = "{value}"')[1]["key"] for name in ("password", "client_secret", "token", "some_key") for value in ["walnut"]}
    assert said == {"password": 1, "client_secret": 0, "token": 0, "some_key": 0}
    assert [mask(f'{name} = "walnut-4two"')[1]["key"] for name in ("password", "client_secret", "token", "some_key")] == [1, 1, 1, 0]
    assert [mask(f'{name} = "{mixed}"')[1]["key"] for name in ("password", "client_secret", "token", "some_key")] == [1, 1, 1, 1]


ENDS = ["password", "passwd", "passwort", "passphrase", "passcode", "kennwort", "contrasena", "wachtwoord", "pwd", "pswd", "psw", "pass", "psk", "pin", "passwords", "mnemonic", "secret", "secrets", "apikey", "credential", "credentials", "creds", "totp", "connectionstring", "connection_string", "connection-string", "connstr", "conn_str", "conn_string", "webhook", "token", "tokens", "bearer", "jwt", "pat", "sas", "sig", "sid", "signature", "sessid", "sessionid", "session_id", "session-id", "session", "csrf", "xsrf", "verifier", "hmac", "otp", "cookie", "key", "keys", "auth", "cred", "parola", "heslo", "senha", "passe"]
SHORT = ["pwd", "pswd", "psw", "pass", "pin", "pat", "sas", "sig", "sid", "otp", "auth", "cred", "session", "passe", "jwt", "cookie", "tokens", "senha", "heslo"]
OF_KEYS = ["api", "access", "account", "app", "auth", "client", "consumer", "deploy", "encryption", "decryption", "hmac", "jwt", "license", "master", "private", "root", "secret", "service", "session", "shared", "signing", "ssh", "storage", "subscription", "user", "webhook", "write", "admin", "server", "host", "preshared", "aes", "rsa", "crypto", "cipher", "db", "database", "data", "transaction", "activation", "product", "vault", "integration", "ingest", "bot", "openai", "anthropic", "azure", "gcp", "aws", "google", "stripe", "github", "maps", "sendgrid", "datadog", "heroku", "algolia", "twilio", "mailgun", "cloudflare", "hf", "wandb"]
PUBLIC = ["public", "pub", "primary", "foreign", "sort", "cache", "partition", "hash", "dict", "group", "bucket", "idempotency", "natural", "hot", "index", "schema", "publishable", "row", "json", "column", "map", "item", "by", "next", "prev", "previous", "page", "nextpage", "continuation", "eos", "bos", "pad", "unk", "mask", "sep", "cls", "special", "stop", "start", "end", "max", "min", "num", "first", "last", "input", "output", "non", "is", "has", "no", "digital", "type", "mime", "code", "func", "method", "call", "wheel", "pgp", "gpg"]


@pytest.mark.parametrize("word", ENDS)
def test_every_word_ends_a_name(word: str) -> None:
    text = f"my_{word}=x"
    found = name_at(text, text, 3)
    assert found is not None
    assert (found.word, text[found.end]) == (word, "=")


@pytest.mark.parametrize("word", SHORT)
def test_a_short_word_inside_another_is_no_name(word: str) -> None:
    text = f"qx{word}=x"
    assert name_at(text, text, 2) is None
    upper = f"qx{word.title()}=x"
    assert name_at(upper, upper.lower(), 2) is not None


@pytest.mark.parametrize("word", OF_KEYS)
def test_keys_of_these_are_secret(word: str) -> None:
    assert (level_of(f"{word}_key"), level_of(f"{word}key")) == (SECRET, SECRET)


@pytest.mark.parametrize("word", PUBLIC)
def test_keys_tokens_and_other_weak_names_of_these_are_public(word: str) -> None:
    assert [level_of(f"{word}_{end}") for end in ("key", "token", "cred", "sid")] == [0, 0, 0, 0]
    assert level_of(f"{word}_password") == PASSWORD


@pytest.mark.parametrize("word", ["seed", "mnemonic", "recovery", "backup", "secret", "wallet", "pass", "bip39"])
def test_phrases_of_these_are_passwords(word: str) -> None:
    assert level_of(f"{word}_phrase") == PASSWORD


def test_a_private_key_in_base64_is_masked_and_its_beginning_alone_stays() -> None:
    block = "-----BEGIN EC PRIVATE KEY-----\n" + "aB3dE6gH9jK2mN5p" * 6
    told = base64.b64encode(block.encode()).decode()
    assert told not in mask(f"it is {told} now")[0]
    assert mask("it is LS0tLS1CRUdJTi now")[0] == "it is LS0tLS1CRUdJTi now"
