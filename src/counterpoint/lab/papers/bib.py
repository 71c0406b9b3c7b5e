"""Papers as BibTeX.

Always true: the same papers give the same bytes; entry keys are the corpus keys, which are unique; braces balance, and
no character of a record can end a field or start a command. The corpus knows first authors only, so an entry by people
says `and others` unless a mark says that there was one author.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable

from counterpoint.lab.papers.records import Paper

_JOURNALS = {
    "Mathematics of Operations Research": "Mathematics of Operations Research",
    "Advances in Complex Systems": "Advances in Complex Systems",
    "Nature": "Nature",
    "TMLR": "Transactions on Machine Learning Research",
    "JMLR": "Journal of Machine Learning Research",
    "TACL": "Transactions of the Association for Computational Linguistics",
}
_MEETING = re.compile(
    r"\b(NeurIPS|NIPS|ICLR|ICML|AAAI|IJCAI|AAMAS|ACL|EMNLP|NAACL|EACL|COLM|COLING|AISec|AISTATS|UAI|CoRL|CVPR|ICCV|ECCV|KDD|"
    r"WWW|CHI|Workshop|Proceedings|Conference)\b"
)
_NOT_ACCEPTED = re.compile(r"submi|arxiv|openreview|preprint|under review", re.IGNORECASE)
_PLACE = re.compile(r"(\d+)(?:\((\d+(?:/\d+)?)\))?:(\d+)(?:-(\d+))?")
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0327": "c",
    "\u0328": "k",
}


def escape(text: str) -> str:
    """Text that BibTeX and LaTeX print as it stands; accented Latin letters become commands."""
    out = []
    for char in unicodedata.normalize("NFC", text):
        parts = unicodedata.normalize("NFD", char)
        if len(parts) == 2 and parts[0].isascii() and parts[1] in _ACCENTS:
            out.append(f"{{\\{_ACCENTS[parts[1]]}{{{parts[0]}}}}}")
        else:
            out.append(_SPECIAL.get(char, char))
    return "".join(out)


def _journal(venue: str) -> str | None:
    return _JOURNALS.get(re.sub(r"\s+(19|20)\d\d$", "", venue))


def kind(paper: Paper) -> str:
    """`article`, `inproceedings` or, for preprints, submissions, reports and pages, `misc`."""
    if _journal(paper.venue):
        return "article"
    if _MEETING.search(paper.venue) and not _NOT_ACCEPTED.search(paper.venue):
        return "inproceedings"
    return "misc"


def _author(paper: Paper, sole: Collection[str]) -> str:
    if "," not in paper.first_author:
        return "{" + escape(paper.first_author) + "}"  # an organisation: braces keep its words together
    return escape(paper.first_author) + ("" if paper.key in sole else " and others")


def _address(url: str) -> str:
    # Inside \url nothing is escaped, so what could close the field is percent-encoded instead.
    return "".join(f"%{ord(c):02X}" if c in "{}\\ " else c for c in url)


def fields(paper: Paper, sole: Collection[str] = ()) -> dict[str, str]:
    """The fields of an entry, already escaped."""
    type_ = kind(paper)
    out = {"author": _author(paper, sole), "title": "{" + escape(paper.title) + "}"}
    if type_ == "article":
        out["journal"] = escape(_journal(paper.venue) or paper.venue)
        place = _PLACE.search(paper.notes)
        if place:
            volume, number, first, last = place.groups()
            out["volume"] = volume
            out |= {"number": number} if number else {}
            out["pages"] = f"{first}--{last}" if last else first
    elif type_ == "inproceedings":
        out["booktitle"] = escape(paper.venue)
    elif paper.venue not in ("arXiv", "unknown"):
        out["howpublished"] = escape(paper.venue)
    out["year"] = str(paper.year)
    if paper.arxiv_id:
        out |= {"eprint": paper.arxiv_id, "archiveprefix": "arXiv"}
    addresses = paper.url.split(" ; ")
    out["url"] = _address(addresses[0])
    if len(addresses) > 1:
        out["note"] = "See also " + ", ".join(f"\\url{{{_address(a)}}}" for a in addresses[1:])
    return out


def entry(paper: Paper, sole: Collection[str] = ()) -> str:
    """One BibTeX entry."""
    lines = [f"  {name:<13} = {{{value}}}," for name, value in fields(paper, sole).items()]
    return "\n".join([f"@{kind(paper)}{{{paper.key},", *lines, "}"])


def render(papers: Iterable[Paper], sole: Collection[str] = ()) -> str:
    """All entries, parted by blank lines."""
    return "\n\n".join(entry(p, sole) for p in papers)
