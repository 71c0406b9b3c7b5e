"""Plug-ins of the laboratory's kinds that `counterpoint new` writes, each with its test."""

from __future__ import annotations

from pathlib import Path

_USE = {
    "preset": "counterpoint train net --preset {at} --world W1",
    "loss": 'counterpoint train net --preset PRESET --world W1    # with loss={{"{at}": {{}}}} in the preset',
    "world": "counterpoint play --world {at}",
    "task": "counterpoint play --task {at}",
    "topology": "counterpoint play --task T5 --topology {at}",
    "tool": "counterpoint play --task T5 --tool {at}",
    "model": "counterpoint play --task T5 --model {at}",
    "claim": "counterpoint reproduce {at}",
    "trainer": "counterpoint export TRACE --to {at} -o FILE",
}


def templates() -> tuple[Path, dict[str, str]]:
    """The folder of these files, and how a plug-in of each kind is used, once it is importable (hook `templates`)."""
    return Path(__file__).parent, _USE
