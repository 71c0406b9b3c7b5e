"""A model as commands print it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterpoint.app.terminal.output import SCHEMA_VERSION
from counterpoint.errors import NotFound, did_you_mean

if TYPE_CHECKING:
    from counterpoint.lab.lm.weights import FoundWeights


def epilog(*lines: str) -> str:
    """Examples and exit codes of one command."""
    examples = "\n".join(f"  counterpoint models {line}" for line in lines)
    codes = "Exit codes: 0 fine, 1 no index or no space, 2 bad input or no llm extra, 3 no such model, 4 damaged weights."
    return f"\b\nExamples:\n{examples}\n\n{codes}"


def find_model(name: str) -> FoundWeights:
    """A model by what it is called here, or any folder or file."""
    from counterpoint.lab.lm.weights import described, find, listed

    rows = listed()
    for found in rows:
        if name.lower() == found.name.lower() or (found.path is not None and name == found.path.name):
            return found
    try:
        return described(find(name))
    except NotFound as error:
        raise NotFound(error.what, why=error.why, fix=did_you_mean(name, (f.name for f in rows))) from error


def model_row(found: FoundWeights) -> dict[str, Any]:
    """One object of the JSON output."""
    return {
        "schema": SCHEMA_VERSION,
        "model": found.name,
        "state": found.state,
        "size_bytes": found.size_bytes,
        "parameters": found.parameters,
        "dtype": found.dtype,
        "licence": found.licence,
        "source": found.source,
    }


def size_text(size_bytes: int | None) -> str:
    """Megabytes, for people."""
    return "-" if size_bytes is None else f"{size_bytes / 1e6:,.0f} MB"
