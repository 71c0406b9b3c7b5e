"""Secrets go, everything else stays: planted ones, innocent look-alikes, ids, references, and texts made to be slow."""

from __future__ import annotations

import base64
import importlib
import json
import pkgutil
import re
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import logs
from counterpoint.formats import masking
from counterpoint.formats.masking import glance, mask, masked, masked_all, patterns, secrets
from counterpoint.testing import odd_trace, synthetic_trace
from counterpoint.trace import Edge, Event, Trace, content_ref
from counterpoint.trace.edges import Edges

MIX = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0iL"
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join([MIX * 2] * 6) + "\n-----END RSA PRIVATE KEY-----"
JWT = ".".join("eyJ" + part for part in (MIX, MIX)) + "." + MIX

# Each: a text with one secret, the secret, its kind.
PLANTED: list[tuple[str, str, str]] = [
    *(
        (f"the key is {key}, keep it", key, "key")
        for key in (
            "sk-" + MIX, "sk-ant-" + "api03-" + MIX + "_-" + MIX, "sk-proj-" + MIX, "sk-or-v1-" + "0a1b" * 16, "sk_live_" + MIX,
            "ghp_" + MIX, "gho_" + MIX, "github_pat_" + MIX + "_" + MIX, "glpat-" + MIX[:20], "AKIA" + "ABCDEFGH12345678",
            "AIza" + MIX + "abc", "xoxb-" + "123456789012-" + MIX, "xoxp-" + MIX, "hf_" + MIX + "ab", "gsk_" + MIX, "npm_" + MIX + "abcd",
            "ya29." + MIX, "SG." + MIX[:22] + "." + MIX, "nvapi-" + MIX, "tvly-" + MIX, "lsv2_pt_" + "0a1b2c3d" * 4, JWT, PEM,
        )
    ),
    ("AKIA" + "ABCDEFGH12345678" + ", " + (MIX + MIX)[:40], (MIX + MIX)[:40], "key"),
    ("aws_secret_access_key = " + (MIX + MIX)[:40], (MIX + MIX)[:40], "key"),
    ("AWS_SECRET_ACCESS_KEY=" + MIX + "/+" + MIX[:6], MIX, "key"),
    ("curl -H 'Authorization: Bearer " + MIX + "' x", MIX, "key"),
    ("Authorization: Basic " + base64.b64encode(b"alice:hunter22").decode(), base64.b64encode(b"alice:hunter22").decode(), "key"),
    ('{"authorization": "token ' + MIX + '"}', MIX, "key"),
    ("uses bearer " + MIX + " there", MIX, "key"),
    ("password=hunter2", "hunter2", "key"),
    ("PASSWORD: hunter2!", "hunter2!", "key"),
    ("db_password = 'letmein'", "letmein", "key"),
    ('"password": "correct-horse"', "correct-horse", "key"),
    ("api_key=" + MIX, MIX, "key"),
    ("OPENAI_API_KEY: " + MIX, MIX, "key"),
    ('client.init(apiKey="' + MIX[:12] + '")', MIX[:12], "key"),
    ("x-api-key: " + MIX, MIX, "key"),
    ("?access_token=" + MIX + "&page=2", MIX, "key"),
    ("Server=db;Uid=sa;Pwd=hunter22;", "hunter22", "key"),
    ("postgres://alice:hunter2@db.local:5432/x", "hunter2", "key"),
    ("write to alice.smith+x@corp-mail.co.uk.", "alice.smith+x@corp-mail.co.uk", "email"),
    ("<bob@163.com>", "bob@163.com", "email"),
    ("a@b.io,c", "a@b.io", "email"),
    ("see /home/alice/work/x.py", "alice", "path"),
    ("in /Users/bob.smith", "bob.smith", "path"),
    ("file:///home/carol/x", "carol", "path"),
    (r"C:\Users\dave\Documents", "dave", "path"),
    ("C:/Users/erin/x", "erin", "path"),
    ("/mnt/c/Users/frank/x", "frank", "path"),
    ("~/.claude/projects/-Users-grace-code/x.jsonl", "grace", "path"),
    ("/tmp/-home-heidi-repo", "heidi", "path"),
]  # fmt: skip

INNOCENT = [
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    content_ref("x"),
    "@app.route('/x')",
    "\\n@pytest.fixture\\ndef x():",
    "+@pytest.mark.parametrize",
    "npm i @scope/pkg @types/node@18.2.0 lodash@4.17.21 react@19.0.0-rc.next",
    "git@github.com:org/repo.git",
    "icon@2x.png",
    "scores = q@k.transpose(-2, -1)",
    "x = a@b.T",
    "password = getpass()",
    "password: str = ''",
    "def login(user, password=None, token=''):",
    'token = os.environ["API_TOKEN"]',
    "api_key=settings.api_key",
    "api_key = config.keys2.main",
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <token>",
    "Authorization: Bearer YOUR_API_KEY",
    'api_key="your-api-key-here"',
    '{"password": "string", "token": "string"}',
    "password: ********",
    "max_tokens=4096, eos_token_id=50256, tokens: 123456789",
    '"input_tokens": 10234, "cache_read_input_tokens": 99182',
    "the token expired and the secret: nobody knows",
    "sk-toggleable__content sk-estimator-doc-link task-12345678901234567890123",
    "the bearer of bad news, bearer authentication_is_required_here",
    "hf_model_name_or_path xoxo AIzawa ghost_writer",
    "eyJust a word",
    'if "-----BEGIN PRIVATE KEY-----" in text:',
    "https://example.com/home/index.html and /home/$USER and /home/<you>/x and ~/x",
    "/Users/Shared/x /home/runner/work /api/users/12",
    "https://host:8080/path@v2",
    "PWD=/repo/x1 OLDPWD=/repo/y2 pwd: src/module2",
    "key=value1234 sort_key=name12345 primary_key=True",
    "[masked:key:0001] [masked:email:00ff]",
]


@pytest.mark.parametrize(("text", "secret", "kind"), PLANTED, ids=[f"{k}-{i}" for i, (_, _, k) in enumerate(PLANTED)])
def test_a_planted_secret_is_gone(text: str, secret: str, kind: str) -> None:
    new, found = mask(text)
    assert secret not in new
    assert found[kind] >= 1
    assert f"[masked:{kind}:0001]" in new


@pytest.mark.parametrize(("text", "secret", "kind"), PLANTED, ids=[f"{k}-{i}" for i, (_, _, k) in enumerate(PLANTED)])
def test_it_is_gone_from_json_too(text: str, secret: str, kind: str) -> None:
    written = json.dumps({"cmd": f"first\n{text}\nlast"})
    for wrapped in (written, json.dumps(written)):
        new, found = mask(wrapped)
        bare = json.dumps(secret)[1:-1]
        assert bare not in new
        assert json.dumps(bare)[1:-1] not in new
        assert found[kind] >= 1
        assert "last" in new
        json.loads(new)


@pytest.mark.parametrize("text", INNOCENT)
def test_an_innocent_text_stays(text: str) -> None:
    assert mask(text) == (text, Counter())
    wrapped = json.dumps({"x": f"a\n{text}\n"})
    assert mask(wrapped) == (wrapped, Counter())


def test_the_tail_of_a_path_stays() -> None:
    assert mask("/home/alice/work/x.py")[0] == "/home/[masked:path:0001]/work/x.py"
    assert mask(r"C:\Users\dave\x")[0] == r"C:\Users\[masked:path:0001]\x"


def test_the_same_secret_has_the_same_label_and_another_another() -> None:
    new, found = mask("a@x.io b@x.io a@x.io /home/a/x /home/a/y")
    assert new == "[masked:email:0001] [masked:email:0002] [masked:email:0001] /home/[masked:path:0001]/x /home/[masked:path:0001]/y"
    assert found == {"email": 3, "path": 2}


def test_a_label_says_nothing_about_the_secret() -> None:
    assert mask("a@x.io")[0] == mask("somebody.else@other.org")[0]


def test_labels_that_are_there_are_not_given_again() -> None:
    assert mask("[masked:email:0001] a@x.io")[0] == "[masked:email:0001] [masked:email:0002]"


PIECES = st.one_of(
    st.sampled_from([text for text, _, _ in PLANTED]),
    st.sampled_from([secret for _, secret, _ in PLANTED]),
    st.sampled_from(INNOCENT),
    st.sampled_from(['password="', "token=", "Bearer ", "@", "/home/", "://", "sk-", "\\n", "İ", "é", "\ud800", ".com", "-----END", "eyJ", '"', "'"]),
    st.text(max_size=8),
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


@given(TEXTS)
def test_masking_twice_is_masking_once(text: str) -> None:
    new, _ = mask(text)
    assert mask(new) == (new, Counter())


@given(st.lists(st.sampled_from(PLANTED), min_size=1, max_size=5), st.sampled_from([" ", "\n", "\n\n", " | ", "; "]))
def test_every_one_of_several_is_gone(planted: list[tuple[str, str, str]], between: str) -> None:
    new, found = mask(between.join(text for text, _, _ in planted))
    left = new
    for kind in ("key", "email", "path"):
        left = left.replace(f"[masked:{kind}:", "")
    assert not [secret for _, secret, _ in planted if len(secret) > 5 and secret in left]
    assert found.total() >= len({secret for _, secret, _ in planted})


def planted_trace() -> Trace:
    said, thought, plain = "mail a@x.io", "password=hunter2", "nothing here"
    contents = {content_ref(t): t for t in (said, thought, plain)}
    common = {"t": 0, "role": "a@x.io", "tool": "/home/alice/bin", "model": "a@x.io", "key": "a@x.io", "policy": "a@x.io"}
    return Trace(
        trace_id="a@x.io",
        task_id="/home/alice/x",
        system="a@x.io",
        events=[
            Event(id="a@x.io", type="message", agent="b@x.io", from_="b@x.io", to="c@x.io", content_ref=content_ref(said), **common),
            Event(
                id="/home/alice",
                type="tool_call",
                agent="b@x.io",
                content_ref=content_ref(plain),
                error="no /home/alice/x",
                task="ask a@x.io",
                extra={
                    "thinking_ref": content_ref(thought),
                    "deep": [{"note": "to a@x.io", "n": 3, "is": None}],
                    "api_key": MIX,
                    "token": "string",
                    "a@x.io": 1,
                },
                **common,
            ),
        ],
        edges=[Edge("a@x.io", "/home/alice", "causal")],
        meta={"cwd": "/home/alice/x", "injections": {"v": content_ref(said)}, "password": "[masked:key:0001]"},
        contents=contents,
    )


def test_every_string_is_masked_and_the_trace_stays_linked() -> None:
    trace = planted_trace()
    new, found = masked(trace)
    mail, name = "[masked:email:0001]", "/home/[masked:path:0001]"
    first, second = new.events
    assert (new.trace_id, new.task_id, new.system) == (mail, f"{name}/x", mail)
    assert [e.id for e in new.events] == [mail, name]
    assert list(new.edges) == [Edge(mail, name, "causal")]
    assert first.agent == first.from_ == second.agent != first.to
    assert (first.role, first.tool, first.model, first.key, first.policy) == (mail, f"{name}/bin", mail, mail, mail)
    assert new.text(first) == f"mail {mail}"
    assert new.text(second) == "nothing here"
    assert second.content_ref == trace.events[1].content_ref
    assert (second.error, second.task) == (f"no {name}/x", f"ask {mail}")
    extra: dict[str, Any] = second.extra or {}
    assert re.fullmatch(r"password=\[masked:key:000[23]\]", new.contents[extra["thinking_ref"]])
    assert extra["deep"] == [{"note": f"to {mail}", "n": 3, "is": None}]
    assert re.fullmatch(r"\[masked:key:000[23]\]", extra["api_key"])
    assert (extra["token"], extra[mail]) == ("string", 1)
    assert new.meta["cwd"] == f"{name}/x"
    assert new.meta["injections"] == {"v": first.content_ref}
    assert new.meta["password"] == "[masked:key:0001]"
    assert all(ref == content_ref(text) for ref, text in new.contents.items())
    assert set(found) == {"email", "key", "path"}
    assert masked(new) == (new, Counter())
    logs.assert_sound(new)


def test_different_ids_stay_different_and_edges_fit() -> None:
    one, two = "ghp_" + MIX + "abcd", "ghp_" + MIX + "efgh"
    ids = [one, one.replace("_", "%5F"), two, f"x {one}", "[masked:key:0001]", "plain"]
    events = [Event(id=name, t=k, type="message", agent=name) for k, name in enumerate(ids)]
    edges = [Edge(a, b, "causal") for a, b in pairwise(ids)]
    new, _ = masked(Trace(trace_id="t", task_id="t", events=events, edges=edges))
    now = [e.id for e in new.events]
    assert len(set(now)) == len(ids)
    assert now == [e.agent for e in new.events]
    assert [(e.src, e.dst) for e in new.edges] == list(pairwise(now))
    assert now[4:] == ["[masked:key:0001]", "plain"]
    assert MIX not in "".join(now)


def test_edges_that_are_arrays_follow_their_events() -> None:
    events = [Event(id=f"a@x.io/{k}", t=k, type="message", agent="a") for k in range(3)]
    edges = Edges(events, np.array([0, 1], np.int32), np.array([1, 2], np.int32), np.zeros(2, np.uint8))
    new, _ = masked(Trace(trace_id="t", task_id="t", events=events, edges=edges))
    assert isinstance(new.edges, Edges)
    assert [(e.src, e.dst) for e in new.edges] == list(pairwise(e.id for e in new.events))
    assert "x.io" not in "".join(e.id for e in new.events)


def test_what_was_found_in_one_place_is_masked_in_all() -> None:
    said = "password=hunter22 was set"
    events = [Event(id="hunter22", t=0, type="message", agent="the hunter22 one", content_ref=content_ref(said), extra={"a": ["hunter22"], "b": "xhunter22x"})]
    new, _ = masked(Trace(trace_id="t", task_id="t", events=events, contents={content_ref(said): said}))
    (event,) = new.events
    assert (event.id, event.agent) == ("[masked:key:0001]", "the [masked:key:0001] one")
    assert new.text(event) == "password=[masked:key:0001] was set"
    assert event.extra == {"a": ["[masked:key:0001]"], "b": "xhunter22x"}


def test_a_secret_has_one_label_in_every_spelling_and_in_all_traces_that_leave_together() -> None:
    token = "ghp_" + MIX + "abcd"
    spelled = [token, "".join(f"%{ord(c):02X}" for c in token), token[:9] + "\u200b" + token[9:], token[:20] + "\n" + token[20:]]
    traces = [Trace(trace_id=f"t{k}", task_id="t", events=[], meta={"a": text}) for k, text in enumerate(spelled)]
    done = masked_all(traces)
    assert [trace.meta["a"] for trace in done.traces] == ["[masked:key:0001]"] * 4
    assert done.where == {("key", "github", "meta.a"): 4}
    assert masked_all(traces) == done


def test_names_make_their_values_secrets() -> None:
    meta = {"password": "sesame", "pin": 12345678, "keys": ["x"], "env": [{"name": "DB_PASSWORD", "value": "sesame-two"}], "argv": ["run", "--password", "sesamethree"],
            "tokens": 12345, "max_tokens": 4096, "api_keys": [MIX]}  # fmt: skip
    new, _ = masked(replace(odd_trace(), meta=meta))
    left = json.dumps(new.meta)
    assert "sesame" not in left
    assert "12345678" not in left
    assert MIX not in left
    assert (new.meta["tokens"], new.meta["max_tokens"], new.meta["keys"]) == (12345, 4096, ["x"])


def test_counting_says_what_masking_would_do() -> None:
    trace = planted_trace()
    assert secrets(trace) == masked(trace)[1]
    assert trace == planted_trace()


@pytest.mark.parametrize("trace", [synthetic_trace(3, 9, contents=True), odd_trace()], ids=["synthetic", "odd"])
def test_a_trace_without_secrets_is_the_same_one(trace: Trace) -> None:
    assert masked(trace)[0] is trace
    assert secrets(trace) == Counter()


def test_a_reference_that_is_no_hash_of_ours_is_kept_or_replaced_whole() -> None:
    trace = replace(odd_trace(), contents={"foreign:1": "a@x.io", "foreign:2": "plain"})
    new, _ = masked(trace)
    assert new.contents == {content_ref("[masked:email:0001]"): "[masked:email:0001]", "foreign:2": "plain"}


N = 4_000
SLOW = [
    "a" * N, "a." * N, "a@" * N, "@a." * N, "a@" + "b." * N, "a@a.a@" * (N // 4), "sk-" * N, "sk-ant-" + "-" * N, "eyJ" * N, "eyJaaaaaaaa." * (N // 4),
    "-----BEGIN PRIVATE KEY-----" * (N // 20), "-----BEGIN PRIVATE KEY-----\n" + "A" * N, "Bearer " * N, "authorization: " * (N // 4),
    "password" * (N // 8), "password=" * (N // 8), 'password="' * (N // 8), "token" + " " * N, 'secret\\"' * (N // 8), "\\" * N,
    "/home/" * (N // 4), "/home/" + "a" * N, "/Users/" * (N // 4), "://" * N, "://a:" + "b" * N, "AKIA" * N, "AKIA" + "A" * N,
    "://:@" * (N // 4), "SG." * N, "xoxb-" * N, "password: '" + "x" * N, "İ@" * N,
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(SLOW)))
def test_no_text_makes_it_slow(k: int) -> None:
    """What takes time here is in proportion to the text: `test_mask_kinds` says that by the patterns; this one only goes through."""
    new, _ = mask(SLOW[k])
    assert mask(new)[1] == Counter()


@settings(max_examples=30)
@given(st.dictionaries(st.text(max_size=5), st.recursive(st.none() | st.integers() | TEXTS, lambda c: st.lists(c, max_size=3)), max_size=3))
def test_meta_of_any_shape(meta: dict[str, Any]) -> None:
    trace = replace(odd_trace(), meta=meta)
    new, found = masked(trace)
    assert found == secrets(trace)
    assert masked(new) == (new, Counter())


@pytest.mark.shared
def test_home_folders_and_addresses_of_real_logs_are_gone() -> None:
    for name in ("agentdojo", "who_and_when"):
        for trace in logs.imported(name, logs.files_of(logs.real(name))):
            new, found = masked(trace)
            assert secrets(trace) == found
            texts = "\n".join(new.contents.values())
            for host in ("@gmail.com", "@bluesparrowtech.com", "@yahoo.com"):
                assert host not in texts
            logs.assert_sound(new)


def test_a_glance_counts_what_masking_takes_out_of_texts() -> None:
    texts = ["mail eve@example.org", "key sk-ant-api03-abcdEFGH1234ijkl5678 end", "nothing here", "größer 日本 /home/" + "ada/x"]
    trace = Trace(trace_id="t", task_id="t", events=[], contents={content_ref(text): text for text in texts})
    assert {kind: len(found) for kind, found in glance(trace).items()} == masked(trace)[1] == Counter(email=1, key=1, path=1)


def test_every_pattern_can_be_compiled_when_it_is_asked_for() -> None:
    names = [name for _, name, _ in pkgutil.iter_modules(masking.__path__)]
    modules = [masking, *(importlib.import_module(f"{masking.__name__}.{name}") for name in names)]
    lazy = [value for module in modules for value in vars(module).values() if type(value) is type(patterns.lazy(""))]
    assert len(lazy) > 100
    assert all(re.compile(one.pattern, one.flags) for one in lazy)


def test_a_pattern_is_made_on_first_use_and_once() -> None:
    made = []
    one = patterns.lazy(lambda: made.append(1) or "a+", re.IGNORECASE)
    assert not made
    assert [one.findall("bAaab"), one.search("xA")[0], one.pattern] == [["Aaa"], "A", "a+"]
    assert made == [1]
