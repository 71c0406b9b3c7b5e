"""Rows for trainers, as `counterpoint export` asks for them: our own table `rl`, and the files of every trainer plug-in.

Always true: naming the targets imports none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import counterpoint.registry as registry
from counterpoint.errors import InputError

_RL = "rl"


class RowExporter:
    """The targets whose files hold one row per model call, with its credit."""

    def targets(self) -> list[str]:
        """The names that `--to` takes."""
        return [_RL, *registry.ids("trainer")]

    def write(self, traces: Sequence[str], target: str, output: str | None, *, policy: str | None, **about: Any) -> None:
        """Write the rows of these traces, and say what is in them."""
        if target != _RL:
            from counterpoint.lab.app.export_trainer import write_for_trainer

            write_for_trainer(traces, target, output, policy=policy, **about)
            return
        from counterpoint.lab.app.export_rl import write_rl

        if policy is not None:
            fix = "filter by the column `policy`, or use --to trl"
            raise InputError("--to rl writes the rows of all policies", where="--policy", fix=fix)
        write_rl(traces, output, **about)

    def described(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Each target as `--list --json` prints it, and as `--list` does."""
        from counterpoint.lab.app.export_rl import RL_COLUMNS, RL_LOST, RL_SUFFIXES

        row = {"target": _RL, "suffixes": list(RL_SUFFIXES), "folder": False, "reads_back": False}
        lines = f"{_RL}: one {' or '.join(RL_SUFFIXES)} file for all traces, not read back\n  rows: {', '.join(RL_COLUMNS)}"
        yield row | {"columns": {"rows": list(RL_COLUMNS)}, "lost": RL_LOST}, f"{lines}\n  lost: {RL_LOST}\n"
        for name in registry.ids("trainer"):
            trainer = registry.get("trainer", name)
            row = {"target": name, "suffixes": list(trainer.suffixes), "folder": True, "reads_back": trainer.read is not None}
            row |= {"package": trainer.package, "tested": list(trainer.tested)}
            tried = f" (tried with {trainer.package} {', '.join(trainer.tested)})" if trainer.tested else ""
            lines = f"{name}: {trainer.about}; {' or '.join(trainer.suffixes)}, or a folder{tried}"
            lines += f"\n  rows: {', '.join(trainer.columns)}\n  lost: {trainer.lost}\n"
            yield row | {"columns": {"rows": list(trainer.columns)}, "lost": trainer.lost}, lines


def exporter() -> RowExporter:
    """What `counterpoint export` asks for by the hook `exporters`."""
    return RowExporter()
