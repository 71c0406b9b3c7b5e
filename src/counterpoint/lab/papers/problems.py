"""The survey's fifteen open problems: what Counterpoint measures about each, by which command, and what stays open.

Always true: a number that stands here was measured by the command beside it, and docs/lab/results.md or docs/lab/bench.md has its
conditions; where it was not measured, there is none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One open problem."""

    id: str
    name: str
    measured: str
    command: str
    number: str
    """Empty: run the command."""
    open: str


PROBLEMS = (
    Problem(
        "P1",
        "Credit diffusion in long traces",
        "how credit spreads over distance, and that the ledger's partition is exact",
        "counterpoint reproduce diffusion partition cone",
        "",
        "credit of words inside a message; teams of large models",
    ),
    Problem(
        "P2",
        "Free riding; Shapley at a hundred agents and more",
        "Shapley over teams that the policy makes; a detector of free riders",
        "counterpoint reproduce shapley",
        "",
        "what agents would have done had they known that they are judged this way",
    ),
    Problem(
        "P3",
        "Coordination collapse, one dominant agent, reward diversity",
        "spawning from a chance of 4e-4, and runs that end up calling nobody",
        "counterpoint reproduce spawn-exploration",
        "20 of 20 runs reach 95 % of the optimum, 2 of 20 without forks",
        "collapse of a language model's words; diversity as a reward is a preset, not a result",
    ),
    Problem(
        "P4",
        "Credit over branches that were never taken",
        "exact forks of worlds and of live teams; estimates without a replay, with their coverage",
        "counterpoint reproduce fork-exact live-fork dr-credit",
        "25 of 25 forks with the hashes of a full replay",
        "branches of a team whose tools cannot be run again and of which there are no other runs",
    ),
    Problem(
        "P5",
        "Trained at k agents, deployed at k'",
        "policies of 64 questions on 4,096; a language model's team at larger widths",
        "counterpoint reproduce generalise lm-transfer",
        "0.984 [0.980, 0.989] of the bound at 4,096 questions, the worst of twenty seeds 0.968",
        "lm-transfer has not been run whole",
    ),
    Problem(
        "P6",
        "Reward hacking with tools, and the price of tool calls",
        "detectors of five hacks, as auditors and as guards in training; prices on agents, calls, tokens and time",
        "counterpoint reproduce hacks lm-decide; counterpoint audit TRACE",
        "blatant hacks: AUC 1.00; teams that can disguise them behind a guard hack in 97 % of their runs or more",
        "a guard that a policy cannot learn to pass",
    ),
    Problem(
        "P7",
        "Collusion of verifier and policy",
        "a detector of verdicts that follow the author; judges with chosen error rates; a critic that learns what it is paid for",
        "counterpoint reproduce hacks; counterpoint audit TRACE",
        "paid for approvals it approves blindly, and 28 % [23, 32] of the return is lost; behind a mask 1 to 2 %",
        "collusion in words that a reader of words cannot see",
    ),
    Problem(
        "P8",
        "Process against outcome",
        "balances of several rewards, and weights that leave by themselves",
        "counterpoint reproduce balance anneal",
        "",
        "process rewards of a learned judge",
    ),
    Problem(
        "P9",
        "The cost of rollouts",
        "cost per run in tokens and dollars; the engine against what a user would take",
        "counterpoint reproduce lm-engine; counterpoint bench run short --team ...",
        "7.9x `generate` at 256 agents, 8.5x at 1,024",
        "20x and 15x were the goals",
    ),
    Problem(
        "P10",
        "Replay of variable shape",
        "learning from recorded teams of any shape, and what a log does not cover",
        "counterpoint train log --store STORE",
        "",
        "off-policy learning of language models from old logs",
    ),
    Problem(
        "P11",
        "Stragglers and the bias of asynchrony",
        "inclusion weights against the bias of who came back in time",
        "counterpoint reproduce async straggler",
        "17.5 % error without weights, 0.4 % with",
        "the same for language models over many nodes",
    ),
    Problem(
        "P12",
        "Prompt injection between agents",
        "three layers of taint; gates on and off; attackers who search",
        "counterpoint bench attack T1-100-AV2 --team topology:centralized --gate taint",
        "behind gates the usual wordings got their way in 0 of 28 places, held-out ones in 16 of 24; "
        "checks that read no words raise utility, not safety",
        "a defence that does not read words and stops the try",
    ),
    Problem(
        "P13",
        "Steering in mid-run",
        "orders at safe points; advice measured by forks before it is given",
        "counterpoint steer ID --advise; counterpoint reproduce advise",
        "",
        "advice for teams that cannot be forked",
    ),
    Problem(
        "P14",
        "Isolation while agents are spawned",
        "blast radius of an agent, allow-lists, a sandbox for tools, quarantine of a sub-agent",
        "counterpoint reproduce blast-radius; counterpoint bench run short --team ... --gate quarantine",
        "compromised peers in W1: quarantine takes their success from 84 to 3 %, their reach from 77 to 13 %",
        "isolation of agents that share a context by design",
    ),
    Problem(
        "P15",
        "A benchmark of teams at a thousand steps and more, and a trained stop",
        "cards from ten to ten thousand steps; stop rules with a certificate",
        "counterpoint bench run core --team ...; counterpoint reproduce stopping",
        "98.1 to 99.7 % of the optimal stop at 1,600 traces",
        "stop rules of language models on tasks nobody wrote a checker for",
    ),
)
