"""A panel of experts in one room, with a terminal that runs the code of whoever spoke before."""

from __future__ import annotations

from counterpoint.envs.expert_chat.talk import GUESSING, OPS, Problem, Talk, code, off, opens, planned, with_op


class Panel:
    """Experts take turns in one room; a terminal runs the code of whoever spoke before."""

    def __init__(self, talk: Talk, problem: Problem) -> None:
        self.talk, self.problem = talk, problem
        self.cast = [f"{problem.topic}_Expert", talk.pick(("DataAnalysis_Expert", "Python_Expert", "Research_Expert"), "second")]
        self.checker = talk.pick(("Verification_Expert", "Validation_Expert", "Checking_Expert"), "third")
        self.plan = list(range(len(problem.what)))
        self.op = problem.op
        self.values: dict[int, int] = {}
        self.answer: int | None = None
        self.limit = 10 if talk.chance(0.5, "limit") else 16

    def run(self) -> int | None:
        self._plan()
        for i in list(self.plan):
            if len(self.talk.turns) >= self.limit:
                return None
            if i and self.talk.errs("early_stop", f"after {i}"):
                self._concludes(early=True)
                return self.answer
            self._look_up(i)
        self._calculate()
        self._verify()
        if len(self.talk.turns) >= self.limit:
            return self.answer if self.talk.chance(0.4, "cut") else None
        self._concludes()
        return self.answer

    def _plan(self) -> None:
        talk, problem = self.talk, self.problem
        self.op = planned(talk, self.plan, self.op)
        self.is_lost = talk.errs("lost_constraint", "plan")
        steps = "\n".join(
            f"{n + 1}. Find the {problem.what[i]}{'' if self.is_lost else ', ' + problem.constraint}."
            for n, i in enumerate(self.plan)
        )
        talk.say(
            self.cast[0],
            f"{self._brief()}Here is the plan.\n{steps}\n"
            f"{len(self.plan) + 1}. Calculate {OPS[self.op]} these and verify the result.",
        )
        if talk.chance(0.3, "nothing to run"):
            talk.result("There is no code in the last message to execute.", True)

    def _brief(self) -> str:
        """What a manager hands the room before anybody begins."""
        talk, problem = self.talk, self.problem
        if talk.chance(0.2, "no brief"):
            return ""
        roles = f"{', '.join(self.cast)} and {self.checker}"
        asks = "Please follow the suggestions below, and ask each other for what you need." if talk.chance(0.7, "asks") else ""
        output = (
            f"\nThe output should be one number. Constraints: it must be accurate, {problem.constraint}."
            if talk.chance(0.6, "output")
            else ""
        )
        return f"We are given a task and a plan from our manager.\n# Task\n{problem.question}\n# For {roles}\n{asks}{output}\n"

    def _look_up(self, i: int) -> None:
        talk, problem, tag = self.talk, self.problem, f"look {i}"
        value = problem.near[i] if self.is_lost else problem.values[i]
        who = self.cast[int(talk.draw("who" + tag) * 2)]
        if talk.errs("wrong_delegation", tag):
            talk.say(who, f"{self.checker}, please give us the {problem.what[i]} yourself.")
            value = off(value, talk, tag)
            talk.say(self.checker, f"{opens(talk, tag, True)} the {problem.what[i]} is {value}.")
        elif talk.chance(0.6, "tool" + tag):
            value = self._with_tool(i, who, value, tag)
        else:
            is_wrong = talk.errs("wrong_fact", tag)
            value = off(value, talk, tag) if is_wrong else value
            talk.say(who, f"{opens(talk, tag, is_wrong)} the {problem.what[i]} is {value}. We can go on with the next step.")
        self.values[i] = value

    def _with_tool(self, i: int, who: str, value: int, tag: str) -> int:
        talk, problem = self.talk, self.problem
        named = problem.what[i]
        asked = named
        if talk.errs("wrong_argument", tag):
            if talk.chance(0.5, "breaks" + tag):
                return self._breaks(i, who, tag)
            asked, value = f"{problem.others[i]} ({named.split()[0]})", problem.far[i]
        talk.say(who, code(f"lookup({asked!r})", f"I will look up the {named} with this code."))
        if talk.chance(0.25, "crash" + tag):  # it happens, and is mended
            talk.crash("e" + tag)
            talk.say(who, code(f"import source\nprint(source.lookup({asked!r}))", "The code failed. This version is corrected."))
        talk.result(f"exitcode: 0 (execution succeeded)\nCode output: {asked}: {value}", True)
        if talk.errs("dropped_message", tag):
            talk.say(who, "The code has run and we have what we need. Let's go on.")
            return off(value, talk, tag)
        if talk.chance(0.7, "reads" + tag):
            if talk.errs("misread_result", tag):
                value = off(value, talk, tag)
            talk.say(who, f"The output shows that the {named} is {value}.")
        return value

    def _breaks(self, i: int, who: str, tag: str) -> int:
        """Code that fails again, and a number that somebody makes up in its place."""
        talk, named = self.talk, self.problem.what[i]
        talk.say(who, code(f"print(lookup({named!r})", f"Let me get the {named} with this code."))
        for again in range(1 + int(talk.draw("again" + tag) * 2)):
            talk.crash(f"{again}{tag}")
            if again == 0 and talk.chance(0.6, "retry" + tag):
                by = self.checker if talk.chance(0.5, "by" + tag) else who
                talk.say(by, code(f"print(lookup({named!r}))", "Let me try another way."))
        value = off(self.problem.values[i], talk, tag)
        talk.say(who, f"{talk.pick(GUESSING, 'made up' + tag)} the {named} is {value}, since the code does not work.")
        return value

    def _calculate(self) -> None:
        talk = self.talk
        given = [self.values[i] for i in self.plan if i in self.values]
        self.answer = Problem.answer(with_op(self.problem, self.op), given)
        who = self.cast[int(talk.draw("who calculates") * 2)]
        if talk.chance(0.5, "code calculates"):
            talk.say(who, code(f"print({self.op}({given}))", "Now the calculation."))
            talk.result(f"exitcode: 0 (execution succeeded)\nCode output: {self.answer}", True)
            if talk.errs("misread_result", "calculation"):
                self.answer = off(self.answer, talk, "calculation")
                talk.say(who, f"So the result is {self.answer}.")
        else:
            is_wrong = talk.errs("wrong_fact", "calculation")
            self.answer = off(self.answer, talk, "calculation") if is_wrong else self.answer
            talk.say(who, f"We calculate {OPS[self.op]} {', '.join(map(str, given))}: this gives {self.answer}.")

    def _verify(self) -> None:
        talk = self.talk
        if talk.step is not None and talk.chance(0.5 * (1 - talk.subtlety), "caught"):
            right = self.problem.answer(self.problem.values)
            talk.say(
                self.checker, f"This is incorrect: I checked every value again, and the result is {right}, not {self.answer}."
            )
            self.answer = right
        elif talk.chance(0.7, "verifies"):
            talk.say(
                self.checker, f"I have verified the steps. The result {self.answer} is correct and consistent with the data."
            )
        if talk.errs("late_stop", "after the result"):
            self.answer = off(self.answer or 0, talk, "late")
            talk.say(
                self.cast[1],
                f"Before we finish, let me go over this once more. Counting again, it should be {self.answer} instead.",
            )

    def _concludes(self, early: bool = False) -> None:
        talk = self.talk
        if early:
            self.answer = self.problem.answer(list(self.values.values()))
        talk.say(
            self.checker if talk.chance(0.6, "who ends") else self.cast[0],
            f"The final answer is {self.answer}. The task is solved.",
        )
        if talk.chance(0.6, "terminate"):
            talk.say(self.cast[0], "TERMINATE")
