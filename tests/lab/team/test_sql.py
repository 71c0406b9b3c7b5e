"""The tool `sql`: what it shows, and all that it refuses."""

from __future__ import annotations

import asyncio

import pytest

from counterpoint.errors import InputError
from counterpoint.lab.team.tool import ToolResult
from counterpoint.lab.team.tools.sql import sql
from tools_help import instance, place, run

DATABASE = """
CREATE TABLE firm (id INTEGER, name TEXT, share REAL);
INSERT INTO firm VALUES (1, 'Alder', 0.5), (2, 'Birch
and Co', NULL), (3, x'00ff', 1.0);
CREATE VIEW big AS SELECT * FROM firm WHERE share > 0.6;
"""


def ask(query: str, database: str = DATABASE, **options: float) -> ToolResult:
    return run(sql(instance(database=database), **options).call({"query": query}, place()))  # type: ignore[arg-type]


def test_a_header_then_rows() -> None:
    result = ask("SELECT id, name, share FROM firm ORDER BY id")
    assert result.text == "id | name | share\n1 | Alder | 0.5\n2 | Birch and Co | NULL\n3 | x'00ff' | 1.0"
    assert (result.ok, result.extra) == (True, {"rows": 3})


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT upper(name) AS n, count(*) FROM firm WHERE name LIKE 'a%'", ["n | count(*)", "ALDER | 1"]),
        ("SELECT id FROM big", ["id", "3"]),
        ("SELECT name FROM sqlite_master ORDER BY name", ["name", "big", "firm"]),
        ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3) SELECT sum(x) AS s FROM n", ["s", "6"]),
        ("SELECT id, rank() OVER (ORDER BY id DESC) AS r FROM firm WHERE id > 1 ORDER BY id", ["id | r", "2 | 2", "3 | 1"]),
        ("SELECT id FROM firm WHERE id > 9", ["id"]),
        ("VALUES (1)", ["column1", "1"]),
    ],
)
def test_reading_works(query: str, rows: list[str]) -> None:
    assert ask(query).text.splitlines() == rows


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO firm VALUES (4, 'x', 1)", "UPDATE firm SET id = 0", "DELETE FROM firm", "DROP TABLE firm", "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)", "CREATE VIEW v AS SELECT 1", "ALTER TABLE firm ADD b", "ATTACH '/etc/passwd' AS p", "DETACH main",
        "PRAGMA table_info(firm)", "PRAGMA writable_schema = 1", "SELECT * FROM pragma_database_list", "VACUUM",
        "VACUUM INTO '/tmp/out.db'", "BEGIN", "SAVEPOINT s", "REINDEX", "ANALYZE", "SELECT load_extension('x')", "SELECT random()",
        "SELECT randomblob(9)", "SELECT zeroblob(1000000000)", "SELECT printf('%.*c', 2000000000, 'x')", "SELECT sqlite_version()", "SELECT 1; DELETE FROM firm",
        "INSERT INTO firm SELECT * FROM firm RETURNING id", "CREATE VIRTUAL TABLE t USING fts5(a)", "CREATE TRIGGER t AFTER INSERT ON firm BEGIN SELECT 1; END",
    ],
)  # fmt: skip
def test_all_else_is_refused(query: str) -> None:
    tool = sql(instance(database=DATABASE))
    result = run(tool.call({"query": query}, place()))
    assert (result.ok, result.error) == (False, "read only")
    assert run(tool.call({"query": "SELECT count(*) FROM firm"}, place())).text == "count(*)\n3"


@pytest.mark.parametrize(
    "query", ["SELEC 1", "SELECT * FROM frm", "", ";", "SELECT 'a", "SELECT \0", "-- nothing", "SELECT readfile('/etc/passwd')"]
)
def test_what_cannot_be_run_is_said(query: str) -> None:
    result = ask(query)
    assert not result.ok
    assert result.error in ("failed", "read only")


def test_a_mistake_names_the_tables() -> None:
    assert ask("SELECT * FROM frm").text == "no such table: frm; tables: firm"


def test_a_query_without_end_is_ended_and_others_go_on() -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    tool = sql(instance(database=DATABASE), limit_s=0.3)

    async def both() -> list[ToolResult]:
        return await asyncio.gather(*(tool.call({"query": q}, place()) for q in (endless, "SELECT 1 AS one")))

    slow, quick = run(both())
    assert (slow.ok, slow.error) == (False, "timeout")
    assert quick.text == "one\n1"


def test_rows_and_values_are_limited() -> None:
    many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    result = ask(many, rows=3)
    assert result.text.splitlines() == ["x", "1", "2", "3", "[cut: only the first 3 rows are shown]"]
    assert result.extra == {"rows": 3, "rows_cut": True}
    long = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {}) SELECT group_concat('abc', '') AS c FROM n"
    )
    wide = ask(f"SELECT c FROM ({long.format(30_000)}), firm, firm")
    assert len(wide.text) < 200_000
    assert wide.extra["rows_cut"]
    assert ask(long.format(40_000)).text == "string or blob too big; tables: firm"


def test_no_database_is_an_empty_one() -> None:
    assert ask("SELECT 1 AS one", "").text == "one\n1"
    assert ask("SELECT * FROM t", "").text == "no such table: t; tables: none"


def test_a_database_that_cannot_be_built_is_one_clear_error() -> None:
    with pytest.raises(InputError, match="cannot be built"):
        ask("SELECT 1", "CREATE TABEL x")
