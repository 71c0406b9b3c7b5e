"""What a preset is: a way to train an orchestrator, as data.

Always true: a preset holds names and numbers, no code; what it names is looked up when a run starts, and a name that does not
exist, an option that is not taken, or a world that lacks what the preset needs is one clear error before anything is played. A
preset whose meaning changes gets a new name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import counterpoint.registry as registry
from counterpoint.credits.mechanism import FEEDBACK
from counterpoint.errors import InputError, NotFound, Refused, did_you_mean
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.options import NonNegative, NonNegativeInt, PositiveInt, Share, ShareBelowOne, check_fields
from counterpoint.trace.vocabulary import SUB_DECISIONS, UNITS

REGIMES = {
    "A": "sub-agents frozen, the orchestrator learns",
    "B": "all learn jointly, one network",
    "C": "networks apart, signals apart",
}
BALANCES = {
    "sum": "each times its weight",
    "gdpo": "each normalised within its task, times its weight, and the sum over the batch (GDPO, arXiv 2601.05242)",
    "variance": "each times its weight and its share of the variance within tasks",
    "variation": "each times its weight and its share of the coefficients of variation",
    "gradient": "each gradient times how reliably it points where the first reward's points; weights and scales cancel",
}
"""See `rewards/balance.py`."""
DECISION_TYPES = ("item", "brief", "point", "stop", "spawn", "talk", "rule", "worker")
"""What a team decides: the purpose of a call, its brief and whom it goes to; stops, spawns, talk, rules; a worker's answer."""
_WHOLE = ("as_released", "knob")  # changes kept in the preset itself
_RATES = ("policy", "spawn", "critic")
TRAINS = {
    **SUB_DECISIONS,
    "w": "what workers say and do",
    "opponent": "what a second side does against the team",
    "proposer": "which tasks are asked for",
}
"""What a method may train: the five sub-decisions of an orchestrator, the workers, and those beside the team. The last two learn
only where they are named, and the team does not where nothing else is."""
LEARNERS = {"network": "the network that plays TeamWorld", "lm": "a language model"}
GRADES = {"P": "paper read", "R": "code read", "S": "secondary", "T": "textbook", "M": "measured here"}
LOSS_BRINGS = {
    "clip": "an entropy bonus of 0.005 that falls to 0, and 4 epochs in 3 parts",
    "reinforce": "an entropy bonus of 0.005 that falls to 0",
}
"""What these losses do in every preset that does not say otherwise; a test holds it to their defaults."""
BESIDE = {"attack": "opponent", "proposal": "proposer"}
"""Decision types of those beside the team, and whose they are."""
_TYPES_OF = {"O1": ("spawn",), "O2": ("point",), "O3": ("brief", "talk"), "O4": ("rule",), "O5": ("item", "stop")}
CAPABILITIES = {
    "workers": lambda c: c.max_agents > 0,
    "votes": lambda c: c.vote_items > 0,
    "spawn": lambda c: c.max_agents > 1,
    "deliberation": lambda c: c.acts == "deliberate",
    "communication": lambda c: c.acts == "communicate",
    "judges": lambda c: c.judges > 0,
    "proposer": lambda c: c.proposer,
    "opponent": lambda c: c.opponent_rounds > 0,
}
"""What a preset may need of a world."""
GIVES: dict[str, dict[str, Any]] = {
    "deliberation": {"acts": "deliberate"},
    "communication": {"acts": "communicate"},
    "judges": {"judges": 2},
    "proposer": {"proposer": True},
    "opponent": {"opponent_rounds": 4, "attack_rate": 0.3},
}
"""Parameters that give a world with questions what a preset may need."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One method."""

    source: str
    """Paper, with arXiv id, or a page of docs/lab/research."""
    grade: str
    """How the source was read: one of `GRADES`."""
    departures: str
    """Where this differs from the source; what the loss brings besides is in `all_departures`."""
    credit: Mapping[str, Mapping[str, Any]]
    """One credit mechanism with its options; those that are `from_rows` are computed on rollout rows, others on traces."""
    loss: Mapping[str, Mapping[str, Any]]
    """One loss of `train/losses/` with its options."""
    reward: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"team_outcome": {}})
    """Rewards of `reward/` with their options. An option `weight` (a number, or {"from": a, "to": b} over the run, with more in
    `reward.schedules.weight_at`) scales it; {"indicator": a} begins at a and leaves once the first reward alone tells whether to
    spawn (`reward.schedules.Scaffold`, by role); with `gain` = true the value of the draft before the first round is taken off,
    so that the team is paid for what it added; with `share` = true it reads the outcome as a share of the world's optimum."""
    balance: str = "sum"
    """How several rewards become one: one of `BALANCES`. All but "sum" compare the episodes of a task, or of the batch."""
    group: PositiveInt = 4
    """Episodes of one task that are compared."""
    episodes: PositiveInt = 24
    """Per update."""
    widens: tuple[NonNegativeInt, ...] = (0, 0)
    """From which update on, and how many times, an update has more episodes; (0, 0): never."""
    trial_every: NonNegativeInt = 0
    """Updates between trials in the second half of a run, the first after four times as many, and a last one at the end of a run
    with at least so many updates, paid from its budget; the best network tried is the one that plays (`Trials`), and other teams
    are tried (`try_teams`). 0: the last one plays."""
    tree: tuple[NonNegativeInt, ...] = ()
    """Fan-outs of the rollouts of a task, whose product is `group`: (2, 4) is two beginnings with four ends each, which part at a
    round that is drawn anew for every task; all noise before it is shared, and what it cost is charged once. (): every rollout
    for itself."""
    fixed_team: bool = False
    """The team is always spawned, and spawning does not learn: a team of given size, as in a Dec-POMDP."""
    regime: str = "A"
    """Who learns: one of `REGIMES`."""
    delegate: str = "orchestrator"
    """Whose credit a delegation gets: the orchestrator's, or the agent's it went to."""
    forks: Share = 0.0
    """Share of the episodes in which one spawn decision is forced (docs/lab/research/spawn-credit.md)."""
    keeps: Share = 0.0
    """Share of the items that may not be left for 12 calls in training, at the first update; it falls as
    1 / (1 + update / 20)."""
    tries: Share = 0.0
    """Share of the tasks in whose episodes no item may be left before its first call, at the first update; it falls likewise.
    In half of these episodes one role comes for certain, in whatever number."""
    goes_on: bool = False
    """Stops are recorded and not carried out in training (forced continuation, docs/lab/research/stopping.md)."""
    rates: Mapping[str, NonNegative] = field(default_factory=lambda: {"policy": 3e-3, "spawn": 2e-2, "critic": 3e-3})
    """Learning rates at the start; they fall linearly to a tenth."""
    averaging: ShareBelowOne = 0.9
    """What is kept of the running mean of the weights at each update; evaluations play with that mean."""
    needs: tuple[str, ...] = ()
    """Of the world: names in `CAPABILITIES`."""
    trains: tuple[str, ...] = tuple(SUB_DECISIONS)
    """What the source trains: names in `TRAINS`. In TeamWorld every head learns that gets credit."""
    unit: str = "team"
    """What the source gives credit to: one of the survey's `UNITS`."""
    learns: tuple[str, ...] = ("network",)
    """Names in `LEARNERS`: which kinds of learner the method can train here."""
    alternate: NonNegativeInt = 0
    """Updates after which the roles that learn switch, orchestrator first; 0: all learn in every update."""
    as_released: Mapping[str, Any] = field(default_factory=dict)
    """Changes (as `changed` takes them) that make it what the released code does; empty: the same, or unknown."""
    language: Mapping[str, Any] = field(default_factory=dict)
    """Changes (as `changed` takes them) for language models, where words and tokens are what the source says they are."""
    knob: Mapping[str, Any] = field(default_factory=dict)
    """The one alternative that a fair comparison tries beside the published numbers, as `changed` takes it: named beforehand."""
    guessed: tuple[str, ...] = ()
    """What the source does not say, so that the number here is ours."""
    renames: str = ""
    """Why this is another method under a known name; empty: it is the method, but for its departures."""

    def __post_init__(self) -> None:
        self._check_values()
        whose = ("orchestrator", "agent")
        named = (("grade", self.grade, GRADES), ("regime", self.regime, REGIMES), ("delegate", self.delegate, whose),
                 ("balance", self.balance, BALANCES))  # fmt: skip
        for what, value, known in named:
            if value not in known:
                raise InputError(f"no {what} {value!r}", fix=did_you_mean(value, known))
        for what, given in (("credit mechanism", self.credit), ("loss", self.loss)):
            if len(given) != 1:
                raise InputError(f"a preset has one {what}, not {len(given)}")
        if ":" not in self.loss_name and self.loss_name not in registry.ids("loss"):
            raise InputError(f"no loss {self.loss_name!r}", fix=did_you_mean(self.loss_name, registry.ids("loss")))
        self.episodes_of(self.episodes)
        if self.tree and math.prod(self.tree) != self.group:
            said = f"a tree of {self.tree} has {math.prod(self.tree)} ends, a group {self.group}"
            raise InputError(said, fix="a group of as many")
        if self.alternate > 0 and self.regime == "A" and self.delegate == "orchestrator":
            raise InputError("only the orchestrator learns: no second learner", fix="regime B or C, or delegate agent")
        for what, names, all_names in (("need", self.needs, CAPABILITIES), ("thing to train", self.trains, TRAINS),
                                       ("learner", self.learns, LEARNERS), ("unit", (self.unit,), UNITS)):  # fmt: skip
            for name in names:
                if name not in all_names:
                    raise InputError(f"no {what} named {name!r}", fix=did_you_mean(name, all_names))
        if not self.trains or not self.learns:
            raise InputError("a preset trains nothing, or learns nowhere", fix="name at least one of trains and of learns")
        variants = self.as_released or self.knob or self.language
        bare = dataclasses.replace(self, as_released={}, knob={}, language={}) if variants else self
        for change in (self.as_released, self.knob, self.language):
            bare.changed(change)

    def _check_values(self) -> None:
        """Raise where a field is not of its type, or a number not one that it takes."""
        check_fields(self)
        for name in self.rates:
            if name not in _RATES:
                raise InputError(f"there is no learning rate for {name!r}", fix=did_you_mean(name, _RATES))
        if len(self.widens) != 2:
            raise InputError(f"widens is {self.widens!r}", fix="widens takes two numbers: from which update on, how many times")

    @property
    def world(self) -> dict[str, Any]:
        """Parameters that give a world with questions what this preset needs; empty where any world will do."""
        return {name: value for need in self.needs for name, value in GIVES.get(need, {}).items()}

    @property
    def loss_name(self) -> str:
        """Which loss."""
        return next(iter(self.loss))

    @property
    def all_departures(self) -> str:
        """Where this differs from the source, with what its loss does where neither the source nor the preset says otherwise."""
        brings = LOSS_BRINGS.get(self.loss_name)
        return self.departures + (f"; as always with loss {self.loss_name}, unless said otherwise: {brings}" if brings else "")

    @property
    def full_source(self) -> str:
        """The source, with what is to be known where only the name is its own."""
        return self.source + (f"; another method under a known name: {self.renames}" if self.renames else "")

    @property
    def credit_name(self) -> str:
        """Which mechanism."""
        return next(iter(self.credit))

    @property
    def sees(self) -> str:
        """The finest feedback that the method learns from: one of `FEEDBACK`. Rewards that pay agents, turns or messages are told
        what each was worth."""
        levels = [registry.get("mechanism", self.credit_name).sees, registry.get("loss", self.loss_name).sees]
        levels += ["item" for name in self.reward if registry.get("reward", name).unit not in ("team", "orchestrator")]
        return max(levels, key=tuple(FEEDBACK).index)

    @property
    def plays_forks(self) -> bool:
        """Whether the method plays alternatives from one state: forced decisions, trees of rollouts, replays without an agent."""
        return bool(self.forks or self.tree or self.needs_replay)

    @property
    def needs_replay(self) -> bool:
        """Whether its credit or a reward forks finished episodes."""
        asks = ["replay" in registry.get("reward", name).options for name in self.reward]
        return "replay" in registry.get("mechanism", self.credit_name).needs or any(asks)

    @property
    def uses_traces(self) -> bool:
        """Whether credit is judged on traces."""
        is_from_rows = registry.get("mechanism", self.credit_name).from_rows
        return not is_from_rows and not registry.get("loss", self.loss_name).own_credit

    @property
    def logs(self) -> bool:
        """Whether credit or rewards are judged on traces, so that rollouts are logged."""
        return self.uses_traces or dict(self.reward) != {"team_outcome": {}}

    def episodes_of(self, own: int) -> int:
        """Episodes of an update: a run's own number, or with 0 the preset's. Groups that they do not fill are an error."""
        n = own or self.episodes
        if self.group < 1 or n % self.group:
            raise InputError(f"{n} episodes do not make groups of {self.group}", fix=f"episodes = a multiple of {self.group}")
        return n

    def learning(self, update: int) -> tuple[str, ...]:
        """Decision types that learn in an update: all, or, with `alternate`, those of the role whose turn it is.

        Delegations (whom, with which brief) are the agents' where `delegate` says so; a fixed team's spawns are nobody's. Where
        somebody beside the team learns, it is the team and they who take turns, and of the team only what `trains` names learns.
        """
        beside = tuple(name for name, who in BESIDE.items() if who in self.trains)
        theirs: tuple[str, ...] = ("worker", "act", *(("brief", "point") if self.delegate == "agent" else ()))
        own = tuple(name for name in DECISION_TYPES if name not in theirs)
        if beside:
            named = [name for what in self.trains for name in _TYPES_OF.get(what, ())]
            own, theirs = tuple(name for name in own if name in named), theirs if "w" in self.trains else ()
        turns = ((*own, *theirs), beside) if beside else (own, theirs)
        now = turns[update // self.alternate % 2] if self.alternate else (*own, *theirs, *beside)
        return tuple(name for name in now if not (self.fixed_team and name == "spawn"))

    def changed(self, changes: Mapping[str, Any]) -> Preset:
        """The preset with other values: of its own fields, of its loss and credit ({"loss": {"lam": 0.8}}), of its rewards
        ({"reward": {"team_outcome": {"weight": 0.5}}}); {"as_released": True} and {"knob": True} stand for what those fields
        hold, and other changes come on top. A field or an option that there is not is an error."""
        known = [f.name for f in dataclasses.fields(self)]
        given: dict[str, Any] = {}
        for name in _WHOLE:
            if name in changes and isinstance(changes[name], bool):
                rest = {k: v for k, v in changes.items() if k != name}
                return (self.changed(self._whole(name)) if changes[name] else self).changed(rest)
        for name, value in changes.items():
            if name not in known:
                raise InputError(f"a preset has no {name!r}", where="change", fix=did_you_mean(name, known))
            own = getattr(self, name)
            if isinstance(own, Mapping) != isinstance(value, Mapping):
                fix = "a table of options" if isinstance(own, Mapping) else "a value, not a table"
                raise InputError(f"{name} is {value!r}", where="change", fix=fix)
            if name in ("loss", "credit"):
                value = {next(iter(own)): {**next(iter(own.values())), **value}}
            elif name == "reward":
                value = {**own, **{k: {**own.get(k, {}), **v} for k, v in value.items()}}
            elif isinstance(own, Mapping):
                value = {**own, **value}
            given[name] = tuple(value) if isinstance(value, list) else value
        return dataclasses.replace(self, **given) if given else self

    def _whole(self, name: str) -> Mapping[str, Any]:
        held: Mapping[str, Any] = getattr(self, name)
        if not held:
            raise InputError(f"this preset has no {name}", where="change", fix="leave it out: the source gives no other form")
        return held

    def refuse(self, config: Config, name: str) -> None:
        """Raise where the world lacks what this preset needs."""
        for need in self.needs:
            if not CAPABILITIES[need](config):
                given = " ".join(f"--set {k}={str(v).lower()}" for k, v in GIVES.get(need, {}).items())
                fix = f"{given}, in a world with questions" if given else "another world, or another preset"
                raise Refused(f"preset {name} needs {need}, which the world does not have", fix=fix)


def named_preset(name: str) -> Preset:
    """A preset by its file's name (dashes for underscores), or "package.module:object"."""
    name = name if ":" in name else name.replace("-", "_")
    try:
        found = registry.get("preset", name)
    except NotFound as error:
        raise NotFound(f"no preset named {name!r}", fix=did_you_mean(name, registry.ids("preset"))) from error
    if not isinstance(found, Preset):
        raise InputError(f"{name} is a {type(found).__name__}, not a Preset")
    return found
