"""Secrets and harmless look-alikes drawn anew: what a form hides is masked whatever its values, and what opens nothing stays."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from counterpoint.formats import masking
from counterpoint.formats.masking import encodings, mask, masked_all, people, personal, prose, seeds, tables
from counterpoint.trace import Trace
from mask_drawn import DEVELOPED, HARMLESS, HELD_OUT, drawn

SEEDS = (3, 77)


def test_there_are_enough_forms() -> None:
    assert len(set(DEVELOPED)) >= 150
    assert len(set(HELD_OUT)) >= 100
    assert len(set(HARMLESS)) >= 80
    assert not set(DEVELOPED) & set(HELD_OUT)
    assert all(one.secrets for one in drawn([*DEVELOPED, *HELD_OUT], 0))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_form_leaks(seed: int) -> None:
    left = {one.form: mask(one.text)[0] for one in drawn(DEVELOPED, seed) if any(secret in mask(one.text)[0] for secret in one.secrets)}
    assert left == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_few_forms_leak_that_no_rule_was_written_for(seed: int) -> None:
    left = [one.form for one in drawn(HELD_OUT, seed) if any(secret in mask(one.text)[0] for secret in one.secrets)]
    assert len(left) <= 0.06 * len(HELD_OUT), left


@pytest.mark.parametrize("seed", SEEDS)
def test_what_looks_alike_and_opens_nothing_stays(seed: int) -> None:
    changed = {one.text: mask(one.text)[0] for one in drawn(HARMLESS, seed) if mask(one.text)[0] != one.text}
    assert changed == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_masking_a_drawn_text_twice_is_masking_it_once(seed: int) -> None:
    for one in drawn([*DEVELOPED, *HARMLESS], seed):
        new = mask(one.text)[0]
        assert mask(new) == (new, Counter()), one.form


def test_repetitions_are_bounded() -> None:
    unbounded = re.compile(r"(?<!\\)(?:[*+](?![+])|\{\d+,\}(?![+]))")
    asked_of_a_value = {"_NO_PASSWORD", "_PLAIN"}
    for module in (people, personal, prose, seeds, tables, encodings):
        for name, pattern in vars(module).items():
            if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str) and name not in asked_of_a_value:
                plain = re.sub(r"\\.", "", pattern.pattern)
                plain = re.sub(r"\[\^?\]?[^\]]*\]", "C", plain)
                plain = re.sub(r"(?:[*+]|\{\d*,?\d*\})\+", "", plain)
                assert not unbounded.search(plain), (module.__name__, name)


def _luhn(digits: str) -> str:
    total = sum(sum(divmod(2 * int(d), 10)) if k % 2 == 0 else int(d) for k, d in enumerate(reversed(digits)))
    return digits + str(-total % 10)


def _iban(country: str, account: str) -> str:
    number = int("".join(str(int(c, 36)) for c in account + country + "00"))
    return f"{country}{98 - number % 97:02d}{account}"


@pytest.mark.parametrize("seed", range(5))
def test_personal_numbers_are_masked_where_that_is_asked(seed: int) -> None:
    rng = random.Random(seed)

    def digits(n: int) -> str:
        return "".join(str(rng.randrange(10)) for _ in range(n))

    card, iban = _luhn("4" + digits(14)), _iban("DE", digits(18))
    texts = {
        f"card {card} ok": card,
        f"pay {card[:4]} {card[4:8]} {card[8:12]} {card[12:]}": card[12:],
        f"to {iban}.": iban,
        f"to {' '.join(iban[k : k + 4] for k in range(0, 22, 4))} today": iban[4:8],
        f"call +49 {digits(3)} 9{digits(6)}": "+49",
        f"Telefon: 0{digits(3)}/{digits(6)}": "/",
        f"from 10.{rng.randrange(1, 255)}.3.{rng.randrange(1, 255)} port 22": "10.",
        "from 2a02:8108:8ac0:1f6a::1 on": "8ac0",
        f"YWRtaW46c3dvcmRmaXNo{rng.choice(['Nzc=', 'ODg='])}": "YWRtaW4",
    }
    for text, gone in texts.items():
        assert mask(text) == (text, Counter()), text
        new, found = mask(text, is_personal=True)
        assert gone not in new, text
        assert found.total() >= 1


def test_numbers_that_pass_no_check_stay() -> None:
    wrong = _luhn("4556737586899")[:-1] + "0"
    for text in (
        wrong, "order 1234567890123", "127.0.0.1 and 0.0.0.0 and 192.0.2.7 and ::1", "Chrome/120.0.6099.109", "version 1.2.3.4", "DE00 1234 5678 9012 3456 78",
        "12:30:45", "2026-11-18 12:00", "0.000000000001234", "tokens 4111111", "1.2.3", "std::vector<int>", "a::b::c", "fe",
    ):  # fmt: skip
        assert mask(text, is_personal=True) == (text, Counter()), text


def test_personal_numbers_leave_a_trace_with_a_kind_of_their_own() -> None:
    trace = Trace(trace_id="t", task_id="t", events=[], meta={"note": "from 10.1.2.3"})
    assert masked_all([trace]).traces == [trace]
    done = masked_all([trace], is_personal=True)
    assert done.traces[0].meta == {"note": "from [masked:personal:0001]"}
    assert done.by_kind == {"personal": 1}
    assert masked_all(done.traces, is_personal=True).traces == done.traces


def test_a_glance_counts_values_and_not_places() -> None:
    text = "a@x.io a@x.io b@x.io " + "see /Users/" + "ann/x and /Users/" + "ann/y"
    found = masking.glance(Trace(trace_id="t", task_id="t", events=[], contents={"1": text, "2": text + "!"}))
    assert {kind: len(values) for kind, values in found.items()} == {"email": 2, "path": 1}


SAID = [
    ("user,password\nann,hunter22\n", "user,password\nann,[masked:key:0001]\n"),
    ("| who | password |\n|---|---|\n| ann | hunter22 |", "| who | password |\n|---|---|\n| ann | [masked:key:0001] |"),
    ("INSERT INTO u (a, password) VALUES ('x', 'hunter22')", "INSERT INTO u (a, password) VALUES ('x', '[masked:key:0001]')"),
    ("das Passwort lautet hunter22.", "das Passwort lautet [masked:key:0001]."),
    ("use hunter22 as the password", "use [masked:key:0001] as the password"),
    ("set -gx DB_PASSWORD hunter22", "set -gx DB_PASSWORD [masked:key:0001]"),
    ("Backup codes: 1234-5678, 8765-4321", "Backup codes: [masked:key:0001], [masked:key:0002]"),
    ("/var/" + "home/ann/x", "/var/home/[masked:path:0001]/x"),
    ("cd ~ann/x", "cd ~[masked:path:0001]/x"),
    ('variable "db_password" {\n  type = string\n  default = "hunter22"\n}', 'variable "db_password" {\n  type = string\n  default = "[masked:key:0001]"\n}'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), SAID)
def test_only_the_secret_goes(text: str, wanted: str) -> None:
    assert mask(text)[0] == wanted


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
NO_DIGIT = [
    "The password for the router is «p».", "Das Passwort für den Router lautet «p»", "Le mot de passe du routeur est «p»", "use «p» as the password",
    "log in as admin with password «p»", "credentials: admin / «p»", '{"client_secret": "«p»"}', "CLIENT_SECRET=«p»", 'DB_PASSWORD="«p» «q»"', '{"token": "«p»"}',
    "client_secret: «p»", "password: «p»",
]  # fmt: skip


def _no_digit(rng: random.Random, signs: str) -> str:
    """A word, letters by chance, and a sign between them; at least one capital stands inside, as chance has it."""
    odd = rng.choice(["oFcSv", "EGLmm", "zaQyy", "tLeRk", "UnnXo", "hZfeW", "bQQsT", "LFomE"])
    return rng.choice(["kaktus", "Regen", "sommer", "fenster"]) + odd + rng.choice(signs) + "".join(rng.choice(LETTERS) for _ in range(3))


@pytest.mark.parametrize("form", NO_DIGIT)
def test_a_password_of_both_cases_and_a_sign_needs_no_digit(form: str) -> None:
    rng = random.Random(form)
    for _ in range(20):
        values = {"«p»": _no_digit(rng, "!#%*?@^$"), "«q»": _no_digit(rng, "!#%*?@^")}
        text = re.sub("«.»", lambda found, values=values: values[found[0]], form)
        new = mask(text)[0]
        assert not [value for place, value in values.items() if place in form and value in new], text


@pytest.mark.parametrize("value", ["kaktusoFcSv+AxR", "RegenLbQm&fCn", "sommerQaXz=pPq"])
def test_signs_that_join_words_join_no_words_here(value: str) -> None:
    for text in (f"the password is {value}", f"with password {value} please", f"api_key: {value}", f"db_password: {value}", f'"client_secret": "{value}"'):
        assert value not in mask(text)[0], text


@pytest.mark.parametrize("text", [
    "pass this@MainActivity to it", "pass User#toString here", "pass Ctrl+Shift+P on", "api_key: String+Sync", '{"token": "Foo@Barista"}', "pass minLength=True",
    '{"user_key": "Ctrl+Shift+P"}', "client_secret: this.config!.clientSecret", "secret = config!.secretKey;", "token: this.state?.userToken", "password: Optional=None",
    "https://x.io/login/GettingStartedWithOAuth2", "https://x.io/verify/HowToVerifyYourEmailAddress", "https://x.io/invite/useSyncExternalStore",
])  # fmt: skip
def test_words_and_code_with_signs_stay(text: str) -> None:
    assert mask(text) == (text, Counter())


@pytest.mark.parametrize(("size", "most"), [(16, 4), (20, 3), (24, 1), (36, 0), (43, 0)])
def test_a_link_that_lets_in_is_masked_whatever_was_drawn(size: int, most: int) -> None:
    """Of 150; a short one may look like words in CamelCase by chance."""
    rng = random.Random(size)
    values = ["".join(rng.choice(LETTERS + "0123456789") for _ in range(size)) for _ in range(150)]
    left = [value for value in values if mask(f"https://app.example/reset-password/{value}")[0] != "https://app.example/reset-password/[masked:key:0001]"]
    assert len(left) <= most, left


def test_keys_of_vendors_may_have_capitals() -> None:
    for key in ("sk-helicone-aB3dE6g-H9jK2mN-5pQ8sT1-vW4yZ7c", "pk-helicone-AB3DE6G-H9JK2MN-5PQ8ST1-VW4YZ7C", "napi_" + "aB3dE6gH9jK2mN5p" * 4, "csk-" + "aB3dE6gH9jK2mN5p" * 3):
        assert mask(f"it is {key} now")[0] == "it is [masked:key:0001] now"


@pytest.mark.parametrize("text", ["name,token\nx,step-12ab\ny,step-13cd\n", "7z x -pdocs/part2 a.7z", "rar a -p8080 x.rar"])
def test_a_weak_name_and_a_doubtful_option_ask_for_more(text: str) -> None:
    assert mask(text) == (text, Counter())
