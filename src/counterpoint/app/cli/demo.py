"""Train a team, and show it beside hand-made ones."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from counterpoint.app.checking import check_trace
from counterpoint.app.load_save import save
from counterpoint.app.terminal.output import emit, json_option, note, table
from counterpoint.app.terminal.progress import progress
from counterpoint.audits.hacks import hacks
from counterpoint.audits.measures import measures
from counterpoint.display import counted, number
from counterpoint.errors import InputError, install
from counterpoint.lab.app.demo_training import WAYS, train_both
from counterpoint.store import Store
from counterpoint.trace import Trace
from counterpoint.trace.keys import PROJECT, TITLE
from counterpoint.trace.synthetic import synthetic_trace
from counterpoint.trace.synthetic.planted import busy_team, mail_team

HEADING = "Look"


@click.command(
    epilog="\b\nExamples:\n  counterpoint demo\n  counterpoint demo --quick --to samples --seed 7\n  counterpoint demo --lm",
)
@click.option(
    "--to",
    "folder",
    default="counterpoint_demo",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The folder to write into.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the traces and of the training.")
@click.option("--quick", is_flag=True, help="Train nothing: write and audit eight sample traces, in seconds.")
@click.option("--lm", "is_lm", is_flag=True, help="A small language model plays a team, offline, on this machine.")
@click.option("--world", default="width", show_default=True, help="The world to train in: one of the suites, or a TeamWorld.")
@click.option("--seeds", default=4, show_default=True, type=click.IntRange(1), help="Training seeds of each method.")
@click.option("--budget", default=150_000, show_default=True, type=click.IntRange(1), help="Calls and rounds of each run.")
@click.option(
    "--tasks", default=480, show_default=True, type=click.IntRange(2), help="Unseen tasks on which the teams are judged."
)
@click.option("--dry-run", "is_dry", is_flag=True, help="With --quick: check and audit, and write nothing.")
@json_option
def demo(
    folder: Path, seed: int, quick: bool, is_lm: bool, world: str, seeds: int, budget: int, tasks: int, is_dry: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Train orchestrators whose five decisions are all learned, by our method and by GRPO; minutes on two cores, offline."""
    if is_lm:
        language_demo(folder, seed, as_json=as_json)
        return
    if quick:
        quick_demo(folder, seed, is_dry=is_dry, as_json=as_json)
        return
    if is_dry:
        raise InputError("--dry-run goes with --quick", fix="counterpoint demo --quick --dry-run")
    if importlib.util.find_spec("torch") is None:
        fix = f"{install('train')}, or counterpoint demo --quick"
        raise InputError("the demo trains a policy, and torch is not installed", fix=fix)
    place = folder / "trained"
    if place.exists():
        shutil.rmtree(place)  # the runs of an earlier demo, ours to replace
    write_samples(folder, samples(seed))
    begin = time.perf_counter()
    with progress("training", 2 * seeds) as bar:
        told = {"seed": seed, "seeds": seeds, "budget": budget, "tasks": tasks}
        found = train_both(place, world, **told, tell=lambda done, about: bar.at(done, about=about))
    found["seconds"] = round(time.perf_counter() - begin, 1)
    _keep(folder, Path(found["runs"][WAYS[0]][0]), found["traces"])
    if as_json:
        emit(found)
        return
    for screen in (_title, policies_screen, tasks_screen, decisions_screen, measures_screen):
        click.echo(screen(found))
    _next_steps(folder, place, found)


def _keep(folder: Path, run: Path, names: Sequence[str]) -> None:
    """Put the learned team's traces beside the samples, so that one store has all of the demo."""
    with Store(run / "store", read_only=True) as learned, Store(folder) as store:
        store.add_many([learned.get(name) for name in names])


def _title(found: dict[str, Any]) -> str:
    spent = ", ".join(f"{label} {found['spent'][label]['charged']:,.0f}" for label in found["spent"])
    about = f"Tasks: {found['about']}\n" if "about" in found else ""
    seeds = counted(found["seeds"], "training seed")
    return (
        f"Trained {' and '.join(found['spent'])} on {found['world']}, {seeds} each, {found['seconds']:.0f} s in all\n"
        f"Calls and rounds a run: {spent}\n{about}"
    )


def _next_steps(folder: Path, trained: Path, found: dict[str, Any]) -> None:
    place, runs = os.fspath(trained), os.fspath(folder)
    first = found["traces"][0] if found["traces"] else "TRACE"
    click.echo(f"Runs    {place} (settings, metrics, checkpoints)\nStore   {runs} (a learned team's traces and eight samples)")
    _tell_next(
        [
            (f"show {first} --store {runs}", "the learned team, event by event"),
            (f"credit {first} --store {runs}", "who earned it"),
            (f"compare {place}/*", "the two on the same tasks, seeds and budget, with intervals"),
            (f"plot {place}/*", "learning curves, stop times, team sizes"),
            (f"view {runs} --runs {runs}", _browser()),
        ],
        head="Next    ",
    )


def _tell_next(steps: Sequence[tuple[str, str]], *, head: str) -> None:
    """What to type next and why, one command a line."""
    command, width = command_name(), max(len(arguments) for arguments, _ in steps)
    for i, (arguments, why) in enumerate(steps):
        click.echo(f"{head if not i else ' ' * len(head)}{command} {arguments.ljust(width)}  {why}")


def _browser() -> str:
    """What `view` shows, and what it needs where that is not installed."""
    is_here = importlib.util.find_spec("starlette") and importlib.util.find_spec("uvicorn")
    return "all of it in the browser" + ("" if is_here else f": {install('view')} first")


# -- a language model ------------------------------------------------------------------------------------------------------


_SPEAKER = "smollm2-135m-ledger"
"""An adapter of the package: what was trained, how, and what it solves is in its model.json."""
_HUNT = {"documents": 8, "rows": 2, "parts": 2, "firms": 6, "alias_rate": 0.0, "contradictions": 0.0}


def language_demo(folder: Path, seed: int, *, as_json: bool) -> None:
    """A team of a small language model, recorded: an orchestrator and two workers find rows among papers."""
    import asyncio

    from counterpoint.lab.lm.weights import find, require_extra
    from counterpoint.lab.team.session import Spec, record_team
    from counterpoint.lab.team.state import Limits

    require_extra()
    find(_SPEAKER)  # weights that are not installed are said before anything begins
    note("a model of 135 million weights plays a team of three on this machine: a minute or two", quiet=as_json)
    limits = Limits.of({"width": 2, "turns": 16, "steps": 14, "max_tokens": 96, "context": 4096, "temperature": 0.0})
    spec = Spec(task="ledger_hunt", config=_HUNT, seed=seed, model=f"local:{_SPEAKER}", options={}, limits=limits)
    write_samples(folder, samples(seed))
    begin = time.perf_counter()
    with Store(folder) as store:
        name = f"lm-hunt-{seed}" if f"lm-hunt-{seed}" not in store.ids() else f"lm-hunt-{seed}-{int(time.time())}"
        trace = asyncio.run(record_team(spec, store, trace_id=name))
    took = time.perf_counter() - begin
    solved = bool((trace.metrics or {}).get("task_success"))
    calls = sum("call" in (e.extra or {}) and e.type != "tool_result" for e in trace.events)
    row = {"trace": name, "store": os.fspath(folder), "solved": solved, "reward": trace.rewards["team"], "calls": calls}
    if as_json:
        emit(row | {"agents": len(trace.members), "tokens": trace.costs.get("tokens"), "seconds": round(took, 1)})
        return
    tokens = number(trace.costs.get("tokens"))
    ended = "solved" if solved else "not solved"
    click.echo(f"{ended}: reward {number(trace.rewards['team'], 3)}, {counted(len(trace.members), 'agent')}, ", nl=False)
    click.echo(f"{counted(calls, 'call')}, {tokens} tokens, {took:.0f} s\n")
    place = row["store"]
    steps = [(f"show {name} --store {place}", "what each said"), (f"credit {name} --store {place}", "who earned it")]
    _tell_next([*steps, (f"view {name} --store {place}", _browser())], head="Next  ")


# -- the quick demo --------------------------------------------------------------------------------------------------------


# name, sub-agents, steps, topology, title: one of each of the survey's six shapes.
_SAMPLES = (
    ("research-team", 13, 180, "centralized", "Find out what the records show, with thirteen helpers"),
    ("code-team", 6, 60, "planner_executor_critic", "Plan, write and review a change"),
    ("panel", 4, 24, "debate", "Argue until four agree"),
    ("crawl", 40, 400, "swarm", "Read many pages at once"),
    ("build", 12, 90, "hierarchical", "Build it in groups of groups"),
    ("assistant", 1, 20, "harness", "One assistant with tools, and a person who says yes or no"),
)
_MEASURES = ("parallelism_efficiency", "useful_agent_utilisation", "protocol_overhead", "message_redundancy")


def samples(seed: int) -> list[Trace]:
    """Eight invented traces: one of each topology, one whose reward was gamed, one in which a letter gave the team orders."""
    made = [
        (synthetic_trace(agents, steps, shape, seed, contents=True, trace_id=name), title)
        for name, agents, steps, shape, title in _SAMPLES
    ]
    made.append((busy_team("busy-team"), "Sum up the week, with a writer for each day"))
    made.append((mail_team("mailroom"), "Answer the morning's mail"))
    return [replace(trace, meta={TITLE: title, PROJECT: "demo"}) for trace, title in made]


def quick_demo(folder: Path, seed: int, *, is_dry: bool, as_json: bool) -> None:
    """Write the sample traces, check and audit them."""
    begin = time.perf_counter()
    traces = samples(seed)
    if not is_dry:
        write_samples(folder, traces)
    rows = [_row(trace) for trace in traces]
    if as_json:
        for row in rows:
            emit(row)
        return
    what = "Would write" if is_dry else "Wrote"
    took = time.perf_counter() - begin
    click.echo(f"{what} {os.fspath(folder)}/: {len(rows)} traces, a store and a file each ({took:.1f} s, offline)\n")
    _print(folder, rows)


def write_samples(folder: Path, traces: list[Trace]) -> None:
    """Make the folder a store with these traces, and write each as a file too."""
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file, not a folder", where=os.fspath(folder), fix="name a new folder with --to")
    with Store(folder) as store:
        store.add_many(traces)
    for trace in traces:
        save(trace, folder / "samples" / f"{trace.trace_id}.trace.json")


def _row(trace: Trace) -> dict[str, object]:
    report = check_trace(trace)
    found = {m.name: m.value for m in measures(trace)}
    fired = [f.hack for f in hacks(trace) if f.status == "found"]
    counts = {"agents": len(trace.members), "events": len(trace.events), "reward": trace.rewards.get("team")}
    verdict = {"errors": report.findings.error_count, "warnings": report.findings.warning_count, "hacks": fired}
    return {"trace": trace.trace_id, "topology": trace.topology} | counts | verdict | {n: found.get(n) for n in _MEASURES}


def _print(folder: Path, rows: list[dict[str, object]]) -> None:
    header = ["trace", "topology", "agents", "events", "R", "check", "speed-up", "useful", "overhead", "redundant", "hacks"]
    cells = [
        [str(r["trace"]), str(r["topology"]), *(number(r[k]) for k in ("agents", "events", "reward")), _verdict(r)]  # type: ignore[arg-type]
        + [number(r[k], 3) for k in _MEASURES]  # type: ignore[arg-type]
        + [", ".join(r["hacks"]) or "-"]  # type: ignore[arg-type]
        for r in rows
    ]
    click.echo(table(header, cells, right=(2, 3, 4, 6, 7, 8, 9), drop=("redundant", "topology", "check", "useful")))
    place = os.fspath(folder)
    click.echo(f"\nNext  export COUNTERPOINT_STORE={place}")
    _tell_next(
        [
            ("show research-team", "who did what, and what was waited for"),
            ("top research-team", "where the tokens went"),
            ("audit busy-team", "a team that was paid for looking busy: two reward hacks"),
            ("audit mailroom --taint", "a letter that gave the team orders, and what came of it"),
            ("sql 'select topology, count(*) from traces group by all'", "any question, in SQL"),
            (f"check {place}/samples/*.json", "the same traces as files"),
            ("view", _browser()),
        ],
        head="      ",
    )


def command_name() -> str:
    """What to type: our command where it is on the path, else as we were called: by its path, or as a module of this Python."""
    if shutil.which("counterpoint"):
        return "counterpoint"
    if os.path.basename(sys.argv[0]) != "__main__.py":
        return os.path.relpath(sys.argv[0])
    found = shutil.which("python")
    is_ours = found is not None and os.path.samefile(found, sys.executable)
    return f"{'python' if is_ours else sys.executable} -m counterpoint"


def _verdict(row: dict[str, object]) -> str:
    return "ok" if not row["errors"] else f"{row['errors']} errors"


# -- screens ---------------------------------------------------------------------------------------------------------------


_WIDTH = 24


def bar(value: float, top: float, *, width: int = _WIDTH) -> str:
    """A bar of blocks; eighths at its end."""
    if not top > 0:
        return ""
    eighths = max(0, min(8 * width, round(8 * width * value / top)))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + ("" if rest == 0 else " ▏▎▍▌▋▊▉"[rest])


def policies_screen(found: dict[str, Any]) -> str:
    """Reward of the learned policies beside hand-made ones and the bound."""
    bound = found["optimum"]["value"]
    rows = []
    for row in found["policies"]:
        runs = str(row["runs"]) if row["name"] in found["spent"] else ""
        share = f"{100 * row['mean'] / bound:.1f} %" if bound > 0 else "-"
        rows.append([row["name"], runs, f"{row['mean']:.1f}", _interval(row), share, bar(row["mean"], bound)])
    kind = "optimum" if found["optimum"]["kind"] == "exact" else "bound of the mean"
    rows.append([kind, "", f"{bound:.1f}", "", "100.0 %", bar(bound, bound)])
    head = ["policy", "runs", "reward", "95 % interval", "of bound", ""]
    said = [f"{d['label']} - {d['against']}: {d['mean']:+.1f} {_interval(d, '+')}, paired" for d in found["differences"]]
    said += [f"warning: not comparable: {why}" for why in found["not_comparable"]]
    title = f"Reward on {found['tasks']} tasks that no run has seen, the mean over training seeds\n"
    return title + table(head, rows, right=(1, 2, 4)) + "\n" + "\n".join(said) + "\n"


def _interval(row: dict[str, Any], sign: str = "") -> str:
    return "" if row["interval"] is None else "[" + ", ".join(f"{x:{sign}.1f}" for x in row["interval"]) + "]"


def tasks_screen(found: dict[str, Any]) -> str:
    """Reward and team size of the learned policies and of the best hand-made one, for each sort of task."""
    names = [*found["spent"], found["best"]]
    rows = [
        [r["task"], *(f"{r['reward'][n]:.1f}" for n in names), f"{r['bound_here']:.1f} ± {r['bound_half']:.1f}"]
        + [f"{r['agents'][n]:.1f}" for n in names]
        for r in found["by_task"]
    ]
    head = ["task", *names, "bound here", *(f"agents of {n}" for n in names)]
    luck = ", ".join(f"{r['luck']:+.1f}" for r in found["by_task"])
    said = (
        "The bound is of the mean over all tasks. The reference gets more on these than on 25 times as many others, by\n"
        f"{luck} points: so lucky are they, and so much is added to the bound here (± the 95 % interval of it)."
    )
    return "Reward and team size by task\n" + table(head, rows, right=range(1, len(head))) + f"\n{said}\n"


def measures_screen(found: dict[str, Any]) -> str:
    """E2 to E4 of the first policy and of the learned one."""
    rows = [[m["family"], m["name"], number(m["before"], 3), number(m["after"], 3)] for m in found["measures"]["rows"]]
    said = table(["", "measure", "before", "after"], rows, right=(2, 3))
    return f"E2 to E4, the mean over four traces of {found['measures']['task']}, before and after training\n{said}\n"


def _bars(title: str, rows: list[tuple[str, float, str]]) -> list[str]:
    top = max((v for _, v, _ in rows), default=0.0)
    width = max((len(name) for name, _, _ in rows), default=0)
    return [title, *(f"  {name.ljust(width)} {bar(v, top).ljust(_WIDTH)} {tail}" for name, v, tail in rows)]


def _sizes(row: dict[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{row['agents'][name]:.1f}" for name in names)


def decisions_screen(found: dict[str, Any]) -> str:
    """What was learned of each of the five decisions."""
    b, (ours, *others) = found["behaviour"], found["spent"]
    beside = [*others, found["best"]]
    sizes = [(r["task"], r["agents"][ours], f"{r['agents'][ours]:.1f} ({_sizes(r, beside)})") for r in found["by_task"]]
    lines = _bars(f"What {ours} decides\nO1 spawn: agents, by task ({', '.join(beside)} in brackets)", sizes)
    lines += _bars(
        "O2 delegate: share of calls that go to family B, by kind of item",
        [(kind, share.get("B", 0.0), f"{100 * share.get('B', 0.0):.0f} %") for kind, share in b["delegate"].items()],
    )
    lines += _bars("O3 communicate: size of the brief", [(k, v, f"{100 * v:.0f} %") for k, v in b["communicate"].items()])
    lines += _bars("O4 aggregate: the rule", [(k, v, f"{100 * v:.0f} %") for k, v in b["aggregate"].items() if v > 0.005])
    lines += _bars(
        "O5 stop: calls on an item before it is left (reference in brackets)",
        [(kind, s["learned"], f"{s['learned']:.1f} ({s['other']:.1f})") for kind, s in b["stop"].items()],
    )
    return "\n".join(lines) + "\n"
