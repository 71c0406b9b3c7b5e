"""Write the package's price list from genai-prices: `make prices`, and `make dist` before it builds.

Always true: the file holds the installed package's figures and its version, a line for every model, so that a change is read
as one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from counterpoint.formats.importing.price_list import PACKAGE, TABLE, price_table


def text_of(table: dict[str, Any]) -> str:
    """The table as JSON, a line for every model."""
    lists = []
    for provider, said in sorted(table["providers"].items()):
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in said["models"])
        lists.append(f'{json.dumps(provider)}: {{"falls_back": {json.dumps(said["falls_back"])}, "models": [\n{rows}\n]}}')
    body = ",\n".join(lists)
    return f'{{"version": {json.dumps(table["version"])}, "providers": {{\n{body}\n}}}}\n'


def main() -> None:
    """Write it, and say what it holds."""
    table = price_table()
    TABLE.write_text(text_of(table), encoding="utf-8")
    models = sum(len(said["models"]) for said in table["providers"].values())
    print(f"prices: {models:,} models of {len(table['providers'])} providers, from {PACKAGE} {table['version']}")


if __name__ == "__main__":
    main()
