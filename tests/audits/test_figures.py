"""Figures of a text: one form for what is written in many."""

from __future__ import annotations

import pytest

from counterpoint.audits.figures import figures


@pytest.mark.parametrize(("forms", "figure"), [
    (("March 3, 2027", "3 March 2027", "3rd of March 2027", "Mar. 3 2027", "2027-03-03", "2027/3/3", "3.3.2027", "2027-03-03T14:00"), "2027-03-03"),
    (("31.12.2026", "31/12/2026", "12/31/2026"), "2026-12-31"),
    (("2 pm", "2:00 PM", "14:00", "at 2 p.m. sharp"), "14:00"),
    (("12 am", "00:00"), "00:00"),
    (("12 pm", "12:00"), "12:00"),
    (("1,200 euros", "$1200", "1200.00", "1'200"), "1200"),
    (("in barn A", "A", "to A."), "A"),
])  # fmt: skip
def test_a_figure_is_the_same_however_it_is_written(forms: tuple[str, ...], figure: str) -> None:
    for form in forms:
        assert figure in figures(form), form


@pytest.mark.parametrize("text", ["03/04/2027", "A cow", "I do", "v1.2.3", "user42", "99.99.2027"])
def test_what_could_be_two_things_or_is_a_word_is_no_figure(text: str) -> None:
    assert not figures(text)
