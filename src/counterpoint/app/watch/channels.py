"""Who is told: a webhook, an e-mail through sendmail, the desktop.

Always true: an alert goes out whole or an error says why not; each carries its id, by which a receiver knows one that comes
again. A webhook with a secret is signed: HMAC-SHA256 over the time, a dot and the body.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from email.message import EmailMessage
from email.policy import SMTP
from typing import Protocol
from urllib.parse import urlsplit

from counterpoint.app.watch.alert import Alert
from counterpoint.app.watch.ledger import who_of
from counterpoint.app.watch.settings import Tell
from counterpoint.errors import InputError

_TIMEOUT_S = 15.0
_SCHEMA = 1


class NotTaken(Exception):
    """A receiver did not take an alert: why, and how long it asks to wait."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class Channel(Protocol):
    """One receiver."""

    who: str
    """Its name in the ledger."""
    label: str
    """Its name for people."""

    def send(self, alert: Alert) -> None:
        """Tell it; `NotTaken` where it did not take it."""


class Webhook:
    """A POST of JSON."""

    def __init__(self, url: str, secret: str = "") -> None:
        self._url, self._secret = urlsplit(url), secret.encode()
        self.who, self.label = who_of("webhook", url), f"webhook at {self._url.hostname}"

    def send(self, alert: Alert) -> None:
        """Any answer 2xx is a yes; redirections are not followed."""
        body = json.dumps({"schema": _SCHEMA, **alert.as_dict()}, ensure_ascii=False).encode()
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        connection = kind(self._url.hostname or "", self._url.port, timeout=_TIMEOUT_S)
        try:
            connection.request("POST", path, body, self._headers(alert, body))
            answer = connection.getresponse()
            answer.read(1 << 16)
        except (OSError, http.client.HTTPException) as error:
            raise NotTaken(str(error) or type(error).__name__) from error
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            wait = answer.getheader("Retry-After", "")
            raise NotTaken(f"it answered {answer.status}", float(wait) if wait.isdecimal() and len(wait) < 6 else 0.0)

    def _headers(self, alert: Alert, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "counterpoint-watch", "Idempotency-Key": alert.id}
        if self._secret:
            at = str(int(time.time()))
            sign = hmac.new(self._secret, at.encode() + b"." + body, hashlib.sha256).hexdigest()
            headers["X-Counterpoint-Signature"] = f"t={at},v1={sign}"
        return headers


class Mail:
    """A message through `sendmail -t`."""

    def __init__(self, address: str) -> None:
        self._address, self._program = address, _sendmail()
        self.who, self.label = who_of("mail", address), f"mail to {address}"

    def send(self, alert: Alert) -> None:
        """The id stands in Message-ID."""
        message = EmailMessage(policy=SMTP.clone(linesep="\n"))
        message["To"] = self._address
        message["Subject"] = f"counterpoint {alert.rule}: {alert.words}"[:150]
        message["Message-ID"] = f"<{alert.id}@counterpoint.invalid>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(f"{alert.line()}\n\ncounterpoint view {alert.trace_id}\n")
        _run([self._program, "-t", "-i"], message.as_bytes())


class Desktop:
    """A notice on the screen of whoever runs the watch."""

    who = label = "desktop"

    def send(self, alert: Alert) -> None:
        """By notify-send, or osascript on macOS."""
        title, text = f"counterpoint: {alert.rule}", alert.text()
        if program := shutil.which("notify-send"):
            plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            _run([program, "--app-name=counterpoint", "--", title, plain])
        elif program := shutil.which("osascript"):
            script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"
            _run([program, "-e", script, title, text])
        else:
            raise NotTaken("neither notify-send nor osascript is there")


def has_desktop() -> bool:
    """Whether this machine can show a notice."""
    return bool(shutil.which("notify-send") or (sys.platform == "darwin" and shutil.which("osascript")))


def channels(tell: Tell) -> Iterator[Channel]:
    """Those of the settings; `InputError` for one that cannot be had."""
    if tell.desktop:
        if not has_desktop():
            fix = "install notify-send (libnotify), or write desktop = false"
            raise InputError("this machine cannot show a notice", where="tell.desktop", fix=fix)
        yield Desktop()
    for address in tell.mail:
        yield Mail(address)
    for url in tell.webhooks:
        yield Webhook(url, os.environ.get(tell.secret_env, "") if tell.secret_env else "")


def _sendmail() -> str:
    usual = ("/usr/sbin/sendmail", "/usr/lib/sendmail")
    found = shutil.which("sendmail") or next((path for path in usual if os.access(path, os.X_OK)), None)
    if found is None:
        fix = "install one (msmtp, postfix, exim), or use webhooks"
        raise InputError("there is no sendmail on this machine", where="tell.mail", fix=fix)
    return found


def _run(command: list[str], data: bytes = b"") -> None:
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=4 * _TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotTaken(str(error)) from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[:200]
        raise NotTaken(f"{os.path.basename(command[0])} ended with {done.returncode}" + (f": {said}" if said else ""))
