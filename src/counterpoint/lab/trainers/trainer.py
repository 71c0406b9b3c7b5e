"""What an adapter for a trainer is: rows to the bytes of its files and back, and which versions of it were tried.

Always true: what is written has been read back and compared, number by number, before anybody gets it; a package of another
version than those tried is said, and used as long as the comparison holds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

from counterpoint.errors import InputError, Refused, install
from counterpoint.lab.trainers.row import TrainingRow, check_row, check_same

if TYPE_CHECKING:
    from counterpoint.lab.trainers.text_call import TextCall


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """One trainer that rows can be handed to. Either `write` and `read`, or `write_texts`."""

    about: str
    """What it takes, in one line."""
    suffixes: tuple[str, ...]
    """How its files end; the first is the usual one."""
    columns: Mapping[str, str]
    """What a file holds, and of which kind each is: string, double, int64, bool, messages, list:double, or json."""
    lost: str
    """What has no place there, as a sentence for people."""
    package: str = ""
    """What to install; empty for a trainer whose files need nothing."""
    tested: tuple[str, ...] = ()
    """The versions that were tried."""
    write_needs: tuple[str, ...] = ()
    """Packages without which a file cannot be written."""
    extra: str = ""
    """The extra of Counterpoint that installs them."""
    logps: Literal["needed", "all or none", "optional"] = "needed"
    """Whether every row must have log-probabilities; where not, the trainer computes those that are missing."""
    write: Callable[[Sequence[TrainingRow], str], bytes] | None = None
    """The rows of one policy as the bytes of a file with this ending."""
    read: Callable[[bytes, str], list[TrainingRow]] | None = None
    """The rows in the bytes of such a file."""
    write_texts: Callable[[Sequence[TextCall]], list[dict[str, Any]]] | None = None
    """For those who learn from texts: the records of a dataset."""

    def without_logps(self, rows: Sequence[TrainingRow]) -> list[TrainingRow]:
        """Those of the rows that it cannot take, for want of log-probabilities."""
        bare = [row for row in rows if row.logps is None]
        takes_all = self.logps == "optional" or (self.logps == "all or none" and len(bare) == len(rows))
        return [] if takes_all else bare

    def to_bytes(self, rows: Sequence[TrainingRow], suffix: str) -> bytes:
        """A file of these rows, read back and compared."""
        if self.write is None or self.read is None:
            raise InputError("this trainer learns from texts", fix="counterpoint.lab.trainers.text_call")
        for name in self.write_needs:
            need(name, self.extra)
        for row in rows:
            check_row(row)
        data = self.write(rows, suffix)
        check_same(rows, self.read(data, suffix), self.about.partition(":")[0])
        return data


def need(name: str, extra: str) -> None:
    """Refuse where a package is not installed."""
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise Refused(f"the package {name!r} is not installed", fix=install(extra))


def installed(package: str) -> str | None:
    """The version of a package here, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def say_version(package: str, tested: Sequence[str]) -> str | None:
    """What to say of a package whose version was never tried; None where there is nothing to say."""
    version = installed(package)
    if version is None or version in tested:
        return None
    return f"{package} {version} was never tried with Counterpoint; {', '.join(tested)} was. Going on: every file is compared"


def warn_version(package: str, tested: Sequence[str]) -> None:
    """Warn of a package whose version was never tried."""
    warning = say_version(package, tested)
    if warning is not None:
        warnings.warn(warning, RuntimeWarning, stacklevel=3)
