"""Limits on a running team: what is counted, what is refused, and in which words the agent is told.

Always true: counting never raises, and what was spent stays spent; failures in a row end with a success, or when a person
speaks; a refusal names the limit, what was counted, and what the agent should do instead. Importing this loads nothing but
the standard library's smallest parts: the hook of `counterpoint guard` runs before every tool call.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take this name for true; importing `typing` costs a third of a call of the hook
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from counterpoint.errors import InputError

    Price = Callable[[str], list[float] | None]
    """Dollars per million tokens of a model, one for each field of its usage; None where it has no price."""

MARK = "counterpoint guard:"
"""Every refusal and warning begins with this; a result that has it is no failure of the tool."""
COUNTED = {
    "agents": "sub-agents started",
    "depth": "spawns between the main agent and a sub-agent",
    "calls": "tool calls",
    "tokens": "tokens read and written, cache included",
    "dollars": "US dollars",
    "minutes": "minutes of work, without the time spent waiting for a person",
    "failures": "tool calls of one agent that failed one after another",
    "repeats": "failures of one and the same call, with nothing changed in between",
}
"""What can be limited."""
SCOPES = {
    "session": tuple(COUNTED),
    "prompt": ("agents", "calls", "tokens", "dollars", "minutes"),
}
"""Where: over the whole session, or since a person last said something."""
DEFAULTS = {"session": {"agents": 100, "depth": 4, "failures": 20, "repeats": 5}, "prompt": {"agents": 50}}
"""The limits of a guard that was given none."""
ALLOWED = ("AskUserQuestion", "ExitPlanMode", "KillBash", "KillShell", "SendMessage", "StructuredOutput", "TaskStop", "TodoWrite")
"""Tools that only ask, report or stop something: they are refused only when the very same call keeps failing."""
_SETTINGS = ("session", "prompt", "allow", "warn_at", "advice", "prices")
_SPAWN_ONLY = ("agents", "depth")
_WIDTH = 5


class GuardLimits:
    """What a guard allows. Made by `limits_of`, from a table with [session], [prompt], allow, warn_at, [advice] and prices."""

    __slots__ = ("advice", "allow", "prices", "prompt", "session", "warn_at")

    def __init__(self, table: Mapping[str, Any]) -> None:
        """From a table that `limits_of` has checked."""
        self.session: dict[str, float] = dict(table.get("session") or {})
        self.prompt: dict[str, float] = dict(table.get("prompt") or {})
        self.allow: tuple[str, ...] = tuple(table.get("allow", ALLOWED))
        self.warn_at: float = table.get("warn_at", 0.8)
        self.advice: dict[str, Any] = dict(table.get("advice") or {})
        self.prices: str | None = table.get("prices")

    def as_dict(self) -> dict[str, Any]:
        """The same as a table."""
        return {name: getattr(self, name) for name in _SETTINGS if getattr(self, name) not in (None, {})}


def limits_of(table: Mapping[str, Any], where: str = "limits") -> GuardLimits:
    """The limits that a table states, or one clear error; a table without limits has the defaults."""
    for name, value in table.items():
        if name not in _SETTINGS:
            raise _wrong(f"unknown setting {name!r}", where, name, _SETTINGS)
        if name in SCOPES:
            _check_scope(name, value, where)
    _check_others(table, where)
    has_limits = any(table.get(scope) for scope in SCOPES)
    return GuardLimits(table if has_limits else {**DEFAULTS, **table})


def limits_file(path: str) -> dict[str, Any]:
    """The table of a limits file, checked, with paths that lead somewhere."""
    import os

    from counterpoint.errors import NotFound
    from counterpoint.files import read_toml

    if not os.path.exists(path):
        raise NotFound("no such file", where=path, fix="make one: counterpoint guard limits > guard.toml")
    table = read_toml(path, fix="write [session] and below it agents = 50")
    limits_of(table, path)
    folder = os.path.dirname(os.path.abspath(path))
    for within, name in ((table, "prices"), (table.get("advice", {}), "rule")):
        if name in within:
            within[name] = os.path.join(folder, os.path.expanduser(within[name]))
    return table


def _check_scope(scope: str, table: Any, where: str) -> None:
    if not isinstance(table, dict):
        raise _wrong(f"{scope} is {table!r}, not a table", where, fix=f"write [{scope}] and below it agents = 50")
    for name, value in table.items():
        if name not in SCOPES[scope]:
            raise _wrong(f"no limit named {name!r} in [{scope}]", where, name, SCOPES[scope])
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise _wrong(f"{scope}.{name} is {value!r}", where, fix=f"a number of {COUNTED[name]}, 0 or more")


def _check_others(table: Mapping[str, Any], where: str) -> None:
    allow, warn_at, advice = table.get("allow", ()), table.get("warn_at", 0.8), table.get("advice", {})
    if not isinstance(allow, (list, tuple)) or not all(isinstance(name, str) for name in allow):
        raise _wrong(f"allow is {allow!r}", where, fix='a list of names of tools, as in allow = ["TodoWrite"]')
    if isinstance(warn_at, bool) or not isinstance(warn_at, (int, float)) or not 0 < warn_at <= 1:
        raise _wrong(f"warn_at is {warn_at!r}", where, fix="a share of the limit above 0 and up to 1; at 1 there is no warning")
    if not isinstance(advice, dict):
        raise _wrong(f"advice is {advice!r}, not a table", where, fix='write [advice] and below it rule = "stop.npz"')
    for name, value in advice.items():
        if name not in ("rule", "round_minutes", "quiet_minutes"):
            raise _wrong(f"no setting named {name!r} in [advice]", where, name, ("rule", "round_minutes", "quiet_minutes"))
        if not isinstance(value, str) if name == "rule" else isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _wrong(f"advice.{name} is {value!r}", where, fix="rule is the path of a file, the others are minutes")
        if name != "rule" and value <= 0:
            raise _wrong(f"advice.{name} is {value!r}", where, fix="minutes, more than 0")
    if not isinstance(table.get("prices", ""), str):
        raise _wrong(f"prices is {table['prices']!r}", where, fix="the path of a price file")


def limit_option(pairs: Iterable[str]) -> dict[str, dict[str, float]]:
    """A table from options such as agents=50, tokens=2e6 or prompt.minutes=40."""
    out: dict[str, dict[str, float]] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        scope, _, name = name.strip().rpartition(".")
        scope = scope or "session"
        if scope not in SCOPES:
            raise _wrong(f"no scope named {scope!r}", "--cap", scope, SCOPES)
        if name not in SCOPES[scope]:
            raise _wrong(f"no limit named {name!r} in {scope}", "--cap", name, SCOPES[scope])
        try:
            value = float(text.replace("_", "").replace(",", ""))
        except ValueError:
            raise _wrong(f"{pair!r} sets no number", "--cap", fix=f"{name}=50: a number of {COUNTED[name]}") from None
        out.setdefault(scope, {})[name] = int(value) if value.is_integer() else value
    for scope, table in out.items():
        _check_scope(scope, table, "--cap")
    return out


def _wrong(what: str, where: str, name: str = "", known: Iterable[str] = (), *, fix: str = "") -> InputError:
    from counterpoint.errors import InputError, did_you_mean

    return InputError(what, where=where, fix=fix or did_you_mean(name, known))


# -- counting ------------------------------------------------------------------------------------------------------------


class Tally:
    """What a session has used so far, in all and since a person last spoke. Plain data: `as_dict` and `of` keep it in a file."""

    __slots__ = ("agents", "calls", "gains", "last_at", "models", "prompt_at", "repeats", "rows", "usd", "worked_s")

    def __init__(self) -> None:
        self.agents: dict[str, list[Any]] = {}
        """Sub-agent to its depth and when it was started."""
        self.calls: list[int] = [0, 0]
        self.models: dict[str, list[int]] = {}
        """Model to its tokens: fresh input, read from and written to the cache (for minutes, for an hour), output; twice: in
        all, and since the prompt."""
        self.usd: list[float] = [0.0, 0.0]
        """Dollars that somebody stated; what has a price is not in here."""
        self.rows: dict[str, int] = {}
        """Agent to its failures in a row."""
        self.repeats: dict[str, int] = {}
        """Call to how often it has failed."""
        self.gains: list[float] = []
        """When something was changed or completed, since the prompt."""
        self.prompt_at: float | None = None
        self.last_at: float | None = None
        self.worked_s = 0.0
        """Seconds of work before the prompt."""

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Tally:
        """What `as_dict` gave."""
        out = cls()
        for name in cls.__slots__:
            setattr(out, name, fields[name])
        return out

    def is_recent(self, at: float | None) -> bool:
        """Whether something at this time counts as after the prompt."""
        return at is None or self.prompt_at is None or at >= self.prompt_at

    def on_prompt(self, at: float | None) -> None:
        """A person spoke: what is counted since the prompt starts again."""
        if at is None:
            at = self.last_at
        if at is not None and self.prompt_at is not None and at <= self.prompt_at:
            return  # an old record, read again
        if self.prompt_at is not None and self.last_at is not None:
            self.worked_s += max(0.0, self.last_at - self.prompt_at)
        self.prompt_at = at
        self.calls[1], self.usd[1] = 0, 0.0
        for sums in self.models.values():
            sums[_WIDTH:] = [0] * _WIDTH
        self.rows.clear()
        self.repeats.clear()
        self.gains.clear()

    def on_activity(self, at: float | None) -> None:
        """Something happened in the main conversation at this time."""
        if at is not None and (self.last_at is None or at > self.last_at):
            self.last_at = at
            if self.prompt_at is None:
                self.prompt_at = at

    def on_agent(self, agent: str, depth: int, at: float | None) -> None:
        """A sub-agent began; told again, the greater depth holds."""
        have = self.agents.setdefault(agent, [depth, at])
        have[0] = max(have[0], depth)

    def on_usage(self, model: str, usage: Iterable[int], at: float | None, usd: float | None = None) -> None:
        """A model call took these tokens; with `usd`, this is what it cost."""
        sums = self.models.setdefault(model, [0] * (2 * _WIDTH))
        recent = self.is_recent(at)
        for i, n in enumerate(usage):
            sums[i] += n
            if recent:
                sums[_WIDTH + i] = max(0, sums[_WIDTH + i] + n)
        if usd is not None:
            self.usd[0] += usd
            self.usd[1] += usd if recent else 0.0

    def on_call(self, at: float | None) -> None:
        """A tool was called."""
        self.calls[0] += 1
        self.calls[1] += self.is_recent(at)

    def on_result(self, agent: str, call: str, ok: bool, at: float | None = None) -> None:
        """A call came back; `call` says which one it was, with its input."""
        if not self.is_recent(at):
            return
        if ok:
            self.rows.pop(agent, None)
            self.repeats.pop(call, None)
            return
        self.rows[agent] = self.rows.get(agent, 0) + 1
        self.repeats[call] = self.repeats.pop(call, 0) + 1  # the newest last
        if len(self.repeats) > 200:
            del self.repeats[next(iter(self.repeats))]

    def on_gain(self, at: float | None) -> None:
        """Something was changed or completed: going on has paid, and a call that failed before may work now."""
        if at is not None and self.is_recent(at):
            self.repeats.clear()
            self.gains.append(at)
            del self.gains[:-500]

    def counts(self, scope: str, now: float | None, price: Price | None = None) -> dict[str, float]:
        """What a scope has used; failures and repeats, which belong to one agent and one call, are left out."""
        is_prompt = scope == "prompt"
        first = _WIDTH if is_prompt else 0
        dollars = self.usd[is_prompt]
        for model, sums in self.models.items():
            per_million = price(model) if price is not None else None
            dollars += sum(n * p for n, p in zip(sums[first : first + _WIDTH], per_million or ())) / 1e6  # noqa: B905
        current = 0.0 if now is None or self.prompt_at is None else max(0.0, now - self.prompt_at)
        out: dict[str, float] = {
            "agents": sum(self.is_recent(at) for _, at in self.agents.values()) if is_prompt else len(self.agents),
            "depth": max((depth for depth, _ in self.agents.values()), default=0),
            "calls": self.calls[is_prompt],
            "tokens": sum(sum(sums[first : first + _WIDTH]) for sums in self.models.values()),
            "dollars": dollars,
            "minutes": (current + (0.0 if is_prompt else self.worked_s)) / 60,
        }
        return {name: out[name] for name in SCOPES[scope] if name in out}

    def unpriced(self, price: Price) -> dict[str, int]:
        """Model to its tokens, where it has no price."""
        return {model: sum(sums[:_WIDTH]) for model, sums in self.models.items() if any(sums[:_WIDTH]) and price(model) is None}


# -- deciding ------------------------------------------------------------------------------------------------------------


class GuardCall:
    """A call that an agent is about to make."""

    __slots__ = ("agent", "depth", "is_spawn", "key", "tool")

    def __init__(self, agent: str, tool: str, key: str, *, is_spawn: bool = False, depth: int = 0) -> None:
        """`key` is the call with its input, `depth` the caller's own."""
        self.agent, self.tool, self.key, self.is_spawn, self.depth = agent, tool, key, is_spawn, depth


def refusal(
    limits: GuardLimits, tally: Tally, call: GuardCall, now: float | None, price: Price | None = None
) -> tuple[str, str] | None:
    """The limit that refuses this call, and why, in words for the agent that makes it; None where it may go on."""
    times = tally.repeats.get(call.key, 0)
    most = limits.session.get("repeats")
    if most is not None and times >= most > 0:
        what = f"this very call of {call.tool} has failed {times:,} times with the same input, and nothing was changed in between"
        return _say(what, "repeats", most, "Do not make it again. Find out why it fails, or continue without it.")
    if call.tool in limits.allow and not call.is_spawn:
        return None
    if call.is_spawn and (most := limits.session.get("depth")) is not None and call.depth + 1 > most:
        what = f"a sub-agent started here would be {call.depth + 1} spawns below the main agent"
        return _say(what, "depth", most, "Do this part of the work yourself.")
    most, row = limits.session.get("failures"), tally.rows.get(call.agent, 0)
    if most is not None and row >= most > 0:
        what = f"your last {row:,} tool calls all failed"
        return _say(what, "failures", most, _stop(call, "Say what you tried and what went wrong."))
    for scope in SCOPES:
        over = _first_over(getattr(limits, scope), tally.counts(scope, now, price), call)
        if over is not None:
            name, have, most = over
            what = f"{_amount(name, have)} {_used(name)} {_SINCE[scope]}"
            do = "Start no more agents: do the rest yourself, or finish with what you have." if name in _SPAWN_ONLY else None
            full = name if scope == "session" else f"prompt.{name}"
            return _say(what, full, most, do or _stop(call, "Say what is done and what is left to do."))
    return None


_SINCE = {"session": "in this session", "prompt": "since a person last said something"}


def _first_over(limits: Mapping[str, float], counts: Mapping[str, float], call: GuardCall) -> tuple[str, float, float] | None:
    for name, most in limits.items():
        if name in counts and name != "depth" and (call.is_spawn or name not in _SPAWN_ONLY) and counts[name] >= most:
            return name, counts[name], most
    return None


def warnings(limits: GuardLimits, tally: Tally, now: float | None, price: Price | None = None) -> dict[str, str]:
    """Limits that are nearly reached: a name that says which, and the words for the agent."""
    out: dict[str, str] = {}
    for scope in SCOPES:
        counts = tally.counts(scope, now, price)
        for name, most in getattr(limits, scope).items():
            if name in counts and name != "depth" and limits.warn_at * most <= counts[name] < most:
                have = f"{_amount(name, counts[name])} {_used(name)} {_SINCE[scope]}"
                out[f"{scope}.{name}"] = f"{MARK} {have}, and the limit is {_amount(name, most)}. Begin to finish."
    return out


def _say(what: str, name: str, most: float, do: str) -> tuple[str, str]:
    limit = _amount(name.rpartition(".")[2], most)
    end = "A person set this limit: do not look for a way around it, and do not try this call again."
    return name, f"{MARK} refused, because {what} (limit {name} = {limit}). {do} {end}"


def _stop(call: GuardCall, say: str) -> str:
    if call.agent == "main":
        return f"Use no more tools: answer the user now with what you have. {say}"
    return f"Use no more tools: return now what you have to the agent that started you. {say}"


def _used(name: str) -> str:
    return {"agents": "have been started", "calls": "have been made", "minutes": "have passed"}.get(name, "have been used")


def _amount(name: str, value: float) -> str:
    if name == "dollars":
        return f"${value:,.2f}"
    shown = f"{value:,.0f}" if value >= 10 or float(value).is_integer() else f"{value:.1f}"
    nouns = {"agents": "sub-agents", "calls": "tool calls", "tokens": "tokens", "minutes": "minutes"}
    return f"{shown} {nouns[name]}" if name in nouns else shown
