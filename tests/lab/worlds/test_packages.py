"""Worlds of packages behind the seam: the package's own numbers come out, and every adapter keeps the contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.testing import check_world
from counterpoint.lab.worlds import packages
from counterpoint.lab.worlds.packages import Episode, is_package_world, package_world, trusts
from counterpoint.lab.worlds.world import world
from counterpoint.testing import ConformanceError

ACTIONS = ("GRAB_LEFT", "GRAB_RIGHT", "RELEASE", "WAIT")
NO_DRAW = lambda name: 0.5  # noqa: E731


def played(episode: Episode, seed: int, player: Callable[[str, str], str] | None = None) -> Episode:
    """An episode to its end, by its player by hand or a function of (agent, what it sees)."""
    episode.reset(seed)
    while turn := episode.turn():
        act = player or (lambda agent, text: episode.by_hand(text, episode.legal(agent), NO_DRAW))
        episode.step({agent: act(agent, episode.observe(agent)) for agent in turn})
    return episode


# -- DPBench -----------------------------------------------------------------------------------------------------------------


def test_even_left_odd_right_never_deadlocks_and_two_of_five_starve() -> None:
    """The published rule, by hand: 25 meals in 30 steps, P2 and P4 never eat: fairness 1 - (5/4) G of (8, 7, 0, 10, 0)."""
    pytest.importorskip("dpbench")
    episode = played(package_world("dpbench:sim_n5_nocomm"), 0)
    meals = sorted(episode.rewards.values())
    gini = 2 * sum(i * x for i, x in enumerate(meals, 1)) / (5 * 25) - 6 / 5
    expected = {"deadlock": 0, "throughput": 25 / 30, "fairness": 1 - gini * 5 / 4, "starvation": 2, "meals": 25, "steps": 30}
    assert episode.measures() == pytest.approx(expected)
    assert episode.team_reward == pytest.approx(25 / 30)
    assert not episode.is_solved


def test_everybody_left_is_a_deadlock_after_one_step() -> None:
    pytest.importorskip("dpbench")
    episode = package_world("dpbench:sim_n3_nocomm")
    episode.step(dict.fromkeys(episode.agents, "GRAB_LEFT"))
    assert episode.turn() == ()
    assert (episode.measures()["deadlock"], episode.measures()["steps"], episode.team_reward) == (1, 1, 0)
    with pytest.raises(InputError, match="over"):
        episode.step({})


@pytest.mark.parametrize("mode", ["sim", "seq"])
@pytest.mark.parametrize("talk", ["comm", "nocomm"])
def test_an_episode_is_the_packages_own_runner(mode: str, talk: str) -> None:
    """The same answers through `dpbench.runner.run_episode` give the same table, meals, deadlock and measures."""
    pytest.importorskip("dpbench")
    from dpbench.core.types import BenchmarkConfig
    from dpbench.runner import run_episode

    episode = package_world(f"dpbench:{mode}_n4_{talk}")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        answers: list[str] = []

        def answer(agent: str, text: str, rng: np.random.Generator = rng, answers: list[str] = answers) -> str:
            answers.append(ACTIONS[int(rng.choice(4, p=(0.4, 0.3, 0.1, 0.2)))])
            return answers[-1]

        mine = played(episode, seed, answer)
        told = iter(answers)
        config = BenchmarkConfig(
            model_fn=lambda system, user: f"ACTION: {next(told)}", system_prompt="{philosopher_name}", decision_prompt="{state}",  # noqa: B023
            mode="simultaneous" if mode == "sim" else "sequential", communication=talk == "comm", num_philosophers=4,
            max_timesteps=30,
        )  # fmt: skip
        theirs = run_episode(config, 0)
        assert next(told, None) is None, "the package asked less often"
        assert tuple(mine.rewards.values()) == theirs.meals_per_philosopher
        measures = mine.measures()
        assert measures["steps"] == theirs.total_timesteps
        # one by one, the runner of 0.2.1 loses the flag on its way out of the graph: the episode ends early all the same
        assert measures["deadlock"] == (theirs.deadlock if mode == "sim" else theirs.total_timesteps < 30)
        assert (measures["throughput"], measures["fairness"]) == (theirs.throughput, theirs.fairness_gini)


def test_neighbours_hear_and_nobody_else() -> None:
    pytest.importorskip("dpbench")
    episode = package_world("dpbench:sim_n5_comm")
    episode.step(dict.fromkeys(episode.agents, "WAIT"), {"P0": "I go first " + "x" * 300})
    hear = {agent for agent in episode.agents if "I go first" in episode.observe(agent)}
    assert hear == {"P1", "P4"} == set(episode.listeners("P0"))
    assert max(map(len, episode.observe("P1").splitlines())) < 230, "the package cuts words at 200 characters"
    silent = package_world("dpbench:sim_n5_nocomm")
    silent.step(dict.fromkeys(silent.agents, "WAIT"), {"P0": "I go first"})
    assert not any("first" in silent.observe(agent) for agent in silent.agents)


def test_names_are_drawn_anew_and_say_nothing_of_a_seat() -> None:
    pytest.importorskip("dpbench")
    episode = package_world("dpbench:sim_n5_nocomm_names_step")
    texts = []
    for seed in range(3):
        episode.reset(seed)
        texts.append([episode.observe(agent) for agent in episode.agents])
        assert len({text.split(",")[0] for text in texts[-1]}) == 5
        assert all("Step 1 of 30." in text and "P0" not in text for text in texts[-1])
        assert len({episode.array(agent).tobytes() for agent in episode.agents}) == 1, "the array tells who sits where"
    assert texts[0] != texts[1] != texts[2]


def test_what_an_agent_reads_is_what_the_package_tells() -> None:
    pytest.importorskip("dpbench")
    episode = package_world("dpbench:sim_n3_nocomm_mem1")
    episode.step({"P0": "GRAB_LEFT", "P1": "WAIT", "P2": "WAIT"})
    assert episode.observe("P2").splitlines() == [
        "You are P2, one of 3 philosophers.",
        "State: hungry. Meals: 0. You hold: nothing.",
        "Left fork: AVAILABLE. Right fork: TAKEN.",
        "After step 1: P0 hungry [L] meals=0; P1 hungry [-] meals=0; P2 hungry [-] meals=0",
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.sampled_from((*ACTIONS, "action: release", "?")), min_size=4, max_size=4), max_size=12))
def test_forks_are_kept(steps: list[list[str]]) -> None:
    """A law of any play: a fork has one holder, who eats holds both, an action that is none counts and waits."""
    pytest.importorskip("dpbench")
    episode = package_world("dpbench:sim_n4_nocomm")
    illegal = 0
    for step in steps:
        if not episode.turn():
            break
        episode.step(dict(zip(episode.agents, step, strict=True)))
        illegal += sum(action not in ACTIONS for action in step)
        holds = [text.partition("You hold: ")[2].partition(".")[0] for text in map(episode.observe, episode.agents)]
        for left, right in zip(holds, [*holds[1:], holds[0]], strict=True):
            assert not ("right" in left and "left" in right), "two hold one fork"
        eat = [agent for agent in episode.agents if "State: eating" in episode.observe(agent)]
        assert all(holds[int(agent[1:])] == "left and right" for agent in eat)
    assert episode.illegal == illegal


@pytest.mark.parametrize("code", ["", "sim_n5", "sim_n1_nocomm", "sim_n5_nocomm_name", "par_n5_comm"])
def test_a_condition_that_is_none(code: str) -> None:
    pytest.importorskip("dpbench")
    with pytest.raises((InputError, NotFound), match="dpbench"):
        package_world(f"dpbench:{code}")


# -- PettingZoo -------------------------------------------------------------------------------------------------------------


def test_a_board_game_by_its_mask() -> None:
    """Tic-tac-toe by hand: 0 3 1 4 2 wins the first row for the first player."""
    pytest.importorskip("pettingzoo")
    pytest.importorskip("pygame")
    episode = package_world("pettingzoo:pettingzoo.classic.tictactoe_v3")
    for action in "0314":
        (agent,) = episode.turn()
        assert action in episode.legal(agent)
        episode.step({agent: action})
    (agent,) = episode.turn()
    assert set(episode.legal(agent)) == set("25678")
    assert episode.observe(agent).splitlines()[-3:] == ["00.", "11.", "..."]
    episode.step({agent: "2"})
    assert (episode.turn(), episode.rewards, episode.team_reward) == ((), {"player_1": 1.0, "player_2": -1.0}, 0.0)


def test_what_is_paid_is_what_the_environment_pays() -> None:
    pytest.importorskip("pettingzoo")
    spread = pytest.importorskip("mpe2.simple_spread_v3")
    episode = played(package_world("pettingzoo:mpe2.simple_spread_v3?N=2"), 5, lambda agent, text: "2")
    env = spread.parallel_env(N=2)
    seen, _ = env.reset(seed=5)
    sums = dict.fromkeys(env.possible_agents, 0.0)
    while env.agents:
        seen, paid, *_ = env.step(dict.fromkeys(env.agents, 2))
        sums = {agent: sums[agent] + reward for agent, reward in paid.items()}
    assert episode.rewards == pytest.approx(sums)
    assert episode.measures() == {"steps": 25.0, "return": pytest.approx(sum(sums.values()))}
    assert len(episode.array("agent_0")) == len(seen["agent_0"]) + 2


def test_actions_of_a_continuous_space_are_refused() -> None:
    pytest.importorskip("pettingzoo")
    pytest.importorskip("mpe2")
    with pytest.raises(InputError, match="Discrete"):
        package_world("pettingzoo:mpe2.simple_spread_v3?continuous_actions=true")
    with pytest.raises(NotFound, match="no module"):
        package_world("pettingzoo:mpe2.nothing_v0")
    with pytest.raises(InputError, match="neither"):
        package_world("pettingzoo:json")


OWN = """
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from pettingzoo import ParallelEnv

class Field(ParallelEnv):
    metadata = {"name": "field_v0", "bound": 9.0}
    def __init__(self, stock=5, wide=0):
        self.possible_agents, self.stock, self.wide = ["north", "south"], stock + 0, wide
        self.space = Dict({"near": Tuple((Discrete(2), Box(0, 9, (1,), np.float32))), "stock": Discrete(12)})
    def observation_space(self, agent):
        return Discrete(2) if self.wide else self.space
    def action_space(self, agent):
        return Discrete(3, start=1)
    def seen(self):
        one = 7 if self.wide else {"near": (1, np.array([0.25], np.float32)), "stock": self.left}
        return dict.fromkeys(self.agents, one)
    def reset(self, seed=None, options=None):
        self.agents, self.left = list(self.possible_agents), self.stock
        return self.seen(), {}
    def step(self, actions):
        assert set(actions.values()) <= {1, 2, 3}, actions
        paid = {a: float(n) for a, n in actions.items()}
        self.left -= sum(actions.values())
        if self.left <= 0:
            self.agents = []
        self.left = max(self.left, 0)
        return self.seen(), paid, {}, {}, {}

parallel_env = Field
"""


def test_ones_own_environment_by_its_file(tmp_path: Path) -> None:
    """Actions begin at 1, the observation is a dictionary with a pair: its words name the parts, its array is Gymnasium's."""
    pytest.importorskip("pettingzoo")
    (tmp_path / "own_field.py").write_text(OWN)
    name = f"pettingzoo:{tmp_path / 'own_field.py'}"
    check_world(name)
    episode = package_world(f"{name}?stock=6")
    assert (episode.actions, episode.legal("north"), episode.bound) == (("1", "2", "3"), ("1", "2", "3"), 9.0)
    assert episode.observe("south").splitlines()[1:] == ["near: You see: 1", "You see: 0.25", "stock: You see: 6"]
    array = episode.array("south")
    assert array is not None
    assert array.tolist() == [0, 1, 0.25, *(float(i == 6) for i in range(12)), 0, 1]
    episode.step({"north": "0", "south": "3"})  # 0 is no action of this space: the lowest is taken, and counted
    assert (episode.rewards, episode.illegal) == ({"north": 1.0, "south": 3.0}, 1)


def test_ones_own_file_that_is_wrong_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pettingzoo")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_meadow.py").write_text(OWN)
    with pytest.raises(NotFound, match=r"name the file: pettingzoo:own_meadow\.py"):
        package_world("pettingzoo:own_meadow")
    with pytest.raises(NotFound, match="no such file"):
        package_world("pettingzoo:nothing.py")
    with pytest.raises(InputError, match="cannot be made: TypeError"):
        package_world('pettingzoo:own_meadow.py?stock="a"')
    with pytest.raises(InputError, match="north sees what its space does not hold"):
        package_world("pettingzoo:own_meadow.py?wide=1").array("north")
    for name in ("..x", "a b", "/etc"):
        with pytest.raises(NotFound, match="no module of an environment"):
            package_world(f"pettingzoo:{name}")


# -- all of them -------------------------------------------------------------------------------------------------------------

WORLDS = [
    "dpbench:sim_n5_nocomm",
    "dpbench:seq_n3_comm_names_mem2_step_t9",
    "pettingzoo:mpe2.simple_speaker_listener_v4",
    "pettingzoo:pettingzoo.classic.tictactoe_v3",
]


@pytest.mark.parametrize("name", WORLDS)
def test_the_contract_holds(name: str) -> None:
    package, _, module = name.partition(":")
    pytest.importorskip(package)
    if package == "pettingzoo":
        pytest.importorskip(module.partition(".")[0])
        pytest.importorskip("pygame")
    check_world(name)


class Coin(Episode):
    """Ten lines: two agents each say heads or tails, once, and are paid where they say the same."""

    name, version, agents, actions = "coins:pair", "1", ("a", "b"), ("heads", "tails")

    def __init__(self) -> None:
        super().__init__()
        self.reset(0)

    def reset(self, seed: int) -> None:
        self.illegal, self.said = 0, dict[str, str]()

    def turn(self) -> tuple[str, ...]:
        return () if self.said else self.agents

    def observe(self, agent: str) -> str:
        return f"You are {agent}."

    def legal(self, agent: str) -> tuple[str, ...]:
        return ("heads", "tails")

    def take(self, actions: object, words: object) -> None:
        self.said = dict(actions)  # type: ignore[call-overload]

    @property
    def rewards(self) -> dict[str, float]:
        return dict.fromkeys(self.agents, float(len(set(self.said.values())) == 1))


class Forgetful(Coin):
    """A coin that a look turns."""

    looks = 0

    def observe(self, agent: str) -> str:
        self.looks += 1
        return f"You are {agent}, look {self.looks}."


@pytest.fixture
def coins(monkeypatch: pytest.MonkeyPatch) -> list[type[Coin]]:
    """A package whose worlds are of the class that is in the list."""
    kinds: list[type[Coin]] = [Coin]
    ids, get, constant = packages.registry.ids, packages.registry.get, packages.registry.constant
    known = lambda kind: [*ids(kind), "coins"] if kind == packages.KIND else ids(kind)  # noqa: E731
    made = lambda kind, name: (lambda rest: kinds[-1]()) if (kind, name) == (packages.KIND, "coins") else get(kind, name)  # noqa: E731
    monkeypatch.setattr(packages.registry, "ids", known)
    monkeypatch.setattr(packages.registry, "get", made)
    monkeypatch.setattr(packages.registry, "constant", lambda kind, n, c: None if n == "coins" else constant(kind, n, c))
    return kinds


def test_a_world_of_ones_own_and_one_that_is_broken(coins: list[type[Coin]]) -> None:
    check_world("coins:pair")
    coins.append(Forgetful)
    with pytest.raises(ConformanceError, match="a look changes the world"):
        check_world("coins:pair")


WRONG = """
from counterpoint.lab.worlds.packages import Episode

class Walk(Episode):
    version, agents, actions, length = "1", ("pilot",), ("left", "right"), 3
    def reset(self, seed): self.illegal, self.t = 0, 0
    def turn(self): return self.agents if self.t < self.length else ()
    def observe(self, agent): return f"step {self.t}"
    def legal(self, agent): return self.actions
    def take(self, actions, words): self.t += 1
    @property
    def rewards(self): return {"pilot": float(self.t)}

class NeedsMore(Walk):
    def __init__(self, size): super().__init__()
class Nameless(Walk):
    version, agents = "", ()
class Abstract(Episode):
    version, agents = "1", ("pilot",)
class Falls(Walk):
    def take(self, actions, words): raise KeyError("a hole")
class Endless(Walk):
    length = 10**9
"""


def test_a_class_of_ones_own_that_is_wrong_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "own_walks.py").write_text(WRONG)
    name = f"{tmp_path / 'own_walks.py'}:"
    check_world(f"{name}Walk")
    for kind, says in (
        ("NeedsMore", "cannot be made: TypeError"),
        ("Abstract", "cannot be made"),
        ("Nameless", "no version and no agents"),
    ):
        with pytest.raises(InputError, match=says):
            package_world(name + kind)
    episode = package_world(f"{name}Falls")
    episode.reset(0)
    with pytest.raises(InputError, match="own step raises KeyError: 'a hole'"):
        episode.step({"pilot": "left"})
    with pytest.raises(ConformanceError, match="has no end within"):
        check_world(f"{name}Endless")


def test_names() -> None:
    assert is_package_world("dpbench:anything")
    assert not any(map(is_package_world, ("dpbench", "T1", "my_lab.tasks:mine", "path/file.py:thing", "dpbench:")))
    assert trusts("dpbench:sim_n5_nocomm")
    assert trusts("pettingzoo:mpe2.simple_spread_v3")
    assert not any(map(trusts, ("pettingzoo:my_module", "pettingzoo:pettingzoo.py", "pettingzoo:mpe2./../own.py?N=2")))
    assert not trusts("my_lab.tasks:mine")
    with pytest.raises(NotFound, match="no world"):
        package_world("dbench:sim_n5_nocomm")


def test_arrays_play_what_words_play() -> None:
    """The player by hand gets in the world of arrays what it gets in the package's."""
    pytest.importorskip("dpbench")
    runs = world("dpbench:sim_n5_nocomm").run("by_hand", [0], log=True)
    assert runs.values[0] == pytest.approx(25 / 30)
    assert len([e for e in runs.trace(0).events if e.options]) == 150
