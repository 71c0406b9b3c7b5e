"""Rows as JSON lines or Parquet, and a folder that `datasets` loads, with its card.

Always true: numbers keep every digit; the same rows give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from counterpoint.errors import InputError

_encode = msgspec.json.Encoder().encode
_TYPES = {"string": "string", "double": "float64", "int64": "int64", "bool": "bool"}


def to_table(records: Sequence[Mapping[str, Any]], columns: Mapping[str, str], suffix: str) -> bytes:
    """The records as the bytes of a .jsonl or .parquet file."""
    if suffix == ".jsonl":
        return b"".join(_encode(record) + b"\n" for record in records)
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, _arrow(kind)) for name, kind in columns.items()])
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(r) for r in records], schema), file, compression="zstd")
    return file.getvalue()


def of_table(data: bytes, suffix: str) -> list[dict[str, Any]]:
    """The records in the bytes of a .jsonl or .parquet file."""
    if suffix == ".jsonl":
        try:
            return [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
        except msgspec.DecodeError as error:
            raise InputError("is not a file of JSON lines", why=str(error), fix="a file of `counterpoint export`") from error
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return list(pq.read_table(io.BytesIO(data)).to_pylist())
    except pa.ArrowInvalid as error:
        raise InputError("is not a Parquet file", why=str(error), fix="a file of `counterpoint export`") from error


def _arrow(kind: str) -> Any:
    import pyarrow as pa

    if kind == "messages":
        return pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    if kind.startswith("list:"):
        return pa.list_(_arrow(kind.removeprefix("list:")))
    return {"string": pa.string(), "double": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}[kind]


def _feature(kind: str, name: str) -> list[str]:
    if kind == "messages":
        return [f"  - name: {name}", "    list:", "    - name: role", "      dtype: string", "    - name: content",
                "      dtype: string"]  # fmt: skip
    if kind.startswith("list:"):
        return [f"  - name: {name}", f"    list: {_TYPES[kind.removeprefix('list:')]}"]
    return [f"  - name: {name}", f"    dtype: {_TYPES[kind]}"]


def dataset(
    splits: Mapping[str, Sequence[Mapping[str, Any]]], columns: Mapping[str, str], title: str, about: str
) -> dict[str, bytes]:
    """The files of a folder that `datasets.load_dataset` reads: a Parquet file for each configuration, and a card."""
    files: dict[str, bytes] = {}
    lines = ["---", "pretty_name: " + title, "tags:", "- counterpoint", "- reinforcement-learning", "configs:"]
    for name, records in splits.items():
        path = f"{name}/train.parquet"
        files[path] = to_table(records, columns, ".parquet")
        lines += [f"- config_name: {name}", "  data_files:", "  - split: train", f"    path: {path}"]
    lines += ["dataset_info:"]
    for name in splits:
        lines += [f"- config_name: {name}", "  features:"]
        lines += [line for column, kind in columns.items() for line in _feature(kind, column)]
    files["README.md"] = "\n".join([*lines, "---", "", f"# {title}", "", about, ""]).encode()
    return files
