"""A team task on which sharing a reward is slow or wrong, learnt with TRL: what `counterpoint reproduce under-trl` runs.

    python -m counterpoint.lab.trainers.trl.team_task ARM START STEPS RUN [RUN ...]     # a line of JSON for each run

A lead says how many workers it calls, up to eight; each gets another question and answers with one token, of which one is right.
The team is paid an eighth for each right answer, less the price of each worker. A wrong worker costs, a right one pays: the lead
is to call all of them once they know. Who answered is a noise for everybody else who is paid the same.

    reward/K     each of the K rows has R / K, and all rows of a task are compared       (what slime, vime and miles do)
    identical    each row has R, rollouts are compared                                   (GRPO)
    dr-mas       each row has R, every agent is compared with itself                     (arXiv:2602.08847)
    computed     each agent has what the team loses without it, by the checker, compared with itself

With $COUNTERPOINT_LM (a name that `counterpoint models` lists, or a folder) that model learns, on the GPU if there is one; else
a Llama of two layers on a CPU. A model of the user's first imitates a weak team, whose lead says any number and whose workers are
right in 1 of 5: as it comes SmolLM2 says " red" in 1 of 2 and " gray" in 1 of 1,000, and would never try what is right.

Always true: start and run name the draws: tiny weights, and which answers are right, come from the start alone. Runs of all arms
see the same tasks.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout
from counterpoint.lab.trainers.trl.team_grpo import TeamGRPOTrainer

MOST = 8
PRICE = 0.03
_RATE = 5e-6
_WEAK, _WEAK_RATE, _WEAK_STEPS, _CLOSE = 0.2, 5e-5, 300, 0.01
ITEMS = [f"item{i}" for i in range(MOST)]
ANSWERS = [f"answer{i}" for i in range(MOST)]
COUNTS = [f"call{i}" for i in range(1, MOST + 1)]
_ROW = ("rollout", "prompt", "agent", "name", "parent", "text", "word", "logprobs")
WORDS = ["<pad>", "<eos>", "lead", "worker", *ITEMS, *ANSWERS, *COUNTS]


class Speech(NamedTuple):
    """How a model says the task's words, each of them one token, and how it is asked."""

    tokenizer: Any
    texts: Mapping[str, str]
    lead: str = "lead"
    worker: str = "worker {}"

    def question(self, item: str) -> str:
        """What a worker is asked."""
        return self.worker.format(self.texts[item])

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def token(self, word: str) -> int:
        """The one token of a word of the task."""
        ids = self.ids(self.texts[word])
        if len(ids) != 1:
            what = f"{self.texts[word]!r} is {len(ids)} tokens"
            raise InputError(what, where="the model's tokenizer", fix="a model whose tokenizer knows English words")
        return ids[0]


def right_answers(start: int) -> dict[str, str]:
    """The answer that is right for each item."""
    return dict(zip(ITEMS, np.random.default_rng([start, 1]).permutation(ANSWERS).tolist(), strict=True))


def team_score(counts: int, answers: dict[str, str], right: dict[str, str]) -> float:
    """What a team is paid that called so many workers and has these answers of them."""
    return sum(right[item] == said for item, said in answers.items()) / MOST - PRICE * counts


def without(rollout: Rollout, agent: str) -> float:
    """The score of a run, checked again without one agent: without the lead there is no team."""
    about = rollout.about[0]
    rest = {item: said for item, said in about["answers"].items() if item != agent}
    return 0.0 if agent == "lead" else team_score(len(rest), rest, about["right"])


def layer_of(arm: str) -> CreditLayer:
    """The credit of an arm."""
    layers = {
        "reward/K": lambda: CreditLayer("uniform", against="task"),
        "identical": lambda: CreditLayer("group_relative", convention="trl"),
        "dr-mas": lambda: CreditLayer("agent_wise", convention="trl"),
        "computed": lambda: CreditLayer("difference", counterfactual=without, against="agent"),
    }
    if arm not in layers:
        raise InputError(f"no arm {arm!r}", fix=did_you_mean(arm, layers))
    return layers[arm]()


ARMS = ("reward/K", "identical", "dr-mas", "computed")


class Team:
    """Plays the teams of a batch with the trainer's weights: TRL's `rollout_func`."""

    def __init__(self, speech: Speech, start: int, run: int) -> None:
        self.speech, self.right = speech, right_answers(start)
        self.draw = torch.Generator().manual_seed(1_000_003 * start + run)
        self.scores: list[float] = []

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """The rows of one run for each prompt: the lead's, and one for each worker that it called."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        lead, question = self.speech.lead, self.speech.question
        said, logps = self._say(model, [lead] * len(prompts), COUNTS)
        rows: dict[str, list[Any]] = {key: [] for key in _ROW}
        for i, (word, logp) in enumerate(zip(said, logps, strict=True)):
            self._row(rows, i, "lead", None, lead, word, logp)
        asked = [(i, ITEMS[k]) for i, word in enumerate(said) for k in range(COUNTS.index(word) + 1)]
        answers: list[dict[str, str]] = [{} for _ in prompts]
        for (i, item), word, logp in zip(asked, *self._say(model, [question(x) for _, x in asked], ANSWERS), strict=True):
            answers[i][item] = word
            self._row(rows, i, item, "lead", question(item), word, logp)
        scores = [team_score(len(own), own, self.right) for own in answers]
        self.scores.append(float(np.mean(scores)))
        texts, words = rows.pop("text"), rows.pop("word")
        own = [rows["rollout"], [scores[i] for i in rows["rollout"]], [answers[i] for i in rows["rollout"]]]
        return {
            **rows, "prompt_ids": [self.speech.ids(text) for text in texts], "reward": own[1], "answers": own[2],
            "completion_ids": [[self.speech.token(word)] for word in words], "right": [self.right] * len(texts),
            "task": [prompts[i] for i in rows["rollout"]],
        }  # fmt: skip

    def _row(self, rows: dict[str, list[Any]], i: int, agent: str, parent: str | None, text: str, word: str, logp: float) -> None:
        values = (i, i, agent, agent, parent, text, word, [logp])
        for key, value in zip(rows, values, strict=True):
            rows[key].append(value)

    def _say(self, model: Any, texts: Sequence[str], words: Sequence[str]) -> tuple[list[str], list[float]]:
        """One word for each text, drawn from what the model holds likely among those it may say."""
        if not texts:
            return [], []
        known = list(dict.fromkeys(texts))
        allowed = [self.speech.token(word) for word in words]
        with torch.no_grad():
            table = likely_words(model, [self.speech.ids(text) for text in known], allowed).cpu()
        rows = table[[known.index(text) for text in texts]]
        drawn = torch.multinomial(rows.softmax(-1), 1, generator=self.draw)[:, 0]
        return [words[k] for k in drawn.tolist()], rows.gather(1, drawn[:, None])[:, 0].tolist()


def likely_words(model: Any, asked: Sequence[Sequence[int]], allowed: Sequence[int]) -> torch.Tensor:
    """The log-probability of each allowed token after each question; questions of one length are read at once."""
    sizes = [len(ids) for ids in asked]
    out = torch.empty(len(asked), len(allowed), device=model.device)
    for size in sorted(set(sizes)):
        own = [i for i, one in enumerate(sizes) if one == size]
        logits = model(torch.tensor([asked[i] for i in own], device=model.device)).logits[:, -1]
        out[own] = logits.float().log_softmax(-1)[:, list(allowed)]
    return out


def imitate(model: Any, speech: Speech, right: Mapping[str, str]) -> None:
    """A model of the user's learns to speak like a weak team, to `_CLOSE` nats or for so many steps: any number, the
    right answer in 1 of 5."""
    leads = [speech.ids(speech.lead)], [speech.token(word) for word in COUNTS], torch.full((1, MOST), 1 / MOST)
    share = torch.tensor([[_WEAK if right[item] == word else (1 - _WEAK) / (MOST - 1) for word in ANSWERS] for item in ITEMS])
    workers = [speech.ids(speech.question(item)) for item in ITEMS], [speech.token(word) for word in ANSWERS], share
    learner = torch.optim.AdamW(model.parameters(), lr=_WEAK_RATE, weight_decay=0.0)
    for _ in range(_WEAK_STEPS):
        parts = [(share.log() - likely_words(model, ids, words).cpu()) * share for ids, words, share in (leads, workers)]
        apart = torch.cat(parts).sum(1).mean()
        if apart.item() < _CLOSE:
            return
        apart.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        learner.step()
        learner.zero_grad(set_to_none=True)


def tiny_model(start: int) -> tuple[Any, Any]:
    """A Llama of two layers that knows the task's words, and its tokenizer."""
    torch.manual_seed(start)
    plain = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    plain.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>")
    shape = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=16, tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return LlamaForCausalLM(shape), tokenizer


ENGLISH = {
    **dict(zip(COUNTS, (" one", " two", " three", " four", " five", " six", " seven", " eight"), strict=True)),
    **dict(zip(ANSWERS, (" red", " blue", " green", " black", " white", " brown", " yellow", " gray"), strict=True)),
    **dict(zip(ITEMS, ("car", "house", "door", "shirt", "bird", "boat", "flower", "table"), strict=True)),
}


def pretrained(name: str) -> tuple[Any, Speech]:
    """A model of the user's, with the task in English."""
    from counterpoint.lab.lm.conversion import ready_folder
    from counterpoint.lab.lm.weights import find

    folder = ready_folder(find(name))
    local = {"local_files_only": True, "trust_remote_code": False}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **local)
    tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    speech = Speech(tokenizer, ENGLISH, "How many workers are called? Answer:", "Which colour has the {}? Answer:")
    said = (*COUNTS, *ANSWERS)
    if len({speech.token(word) for word in said}) < len(said):
        raise InputError("words that are the same token", where=str(folder), fix="a model whose tokenizer knows English words")
    return model, speech


def row_rewards(completions: Sequence[Any], reward: Sequence[float], **_: Any) -> list[float]:
    """TRL's reward function: what the team was paid stands beside each row."""
    return list(reward)


def _tiny(start: int) -> tuple[Any, Speech]:
    model, tokenizer = tiny_model(start)
    return model, Speech(tokenizer, {word: word for word in WORDS})


@cache
def _weak(name: str, start: int) -> tuple[Any, Speech]:
    """A model of the user's that imitated the weak team of a start; all runs of a process begin with its weights."""
    model, speech = pretrained(name)
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")
        model = model.to("cuda")
    imitate(model, speech, right_answers(start))
    return model, speech


def _begin(name: str | None, start: int) -> tuple[Any, Speech]:
    if name is None:
        return _tiny(start)
    model, speech = _weak(name, start)
    return copy.deepcopy(model), speech


def learn(arm: str, start: int, run: int, *, steps: int, rate: float | None = None) -> dict[str, Any]:
    """One run: the mean score of the teams at the end and at the beginning, of the best team there could be, and on the way."""
    torch.set_num_threads(1)
    name = os.environ.get("COUNTERPOINT_LM")
    model, speech = _begin(name, start)
    team, teams = Team(speech, start, run), 32
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            folder, per_device_train_batch_size=teams, num_generations=teams, max_steps=steps, beta=0.0, bf16=False, seed=run,
            learning_rate=rate or rate_of(name), use_cpu=not (name and torch.cuda.is_available()), gradient_checkpointing=False,
            lr_scheduler_type="constant", report_to=[],
            logging_steps=steps, save_strategy="no", disable_tqdm=True, max_completion_length=4,
        )  # fmt: skip
        tasks = Dataset.from_dict({"prompt": ["lead"] * teams})
        trainer = TeamGRPOTrainer(
            model, row_rewards, args, train_dataset=tasks, processing_class=speech.tokenizer, rollout_func=team,
            layer=layer_of(arm),
        )  # fmt: skip
        trainer.train()
    least = max(1, steps // 10)
    best = max(n / MOST - PRICE * n for n in range(MOST + 1))
    ends = [float(np.mean(team.scores[-least:])), float(np.mean(team.scores[:1]))]
    way = [round(float(np.mean(part)), 4) for part in np.array_split(team.scores, min(10, steps))]
    return {"arm": arm, "start": start, "run": run, "score": ends[0], "before": ends[1], "best": best, "way": way}


def rate_of(name: str | None) -> float:
    """The learning rate of a model."""
    return 1e-2 if name is None else _RATE


def _main() -> None:
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    asked = argparse.ArgumentParser(prog="team_task")
    asked.add_argument("arm", choices=ARMS)
    asked.add_argument("start", type=int)
    asked.add_argument("steps", type=int)
    asked.add_argument("runs", type=int, nargs="+")
    asked.add_argument("--rate", type=float)
    told = asked.parse_args()
    for run in told.runs:
        begin = time.perf_counter()
        print(json.dumps(learn(told.arm, told.start, run, steps=told.steps, rate=told.rate)), flush=True)
        print(f"{told.steps} updates in {time.perf_counter() - begin:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    _main()
