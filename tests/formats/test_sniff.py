"""Which format a file is in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from counterpoint import registry
from counterpoint.app.discover import find, importers
from counterpoint.errors import InputError
from counterpoint.formats.format import detect
from counterpoint.formats.importer import Importer
from counterpoint.testing import synthetic_trace
from logs import SAMPLES, importer


def test_each_format_knows_its_own_file_and_no_other() -> None:
    trace = synthetic_trace(3, 9)
    for name in registry.ids("format"):
        format_ = registry.get("format", name)
        if isinstance(format_, Importer):
            continue
        files = [format_.write(trace)] if format_.write else [t.data for t in format_.write_tables([trace]).values()]
        for data in files:
            assert detect(data[:4096], "no-suffix") == name
            assert [n for n in registry.ids("format") if registry.get("format", n).sniff(data[:4096])] == [name]


def test_every_sample_goes_to_its_own_importer(tmp_path: Path) -> None:
    """Those of `examples/logs`, and the examples that importers bring themselves."""
    (tmp_path / "logs").mkdir()
    for name in importers():
        example = importer(name).example
        for file, data in (example() if example else {}).items():
            (tmp_path / "logs" / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "logs" / name / file).write_bytes(data)
    files = find([SAMPLES, tmp_path / "logs"])
    owners = {file.name: name for name, session in files.sessions for file in session.files}
    assert files.skipped == []
    for path, owner in owners.items():
        assert path.split("/logs/")[1].split("/")[0] == owner, path
    assert set(owners.values()) == set(importers())


@pytest.mark.parametrize(
    ("head", "name", "found"),
    [
        (b'{"counterpoint":1,"trace_id":"a"', "x.json", "jsonl"),
        (b'\xef\xbb\xbf {"trace_id": "a"', "x.csv", "survey"),
        (b'{\n  "events": [', "x", "survey"),
        (b'{"counterpoint":1}', "x.trace.json", "jsonl"),
        (b"", "x.trace.json", "survey"),
        (b"", "x.JSONL", "jsonl"),
        (b"nonsense", "dir/x.jsonl", "jsonl"),
        (b"", "x.perfetto.json", "perfetto"),
        (b'{"a": 1}', "x", "survey"),
        (b"[1, 2]", "x", "survey"),
        (b"PAR1\x15", "x", "parquet"),
    ],
)
def test_content_before_name(head: bytes, name: str, found: str) -> None:
    assert detect(head, name) == found


@pytest.mark.parametrize("head", [b"", b"hello", b"\x00\x01", b"\xff\xd8\xff\xe0"])
def test_what_is_nothing_we_know_is_refused_with_what_we_do(head: bytes) -> None:
    with pytest.raises(InputError, match=r"known formats: .*survey"):
        detect(head, "picture.jpg")


def test_finding_out_imports_no_arrow() -> None:
    program = (
        "import sys; from counterpoint.formats.format import detect; detect(b'{\"a\":1}', 'x'); detect(b'PAR1', 'x');"
        "assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


SPAN_KEYS = {"traceId": {"type": "string"}, "spanId": {"type": "string"}, "attributes": {}, "resourceSpans": {}}
CONSOLE = "---------- user ----------\nHello.\n---------- helper ----------\nHello!\n"


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": SPAN_KEYS}),
        json.dumps({"$defs": {"span": {"type": "object", "properties": SPAN_KEYS}}, "$ref": "#/$defs/span"}),
        json.dumps({"definitions": {"span": {"type": "object", "properties": SPAN_KEYS}}}),
        json.dumps([{"type": "object", "properties": SPAN_KEYS}]),
        json.dumps({"openapi": "3.1.0", "components": {"schemas": {"span": {"properties": SPAN_KEYS}}}}),
        '{a page, and no JSON} with "resourceSpans": and "traceId": in it',
        f"# How AutoGen prints\n\n```\n{CONSOLE}```\n",
        f'"""A program."""\n\nLOG = """\n{CONSOLE}"""\n',
    ],
)
def test_a_schema_and_a_page_that_quotes_a_log_are_none(data: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(data)
    found = find([tmp_path])
    assert found.sessions == []
    assert len(found.skipped) == 1
    assert "nearest" not in found.skipped[0].why


def test_what_the_page_quotes_is_a_log_alone(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(CONSOLE)
    assert [name for name, _ in find([tmp_path]).sessions] == ["autogen"]


def test_a_source_of_which_only_common_names_are_there_is_not_near(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"type": "tick", "messages": [{"content": "x", "source": 1}]}')
    (skipped,) = find([tmp_path]).skipped
    assert "nearest" not in skipped.why


def test_who_is_asked_before_the_others_are_imported_takes_its_own_files_and_none_of_a_dialect() -> None:
    """Their files are known by content alone; another source that knows one of them, too, must have no higher rank."""
    known, plain = importers(), ("qwen_code", "claude_code", "codex")
    claimed = set()
    for path in sorted(p for p in SAMPLES.rglob("*") if p.is_file()):
        head = path.read_bytes()[:65536]
        for owner in (name for name in plain if known[name].sniff(head)):
            assert path.relative_to(SAMPLES).parts[0] == owner, path
            assert [name for name, one in known.items() if one.rank > known[owner].rank and one.sniff(head)] == [], path
            claimed.add(owner)
    assert claimed == set(plain)


def test_logs_of_one_coding_agent_are_read_without_the_importers_of_other_sources() -> None:
    code = (
        "import sys\nfrom counterpoint.app.discover import find\n"
        f"print([name for name, _ in find([{str(SAMPLES / 'codex')!r}]).sessions])\n"
        "print([m for m in sys.modules if m.startswith('counterpoint.formats.') and m.split('.')[2] in ('otel', 'kimi', 'mast')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert set(json.loads(out[0].replace("'", '"'))) == {"codex"}
    assert out[1] == "[]"
