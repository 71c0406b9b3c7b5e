"""SQL over a store of which every text is masked before the query sees it, for readers who are not its owner.

Always true: nothing is written; no function of SQL sees a text that was not masked; a query names the views and nothing else, and
ends in time.
"""

from __future__ import annotations

import threading
from pathlib import Path

from counterpoint.store.annotations import AnnotationFile
from counterpoint.store.lake import Lake, MissingFile
from counterpoint.store.opening import open_folder, open_log
from counterpoint.store.query import Mask, Query, Result


class MaskedSql:
    """The finished traces of the store in a folder, to be asked in SQL."""

    def __init__(self, path: Path, mask: Mask) -> None:
        """`mask` gives for each text what may be shown of it."""
        self._mask = mask
        self._log = open_log(path, open_folder(path, create=False), read_only=True)
        self._lake = Lake(path / "lake", lambda part: self._log.state.parts[part].sums)
        self._annotations = AnnotationFile(path)
        self._query: Query | None = None
        self._asking = threading.Lock()

    def close(self) -> None:
        """Let go of all files."""
        self._lake.close()
        self._log.close()
        if self._query is not None:
            self._query.close()
            self._query = None

    def ask(self, query: str, *, limit: int, within_s: float) -> Result:
        """The first rows of the answer."""
        with self._asking:
            for is_last in (False, True):
                state, annotated = self._log.refresh(), self._annotations.refresh()
                version = (state.number, self._annotations.version)
                try:
                    if self._query is None or self._query.version != version:
                        told = list(annotated.annotations.values())
                        self._query = Query(state, self._lake.folder, told, version, self._mask)
                    verify = lambda kinds: self._lake.verify_all(list(state.parts), kinds)  # noqa: B023, E731
                    return self._query.run(query, None, limit, verify, within_s)
                except MissingFile:  # compaction took a file away in between
                    self._query = None
                    if is_last:
                        raise
        raise AssertionError
