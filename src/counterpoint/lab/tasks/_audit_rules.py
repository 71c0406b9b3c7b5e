"""The rules of the SQL audit: each as a sentence of a policy, and as the query that finds what breaks it.

Always true: the query of a rule gives rows (rule, id, number) and is built from the names of a schema and the fields of the
sentence alone, so the hidden reference and a reader who read the policy right ask the same. Every way to say a rule can be heard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from counterpoint.lab.tasks._words import Phrase, day, heard_all, number, phrase_fields, phrases, the_day

Names = Mapping[str, str]
"""Roles such as `expense` and `expense.amount` to the names of tables and columns."""


@dataclass(frozen=True)
class AuditRule:
    """One kind of rule."""

    topic: str
    ways: tuple[Phrase, ...]
    sql: str
    """What is asked after the rule's tag; roles stand in braces, and fields of the sentence as :name."""


_EXPENSE = "SELECT e.{expense.id} AS id, e.{expense.amount} AS number FROM {expense} e"
_OWNER = f"{_EXPENSE} JOIN {{person}} p ON p.{{person.id}} = e.{{expense.person}}"
AUDIT_RULES: dict[str, AuditRule] = {
    "cap": AuditRule(
        "the highest expense",
        phrases("No expense may be above {limit:amount} crowns.", "One expense comes to {limit:amount} crowns at the most."),
        f"{_EXPENSE} WHERE e.{{expense.amount}} > :limit",
    ),
    "approver": AuditRule(
        "approvals",
        phrases(
            "An expense of more than {limit:amount} crowns needs an approver.",
            "Somebody has to approve every expense that is above {limit:amount} crowns.",
        ),
        f"{_EXPENSE} WHERE e.{{expense.amount}} > :limit AND e.{{expense.approver}} IS NULL",
    ),
    "own": AuditRule(
        "approving",
        phrases("Nobody may approve an expense of their own.", "The approver of an expense is never the person who made it."),
        f"{_EXPENSE} WHERE e.{{expense.approver}} = e.{{expense.person}}",
    ),
    "closed": AuditRule(
        "the closed season",
        phrases(
            "From {low:date} to {high:date}, both days included, no expense may be booked.",
            "The books are closed from {low:date} to {high:date}, and no expense may carry a day of that time or its ends.",
        ),
        f"{_EXPENSE} WHERE e.{{expense.day}} BETWEEN :low AND :high",
    ),
    "grade": AuditRule(
        "grades",
        phrases(
            "People of grade {grade:number} may not make an expense above {limit:amount} crowns.",
            "With grade {grade:number} one expense comes to no more than {limit:amount} crowns.",
        ),
        f"{_OWNER} WHERE p.{{person.grade}} = :grade AND e.{{expense.amount}} > :limit",
    ),
    "left": AuditRule(
        "people who left",
        phrases("No expense may be booked after the day on which its person left.", "Who has left makes no expense later."),
        f"{_OWNER} WHERE e.{{expense.day}} > p.{{person.left}}",
    ),
    "blocked": AuditRule(
        "blocked suppliers",
        phrases(
            "Nothing may be booked with a supplier after the day on which it was blocked.",
            "A supplier that is blocked gets no expense on any later day.",
        ),
        f"{_EXPENSE} JOIN {{supplier}} s ON s.{{supplier.id}} = e.{{expense.supplier}} "
        "WHERE e.{expense.day} > s.{supplier.blocked}",
    ),
    "other": AuditRule(
        "departments and approvals",
        phrases(
            "Whoever approves an expense is of the same department as the person who made it.",
            "An expense may not be approved by somebody of another department.",
        ),
        f"{_OWNER} JOIN {{person}} a ON a.{{person.id}} = e.{{expense.approver}} "
        "WHERE a.{person.department} <> p.{person.department}",
    ),
    "budget": AuditRule(
        "budgets",
        phrases(
            "The expenses of all people of a department together may not be above its budget.",
            "No department's people may spend more in all than the budget of the department.",
        ),
        "SELECT d.{department.id} AS id, SUM(e.{expense.amount}) AS number FROM {expense} e "
        "JOIN {person} p ON p.{person.id} = e.{expense.person} JOIN {department} d ON d.{department.id} = p.{person.department} "
        "GROUP BY d.{department.id}, d.{department.budget} HAVING SUM(e.{expense.amount}) > d.{department.budget}",
    ),
    "twice": AuditRule(
        "doubles",
        phrases(
            "A person may not book the same amount twice on one day.",
            "Two expenses of one person on one day never have the same amount.",
        ),
        f"{_EXPENSE} WHERE EXISTS (SELECT 1 FROM {{expense}} o WHERE o.{{expense.id}} <> e.{{expense.id}} "
        "AND o.{expense.person} = e.{expense.person} AND o.{expense.day} = e.{expense.day} "
        "AND o.{expense.amount} = e.{expense.amount})",
    ),
}
SINGLES, JOINS = ("cap", "approver", "own", "closed"), ("grade", "left", "blocked", "other", "budget", "twice")

ABOUT: dict[str, str] = {
    "expense.id": "the id of the expense",
    "expense.person": "the id of the person who made it",
    "expense.amount": "its amount in crowns",
    "expense.day": "the day on which it was booked",
    "expense.approver": "the id of the person who approved it",
    "expense.supplier": "the id of the supplier",
    "person.id": "the id of the person",
    "person.name": "the name of the person",
    "person.department": "the id of the department the person is of",
    "person.grade": "the grade of the person",
    "person.left": "the last day of a person who left",
    "department.id": "the id of the department",
    "department.budget": "the budget of the department in crowns",
    "supplier.id": "the id of a supplier of ours",
    "supplier.name": "the name of a supplier",
    "supplier.blocked": "the day on which a supplier was blocked",
}
"""What the data dictionary says of each column; tables are those of their columns."""
COLUMN = phrases("Column {column:column} of table {table:column} is {about:about}.")


def named(text: str) -> dict[str, str]:
    """The names that a data dictionary gives to roles; what it lacks is not there."""
    roles = {about: role for role, about in ABOUT.items()}
    out: dict[str, str] = {}
    for fields in heard_all(COLUMN, text):
        role = roles.get(fields["about"])
        if role is not None:
            out[role] = fields["column"]
            out[role.partition(".")[0]] = fields["table"]
    return out


def understood(text: str) -> tuple[str, Mapping[str, str]] | None:
    """The kind of rule that a policy states, and its fields; the most telling sentence first."""
    for kind in ("grade", "approver", "cap", *(k for k in AUDIT_RULES if k not in ("grade", "approver", "cap"))):
        fields = phrase_fields(AUDIT_RULES[kind].ways, text)
        if fields is not None:
            return kind, fields
    return None


def query(tag: str, kind: str, fields: Mapping[str, str], names: Names) -> str | None:
    """The query that finds what breaks a rule, in one line; None where a name is not known."""
    sql = AUDIT_RULES[kind].sql
    for role in sorted({*ABOUT, *(role.partition(".")[0] for role in ABOUT)}, key=len, reverse=True):
        if f"{{{role}}}" in sql and role not in names:
            return None
        sql = sql.replace(f"{{{role}}}", names.get(role, ""))
    for name, value in fields.items():
        is_day = not value.replace(",", "").lstrip("-").isdigit()
        sql = sql.replace(f":{name}", f"'{day(the_day(value))}'" if is_day else str(number(value)))
    return sql.replace("SELECT ", f"SELECT '{tag}' AS rule, ", 1) + " ORDER BY 2"
