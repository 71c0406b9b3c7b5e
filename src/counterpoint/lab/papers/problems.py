"""The survey's fifteen open problems: what Counterpoint measures about each, by which command, and what stays open.

Always true: a number that stands here was measured by the command beside it, and docs/lab/results.md or docs/lab/bench.md has its
conditions; where nothing that bears on the problem was measured, `answer` is `not` and `number` says why.

    measured   the number bears on the problem itself, under the conditions that are named
    in part    it bears on a piece of the problem, or on a simulated stand-in
    not        nothing that bears on the problem comes out
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Problem:
    """One open problem."""

    id: str
    name: str
    measured: str
    command: str
    number: str
    answer: Literal["measured", "in part", "not"]
    open: str


PROBLEMS = (
    Problem(
        "P1",
        "Credit diffusion in long traces",
        "how credit spreads over distance, and that the ledger's partition is exact",
        "counterpoint reproduce diffusion partition cone",
        "planted effects: the spread of a cone stays 1.7 from 10 to 1,000 workers, where that of the return is 33 times as wide; "
        "one lost edge takes 40 % of the effect",
        "in part",
        "teams that nobody simulated; credit of words inside a message",
    ),
    Problem(
        "P2",
        "Free riding; Shapley at a hundred agents and more",
        "Shapley over teams that the policy makes; a detector of free riders",
        "counterpoint reproduce shapley",
        "votes of 1,000 agents, 16 orders: rank correlation 0.996 with exact Shapley values, relative error 5.9 %",
        "in part",
        "games that are not counted votes; what agents would have done had they known that they are judged this way",
    ),
    Problem(
        "P3",
        "Coordination collapse, one dominant agent, reward diversity",
        "spawning from a chance of 4e-4, and runs that end up calling nobody",
        "counterpoint reproduce spawn-exploration",
        "20 of 20 runs reach 95 % of the optimum, 2 of 20 without forks",
        "measured",
        "collapse of a language model's words; diversity as a reward is a preset, not a result",
    ),
    Problem(
        "P4",
        "Credit over branches that were never taken",
        "exact forks of worlds and of live teams; estimates without a replay, with their coverage",
        "counterpoint reproduce fork-exact live-fork dr-credit messages; counterpoint bench messages FOLDER",
        "25 of 25 forks with the hashes of a full replay; against 2,163 labels by forks one fork ranks messages at 0.32, "
        "the best estimate without one at 0.22, of 0.81 that their noise allows",
        "measured",
        "branches of a team whose tools cannot be run again and of which there are no other runs",
    ),
    Problem(
        "P5",
        "Trained at k agents, deployed at k'",
        "policies of 64 questions on 4,096; a language model's team at larger widths",
        "counterpoint reproduce generalise lm-transfer",
        "0.984 [0.980, 0.989] of the bound at 4,096 questions over twenty seeds; of 25 the worst has 0.868",
        "measured",
        "lm-transfer has not been run whole",
    ),
    Problem(
        "P6",
        "Reward hacking with tools, and the price of tool calls",
        "detectors of five hacks, as auditors and as guards in training; prices on agents, calls, tokens and time",
        "counterpoint reproduce hacks fork-audit lm-decide; counterpoint audit TRACE",
        "blatant hacks: AUC 1.00; teams that can disguise them behind a guard hack in 97 % of their runs or more, behind fork "
        "audits at twice the predicted share in 1 to 3 % (idle hires)",
        "measured",
        "acts that change something by luck: 21 and 39 % at that share; language models",
    ),
    Problem(
        "P7",
        "Collusion of verifier and policy",
        "a detector of verdicts that follow the author; judges with chosen error rates; a critic that learns what it is paid for",
        "counterpoint reproduce hacks fork-audit; counterpoint audit TRACE",
        "paid for approvals it approves blindly, and 28 % [23, 32] of the return is lost; behind a mask 1 to 2 %",
        "measured",
        "collusion in words that a reader of words cannot see; two who do damage and repair it pass audits of single acts",
    ),
    Problem(
        "P8",
        "Process against outcome",
        "balances of several rewards, and weights that leave by themselves",
        "counterpoint reproduce balance anneal",
        "nothing about teams: both claims are about tabular policies with made-up rewards",
        "not",
        "all of it: no team was trained with process against outcome rewards",
    ),
    Problem(
        "P9",
        "The cost of rollouts",
        "cost per run in tokens and dollars; the engine against what a user would take",
        "counterpoint reproduce lm-engine; counterpoint bench run short --team ...",
        "7.9x `generate` at 256 agents, 8.5x at 1,024",
        "in part",
        "20x and 15x were the goals; what a rollout of a large model costs",
    ),
    Problem(
        "P10",
        "Replay of variable shape",
        "learning from recorded teams of any shape, and what a log does not cover",
        "counterpoint train log --store STORE",
        "no gain, one seed: cloning 576 recorded episodes 9.76 ± 0.28, 50 off-policy updates more 9.27 ± 0.23, 9.76 ± 0.30",
        "not",
        "all of it: a log that teaches more than its clone; language models from old logs",
    ),
    Problem(
        "P11",
        "Stragglers and the bias of asynchrony",
        "inclusion weights against the bias of who came back in time",
        "counterpoint reproduce async straggler",
        "17.5 % error without weights, 0.4 % with",
        "measured",
        "the same for language models over many nodes",
    ),
    Problem(
        "P12",
        "Prompt injection between agents",
        "three layers of taint; gates on and off; attackers who search",
        "counterpoint bench attack T1-100-AV2 --team topology:centralized --gate taint",
        "behind gates the usual wordings got their way in 0 of 28 places, held-out ones in 16 of 24; "
        "checks that read no words raise utility, not safety",
        "measured",
        "a defence that does not read words and stops the try",
    ),
    Problem(
        "P13",
        "Steering in mid-run",
        "orders at safe points; advice measured by forks before it is given",
        "counterpoint steer ID --advise; counterpoint reproduce advise",
        "advice gains +0.272 [0.174, 0.370] of the optimum in TeamWorld, +0.110 [0.061, 0.159] in text teams of fakes, "
        "on held-out runs after the run, not in its middle",
        "in part",
        "advice taken in mid-run by a team of models; teams that cannot be forked",
    ),
    Problem(
        "P14",
        "Isolation while agents are spawned",
        "blast radius of an agent, allow-lists, a sandbox for tools, quarantine of a sub-agent",
        "counterpoint reproduce blast-radius; counterpoint bench run short --team ... --gate quarantine",
        "compromised peers in W1: quarantine takes their success from 84 to 3 %, their reach from 77 to 13 %",
        "in part",
        "teams of models; agents that share a context by design",
    ),
    Problem(
        "P15",
        "A benchmark of teams at a thousand steps and more, and a trained stop",
        "cards from ten to ten thousand steps; stop rules with a certificate",
        "counterpoint bench run core --team ...; counterpoint reproduce stopping",
        "98.1 to 99.7 % of the optimal stop at 1,600 traces",
        "measured",
        "stop rules of language models on tasks nobody wrote a checker for",
    ),
)
