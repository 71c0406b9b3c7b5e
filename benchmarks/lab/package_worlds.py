"""Stepping through an adapter beside the bare package: the same seeds and actions, microseconds per action.

Whatever is installed is measured, the rest is left out and named. Bare is what somebody writes who has the package alone: what an
agent is shown is made for each action, and nothing else. Ours looks at the words and at what is legal before each step, as a team
does. Whole episodes in turns, each begun anew; the package is imported and its files are read before the clock runs.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import arguments, interleaved, report, row

sys.path.pop(0)  # a benchmark beside this one has the name of a package

from counterpoint.lab.worlds.packages import Episode, package_world

Actions = list[list[str]]
Bare = Callable[[Actions], Any]
SEED = 1


def _drawn(episode: Episode, most: int, free: tuple[str, ...]) -> Actions:
    """The actions of an episode: some legal one each time, or the next of those given."""
    episode.reset(SEED)
    out: Actions = []
    while (turn := episode.turn()) and len(out) < most:
        step = []
        for k, agent in enumerate(turn):
            legal = episode.legal(agent)
            step.append(legal[(7 * len(out) + 3 * k) % len(legal)] if legal else free[len(out) % len(free)])
        out.append(step)
        episode.step(dict(zip(turn, step, strict=True)))
    return out


def _ours(episode: Episode, steps: Actions) -> None:
    episode.reset(SEED)
    for step in steps:
        turn = episode.turn()
        for agent in turn:
            episode.observe(agent)
            episode.legal(agent)
        episode.step(dict(zip(turn, step, strict=True)))


def _textarena(game: str, players: int) -> Bare:
    import textarena

    def play(steps: Actions) -> None:
        env = textarena.make(game)
        env.reset(num_players=players, seed=SEED)
        for (action,) in steps:
            env.get_observation()
            env.step(action=action)
        env.close()

    return play


def _reasoning_gym(name: str) -> Bare:
    import reasoning_gym

    questions = reasoning_gym.create_dataset(name, seed=0, size=1000)

    def play(steps: Actions) -> None:
        item = questions[SEED]
        questions.score_answer(steps[0][0], entry=item)

    return play


def _agentdojo(name: str, user: str) -> Bare:
    """The package's own loop with a pipeline that answers from a list."""
    from agentdojo.agent_pipeline.tool_execution import ToolsExecutor
    from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
    from agentdojo.task_suite.load_suites import get_suite

    suite = get_suite("v1.2.2", name)
    loaded = suite.load_and_inject_default_environment({})

    def play(steps: Actions) -> None:
        task = suite.user_tasks[user]
        env = task.init_environment(loaded.model_copy(deep=True))
        before, executor, calls = env.model_copy(deep=True), ToolsExecutor(), []
        for (text,) in steps[:-1]:
            tool, _, rest = text.partition(" ")
            calls.append(FunctionCall(function=tool, args=json.loads(rest)))
            asked = {"role": "assistant", "content": None, "tool_calls": calls[-1:]}
            executor.query("", FunctionsRuntime(suite.tools), env, [asked])
        suite._check_task_result(task, [{"type": "text", "content": steps[-1][0]}], before, env, calls)

    return play


def _maseval(path: str) -> Bare:
    """What its `run` does for a question, without its callbacks."""
    from maseval.benchmark.mmlu.mmlu import MMLUEnvironment, MMLUEvaluator, load_tasks

    tasks = list(load_tasks(path))

    def play(steps: Actions) -> None:
        task = tasks[SEED]
        env = MMLUEnvironment({"query": task.query, "use_full_prompt": False, **task.environment_data})
        scores = MMLUEvaluator(task, env)
        scores(scores.filter_traces({"agents": {}}), steps[0][0])

    return play


def _verifiers(module: str) -> Bare:
    import verifiers.v1 as vf
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    tasks = list(load_environment(resolve_env_config({"taskset": {"id": module}})).taskset)

    async def scored(text: str) -> None:
        task = tasks[SEED]
        told = vf.TraceTask(type=type(task).__name__, data=task.data)
        trace = vf.Trace(task=told, agent=vf.AgentInfo(config=vf.AgentConfig()))
        trace.nodes.append(MessageNode(message=vf.UserMessage(content=task.data.prompt)))
        trace.nodes.append(MessageNode(parent=0, message=vf.AssistantMessage(content=text), sampled=True))
        await task.score(trace, None)

    loop = asyncio.new_event_loop()
    return lambda steps: loop.run_until_complete(scored(steps[0][0]))


def _dpbench(size: int) -> Bare:
    from dpbench.agents.philosopher import parse_action
    from dpbench.core.environment import create_initial_state, get_observation, step
    from dpbench.core.types import AgentDecision

    def play(steps: Actions) -> None:
        state = create_initial_state(size)
        for actions in steps:
            for seat in range(size):
                get_observation(state, seat, None)
            made = [AgentDecision(seat, parse_action(text)) for seat, text in enumerate(actions)]
            state = step(state, made, mode="simultaneous").new_state

    return play


def _pettingzoo(module: str) -> Bare:
    env = importlib.import_module(module).parallel_env()

    def play(steps: Actions) -> None:
        env.reset(seed=SEED)
        for actions in steps:
            env.step({agent: int(text) for agent, text in zip(env.agents, actions, strict=True)})

    return play


SUMS = """
import verifiers.v1 as vf
class SumData(vf.TaskData):
    answer: int
class Sum(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(str(self.data.answer) in trace.last_reply)
class Sums(vf.Taskset[Sum, vf.TasksetConfig]):
    def load(self):
        for i in range(9):
            yield Sum(SumData(prompt=f"{i} + 1", answer=i + 1), self.config.task)
__all__ = ["Sums"]
"""
CALLS = ("get_iban {}", "get_balance {}", 'get_most_recent_transactions {"n": 3}', "Done.")


def _cases(folder: Path) -> list[tuple[str, str, Callable[[], Bare], tuple[str, ...]]]:
    """Package, world, the bare player's maker, and what is said where any text is an action."""
    (folder / "questions.json").write_text(json.dumps([{"query": "?", "choices": ["a", "b"], "gold": 1}] * 3))
    (folder / "benchmark_sums.py").write_text(SUMS)
    sys.path.append(str(folder))
    questions = str(folder / "questions.json")
    words = ("7",)
    return [
        ("dpbench", "sim_n5_nocomm", lambda: _dpbench(5), words),
        ("pettingzoo", "mpe2.simple_spread_v3", lambda: _pettingzoo("mpe2.simple_spread_v3"), words),
        ("textarena", "ThreePlayerTicTacToe-v0", lambda: _textarena("ThreePlayerTicTacToe-v0", 3), words),
        ("textarena", "Snake-v0@4", lambda: _textarena("Snake-v0", 4), words),
        ("textarena", "ThreePlayerIPD-v0", lambda: _textarena("ThreePlayerIPD-v0", 3), words),
        ("reasoning_gym", "chain_sum", lambda: _reasoning_gym("chain_sum"), words),
        ("agentdojo", "banking/user_task_1@none", lambda: _agentdojo("banking", "user_task_1"), CALLS),
        ("maseval", f"mmlu/{questions}", lambda: _maseval(questions), words),
        ("verifiers", "benchmark_sums", lambda: _verifiers("benchmark_sums"), words),
    ]


def main() -> None:
    args = arguments(__doc__)
    rows, absent = [], []
    with tempfile.TemporaryDirectory() as folder:
        for package, name, maker, free in _cases(Path(folder)):
            if importlib.util.find_spec(package) is None:
                absent.append(package)
                continue
            episode, bare = package_world(f"{package}:{name}"), maker()
            steps = _drawn(episode, 60, free)
            count = sum(map(len, steps))
            times = 5 if args.quick else 20  # episodes in one measurement

            def many(play: Callable[[], Any], times: int = times) -> None:
                for _ in range(times):
                    play()

            took = interleaved(
                {"ours": lambda: many(lambda: _ours(episode, steps)), "bare": lambda: many(lambda: bare(steps))},  # noqa: B023
                3 if args.quick else 15,
                "cpu",
            )
            each = {who: 1e6 * seconds / times / count for who, seconds in took.items()}
            rows.append(row(f"{package}:{Path(name).name}", each["ours"], each["bare"], "us an action", target=0.5))
    report("Worlds of packages: ours beside the bare package", rows, as_json=args.json)
    if absent and not args.json:
        print(f"not installed: {', '.join(dict.fromkeys(absent))}")


if __name__ == "__main__":
    main()
