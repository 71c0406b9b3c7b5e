"""What every format promises, called: `testing.check_format` is this with its own error and its own traces.

Always true: the checks use a format only as anybody may, so they hold for one from outside too; each failure is one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from counterpoint.errors import InputError
from counterpoint.formats.format import Format
from counterpoint.formats.importer import Importer
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import count
from counterpoint.trace import Trace, encode, problems
from counterpoint.trace.lines import encode_lines
from counterpoint.trace.records import FIELDS
from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

Require = Callable[[bool, str], None]


def check_format(format_: Format, traces: Sequence[Trace], sample: Mapping[str, bytes], require: Require) -> None:
    """Everything, cheap things first: `traces` are written and read again, `sample` is read; `require` is told what fails."""
    require(isinstance(format_, Format), f"is a {type(format_).__name__}, not a Format")
    require(bool(format_.suffixes) and all(s.startswith(".") for s in format_.suffixes), "suffixes begin with a dot")
    require(bool(format_.lost.strip()), "`lost` says what is lost, or 'nothing'")
    require(set(format_.keeps) <= {"contents", "meta"}, "`keeps` names contents or meta")
    one, many = format_.write is not None, format_.write_tables is not None
    if isinstance(format_, Importer):
        _check_becomes(format_, require)
    if one or many:
        require(bool(format_.fields), "`fields` says what is written")
    require(not (one and many), "has `write` or `write_tables`, not both")
    require(one or many or format_.read is not None, "neither reads nor writes")
    for head in (b"", b"\x00", b"\xff\xfe", b"{", b"[]", b"plain words", b'{"a":1}'):
        require(format_.sniff(head) is False, f"takes {head!r} for its own")
    for trace in traces:
        _check_one(format_, trace, require) if one else _check_tables(format_, trace, require) if many else None
    if not sample and isinstance(format_, Importer) and format_.example is not None:
        sample = format_.example()
    if sample or not (one or many):
        _check_sample(format_, sample, require)
    _check_garbage(format_, require)


def _check_becomes(importer: Importer, require: Require) -> None:
    require(bool(importer.becomes), "`becomes` says what its records become")
    names = {name.split(".")[0] for group in importer.becomes.values() for name in group}
    unknown = sorted(names - {*EVENT_TYPES, *EDGE_TYPES, *FIELDS, "extra", "rewards", "metrics", "meta"})
    require(not unknown, f"`becomes` names {', '.join(unknown)}: no type of event or edge, and no field")


def _promise(format_: Format, trace: Trace) -> Trace:
    """What of a trace a format promises to bring back."""
    return replace(trace, **{name: {} for name in ("contents", "meta") if name not in format_.keeps})


def _check_one(format_: Format, trace: Trace, require: Require) -> None:
    assert format_.write is not None
    before = encode_lines(trace)
    data = format_.write(trace)
    require(isinstance(data, bytes), "`write` gives bytes")
    require(format_.write(trace) == data, "the same trace gives other bytes the second time")
    require(encode_lines(trace) == before, "`write` changed the trace")
    require(format_.sniff(data[:4096]) is True, "does not know its own file")
    for write in format_.writes_too.values():
        require(format_.sniff(write(trace)[:4096]) is True, "does not know its own file of another version")
    if isinstance(format_, Importer):
        _same_team(format_, trace, require)
    elif format_.read is not None:
        _same(list(format_.read(data)), format_, trace, require)
        _same(list(format_.read(memoryview(data))), format_, trace, require)


def _same_team(importer: Importer, trace: Trace, require: Require) -> None:
    """A foreign form has no place for all of a trace: what comes back has the same agents, with what each called and spent."""
    assert importer.write is not None
    assert importer.read is not None
    traces = list(importer.read(importer.write(trace)))
    require(len(traces) == 1, f"wrote one trace and read {len(traces)}")
    again = traces[0]
    require(again.trace_id == trace.trace_id, f"the trace {trace.trace_id!r} comes back as {again.trace_id!r}")
    require(again.members == trace.members, f"the agents of {trace.trace_id!r} differ when it comes back")
    for agent in sorted(trace.members):
        was, now = (_sums(one, agent) for one in (trace, again))
        require(was == now, f"{agent!r} of {trace.trace_id!r} called and spent {was}, and when it comes back {now}")


def _sums(trace: Trace, agent: str) -> tuple[list[str], int, int]:
    """The tools that an agent called, in order, and its tokens in and out; beyond 63 bits nothing is a count."""
    own = sorted((e for e in trace.events if e.agent == agent), key=lambda e: e.t)
    calls = [e.tool or "tool" for e in own if e.type == "tool_call"]
    return calls, sum(count(e.tokens_in) or 0 for e in own), sum(count(e.tokens_out) or 0 for e in own)


def _check_tables(format_: Format, trace: Trace, require: Require) -> None:
    assert format_.write_tables is not None
    other = replace(trace, trace_id=trace.trace_id + "-2")
    files = format_.write_tables([trace, other])
    require(bool(files), "`write_tables` gives no file")
    require(format_.write_tables([trace, other]) == files, "the same traces give other bytes the second time")
    for name, table in files.items():
        require(name.endswith(format_.suffixes), f"the file {name} has none of the suffixes")
        require(name in format_.fields, f"`fields` does not say what is in {name}")
        require(format_.sniff(table.data[:4096]) is True, f"does not know its own {name}")
    if format_.read_tables is not None:
        again = list(format_.read_tables({name: table.data for name, table in files.items()}))
        require(len(again) == 2, f"wrote two traces and read {len(again)}")
        _same(again[:1], format_, trace, require)
        _same(again[1:], format_, other, require)


def _same(traces: list[Trace], format_: Format, trace: Trace, require: Require) -> None:
    wanted = _promise(format_, trace)
    require(len(traces) == 1, f"wrote one trace and read {len(traces)}")
    require(traces[0] == wanted, f"what was read differs from what was written (trace {trace.trace_id!r})")
    # Equality takes 1 for 1.0; bytes do not.
    require(encode(traces[0]) == encode(wanted), f"numbers changed their kind (trace {trace.trace_id!r})")


def _check_sample(format_: Format, sample: Mapping[str, bytes], require: Require) -> None:
    require(bool(sample), "only reads, and there is no sample to read: give `example`, or check_format(format, {name: bytes})")
    traces = _read_sample(format_, sample)
    require(bool(traces), "reads no trace in its sample, or does not know the sample's files as its own")
    require(
        [encode(t) for t in traces] == [encode(t) for t in _read_sample(format_, sample)], "reads something else the second time"
    )
    ids = [t.trace_id for t in traces]
    require(len(set(ids)) == len(ids), f"gives two traces one id: {max(ids, key=ids.count)!r}")
    if isinstance(format_, Importer):
        named = {name.split(".")[0] for group in format_.becomes.values() for name in group}
        missing = sorted({e.type for trace in traces for e in trace.events} - named)
        require(not missing, f"`becomes` does not name {', '.join(missing)}, which its sample becomes")
    for trace in traces:
        require(bool(trace.events), f"reads the trace {trace.trace_id!r} without an event")
        wrong = [str(p) for p in problems(trace) if p.severity == "error"]
        require(not wrong, f"reads a trace that is not valid: {wrong[:1]}")
    for name, data in sample.items():  # a file that was cut off is read as far as it goes, or refused
        try:
            _read_sample(format_, {**sample, name: data[: len(data) // 2]})
        except InputError:
            continue
        except Exception as error:
            require(False, f"half of {name} ends in {type(error).__name__} and not in an InputError: {error}")


def _read_sample(format_: Format, sample: Mapping[str, bytes]) -> list[Trace]:
    if isinstance(format_, Importer):
        files = [File.of(data, name) for name, data in sample.items()]
        mine = [f for f in files if format_.sidecar(f.name) or (f.size and format_.sniff(f.head()))]
        return [trace for session in format_.group(mine) for trace in format_.read_session(session)]
    assert format_.read is not None
    return [trace for data in sample.values() if format_.sniff(data[:4096]) for trace in format_.read(data)]


def _check_garbage(format_: Format, require: Require) -> None:
    garbage: tuple[bytes, ...] = (b"", b"\x00" * 9, b"\xff" * 9, b"{", b'{"a":1}', b"[]", b"words\n", b"PAR1PAR1", b"[" * 5000)
    for data in garbage:
        if format_.read is not None:
            _refuses(lambda data=data: list(format_.read(data)), data, require)  # type: ignore[misc]
        if format_.read_tables is not None:
            files = dict.fromkeys(format_.fields, data)
            _refuses(lambda files=files: list(format_.read_tables(files)), data, require)  # type: ignore[misc]
    if format_.read_tables is not None:
        _refuses(lambda: list(format_.read_tables({})), b"no file", require)  # type: ignore[misc]


def _refuses(reads: Callable[[], Any], data: bytes, require: Require) -> None:
    try:
        reads()
    except InputError:
        return
    except Exception as error:
        require(False, f"{data[:20]!r} ends in {type(error).__name__} and not in an InputError: {error}")
    require(False, f"{data[:20]!r} is read as if it were a trace")
