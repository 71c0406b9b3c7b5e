"""A world of one's own: two riders each say pay or wait, eight times; one of them has to pay, and paying twice is a waste."""

import numpy as np

from counterpoint.lab.worlds.packages import Episode


class SharedFare(Episode):
    """Each rider gets 1 where exactly one pays, less a half for the one who does."""

    version, agents, actions, bound = "1", ("ada", "bo"), ("pay", "wait"), 6.0
    rules = "A tram needs one fare. If nobody pays, you walk; if both pay, one fare is lost. The actions are pay and wait."

    def reset(self, seed):
        self.illegal, self.round, self.last, self.sums = 0, seed % 2, "nothing", {"ada": 0.0, "bo": 0.0}

    def turn(self):
        return self.agents if self.round < 8 else ()

    def observe(self, agent):
        return f"You are {agent}. Ride {self.round + 1} of 8. Last time: {self.last}."

    def array(self, agent):
        return np.array([self.round / 8, agent in self.last, self.last == "nobody"], np.float32)

    def legal(self, agent):
        return self.actions

    def take(self, actions, words):
        payers = [agent for agent, action in actions.items() if action == "pay"]
        for agent in self.agents:
            self.sums[agent] += float(len(payers) == 1) - 0.5 * (agent in payers)
        self.round, self.last = self.round + 1, " and ".join(payers) or "nobody"

    @property
    def rewards(self):
        return dict(self.sums)
