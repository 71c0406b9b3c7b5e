"""A model that judges runs when they no longer grow: asked in a thread of its own, within a budget of tokens a day.

Always true: nobody is asked beyond the budget, over restarts and kills, for what a question may take at most is on the medium
before it is asked; a run that grew is another question, and the same question is asked once. Verdicts are notes of the store
before anybody is told. It asks by `cpt.judge`, which an installed package has.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import counterpoint
from counterpoint.app.watch.alert import Alert
from counterpoint.app.watch.ledger import Ledger
from counterpoint.app.watch.rules import alert_of
from counterpoint.app.watch.settings import JudgeSettings
from counterpoint.display import counted, number
from counterpoint.errors import CounterpointError, InputError, NotFound, install
from counterpoint.store import Store

_MOST = 1_000
"""Runs that wait for a verdict; of more, the oldest get none."""
_AT_ONCE = 8
"""Runs that the thread is given together."""
_TRIES, _FIRST_S = 8, 10.0
"""How often a run is tried at a model that fails, and the first pause, which doubles."""
_BROKE_S = 600.0
"""Between two looks at a budget that is used up."""


class Verdicts(NamedTuple):
    """What there is to tell of one run."""

    trace_id: str
    version: str
    alerts: list[Alert]


class _Waiting(NamedTuple):
    version: str
    due: float
    files: list[str]


class ModelJudge:
    """The model, the runs that wait for it, and what it may still spend."""

    def __init__(self, settings: JudgeSettings, place: Path, ledger: Ledger, note: Callable[[str], None]) -> None:
        """Read the rubric and make the model once, asking nothing, so that what is wrong with them is said at once."""
        self._settings, self._place, self._ledger, self._note = settings, place, ledger, note
        self._waiting: dict[str, _Waiting] = {}
        self._due: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._verdicts: queue.SimpleQueue[Verdicts] = queue.SimpleQueue()
        self._notes: set[str] = set()
        self._over = threading.Event()
        self._is_busy = False
        self._thread = threading.Thread(target=self._work, name="model judge", daemon=True)
        found = self._judged([], 0)
        self._asked = f"{found.rubric.hash} {settings.model} {settings.tokens}"
        strange = [one for one in settings.tell if one not in found.rubric.verdicts]
        if strange or not settings.tell:
            what = f"the rubric has no verdict {strange[0]!r}" if strange else "no verdict is told"
            raise InputError(what, where="judge.tell", fix=f"some of: {', '.join(found.rubric.verdicts)}")

    def _judged(self, names: list[str], tokens: int) -> Any:
        judge = getattr(counterpoint, "judge", None)
        if judge is None:
            raise NotFound("judge: no installed package asks a model", where="judge.model", fix=install())
        options = {"base_url": self._settings.base_url or None, "key_env": self._settings.key_env or None}
        given = {name: value for name, value in options.items() if value is not None}
        how = {"model": self._settings.model, "rubric": self._settings.rubric, "budget_tokens": tokens, "at_once": 1}
        return judge(names, **how, store=self._place, **given)

    # -- what the watch asks ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End; a question that is under way is not waited for, and counts as much as it may have taken."""
        self._over.set()

    def consider(self, name: str, version: str, files: list[tuple[str, float]]) -> None:
        """A run is as it is now: to be judged when it has not grown for the minutes of the settings."""
        if not self._ledger.is_judged(f"model {name}", f"{version} {self._asked}"):
            self._waiting.pop(name, None)
            due = max((at for _, at in files), default=0.0) + 60 * self._settings.settled_minutes
            self._waiting[name] = _Waiting(version, due, [file for file, _ in files])
            while len(self._waiting) > _MOST:
                self._waiting.pop(next(iter(self._waiting)))
                self._say("more runs than a model can judge: the oldest get no verdict")

    def quiet_runs(self, now: float, most: int = _MOST) -> list[tuple[str, str]]:
        """Runs that no longer grow; one that grew meanwhile is considered again after its import."""
        ripe = [(name, one) for name, one in self._waiting.items() if one.due <= now]
        out: list[tuple[str, str]] = []
        for name, one in ripe:
            if len(out) == most:
                break
            newest = max((_changed(file) for file in one.files), default=0.0)
            if newest + 60 * self._settings.settled_minutes > now:
                self._waiting[name] = one._replace(due=newest + 60 * self._settings.settled_minutes)
            else:
                del self._waiting[name]
                out.append((name, one.version))
        return out

    def ask(self, now: float) -> None:
        """Ask about some that no longer grow, one after the other, in the thread, where it has nothing to do."""
        if self._due.empty() and not self._is_busy:
            for one in self.quiet_runs(now, _AT_ONCE):
                self._due.put(one)

    def answers(self) -> list[Verdicts]:
        """What came since."""
        out = []
        with contextlib.suppress(queue.Empty):
            while True:
                out.append(self._verdicts.get_nowait())
        return out

    def note_answer(self, found: Verdicts) -> None:
        """Its alerts are kept: the run is not judged again as it is."""
        self._ledger.note_judgement(f"model {found.trace_id}", f"{found.version} {self._asked}")

    # -- asking ----------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(queue.Empty):
                name, version = self._due.get(timeout=0.5)
                self._is_busy = True
                self._until_answered(name, version)
                self._is_busy = False

    def _until_answered(self, name: str, version: str) -> None:
        failures = 0
        while not self._over.is_set() and failures < _TRIES:
            try:
                found = self.verdicts(name, version)
            except NotFound:
                return  # it was removed meanwhile
            except (CounterpointError, OSError) as error:
                failures += 1
                self._say(f"{self._settings.model} gives no verdict: {error}; it is tried again")
                self._over.wait(_FIRST_S * 2 ** (failures - 1))
                continue
            if found is not None:
                self._verdicts.put(found)
                return
            self._over.wait(_BROKE_S)
        if failures >= _TRIES:
            self._note(f"{self._settings.model} gave no verdict on {name}; the next watch asks again")

    def verdicts(self, name: str, version: str) -> Verdicts | None:
        """The model's verdicts on a run, asked for where there are none; None where the budget is used up."""
        found = self._judged([name], 0)  # what is known, and what the rest may take
        if found.left:
            left = self._settings.tokens - self._ledger.tokens_of_a_day()
            if found.most_tokens > self._settings.tokens:
                self._note(f"{name} would take up to {found.most_tokens:,} tokens, more than judge.tokens: it gets no verdict")
                return Verdicts(name, version, [])
            if found.most_tokens > left:
                self._say(f"the model has used up its {self._settings.tokens:,} tokens of 24 hours: runs wait")
                return None
            self._ledger.note_spend(found.most_tokens)
            most, found = found.most_tokens, self._judged([name], found.most_tokens)
            self._ledger.note_spend(found.tokens - most)
            if found.failures:
                raise InputError(f"failed calls: {', '.join(found.failures)}")
            self._notes.clear()
        return Verdicts(name, version, self._alerts(name, found))

    def _alerts(self, name: str, found: Any) -> list[Alert]:
        rows = [(row, row.label if row.score is None else number(row.score)) for row in found.rows]
        told = [(row, verdict) for row, verdict in rows if verdict in self._settings.tell]
        if not told:
            return []
        with Store(self._place, create=False, read_only=True) as store:
            trace = store.get(name)
        out = []
        for row, verdict in told:
            words = f"{found.rubric.name}: {verdict}, says {found.model}" + (f": {row.text}" if row.text else "")
            event = row.event if row.event in trace.index else None
            out.append(alert_of(trace, "model", words, event, found.rubric.hash, row.event or "", verdict))
        return out

    def _say(self, words: str) -> None:
        """A remark, once until something was judged."""
        if words not in self._notes:
            self._notes.add(words)
            self._note(words)

    def say_waiting(self) -> None:
        """How many wait at the end of a single look."""
        if self._waiting:
            minutes = f"{self._settings.settled_minutes:g} minutes"
            self._note(f"{counted(len(self._waiting), 'run')} grew in the last {minutes}: no model was asked about them yet")


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
