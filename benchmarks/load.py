"""Load and check a survey-format file: speed against the survey's own checks over json.load, memory against the file."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _timing import arguments, interleaved, report, row

from counterpoint.app.file_check import check_file
from counterpoint.app.load_save import load, opened
from counterpoint.testing import SIZES, synthetic_trace
from counterpoint.trace import check, encode, problems, wire
from counterpoint.trace.records import SURVEY_FIELDS, wire_name
from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

BARE, HASHED = "survey fields only", "hashes as ids"
TOP = ("trace_id", "task_id", "events", "edges", "rewards", "costs")
# The peak is the kernel's own high-water mark of this process; what `resource` says is inherited from the parent.
MEASURE = """
import sys
{imports}
def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
{work}
print(peak() - before)
"""
OURS = ("from counterpoint.app.file_check import check_file\nimport pyarrow, numpy", "kept = check_file(sys.argv[1])")
JSON = ("import json", "kept = json.load(open(sys.argv[1]))")


def survey_checks(path: Path) -> tuple[Any, list[str]]:
    """The survey's minimal checks, written from its description: required fields, ids, time, types, references, costs."""
    with path.open() as file:
        trace = json.load(file)
    errors = [f"missing {name}" for name in TOP if name not in trace]
    if not trace["events"]:
        errors.append("no events")
    seen: set[str] = set()
    types, edge_types = set(EVENT_TYPES), set(EDGE_TYPES)
    for i, event in enumerate(trace["events"]):
        for name in ("id", "t", "type", "agent"):
            if name not in event:
                errors.append(f"event {i}: missing {name}")
        if not isinstance(event["id"], str) or not event["id"]:
            errors.append(f"event {i}: bad id")
        if event["id"] in seen:
            errors.append(f"event {i}: duplicate id")
        seen.add(event["id"])
        if event["t"] < 0:
            errors.append(f"event {i}: negative time")
        if event["type"] not in types:
            errors.append(f"event {i}: unknown type")
    for i, edge in enumerate(trace["edges"]):
        for name in ("src", "dst", "type"):
            if name not in edge:
                errors.append(f"edge {i}: missing {name}")
        if edge["src"] not in seen or edge["dst"] not in seen:
            errors.append(f"edge {i}: unknown event")
        if edge["type"] not in edge_types:
            errors.append(f"edge {i}: unknown type")
    errors += [f"negative cost {k}" for k, v in trace["costs"].items() if isinstance(v, (int, float)) and v < 0]
    return trace, errors


def ours(path: Path) -> Any:
    """Load and check, as `counterpoint store check` does; the trace is kept, as the others keep theirs."""
    with opened(path) as data:
        trace = wire.decode_strictly(data)
    assert trace is not None
    return trace, check.findings(trace, known="fields")


def schema_checks(path: Path) -> Any:
    """A standard validator, over json.load."""
    from jsonschema import Draft202012Validator

    from counterpoint.trace.schema import json_schema

    trace = json.loads(path.read_text())
    Draft202012Validator(json_schema()).validate(trace)
    return trace


def written(folder: Path, name: str, kind: str) -> Path:
    """A synthetic trace as a file: with all our fields, with the survey's own only, or with ids that are no numbers."""
    path = folder / f"{name}-{kind}.trace.json"
    data = encode(synthetic_trace(*SIZES[name], "centralized", 0))
    if kind:
        document = json.loads(data)
        if kind == BARE:
            kept = {wire_name(f) for f in SURVEY_FIELDS}
            document["events"] = [{k: v for k, v in e.items() if k in kept} for e in document["events"]]
        else:
            new = {e["id"]: hashlib.sha256(e["id"].encode()).hexdigest()[:16] for e in document["events"]}
            document["events"] = [e | {"id": new[e["id"]]} for e in document["events"]]
            document["edges"] = [{"src": new[e["src"]], "dst": new[e["dst"]], "type": e["type"]} for e in document["edges"]]
        data = json.dumps(document, separators=(",", ":")).encode()
    path.write_bytes(data)
    return path


def peak(path: Path, imports: str, work: str) -> float:
    """Peak memory above the start, in bytes, of a process that does the work. A file that is mapped counts as memory too."""
    code = MEASURE.format(imports=imports, work=work)
    return float(subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout)


def rows(folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    out, large = [], "x10" if quick else "m1"
    # Ids such as e1, e2, ... are resolved as numbers; other ids take a dict or Arrow's hash table, which is slower.
    cases = [("k26", "", 3.0, 21), ("k26", BARE, None, 21), ("k26", HASHED, None, 21)]
    cases += [(large, "", 2.5, 3), (large, BARE, None, 3), (large, HASHED, None, 3)]
    for name, kind, target, repeats in cases:
        path = written(folder, name, kind)
        took = interleaved({"ours": lambda p=path: ours(p), "survey": lambda p=path: survey_checks(p)}, repeats, "cpu")
        label = f"{name}{', ' + kind if kind else ''}"
        mine = took["ours"] * 1e3
        out.append(row(f"load + full check, {label} | survey's checks", mine, took["survey"] * 1e3, "ms CPU", target=target))
        if name == "k26" and not kind:
            schema = interleaved({"schema": lambda p=path: schema_checks(p)}, 3, "cpu")["schema"] * 1e3
            out.append(row("load + full check, k26 | jsonschema", mine, schema, "ms CPU", target=100))
            both = interleaved({"api": lambda p=path: problems(load(p)), "check": lambda p=path: check_file(p)}, repeats, "cpu")
            api, checked = both["api"] * 1e3, both["check"] * 1e3
            out.append(row("cpt.problems(cpt.load(f)), k26 | counterpoint store check", api, checked, "ms CPU", target=0.9))
        if name == large:
            size = path.stat().st_size
            mine, theirs = ((peak(path, *what) - (size if what is OURS else 0)) / size for what in (OURS, JSON))
            out.append(row(f"peak memory above the mapped file, {label} | json.load", mine, theirs, "x the file", limit=3.0))
    return out


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        report("Load and check", rows(Path(folder), quick=asked.quick), as_json=asked.json)


if __name__ == "__main__":
    main()
