"""A panel of experts in one room, with a terminal that runs the code of whoever spoke before, and few turns to do it in."""

from __future__ import annotations

from counterpoint.lab.bench.expert_chat.talk import (
    GUESSING,
    OPS,
    SYLLABLES,
    Cut,
    Problem,
    Talk,
    code,
    mannered,
    off,
    opens,
    planned,
    with_op,
)

_RELAYED = 0.25
"""A plan that a manager made beforehand is wrong less often than what is made on the spot."""


class Panel:
    """Experts take turns in one room. Code that fails and searches that find nothing cost turns, and turns are few."""

    def __init__(self, talk: Talk, problem: Problem) -> None:
        self.talk, self.problem = talk, problem
        checker = talk.pick(("Verification_Expert", "Validation_Expert", "DataVerification_Expert"), "third")
        second = talk.pick(("DataAnalysis_Expert", "Python_Expert", "Research_Expert", "Statistics_Expert"), "second")
        self.cast = [f"{problem.topic}_Expert", checker, second]
        self.checker = checker
        self.before = self.cast[0]
        self.plan = list(range(len(problem.what)))
        self.op = problem.op
        self.values: dict[int, int] = {}
        self.answer: int | None = None
        talk.limit = 10 if talk.chance(0.8, "limit") else 16

    def run(self) -> int | None:
        try:
            self._plan()
            for i in list(self.plan):
                if i and self.talk.errs("early_stop", f"after {i}", 0.5):
                    self._concludes(early=True)
                    return self.answer
                self._look_up(i)
            self._calculate()
            self._verify()
            self._concludes()
        except Cut:
            pass
        return self.answer

    def _next(self, what: str) -> str:
        """Who speaks next: mostly somebody else."""
        others = [who for who in self.cast if who != self.before]
        if self.talk.chance(0.65, "other " + what):
            self.before = self.talk.pick(others, "next " + what)
        return self.before

    def _say(self, text: str, what: str) -> None:
        """Somebody speaks; a terminal that finds no code in it may say so."""
        talk = self.talk
        talk.say(self._next(what), mannered(talk, text, what))
        if talk.chance(0.3, "nothing to run " + what):
            talk.result("There is no code in the last message to execute.", True)

    def _plan(self) -> None:
        talk, problem = self.talk, self.problem
        is_relayed = talk.chance(0.8, "relayed")
        often = _RELAYED if is_relayed else 1.0
        self.op = planned(talk, self.plan, self.op, often)
        self.is_lost = talk.errs("lost_constraint", "plan", often)
        steps = "\n".join(
            f"{n + 1}. Find the {problem.what[i]}{'' if self.is_lost else ', ' + problem.constraint}."
            for n, i in enumerate(self.plan)
        )
        text = (
            f"{self._brief() if is_relayed else ''}Here is the plan.\n{steps}\n"
            f"{len(self.plan) + 1}. Calculate {OPS[self.op]} these and verify the result."
        )
        if talk.chance(0.2, "begins at once"):  # the plan and the first piece of work in one
            self._with_tool(0, f"{text}\n")
        elif talk.chance(0.6, "plan alone"):
            talk.say(self.cast[0], text)
            if talk.chance(0.4, "nothing to run"):
                talk.result("There is no code in the last message to execute.", True)
        else:
            talk.say(self.cast[0], text)
            self._say("Let me begin with the first point of the plan, and collect what it takes.", "begins")

    def _brief(self) -> str:
        """What a manager hands the room before anybody begins."""
        talk, problem = self.talk, self.problem
        roles = ", ".join(self.cast)
        asks = "Please follow the suggestions below, and ask each other for what you need." if talk.chance(0.7, "asks") else ""
        output = (
            f"\nThe output should be one number. Constraints: it must be accurate, {problem.constraint}."
            if talk.chance(0.6, "output")
            else ""
        )
        return f"We are given a task and a plan from our manager.\n# Task\n{problem.question}\n# For {roles}\n{asks}{output}\n"

    def _look_up(self, i: int) -> None:
        talk, problem, tag = self.talk, self.problem, f"look {i}"
        if i in self.values:
            return
        value = problem.near[i] if self.is_lost else problem.values[i]
        if talk.errs("wrong_delegation", tag, 0.2):
            self._say(f"{self.checker}, please give us the {problem.what[i]} yourself.", "asks" + tag)
            self.before = self.checker
            value = off(value, talk, tag)
            talk.say(self.checker, f"{opens(talk, tag, True)} the {problem.what[i]} is {value}.")
        elif talk.chance(0.6, "tool" + tag):
            self._with_tool(i)
            return
        else:
            is_wrong = talk.errs("wrong_fact", tag)
            value = off(value, talk, tag) if is_wrong else value
            self._say(f"{opens(talk, tag, is_wrong)} the {problem.what[i]} is {value}. We can go on with the next step.", tag)
        self.values[i] = value

    def _with_tool(self, i: int, before: str = "") -> None:
        """A piece of code that looks a number up: it works, fails, finds something else, or finds nothing."""
        talk, problem, tag = self.talk, self.problem, f"look {i}"
        named = problem.what[i]
        value = problem.near[i] if self.is_lost else problem.values[i]
        who = self.cast[0] if before else self._next("tool" + tag)
        head = f"{before}I will look up the {named} with this code."
        if talk.errs("wrong_argument", "breaks" + tag):
            talk.say(who, code(f"print(lookup({named!r})", head))
            self.values[i] = self._repaired(i, value, tag)
            return
        asked = f"{named}, {problem.constraint}"
        if talk.errs("lost_constraint", tag, 0.7):
            asked, value = named, problem.near[i]
        elif talk.errs("wrong_argument", tag, 0.7):
            if talk.chance(0.5, "nothing" + tag):
                talk.say(who, code(f"search({problem.others[i]!r})", head))
                self.values[i] = self._astray(i, value, tag)
                return
            asked, value = f"{problem.others[i]} ({named.split()[0]})", problem.far[i]
        talk.say(who, mannered(talk, code(f"lookup({asked!r})", head), tag))
        talk.result(f"exitcode: 0 (execution succeeded)\nCode output: {asked}: {value}", True)
        self.values[i] = self._read(i, value, tag)

    def _read(self, i: int, value: int, tag: str) -> int:
        """What is made of a result: said again, misread, or left where it is."""
        talk, named = self.talk, self.problem.what[i]
        if talk.errs("dropped_message", tag, 0.4):
            self._say("The code has run and we have what we need. Let's go on.", "drops" + tag)
            return off(value, talk, tag)
        if talk.chance(0.6, "reads" + tag):
            if talk.errs("misread_result", tag):
                value = off(value, talk, tag)
            self._say(f"The output shows that the {named} is {value}.", "reads" + tag)
        return value

    def _repaired(self, i: int, value: int, tag: str) -> int:
        """After code that failed: it is mended, fails again, or somebody makes the number up."""
        talk, named = self.talk, self.problem.what[i]
        talk.crash("0" + tag)
        for again in range(2):
            if talk.errs("wrong_fact", f"instead {again} {tag}"):
                made_up = off(value, talk, tag)
                self._say(f"The code does not work. {talk.pick(GUESSING, 'made up' + tag)} the {named} is {made_up}.", "up" + tag)
                return made_up
            is_broken = talk.errs("wrong_argument", f"again {again} {tag}")
            by = self._next(f"repairs {again}{tag}")
            talk.say(by, code(f"import source\nprint(source.lookup({named!r}))", "The code failed. This version is corrected."))
            if not is_broken:
                talk.result(f"exitcode: 0 (execution succeeded)\nCode output: {named}: {value}", True)
                return self._read(i, value, tag)
            talk.crash(f"{again + 1}{tag}")
        raise Cut

    def _astray(self, i: int, value: int, tag: str) -> int:
        """After a search for the wrong thing: results that say nothing about it, and another try, or a guess."""
        talk, named = self.talk, self.problem.what[i]
        for again in range(3):
            shown = ", ".join(talk.pick(SYLLABLES, f"hit {again} {n} {tag}") for n in range(4))
            empty = talk.chance(0.4, f"none {again} {tag}")
            output = "[]" if empty else f"Search Result 1: {shown} news"
            talk.result(f"exitcode: 0 (execution succeeded)\nCode output: {output}", True)
            if talk.errs("wrong_fact", f"instead {again} {tag}"):
                made_up = off(value, talk, tag)
                guess = talk.pick(GUESSING, "up" + tag).lower()
                self._say(f"Based on the search results, {guess} the {named} is {made_up}.", "up" + tag)
                return made_up
            is_wrong = talk.errs("wrong_argument", f"again {again} {tag}")
            by, asked = self._next(f"searches {again}{tag}"), self.problem.others[i] if is_wrong else named
            talk.say(by, code(f"search({asked!r})", "It appears that this did not find it. Let's try another search."))
            if not is_wrong:
                talk.result(f"exitcode: 0 (execution succeeded)\nCode output: Search Result 1: the {named} is {value}", True)
                return self._read(i, value, tag)
        raise Cut

    def _calculate(self) -> None:
        talk = self.talk
        given = [self.values[i] for i in self.plan if i in self.values]
        right = Problem.answer(with_op(self.problem, self.op), given)
        if talk.chance(0.5, "code calculates"):
            who = self._next("calculates")
            if talk.errs("wrong_argument", "calculation", 0.7):
                right = off(right, talk, "formula")
            talk.say(who, code(f"print({self.op}({given}))", "Now the calculation."))
            talk.result(f"exitcode: 0 (execution succeeded)\nCode output: {right}", True)
            if talk.errs("misread_result", "calculation", 0.5):
                right = off(right, talk, "calculation")
            elif talk.chance(0.4, "not read"):
                self.answer = right
                return
            self._say(f"So the result is {right}.", "result")
        else:
            is_wrong = talk.errs("wrong_fact", "calculation")
            right = off(right, talk, "calculation") if is_wrong else right
            self._say(f"We calculate {OPS[self.op]} {', '.join(map(str, given))}: this gives {right}.", "result")
        self.answer = right

    def _verify(self) -> None:
        talk = self.talk
        for again in range(1 + int(talk.draw("verifies") * 2.5)):
            self.before = self.checker if again == 0 else self._next(f"confirms {again}")
            if again == 0 and talk.made and talk.chance(0.3 * (1 - talk.subtlety), "caught"):
                right = self.problem.answer(self.problem.values)
                talk.say(
                    self.checker, f"This is incorrect: I checked every value again, and the result is {right}, not {self.answer}."
                )
                self.answer = right
                continue
            text = f"I have verified the steps. The result {self.answer} is correct and consistent with the data."
            talk.say(self.before, mannered(talk, text, f"verify {again}"))
        if talk.errs("late_stop", "after the result", 0.3):
            self.answer = off(self.answer or 0, talk, "late")
            talk.say(
                self._next("late"),
                f"Before we finish, let me go over this once more. Counting again, it should be {self.answer} instead.",
            )

    def _concludes(self, early: bool = False) -> None:
        talk = self.talk
        if early:
            self.answer = self.problem.answer(list(self.values.values()))
        if early or talk.chance(0.5, "says it"):
            talk.say(self._next("ends"), f"The final answer is {self.answer}. The task is solved.")
        if talk.chance(0.8, "terminate"):
            talk.say(self._next("terminates"), "TERMINATE")
