"""A team that an orchestrator leads: it plans, keeps a ledger, asks others one by one, hears them, and answers."""

from __future__ import annotations

from counterpoint.lab.bench.expert_chat.talk import (
    GUESSING,
    OPS,
    SYLLABLES,
    Cut,
    Problem,
    Talk,
    code,
    off,
    opens,
    planned,
    with_op,
)

_LEADER = "Orchestrator"


class LedTeam:
    """An orchestrator thinks, asks, and hears; a surfer reads pages, an assistant calculates. Turns are few."""

    def __init__(self, talk: Talk, problem: Problem) -> None:
        self.talk, self.problem = talk, problem
        self.values: dict[int, int] = {}
        self.op = problem.op
        self.plan = list(range(len(problem.what)))
        self.reader = "WebSurfer" if talk.chance(0.85, "reader") else "FileSurfer"
        talk.limit = 8 + int(talk.draw("limit") * 24)

    def run(self) -> int | None:
        try:
            return self._works()
        except Cut:
            return None

    def _thinks(self, text: str) -> None:
        self.talk.say(_LEADER, text, is_aside=True)

    def _asks(self, who: str, text: str) -> None:
        is_named = self.talk.chance(0.5, f"named {text}")
        self.talk.say(_LEADER, f"{who}, {text}" if is_named else text[:1].upper() + text[1:], to=who)

    def _works(self) -> int | None:
        talk, problem = self.talk, self.problem
        self.op = planned(talk, self.plan, self.op, 0.4)
        parts = "\n".join(f"- {self.reader} finds the {problem.what[i]}" for i in self.plan)
        head = f"Initial plan: to answer the request '{problem.question}' we do the following."
        self._thinks(f"{head}\n{parts}\n- then calculate {OPS[self.op]} these")
        for i in self.plan:
            if i and talk.errs("early_stop", f"after {i}", 0.5):
                break
            self.values[i] = self._look_up(i)
        return self._ends()

    def _look_up(self, i: int) -> int:
        talk, problem, tag = self.talk, self.problem, f"look {i}"
        named, value = problem.what[i], problem.values[i]
        if talk.chance(0.7, "ledger" + tag):
            known = f"{len(self.values)} of {len(self.plan)} facts are known"
            self._thinks(f"Updated ledger: the request is not satisfied. {known}; next, the {named} is to be found.")
        if talk.errs("wrong_delegation", tag, 0.25):
            self._asks("Assistant", f"please give the {named}, {problem.constraint}.")
            value = off(value, talk, tag)
            talk.say("Assistant", f"{opens(talk, tag, True)} the {named} is {value}.")
            return value
        asked = named if (is_lost := talk.errs("lost_constraint", tag, 0.25)) else f"{named}, {problem.constraint}"
        self._asks(self.reader, f"please find the {asked}.")
        return self._surfs(i, asked, problem.near[i] if is_lost else value, tag)

    def _surfs(self, i: int, asked: str, value: int, tag: str) -> int:
        """Pages that say nothing, then the one that says it; or a wrong one; or a guess when it gets too long."""
        talk, problem = self.talk, self.problem
        named, other = problem.what[i], problem.others[i]
        slow = int(talk.draw("detours" + tag) * 3)
        for again in range(8):
            here = f"{again} {tag}"
            is_astray = talk.errs("wrong_argument", here)
            if is_astray and talk.chance(0.4, "wrong page" + here):
                page = f"I clicked on '{other}'. The page says: the number for {other} is {problem.far[i]}."
                talk.say(self.reader, f"{page} {self._page(here)}")
                return self._notes(i, problem.far[i], tag)
            if not is_astray and again >= slow:
                if talk.errs("wrong_fact", here, 0.8):
                    value = off(value, talk, tag)
                    talk.say(self.reader, f"{opens(talk, tag, True)} the {named} is {value}.")
                else:
                    page = f"I opened the page about it. It says, among other things ({10 + i} sections): the {named} is {value}"
                    talk.say(self.reader, f"{page}, {problem.constraint}. {self._page(here)}")
                return self._notes(i, value, tag)
            slow += is_astray  # what was found on the way is lost again
            shown = f"{talk.pick(SYLLABLES, 'page' + here)} news, a forum, a shop"
            did = f"I clicked on '{other}'" if is_astray else f"I typed '{named}' into the search box"
            talk.say(self.reader, f"{did}. The page shows other results: {shown}. Nothing states it. {self._page(here)}")
            self._goes_on(named, asked, here)
            if again and talk.errs("wrong_fact", "guess" + here, 0.3):
                value = off(value, talk, tag)
                guess = f"{talk.pick(GUESSING, 'guess' + tag)} the {named} is {value}."
                self._thinks(f"It was not found. {guess} This part is finished.")
                return value
        raise Cut

    def _page(self, here: str) -> str:
        """What else a page shows: names and numbers that matter to nobody."""
        talk = self.talk
        lines = []
        for n in range(int(talk.draw("page" + here) * 9)):
            name = talk.pick(SYLLABLES, f"name {n} {here}").capitalize() + talk.pick(SYLLABLES, f"end {n} {here}")
            lines.append(f"It also shows {name} with {20 + int(talk.draw(f'count {n} {here}') * 5000)} entries.")
        return " ".join(lines)

    def _goes_on(self, named: str, asked: str, here: str) -> None:
        """The orchestrator asks for more of the same, or for something else that does not help."""
        talk = self.talk
        if talk.chance(0.6, "ledger" + here):
            self._thinks(f"Updated ledger: no progress with the {named}. We should try again.")
        if talk.errs("late_stop", here, 0.3):
            for n in range(4):
                self._asks(self.reader, f"please do the same search again for the {named}.")
                did = f"I typed '{named}' into the search box ({n + 2} times now)."
                talk.say(self.reader, f"{did} The page is the same as before.")
        elif talk.chance(0.8, "on" + here):
            self._asks(self.reader, f"please try another page for the {asked}.")

    def _notes(self, i: int, value: int, tag: str) -> int:
        """What the orchestrator makes of what it was told."""
        talk, named = self.talk, self.problem.what[i]
        if talk.chance(0.6, "notes" + tag):
            if talk.errs("misread_result", tag, 0.5):
                value = off(value, talk, tag)
            elif talk.errs("dropped_message", tag, 0.4):
                self._thinks("Thought: this part is finished.")
                return off(value, talk, tag)
            self._thinks(f"Thought: the {named} is {value}. This part is finished.")
        return value

    def _ends(self) -> int:
        talk = self.talk
        given = list(self.values.values())
        answer = with_op(self.problem, self.op).answer(given)
        if talk.chance(0.5, "coder"):
            self._asks("Assistant", f"please calculate {OPS[self.op]} {', '.join(map(str, given))}.")
            is_wrong = talk.errs("wrong_fact", "calculation", 0.5)
            answer = off(answer, talk, "calculation") if is_wrong else answer
            if talk.chance(0.5, "by code"):
                talk.say("Assistant", code(f"print({self.op}({given}))", "This code calculates it."))
                self._asks("ComputerTerminal", "please run the code.")
                talk.result(f"{answer}", True)
            else:
                talk.say("Assistant", f"The result is {answer}.")
        if talk.chance(0.5, "satisfied"):
            self._thinks(f"Updated ledger: the request is satisfied. The answer is {answer}.")
        talk.say(_LEADER, f"FINAL ANSWER: {answer}", decision="stop")
        return answer
