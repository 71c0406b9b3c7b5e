"""T2 by hand: the reference finds what is planted and nothing that only nearly breaks a rule; every number counts."""

from __future__ import annotations

import re
import sqlite3

import pytest

from counterpoint.lab.tasks._audit_rules import AUDIT_RULES, named, query, understood
from counterpoint.lab.tasks.leakage import truth
from counterpoint.lab.tasks.sql_audit import sql_audit
from text_help import sql

EVERY = sql_audit.replace(rules=10)


@pytest.mark.parametrize("seed", range(3))
def test_every_rule_has_violations_and_most_rows_break_none(seed: int) -> None:
    instance = EVERY.replace(rows=300).instance(seed)
    rows = [row.split("|") for row in truth(instance, EVERY.replace(rows=300))[1].split("; ")]
    assert {tag for tag, _, _ in rows} == {f"R{i + 1}" for i in range(10)}
    assert len({id_ for _, id_, _ in rows}) < 90


def test_the_limit_itself_breaks_nothing() -> None:
    for seed in range(6):
        instance = EVERY.instance(seed)
        for document in instance.documents:
            rule = understood(document.text)
            tag = re.search(rf"(R\d+) \(policy {document.title[7:12]}", instance.question) if document.title.startswith("Policy") else None
            if rule is None or tag is None or rule[0] != "cap":
                continue
            limit = int(rule[1]["limit"].replace(",", ""))
            names = named(next(d.text for d in instance.documents if d.title == "Data dictionary"))
            at = sql(instance, f"SELECT COUNT(*) FROM {names['expense']} WHERE {names['expense.amount']} = {limit}").splitlines()[1]
            if "version 2" in document.title or f"{document.title[:12]}, version 2" not in {d.title for d in instance.documents}:
                assert int(at) >= 1
                assert f"{tag[1]}|" in truth(instance, EVERY)[1]
                assert f"|{limit};" not in "".join(r + ";" for r in truth(instance, EVERY)[1].split("; ") if r.startswith(f"{tag[1]}|"))
                return
    pytest.fail("no audit of these seeds caps expenses")


def test_every_number_counts() -> None:
    instance = sql_audit.instance(0)
    rows = truth(instance, sql_audit)[1].split("; ")
    assert sql_audit.check(instance, ";".join(rows)).value == 1
    tag, id_, number = rows[0].split("|")
    score = sql_audit.check(instance, ";".join([f"{tag}|{id_}|{int(number) + 1}", *rows[1:]]))
    assert score.value == pytest.approx(1 - 1 / len(rows))
    assert score.parts["f1"] == 1
    assert not sql_audit.check(instance, ";".join(rows[1:])).is_solved
    assert not sql_audit.check(instance, ";".join([*rows, "R1|E99999|5"])).is_solved
    assert not sql_audit.check(instance, ";".join([*rows, f"{tag}|{id_}|0"])).is_solved


def test_each_rule_is_heard_in_each_way_it_is_said() -> None:
    fields = {"limit": "4,100", "grade": "1", "low": "3 May 2031", "high": "May 12, 2031"}
    names = named(next(d.text for d in sql_audit.instance(1).documents if d.title == "Data dictionary"))
    for kind, rule in AUDIT_RULES.items():
        for way in rule.ways:
            found = understood(f"Policy P-123, version 1, on {rule.topic}. {way.fill(**fields)}")
            assert found is not None
            assert found[0] == kind
            asked = query("R1", *found, names)
            assert asked is not None
            assert "{" not in asked
            assert ":" not in asked
    assert "BETWEEN '2031-05-03' AND '2031-05-12'" in (query("R1", "closed", fields, names) or "")
    assert query("R1", "cap", fields, {}) is None


def test_earlier_versions_would_give_other_answers() -> None:
    differs = 0
    for seed in range(5):
        task = sql_audit.replace(superseded=1.0, joins=0.0, rules=4)
        instance = task.instance(seed)
        names = named(next(d.text for d in instance.documents if d.title == "Data dictionary"))
        old = next(d for d in instance.documents if d.title.endswith("version 1") and f"(policy {d.title[7:12]}," in instance.question)
        rule = understood(old.text)
        tag = re.search(rf"(R\d+) \(policy {old.title[7:12]}", instance.question)
        assert rule is not None
        assert tag is not None
        lines = sql(instance, query(tag[1], *rule, names) or "").splitlines()[1:]
        mine = [row for row in truth(instance, task)[1].split("; ") if row.startswith(f"{tag[1]}|")]
        differs += sorted(line.replace(" | ", "|") for line in lines) != sorted(mine)
    assert differs >= 3


def test_the_database_is_plain_sql() -> None:
    with sqlite3.connect(":memory:") as base:
        base.executescript(sql_audit.instance(4).database)
        assert len(base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()) == 4
