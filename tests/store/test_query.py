"""SQL over the store: five views, reading only; and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from counterpoint.app.cli import cli, main
from counterpoint.errors import InputError, Refused
from counterpoint.store import Store
from counterpoint.trace import Edge, Event, Trace

EVENTS = [
    Event(id="e1", t=0, type="message", agent="a", role="lead", tokens_in=5, from_="a", to="b"),
    Event(id="e2", t=1.5, type="tool_call", agent="b", role="coder", tokens_in=7, reward={"tool": 0.5, "style": 1}),
]
TRACE = Trace(
    trace_id="t1",
    task_id="demo",
    events=EVENTS,
    edges=[Edge("e1", "e2", "causal")],
    rewards={"team": 1, "process": 0.25},
    costs={"tokens": 12, "wall_clock_s": 1.5},
    meta={"seed": 3},
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "it's a store")
    made.add(TRACE)
    return made


def test_the_five_views(store: Store) -> None:
    assert store.sql("select trace_id, n_events, n_edges, team_reward, meta from traces").rows == [
        ("t1", 2, 1, 1.0, '{"seed":3}')
    ]
    assert store.sql('select n, id, t, role, from_, "to" from events order by n').rows == [
        (0, "e1", 0.0, "lead", "a", "b"),
        (1, "e2", 1.5, "coder", None, None),
    ]
    assert store.sql("select * from edges").rows == [("t1", 0, 1, "causal")]
    assert store.sql("select * from rewards order by channel").rows == [
        ("t1", None, "process", 0.25),
        ("t1", "e2", "style", 1.0),
        ("t1", None, "team", 1.0),
        ("t1", "e2", "tool", 0.5),
    ]
    assert store.sql("select * from costs order by name").rows == [("t1", "tokens", 12.0), ("t1", "wall_clock_s", 1.5)]


def test_edges_join_events(store: Store) -> None:
    query = """select a.id, b.id from edges e join events a on a.trace_id = e.trace_id and a.n = e.src
               join events b on b.trace_id = e.trace_id and b.n = e.dst"""
    assert store.sql(query).rows == [("e1", "e2")]


def test_parameters_limits_and_arrow(store: Store) -> None:
    assert store.sql("select id from events where tokens_in > ?", [5]).rows == [("e2",)]
    cut = store.sql("select id from events order by n", limit=1)
    assert (cut.rows, cut.is_cut, len(cut)) == ([("e1",)], True, 1)
    assert not store.sql("select id from events", limit=2).is_cut
    table = store.sql("select sum(tokens_in) as s from events").to_arrow()
    assert isinstance(table, pa.Table)
    assert store.sql("select sum(tokens_in) as s from events").rows == [(12,)]


def test_an_empty_store_has_empty_views_with_all_columns(tmp_path: Path, store: Store) -> None:
    empty = Store(tmp_path / "empty")
    for view in ("traces", "events", "edges", "rewards", "costs"):
        answer = empty.sql(f"select * from {view}")
        assert answer.rows == []
        assert answer.columns == store.sql(f"select * from {view}").columns


def test_replaced_and_removed_traces_are_not_seen(store: Store) -> None:
    other = Trace(trace_id="t2", task_id="demo", events=EVENTS[:1])
    store.add_many([Trace(trace_id="t3", task_id="demo", events=EVENTS[:1]), other])
    store.add(Trace(trace_id="t2", task_id="demo", events=EVENTS[:1], rewards={"team": 9}))
    store.remove("t1")
    assert store.sql("select trace_id, channel, value from rewards").rows == [("t2", "team", 9.0)]
    assert store.sql("select trace_id, count(*) from events group by 1 order by 1").rows == [("t2", 1), ("t3", 1)]


@pytest.mark.parametrize(
    "query",
    [
        "copy traces to '/tmp/counterpoint-escape.csv'",
        "copy (select 1) to '{part}' (use_tmp_file false)",
        "attach '/tmp/counterpoint-escape.db'",
        "install httpfs",
        "load httpfs",
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/passwd')",
        "select * from read_parquet('/tmp/*.parquet')",
        "select * from '/etc/passwd'",
        "select * from glob('/etc/*')",
        "create table x as select 1",
        "drop view traces",
        "delete from traces",
        "set enable_external_access = true",
        "pragma database_list",
        "export database '/tmp/counterpoint-escape'",
        "explain analyze select 1",
        "call pragma_version()",
    ],
)
def test_a_query_cannot_write_or_reach_out(store: Store, query: str) -> None:
    part = next(store.path.glob("lake/*/*/*.events.parquet"))
    before = part.read_bytes()
    with pytest.raises((Refused, InputError)) as caught:
        store.sql(query.format(part=str(part).replace("'", "''")))
    assert isinstance(caught.value, Refused) or "httpfs" in query or "from '/etc" in query
    assert part.read_bytes() == before
    assert not list(Path("/tmp").glob("counterpoint-escape*"))
    assert store.sql("select count(*) from traces").rows == [(1,)]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("selec 1", "syntax error"),
        ("select nothing from traces", "nothing"),
        ("", "empty"),
        ("select 1; select 2", "one statement"),
    ],
)
def test_a_wrong_query_is_explained(store: Store, query: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        store.sql(query)
    assert caught.value.exit_code == 2


def test_a_local_variable_is_not_a_table(store: Store) -> None:
    secret = pa.table({"x": [1]})
    assert secret.num_rows == 1
    with pytest.raises(InputError):
        store.sql("select * from secret")


# -- the command -------------------------------------------------------------------------------------------------


def _run(store: Store, *args: str) -> str:
    result = CliRunner().invoke(cli, ["sql", "--store", str(store.path), *args])
    assert result.exception is None, result.exception
    return result.stdout


def test_the_command_prints_a_table_csv_or_json(store: Store) -> None:
    query = "select id, tokens_in, trusted from events order by n"
    assert _run(store, query).splitlines() == ["id  tokens_in  trusted", "e1          5        -", "e2          7        -"]
    assert _run(store, query, "--to", "csv") == "id,tokens_in,trusted\ne1,5,\ne2,7,\n"
    answer = json.loads(_run(store, query, "--json", "--rows", "1"))
    assert answer["columns"] == ["id", "tokens_in", "trusted"]
    assert answer["rows"] == [["e1", 5, None]]
    assert answer["is_cut"] is True


def test_without_a_query_it_lists_views_and_columns(store: Store) -> None:
    out = _run(store)
    for word in ("traces", "events", "edges", "rewards", "costs", "tokens_in", "DOUBLE"):
        assert word in out
    views = json.loads(_run(store, "--json"))["views"]
    assert views["costs"] == [
        {"column": "trace_id", "type": "VARCHAR"},
        {"column": "name", "type": "VARCHAR"},
        {"column": "value", "type": "DOUBLE"},
    ]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["selec"], 2),
        (["copy traces to 'x'"], 5),
        (["select 1", "--to", "csv", "--json"], 2),
        (["select 1", "--store", "/nowhere/at/all"], 3),
    ],
)
def test_the_command_ends_with_the_right_code(store: Store, args: list[str], code: int) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["sql", "--store", str(store.path), *args])
    assert caught.value.code == code
