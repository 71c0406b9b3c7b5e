"""The public names: pinned, sorted, documented, loaded only when asked for, and callable however their packages were imported."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import counterpoint

PINNED = [
    "CounterpointError",
    "Delete",
    "Edge",
    "Event",
    "Findings",
    "Force",
    "Format",
    "Graph",
    "InputError",
    "Insert",
    "InvalidTrace",
    "NotFound",
    "NotIdentified",
    "Problem",
    "Refused",
    "Store",
    "Substitute",
    "Trace",
    "TraceBatch",
    "TryAgain",
    "advise",
    "annotate",
    "audit",
    "blame",
    "compare",
    "content_ref",
    "credit",
    "dataset",
    "diff",
    "fork",
    "judge",
    "load",
    "notes", "problems", "read_logs", "record",
    "reward",
    "rows",
    "save",
    "top",
    "train",
    "world",
]  # fmt: skip
# Functions whose name a package of ours has too.
BOTH = ["audit", "credit", "reward", "train"]
ORDERS = {
    "the function first": "import counterpoint as cpt; assert callable(cpt.{0}); import counterpoint.{0}.{1}",
    "the package first": "import counterpoint.{0}.{1}; import counterpoint as cpt",
    "the package under a name": "import counterpoint.{0} as m; import counterpoint as cpt; import counterpoint.{0}.{1}; assert m is cpt.{0}",
    "from the package": "from counterpoint import {0} as m; import counterpoint as cpt; import counterpoint.{0}.{1}; assert m is cpt.{0}",
    "a name of its module": "from counterpoint.{0}.{1} import __doc__; import counterpoint as cpt",
}
MODULE_OF = {"audit": "records", "credit": "mechanisms", "reward": "rewards", "train": "presets"}


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def test_the_public_names_are_these() -> None:
    assert counterpoint.__all__ == PINNED


def test_type_checkers_see_every_name_where_it_is_loaded_from() -> None:
    guarded = next(node for node in ast.parse(inspect.getsource(counterpoint)).body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed.pop("Any") == "typing"
    assert typed == {name: f"counterpoint.{home}" for name, home in counterpoint._HOME.items()}


def test_each_is_documented() -> None:
    for name in PINNED:
        assert inspect.getdoc(getattr(counterpoint, name)), f"{name} has no docstring"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(counterpoint, "no_such_name")


def test_dir_shows_them_and_nothing_else() -> None:
    import counterpoint.errors  # a module that was imported is not part of the API

    assert dir(counterpoint) == sorted([*PINNED, "__version__"])


@pytest.mark.parametrize("order", ORDERS)
def test_a_package_is_the_function_of_its_name_in_every_order_of_imports(order: str) -> None:
    """One process for all packages: the class of a module cannot be undone."""
    lines = []
    for name in BOTH:
        lines.append(ORDERS[order].format(name, MODULE_OF[name]))
        lines.append(f"assert callable(cpt.{name}) and cpt.{name} is sys.modules['counterpoint.{name}']")
        lines.append(f"assert cpt.{name}.{MODULE_OF[name]} is sys.modules['counterpoint.{name}.{MODULE_OF[name]}']")
        lines.append(f"import counterpoint.{name} as again; assert again is cpt.{name}")
    _python("-c", "import sys\n" + "\n".join(lines))


@pytest.mark.parametrize("name", BOTH)
def test_a_callable_package_looks_like_its_function(name: str) -> None:
    from counterpoint.app.api import audit, credit
    from counterpoint.lab.app.api import train

    home = {"audit": audit, "credit": credit, "reward": credit, "train": train}[name]
    both, function = getattr(counterpoint, name), getattr(home, name)
    assert inspect.signature(both) == inspect.signature(function)
    assert function.__doc__ in both.__doc__
    assert vars(both)["__doc__"] in both.__doc__
    assert inspect.ismodule(both)


def test_a_callable_package_is_copied_and_sent_as_itself() -> None:
    assert pickle.loads(pickle.dumps(counterpoint.audit)) is counterpoint.audit
    assert copy.deepcopy(counterpoint.credit) is counterpoint.credit
    trace = counterpoint.world("W1", vote_items=8).run("reference", [0], log=True).trace(0)
    with ThreadPoolExecutor(2) as pool:
        assert [one.traces[0].trace_id for one in pool.map(counterpoint.audit, [trace, trace])] == [trace.trace_id] * 2


def test_the_package_runs_as_the_command() -> None:
    started = "import sys; from counterpoint.app.cli import main; main(['--help'])"
    assert _python("-m", "counterpoint", "--help").stdout == _python("-c", started).stdout


def test_import_time_is_not_spent_on_what_is_not_used() -> None:
    code = "import sys; before = set(sys.modules); import counterpoint; print(*set(sys.modules) - before)"
    assert not set(_python("-c", code).stdout.split()) & {"typing", "re", "inspect", "pathlib", "numpy", "msgspec"}
    code = "import counterpoint, sys; counterpoint.Event; counterpoint.credit; print('pyarrow' in sys.modules, 'duckdb' in sys.modules)"
    assert _python("-c", code).stdout.split() == ["False", "False"]
