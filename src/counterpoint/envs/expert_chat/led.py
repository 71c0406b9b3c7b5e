"""A team that an orchestrator leads: it plans, asks others to look things up, hears them, and answers."""

from __future__ import annotations

from counterpoint.envs.expert_chat.talk import OPS, SYLLABLES, Problem, Talk, off, opens, planned, with_op


class Led:
    """An orchestrator thinks, asks, and hears; a surfer reads pages, a coder calculates."""

    def __init__(self, talk: Talk, problem: Problem) -> None:
        self.talk, self.problem = talk, problem
        self.values: dict[int, int] = {}
        self.op = problem.op
        self.plan = list(range(len(problem.what)))

    def run(self) -> int | None:
        talk, problem = self.talk, self.problem
        self.op = planned(talk, self.plan, self.op)
        parts = "\n".join(f"- WebSurfer finds the {problem.what[i]}" for i in self.plan)
        head = f"Initial plan: to answer the request '{problem.question}' we do the following."
        talk.say("Orchestrator", f"{head}\n{parts}\n- then calculate {OPS[self.op]} these")
        for i in self.plan:
            if i and talk.errs("early_stop", f"after {i}"):
                break
            if not self._look_up(i):
                return None
        return self._ends()

    def _look_up(self, i: int) -> bool:
        talk, problem, tag = self.talk, self.problem, f"look {i}"
        named, value = problem.what[i], problem.values[i]
        if talk.chance(0.7, "ledger" + tag):
            talk.say(
                "Orchestrator",
                f"Updated ledger: {len(self.values)} of {len(self.plan)} facts are known; next, the {named} is to be found.",
            )
        worker = "WebSurfer"
        if talk.errs("wrong_delegation", tag):
            worker, value = "Assistant", off(value, talk, tag)
        if talk.errs("lost_constraint", tag):
            value = problem.near[i]
            talk.say("Orchestrator", f"{worker}, please find the {named}.")
        else:
            talk.say("Orchestrator", f"{worker}, please find the {named}, {problem.constraint}.")
        if worker == "Assistant":
            talk.say(worker, f"{opens(talk, tag, True)} the {named} is {value}.")
        elif (read := self._surf(i, value, tag)) is None:
            return False
        else:
            value = read
        self.values[i] = value
        return True

    def _surf(self, i: int, value: int, tag: str) -> int | None:
        """Pages that say nothing, then the one that says it; or the wrong one, or none at all."""
        talk, problem = self.talk, self.problem
        named = problem.what[i]
        detours = int(talk.draw("detours" + tag) * 4)
        is_stuck = talk.errs("late_stop", tag)
        for again in range(detours + (6 if is_stuck else 0)):
            shown = f"{talk.pick(SYLLABLES, f'p{again}{tag}')} news, a forum, a shop"
            talk.say(
                "WebSurfer", f"I typed '{named}' into the search box. The page shows other results: {shown}. Nothing states it."
            )
            if talk.chance(0.8, f"on{again}{tag}"):
                again_ = "the same search again" if is_stuck else "another page"
                talk.say("Orchestrator", f"WebSurfer, please try {again_} for the {named}, {problem.constraint}.")
        if is_stuck:
            talk.say("Orchestrator", "The request could not be satisfied: the rounds are used up.")
            return None
        if talk.errs("wrong_argument", tag):
            value = problem.far[i]
            other = problem.others[i]
            talk.say("WebSurfer", f"I clicked on '{other}'. The page says: the number for {other} is {value}.")
        elif talk.errs("wrong_fact", tag):
            value = off(value, talk, tag)
            talk.say("WebSurfer", f"{opens(talk, tag, True)} the {named} is {value}.")
        else:
            page = f"I opened the page about it. It says, among other things ({10 + i} sections): the {named} is {value}"
            talk.say("WebSurfer", f"{page}, {problem.constraint}.")
        if talk.chance(0.6, "notes" + tag):
            if talk.errs("misread_result", tag):
                value = off(value, talk, tag)
            elif talk.errs("dropped_message", tag):
                talk.say("Orchestrator", "Thought: this part is finished.")
                return off(value, talk, tag)
            talk.say("Orchestrator", f"Thought: the {named} is {value}. This part is finished.")
        return value

    def _ends(self) -> int:
        talk = self.talk
        given = list(self.values.values())
        answer = with_op(self.problem, self.op).answer(given)
        if talk.chance(0.5, "coder"):
            talk.say("Orchestrator", f"Assistant, please calculate {OPS[self.op]} {', '.join(map(str, given))}.")
            is_wrong = talk.errs("wrong_fact", "calculation")
            answer = off(answer, talk, "calculation") if is_wrong else answer
            talk.say("Assistant", f"The result is {answer}.")
        talk.say("Orchestrator", f"The request is satisfied. FINAL ANSWER: {answer}")
        return answer
