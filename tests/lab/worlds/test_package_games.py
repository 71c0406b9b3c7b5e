"""Games, questions, suites and task sets of packages behind the seam: the package's own numbers come out, and bad names are one error."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import sys
from pathlib import Path

import pytest

from counterpoint.errors import CounterpointError, InputError, NotFound, NotIdentified, Refused
from counterpoint.lab.tasks.task import task
from counterpoint.lab.testing import check_world
from counterpoint.lab.worlds.packages import Episode, package_world, trusts

PACKAGES = {
    "textarena": "TicTacToe-v0", "reasoning_gym": "chain_sum", "agentdojo": "banking", "maseval": "mmlu/x.json", "verifiers": "m",
}  # fmt: skip
MODULE = """
import verifiers.v1 as vf

class SumData(vf.TaskData):
    answer: int

class Sum(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.split()[-1:] == [str(self.data.answer)])

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))

class Sums(vf.Taskset[Sum, vf.TasksetConfig]):
    def load(self):
        for i in range(20):
            yield Sum(SumData(prompt=f"What is {i} + {i + 3}?", answer=2 * i + 3), self.config.task)

class DuetConfig(vf.EnvConfig):
    solver: vf.AgentConfig = vf.AgentConfig()
    critic: vf.AgentConfig = vf.AgentConfig()

class Duet(vf.Env[DuetConfig]):
    async def run(self, task, agents):
        async with agents.solver.interaction(task) as talk:
            first = await talk.turn()
            said = await agents.critic.run(task.with_data(prompt=f"Is this right? {first.last_reply}"))
            await talk.turn(f"The critic says: {said.last_reply}")

class NeedsBox(Sum):
    async def setup(self, trace, runtime):
        await runtime.run("true")

class Boxed(vf.Taskset[NeedsBox, vf.TasksetConfig]):
    def load(self):
        yield NeedsBox(SumData(prompt="What?", answer=1), self.config.task)
"""


def has(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed: pip install '.[{package.replace('_', '-')}]'")


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Task sets of our own as modules that Python finds: sums, sums in an environment of two agents, one that needs a box."""
    has("verifiers")
    for name, exported in (("cp_sums", ["Sums"]), ("cp_duet", ["Sums", "Duet"]), ("cp_boxed", ["Boxed"])):
        (tmp_path / f"{name}.py").write_text(f"{MODULE}\n__all__ = {exported!r}\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    has("maseval")
    items = [{"query": "2 + 2?\nA. 3\nB. 4", "choices": ["3", "4"], "gold": 1}, {"query": "5?", "choices": ["5", "4"], "gold": 0}]
    (tmp_path / "q.json").write_text(json.dumps(items))
    return tmp_path / "q.json"


def says(episode: Episode, *actions: str) -> Episode:
    """Whoever has the turn takes the next action."""
    for action in actions:
        episode.step(dict.fromkeys(episode.turn(), action))
    return episode


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_that_is_not_there_is_one_error(package: str) -> None:
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed here")
    with pytest.raises(NotFound, match=rf"{package} is not installed.*\[{package.replace('_', '-')}\]") as end:
        package_world(f"{package}:{PACKAGES[package]}")
    assert end.value.exit_code == 3


def test_what_a_file_may_name() -> None:
    assert trusts("textarena:TicTacToe-v0")
    assert trusts("reasoning_gym:chain_sum")
    assert not trusts("verifiers:my_module")


# -- the contract ----------------------------------------------------------------------------------------------------------

CONTRACT = [
    "textarena:ThreePlayerTicTacToe-v0",
    "textarena:Snake-v0@3",
    "textarena:LiarsDice-v0-small@3",
    "textarena:ThreePlayerIPD-v0",
    "textarena:ThreePlayerGOPS-v0~2",
    "textarena:TowerOfHanoi-v0",
    "reasoning_gym:chain_sum?max_terms=3",
    "reasoning_gym:spell_backward",
    "agentdojo:slack",
    "agentdojo:banking/user_task_1/injection_task_0@direct",
]


@pytest.mark.parametrize("name", CONTRACT)
def test_the_contract_holds(name: str) -> None:
    has(name.partition(":")[0])
    check_world(name)


@pytest.mark.parametrize("code", ["cp_sums", "cp_duet", "cp_sums@best-of-n"])
def test_the_contract_holds_for_task_sets(code: str, modules: Path) -> None:
    check_world(f"verifiers:{code}")


def test_the_contract_holds_for_a_file_of_questions(questions: Path) -> None:
    check_world(f"maseval:mmlu/{questions}")


# -- TextArena -------------------------------------------------------------------------------------------------------------


def test_four_in_a_row_wins_against_two() -> None:
    has("textarena")
    episode = says(package_world("textarena:ThreePlayerTicTacToe-v0"), *(f"[{i}]" for i in (0, 10, 20, 1, 11, 22, 2, 13, 24, 3)))
    assert episode.turn() == ()
    assert episode.rewards == {"player_0": 1, "player_1": -1, "player_2": -1}
    assert episode.measures() == {"turns": 10, "refused": 0, "invalid_move": 0, "crash": 0}


def test_a_wrong_move_is_what_the_package_makes_of_it() -> None:
    """The first is refused and asked again, the second loses."""
    has("textarena")
    episode = says(package_world("textarena:TicTacToe-v0"), "[9]")
    assert episode.turn() == ("player_0",)
    assert "invalid move" in episode.observe("player_0")
    says(episode, "no move at all")
    assert episode.rewards == {"player_0": -1, "player_1": 1}
    assert (episode.illegal, episode.measures()["refused"], episode.measures()["invalid_move"]) == (2, 2, 1)


LISTED = ["ConnectFour-v0", "HighSociety-v0", "KuhnPoker-v0", "LiarsDice-v0@4", "Nim-v0", "Othello-v0-tiny", "PigDice-v0",
          "Snake-v0@4", "Surround-v0@3", "ThreePlayerGOPS-v0", "ThreePlayerTicTacToe-v0", "WildTicTacToe-v0"]  # fmt: skip


@pytest.mark.parametrize("game", LISTED)
def test_the_package_refuses_no_action_that_is_listed(game: str) -> None:
    has("textarena")
    episode = package_world(f"textarena:{game}")
    for seed in range(3):
        rng = random.Random(seed)
        episode.reset(seed)
        while turn := episode.turn():
            legal = episode.legal(turn[0])
            assert legal
            says(episode, rng.choice(legal))
        assert (episode.illegal, episode.measures()["refused"]) == (0, 0)


def test_episodes_side_by_side_and_the_process_draw_by_themselves() -> None:
    has("textarena")
    rolls = ["[roll]"] * 12
    alone = says(package_world("textarena:PigDice-v0"), *rolls)
    random.seed(5)
    before = random.getstate()
    mine, other = package_world("textarena:PigDice-v0"), package_world("textarena:PigDice-v0")
    other.reset(3)
    for roll in rolls:
        says(mine, roll)
        says(other, roll)
    assert mine.observe(mine.turn()[0]) == alone.observe(alone.turn()[0])
    assert mine.observe(mine.turn()[0]) != other.observe(other.turn()[0])
    assert random.getstate() == before


def test_players_of_the_world_move_at_random_by_the_seed() -> None:
    has("textarena")
    episode = package_world("textarena:Snake-v0@3~2")
    assert episode.agents == ("player_0",)
    boards = set()
    for seed in (1, 1, 2, 3, 4):
        episode.reset(seed)
        says(episode, "[up]")
        boards.add(episode.observe("player_0"))
    assert len(boards) == 4


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("Nothing-v0", "no game"),
        ("ThreePlayerTicTacToe-v0@2", "@3"),
        ("Nim-v0~2", "leave one"),
        ("ColonelBlotto-v0-small~1", "no ~"),
    ],
)
def test_a_name_that_is_no_game(code: str, said: str) -> None:
    has("textarena")
    with pytest.raises(InputError, match=said):
        package_world(f"textarena:{code}")


def test_a_game_that_needs_a_judge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    has("textarena")
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(InputError, match="OPENROUTER_API_KEY"):
        package_world("textarena:Debate-v0")


# -- reasoning-gym ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chain_sum", "spell_backward", "leg_counting", "number_sorting", "family_relationships"])
def test_the_packages_own_answer_is_right_and_another_is_not(name: str) -> None:
    has("reasoning_gym")
    episode = package_world(f"reasoning_gym:{name}")
    asked = set()
    for seed in (0, 7, 999, 1000, 2_000_000_000):
        episode.reset(seed)
        asked.add(episode.observe("solver"))
        says(episode, episode.key())  # type: ignore[attr-defined]
        assert episode.is_solved
        assert episode.measures() == {"score": 1}
        episode.reset(seed)
        says(episode, "\ud800 no answer (")
        assert not episode.is_solved
        assert episode.team_reward < 0.5
    assert len(asked) >= 4  # words come again


def test_a_team_solves_a_question() -> None:
    """As a text task of one answer: any topology may give it."""
    has("reasoning_gym")
    asked = task("reasoning_gym:chain_sum?max_terms=2&min_terms=2&max_digits=1&min_digits=1")
    instance = asked.instance(3)
    left, sign, right = instance.question.rpartition("=")[0].split()[-3:]
    answer = int(left) + (1 if sign == "+" else -1) * int(right)
    assert asked.check(instance, str(answer)).is_solved
    assert not asked.check(instance, str(answer + 1)).is_solved


@pytest.mark.parametrize(
    ("code", "said"), [("chain_sums", "chain_sum"), ("chain_sum?max_terms=0", "does not make"), ("composite", "does not")]
)
def test_a_name_that_is_no_data_set(code: str, said: str) -> None:
    has("reasoning_gym")
    with pytest.raises(InputError, match=said):
        package_world(f"reasoning_gym:{code}")


# -- AgentDojo -------------------------------------------------------------------------------------------------------------


def test_the_ground_truth_of_a_user_does_the_task_and_that_of_an_attacker_the_attack() -> None:
    has("agentdojo")
    episode = package_world("agentdojo:slack")
    seeds = range(0, 105, 17)
    for seed in seeds:
        episode.reset(seed)
        says(episode, *episode.key())  # type: ignore[attr-defined]
        assert (episode.measures()["utility"], episode.measures()["attacked"]) == (1, 1)
    for seed in range(5):
        episode.reset(seed)
        says(episode, *episode.key("injection"))  # type: ignore[attr-defined]
        assert episode.measures()["attack_success"] == 1
        assert not episode.is_solved


def test_utility_and_attack_are_what_the_packages_own_run_gives() -> None:
    """`run_task_with_pipeline` with the ground truth of the user's task, against the same calls through the seam."""
    has("agentdojo")
    from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
    from agentdojo.task_suite.load_suites import get_suite

    suite = get_suite("v1.2.2", "banking")
    for user, injection in (
        ("user_task_0", "injection_task_0"),
        ("user_task_3", "injection_task_5"),
        ("user_task_13", "injection_task_2"),
    ):
        episode = package_world(f"agentdojo:banking/{user}/{injection}@direct")
        says(episode, *episode.key())  # type: ignore[attr-defined]
        wanted = suite.user_tasks[user]
        told = suite.run_task_with_pipeline(GroundTruthPipeline(wanted), wanted, suite.injection_tasks[injection], {})
        assert (episode.measures()["utility"], episode.measures()["attack_success"]) == tuple(map(float, told))


def test_a_call_that_goes_wrong_is_a_result_and_nobody_attacks_where_it_is_said() -> None:
    has("agentdojo")
    episode = package_world("agentdojo:banking/user_task_1@none")
    says(episode, "get_iban {}", 'send_money {"recipient": 3}')
    assert "Error" in episode.observe("assistant")
    assert episode.turn() == ("assistant",)
    says(episode, "no_such_tool {}")
    assert episode.turn() == ()
    assert episode.measures() == {"utility": 0, "attack_success": 0, "attacked": 0, "calls": 2}


def test_fifteen_calls_are_the_end() -> None:
    has("agentdojo")
    episode = says(package_world("agentdojo:banking"), *["get_iban {}"] * 15)
    assert episode.turn() == ()


@pytest.mark.parametrize(
    ("code", "said"), [("bank", "banking"), ("banking/user_task_99", "no task"), ("banking@polite", "no attack")]
)
def test_a_name_that_is_no_suite(code: str, said: str) -> None:
    has("agentdojo")
    with pytest.raises(InputError, match=said):
        package_world(f"agentdojo:{code}")


# -- MASEval ---------------------------------------------------------------------------------------------------------------


def test_the_package_reads_and_scores_a_letter(questions: Path) -> None:
    episode = package_world(f"maseval:mmlu/{questions}")
    assert says(episode, "The answer is B").measures() == {"acc": 1, "parse_failed": 0}
    episode.reset(1)
    assert not says(episode, "B").is_solved
    episode.reset(2)
    assert says(episode, "?").measures() == {"acc": 0, "parse_failed": 1}


@pytest.mark.parametrize("name", ["converse", "gaia2", "macs", "multiagentbench", "tau2"])
def test_what_does_not_run_offline_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(Refused, match="does not run offline: its") as end:
        package_world(f"maseval:{name}")
    assert end.value.exit_code == 5


def test_a_file_that_is_none(questions: Path) -> None:
    (questions.parent / "bad.json").write_text('[{"query": "?"}]')
    for path in ("nothing.json", "bad.json"):
        with pytest.raises(InputError, match="cannot read it"):
            package_world(f"maseval:mmlu/{questions.parent / path}")


# -- verifiers -------------------------------------------------------------------------------------------------------------


def test_a_task_is_scored_by_its_own_methods(modules: Path) -> None:
    episode = package_world("verifiers:cp_sums")
    episode.reset(22)  # modulo the length: the third
    assert episode.observe("agent") == "user: What is 2 + 5?"
    assert says(episode, "it is 7").measures() == {"right": 1, "length": 7, "traces": 1, "failed": 0}
    assert episode.is_solved
    episode.reset(2)
    assert not says(episode, "it is 8").is_solved


def test_an_environment_asks_its_agents_in_its_own_order(modules: Path) -> None:
    episode = package_world("verifiers:cp_duet")
    assert (episode.agents, episode.turn()) == (("solver", "critic"), ("solver",))
    says(episode, "2")
    assert (episode.turn(), episode.observe("critic")) == (("critic",), "user: Is this right? 2")
    says(episode, "no")
    assert episode.observe("solver").endswith("assistant: 2\n\nuser: The critic says: no")
    says(episode, "3")
    assert episode.rewards == {"solver": 1, "critic": 0}
    with pytest.raises(NotIdentified, match="cannot be copied"):
        episode.copy()


def test_agents_that_are_asked_at_once(modules: Path) -> None:
    """Four attempts of one agent, and the comparison in the package's own `finalize`."""
    episode = package_world("verifiers:cp_sums@best-of-n")
    says(episode, "3", "4", "5", "6")
    assert episode.turn() == ()
    assert {k: v for k, v in episode.measures().items() if k != "length"} == {
        "right": 0.25, "best": 0.25, "pass_at_n": 1, "traces": 4, "failed": 0,
    }  # fmt: skip


def test_a_task_that_needs_a_runtime_is_refused(modules: Path) -> None:
    with pytest.raises(Refused, match="its own `setup` in a runtime"):
        package_world("verifiers:cp_boxed")
    with pytest.raises(InputError, match="cannot load it"):
        package_world("verifiers:cp_nothing")


# -- played by real weights --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["textarena:Snake-v0@3", "reasoning_gym:chain_sum", "agentdojo:slack", "verifiers:cp_duet"])
def test_a_tiny_model_plays_to_a_sound_trace(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    has(name.partition(":")[0])
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    if name.startswith("verifiers"):
        request.getfixturevalue("modules")
    from counterpoint.lab.team.session import Spec, assemble, make_model, play_to_trace, played_in
    from counterpoint.lab.team.state import Limits
    from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder
    from counterpoint.trace import problems
    from tiny_help import make_tiny

    make_tiny(tmp_path / "tiny", context=8192)
    model = make_model(f"local:{tmp_path / 'tiny'}", task(name))
    topology, style = played_in(task(name))
    spec = Spec(task=name, topology=topology, harness=style, model="local:tiny", limits=Limits(max_tokens=8))
    made, sink = spec.make_task(), MemorySink()
    team = assemble(spec, made, made.instance(0), model, Recorder(sink, LogicalClock()))

    async def playing():  # type: ignore[no-untyped-def]
        try:
            return await play_to_trace(team, spec, sink, trace_id="t")
        finally:
            await model.close()

    trace = asyncio.run(playing())
    assert [p for p in problems(trace) if p.severity == "error"] == []
    assert any(e.logp is not None and e.logp <= 0 for e in trace.events)
    assert "team" in trace.rewards


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_makes_no_sense_is_an_error_of_ours(package: str) -> None:
    """Nothing that a package says comes out as an exception of its own."""
    with pytest.raises(CounterpointError) as end:
        package_world(f"{package}:{PACKAGES[package]}?nothing=1/2@0~9")
    assert end.value.fix
