"""T3: the same bytes for a seed, exact shares of tests, a worker that solves it alone, and code that means harm."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.tasks import _module_process
from counterpoint.lab.tasks._module_kinds import KINDS, read
from counterpoint.lab.tasks._module_runs import CallGroup, blocks, one_line, outputs
from counterpoint.lab.tasks.module_dag import ModuleDag, hidden_tests, module_dag, plan
from counterpoint.lab.tasks.task import TextTask, View, ViewItem
from play_help import ODD_SEEN, PYTHON, RETURN, STOP, drawn, play

SEEDS = st.integers(0, 2**62)
SMALL = module_dag.replace(modules=3, tests=2)


def _right(task: ModuleDag, seed: int) -> dict[str, str]:
    return blocks(task.truth_file(task.instance(seed)))


def test_is_a_task() -> None:
    assert isinstance(module_dag, TextTask)
    assert (module_dag.name, module_dag.short, module_dag.rules[0]) == ("module_dag", "T3", "join")


@given(SEEDS, st.integers(1, 40), st.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_a_plan_is_a_dag_whose_types_agree_and_whose_text_says_all(seed: int, modules: int, wired: float) -> None:
    task = module_dag.replace(modules=modules, wired=wired)
    instance = task.instance(seed)
    assert repr(instance) == repr(ModuleDag(task.config).instance(seed))
    made = plan(seed, modules, wired)
    assert len(made.modules) == modules == len(instance.subtasks)
    gives = {"a0": "list[int]"}
    for module, takes in zip(made.modules, made.takes, strict=True):
        assert [gives[key] for key in takes] == [type_ for _, type_ in KINDS[module.kind].takes]
        gives[module.name] = KINDS[module.kind].gives
    used = {key for takes in made.takes for key in takes}
    assert {m.name for m in made.modules[:-1]} <= used
    assert list(read(instance.question).values()) == list(made.modules)
    for part, module in zip(instance.subtasks, made.modules, strict=True):
        assert read(part.text) == {module.name: module}
    groups, expected = hidden_tests(seed, made, 4)
    assert {g.name for g in groups} == {*(m.name for m in made.modules), "whole"} == set(expected)


def test_the_form_of_a_wire_stands_in_the_file_alone() -> None:
    task = module_dag.replace(modules=8, wired=1.0)
    for seed in range(20):
        instance, made = task.instance(seed), plan(seed, 8, 1.0)
        assert made.forms
        assert all(form in instance.files["interfaces.txt"] and form not in instance.question for form in made.forms.values())
        assert all(not m.example for m in made.modules if m.wire)


@given(SEEDS)
@settings(max_examples=6, deadline=None)
def test_the_truth_solves_it_whole_or_merged_from_parts(seed: int) -> None:
    instance, right = module_dag.instance(seed), _right(module_dag, seed)
    parts = list(right.values())
    for rule in module_dag.rules:
        score = module_dag.check(instance, module_dag.merge(instance, rule, parts))
        assert score.is_solved
        assert score.value == 1.0
    assert module_dag.check(instance, "Here it is:\n```python\n" + "\n\n".join(parts) + "\n```\nDone.").is_solved


def test_the_score_is_the_share_of_tests_passed() -> None:
    instance, right = module_dag.instance(1), _right(module_dag, 1)
    first, *others = right.values()
    score = module_dag.check(instance, "\n".join(others))
    n = len(right)
    assert score.parts["m1"] == 0.0 == score.parts["whole"]
    assert all(score.parts[f"m{i}"] == 1.0 for i in range(2, n + 1))
    assert score.value == float(Fraction(n - 1, n + 1))
    assert module_dag.check(instance, first).value == float(Fraction(1, n + 1))


def test_merging_takes_the_first_the_last_or_what_most_wrote() -> None:
    instance = SMALL.instance(0)
    texts = ["def m1(xs): return 1", "def m1(xs): return 2", "no code", "def m1(xs): return 2"]
    assert SMALL.merge(instance, "join", texts) == "def m1(xs): return 1"
    assert SMALL.merge(instance, "vote", texts) == "def m1(xs): return 2"
    assert SMALL.merge(instance, "last", ["def m1(xs): return 3", *texts[:1]]) == "def m1(xs): return 1"
    assert SMALL.merge(instance, "join", []) == ""
    with pytest.raises(NotFound):
        SMALL.merge(instance, "joyn", texts)


@given(st.text(max_size=60) | st.text(alphabet="def m1(xs): return\\n\t '[]{}+-*`", max_size=80))
@settings(max_examples=12, deadline=None)
def test_any_text_has_a_score_and_merges(text: str) -> None:
    instance = SMALL.instance(2)
    for answer in (text, f"def m1(xs):{text}", f"def m1(xs): return {text}"):
        score = SMALL.check(instance, answer)
        assert 0.0 <= score.value <= 1.0
        assert score.is_solved == (score.value == 1.0)
        for rule in SMALL.rules:
            assert isinstance(SMALL.merge(instance, rule, [text, answer]), str)


@given(st.dictionaries(st.sampled_from(["m1", "m2", "helper"]), st.integers(), max_size=3))
def test_one_line_is_read_back(numbers: dict[str, int]) -> None:
    sources = {name: f"def {name}(xs: list[int]) -> int:\n    return {n}" for name, n in numbers.items()}
    line = one_line(sources)
    assert "\n" not in line
    assert blocks(line) == sources == blocks("\n".join(sources.values()))


# -- code that means harm ------------------------------------------------------------------------------------------------

HARM = {
    "endless loop": "while True: pass",
    "endless loop in C": "return sum(range(10**15))",
    "memory": "return [0] * 10**12",
    "memory step by step": "x = [0]\n    while True: x = x + x",
    "huge number": "return 9**9**9",
    "recursion": "return m1(xs)",
    "fork": "import os\n    os.fork()\n    return xs",
    "system": "__import__('os').system('touch HARMED')\n    return xs",
    "socket": "import socket\n    socket.socket()\n    return xs",
    "file": "open('HARMED', 'w').write('x')\n    return xs",
    "exit": "import sys\n    sys.exit(0)",
    "raise exit": "raise SystemExit",
    "eval": "return eval('1')",
    "class": "return ().__class__.__base__.__subclasses__()",
    "format": "return '{0.__globals__}'.format(m1)",
    "frames": "return (x for x in xs).gi_frame.f_back.f_globals",
    "reading the tests": "return globals()['asked']",
    "late catch": "while True:\n        try:\n            while True: pass\n        except Exception: pass\n        finally: continue",
    "bare catch": "try:\n        while True: pass\n    except: return xs",
}


@pytest.mark.parametrize("what", HARM)
def test_harm_fails_alone_and_touches_nothing(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sources = {"m1": f"def m1(xs):\n    {HARM[what]}", "m2": "def m2(xs): return len(xs)"}
    groups = [CallGroup(name, ((name, ("a0",), "out"),), (([1, 2],), ([3],))) for name in ("m1", "m2")]
    given_ = outputs(sources, groups)
    assert given_["m1"] == [None, None]
    assert given_["m2"] == [["int", "2"], ["int", "1"]]
    assert list(tmp_path.iterdir()) == []


def test_an_answer_of_nothing_but_harm_scores_zero() -> None:
    instance = SMALL.instance(4)
    for what in ("fork", "system", "reading the tests", "exit"):
        answer = "import os, sys, socket\nos.system('true')\n" + "\n".join(f"def m{i}(*xs):\n    {HARM[what]}" for i in (1, 2, 3))
        assert SMALL.check(instance, answer).value == 0.0


ESCAPES = [
    "import os; os.fork()",
    "import os; os.system('true')",
    "import os; os.posix_spawn('/bin/true', ['true'], {})",
    "import socket; socket.socket()",
    "open('x', 'w')",
    "open('/etc/hostname')",
    "import ctypes",
    "import subprocess; subprocess.run(['true'])",
    "exec('1')",
]


@pytest.mark.parametrize("code", ESCAPES)
def test_the_lock_holds_without_the_list_of_what_may_run(code: str, tmp_path: Path) -> None:
    # What the answers' grammar keeps out is stopped a second time: here the code runs after `lock` with all of Python.
    import ast

    names = sorted({a.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import) for a in node.names})
    early = f"import {', '.join(names)}; " if names and "ctypes" not in names else ""
    run = f"{early}import runpy; lock = runpy.run_path({_module_process.__file__!r}, run_name='child')['lock']\nc = compile({code!r}, 'c', 'exec')\n"
    run += "from types import FunctionType\nf = FunctionType(c, globals())\nprint('locked', flush=True)\nlock()\n"
    run += "f()\nimport os\nos.write(1, b'escaped')"
    done = subprocess.run(
        [sys.executable, "-I", "-c", run], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout == "locked\n"
    assert done.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_an_input_that_is_changed_fails() -> None:
    groups = [CallGroup("m1", (("m1", ("a0",), "out"),), (([2, 1],),))]
    assert outputs({"m1": "def m1(xs):\n    xs.sort()\n    return xs"}, groups) == {"m1": [None]}
    assert outputs({"m1": "def m1(xs): return sorted(xs)"}, groups)["m1"] == [_module_process.tagged([1, 2])]


def test_types_are_kept_apart() -> None:
    for a, b in ((1, True), (1, 1.0), ([1], (1,)), ("1", 1)):
        assert _module_process.tagged(a) != _module_process.tagged(b)
    assert _module_process.untagged(_module_process.tagged([1, ("a", -2)])) == [1, ("a", -2)]
    with pytest.raises(ValueError):
        _module_process.tagged({1: 2})


# -- the worker ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_solves_it_alone_and_in_parts(seed: int, tmp_path: Path) -> None:
    task = module_dag.replace(wired=1.0, tests=3)
    instance = task.instance(seed)
    act, _ = play(task, instance, [], tmp_path, choices=(PYTHON, *STOP))
    assert act.verb == "stop"
    assert task.check(instance, act.text).is_solved
    parts = [
        play(task, instance, [ViewItem("subtask", "lead", s.text, s.id)], tmp_path, choices=(PYTHON, *RETURN))[0].text
        for s in instance.subtasks
    ]
    assert task.check(instance, task.merge(instance, "join", parts)).is_solved


def test_a_worker_without_skill_gets_it_wrong_and_an_example_mends_it(tmp_path: Path) -> None:
    instance = SMALL.instance(5)
    act, _ = play(SMALL, instance, [], tmp_path, skill=0.0)
    assert all(part < 1.0 for name, part in SMALL.check(instance, act.text).parts.items() if name != "whole")
    module = read(instance.subtasks[0].text)["m1"]
    wrong = [ViewItem("subtask", "lead", instance.subtasks[0].text), ViewItem("result", "python", "tested m1 something else\n")]
    act, _ = play(SMALL, instance, wrong, tmp_path, skill=1.0)
    assert act.text == module.source()


def test_a_critic_accepts_what_is_right_and_names_what_is_wrong(tmp_path: Path) -> None:
    instance, right = SMALL.instance(5), _right(SMALL, 5)
    module = read(instance.question)["m2"]
    wrong = right | {"m2": module.source(is_slip=True)}
    lacks = {"m1": right["m1"], "m2": right["m2"]}
    for sources, word in ((right, "ACCEPT"), (wrong, "REJECT m2("), (lacks, "REJECT m3 is missing")):
        act, _ = play(SMALL, instance, [ViewItem("return", "lead.1", one_line(sources))], tmp_path, purpose="judge")
        assert act.text.startswith(word)
    part = [ViewItem("subtask", "lead.1", instance.subtasks[1].text, "s2"), ViewItem("return", "lead.1", right["m2"], "s2")]
    assert play(SMALL, instance, part, tmp_path, purpose="judge")[0].text == "ACCEPT"
    other = [part[0], ViewItem("return", "lead.1", right["m2"].replace("return", "return 7 if True else"), "s2")]
    assert play(SMALL, instance, other, tmp_path, purpose="judge", choices=(PYTHON, *RETURN))[0].text.startswith("REJECT m2(")


def test_a_resolver_takes_what_others_wrote(tmp_path: Path) -> None:
    task = module_dag.replace(modules=4, wired=1.0, tests=2)
    seed = next(s for s in range(20) if task.instance(s).files)
    instance, right = task.instance(seed), _right(task, seed)
    seen = [ViewItem("return", f"lead.{i}", source) for i, source in enumerate(right.values())]
    act, _ = play(task, instance, seen, tmp_path, purpose="resolve", choices=STOP)
    assert task.check(instance, act.text).is_solved


@given(
    st.lists(st.sampled_from(ODD_SEEN), max_size=6),
    st.sampled_from(["turn", "work", "judge", "debate", "resolve", "?"]),
    st.booleans(),
)
@settings(max_examples=40)
def test_odd_views_never_raise(seen: list[ViewItem], purpose: str, has_question: bool) -> None:
    start = [ViewItem("question", "user", SMALL.instance(0).question)] if has_question else []
    for choices in ((), RETURN, (PYTHON, *STOP)):
        act = SMALL.work(View("lead", "agent", purpose, tuple(start + seen), choices), drawn(1), 0.5)
        assert act.verb in {"noop", *(c.verb for c in choices)}


def test_impossible_dials_are_refused() -> None:
    for wrong in ({"modules": 0}, {"modules": 2_001}, {"tests": 0}, {"wired": 2}, {"modules": "3"}, {"no_such": 1}):
        with pytest.raises(InputError):
            module_dag.replace(**wrong)
