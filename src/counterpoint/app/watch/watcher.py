"""The watch itself: what grows is imported, judged, and told.

Always true: what is idle costs looks at sizes and times, spaced so that they take less than half a percent of a core, and what
grows a tenth of one; a run is judged after it is stored and before that is noted, so that a kill in between leaves it to be
judged again. Nothing is told of runs that were over before the first watch began, but for the hour (or the span) before it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from counterpoint.app.import_account import Outcome
from counterpoint.app.import_logs import import_sessions, sessions_under
from counterpoint.app.watch.alert import Alert
from counterpoint.app.watch.folders import FileState, Folders
from counterpoint.app.watch.ledger import Ledger
from counterpoint.app.watch.model_judge import ModelJudge, Verdicts
from counterpoint.app.watch.outbox import Outbox
from counterpoint.app.watch.rules import judgement
from counterpoint.app.watch.settings import Rules
from counterpoint.errors import CounterpointError, NotFound
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.usage import PRICES, Prices
from counterpoint.store import Store
from counterpoint.store.annotations import AnnotationFile

TERMINAL = "terminal"
_LOOK_S, _RECENT_S, _IMPORT_S = 2.0, 1.0, 1.0
"""The shortest pauses between two looks at everything, at the recent files, and between imports."""
_IDLE_SHARE, _BUSY_SHARE = 0.0025, 0.1
_BEFORE_S = 3600.0
_TOGETHER_S = 2 * 86_400.0
"""Files of so long are read together: those of one team lie in several folders."""
_SLICE = 64
_AGAIN_S = 10.0


@dataclass
class Watcher:
    """One watch over some places, for one store."""

    places: Sequence[str]
    store: Store
    ledger: Ledger
    rules: Rules
    tell_alert: Callable[[Alert], None]
    tell_outcome: Callable[[Outcome], None]
    note: Callable[[str], None]
    outboxes: Sequence[Outbox] = ()
    judge: ModelJudge | None = None
    prices: Prices = PRICES
    format: str | None = None
    project: str | None = None
    back_s: float = _BEFORE_S
    """Seconds before the first watch of which is told."""
    told: int = 0
    """Alerts that this process told."""
    _files: Folders = field(init=False)
    _changed: set[str] = field(default_factory=set, init=False)
    _backlog: list[tuple[str, Session]] = field(default_factory=list, init=False)
    _stuck: dict[str, tuple[float, list[str], list[Alert]]] = field(default_factory=dict, init=False)
    """Run to when it counts as stuck, the files that must not have grown by then, and what is told then."""
    _asked: str = field(default="", init=False)
    """The rules, in few letters: a run that was judged by others is judged again."""
    _failures: dict[str, str] = field(default_factory=dict, init=False)
    _trouble: str = field(default="", init=False)
    """Why the last import failed, which is said once."""

    # -- the whole

    def run(self) -> None:
        """Watch until interrupted."""
        self.start()
        if self.judge is not None:
            self.judge.start()
        look = recent = work = 0.0
        while True:
            now, spent = time.monotonic(), time.process_time()
            if now >= look:
                self._changed |= self._files.look()
                look = now + max(_LOOK_S, (time.process_time() - spent) / _IDLE_SHARE)
            elif now >= recent:
                self._changed |= self._files.look_at_recent()
                recent = now + max(_RECENT_S, (time.process_time() - spent) / _IDLE_SHARE)
            if (self._changed or self._backlog) and now >= work:
                work = self._work(now)
            self._tell_stuck()
            self._tell_verdicts()
            due = [look, recent, *([work] if self._changed or self._backlog else [])]
            time.sleep(max(0.01, min(due) - time.monotonic()))

    def once(self, patience_s: float = 30.0) -> None:
        """One look at everything; ends when all is imported, judged, and told or tried in vain."""
        self.start()
        while self._changed or self._backlog:
            self._work(time.monotonic(), is_once=True)
        self._tell_stuck()
        if self.judge is not None:
            for run in self.judge.quiet_runs(time.time()):
                if (found := self.judge.verdicts(*run)) is not None:
                    self._tell_of(self.judge, found)
            self.judge.say_waiting()
        for outbox in self.outboxes:
            outbox.wait(patience_s)

    def start(self) -> None:
        """The first look: what is old goes to the end of the queue, and what was not told before is."""
        self._files = Folders(self.places)
        self._asked = hashlib.blake2b(msgspec.json.encode(self.rules), digest_size=4).hexdigest()
        changed = self._files.look()
        if self.ledger.began is None:
            since = time.time() - self.back_s
            self.ledger.begin({name: f.changed for name, f in self._files.files.items() if f.changed < since})
        for outbox in self.outboxes:
            outbox.start()
        for alert in self.ledger.waiting(TERMINAL):
            self._to_terminal(alert)
        self._changed = {name for name in changed if not self._is_old(self._files.files[name])}
        self._backlog = self._old_sessions(changed - self._changed)

    def _old_sessions(self, names: set[str]) -> list[tuple[str, Session]]:
        """Sessions whose files are all old, the oldest first; the last is taken first."""
        if not names:
            return []
        found = sessions_under(self.places, format=self.format, project=self.project)
        return [row for row in found.sessions if all(f.name not in self._changed for f in row[1].files)]

    def _is_old(self, state: FileState) -> bool:
        return state.changed < self._since()

    def _since(self) -> float:
        """What changed from here on is told."""
        return min((self.ledger.began or time.time()) - _BEFORE_S, time.time() - self.back_s)

    # -- import and judgement

    def _work(self, now: float, *, is_once: bool = False) -> float:
        """Import what changed, else some of what is old; when there may be more."""
        spent = time.process_time()
        names, self._changed = self._changed, set()
        some: list[tuple[str, Session]] = []
        try:
            if names:
                self._import(self._sessions(names), is_news=True)
                self._trouble = ""
            else:
                some, self._backlog = self._backlog[-_SLICE:], self._backlog[:-_SLICE]
                self._import(some, is_news=False)
                return now
        except NotFound:  # a file went away between the look and the import
            self._changed |= self._files.look() | {name for name in names if os.path.exists(name)}
            self._backlog += some
            return now + _AGAIN_S
        except CounterpointError as error:
            if is_once:
                raise
            self._backlog += some
            if error.one_line() != self._trouble:
                self._trouble = error.one_line()
                self.note(f"{self._trouble}; it is tried again")
            self._changed |= names
            return now + _AGAIN_S
        return now + max(_IMPORT_S, (time.process_time() - spent) * (1 / _BUSY_SHARE - 1))

    def _sessions(self, names: set[str]) -> list[tuple[str, Session]]:
        """Those that some files belong to, whole."""
        around = [name for name in self._files.around(names, time.time() - _TOGETHER_S) if os.path.exists(name)]
        found = sessions_under(around, format=self.format, project=self.project)
        return [row for row in found.sessions if any(_is_of(f.name, names) for f in row[1].files)]

    def _import(self, sessions: Iterable[tuple[str, Session]], *, is_news: bool) -> None:
        chosen = list(sessions)
        files = {f"{name}:{session.key}": session.files for name, session in chosen}
        for outcome in import_sessions(chosen, self.store, prices=self.prices):
            key = f"{outcome.importer}:{outcome.session}"
            if outcome.status == "failed":
                if self._failures.get(key) != outcome.error:
                    self._failures[key] = outcome.error or ""
                    self.tell_outcome(outcome)
                continue
            self._failures.pop(key, None)
            if outcome.status not in ("unchanged", "removed", "empty"):
                self.tell_outcome(outcome)
            if is_news:
                for name in outcome.traces:
                    self._judge(name, [(f.name, f.changed) for f in files[key]])

    def _judge(self, name: str, files: list[tuple[str, float]]) -> None:
        """Tell what there is to tell of a stored run, and note that it was judged."""
        version = self.store.version(name)
        if version is not None and self.judge is not None:
            self.judge.consider(name, version.partition("+")[0], files)  # notes on a run make it no other run
        version = version and f"{version} {self._asked}"
        if version is None or self.ledger.is_judged(name, version):
            return
        before = [at for at in (self.ledger.baseline.get(file) for file, _ in files) if at is not None and at < self._since()]
        marks = AnnotationFile(self.store.path).refresh().issues
        found = judgement(self.store.get(name), self.rules, marks, quiet_until=max(before, default=None))
        self._tell(found.alerts)
        if found.stuck:
            due = max(at for _, at in files) + 60 * self.rules.stuck_minutes
            self._stuck[name] = due, [file for file, _ in files], found.stuck
        else:  # a run that may be stuck is judged again when the watch begins anew
            self._stuck.pop(name, None)
            self.ledger.note_judgement(name, version)

    def _tell_stuck(self) -> None:
        """Runs of which nothing grew for long enough; what grew meanwhile is judged anew."""
        now = time.time()
        for name in [name for name, (due, _, _) in self._stuck.items() if due <= now]:
            _, files, alerts = self._stuck[name]
            newest = max((_changed(file) for file in files), default=0.0)
            if newest + 60 * self.rules.stuck_minutes > now:
                self._stuck[name] = newest + 60 * self.rules.stuck_minutes, files, alerts
            else:
                self._tell(alerts)
                del self._stuck[name]

    # -- telling

    def _tell_verdicts(self) -> None:
        """Tell what the model said since, and ask it about runs that no longer grow."""
        if self.judge is not None:
            self.judge.ask(time.time())
            for found in self.judge.answers():
                self._tell_of(self.judge, found)

    def _tell_of(self, judge: ModelJudge, found: Verdicts) -> None:
        self._tell(found.alerts)
        judge.note_answer(found)

    def _tell(self, alerts: Iterable[Alert]) -> None:
        """Those that are new: on the medium first, then to everybody."""
        for alert in self.ledger.note(alerts, [TERMINAL, *(one.channel.who for one in self.outboxes)]):
            self._to_terminal(alert)
            for outbox in self.outboxes:
                outbox.wake()

    def _to_terminal(self, alert: Alert) -> None:
        self.tell_alert(alert)
        self.told += 1
        self.ledger.note_delivery(alert, TERMINAL)


def _is_of(name: str, changed: set[str]) -> bool:
    """Whether a file is one of these, or lies in one of them that is an archive."""
    return name in changed or name.startswith(tuple(one + sign for one in changed for sign in "/:!"))


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
