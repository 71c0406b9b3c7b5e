"""The watch: what it tells, once, over kills; what it costs when nothing grows; and what it refuses."""

from __future__ import annotations

import hashlib
import hmac
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from counterpoint.app.cli import cli, main
from counterpoint.app.discover import read_logs
from counterpoint.app.watch import watcher
from counterpoint.app.watch.alert import Alert, alert_id
from counterpoint.app.watch.channels import Mail, NotTaken, Webhook
from counterpoint.app.watch.folders import Folders
from counterpoint.app.watch.ledger import Ledger
from counterpoint.app.watch.rules import doublings, judgement
from counterpoint.app.watch.settings import EXAMPLE, Rules, WatchSettings, watch_settings
from counterpoint.errors import InputError, NotFound, TryAgain
from counterpoint.store import Store
from counterpoint.store.annotations import IssueMark

CLAUDE = Path(__file__).parents[2] / "examples" / "logs" / "claude_code"
CPT = (sys.executable, "-u", "-c", "from counterpoint.app.cli import main; main()")


def stamp(second: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)) + ".000Z"


def session(name: str, *, failures: int = 3, is_open: bool = False, began: float = 1_790_000_000.0) -> str:
    """A session of Claude Code: so many failures of one command, and perhaps a call that nobody answers."""
    about = {"sessionId": name, "cwd": "/home/ada/shop", "version": "2.0.14", "isSidechain": False, "userType": "external", "gitBranch": "main"}
    rows: list[dict[str, Any]] = [{"type": "user", "message": {"role": "user", "content": "Mend the build"}}]

    def call(n: int, command: str) -> dict[str, Any]:
        use = {"type": "tool_use", "id": f"toolu_{name}_{n}", "name": "Bash", "input": {"command": command}}
        usage = {"input_tokens": 10, "output_tokens": 5}
        message = {"id": f"msg_{name}_{n}", "role": "assistant", "model": "claude-sonnet-4-5", "content": [use], "usage": usage}
        return {"type": "assistant", "message": {"type": "message", **message}}

    for n in range(failures):
        answer = {"type": "tool_result", "tool_use_id": f"toolu_{name}_{n}", "is_error": True, "content": "make: gcc: No such file or directory"}
        rows += [call(n, f"make -j{n}"), {"type": "user", "message": {"role": "user", "content": [answer]}}]
    if is_open:
        rows.append(call(failures, "sleep 99999"))
    lines = []
    for n, row in enumerate(rows):
        parent = f"{name}-{n - 1}" if n else None
        lines.append(json.dumps({"uuid": f"{name}-{n}", "parentUuid": parent, "timestamp": stamp(began + n), **about, **row}))
    return "\n".join(lines) + "\n"


def run(*args: str | Path) -> Any:
    return CliRunner().invoke(cli, ["watch", *map(str, args)])


def told(output: str) -> list[dict[str, Any]]:
    """The alerts among the lines of `--json`."""
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [row for row in rows if row.get("kind") == "alert"]


# -- a receiver --------------------------------------------------------------------------------------------------------


class Receiver(ThreadingHTTPServer):
    """A webhook: it keeps what it took, and can be told to refuse."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?a=b"

    def ids(self) -> Counter[str]:
        return Counter(headers["Idempotency-Key"] for headers, _ in list(self.taken))


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.answers.pop(0) if self.server.answers else 204
        if status == 204:
            self.server.taken.append((dict(self.headers), body))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def an_alert(name: str = "r1") -> Alert:
    words = "make: No such file, 3 times"
    return Alert(id=alert_id("failure", name, "x"), rule="failure", trace_id=name, title="Mend <it>", project="shop", agent="main", event="e3", words=words, at=1_790_000_000.0)


# -- what is told ------------------------------------------------------------------------------------------------------


def test_three_failures_of_a_kind_are_told_once(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(session("aaaa", failures=2))
    (tmp_path / "b.jsonl").write_text(session("bbbb", failures=3))
    done = run(tmp_path, "--once", "--json", "--store", tmp_path / "s")
    assert done.exit_code == 4, done.output
    alert = told(done.output)[0]
    assert [(one["rule"], one["trace_id"]) for one in told(done.output)] == [("failure", "bbbb")]
    assert "3 times" in alert["words"]
    assert alert["project"] == "shop"
    again = run(tmp_path, "--once", "--json", "--store", tmp_path / "s")
    assert (again.exit_code, told(again.output)) == (0, [])
    (tmp_path / "b.jsonl").write_text(session("bbbb", failures=9))
    assert told(run(tmp_path, "--once", "--json", "--store", tmp_path / "s").output) == []  # it is the same event


def test_what_is_old_is_imported_and_not_told_and_what_is_new_in_it_is(tmp_path: Path) -> None:
    log, began = tmp_path / "a.jsonl", time.time() - 90_000
    log.write_text(session("aaaa", failures=3, began=began))
    os.utime(log, (began + 100, began + 100))
    assert run(tmp_path, "--once", "--store", tmp_path / "s").exit_code == 0
    with Store(tmp_path / "s", create=False) as store:
        assert store.ids() == ["aaaa"]
    with log.open("a") as file:  # the run goes on: its old failures stay untold
        file.write(session("aaaa", failures=0, is_open=True, began=time.time()))
    assert told(run(tmp_path, "--once", "--json", "--store", tmp_path / "s").output) == []
    back = run(tmp_path, "--once", "--json", "--newest", "3d", "--store", tmp_path / "t")
    assert [one["rule"] for one in told(back.output)] == ["failure"]


def test_a_call_without_an_answer_is_told_when_nothing_grew_for_the_minutes(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text(session("aaaa", failures=0, is_open=True, began=time.time()))
    assert told(run(tmp_path, "--once", "--json", "--store", tmp_path / "s").output) == []
    os.utime(log, (time.time() - 660, time.time() - 660))
    (one,) = told(run(tmp_path, "--once", "--json", "--store", tmp_path / "s").output)
    assert (one["rule"], one["event"]) == ("stuck", "toolu_aaaa_0")
    assert one["words"].startswith("Bash: sleep 99999 has no answer, and nothing grew, for 10m")
    assert told(run(tmp_path, "--once", "--json", "--store", tmp_path / "s").output) == []


def test_sums_are_told_at_the_limit_and_at_each_doubling() -> None:
    assert [doublings(n, 10) for n in (0, 9.99, 10, 19.99, 20, 39, 40, 80)] == [-1, -1, 0, 0, 1, 1, 2, 3]
    (trace,) = read_logs(CLAUDE / "projects" / "-repo-shop")
    rules = Rules(stuck_minutes=0, failures=0, loops=0, agents=1, depth=0, dollars=0, tokens=5_000, injections=False)
    spawns = sum(e.type == "spawn" for e in trace.events)
    found = judgement(trace, rules).alerts
    assert [one.rule for one in found] == ["spend", "runaway"]
    assert f"{spawns} sub-agents were started, over the limit of 1" in found[1].words
    assert found[0].id == alert_id("spend", trace.trace_id, "tokens", "1")  # 12,501 of 5,000: doubled once
    last = max(e.at or 0.0 for e in trace.events)
    assert judgement(trace, rules, quiet_until=last + 1e6).alerts == []


def test_what_was_resolved_and_happens_again_is_a_regression_and_what_is_ignored_is_silent(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(session("aaaa"))
    (trace,) = read_logs(tmp_path)
    key = judgement(trace, Rules(), {}).alerts
    from counterpoint.audits.symptoms import symptoms

    (symptom,) = (one for one in symptoms(trace) if one.kind == "failure")
    assert [one.rule for one in key] == ["failure"]
    resolved = IssueMark(key=symptom.key, state="resolved", by="ada", at=1_700_000_000.0)
    assert [one.rule for one in judgement(trace, Rules(), {symptom.key: resolved}).alerts] == ["regression"]
    later = IssueMark(key=symptom.key, state="resolved", by="ada", at=1_800_000_000.0)
    assert judgement(trace, Rules(), {symptom.key: later}).alerts == []
    ignored = IssueMark(key=symptom.key, state="ignored", by="ada", at=0.0)
    assert judgement(trace, Rules(), {symptom.key: ignored}).alerts == []


def test_texts_are_masked(tmp_path: Path) -> None:
    key = "sk-" + "ant-api03-" + "Zx9" * 20
    (tmp_path / "a.jsonl").write_text(session("aaaa").replace("gcc:", f"gcc {key}:"))
    output = run(tmp_path, "--once", "--json", "--store", tmp_path / "s").output
    assert told(output)
    assert key not in json.dumps(told(output))
    assert key not in (tmp_path / "s" / "watch" / "ledger.jsonl").read_text()


# -- while it runs -----------------------------------------------------------------------------------------------------


def test_a_running_watch_sees_a_session_grow_and_a_new_one(tmp_path: Path) -> None:
    source = CLAUDE / "projects" / "-repo-old" / "0b000000-0000-4000-8000-00000000000b.jsonl"
    lines = source.read_bytes().splitlines(keepends=True)
    log = tmp_path / "logs" / "p" / source.name
    log.parent.mkdir(parents=True)
    log.write_bytes(b"".join(lines[:4]))  # as far as the sub-agent's call of a tool
    process = subprocess.Popen([*CPT, "watch", "logs", "--json", "--store", "traces"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["status"] == "added"
        with Store(tmp_path / "traces", create=False) as store:
            call = next(e for e in store.get(source.stem).events if e.type == "tool_call")
            assert call.dur is None
        with log.open("ab") as file:
            file.write(b"".join(lines[4:])[:-10])
        assert json.loads(process.stdout.readline())["status"] == "updated"
        with Store(tmp_path / "traces", create=False) as store:
            trace = store.get(source.stem)
            assert next(e for e in trace.events if e.id == call.id).dur == 1.0
        (tmp_path / "logs" / "q").mkdir()
        (tmp_path / "logs" / "q" / "b.jsonl").write_text(session("bbbb"))
        assert json.loads(process.stdout.readline())["traces"] == ["bbbb"]
        assert json.loads(process.stdout.readline())["rule"] == "failure"
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


KILLS = 50


def test_no_event_is_lost_and_none_comes_under_two_keys_over_fifty_kills(tmp_path: Path) -> None:
    """Sessions are written while the watch is killed again and again; the receiver gets every alert, and no other key."""
    draw = random.Random(7)
    logs, store = tmp_path / "logs", tmp_path / "s"
    logs.mkdir()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["counterpoint.app.cli.watch", "counterpoint.app.watch.watcher", "counterpoint.app.watch.outbox"])
    with receiver() as hook:
        settings = tmp_path / "alerts.toml"
        settings.write_text(f'[tell]\nwebhooks = ["{hook.url}"]\n')
        args = ["watch", str(logs), "--json", "--alerts", str(settings), "--store", str(store)]
        expected = set()
        for n in range(KILLS):
            process = context.Process(target=main, args=(args,))
            process.start()
            name = f"run{n:03}"
            text = session(name)
            (logs / f"{name}.jsonl").write_text(text[: len(text) // 2])  # torn in the middle of a record
            time.sleep(draw.uniform(0.05, 0.9))
            with (logs / f"{name}.jsonl").open("a") as file:
                file.write(text[len(text) // 2 :])
            expected.add(name)
            time.sleep(draw.uniform(0.0, 0.6))
            assert process.is_alive()
            process.kill()
            process.join()
        last = run(logs, "--once", "--alerts", settings, "--store", store)
        assert last.exit_code in (0, 4), last.output
        bodies = {headers["Idempotency-Key"]: json.loads(body) for headers, body in hook.taken}
        assert sorted(body["trace_id"] for body in bodies.values()) == sorted(expected)
        assert {body["rule"] for body in bodies.values()} == {"failure"}
        before = len(hook.taken)
        assert run(logs, "--once", "--alerts", settings, "--store", store).exit_code == 0
        assert len(hook.taken) == before  # what was taken and noted is never sent again


def test_a_kill_between_sending_and_noting_sends_the_same_key_again(tmp_path: Path) -> None:
    with receiver() as hook:
        who = Webhook(hook.url).who
        ledger = Ledger(tmp_path / "watch")
        ledger.begin({})
        assert ledger.note([an_alert()], [who]) == [an_alert()]
        Webhook(hook.url).send(an_alert())
        ledger.close()  # it was sent, and nobody wrote it down
        again = Ledger(tmp_path / "watch")
        assert again.note([an_alert()], [who]) == []
        for alert in again.waiting(who):
            Webhook(hook.url).send(alert)
            again.note_delivery(alert, who)
        assert hook.ids() == {an_alert().id: 2}
        assert again.waiting(who) == []
        again.close()


@pytest.mark.parametrize("trouble", [NotFound("it went away"), InputError("the disk is full")])
@pytest.mark.parametrize("old", [0.0, 90_000.0])
def test_an_import_that_fails_is_made_again_with_all_that_was_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception, old: float
) -> None:
    for name in ("aaaa", "bbbb"):
        path = tmp_path / "logs" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(session(name))
        os.utime(path, (time.time() - old,) * 2)
    real, troubles = watcher.import_sessions, [trouble]

    def failing(*args: Any, **given: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return real(*args, **given)

    monkeypatch.setattr(watcher, "import_sessions", failing)
    notes: list[str] = []
    with Store(tmp_path / "s") as store:
        ledger = Ledger(tmp_path / "s" / "watch")
        watch = watcher.Watcher([str(tmp_path / "logs")], store, ledger, Rules(), lambda _: None, lambda _: None, notes.append)
        watch.start()
        for now in range(5):
            watch._work(now)
        assert sorted(row.id for row in store.rows()) == ["aaaa", "bbbb"]
        ledger.close()
    assert len(notes) == (type(trouble) is InputError)


# -- the ledger, folders, receivers ------------------------------------------------------------------------------------


def test_a_torn_ledger_keeps_what_was_whole_and_is_held_by_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "watch")
    ledger.begin({"/old": 5.0})
    ledger.note([an_alert("r1"), an_alert("r2")], ["terminal"])
    ledger.note_delivery(an_alert("r1"), "terminal")
    with pytest.raises(TryAgain):
        Ledger(tmp_path / "watch")
    ledger.close()
    path = tmp_path / "watch" / "ledger.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"told":["' + an_alert("r2").id.encode())
    again = Ledger(tmp_path / "watch")
    assert path.read_bytes() == whole
    assert (again.baseline, again.waiting("terminal")) == ({"/old": 5.0}, [an_alert("r2")])
    again.close()


def test_a_webhook_is_signed_and_its_refusal_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as hook:
        Webhook(hook.url, "secret").send(an_alert())
        headers, body = hook.taken[0]
        at, sign = (part.partition("=")[2] for part in headers["X-Counterpoint-Signature"].split(","))
        assert sign == hmac.new(b"secret", f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        assert json.loads(body)["text"].startswith("failure: shop: make: No such file, 3 times (run ")
        hook.answers = [503]
        with pytest.raises(NotTaken, match="503"):
            Webhook(hook.url).send(an_alert())
        (tmp_path / "a.jsonl").write_text(session("aaaa"))
        monkeypatch.setenv("HOOK_SECRET", "secret")
        (tmp_path / "w.toml").write_text(f'[tell]\nwebhooks = ["{hook.url}"]\nsecret_env = "HOOK_SECRET"\n')
        hook.answers = [500]
        run(tmp_path, "--once", "--alerts", tmp_path / "w.toml", "--store", tmp_path / "s")
        assert len(hook.taken) == 1  # refused once; it waits in the ledger
        run(tmp_path, "--once", "--alerts", tmp_path / "w.toml", "--store", tmp_path / "s")
        assert json.loads(hook.taken[1][1])["trace_id"] == "aaaa"
        assert "secret" not in (tmp_path / "s" / "watch" / "ledger.jsonl").read_text()


def test_mail_goes_through_sendmail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/args\ncat > {tmp_path}/mail\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    Mail("ada@example.com").send(an_alert())
    assert (tmp_path / "args").read_text() == "-t -i\n"
    mail = (tmp_path / "mail").read_text()
    assert "To: ada@example.com\n" in mail
    assert f"Message-ID: <{an_alert().id}@counterpoint.invalid>" in mail


def test_folders_see_what_is_new_grows_or_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "p" / "s").mkdir(parents=True)
    first, second = tmp_path / "p" / "a.jsonl", tmp_path / "p" / "s" / "b.jsonl"
    first.write_text("1")
    folders = Folders([tmp_path])
    assert folders.look() == {str(first)}
    assert folders.look() == folders.look_at_recent() == set()
    first.write_text("12")
    assert folders.look_at_recent() == {str(first)}
    second.write_text("1")
    assert folders.look() | folders.look_at_recent() == {str(second)}
    (tmp_path / "loop").symlink_to(tmp_path)
    first.unlink()
    assert folders.look() == set()
    assert folders.around({str(second)}, time.time() + 10) == [str(second)]


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_the_printed_file_is_what_holds_without_one(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(run("--list").output)
    assert run("--list").output == EXAMPLE
    assert watch_settings(tmp_path / "w.toml", {}) == WatchSettings()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[rule]\n", "no table [rule]"),
        ("[rules]\nfailure = 3\n", "no rule named 'failure'"),
        ("[rules]\nfailures = -1\n", "rules.failures is -1"),
        ("[rules]\ninjections = 1\n", "rules.injections is 1"),
        ('[tell]\nwebhooks = ["file:///etc/passwd"]\n', "not the address of a webhook"),
        ('[tell]\nmail = ["ada"]\n', "not an e-mail address"),
        ('[tell]\nsecret_env = "NOT_SET_ANYWHERE"\n', "secret_env"),
        ('[judge]\nmodels = "local:x"\n', "no setting named 'models'"),
        ('[judge]\nmodel = "local:x"\n', "the model has no rubric"),
        ("[judge]\ntokens = -1\n", "judge.tokens is -1"),
        ('[judge]\ntell = "wrong"\n', "judge.tell is 'wrong'"),
        ('[judge]\nkey_env = "NOT_SET_ANYWHERE"\n', "judge.key_env"),
        ("[tell\n", "is not valid TOML"),
    ],
)
def test_a_wrong_file_is_one_clear_error(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "w.toml").write_text(text)
    with pytest.raises(InputError) as error:
        watch_settings(tmp_path / "w.toml", {})
    assert what in error.value.what
    assert error.value.fix


def test_wrong_arguments_are_one_clear_error(tmp_path: Path) -> None:
    for args, code in ((["nowhere"], 3), (["--cap", "dollar=3"], 2), (["--newest", "soon"], 2), (["--alerts", "none.toml"], 3)):
        done = run(*args, "--once", "--store", tmp_path / "s")
        assert done.exception is not None
        assert getattr(done.exception, "exit_code", None) == code, (args, done.output)
