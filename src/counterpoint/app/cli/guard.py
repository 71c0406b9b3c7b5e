"""Limits for running agents: a hook refuses what goes past them.

Always true: settings of other programs are changed by `install` and `uninstall` alone; the hook never blocks when it cannot read.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

import counterpoint.registry as registry
from counterpoint.app.terminal.options import NumberRange
from counterpoint.app.terminal.output import SCHEMA_VERSION, Group, emit, json_option, note, table
from counterpoint.app.words import plain_text
from counterpoint.errors import InputError, NotFound


def _epilog(*lines: str) -> str:
    examples = "\n".join(f"  counterpoint guard {line}" for line in lines)
    return f"\b\nExamples:\n{examples}"


def _limit_options(command: Any) -> Any:
    for option in (
        click.option("--prices", type=click.Path(dir_okay=False), metavar="FILE", help="Prices of models, in TOML."),
        click.option("--limits", "file", type=click.Path(dir_okay=False), metavar="FILE", help="Limits, in TOML."),
        click.option(
            "--limit", "pairs", multiple=True, metavar="NAME=N",
            help="agents, depth, calls, tokens, dollars, minutes, failures, repeats; prompt.NAME since a person last spoke.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


_client_options = (
    click.option("--claude-code", "client", flag_value="claude_code", default=True, help="Claude Code (the default)."),
    click.option("--codex", "client", flag_value="codex", help="Codex."),
    click.option("--project", "where", flag_value="project", default=True, help="For this folder's project (the default)."),
    click.option("--local", "where", flag_value="local", help="For this project on this machine: settings that are not shared."),
    click.option("--user", "where", flag_value="user", help="For all projects of this user."),
)


def _clients(command: Any) -> Any:
    for option in reversed(_client_options):
        command = option(command)
    return command


def _given(pairs: tuple[str, ...], file: str | None, prices: str | None) -> dict[str, list[str]]:
    """The options as the hook takes them, checked."""
    from counterpoint.guard.hook import read_limits
    from counterpoint.guard.prices import price_of
    from counterpoint.guard.state import GuardState

    out: dict[str, list[str]] = {}
    if pairs:
        out["--limit"] = list(pairs)
    if file is not None:
        out["--limits"] = [os.path.abspath(file)]
    if prices is not None:
        out["--prices"] = [os.path.abspath(prices)]
    limits = read_limits(GuardState(), out)
    if limits.prices is not None:
        price_of("", limits.prices)
    return out


@click.group(
    cls=Group, epilog=_epilog("install --claude-code --limit agents=40 --limit dollars=20", "check SESSION.jsonl", "status")
)
def guard() -> None:
    """Refuse further spawns and calls of running agents past limits that you set."""


@guard.command("install", epilog=_epilog("install --claude-code --limit agents=40", "install --user --limits guard.toml"))
@_clients
@_limit_options
@click.option("--answer", type=click.Choice(["json", "exit"]), default="json", help="How to refuse: an object, or exit code 2.")
@json_option
def install_(
    client: str, where: str, pairs: tuple[str, ...], file: str | None, prices: str | None, answer: str, as_json: bool
) -> None:
    """Write the hook into the client's settings; everything else there stays as it is."""
    from counterpoint.guard.settings import CLIENTS, hook_command, install

    given = _given(pairs, file, prices) | ({"--answer": [answer]} if answer != "json" else {})
    path = CLIENTS[client].path(where, Path.cwd())
    command = hook_command([word for name, values in given.items() for value in values for word in (name, value)])
    changed = install(path, command)
    if as_json:
        emit({"schema": SCHEMA_VERSION, "settings": str(path), "command": command, "changed": changed})
        return
    click.echo(f"{'installed in' if changed else 'was there already:'} {path}")
    click.echo(f"runs before every tool call: {command}")
    if client == "codex":
        note("Codex asks once whether a new hook may run")


@guard.command("uninstall", epilog=_epilog("uninstall --claude-code", "uninstall --codex --user"))
@_clients
@json_option
def uninstall_(client: str, where: str, as_json: bool) -> None:
    """Take the hook out of the client's settings again, and nothing else."""
    from counterpoint.guard.settings import CLIENTS, uninstall

    path = CLIENTS[client].path(where, Path.cwd())
    if not uninstall(path):
        raise NotFound("no guard is installed here", where=str(path), fix="counterpoint guard status shows where one is")
    emit({"schema": SCHEMA_VERSION, "settings": str(path)}) if as_json else click.echo(f"taken out of {path}")


@guard.command("hook", epilog=_epilog("hook --limit agents=40 < call.json", "hook --limits guard.toml < call.json"))
@_limit_options
@click.option("--answer", type=click.Choice(["json", "exit"]), default="json", help="How to refuse: an object, or exit code 2.")
@json_option
def hook_(pairs: tuple[str, ...], file: str | None, prices: str | None, answer: str, as_json: bool) -> None:
    """Answer one call from stdin, as the hook does; `install` writes a faster way to run the same."""
    from counterpoint.guard.hook import main

    words = [word for pair in pairs for word in ("--limit", pair)]
    for name, value in (("--limits", file), ("--prices", prices), ("--answer", answer)):
        words += [name, value] if value is not None else []
    main(words)


@guard.command("limits", epilog=_epilog("limits > guard.toml", "limits --json"))
@json_option
def limits_(as_json: bool) -> None:
    """Print a limits file with every setting, to be edited."""
    from counterpoint.guard.limits import ALLOWED, COUNTED, DEFAULTS, SCOPES

    if as_json:
        emit({"schema": SCHEMA_VERSION, **DEFAULTS, "allow": list(ALLOWED), "warn_at": 0.8, "counted": COUNTED})
        return
    lines = ["# Limits of counterpoint guard. A line without a # holds.", "", "warn_at = 0.8    # warn at this share of a limit"]
    lines += [f"allow = {list(ALLOWED)}".replace("'", '"'), '# prices = "prices.toml"', ""]
    about = {"session": "# over the whole session", "prompt": "# since a person last said something"}
    examples = {"calls": 2000, "tokens": 50_000_000, "dollars": 25.0, "minutes": 240}
    for scope, names in SCOPES.items():
        lines += [f"[{scope}]    {about[scope]}"]
        for name in names:
            has = DEFAULTS[scope].get(name)
            text = f"{name} = {examples.get(name, 20) if has is None else has}"
            lines += [f"{'# ' if has is None else ''}{text:24}# {COUNTED[name]}"]
        lines += [""]
    lines += ["# [advice]    # a warning, never a refusal"]
    lines += ["# quiet_minutes = 40      # nothing was changed or completed for so long"]
    lines += ['# rule = "stop.npz"       # a stop rule: counterpoint guard learn LOGS -o stop.npz']
    click.echo("\n".join(lines))


# -- looking at sessions ---------------------------------------------------------------------------------------------------


def _transcript(session: str) -> str:
    """The file of a session: a path, or an id that a client keeps in its own folder."""
    if os.path.isfile(session):
        return session
    if os.sep not in session and not session.endswith(".jsonl"):
        claude = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
        codex = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "sessions"
        literal = "".join(f"[{c}]" if c in "*?[" else c for c in session)
        for folder, pattern in ((claude, f"*/{literal}.jsonl"), (codex, f"*/*/*/rollout-*-{literal}.jsonl")):
            for found in sorted(folder.glob(pattern)):
                return str(found)
    raise NotFound("no such session", where=session, fix="name its .jsonl file, or the id of a session of this user")


def _read(session: str) -> Any:
    from counterpoint.guard.hook import reader_of
    from counterpoint.guard.state import GuardState

    path = _transcript(session)
    reader = reader_of(GuardState(), path, path, to_end=True)
    if reader.state.is_empty:
        fix = "name the .jsonl file of a session of Claude Code or Codex"
        raise InputError("this file holds no session", where=path, fix=fix)
    return reader


@guard.command("check", epilog=_epilog("check SESSION.jsonl --limit agents=40", "check SESSION_ID --limits guard.toml --json"))
@click.argument("session")
@_limit_options
@json_option
@click.pass_context
def check_(ctx: click.Context, session: str, pairs: tuple[str, ...], file: str | None, prices: str | None, as_json: bool) -> None:
    """Show what a session has used next to its limits; exit 4 where one is reached.

    Time is counted up to the session's last record.
    """
    from counterpoint.guard.hook import ModelPrices, read_limits

    given = _given(pairs, file, prices)
    reader = _read(session)
    limits, now = read_limits(reader.state, given), reader.tally.last_at
    price = ModelPrices(reader.state, limits.prices, at=reader.tally.last_at)
    rows, reached = [], []
    for scope in ("session", "prompt"):
        for name, have in reader.tally.counts(scope, now, price).items():
            most = getattr(limits, scope).get(name)
            full = name if scope == "session" else f"prompt.{name}"
            is_over = most is not None and (have > most if name == "depth" else have >= most)
            reached += [full] if is_over else []
            rows.append({"limit": full, "used": have, "most": most, "reached": is_over})
    unpriced = reader.tally.unpriced(price)
    if as_json:
        about = {"files": len(reader.state.files), "unread_lines": reader.state.unread, "unpriced_tokens": unpriced}
        emit({"schema": SCHEMA_VERSION, "session": session, **about, "counts": rows, "reached": reached})
    else:
        cells = [(r["limit"], _shown(r), _most(r), "reached" * r["reached"]) for r in rows]
        click.echo(table(("counted", "used", "limit", ""), cells, right=(1, 2)))
        if unpriced:
            note("without a price: " + ", ".join(f"{n:,} tokens of {plain_text(m)}" for m, n in unpriced.items()))
        if reader.state.unread:
            note(f"{reader.state.unread:,} lines could not be read")
    ctx.exit(4 if reached else 0)


def _shown(row: dict[str, Any]) -> str:
    return _amount(row["limit"], row["used"])


def _most(row: dict[str, Any]) -> str:
    return "-" if row["most"] is None else _amount(row["limit"], row["most"])


def _amount(name: str, value: float) -> str:
    if name.endswith("dollars"):
        return f"${value:,.2f}"
    return f"{value:,.1f}" if name.endswith("minutes") else f"{value:,.0f}"


@guard.command(
    "replay", epilog=_epilog("replay SESSION.jsonl --limit agents=20", "replay SESSION_ID --limit prompt.minutes=40 --json")
)
@click.argument("session")
@_limit_options
@json_option
def replay_(session: str, pairs: tuple[str, ...], file: str | None, prices: str | None, as_json: bool) -> None:
    """Show when limits would have stopped an old session, and what came after that."""
    from counterpoint.guard.hook import ModelPrices, read_limits
    from counterpoint.guard.replay import replay

    given = _given(pairs, file, prices)
    path = _transcript(session)
    reader = type(_read(session))(_fresh())
    limits = read_limits(reader.state, given)
    found = replay(reader, path, limits)
    end = reader.tally.counts("session", reader.tally.last_at, ModelPrices(reader.state, limits.prices, at=reader.tally.last_at))
    rows: list[dict[str, Any]] = [
        {
            "limit": f.limit, "at": f.at, "agent": f.agent, "tool": f.tool, "refused_calls": f.calls, "text": f.text,
            "after": {name: end[name] - f.counts[name] for name in ("agents", "calls", "tokens", "dollars", "minutes")},
        }
        for f in found.fired.values()
    ]  # fmt: skip
    if as_json:
        emit({"schema": SCHEMA_VERSION, "session": session, "end": end, "fired": rows})
        return
    if not rows:
        click.echo("No limit would have refused anything.")
        return
    names = ("agents", "tokens", "dollars", "minutes")
    about = [(r["limit"], _when(r["at"]), r["agent"], r["tool"], f"{r['refused_calls']:,}") for r in rows]
    cells = [(*a, *(_amount(n, r["after"][n]) for n in names)) for a, r in zip(about, rows, strict=True)]
    header = ("limit", "first refused", "agent", "call", "refused", *(f"{name} after" for name in names))
    click.echo(table(header, cells, right=(4, 5, 6, 7, 8)))


def _fresh() -> Any:
    from counterpoint.guard.state import GuardState

    return GuardState()


def _when(at: float | None) -> str:
    return "-" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))


@guard.command(
    "learn", epilog=_epilog("learn ~/.claude/projects -o stop.npz", "learn LOGS --round-minutes 10 --cost 0.05 -o stop.npz")
)
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Where to write the rule.")
@click.option("--round-minutes", "minutes", default=5.0, show_default=True, type=NumberRange(min=0, min_open=True),
              help="Length of a round.")  # fmt: skip
@click.option(
    "--cost", default=0.02, show_default=True, type=NumberRange(0, 1), help="What a round costs, as a share of the work."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the cross-fitting.")
@json_option
def learn_(logs: tuple[Path, ...], out: Path, minutes: float, cost: float, seed: int, as_json: bool) -> None:
    """Learn from old sessions when more work stopped paying off; the rule advises, and refuses nothing."""
    if out.exists():
        raise InputError("exists already", where=str(out), fix="choose another file with -o")
    sessions = []
    for path in (file for log in logs for file in ([log] if log.is_file() else sorted(log.rglob("*.jsonl")))):
        try:
            reader = _read(str(path))
        except InputError:
            continue
        if reader.root(str(path)) == str(path) and not path.name.startswith("agent-"):
            sessions.append((type(reader)(_fresh()), str(path)))
    learn = registry.hook("stop_rule", "a stop rule is learned")
    rule = learn(sessions, minutes=minutes, cost=cost, seed=seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    rule.save(out)
    about = {"sessions": len(sessions), "stretches": rule.about["traces"], "kind": rule.kind, "trainer": rule.about["trainer"]}
    if as_json:
        emit({"schema": SCHEMA_VERSION, "rule": str(out), **about})
        return
    click.echo(f"{out}: learned from {about['stretches']:,} stretches of work in {len(sessions):,} sessions ({about['trainer']})")
    click.echo(f'to use it: [advice] with rule = "{out}" and round_minutes = {minutes:g} in a limits file')


@guard.command("status", epilog=_epilog("status", "status --json"))
@click.option("--limit", "most", default=10, show_default=True, type=click.IntRange(min=1), help="Show the last N sessions.")
@json_option
def status_(most: int, as_json: bool) -> None:
    """Where guards are installed, which sessions they have seen, and what they refused."""
    from counterpoint.guard.settings import installed, places
    from counterpoint.guard.state import GuardState, home

    there = {str(path): command for path in places(Path.cwd()) for command in installed(path)}
    folder = Path(home())
    states = sorted(folder.glob("*.json"), key=lambda p: p.stat().st_mtime)[-most:] if folder.is_dir() else []
    rows = [_session_row(path.stem, GuardState(str(path)), path.stat().st_mtime) for path in states]
    if as_json:
        emit({"schema": SCHEMA_VERSION, "installed": there, "sessions": rows, "log": str(folder / "guard.log")})
        return
    for place, command in there.items():
        click.echo(plain_text(f"installed in {place}: {command}"))
    if not there:
        click.echo("no guard is installed for this folder or this user")
    if rows:
        header = ("session", "last call", "agents", "calls", "tokens", "minutes", "refused", "last refusal")
        cells = [(r["session"], _when(r["at"]), *(f"{r[n]:,.0f}" for n in header[2:7]), r["last_refusal"] or "") for r in rows]
        click.echo(table(header, cells, right=(2, 3, 4, 5, 6)))
    if (folder / "guard.log").exists():
        note(f"what went wrong is in {folder / 'guard.log'}")


def _session_row(name: str, state: Any, at: float) -> dict[str, Any]:
    counts = state.tally.counts("session", at)
    last = state.notes.get("last_refusal")
    about = {n: counts[n] for n in ("agents", "calls", "tokens", "minutes")}
    return {"session": name, "at": at, **about, "refused": state.notes.get("refused", 0), "last_refusal": last and last[3]}
