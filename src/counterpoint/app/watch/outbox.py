"""The way of alerts to a receiver: in a thread of its own, again and again until it has taken each, or for three days.

Always true: telling never holds up the watch, nor one receiver another; an alert that is not taken holds up none behind it; that
it was taken is written down after the receiver said so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from counterpoint.app.watch.alert import Alert
from counterpoint.app.watch.channels import Channel, NotTaken
from counterpoint.app.watch.ledger import Ledger
from counterpoint.errors import CounterpointError

_FIRST_S, _LONGEST_S = 1.0, 300.0
"""Pauses between tries, which double."""
_END_S = 2.0
_PATIENCE_S = 3 * 86_400.0
_AT_ONCE = 10_000
"""Alerts that wait in memory; more wait in the ledger."""


class Outbox:
    """One receiver's alerts."""

    def __init__(self, channel: Channel, ledger: Ledger, note: Callable[[str], None]) -> None:
        self.channel, self._ledger, self._note = channel, ledger, note
        self._new = threading.Event()
        self._is_over = False
        self._tries: dict[str, tuple[int, float]] = {}
        """Alert to how often it was tried, and when it is again."""
        self._thread = threading.Thread(target=self._run, name=f"outbox {channel.who}", daemon=True)

    def start(self) -> None:
        """Begin with what nobody took before."""
        self._new.set()
        self._thread.start()

    def wake(self) -> None:
        """There is something new in the ledger."""
        self._new.set()

    def stop(self) -> None:
        """End after the alert that is under way, where that is soon."""
        self._is_over = True
        self._new.set()
        if self._thread.is_alive():
            self._thread.join(_END_S)

    def wait(self, seconds: float) -> None:
        """Until everything was taken or tried in vain once, or so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(one.id not in self._tries for one in self._ledger.waiting(self.channel.who)):
            time.sleep(0.02)

    def _run(self) -> None:
        pause: float | None = None
        while not self._is_over:
            self._new.wait(pause)
            self._new.clear()
            pause = self._round()

    def _round(self) -> float | None:
        """Tell what is due; seconds until something else is, None where nothing is left."""
        waiting = self._ledger.waiting(self.channel.who)[:_AT_ONCE]
        for alert in waiting:
            if self._is_over:
                return None
            if self._tries.get(alert.id, (0, 0.0))[1] <= time.monotonic():
                self._try(alert)
        due = [self._tries[one.id][1] for one in waiting if one.id in self._tries]
        return max(0.05, min(due) - time.monotonic()) if due else None

    def _try(self, alert: Alert) -> None:
        try:
            self.channel.send(alert)
        except NotTaken as error:
            self._later(alert, str(error), error.wait_s)
        except Exception as error:  # a receiver's defect must cost neither the alert nor the others
            self._later(alert, f"{type(error).__name__}: {error}", 0.0)
        else:
            self._tries.pop(alert.id, None)
            self._kept(lambda: self._ledger.note_delivery(alert, self.channel.who))

    def _later(self, alert: Alert, why: str, wait_s: float) -> None:
        count = self._tries.get(alert.id, (0, 0.0))[0] + 1
        if time.time() - alert.at > _PATIENCE_S and count > 1:
            self._tries.pop(alert.id, None)
            self._note(f"{self.channel.label}: not told of {alert.id} for three days: {why}")
            self._kept(lambda: self._ledger.note_loss(alert, self.channel.who, why))
            return
        self._tries[alert.id] = count, time.monotonic() + max(wait_s, min(_FIRST_S * 2 ** min(count - 1, 20), _LONGEST_S))
        if count in (1, 5):
            self._note(f"{self.channel.label}: not taken yet: {why}; it is tried again")

    def _kept(self, write: Callable[[], None]) -> None:
        try:
            write()
        except (CounterpointError, OSError) as error:  # told twice is better than never, and it is told under the same id
            self._note(f"the ledger cannot be written: {error}")
