"""The public names: pinned, sorted, documented, loaded only when asked for; plain functions whatever else was imported."""

from __future__ import annotations

import ast
import inspect
import pickle
import pkgutil
import subprocess
import sys

import counterpoint
from counterpoint import registry

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
    "gate",
    "issues",
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
# Names that the laboratory adds, as any installed package may.
ADDED = ["compare", "judge", "train", "world"]


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def test_the_public_names_are_these() -> None:
    assert counterpoint.__all__ == PINNED
    assert sorted([*counterpoint._HOME, *ADDED]) == PINNED
    assert registry.names().keys() >= {*ADDED}


def test_a_star_import_gives_them_all() -> None:
    names: dict[str, object] = {}
    exec("from counterpoint import *", names)
    assert set(PINNED) == names.keys() - {"__builtins__"}


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


def test_functions_are_plain_functions_whatever_is_imported() -> None:
    names = [name for name in PINNED if name[0].islower()]
    modules = [f"counterpoint.{m}" for m in ("credits.mechanism", "rewards.reward", "audits.measures", "recorder", "lab.train.preset")]
    for code in (f"import counterpoint as cpt, {', '.join(modules)}", f"import {', '.join(modules)}, counterpoint as cpt"):
        _python("-c", f"{code}, types; assert all(type(getattr(cpt, name)) is types.FunctionType for name in {names})")


def test_no_module_of_ours_has_the_name_of_a_function() -> None:
    """`import counterpoint.credit` would put the module in the function's place."""
    inside = {module.name for module in pkgutil.iter_modules(counterpoint.__path__)}
    assert inside & set(PINNED) == set()


def test_a_function_is_pickled_as_itself() -> None:
    assert pickle.loads(pickle.dumps(counterpoint.audit)) is counterpoint.audit
    assert pickle.loads(pickle.dumps(counterpoint.train)) is counterpoint.train


def test_the_package_runs_as_the_command() -> None:
    started = "import sys; from counterpoint.app.cli import main; main(['--help'])"
    assert _python("-m", "counterpoint", "--help").stdout == _python("-c", started).stdout


def test_import_time_is_not_spent_on_what_is_not_used() -> None:
    code = "import sys; before = set(sys.modules); import counterpoint; print(*set(sys.modules) - before)"
    assert not set(_python("-c", code).stdout.split()) & {"typing", "re", "inspect", "pathlib", "numpy", "msgspec"}
    code = "import counterpoint, sys; counterpoint.Event; counterpoint.credit; print('pyarrow' in sys.modules, 'duckdb' in sys.modules)"
    assert _python("-c", code).stdout.split() == ["False", "False"]
