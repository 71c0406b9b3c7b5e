"""Which keys belong together: names that were seen together are of one group, whatever order they came in."""

from __future__ import annotations

from collections.abc import Iterable


class Groups:
    """Sets of names that grow together; each name is in one."""

    def __init__(self) -> None:
        self._of: dict[str, set[str]] = {}

    def join(self, names: Iterable[str]) -> None:
        """These belong together, with all that belong to any of them."""
        whole: set[str] | None = None
        for name in names:
            group = self._of.setdefault(name, {name})
            if whole is not None and group is not whole:
                # The smaller moves into the larger, so that each name moves a few times at most.
                small, group = sorted((group, whole), key=len)
                group |= small
                self._of.update(dict.fromkeys(small, group))
            whole = group

    def of(self, name: str) -> set[str]:
        """All names that belong with this one, itself among them."""
        return set(self._of.get(name, {name}))

    def forget(self, name: str) -> None:
        """Drop the whole group of a name."""
        for other in self.of(name):
            self._of.pop(other, None)
