"""What became of each agent's work: lines that survive later edits, commands and tests, returns that were used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from counterpoint.audits.facts import Facts
from counterpoint.audits.measures import measures
from counterpoint.audits.work.agents import AgentWork, work
from counterpoint.audits.work.edits import commands_of, edits_of, may_change_files, removed_by
from counterpoint.trace import Edge, Event, Trace


def session(*acts: tuple[str, str, Any], failed: tuple[int, ...] = (), results: dict[int, str] | None = None) -> Trace:
    """A lead that spawns everybody else; each act is (agent, tool, arguments), one after another, and gets a result."""
    names = dict.fromkeys(agent for agent, _, _ in acts if agent != "lead")
    events = [Event(id=f"s-{name}", t=0, type="spawn", agent="lead", to=name) for name in names]
    contents: dict[str, str] = {}
    edges = []
    for k, (agent, tool, args) in enumerate(acts):
        contents[f"c{k}"] = args if isinstance(args, str) else json.dumps(args)
        contents[f"r{k}"] = (results or {}).get(k, "ok")
        events.append(Event(id=f"c{k}", t=2 * k + 1, type="tool_call", agent=agent, tool=tool, content_ref=f"c{k}"))
        done = None if k not in failed else "it failed"
        events.append(Event(id=f"r{k}", t=2 * k + 2, type="tool_result", agent=agent, tool=tool, content_ref=f"r{k}", error=done))
        edges.append(Edge(f"c{k}", f"r{k}", "causal"))
    events.append(Event(id="end", t=2 * len(acts) + 3, type="message", agent="lead", to="user"))
    return Trace(trace_id="t", task_id="q", events=events, edges=edges, contents=contents)


def of(trace: Trace, name: str) -> AgentWork:
    return next(one for one in work(trace).agents if one.agent == name)


def lines(trace: Trace) -> dict[str, tuple[int | None, int | None]]:
    return {one.agent: (one.lines, one.lines_kept) for one in work(trace).agents}


def write(path: str, text: str) -> dict[str, str]:
    return {"file_path": path, "content": text}


def edit(path: str, old: str, new: str, **more: Any) -> dict[str, Any]:
    return {"file_path": path, "old_string": old, "new_string": new, **more}


def test_lines_that_later_edits_leave_are_kept_and_others_are_not() -> None:
    trace = session(
        ("ann", "Write", write("/r/a.py", "one\ntwo\n\nthree\nfour\n")),
        ("bob", "Edit", edit("/r/a.py", "two\n", "TWO\nmore\n")),
        ("bob", "Write", write("/r/b.py", "x\ny\n")),
        ("ann", "Bash", {"command": "rm -f /r/b.py"}),
    )
    # a.py at the end: one TWO more (blank) three four; b.py is gone
    assert lines(trace) == {"ann": (4, 3), "bob": (4, 2), "lead": (0, 0)}
    assert (of(trace, "bob").files, of(trace, "bob").files_kept) == (2, 1)
    assert work(trace).files == {"/r/a.py": {"ann": 3, "bob": 2}}


def test_a_file_that_was_there_before_is_known_by_what_edits_name() -> None:
    trace = session(
        ("ann", "Edit", edit("/r/big.py", "def f():\n    pass\n", "def f():\n    first = 1\n    return first\n")),
        ("bob", "Edit", edit("/r/big.py", "import os\n", "import os\nimport sys\n")),
        ("bob", "Edit", edit("/r/big.py", "# head\ndef f():\n    first = 1\n", "# head\ndef f():\n    second = 2\n")),
        ("ann", "Edit", edit("/r/big.py", "import sys", "import json, sys")),
    )
    # ann: `first = 1` is replaced by bob's, `return first` stays, and `import sys` of bob's becomes ann's
    assert lines(trace) == {"ann": (3, 2), "bob": (2, 1), "lead": (0, 0)}


def test_a_rewrite_keeps_the_authors_of_the_lines_that_it_repeats() -> None:
    trace = session(
        ("ann", "write_file", {"path": "a.md", "content": "alpha\nbeta\ngamma"}),
        ("bob", "write_file", {"path": "/r/a.md", "content": "alpha\nbeta\ndelta"}),
        ("bob", "write_file", {"path": "a.md", "content": "alpha\nnew\ngamma"}),
    )
    # the relative and the absolute path are two files at first, and then a.md is the one of that name
    assert lines(trace)["ann"] == (3, 2)


def test_failed_calls_change_nothing_and_what_is_not_recorded_is_not_zero() -> None:
    trace = session(
        ("ann", "Write", write("/r/a.py", "one\n")),
        ("ann", "Edit", edit("/r/a.py", "one", "two")),
        ("bob", "Edit", edit("/r/a.py", "one", "three")),
        failed=(1,),
    )
    assert lines(trace) == {"ann": (1, 0), "bob": (1, 1), "lead": (0, 0)}
    bare = work(replace(trace, contents={}))
    assert {one.agent: (one.lines, one.unmeasured) for one in bare.agents} == {"ann": (None, 1), "bob": (None, 1), "lead": (0, 0)}
    assert "not measured" in bare.agents[0].became
    assert "2 writes without contents in the log: not measured" in bare.notes
    stated = Trace(
        trace_id="t", task_id="q",
        events=[Event(id="s", t=0, type="spawn", agent="lead", to="ann"), Event(id="r", t=1, type="return", agent="ann", to="lead")],
        edges=[Edge("s", "r", "spawn")],
    )  # fmt: skip
    silent = of(stated, "ann")
    assert (silent.is_recorded, silent.lines, silent.commands) == (False, None, None)
    assert "no transcript" in silent.became


PATCH = """*** Begin Patch
*** Add File: new.py
+a = 1
+b = 2
*** Update File: old.py
@@ def f():
 def f():
-    return 1
+    return 2
*** Delete File: gone.py
*** End Patch"""


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("apply_patch", PATCH),
        ("apply_patch", json.dumps({"input": PATCH})),
        ("shell", json.dumps({"command": ["apply_patch", PATCH]})),
        ("exec", f"const patch = {json.dumps(PATCH)};\nconst r = await tools.apply_patch(patch);\ntext(r);"),
        ("Bash", json.dumps({"command": f"apply_patch <<'EOF'\n{PATCH}\nEOF"})),
    ],
)
def test_a_patch_is_read_wherever_it_stands(tool: str, text: str) -> None:
    found = edits_of(tool, text)
    assert found is not None
    assert [(e.kind, e.path) for e in found] == [("write", "new.py"), ("replace", "old.py"), ("delete", "gone.py")]
    assert found[0].new == "a = 1\nb = 2"
    assert (found[1].old, found[1].new) == ("def f():\n    return 1", "def f():\n    return 2")


def test_other_editors() -> None:
    one = edits_of("str_replace_editor", json.dumps({"command": "create", "path": "/r/a", "file_text": "x\ny"}))
    assert one is not None
    assert (one[0].kind, one[0].new) == ("write", "x\ny")
    many = edits_of("MultiEdit", json.dumps({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}] * 2}))
    assert [e.kind for e in many or []] == ["replace", "replace"]
    kimi = edits_of("StrReplaceFile", json.dumps({"path": "a", "edit": {"old": "x", "new": "y", "replace_all": True}}))
    assert [e.every for e in kimi or []] == [True]
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n keep\n-old\n+new\n"
    assert [(e.path, e.old, e.new) for e in edits_of("patch", json.dumps({"diff": diff})) or []] == [
        ("x.py", "keep\nold", "keep\nnew")
    ]
    here = edits_of("Bash", json.dumps({"command": "mkdir -p d && cat > d/a.txt <<'EOF'\none\ntwo\nEOF\nls d"}))
    assert [(e.kind, e.path, e.new) for e in here or []] == [("write", "d/a.txt", "one\ntwo")]
    assert edits_of("Read", json.dumps({"file_path": "a"})) == []
    assert edits_of("TodoWrite", json.dumps({"todos": [{"content": "x"}]})) == []
    assert edits_of("Bash", json.dumps({"command": "ls > out.txt"})) == []
    assert edits_of("patch_apply", '["/r/a.ts"]') is None, "which file is known, and not what was written"


def test_commands_and_what_they_may_do_to_files() -> None:
    script = 'const r = await tools.exec_command({"cmd":"go test ./...","workdir":"/r"});'
    assert commands_of("exec", script) == ["go test ./..."]
    assert commands_of("shell", json.dumps({"command": ["bash", "-lc", "ls -l"]})) == ["ls -l"]
    assert commands_of("Read", json.dumps({"file_path": "a"})) == []
    assert may_change_files("cd /r && git checkout -- src/a.py") == "git checkout"
    assert may_change_files("sed -i s/a/b/ x") == "sed -i"
    assert may_change_files("git log --oneline | grep black") is None
    assert removed_by("cd d && rm -rf a.py 'b.py' *.pyc; ls") == ["a.py", "b.py"]


def test_tests_and_commands_with_what_came_of_them() -> None:
    trace = session(
        ("ann", "Bash", {"command": "pytest -q"}),
        ("ann", "Bash", {"command": "uv run pytest tests"}),
        ("ann", "Bash", {"command": "npm test"}),
        ("ann", "Bash", {"command": "ls missing"}),
        ("ann", "exec", 'await tools.exec_command({"cmd":"vitest run"})'),
        failed=(1, 3),
        results={0: "3 passed in 0.1s", 1: "1 failed, 2 passed in 0.2s", 2: "see the log",
                 4: '{"output":"\\u001b[1m\\n      Tests  18 passed (18)\\n"}'.replace("\n", "\\n")},
    )  # fmt: skip
    ann = of(trace, "ann")
    assert (ann.tests, ann.tests_passed, ann.tests_failed) == (4, 2, 1)
    assert (ann.commands, ann.commands_failed) == (5, 2)


def handed(text: str, later: str, told: str = "look at the lake") -> AgentWork:
    events = [
        Event(id="s", t=0, type="spawn", agent="lead", to="ann", content_ref="told"),
        Event(id="r", t=1, type="return", agent="ann", to="lead", content_ref="text"),
        Event(id="e", t=2, type="message", agent="lead", to="user", content_ref="later"),
    ]
    edges = [Edge("s", "r", "spawn"), Edge("r", "e", "return")]
    return of(Trace(trace_id="t", task_id="q", events=events, edges=edges,
                    contents={"told": told, "text": text, "later": later}), "ann")  # fmt: skip


def test_a_return_is_used_where_its_reader_says_or_does_what_was_new_in_it() -> None:
    assert handed("the lake is very deep at Thun", "I learnt that the lake is very deep").returns_used == 1
    assert handed("see src/lake.py for it", "edited src/lake.py").returns_used == 1
    assert handed("the lake is deep", "nothing was found").returns_used == 0
    same = handed("I was to look at the deep lake", "so look at the deep lake", told="go and look at the deep lake now")
    assert (same.returns, same.returns_used) == (1, 0), "it only said again what it was told"


def test_useful_acts_are_those_of_the_measure() -> None:
    trace = session(("ann", "Read", {"file_path": "a"}), ("bob", "Read", {"file_path": "b"}))
    trace = replace(trace, edges=[*trace.edges, Edge("r0", "end", "message")])
    told = work(trace)
    stated = {m.name: m.value for m in measures(trace)}["useful_agent_utilisation"]
    assert told.useful == stated == 0.5
    assert {one.agent: (one.useful, one.acts) for one in told.agents if one.agent != "lead"} == {"ann": (1, 1), "bob": (0, 1)}
    assert Facts(trace).sub_acts == (2, 1)
