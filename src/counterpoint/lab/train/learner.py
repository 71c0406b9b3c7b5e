"""One update: log-probabilities of the recorded rows under the network, a clipped policy loss by decision type, critics' losses.

Always true: the loss is the mean over the rows of each decision type, then the sum over types with their weights, so that an
episode with many items does not outweigh many with few (docs/lab/research/staleness.md), unless the options say otherwise
(`surrogates.Steps`). A loss that is not finite changes nothing: `NotFinite` is raised before the step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.train.objectives import kl
from counterpoint.lab.train.policies.choices import OPTION, SIZES
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.surrogates import MAX_NORM, PARTS, Steps, joined_loss, surrogate, unit_codes
from counterpoint.rewards.balance import Balance, GradientMemory

EXTRA = (*SIZES, OPTION)
TYPES = ("item", "brief", "point", "stop", "spawn", "size", "talk", "rule", "worker", *EXTRA)
Table = Mapping[str, np.ndarray]
_SHRINK = 8.0  # rows at the pooled spread that every kind of item is given


class NotFinite(CounterpointError):
    """A loss became infinite or no number; nothing was changed by it."""


def finite(loss: Tensor, what: str) -> Tensor:
    """The loss, or `NotFinite`."""
    if not torch.isfinite(loss):
        raise NotFinite(f"the {what} loss is {float(loss.detach())}", fix="a lower learning rate, or another seed")
    return loss


def step_down(
    optimizer: torch.optim.Optimizer, loss: Tensor, what: str, parameters: Iterable[Tensor] = (), most: float | None = None
) -> None:  # fmt: skip
    """One step down a loss; of these parameters the gradient's norm is `most` at most. `NotFinite` comes before any change."""
    clear(optimizer)
    finite(loss, what).backward()
    if most is not None:
        torch.nn.utils.clip_grad_norm_(parameters, most)
    advance(optimizer)


def clear(optimizer: torch.optim.Optimizer) -> None:
    """Forget the gradients."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None


def advance(optimizer: torch.optim.Optimizer) -> None:
    """The optimizer's step, without the wrapper that tells profilers of it: in networks this small that takes as long."""
    own = type(optimizer).step
    getattr(own, "__wrapped__", own)(optimizer)


def _segments(score: Tensor, row: Tensor, picked: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Of a softmax over the candidates of each row: (rows,) log-probability of the picked one, (rows,) entropy; 0 without any.

    H = log Z - sum_c p_c s_c,   s_c = score_c - max,   Z = sum_c exp(s_c),   p_c = exp(s_c) / Z
    """
    top = torch.full((rows,), -torch.inf).scatter_reduce(0, row, score.detach(), "amax")
    height = score - top[row]
    each = torch.exp(height)
    total = torch.zeros(rows).index_add(0, row, each)
    has, level = torch.isfinite(top), torch.log(total.clamp_min(1e-30))
    own = torch.zeros(rows).index_add(0, row[picked], score[picked] - top[row[picked]])
    mean = torch.zeros(rows).index_add(0, row, each * height) / total.clamp_min(1e-30)
    zero = torch.zeros(())
    return torch.where(has, own - level, zero), torch.where(has, level - mean, zero)


def log_probs(net: Network, tables: Mapping[str, Table]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """New log-probabilities and entropies of every decision type, in the order of its rows."""
    logp: dict[str, Tensor] = {}
    entropy: dict[str, Tensor] = {}
    if "item" in tables:
        _items(net, tables["item"], tables.get("candidate"), logp, entropy)
    _teams(net, tables, logp, entropy)
    if "spawn" in tables:
        t = tables["spawn"]
        gate, size = net.roles(torch.from_numpy(t["x"]))
        go = torch.from_numpy(t["choice"].astype(np.float32))
        logp["spawn"] = -F.binary_cross_entropy_with_logits(gate, go, reduction="none")
        entropy["spawn"] = F.softplus(gate) - gate * torch.sigmoid(gate)
        z = (torch.from_numpy(t["size"].astype(np.float32)) - size) / net.log_scale.exp()
        logp["size"] = -0.5 * z**2 - net.log_scale
        entropy["size"] = net.log_scale.expand(len(z))
    if "worker" in tables:
        t = tables["worker"]
        logit = net.workers(torch.from_numpy(t["x"]))
        logp["worker"] = -F.binary_cross_entropy_with_logits(
            logit, torch.from_numpy(t["choice"].astype(np.float32)), reduction="none"
        )
        entropy["worker"] = F.softplus(logit) - logit * torch.sigmoid(logit)
    for name in net.extra:
        if name in tables:
            t = tables[name]
            each = net.options(name, torch.from_numpy(t["x"]), torch.from_numpy(t["mask"]))
            logp[name] = each.gather(1, torch.from_numpy(t["choice"])[:, None])[:, 0]
            entropy[name] = -(each.exp() * each).sum(-1)
    return logp, entropy


def score_gradient(net: Network, tables: Mapping[str, Table], advantages: Mapping[str, np.ndarray]) -> np.ndarray:
    """sum over decisions of A(d) grad log pi(d), over all that decides: no clip, no scale."""
    rows = rows_of(tables, advantages, scale=False)
    parameters = net.policy_parameters()
    logp, _ = log_probs(net, tables)
    loss = torch.zeros((), requires_grad=True)
    for name, r in rows.items():
        loss = loss + (logp[name][torch.from_numpy(r.at)] * torch.from_numpy(r.advantage.astype(np.float32))).sum()
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    each = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
    return torch.cat([g.reshape(-1) for g in each]).numpy().astype(np.float64)


def _items(net: Network, t: Table, candidates: Table | None, logp: dict[str, Tensor], entropy: dict[str, Tensor]) -> None:
    purpose, brief, query = net.items(torch.from_numpy(t["x"]))
    logits = purpose.masked_fill(~torch.from_numpy(t["mask"]), -1e9).log_softmax(-1)
    logp["item"] = logits.gather(1, torch.from_numpy(t["choice"])[:, None])[:, 0]
    entropy["item"] = -(logits.exp() * logits).sum(-1)
    said = brief.log_softmax(-1)
    logp["brief"] = said.gather(1, torch.from_numpy(t["brief"])[:, None])[:, 0]
    entropy["brief"] = -(said.exp() * said).sum(-1)
    if candidates is not None:
        row = torch.from_numpy(candidates["row"])
        key = net.key(torch.from_numpy(candidates["agent_x"]))
        score = (query.index_select(0, row) * key).sum(-1) + net.pair(torch.from_numpy(candidates["pair_x"]))[:, 0]
        picked = torch.from_numpy(candidates["picked"])
        logp["point"], entropy["point"] = _segments(score, row, picked, len(t["ep"]))


def _teams(net: Network, tables: Mapping[str, Table], logp: dict[str, Tensor], entropy: dict[str, Tensor]) -> None:
    last: np.ndarray | None = None
    for name in ("stop", "talk", "rule"):
        if name not in tables:
            continue
        t = tables[name]
        if last is None or not np.array_equal(last, t["x"]):  # talk and rule are of the same rounds
            stop, rule, talk = net.teams(torch.from_numpy(t["x"]))
        last = t["x"]
        if name == "rule":
            logits = rule.log_softmax(-1)
            logp[name] = logits.gather(1, torch.from_numpy(t["choice"])[:, None])[:, 0]
            entropy[name] = -(logits.exp() * logits).sum(-1)
            continue
        logit = stop if name == "stop" else talk
        chosen = torch.from_numpy(t["choice"].astype(np.float32))
        logp[name] = -F.binary_cross_entropy_with_logits(logit, chosen, reduction="none")
        entropy[name] = F.softplus(logit) - logit * torch.sigmoid(logit)


@dataclass(frozen=True)
class LossRows:
    """What an update reads of one decision type: which rows count, their old log-probabilities, advantages and weights."""

    at: np.ndarray
    old: np.ndarray
    advantage: np.ndarray
    weight: np.ndarray
    ref: np.ndarray | None = None
    """Log-probabilities under the reference, where a KL to it is in the loss."""
    unit: np.ndarray | None = None
    """The turn or sequence of each row, where ratios are of those."""
    who: np.ndarray | None = None
    """The agent that decided it, 0 being the orchestrator, where agents weigh the same."""

    def subset(self, keep: np.ndarray, at: np.ndarray) -> LossRows:
        """Some of the rows, at other places."""
        ref, unit, who = (None if x is None else x[keep] for x in (self.ref, self.unit, self.who))
        return LossRows(at, self.old[keep], self.advantage[keep], self.weight[keep], ref, unit, who)


def rows_of(tables: Mapping[str, Table], advantages: Mapping[str, np.ndarray], *, scale: bool = True) -> dict[str, LossRows]:
    """Rows by decision type; with `scale`, advantages are divided by their spread in the type and kind of item, shrunk to the
    type's: (n_k s_k^2 + n_0 s^2) / (n_k + n_0) (docs/lab/research/staleness.md). Types without advantages are left out."""
    out: dict[str, LossRows] = {}

    def put(name: str, at: np.ndarray, old: np.ndarray, adv: np.ndarray, sort: np.ndarray | None = None) -> None:
        if len(at) and scale:
            code = np.zeros(len(at), np.int64) if sort is None else sort[at]
            square = adv[at] ** 2 if adv.ndim == 1 else (adv[at] ** 2).mean(axis=1)
            count = np.bincount(code)
            each = np.bincount(code, square)
            pooled = each.sum() / count.sum()
            spread = np.sqrt((each + _SHRINK * pooled) / (count + _SHRINK))[code]
            unit = np.maximum(spread, 1e-6)
            out[name] = LossRows(at, old[at], adv[at] / (unit if adv.ndim == 1 else unit[:, None]), np.ones(len(at)))
        elif len(at):
            out[name] = LossRows(at, old[at], adv[at], np.ones(len(at)))

    if "item" in tables and any(name in advantages for name in ("item", "brief", "point")):
        t = tables["item"]
        called = np.flatnonzero(t["agent"] >= 0)
        real = np.flatnonzero(t["mask"].sum(axis=1) > 1)
        kind = t["x"][:, :5].argmax(axis=1)
        for name, at, old in (("item", real, "logp"), ("brief", called[t["agent"][called] > 0], "brief_logp"),
                              ("point", called, "point_logp")):  # fmt: skip
            if name in advantages:
                put(name, at, t[old], advantages[name], kind)
    for name in ("stop", "rule", "worker"):
        if name in tables and name in advantages:
            put(name, np.arange(len(tables[name]["ep"])), tables[name]["logp"], advantages[name])
    for name in EXTRA:
        if name in tables and name in advantages:
            put(name, np.flatnonzero(tables[name]["mask"].sum(axis=1) > 1), tables[name]["logp"], advantages[name])
    if "talk" in tables and "talk" in advantages:
        t = tables["talk"]
        put("talk", np.arange(len(t["ep"])), t["logp"], advantages["talk"][:, None] * np.ones((1, 2)))
    if "spawn" in tables and "spawn" in advantages:
        t = tables["spawn"]
        free = np.flatnonzero(~t["forced"])
        put("spawn", free, t["logp"], advantages["spawn"])
        put("size", np.flatnonzero(t["choice"]), t["size_logp"], advantages["spawn"])
    return out


def update(
    net: Network, optimizer: torch.optim.Optimizer, tables: Mapping[str, Table], advantages: Mapping[str, np.ndarray],
    episodes: int, options: Steps, rng: np.random.Generator, skip: Collection[str] = (), balancer: Balancer | None = None,
    ref: Mapping[str, np.ndarray] | None = None, parts: int = PARTS, tasks: np.ndarray | None = None,
) -> dict[str, float]:  # fmt: skip
    """Several policy steps on one batch of rollouts, a part of its episodes at a time, with `tasks` whole tasks; `ref` has the
    reference's log-probabilities of all rows, where options ask for them."""
    rows = {k: v for k, v in rows_of(tables, advantages, scale=options.scale).items() if k not in skip}
    rows = _placed(tables, rows, options, ref)
    each = [] if balancer is None else balancer.rows(tables, advantages)
    tables, rows = _needed(tables, rows)
    stats: dict[str, float] = {}
    sums: dict[str, list[float]] = {}
    loss = torch.zeros(())
    for epoch in range(options.epochs):
        for part in _cut(rng, np.arange(episodes) if tasks is None else tasks, parts):
            member = np.zeros(episodes, np.bool_)
            member[part] = True
            small, small_rows = _part(tables, rows, member)
            if not small_rows:
                continue  # none of these episodes made a decision that counts
            if options.kl_most is not None and _kl(net, small, small_rows) > options.kl_most:
                continue
            loss = _policy_loss(net, small, small_rows, options, sums if epoch == options.epochs - 1 else None)
            clear(optimizer)
            if balancer is None:
                finite(loss, "policy").backward()
            else:
                balancer.backward(net, tables, [_with(rows, own) for own in each], part, episodes, options)
            torch.nn.utils.clip_grad_norm_(net.policy_parameters(), MAX_NORM)
            advance(optimizer)
    stats |= {k: float(np.mean(v)) for k, v in sums.items()}
    stats["loss"] = float(loss.detach())
    return stats


def _cut(rng: np.random.Generator, tasks: np.ndarray, parts: int) -> list[np.ndarray]:
    """Episodes in parts at random, those of a task together."""
    code = np.unique(tasks, return_inverse=True)[1]
    cut = np.array_split(rng.permutation(int(code.max(initial=-1)) + 1), parts)
    if len(code) == len(np.unique(code)):
        return cut
    return [np.flatnonzero(np.isin(code, some)) for some in cut if len(some)]


def _policy_loss(
    net: Network, tables: Mapping[str, Table], rows: Mapping[str, LossRows], options: Steps, sums: dict[str, list[float]] | None
) -> Tensor:  # fmt: skip
    logp, entropy = log_probs(net, tables)
    loss, all_rows = torch.zeros(()), []
    for name, r in rows.items():
        at = torch.from_numpy(r.at)
        adv = torch.from_numpy(r.advantage.astype(np.float32))
        log_ratio = logp[name][at] - torch.from_numpy(r.old.astype(np.float32))
        if options.is_plain:
            loss = loss + surrogate(log_ratio, adv, options).mean()
        else:
            all_rows.append((name, r, log_ratio, adv))
        loss = loss - options.entropy * entropy[name][at].mean()
        if sums is not None:
            ratio = log_ratio.detach().clamp(-10, options.log_max).exp()
            sums.setdefault(f"kl_{name}", []).append(float((ratio - 1 - log_ratio.detach()).mean()))
            sums.setdefault(f"entropy_{name}", []).append(float(entropy[name][at].mean().detach()))
    return loss + _other_loss(tables, all_rows, logp, options) if all_rows else loss


def _other_loss(
    tables: Mapping[str, Table], all_rows: Sequence[tuple[str, LossRows, Tensor, Tensor]], logp: Mapping[str, Tensor],
    options: Steps,
) -> Tensor:  # fmt: skip
    """What the loss is where it is not PPO's of each decision type: ratios of turns, other means, a KL to the reference."""
    if options.weigh == "type" and not options.is_joint:
        loss = torch.stack([surrogate(log_ratio, adv, options).mean() for _, _, log_ratio, adv in all_rows]).sum()
    else:
        columns: list[tuple[Tensor, Tensor, np.ndarray, np.ndarray, np.ndarray]] = []
        for name, r, log_ratio, adv in all_rows:
            wide = log_ratio[0].numel()  # talk has two columns, full return and broadcast: two decisions
            ep = tables[_TABLE.get(name, name)]["ep"][r.at]
            unit, who = ep if r.unit is None else r.unit, np.zeros_like(ep) if r.who is None else r.who
            places = np.repeat(ep, wide), np.repeat(unit, wide), np.repeat(who, wide)
            columns.append((log_ratio.reshape(-1), adv.reshape(-1), *places))
        ratios, advs, *rest = zip(*columns, strict=True)
        eps, units, agents = (np.concatenate(x) for x in rest)
        loss = joined_loss(torch.cat(ratios), torch.cat(advs), eps, units, options, agents)
    if options.kl_weight and options.kl_in == "loss":
        for name, r, _, _ in all_rows:
            assert r.ref is not None
            to_ref = logp[name][torch.from_numpy(r.at)] - torch.from_numpy(r.ref.astype(np.float32))
            loss = loss + options.kl_weight * kl(to_ref.clamp(-10, 10), options.kl).mean()
    return loss


def _placed(
    tables: Mapping[str, Table], rows: Mapping[str, LossRows], options: Steps, ref: Mapping[str, np.ndarray] | None
) -> dict[str, LossRows]:
    """The rows, with their turn or sequence, their agent and the reference's log-probabilities, where options ask for them."""
    out = dict(rows)
    for name, r in rows.items():
        t = tables[_TABLE.get(name, name)]
        if options.is_joint or options.weigh == "agent":
            who = t["agent"][r.at] if name in ("worker", "act", OPTION) else np.zeros_like(t["ep"][r.at])
            unit = unit_codes(t["ep"][r.at], t["round"][r.at], who, options.level) if options.is_joint else None
            out[name] = replace(out[name], unit=unit, who=who if options.weigh == "agent" else None)
        if options.kl_weight and options.kl_in == "loss":
            if ref is None:
                raise InputError("a KL to the reference needs its log-probabilities", fix="loss clip keeps a reference")
            out[name] = replace(out[name], ref=ref[name][r.at])
    return out


def _kl(net: Network, tables: Mapping[str, Table], rows: Mapping[str, LossRows]) -> float:
    """k3 of the policy that played against the network now, over all rows."""
    with torch.no_grad():
        logp = log_probs(net, tables)[0]
        old = {n: torch.from_numpy(r.old.astype(np.float32)) for n, r in rows.items()}
        d = torch.cat([(logp[n][torch.from_numpy(r.at)] - old[n]).reshape(-1) for n, r in rows.items()]).clamp(-10, 10)
        return float(kl(-d).mean())


def _with(rows: Mapping[str, LossRows], own: Mapping[str, LossRows]) -> dict[str, LossRows]:
    """The rows of an update, with one reward's own advantages."""
    return {name: replace(r, advantage=own[name].advantage) for name, r in rows.items() if name in own}


class Balancer:
    """Several rewards followed by their gradients: reliable ones that point where the first one's points (`rewards/balance.py`).

    A step's episodes are cut into two halves; each reward has its own advantages, divided by their spread whatever the loss says,
    so that its scale cancels. Decisions that only the sum has advantages for (sub-agents, where they learn) go with the first.
    """

    def __init__(self) -> None:
        self.memory: GradientMemory | None = None
        self.weights: list[float] = []
        """Of the last step, by reward."""
        self.advantages: Sequence[Mapping[str, np.ndarray]] = ()
        """Of the batch that is learned from, by reward."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {} if self.memory is None else dict(vars(self.memory))

    def restore(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        self.memory = GradientMemory(**state) if state else None

    def rows(self, tables: Mapping[str, Table], summed: Mapping[str, np.ndarray]) -> list[dict[str, LossRows]]:
        """The rows of every reward, in the order of those of their sum."""
        first, *others = self.advantages
        return [rows_of(tables, own) for own in ({**summed, **first}, *others)]

    def backward(
        self, net: Network, tables: Mapping[str, Table], each: Sequence[Mapping[str, LossRows]], part: np.ndarray, episodes: int,
        options: Steps,
    ) -> None:  # fmt: skip
        """Leave the balanced gradient, and the entropy bonus's, at the parameters that act."""
        halves, plain = [], replace(options, entropy=0.0)
        for half in np.array_split(part, 2):
            member = np.zeros(episodes, np.bool_)
            member[half] = True
            halves.append(np.stack([_gradient(net, *_part(tables, rows, member), plain) for rows in each]))
        memory = self.memory or GradientMemory.of(*halves[0].shape)
        total, weights, self.memory = Balance().step(memory, *halves)
        self.weights = [float(w) for w in weights]
        if options.entropy:
            member = np.zeros(episodes, np.bool_)
            member[part] = True
            silent = {name: replace(r, advantage=np.zeros_like(r.advantage)) for name, r in each[0].items()}
            total = total + _gradient(net, *_part(tables, silent, member), options)
        place = 0
        for p in net.policy_parameters():
            p.grad = torch.from_numpy(total[place : place + p.numel()].astype(np.float32)).view_as(p)
            place += p.numel()


def _gradient(net: Network, tables: Mapping[str, Table], rows: Mapping[str, LossRows], options: Steps) -> np.ndarray:
    """(D,) the gradient of the loss on some rows, over all parameters that act; zero where there are no rows."""
    own = net.policy_parameters()
    if not rows:
        return np.zeros(sum(p.numel() for p in own))
    found = torch.autograd.grad(finite(_policy_loss(net, tables, rows, options, None), "policy"), own, allow_unused=True)
    flat = [torch.zeros_like(p).reshape(-1) if g is None else g.reshape(-1) for p, g in zip(own, found, strict=True)]
    return torch.cat(flat).numpy().astype(np.float64)


_TABLE = {"brief": "item", "point": "item", "size": "spawn"}
_READ = {
    "item": ("ep", "x", "mask", "choice", "brief"), "candidate": ("ep", "row", "agent_x", "pair_x", "picked"),
    "spawn": ("ep", "x", "choice", "size"), "stop": ("ep", "x", "choice"), "rule": ("ep", "x", "choice"),
    "talk": ("ep", "x", "choice"), "worker": ("ep", "x", "choice"), **dict.fromkeys(EXTRA, ("ep", "x", "mask", "choice")),
}  # fmt: skip


def _needed(tables: Mapping[str, Table], rows: Mapping[str, LossRows]) -> tuple[dict[str, Table], dict[str, LossRows]]:
    """Only the rows that count in some decision type, and of them only what `log_probs` reads: the loss is the same."""
    used: dict[str, np.ndarray] = {}
    for name, r in rows.items():
        table = _TABLE.get(name, name)
        used.setdefault(table, np.zeros(len(tables[table]["ep"]), np.bool_))[r.at] = True
    small: dict[str, Any] = {name: {k: tables[name][k][keep] for k in _READ[name]} for name, keep in used.items()}
    place = {name: np.cumsum(keep) - 1 for name, keep in used.items()}
    if "point" in rows and "candidate" in tables:
        keep = used["item"][tables["candidate"]["row"]]
        small["candidate"] = {k: tables["candidate"][k][keep] for k in _READ["candidate"]}
        small["candidate"]["row"] = place["item"][small["candidate"]["row"]]
    moved = {n: replace(r, at=place[_TABLE.get(n, n)][r.at]) for n, r in rows.items()}
    return small, moved


def _part(
    tables: Mapping[str, Table], rows: Mapping[str, LossRows], member: np.ndarray
) -> tuple[dict[str, Table], dict[str, LossRows]]:
    """The rows of some episodes."""
    small: dict[str, Table] = {}
    place: dict[str, np.ndarray] = {}
    for name, t in tables.items():
        keep = member[t["ep"]]
        if keep.any():
            small[name] = {k: v[keep] for k, v in t.items()}
            place[name] = np.cumsum(keep) - 1
    if "candidate" in small:
        small["candidate"] = {**small["candidate"], "row": place["item"][small["candidate"]["row"]]}
    out: dict[str, LossRows] = {}
    for name, r in rows.items():
        table = _TABLE.get(name, name)
        keep = member[tables[table]["ep"][r.at]]
        if keep.any():
            out[name] = r.subset(keep, place[table][r.at[keep]])
    return small, out
