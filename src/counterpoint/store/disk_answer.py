"""The answer of the disk that tasks wait for."""

from __future__ import annotations

import asyncio
from typing import Any

from counterpoint.errors import CounterpointError


class DiskAnswer(asyncio.Future[None]):
    """What the disk says, shared by all tasks that wait for it: one of them cannot cancel it for the others.

    A task that is cancelled while it waits is cancelled as soon as the disk has answered.
    """

    def cancel(self, msg: Any = None) -> bool:
        return False

    def tell(self, error: CounterpointError | None) -> None:
        """Wake everybody."""
        if error is None:
            self.set_result(None)
        else:
            self.set_exception(error)
            self.exception()  # seen: a task that was cancelled meanwhile will not ask
