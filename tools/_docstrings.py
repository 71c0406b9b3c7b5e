"""Examples in our docstrings, for the site: lines of a Python prompt become code, whatever stands in them."""

from __future__ import annotations

from typing import Any

from griffe import Extension


def fenced(text: str) -> str:
    """Every run of lines that begins with `>>>`, up to the next empty line, as a fenced block."""
    out, is_open = list[str](), False
    for line in text.splitlines():
        is_prompt = line.lstrip().startswith(">>>")
        if is_prompt and not is_open:
            out.append("```pycon")
            is_open = True
        elif is_open and not line.strip():
            out.append("```")
            is_open = False
        out.append(line)
    return "\n".join([*out, "```"] if is_open else out)


class Examples(Extension):
    """Rewrites docstrings as they are loaded."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Griffe calls this for every module, class, function and attribute."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
