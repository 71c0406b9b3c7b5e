"""The process that runs the functions of an answer: a small part of Python, and nothing to reach.

Always true: no text of an answer is compiled that holds anything beyond the node types, names and methods listed here; what
runs has no import, no new file or socket (the limit on open files is 0), no file to write, no new process, and any event of
Python's audit ends the process. What is expected never enters: inputs come in, outputs go out, and whoever started this
compares.

Run as a script (`python -I -S _module_process.py`), it imports nothing of this package.
"""

from __future__ import annotations
import __future__

import ast
import json
import os
import signal
import sys
from contextlib import suppress
from types import CodeType, FrameType, FunctionType
from typing import Any

CPU_S = 2
"""Processor seconds of the whole process, and one more for each hundred functions; what overruns them is killed."""
CALL_S = 0.4
"""Processor seconds of one call; what overruns them fails alone."""
_MEMORY = 256 * 2**20
_NODES, _DEPTH, _TEXT = 5_000, 8, 5_000  # the largest output that is passed on

_NODE_NAMES = """Module FunctionDef arguments arg Return Assign AugAssign AnnAssign For While If Expr Pass Break Continue Lambda
    BoolOp BinOp UnaryOp IfExp Dict Set List Tuple ListComp SetComp DictComp GeneratorExp comprehension Compare Call keyword
    Constant Attribute Subscript Slice Starred Name Load Store JoinedStr FormattedValue NamedExpr Try ExceptHandler Raise Assert
    operator unaryop boolop cmpop"""
_NODE_TYPES = tuple(getattr(ast, name) for name in _NODE_NAMES.split())
_METHODS = """append extend insert pop remove clear index count sort reverse copy get items keys values setdefault update add
    discard union intersection difference symmetric_difference issubset issuperset join split rsplit strip lstrip rstrip replace
    lower upper startswith endswith isdigit isalpha find rfind partition zfill bit_length"""
_METHOD_NAMES = frozenset(_METHODS.split())
_BUILTINS = """abs all any bool chr dict divmod enumerate filter float frozenset int isinstance len list map max min ord pow range
    reversed round set sorted str sum tuple zip Exception ValueError TypeError IndexError KeyError ZeroDivisionError"""


class _Late(BaseException):
    """A call that took too long; no answer can name it, so none can catch it."""


def refusal(tree: ast.AST) -> str:
    """Why a parsed text may not run; empty where it may."""
    for node in ast.walk(tree):
        if not isinstance(node, _NODE_TYPES):
            return f"{type(node).__name__} is not allowed"
        names = [getattr(node, field, None) for field in ("id", "name", "arg")]
        if any(isinstance(name, str) and name.startswith("__") for name in names):
            return "names with two underscores are not allowed"
        if isinstance(node, ast.Attribute) and node.attr not in _METHOD_NAMES:
            return f"the attribute {node.attr} is not allowed"
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            return "a bare except is not allowed"
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            return "decorators are not allowed"
    return ""


def _compiled(block: str) -> CodeType | None:
    """One function of an answer, or None where it is no Python or may not run."""
    try:
        tree = ast.parse(block)
        if refusal(tree) or not all(isinstance(node, ast.FunctionDef) for node in tree.body):
            return None
        # Annotations stay text: they are not run.
        return compile(tree, "answer", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def tagged(value: Any, depth: int = 0) -> Any:
    """Plain data as JSON that keeps types apart (a tuple is no list, true is no 1); ValueError for anything else."""
    kind = type(value)
    if value is None or kind in (bool, int, float):
        return [kind.__name__, repr(value)]
    if kind is str and len(value) <= _TEXT:
        return ["str", value]
    if kind not in (list, tuple) or depth >= _DEPTH or len(value) > _NODES:
        raise ValueError("not plain data")
    return [kind.__name__, [tagged(item, depth + 1) for item in value]]


def untagged(data: Any) -> Any:
    """The value that `tagged` wrote: whole numbers, texts, lists and tuples."""
    kind, value = data
    if kind in ("list", "tuple"):
        items = [untagged(item) for item in value]
        return items if kind == "list" else tuple(items)
    return value if kind == "str" else int(value)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    os._exit(3)


def lock(cpu_s: int = CPU_S) -> None:
    """From here on: no file, socket or process, little time and memory, and any audited event ends the process."""
    import resource

    for name, most in (("CPU", cpu_s), ("FSIZE", 0), ("NOFILE", 0), ("CORE", 0), ("NPROC", 0), ("AS", _MEMORY)):
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
        except (ValueError, OSError):
            if name != "AS":  # some systems know no limit on memory; the one on time ends what grows without end
                raise
    sys.addaudithook(_audit)


def _late(signum: int, frame: FrameType | None) -> None:
    raise _Late


def _timed(call: Any) -> Any:
    """What a call gives, as tagged data; None where it fails, and `_Late` where it takes too long."""
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, CALL_S, CALL_S)
        return call()
    except Exception:  # whatever an answer's function raises is one failed test
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _call_functions(functions: dict[str, Any], steps: list[Any], args: list[Any]) -> Any:
    """Call functions one after another, each on inputs and on earlier values; the last value, if no input was changed."""
    values = {f"a{i}": untagged(arg) for i, arg in enumerate(args)}
    for name, takes, gives in steps:
        values[gives] = functions[name](*(values[key] for key in takes))
    if any(tagged(values[f"a{i}"]) != arg for i, arg in enumerate(args)):
        return None
    return tagged(values[steps[-1][2]])


def _bound(codes: list[CodeType]) -> tuple[dict[str, Any], list[FunctionType]]:
    """The names that an answer sees, and calls that define its functions there: made before `lock`, which forbids `exec`."""
    builtins = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)
    names: dict[str, Any] = {"__builtins__": {name: builtins[name] for name in _BUILTINS.split()}}
    names["__builtins__"]["print"] = lambda *args, **options: None
    return names, [FunctionType(code, names) for code in codes]


def main() -> None:
    """Read what to run, run it, and write one line for each call as it ends."""
    asked = json.loads(sys.stdin.buffer.read())
    codes = [code for code in map(_compiled, asked["blocks"]) if code is not None]
    signal.signal(signal.SIGVTALRM, _late)
    json.loads(json.dumps(tagged([1, ("x", None)])))  # what is loaded on first use is loaded now
    functions, define = _bound(codes)
    lock(asked["cpu_s"])
    for one in define:
        with suppress(_Late):
            _timed(one)
    for group in asked["groups"]:
        is_late = False
        for args in group["calls"]:
            result = None
            if not is_late:
                try:
                    result = _timed(lambda args=args, group=group: _call_functions(functions, group["steps"], args))
                except _Late:
                    is_late = True
            os.write(1, json.dumps([group["name"], result]).encode() + b"\n")


if __name__ == "__main__":
    main()
