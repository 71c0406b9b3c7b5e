"""How a worker for fake models writes modules (read, write, try, return), and how a critic tests them.

Always true: it acts on its view alone. A slip (chance 1 - skill) is a wrong source, a form that was guessed, or a test left
out; a slip that an example shows is mended. Every tool is asked at most twice for the same, so that it comes to an end.
"""

from __future__ import annotations

import re
from collections import Counter

from counterpoint.envs.task import Act, Draw, Seen, View
from counterpoint.envs.text._acting import answer, heard, judged, subtask, use
from counterpoint.envs.text._kinds import Module, interfaces, read
from counterpoint.envs.text._modules import blocks, one_line

_TESTED = re.compile(r"^tested (m\d{1,3}) (.*)$", re.M)
_MOST_ASKED = 2
_SAID = ("return", "message", "note")


class _Coder:
    """One view, sorted."""

    def __init__(self, view: View, draw: Draw, skill: float, file: str) -> None:
        self.view, self.draw, self.skill, self.file = view, draw, skill, file
        whole = "\n".join(seen.text for seen in view.seen if seen.kind in ("question", "brief", "operator"))
        self.every = read(whole) | read(subtask(view))
        self.part = read(subtask(view))
        results = [seen.text for seen in view.seen if seen.kind == "result"]
        self.forms = {k: v for text in results for k, v in interfaces(text).items()}
        self.own = "\n".join(seen.text for seen in view.seen if seen.kind == "own")
        self.tested = dict(pair for text in results[-1:] for pair in _TESTED.findall(text))

    def slips(self, what: str) -> bool:
        """Whether a step goes wrong."""
        return self.draw(what) >= self.skill

    def look(self, modules: list[Module]) -> Act | None:
        """Read the forms, where they are needed and not known."""
        needed = any(module.wire and module.wire not in self.forms for module in modules)
        if not needed or self.own.count(self.file) >= _MOST_ASKED or self.slips("look"):
            return None
        return use(self.view, "python", f"print(open({self.file!r}).read())")

    def source(self, module: Module) -> str:
        """What it writes for a module now."""
        forms = module.forms()
        form = self.forms.get(module.wire, "")
        if forms and form not in forms:
            form = forms[int(self.draw(f"guess {module.wire}") * len(forms))]
        if module.example and self.tested.get(module.name, "").strip() == module.result:
            return module.source(form)
        return module.source(form, is_slip=self.slips(f"write {module.name}"))

    def test(self, sources: dict[str, str], modules: list[Module]) -> Act | None:
        """Try the examples once since anything else came back."""
        known = [module for module in modules if module.example and module.name in sources]
        if not known or self.tested or self.own.count("tested ") >= _MOST_ASKED * len(known) or self.slips("test"):
            return None
        lines = [*sources.values(), *(f"print('tested {m.name}', {m.name}({m.example}))" for m in known)]
        return use(self.view, "python", f"exec({chr(10).join(lines)!r})")

    def others(self) -> dict[str, Counter[str]]:
        """What others wrote for each module."""
        found: dict[str, Counter[str]] = {}
        for _, sources in heard(self.view, blocks, _SAID):
            for name, source in sources.items():
                found.setdefault(name, Counter())[source] += 1
        return found

    def write(self) -> Act:
        """Do the part that was given, or the whole."""
        modules = list((self.part or self.every).values())
        if act := self.look(modules):
            return act
        sources = {module.name: self.source(module) for module in modules}
        if act := self.test(sources, modules):
            return act
        if self.view.purpose in ("debate", "resolve", "turn"):
            sources |= {name: self.heeded(name, sources.get(name), some) for name, some in self.others().items()}
        return answer(self.view, one_line(sources) or "nothing was specified")

    def heeded(self, name: str, own: str | None, some: Counter[str]) -> str:
        """Its own source, or what others agree on: for what it cannot know, and where it gives in."""
        source, times = some.most_common(1)[0]
        module = self.every.get(name)
        is_unknown = own is None or (module is not None and bool(module.wire) and module.wire not in self.forms)
        gives_in = times >= 2 and self.draw(f"conform {name}") < (1 - self.skill) * times / some.total()
        return source if is_unknown or gives_in else own or source

    # -- as a critic -----------------------------------------------------------------------------------------------------

    def judge(self) -> Act:
        """ACCEPT, or REJECT with the modules that are wrong."""
        given = [
            (seen, found) for seen in self.view.seen if seen.kind in (*_SAID, "brief", "subtask") and (found := blocks(seen.text))
        ]
        sources = given[-1][1] if given else {}
        modules = self.asked(given[-1][0] if given else None, sources)
        if act := self.look(modules):
            return act
        odd = [m for m in modules if m.example and m.name in sources and not self.is_known(m, sources[m.name])]
        if odd and (act := self.test(sources, odd)):
            return act
        problems = [text for module in modules if (text := self.problem(module, sources.get(module.name)))]
        if not modules:
            problems = ["no function is in it"]
        return judged(self.view, problems, self.slips("judge"))

    def asked(self, seen: Seen | None, sources: dict[str, str]) -> list[Module]:
        """The modules that must be there: those of the part that it is about, or all."""
        name = f"m{seen.task[1:]}" if seen is not None and re.fullmatch(r"s\d{1,3}", seen.task) else ""
        if name in self.every:
            return [self.every[name]]
        if self.part:
            return list(self.part.values())
        return [m for m in self.every.values() if m.name in sources or len(sources) != 1]

    def is_known(self, module: Module, source: str) -> bool:
        """Whether it is a source that this coder knows by sight, right or wrong."""
        return source.strip() in (module.source(), module.source(is_slip=True))

    def problem(self, module: Module, source: str | None) -> str:
        """What is wrong with the source of a module; empty where nothing is seen."""
        if source is None:
            return f"{module.name} is missing"
        if module.wire:
            form = self.forms.get(module.wire)
            others = [module.source(other) for other in module.forms() if other != form]
            return f"{module.name} does not follow {module.wire}: {form}" if form and source.strip() in others else ""
        is_wrong = source.strip() == module.source(is_slip=True)
        if module.example and module.name in self.tested:
            is_wrong = self.tested[module.name].strip() != module.result
        return f"{module.name}({module.example}) is not {module.result}" if is_wrong else ""


def coded(view: View, draw: Draw, skill: float, file: str) -> Act:
    """What a worker does next in a module DAG."""
    coder = _Coder(view, draw, skill, file)
    return coder.judge() if view.purpose == "judge" else coder.write()
