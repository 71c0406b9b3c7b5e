"""Credit of traces by the name of a mechanism, with the replay that the trace's world gives: for the command and the page alike.

Always true: the mechanisms are those of the registry, run as they are; nothing is forked that was not asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import counterpoint.registry as registry
from counterpoint.app.forking import replay_of
from counterpoint.errors import InputError

if TYPE_CHECKING:
    from counterpoint.credit.mechanism import Mechanism
    from counterpoint.trace import Trace
    from counterpoint.trace.rows import Credit

def mechanism(name: str) -> Mechanism:
    """The mechanism of that name; dashes will do for underscores."""
    from counterpoint.credit.mechanism import Mechanism

    found = registry.get("credit", name if ":" in name else name.replace("-", "_"))
    if not isinstance(found, Mechanism):
        raise InputError(f"is a {type(found).__name__}, not a mechanism", where=name, fix="see counterpoint credit --list")
    return found


def credit_of(
    name: str, traces: list[Trace], options: Mapping[str, Any] | None = None, *, replay: Callable[[Trace], Any] = replay_of
) -> Credit:
    """The credit of these traces; a world is the replay of its own traces where the mechanism can use one."""
    chosen, given = mechanism(name), dict(options or {})
    # who can do without a replay is asked for it with the option replay=true: forks cost time
    is_wanted = "replay" in chosen.needs or given.pop("replay", False)
    if is_wanted and "replay" in chosen.options:
        given["replay"] = replay(traces[0])
    return chosen(traces, **given)
