"""The page's types are made from the shapes: what is committed is what would be made now."""

from __future__ import annotations

from pathlib import Path

from counterpoint.app.viewer import typescript

MADE = Path(__file__).parents[3] / "web" / "src" / "shapes.gen.ts"


def test_the_pages_types_are_the_shapes() -> None:
    fix = "python -m counterpoint.app.viewer.typescript > web/src/shapes.gen.ts"
    assert MADE.read_text(encoding="utf-8") == typescript.source(), f"a shape has changed: {fix}"
