"""A user's own team on the bench: in a process of its own, with tools through a pipe, recorded, and ended when it must be.

    def team(job):                                   # package.module:team
        with job.recording.acting("reader"):
            found = job.tools["search"]("the bridge")
        return answer

Always true: whatever the code does (raises, hangs, floods, exits, asks without end), `play_own` comes back with what it did until
then. The child is given the question, the tools' names and the parts of the work, and neither the seed nor the truth: tools run
here. What it imports of the tasks' code meanwhile is refused and told. Tool calls are counted here, whatever the code says.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

import counterpoint.registry as registry
from counterpoint.errors import CounterpointError
from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.job import Job, takes_text
from counterpoint.lab.team.toolbox import Toolbox
from counterpoint.recorder.problems import error_text
from counterpoint.recorder.recording import Recording, record
from counterpoint.store import Store
from counterpoint.trace import Trace

_LEAD = "lead"
_ROLE = "worker"
_SECRET = ("counterpoint.lab.tasks", "counterpoint.lab.worlds")
_RUN = "run"
"""What the recording is called there: a name that tells neither cell nor seed."""
_STARTS = frozenset({"subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn"})
_HARMLESS = frozenset({"uname", "lsb_release", "ldconfig"})
"""What libraries ask about the machine."""
_BYTES = 512 << 20
"""What a recording may weigh on disk."""
_LOOK_S = 0.2
_WORDS = 160
"""Characters of an error that a row keeps."""
_START_S = 600.0
"""What importing may take beside."""


@dataclass
class OwnRun:
    """What a child did."""

    answer: str = ""
    status: str = "played"
    why: str = ""
    tool_calls: int = 0
    trace: Trace | None = None
    peeked: list[str] = field(default_factory=list)
    started: str = ""
    """The first other program that it started: nothing is refused there."""


def own_team(name: str) -> Any:
    """What `package.module:function` or `path/to/file.py:function` names."""
    return registry.get("team", name)


def play_own(
    name: str, instance: Instance, trace_id: str, *, seconds: float, calls: int, events: int,
    case: Mapping[str, Any] | None = None,
) -> OwnRun:  # fmt: skip
    """One run of the code that `name` names; with a `case` of its owner's nobody has to be kept from an answer key."""
    allowed = {_ROLE: instance.tools, _LEAD: instance.tools}
    toolbox, out = Toolbox(instance, allowed, {}), OwnRun()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        asked = {
            "name": name, "question": instance.question, "answer_format": instance.answer_format,
            "parts": {s.id: s.text for s in instance.subtasks}, "store": folder, "path": list(sys.path),
            "tools": {t.name: f"{t.about} Argument: {t.main}" for t in toolbox.offered(_ROLE)},
            "briefs": tuple("\n".join(shard) for shard in instance.shards), "case": case,
        }  # fmt: skip
        child = context.Process(target=_child, args=(theirs, asked), daemon=True)
        child.start()
        theirs.close()
        try:
            _served(out, ours, child, toolbox, Path(folder), seconds, calls)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid or 0, signal.SIGKILL)  # with all that it started
            if child.is_alive():
                child.kill()
            child.join()
            ours.close()
        found = _recorded(Path(folder), _RUN)
        out.trace = None if found is None else msgspec.structs.replace(found, trace_id=trace_id)
    told = [f"tried to read the answer key ({out.peeked[0]})"] if out.peeked else []
    told += [f"started other processes ({out.started}), which nobody watched"] if out.started else []
    out.why = "; ".join([*told, *([out.why] if out.why else [])])
    if out.trace is not None and len(out.trace.events) > events and out.status == "played":
        out.status, out.why = "flooded", f"{len(out.trace.events):,} events recorded; {events:,} are allowed"
    return out


def _served(
    out: OwnRun, pipe: Connection, child: Any, toolbox: Toolbox, folder: Path, seconds: float, most: int
) -> None:  # fmt: skip
    """Answer what the child asks, until it is done, gone, or has used up what it may; its time begins when it is loaded."""
    until = time.monotonic() + seconds + _START_S
    with asyncio.Runner() as runner:
        try:
            while True:
                if time.monotonic() > until:
                    out.status, out.why = "hung", "it did not come to an end in the time that it had"
                    return
                if _weight(folder) > _BYTES:
                    out.status, out.why = "flooded", "its recording grew past half a gigabyte"
                    return
                if not pipe.poll(_LOOK_S):
                    if not child.is_alive() and not pipe.poll(0):
                        out.status, out.why = "crashed", f"its process ended with code {child.exitcode}"
                        return
                    continue
                try:
                    kind, *said = pipe.recv()
                except (EOFError, OSError):
                    child.join()
                    out.status, out.why = "crashed", f"its process ended with code {child.exitcode}"
                    return
                if kind == "tool":
                    out.tool_calls += 1
                    if out.tool_calls > most:
                        out.status, out.why = "flooded", f"more than {most:,} tool calls"
                        return
                    agent, name, text = said
                    result = runner.run(toolbox.call(agent, _ROLE, name, text))
                    pipe.send((result.text, result.ok, result.error))
                elif kind == "ready":
                    until = time.monotonic() + seconds
                elif kind == "peek":
                    out.peeked.append(said[0])
                elif kind == "started":
                    out.started = said[0]
                elif kind == "failed":
                    out.status, out.why = "crashed", said[0]
                    return
                else:
                    out.answer = said[0]
                    return
        finally:
            runner.run(toolbox.close())


def _weight(folder: Path) -> int:
    journal = folder / "journal"
    with contextlib.suppress(OSError):
        return sum(f.stat().st_size for f in journal.iterdir())
    return 0


def _recorded(folder: Path, trace_id: str) -> Trace | None:
    try:
        with Store(folder, create=False) as store:
            return store.get(trace_id)
    except CounterpointError:
        return None


# -- in the child ------------------------------------------------------------------------------------------------------------


def _child(pipe: Connection, asked: Mapping[str, Any]) -> None:
    os.setsid()  # so that all that it starts can be ended with it
    os.dup2(2, 1)  # what it prints is no output of ours
    sys.path[:] = asked["path"]
    recording = record(asked["store"], task=_RUN, trace_id=_RUN, agent=_LEAD, system="bench")
    lock = threading.RLock()

    def report(*what: str) -> None:
        with lock:
            pipe.send(what)

    job = Job(
        question=asked["question"], answer_format=asked["answer_format"], parts=asked["parts"], recording=recording,
        tools={name: _tool(name, pipe, recording, lock) for name in asked["tools"]}, about=asked["tools"], briefs=asked["briefs"],
        case=asked["case"] or {},
    )  # fmt: skip
    try:
        team = own_team(asked["name"])
        pipe.send(("ready",))
        if asked["case"] is None:
            _watch(report)
        with recording:
            answer = team(job.question if takes_text(team) else job)
            if asyncio.iscoroutine(answer):
                answer = asyncio.run(answer)
            if recording.session is not None and not recording.session.recorder.count:
                recording.stop(answer)  # who records nothing has at least answered
        _ = recording.trace  # it is in the store when the answer is told
        pipe.send(("failed", "it returned None, which is no answer") if answer is None else ("done", str(answer)))
    except BaseException as error:
        _ = recording.trace
        with contextlib.suppress(OSError):
            pipe.send(("failed", error_words(error)))


def error_words(error: BaseException) -> str:
    """An error in one line, and the line of code that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    told = (error_text(error) or "").partition("\n")[0][:_WORDS]
    return f"{told} at {os.path.basename(last.filename)}:{last.lineno}"


def _tool(name: str, pipe: Connection, recording: Recording, lock: Any) -> Callable[[str], str]:
    """A tool of the job: asked for through the pipe, and recorded once."""

    def ask(text: str) -> str:
        scope = recording.here()
        with lock:
            pipe.send(("tool", _LEAD if scope is None else scope.lane.agent, name, str(text)))
            said, ok, error = pipe.recv()
        if not ok:
            recording.tell(ok=False, error=error)
        return str(said)

    def call(text: str = "") -> str:
        scope = recording.here()
        if scope is not None and scope.tool == name:  # an adapter has begun to record this very call
            return ask(text)
        with recording.tool_call(name, text) as doing:
            said = ask(text)
            doing.result(said)
        return said

    return call


def _watch(tell: Callable[..., None]) -> None:
    """From now on, what is imported or read of the tasks' own code is refused, and told; other processes are told."""
    lab = Path(__file__).resolve().parents[2]
    here = (str(lab / "tasks"), str(lab / "worlds"))
    known, first = set(sys.modules), [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        name = str(args[0]) if args else ""
        if event in _STARTS and first and os.path.basename(name) not in _HARMLESS:
            first.clear()
            tell("started", os.path.basename(name) or "a copy of itself")
        is_import = event == "import" and name.startswith(_SECRET) and name not in known
        if is_import or (event == "open" and name.startswith(here)):
            tell("peek", name if is_import else os.path.basename(name))
            raise PermissionError("a team on the bench may not look at how its task was made")

    sys.addaudithook(hook)
